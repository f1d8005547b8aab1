//! Step 5: the record, the mirrored conditions and the resolved release, in one write, and only when something differs.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};
use sluice_core::{
    bootstrap::Belonging,
    conditions::{Mirrored, mirror, with_nothing_to_prove},
    hold::{Hold, HoldReason},
    record::{BootstrapFacts, Observed, PackageSet, Workload, advance, held_for, is_urgent, of_cluster},
};
use sluice_crds::{
    foreign::Cluster,
    run::{
        ClusterBootstrap, ClusterBootstrapStatus, Gate, Hook, Outcome, PackageRecord, PackageState,
        UpgradeRecord,
    },
};
use tracing::info;

use super::{
    AT_REST, Context, Error, HOT, UNWATCHED, apply, dereference::Found, packages::Packages,
    validate::Validated, write::params,
};

/// Progress that changes no answer is written at most this often.
const COALESCE: Duration = Duration::from_secs(5);

/// When to look again at what no watch shows. The longer nothing has changed, the later.
fn unwatched(ctx: &Context, uid: &str) -> Duration {
    let still = ctx.last_written(uid).map_or(Duration::ZERO, |at| at.elapsed());
    (still / 10).clamp(UNWATCHED, HOT)
}

/// Computes and writes the status of `bootstrap`.
pub(super) async fn run(
    ctx: &Context,
    found: &Found,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    mut packages: Packages,
) -> Result<Action, Error> {
    if let Some(again) = packages.settled
        && is_current(found, validated, bootstrap)
    {
        return Ok(Action::requeue(again));
    }
    let previous = own_record(found, bootstrap);
    let mut record = advance(previous, &observe(found, validated, bootstrap, &packages));
    if opens_a_gate(previous, &record) || rests_on_a_new_proof(previous, &record) {
        packages.confirm(ctx, found, validated, bootstrap).await?;
        record = advance(previous, &observe(found, validated, bootstrap, &packages));
    }

    let current = bootstrap.status.clone().unwrap_or_default();
    let mirrored: Vec<_> = packages
        .planned
        .iter()
        .zip(&packages.installs)
        .zip(&packages.judged)
        .map(|((planned, install), judged)| Mirrored {
            ref_name: &planned.facts.ref_name,
            // What an earlier Cluster of the name has left behind is not kept.
            seen: previous.is_none() || packages.shows(planned),
            install: install.as_deref(),
            record: &judged.record,
        })
        .collect();
    let next = match (&packages.problem, &packages.remote) {
        _ if packages.record_first => UNWATCHED,
        (None, Some(_)) if !packages.conflict => HOT,
        // What is wrong may concern every cluster of a release, and the stores wake those that they know of.
        (Some(_), _) if record.outcome == Some(Outcome::Completed) => AT_REST,
        _ => unwatched(ctx, &found.owner.uid),
    };
    let status = ClusterBootstrapStatus {
        resolved_tkr: Belonging::of(bootstrap).release().map(str::to_owned),
        conditions: with_nothing_to_prove(
            mirror(&current.conditions, &mirrored, Timestamp::now()),
            packages.planned.is_empty() && packages.problem.is_none(),
            Timestamp::now(),
        ),
        upgrade: Some(record),
    };
    tell(ctx, found, &status).await;
    // A write that changes nothing shows that the server has nothing else.
    if !packages.record_first {
        if status == current {
            return Ok(Action::requeue(next));
        }
        if let Some(left) = not_yet(ctx, &found.owner.uid, &current, &status) {
            return Ok(Action::requeue(left));
        }
    }
    let completed = completes(&current, &status);
    write(ctx, &found.cluster, bootstrap, status).await?;
    if completed && let Some(remote) = &packages.remote {
        // Best effort: what is left behind is removed when the next upgrade completes.
        if let Err(error) = apply::tidy(ctx, &found.owner, remote, &packages.planned).await {
            info!(error = %super::chain(&error), "Removing old values Secrets");
        }
    }
    Ok(Action::requeue(next))
}

