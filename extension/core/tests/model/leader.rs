//! Our controller, reduced to what it writes and when. Everything it decides, the functions under test decide.

use std::sync::Arc;

use jiff::SignedDuration;
use sluice_core::packages::bootstrap::{ReleaseChange, ResolvedRelease, must_match_release};
use sluice_core::proof::{Judgement, judge, judge_from_record};
use sluice_core::reasons::{GateReason, Hold};
use sluice_core::upgrade::hop::{ControlPlaneFacts, Plan as Steps, Progress, WorkerFacts};
use sluice_core::upgrade::record::{
    BootstrapFacts, ClusterFacts, Observed, PackageSet, Workload, advance, latch, observed_progress,
    of_cluster, pause,
};
use sluice_core::upgrade::tkr::{TkrFacts, for_progress};
use sluice_crds::run::{Phase, UpgradeRecord};

use crate::capi::Plan;
use crate::objects::{self, NAMES, Names, now};
use crate::truth;
use crate::world::{
    Bootstrap, Contact, Leader, Package, RELEASES, Read, Record, Rollout, SERVERS, UIDS, VERSIONS, Wish,
    World, index_of, label, packages_of, version,
};

/// Input of a leader: one read of the management cluster, and its caches.
struct Sight<'a> {
    read: &'a Read,
    leader: &'a Leader,
    contact: Contact,
    /// Which of [`SERVERS`] the packages are for: the one that answers, else the one that did.
    server: u8,
    control_plane: ControlPlaneFacts,
    workers: Vec<WorkerFacts>,
    plan: Steps,
    progress: Progress,
    tkr: Result<String, Hold>,
    /// Fault that the reconcile ran into.
    problem: Option<Hold>,
}

impl<'a> Sight<'a> {
    fn new(world: &World, read: &'a Read, leader: &'a Leader, plan: Plan, known: &[TkrFacts]) -> Self {
        let control_plane = ControlPlaneFacts {
            spec_version: Some(version(read.control_plane.spec).into()),
            status_version: Some(version(read.control_plane.status).into()),
        };
        let blank = Observed {
            control_plane: Some(&control_plane),
            ..blank(read)
        };
        let workers: Vec<WorkerFacts> = read.workers.map(worker).into_iter().collect();
        let plan = steps(plan, read);
        let progress = observed_progress(
            previous(read),
            &Observed {
                workers: &workers,
                plan: &plan,
                ..blank
            },
        );
        let tkr = match label(read.cluster.label) {
            "" => Err(Hold::new(GateReason::TKRLabelRemoved, "no label")),
            label => {
                let resolved = resolved_release(&read.bootstrap).release();
                for_progress(&progress, resolved, version(read.cluster.to), None, label, known)
            }
        };
        Self {
            read,
            leader,
            contact: world.contact,
            server: server(world, read),
            control_plane,
            workers,
            plan,
            progress,
            tkr,
            problem: None,
        }
    }

    fn observed<'b>(&'b self, packages: Option<PackageSet<'b>>, uninstalled: bool) -> Observed<'b> {
        let unreachable = Hold::new(GateReason::WorkloadUnreachable, "silent");
        let workload = match self.contact {
            Contact::Answers => Workload::Reached {
                uid: SERVERS[usize::from(self.server)],
            },
            Contact::Silent => Workload::Unreachable {
                since: now(),
                hold: unreachable,
            },
            Contact::SilentForLong => Workload::Unreachable {
                since: now() - SignedDuration::from_secs(61),
                hold: unreachable,
            },
            Contact::NeverAnswered => Workload::NotYet(unreachable),
        };
        let blank = blank(self.read);
        Observed {
            control_plane: Some(&self.control_plane),
            workers: &self.workers,
            plan: &self.plan,
            bootstrap: BootstrapFacts {
                resolved_tkr: self.resolved().map(|release| RELEASES[usize::from(release)].0),
                ..blank.bootstrap
            },
            tkr: self.tkr.as_deref(),
            workload,
            packages,
            problem: self.problem.as_ref(),
            uninstalled,
            ..blank
        }
    }

    fn paused(&self) -> bool {
        pause(
            previous(self.read),
            &self.progress,
            &blank(self.read).cluster,
            self.read.bootstrap.paused,
        )
        .is_some()
    }

    fn wanted(&self) -> Option<u8> {
        release_named(self.tkr.as_deref().ok()?)
    }

