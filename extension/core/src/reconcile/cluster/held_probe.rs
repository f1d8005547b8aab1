//! Probe of a Cluster whose gate is held beyond its limit. It looks for the cause, and no gate depends on the result.
//!
//! A probe may take longer than a fast reconcile, so the executor runs it in a task of its own and requeues the Cluster when it has ended.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_crds::run::{
    ClusterBootstrap, ClusterBootstrapStatus, HeldCause, PackageRecord, Readiness, UpgradeRecord,
};

use super::{Context, effects::Effects, local_state::LocalState, packages::Packages};
use crate::{
    explanation::{Explanation, explain},
    held_cause::{Probe, Probed, ProbedPackage, is_probed},
    summary::until_cause,
};

/// Interval of the probes of a Cluster.
const EVERY: Duration = Duration::from_mins(5);

/// Requeue delay after the request of a probe. Probes of other Clusters may have taken all permits.
const SOON: Duration = Duration::from_secs(30);

/// Probes of a held Cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldProbe {
    /// Start of the last probe.
    started: Option<Instant>,
    /// Result of the last probe.
    probed: Option<Arc<Probed>>,
}

impl LocalState {
    /// Stores the result of a probe for the next reconcile.
    pub(super) fn was_probed(&mut self, probed: Probed) {
        self.held_probe.probed = Some(Arc::new(probed));
    }

    /// Notes that the requested probe was not started, because there was no permit. The next reconcile requests it again.
    pub fn probe_later(&mut self) {
        self.held_probe.started = None;
    }
}

/// Returns the cause that the last probe has found for the wait in a record.
pub(super) fn found(local: &LocalState, record: &UpgradeRecord) -> Option<HeldCause> {
    let probed = local.held_probe.probed.as_ref()?;
    probed.cause(&explain(record, None)?, record)
}

/// Requests a probe of the Cluster, if its gate stays held in `status` beyond its limit and no probe has started for five minutes. Returns the
/// time until the next reconcile that may request one; `None` if there is none.
pub(super) fn check(
    context: &Context<'_>,
    effects: &mut Effects,
    bootstrap: &ClusterBootstrap,
    status: &ClusterBootstrapStatus,
    packages: &Packages,
) -> Option<Duration> {
    let policy = bootstrap.spec.upgrade_policy.as_ref();
    let left = until_cause(status, policy, context.began.now);
    if left.is_none_or(|left| !left.is_zero()) {
        effects.local.held_probe.probed = None;
        return left;
    }
    let record = status.upgrade.as_ref()?;
    let wait = explain(record, None).filter(is_probed)?;
    let now = context.began.instant;
    if let Some(started) = effects.local.held_probe.started {
        let left = EVERY.saturating_sub(now.saturating_duration_since(started));
        if !left.is_zero() {
            return Some(left);
        }
    }
    effects.local.held_probe.started = Some(now);
    effects.probe = Some(probe(context, packages, &wait));
    Some(SOON)
}

fn probe(context: &Context<'_>, packages: &Packages, wait: &Explanation<'_>) -> Probe {
    let (facts, owner) = (context.facts, &context.facts.owner);
    // A gate that waits for all nodes names no package.
    let is_awaited = |record: &PackageRecord| match wait.package {
        Some(package) => record.name == package.name,
        None => record.proven_readiness == Some(Readiness::Applied),
    };
    let mut planned = packages.planned.iter().zip(&packages.judged);
    let awaited = planned.find(|(_, judged)| is_awaited(&judged.record));
    let package = awaited.map(|(planned, _)| ProbedPackage {
        server: planned.server(),
        namespace: planned
            .namespace(owner, &facts.settings.system_namespace)
            .to_owned(),
        name: planned.install_name.clone(),
    });
    Probe {
        subject: wait.subject(),
        package,
        is_unreachable: wait.is_unreachable(),
        namespace: owner.namespace.clone(),
        cluster: owner.name.clone(),
    }
}

#[cfg(test)]
mod tests;