/// The record while the Cluster is being deleted.
pub(super) async fn deleting(
    ctx: &Context,
    found: &Found,
    bootstrap: &ClusterBootstrap,
    waiting: Option<&Hold>,
) -> Result<(), Error> {
    let current = bootstrap.status.clone().unwrap_or_default();
    let previous = own_record(found, bootstrap);
    let observed = Observed {
        bootstrap: facts(bootstrap, None),
        // A deletion is no change of release.
        tkr: Ok(previous
            .and_then(|record| record.tkr.as_deref())
            .unwrap_or_default()),
        problem: waiting,
        uninstalled: waiting.is_none(),
        ..blank(found)
    };
    let record = advance(previous, &observed);
    let status = ClusterBootstrapStatus {
        upgrade: Some(record),
        ..current.clone()
    };
    if status != current {
        write(ctx, &found.cluster, bootstrap, status).await?;
    }
    Ok(())
}

/// The record of a Cluster of which a pass cannot see enough to compute another one: `hold` is why it waits.
pub(super) async fn unseen(ctx: &Context, cluster: &Cluster, hold: &Hold) -> Result<(), Error> {
    let written = record_unseen(ctx, cluster, hold).await;
    ctx.events.held(cluster, hold).await;
    written
}

async fn record_unseen(ctx: &Context, cluster: &Cluster, hold: &Hold) -> Result<(), Error> {
    let (namespace, uid) = (
        cluster.namespace().unwrap_or_default(),
        cluster.uid().unwrap_or_default(),
    );
    let bootstrap = ctx
        .stores
        .bootstraps
        .get(&ObjectRef::new(&cluster.name_any()).within(&namespace));
    let status = bootstrap.as_ref().and_then(|bootstrap| bootstrap.status.as_ref());
    let Some((bootstrap, status, record)) = bootstrap.as_ref().zip(status).and_then(|(bootstrap, status)| {
        Some((bootstrap, status, of_cluster(status.upgrade.as_ref(), &uid)?))
    }) else {
        ctx.index.note(&uid, Some(hold.clone()));
        return Ok(());
    };
    let next = held_for(record, hold);
    if next == *record {
        return Ok(());
    }
    let status = ClusterBootstrapStatus {
        upgrade: Some(next),
        ..status.clone()
    };
    write(ctx, cluster, bootstrap, status).await
}

/// The record of this very Cluster. One of an earlier Cluster of the name says nothing.
pub(super) fn own_record<'a>(found: &Found, bootstrap: &'a ClusterBootstrap) -> Option<&'a UpgradeRecord> {
    of_cluster(bootstrap.status.as_ref()?.upgrade.as_ref(), &found.owner.uid)
}

/// What a record is computed from.
pub(super) fn observe<'a>(
    found: &'a Found,
    validated: &'a Validated,
    bootstrap: &'a ClusterBootstrap,
    packages: &'a Packages,
) -> Observed<'a> {
    let judged = packages.judged.as_slice();
    let known = packages.settled.is_none() && judged.len() == packages.planned.len();
    let resolved = Belonging::of(bootstrap).resolved(&validated.progress);
    Observed {
        tkr: validated.release.as_deref(),
        bootstrap: facts(bootstrap, resolved),
        workload: packages.reach.seen(),
        packages: resolved.filter(|_| known).map(|tkr| PackageSet {
            tkr,
            hop: &validated.progress.hop,
            stage: validated.progress.stage(),
            judged,
        }),
        problem: packages.problem.as_ref(),
        ..blank(found)
    }
}

/// What is observed of a Cluster alone.
fn blank(found: &Found) -> Observed<'_> {
    Observed {
        cluster: found.facts(),
        control_plane: found.control_plane.as_ref(),
        workers: &found.workers,
        plan: &found.plan,
        bootstrap: BootstrapFacts::default(),
        tkr: Ok(""),
        workload: Workload::NotYet(Hold::new(
            HoldReason::ClusterDeleting,
            "the Cluster is being deleted",
        )),
        packages: None,
        problem: None,
        uninstalled: false,
        now: Timestamp::now(),
    }
}

fn facts<'a>(bootstrap: &ClusterBootstrap, resolved_tkr: Option<&'a str>) -> BootstrapFacts<'a> {
    BootstrapFacts {
        generation: bootstrap.metadata.generation.unwrap_or_default(),
        paused: bootstrap.spec.paused,
        resolved_tkr,
    }
}

/// Whether the record has seen everything that is there.
fn is_current(found: &Found, validated: &Validated, bootstrap: &ClusterBootstrap) -> bool {
    own_record(found, bootstrap).is_some_and(|record| {
        validated.release.as_deref().ok() == record.tkr.as_deref()
            && record.label == found.label
            && record.to == found.topology.version
            && Some(record.observed_cluster_generation) == found.cluster.metadata.generation
            && Some(record.observed_bootstrap_generation) == bootstrap.metadata.generation
    })
}