    /// What has to be written for the ClusterBootstrap to be that of the wanted release.
    fn change(&self) -> Option<(u8, ReleaseChange)> {
        let change = resolved_release(&self.read.bootstrap).change(self.tkr.as_deref().ok()?, &self.progress);
        Some((self.wanted()?, change)).filter(|(_, change)| *change != ReleaseChange::Nothing)
    }

    /// The release that the spec is known to be of.
    fn resolved(&self) -> Option<u8> {
        resolved_release(&self.read.bootstrap)
            .resolved(&self.progress)
            .and_then(release_named)
    }

    /// What keeps the packages from being those of the release, while they have to be.
    fn below_release(&self) -> Option<Hold> {
        let release = self
            .wanted()
            .filter(|release| self.resolved() == Some(*release))?;
        if !must_match_release(&self.progress, &self.workers, previous(self.read)) {
            return None;
        }
        objects::below_release(self.read.bootstrap.release, release)
    }

    fn wish(&self) -> Wish {
        Wish {
            package: packages_of(self.read.bootstrap.release),
            values: self.read.bootstrap.values,
            stage: self.progress.stage().map_or(0, index_of),
            server: self.server,
        }
    }

    fn judged(&self, package: usize) -> Judgement {
        let names = Names::of(package, self.wish());
        let target = objects::target(package, self.wish(), &names, Phase::BeforeControlPlane);
        let silent = package > 0 && self.contact != Contact::Answers;
        let latch = latch(
            previous(self.read),
            SERVERS[usize::from(self.server)],
            NAMES[package],
        );
        if silent {
            return judge_from_record(&target, latch);
        }
        let install = objects::install(package, &self.leader.installs[package]);
        let app = objects::app(package, &self.leader.apps[package]);
        judge(&target, install.as_ref(), app.as_ref(), latch)
    }

    /// The record, and whether a second evaluation of the same objects leaves it unchanged.
    fn record(&self, uninstalled: bool) -> (UpgradeRecord, bool) {
        let judged: Vec<Judgement> = (0..self.leader.installs.len())
            .map(|package| self.judged(package))
            .collect();
        let set = self.resolved().map(|release| PackageSet {
            tkr: RELEASES[usize::from(release)].0,
            hop: &self.progress.hop,
            stage: self.progress.stage(),
            judged: &judged,
        });
        let seen = self.observed(set.filter(|_| !self.read.cluster.deleting()), uninstalled);
        let record = advance(previous(self.read), &seen);
        let rests = advance(Some(&record), &seen) == record;
        (record, rests)
    }
}

/// Evaluation of a single read.
fn blank(read: &Read) -> Observed<'_> {
    let Read {
        cluster, bootstrap, ..
    } = read;
    Observed {
        cluster: ClusterFacts {
            namespace: "team-a",
            name: "one",
            uid: UIDS[usize::from(cluster.uid)],
            generation: cluster.generation.into(),
            label: label(cluster.label),
            topology_version: version(cluster.to),
            paused: cluster.paused,
            start_held: cluster.start_held,
            deleting: cluster.deleting(),
            awaits_hooks: false,
        },
        control_plane: None,
        workers: &[],
        plan: &Steps::Direct,
        bootstrap: BootstrapFacts {
            generation: bootstrap.generation.into(),
            paused: bootstrap.paused,
            resolved_tkr: None,
        },
        tkr: Ok(""),
        workload: Workload::NotYet(Hold::new(GateReason::ClusterDeleting, "")),
        packages: None,
        problem: None,
        uninstalled: false,
        now: now(),
    }
}

/// The record of this very Cluster.
fn previous(read: &Read) -> Option<&UpgradeRecord> {
    let record = read.bootstrap.record.as_ref().map(|record| &*record.0);
    of_cluster(record, UIDS[usize::from(read.cluster.uid)])
}

fn server(world: &World, read: &Read) -> u8 {
    let last = previous(read).and_then(|record| record.workload_uid.as_deref());
    let recorded = SERVERS.iter().zip(0..).find(|(known, _)| Some(**known) == last);
    match recorded {
        Some((_, recorded)) if !world.answers() => recorded,
        _ => world.server,
    }
}

fn resolved_release(bootstrap: &Bootstrap) -> ResolvedRelease<'static> {
    let named = |release: u8| RELEASES[usize::from(release)].0;
    ResolvedRelease {
        annotation: bootstrap.marked.map(named),
        status: bootstrap.resolved.map(named),
    }
}

fn release_named(name: &str) -> Option<u8> {
    let index = RELEASES.iter().position(|(known, _)| *known == name)?;
    u8::try_from(index).ok()
}

