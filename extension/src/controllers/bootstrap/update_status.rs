//! Step 5: the record, the mirrored conditions and the resolved release, in one write, and only when something differs.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::{Api, ResourceExt, runtime::controller::Action};
use sluice_core::{
    conditions::{Mirrored, mirror},
    hold::{Hold, HoldReason},
    record::{BootstrapFacts, Observed, PackageSet, Workload, advance, of_cluster},
};
use sluice_crds::run::{ClusterBootstrap, ClusterBootstrapStatus, Hook, Outcome, UpgradeRecord};
use tracing::info;

use super::{
    AT_REST, Context, Error, HOT, UNWATCHED, apply, dereference::Found, packages::Packages,
    validate::Validated, write::params,
};

/// Progress that changes no answer is written at most this often.
const COALESCE: Duration = Duration::from_secs(5);

/// Computes and writes the status of `bootstrap`.
pub(super) async fn run(
    ctx: &Context,
    found: &Found,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    mut packages: Packages,
) -> Result<Action, Error> {
    if packages.settled && is_current(found, validated, bootstrap) {
        return Ok(Action::requeue(ctx.settings.sync_period));
    }
    let previous = own_record(found, bootstrap);
    let mut record = advance(previous, &observe(found, validated, bootstrap, &packages));
    if opens_a_before_gate(previous, &record) {
        packages.confirm(ctx, found).await?;
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
            install: install.as_deref(),
            record: &judged.record,
        })
        .collect();
    let next = match (&packages.problem, &packages.remote) {
        (None, Some(_)) => HOT,
        (Some(hold), _) if record.outcome == Some(Outcome::Completed) && is_about_values(hold) => AT_REST,
        _ => UNWATCHED,
    };
    let status = ClusterBootstrapStatus {
        resolved_tkr: validated.resolved.clone(),
        conditions: mirror(&current.conditions, &mirrored, Timestamp::now()),
        upgrade: Some(record),
    };
    tell(ctx, found, &status).await;
    if status == current {
        return Ok(Action::requeue(next));
    }
    if let Some(left) = not_yet(ctx, &found.owner.uid, &current, &status) {
        return Ok(Action::requeue(left));
    }
    let completed = completes(&current, &status);
    write(ctx, found, bootstrap, status).await?;
    if completed && let Some(remote) = &packages.remote {
        // Best effort: what is left behind is removed when the next upgrade completes.
        if let Err(error) = apply::tidy(ctx, &found.owner, remote, &packages.planned).await {
            info!(error = %super::chain(&error), "Removing old values Secrets");
        }
    }
    Ok(Action::requeue(next))
}

/// Whether it is the values of a package that cannot be had.
fn is_about_values(hold: &Hold) -> bool {
    matches!(
        hold.reason,
        HoldReason::ValuesNotFound | HoldReason::ValuesNotReady
    )
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
        write(ctx, found, bootstrap, status).await?;
    }
    Ok(())
}

/// The record of this very Cluster. One of an earlier Cluster of the name says nothing.
fn own_record<'a>(found: &Found, bootstrap: &'a ClusterBootstrap) -> Option<&'a UpgradeRecord> {
    of_cluster(bootstrap.status.as_ref()?.upgrade.as_ref(), &found.owner.uid)
}

/// What a record is computed from.
fn observe<'a>(
    found: &'a Found,
    validated: &'a Validated,
    bootstrap: &'a ClusterBootstrap,
    packages: &'a Packages,
) -> Observed<'a> {
    let judged = packages.judged.as_slice();
    let known = !packages.settled && judged.len() == packages.planned.len();
    Observed {
        tkr: validated.release.as_deref(),
        bootstrap: facts(bootstrap, validated.resolved.as_deref()),
        workload: packages.reach.seen(),
        packages: validated
            .resolved
            .as_deref()
            .filter(|_| known)
            .map(|tkr| PackageSet {
                tkr,
                hop: &validated.progress.hop,
                stage: validated.progress.stage(),
                judged,
            }),
        problem: packages.problem.as_ref(),
        settling_since: settling_since(own_record(found, bootstrap)),
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
        settling_since: None,
        uninstalled: false,
        now: Timestamp::now(),
    }
}

/// A ClusterBootstrap is written after its clones, so one that exists is complete.
fn facts<'a>(bootstrap: &ClusterBootstrap, resolved_tkr: Option<&'a str>) -> BootstrapFacts<'a> {
    BootstrapFacts {
        generation: bootstrap.metadata.generation.unwrap_or_default(),
        paused: bootstrap.spec.paused,
        complete: true,
        resolved_tkr,
    }
}

/// Since when packages have only been settling.
fn settling_since(record: Option<&UpgradeRecord>) -> Option<Timestamp> {
    let record = record?;
    let settling = |gate: &sluice_crds::run::Gate| {
        gate.hook == Hook::AfterClusterUpgrade && gate.reason == HoldReason::PackagesNotSettled.as_str()
    };
    record.gates.iter().any(settling).then_some(())?;
    record.ready_at.as_ref().map(|time| time.0)
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

/// Whether an answer turns from hold to release that lets the control plane go.
fn opens_a_before_gate(previous: Option<&UpgradeRecord>, next: &UpgradeRecord) -> bool {
    let was_open = |hook, version: &str| {
        previous.is_some_and(|record| {
            record
                .gates
                .iter()
                .any(|gate| gate.open && gate.hook == hook && gate.version == version)
        })
    };
    next.gates.iter().any(|gate| {
        gate.open
            && matches!(
                gate.hook,
                Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade | Hook::AfterControlPlaneUpgrade
            )
            && !was_open(gate.hook, &gate.version)
    })
}

/// How long a change that alters no answer still has to wait for its write.
fn not_yet(
    ctx: &Context,
    uid: &str,
    current: &ClusterBootstrapStatus,
    next: &ClusterBootstrapStatus,
) -> Option<Duration> {
    let (Some(old), Some(new)) = (&current.upgrade, &next.upgrade) else {
        return None;
    };
    let answers = |record: &UpgradeRecord| {
        (
            record.gates.clone(),
            record.label.clone(),
            record.to.clone(),
            record.outcome,
            record.observed_cluster_generation,
            record.observed_bootstrap_generation,
        )
    };
    if answers(old) != answers(new) || current.resolved_tkr != next.resolved_tkr {
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
    found: &Found,
    bootstrap: &ClusterBootstrap,
    status: ClusterBootstrapStatus,
) -> Result<(), Error> {
    let api = Api::<ClusterBootstrap>::namespaced(ctx.client.clone(), &found.owner.namespace);
    let next = ClusterBootstrap {
        status: Some(status),
        ..bootstrap.clone()
    };
    let written = api
        .replace_status(&bootstrap.name_any(), &params(), &next)
        .await?;
    ctx.set_written(&found.owner.uid);
    ctx.index.note(&found.owner.uid, None);
    if written.status.is_none_or(|status| status.upgrade.is_none()) {
        let hold = Hold::new(
            HoldReason::CRDOutdated,
            "the ClusterBootstrap definition is older than this release and drops status.upgrade; apply its CRDs",
        );
        ctx.index.note(&found.owner.uid, Some(hold.clone()));
        ctx.events.held(&found.cluster, &hold).await;
    }
    Ok(())
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