/// Whether an answer turns from hold to release that lets the control plane or workers go.
fn opens_a_gate(previous: Option<&UpgradeRecord>, next: &UpgradeRecord) -> bool {
    let was_open = |hook, version: &str| {
        previous.is_some_and(|record| {
            record
                .gates
                .iter()
                .any(|gate| gate.open && gate.hook == hook && gate.version == version)
        })
    };
    let mut open = next.gates.iter().filter(|gate| lets_go(gate));
    open.any(|gate| !was_open(gate.hook, &gate.version))
}

/// Whether a gate is open that the control plane or workers wait for.
pub(super) fn lets_go(gate: &Gate) -> bool {
    use Hook::{
        AfterControlPlaneUpgrade, BeforeClusterUpgrade, BeforeControlPlaneUpgrade, BeforeWorkersUpgrade,
    };
    let hooks = [
        BeforeClusterUpgrade,
        BeforeControlPlaneUpgrade,
        AfterControlPlaneUpgrade,
        BeforeWorkersUpgrade,
    ];
    gate.open && hooks.contains(&gate.hook)
}

/// Whether a gate stays open by a proof that the record before does not have: of a package that was not proven then, of another App,
/// or of another generation of it. What the App was made from was not looked at then.
fn rests_on_a_new_proof(previous: Option<&UpgradeRecord>, next: &UpgradeRecord) -> bool {
    let mut open = next.gates.iter().filter(|gate| lets_go(gate));
    if !open.any(|gate| Some(&gate.version) == next.hop.as_ref()) {
        return false;
    }
    let proven = |package: &&PackageRecord| package.state == PackageState::Ready;
    let before: Vec<_> = previous
        .into_iter()
        .flat_map(|record| &record.packages)
        .filter(proven)
        .collect();
    next.packages.iter().filter(proven).any(|package| {
        !before.iter().any(|before| {
            before.name == package.name
                && (&before.app_uid, before.app_generation) == (&package.app_uid, package.app_generation)
        })
    })
}

/// How long a change that nothing rests on still has to wait for its write.
fn not_yet(
    ctx: &Context,
    uid: &str,
    current: &ClusterBootstrapStatus,
    next: &ClusterBootstrapStatus,
) -> Option<Duration> {
    let (Some(old), Some(new)) = (&current.upgrade, &next.upgrade) else {
        return None;
    };
    if is_urgent(old, new) || current.resolved_tkr != next.resolved_tkr {
        return None;
    }
    let due: Instant = ctx.last_written(uid)? + COALESCE;
    due.checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
}

fn completes(current: &ClusterBootstrapStatus, next: &ClusterBootstrapStatus) -> bool {
    let done = |status: &ClusterBootstrapStatus| {
        status
            .upgrade
            .as_ref()
            .is_some_and(|record| record.completed_at.is_some())
    };
    done(next) && !done(current)
}

async fn write(
    ctx: &Context,
    cluster: &Cluster,
    bootstrap: &ClusterBootstrap,
    status: ClusterBootstrapStatus,
) -> Result<(), Error> {
    let (namespace, uid) = (
        cluster.namespace().unwrap_or_default(),
        cluster.uid().unwrap_or_default(),
    );
    let api = Api::<ClusterBootstrap>::namespaced(ctx.client.clone(), &namespace);
    let next = ClusterBootstrap {
        status: Some(status),
        ..bootstrap.clone()
    };
    let record = || next.status.as_ref().and_then(|status| status.upgrade.as_ref());
    if let Some(record) = record() {
        ctx.opened().may_be(&uid, record);
    }
    let written = api
        .replace_status(&bootstrap.name_any(), &params(), &next)
        .await?;
    if let Some(record) = record() {
        ctx.opened().are(&uid, record);
    }
    ctx.set_written(&uid);
    ctx.index.note(&uid, None);
    let kept = written.status.and_then(|status| status.upgrade);
    let sent = next.status.and_then(|status| status.upgrade);
    if kept.is_none_or(|kept| drops_fields(sent.as_ref(), &kept)) {
        let hold = Hold::new(
            HoldReason::CRDOutdated,
            "the ClusterBootstrap definition is older than this release and drops fields of status.upgrade; apply its CRDs",
        );
        ctx.index.note(&uid, Some(hold.clone()));
        ctx.events.held(cluster, &hold).await;
    }
    Ok(())
}

