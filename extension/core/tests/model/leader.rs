//! Our controller, reduced to what it writes and when. Everything it decides, the functions under test decide.

use std::sync::Arc;

use sluice_core::hold::Hold;
use sluice_core::hop::{ControlPlaneFacts, Course, Progress, WorkerFacts};
use sluice_core::proof::{Judgement, judge};
use sluice_core::record::{
    BootstrapFacts, ClusterFacts, Observed, PackageSet, Workload, advance, latch, pause, progress_of,
};
use sluice_core::tkr::{TkrFacts, for_progress};
use sluice_crds::run::{Phase, UpgradeRecord};

use crate::capi::Plan;
use crate::objects::{self, NAMES, Names, now};
use crate::world::{Leader, RELEASES, Read, Record, Rollout, VERSIONS, Wish, World, index_of, version};

const WORKLOAD: &str = "kube-system";

/// What a leader works out from one look at the management cluster and from what its watches have shown.
struct Sight<'a> {
    read: &'a Read,
    leader: &'a Leader,
    control_plane: ControlPlaneFacts,
    workers: Vec<WorkerFacts>,
    plan: Option<Vec<String>>,
    progress: Progress,
    tkr: Result<String, Hold>,
}

impl<'a> Sight<'a> {
    fn new(read: &'a Read, leader: &'a Leader, plan: Plan, known: &[TkrFacts]) -> Self {
        let control_plane = ControlPlaneFacts {
            spec_version: Some(version(read.control_plane.spec).into()),
            status_version: Some(version(read.control_plane.status).into()),
        };
        let workers = read.workers.map(worker).into_iter().collect();
        let plan = (plan != Plan::None).then(|| VERSIONS.map(str::to_owned).to_vec());
        let mut sight = Self {
            read,
            leader,
            control_plane,
            workers,
            plan,
            progress: Progress {
                phase: sluice_core::hop::ControlPlanePhase::Creating,
                hop: String::new(),
                course: Course::Forward,
                taken: false,
            },
            tkr: Ok(String::new()),
        };
        sight.progress = progress_of(sight.previous(), &sight.observed(None));
        let to = version(read.cluster.to);
        sight.tkr = for_progress(
            &sight.progress,
            sight.previous(),
            to,
            None,
            RELEASES[usize::from(read.cluster.label)].0,
            known,
        );
        sight
    }

    fn previous(&self) -> Option<&'a UpgradeRecord> {
        self.read.bootstrap.record.as_ref().map(|record| &*record.0)
    }

    fn observed<'b>(&'b self, packages: Option<PackageSet<'b>>) -> Observed<'b> {
        let Read {
            cluster, bootstrap, ..
        } = self.read;
        Observed {
            cluster: ClusterFacts {
                namespace: "team-a",
                name: "one",
                uid: "cluster",
                generation: cluster.generation.into(),
                label: RELEASES[usize::from(cluster.label)].0,
                topology_version: version(cluster.to),
                paused: cluster.paused,
                start_held: cluster.start_held,
                deleting: false,
            },
            control_plane: Some(&self.control_plane),
            workers: &self.workers,
            plan: self.plan.as_deref(),
            bootstrap: BootstrapFacts {
                generation: bootstrap.generation.into(),
                paused: bootstrap.paused,
                complete: true,
                resolved_tkr: Some(RELEASES[usize::from(bootstrap.release)].0),
            },
            tkr: self.tkr.as_deref(),
            workload: Workload::Reached { uid: WORKLOAD },
            packages,
            problem: None,
            settling_since: None,
            uninstalled: false,
            now: now(),
        }
    }

    fn paused(&self) -> bool {
        let seen = self.observed(None);
        pause(
            self.previous(),
            &self.progress,
            &seen.cluster,
            seen.bootstrap.paused,
        )
        .is_some()
    }

    /// The release to merge into the ClusterBootstrap, if another one is in it.
    fn to_merge(&self) -> Option<u8> {
        let wanted = self.tkr.as_ref().ok()?;
        let release = RELEASES.iter().position(|(name, _)| name == wanted)?;
        let release = u8::try_from(release).ok()?;
        (release != self.read.bootstrap.release).then_some(release)
    }

    fn wish(&self) -> Wish {
        let stage = self.progress.stage().map_or(0, index_of);
        Wish {
            release: self.read.bootstrap.release,
            values: self.read.bootstrap.values,
            stage,
        }
    }

    fn judged(&self, package: usize) -> Judgement {
        let names = Names::of(package, self.wish());
        let target = objects::target(package, self.wish(), &names, Phase::BeforeControlPlane);
        let install = objects::install(package, &self.leader.installs[package]);
        let app = objects::app(package, &self.leader.apps[package]);
        let latch = latch(self.previous(), WORKLOAD, NAMES[package]);
        judge(&target, Some(&install), Some(&app), latch)
    }

    /// The record, and whether a second look at the same would leave it as it is.
    fn record(&self) -> (UpgradeRecord, bool) {
        let judged: Vec<Judgement> = (0..self.leader.installs.len())
            .map(|package| self.judged(package))
            .collect();
        let merged = self.to_merge().is_none() && self.tkr.is_ok();
        let set = PackageSet {
            tkr: RELEASES[usize::from(self.read.bootstrap.release)].0,
            hop: &self.progress.hop,
            stage: self.progress.stage(),
            judged: &judged,
        };
        let seen = self.observed(merged.then_some(set));
        let record = advance(self.previous(), &seen);
        let rests = advance(Some(&record), &seen) == record;
        (record, rests)
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

/// One pass of a leader: one write, the first that is missing. Every write to the management cluster carries the
/// resourceVersion that was read, and one to the workload is not made after the ClusterBootstrap moved on.
pub(crate) fn pass(world: &mut World, leader: usize, plan: Plan, known: &[TkrFacts]) {
    let me = world.leaders[leader].clone();
    let read = me.read.as_deref().cloned().unwrap_or_else(|| world.read());
    if read.bootstrap != world.bootstrap {
        return;
    }
    let sight = Sight::new(&read, &me, plan, known);
    if !sight.paused() {
        if let Some(release) = sight.to_merge() {
            world.bootstrap.release = release;
            world.bootstrap.generation += 1;
            return;
        }
        let wish = sight.wish();
        let may_install = sight.tkr.is_ok();
        for package in 0..world.packages.len() {
            // kapp-controller gives the proof of all others, so it is proven before they are touched.
            let ours = package == 0 || sight.judged(0).ready();
            let install = &mut world.packages[package].install;
            if may_install && ours && install.wish != wish {
                install.wish = wish;
                install.generation += 1;
                return;
            }
        }
    }
    let (record, rests) = sight.record();
    if !rests {
        world.broken = Some("the same look twice gave two records");
    }
    if sight.previous() != Some(&record) {
        world.bootstrap.record = Some(Record(Arc::new(record)));
    }
}
