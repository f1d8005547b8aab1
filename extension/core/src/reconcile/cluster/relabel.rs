//! Moves a new Cluster to the release that its ClusterBootstrap pins.
//!
//! The resolver takes the pinned release if it knows the ClusterBootstrap. A ClusterBootstrap that is created later, or that the cache of the
//! resolver did not show yet, finds a Cluster on the newest release. Until the control plane is initialized, Sluice changes the label, and
//! the resolver reviews this change like that of a user: it checks the release and replaces `TKR_DATA`.

use std::time::Instant;

use serde_json::json;
use sluice_crds::{foreign::Cluster, labels::label};

use super::{
    Context, Effects, Facts, Interrupt, Key, Server, Step, WITH_PROBLEM, failure::label_refused, write::Write,
};
use crate::{
    cluster::is_stopped,
    migration::may_be_left,
    packages::bootstrap::pinned_release,
    reasons::{GateReason, Hold},
};

/// Change of the label by this process.
#[derive(Debug, Clone)]
pub(super) struct Relabelling {
    /// Release of the label before the change.
    from: String,
    /// The pinned release.
    to: String,
    outcome: Outcome,
}

/// Outcome of a change of the label.
#[derive(Debug, Clone)]
enum Outcome {
    /// The label of this resourceVersion was changed.
    Changed(String),
    /// The change was accepted, but a webhook restored the label.
    Restored,
    /// The change was refused at this time.
    Refused(Hold, Instant),
}

/// Changes the label of a new Cluster to the release that its ClusterBootstrap pins. Returns the hold of a label that cannot be changed. Until
/// the cache shows the change, the Cluster is held because label and annotation differ.
///
/// Sluice replaces each label once: if another client sets it again, both would keep overwriting each other.
pub(super) fn relabel(context: &Context<'_>, effects: &mut Effects) -> Step<Option<Hold>> {
    let facts = context.facts;
    let Some(pinned) = pinned(facts) else {
        return Ok(None);
    };
    let metadata = &facts.cluster.metadata;
    let version = metadata.resource_version.clone().unwrap_or_default();
    let now = context.began.instant;
    let last = context.local.relabelling.as_ref();
    let last = last.filter(|last| last.from == facts.label && last.to == pinned);
    match last.map(|last| &last.outcome) {
        Some(Outcome::Changed(before)) if *before == version => return Ok(None),
        Some(Outcome::Changed(_) | Outcome::Restored) => return Ok(Some(set_again(facts, pinned))),
        Some(Outcome::Refused(hold, at)) if now.saturating_duration_since(*at) < WITH_PROBLEM => {
            return Ok(Some(hold.clone()));
        }
        Some(Outcome::Refused(..)) | None => {}
    }
    let key = Key::of::<Cluster>(
        Server::Management,
        Some(&facts.owner.namespace),
        &facts.owner.name,
    );
    let patch = json!({"metadata": {
        "uid": metadata.uid, "resourceVersion": metadata.resource_version, "labels": {label::TKR: pinned},
    }});
    let write = Write::patch(
        key,
        patch,
        "the ClusterBootstrap of the new Cluster pins the release",
    );
    let (outcome, hold) = match context.write(write) {
        Ok(written) if written["metadata"]["labels"][label::TKR] == pinned => {
            (Outcome::Changed(version), None)
        }
        Ok(_) => (Outcome::Restored, Some(set_again(facts, pinned))),
        // A retry helps against other errors, and against these only after a change of another object.
        Err(Interrupt::Failed(failure))
            if matches!(failure.code, Some(400 | 403 | 413 | 422))
                || failure.uncalled_webhook().is_some() =>
        {
            let hold = label_refused(context, pinned, &failure);
            (Outcome::Refused(hold.clone(), now), Some(hold))
        }
        Err(stop) => return Err(stop),
    };
    effects.local.relabelling = Some(Relabelling {
        from: facts.label.clone(),
        to: pinned.to_owned(),
        outcome,
    });
    Ok(hold)
}

/// Returns the pinned release if the label of the Cluster names another one and may change.
fn pinned(facts: &Facts) -> Option<&str> {
    let (cluster, bootstrap) = (&facts.cluster, facts.bootstrap.as_deref()?);
    let pinned = pinned_release(&bootstrap.metadata)?;
    let release = facts.releases.get(pinned)?;
    let fits = release.spec.kubernetes.version == facts.topology.version;
    // The resolver leaves a paused Cluster unchanged. A take-over patches the Cluster first.
    let may_change =
        facts.follows_bootstrap && !is_stopped(cluster) && !may_be_left(cluster, Some(bootstrap), true);
    (pinned != facts.label && fits && may_change).then_some(pinned)
}

/// Returns the hold of a Cluster whose label another client has set again.
fn set_again(facts: &Facts, pinned: &str) -> Hold {
    Hold::new(
        GateReason::MissingFieldsNotFilled,
        format!(
            "label {} of the Cluster says {:?} again after Sluice changed it to {pinned}, which ClusterBootstrap {} pins; write the same \
             release in both",
            label::TKR,
            facts.label,
            facts.owner.name
        ),
    )
}

#[cfg(test)]
mod tests;