/// Whether the definition does not know fields that decisions rest on.
fn drops_fields(sent: Option<&UpgradeRecord>, kept: &UpgradeRecord) -> bool {
    let Some(sent) = sent else { return false };
    let has = |package: &PackageRecord| {
        (
            package.proven_readiness.is_some(),
            package.first_seen_run.is_some(),
            package.repairs,
        )
    };
    let same = sent.packages.iter().map(has).eq(kept.packages.iter().map(has));
    let dated = |record: &UpgradeRecord| (record.begun_at.is_some(), record.settling_since.is_some());
    dated(sent) != dated(kept) || !same
}

/// One event for each change of what the cluster waits for.
async fn tell(ctx: &Context, found: &Found, status: &ClusterBootstrapStatus) {
    let Some(record) = &status.upgrade else { return };
    let Some(gate) = record.gates.iter().find(|gate| !gate.open) else {
        let note = format!("packages are ready on {}", record.to);
        return ctx.events.told(&found.cluster, "PackagesReady", &note).await;
    };
    if let Some(reason) = HoldReason::parse(&gate.reason) {
        ctx.events
            .held(&found.cluster, &Hold::new(reason, gate.message.clone()))
            .await;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::run::Gate;

    use super::*;

    fn record(hook: Hook, open: bool) -> UpgradeRecord {
        let gate = Gate {
            hook,
            version: "v1.36.3".to_owned(),
            open,
            reason: String::new(),
            message: String::new(),
        };
        UpgradeRecord {
            gates: vec![gate],
            ..UpgradeRecord::default()
        }
    }

    #[rstest]
    #[case(Hook::BeforeClusterUpgrade, true)]
    #[case(Hook::BeforeControlPlaneUpgrade, true)]
    #[case(Hook::AfterControlPlaneUpgrade, true)]
    #[case(Hook::BeforeWorkersUpgrade, true)]
    #[case(Hook::AfterWorkersUpgrade, false)]
    #[case(Hook::AfterClusterUpgrade, false)]
    fn a_gate_that_lets_machines_go_is_confirmed_as_it_opens(#[case] hook: Hook, #[case] confirmed: bool) {
        let (closed, open) = (record(hook, false), record(hook, true));
        assert_eq!(opens_a_gate(None, &open), confirmed);
        assert_eq!(opens_a_gate(Some(&closed), &open), confirmed);
        assert!(!opens_a_gate(Some(&open), &open), "it was open");
        assert!(!opens_a_gate(Some(&open), &closed), "it closes");
    }

    /// A definition of an earlier release drops it, and the record would be written again and again without a word.
    #[test]
    fn a_definition_that_drops_the_beginning_is_told() {
        let kept = UpgradeRecord::default();
        let sent = UpgradeRecord {
            begun_at: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                Timestamp::UNIX_EPOCH,
            )),
            ..kept.clone()
        };
        assert!(drops_fields(Some(&sent), &kept));
        assert!(!drops_fields(Some(&sent), &sent));
    }

    fn proven_at(generation: i64) -> PackageRecord {
        PackageRecord {
            name: "antrea".to_owned(),
            version: "1.9.0".to_owned(),
            values_digest: "digest".to_owned(),
            state: PackageState::Ready,
            reason: String::new(),
            message: String::new(),
            app_uid: Some("app".to_owned()),
            app_generation: Some(generation),
            proven_readiness: None,
            first_seen_run: None,
            repairs: 0,
        }
    }

    #[rstest]
    #[case::the_same_proof(Some(proven_at(2)), false)]
    #[case::another_generation(Some(proven_at(1)), true)]
    #[case::one_that_was_not_proven(Some(PackageRecord { state: PackageState::Reconciling, ..proven_at(2) }), true)]
    #[case::one_that_was_not_there(None, true)]
    fn a_gate_that_stays_open_is_confirmed_for_a_proof_that_is_new(
        #[case] before: Option<PackageRecord>,
        #[case] confirmed: bool,
    ) {
        let open = UpgradeRecord {
            hop: Some("v1.36.3".to_owned()),
            ..record(Hook::BeforeControlPlaneUpgrade, true)
        };
        let previous = UpgradeRecord {
            packages: before.into_iter().collect(),
            ..open.clone()
        };
        let next = UpgradeRecord {
            packages: vec![proven_at(2)],
            ..open
        };
        assert_eq!(rests_on_a_new_proof(Some(&previous), &next), confirmed);
    }
}