fn steps(plan: Plan, read: &Read) -> Steps {
    let named = |versions: &[u8]| versions.iter().map(|step| version(*step).to_owned()).collect();
    match plan {
        Plan::None => Steps::Direct,
        Plan::Versions => Steps::Listed(VERSIONS.map(str::to_owned).to_vec()),
        Plan::WorkersToo => Steps::Given {
            control_plane: named(&read.cluster.planned.control_plane),
            workers: named(&read.cluster.planned.workers),
        },
    }
}

fn worker(workers: Rollout) -> WorkerFacts {
    WorkerFacts {
        name: "md".into(),
        spec_version: Some(version(workers.spec).into()),
        versions: vec![version(workers.status).into()],
        rolling: workers.rolling(),
    }
}

/// The releases that exist.
pub(crate) fn catalogue(releases: &[u8]) -> Vec<TkrFacts> {
    releases
        .iter()
        .map(|release| RELEASES[usize::from(*release)])
        .map(|(name, of)| TkrFacts {
            name: name.into(),
            kubernetes_version: version(of).into(),
            legacy: false,
        })
        .collect()
}

/// One reconcile of a leader: one write, the first that is missing. Every write to the management cluster carries the
/// resourceVersion that was read, and one to the workload is not made after the ClusterBootstrap moved on.
pub(crate) fn pass(world: &mut World, leader: usize, plan: Plan, known: &[TkrFacts]) {
    let me = world.leaders[leader].clone();
    let read = me.read.as_deref().cloned().unwrap_or_else(|| world.read());
    if read.cluster.gone() || world.cluster.gone() || read.bootstrap != world.bootstrap {
        return;
    }
    let mut sight = Sight::new(world, &read, &me, plan, known);
    if read.cluster.deleting() {
        pass_deletion(world, &sight);
        return;
    }
    let free = !sight.paused();
    if !read.bootstrap.exists {
        if let Some(release) = sight.wanted().filter(|_| free) {
            world.bootstrap = Bootstrap::made(world.bootstrap.incarnation + 1, release);
        }
        return;
    }
    let change = sight.change().filter(|_| free);
    if world.merge_fails && matches!(change, Some((_, ReleaseChange::Merge))) {
        sight.problem = Some(Hold::new(GateReason::ValuesNotFound, "a Secret is missing"));
    } else if let Some((release, change)) = change {
        let bootstrap = &mut world.bootstrap;
        if change == ReleaseChange::Merge && bootstrap.release != release {
            bootstrap.release = release;
            bootstrap.generation += 1;
        }
        bootstrap.marked = Some(release);
        return;
    }
    sight.problem = sight.problem.take().or_else(|| sight.below_release());
    let reached = world.answers() && sight.tkr.is_ok() && sight.problem.is_none();
    if free && reached && write_package(world, &sight, me.read.is_none()) {
        return;
    }
    write_record(world, &sight, false);
}

/// Writes the first PackageInstall that is another one than it shall be.
fn write_package(world: &mut World, sight: &Sight<'_>, at_once: bool) -> bool {
    let wish = sight.wish();
    for package in 0..world.packages.len() {
        // kapp-controller gives the proof of all others, so it is proven before they are touched.
        let ours = package == 0 || sight.judged(0).ready();
        if !ours || world.packages[package].install.wish == wish {
            continue;
        }
        world.packages[package].install.wish = wish;
        world.packages[package].install.generation += 1;
        // What was read a while ago may have been paused since.
        if at_once {
            truth::package_is_written(world, package);
        }
        return true;
    }
    false
}

fn pass_deletion(world: &mut World, sight: &Sight<'_>) {
    if !world.bootstrap.exists {
        return;
    }
    let left = |package: &Package| !package.is_missing();
    let uninstalled = world.answers() && !world.packages[1..].iter().any(left);
    if world.answers()
        && let Some(package) = world.packages[1..]
            .iter_mut()
            .find(|package| left(package) && !package.deleting)
    {
        package.deleting = true;
        return;
    }
    write_record(world, sight, uninstalled);
}

fn write_record(world: &mut World, sight: &Sight<'_>, uninstalled: bool) {
    let (record, rests) = sight.record(uninstalled);
    if !rests {
        world.broken = Some("the same look twice gave two records");
    }
    if !sight.read.cluster.deleting() {
        world.bootstrap.resolved = resolved_release(&sight.read.bootstrap)
            .release()
            .and_then(release_named);
    }
    if previous(sight.read) != Some(&record) {
        world.bootstrap.record = Some(Record(Arc::new(record)));
    }
}
