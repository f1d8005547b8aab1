//! Clauses of the objects of Flux: HelmRelease of helm-controller v1.6, Kustomization of kustomize-controller v1.9.
//!
//! - Both controllers mark an object as reconciling at each interval, before they look at its source. So only a proof that is not recorded
//!   yet waits for the end of a reconcile.
//! - Both write `status.observedGeneration` of suspended objects, which stay ready at their earlier generation.
//! - `status.lastHandledReconcileAt` acknowledges a request and proves nothing.

use super::clause::{Clause, Seen};
use super::object::{condition, detail, flag, is_set, reason, text};
use super::verdict::Verdict;
use crate::protocol::Server;
use crate::reasons::CheckReason;

/// The controller applies to the Cluster: on the management cluster by its kubeconfig Secret, in the workload cluster without one.
pub(super) const OF_THE_CLUSTER: Clause = Clause {
    name: "of the Cluster",
    met: |seen| {
        let object = seen.object();
        match seen.expected.server {
            Server::Management => {
                let secret = text(object, "/spec/kubeConfig/secretRef/name");
                secret == Some(kubeconfig(seen).as_str()) && !is_set(object, "/spec/kubeConfig/configMapRef")
            }
            Server::Workload => !is_set(object, "/spec/kubeConfig"),
        }
    },
    objection: |seen| {
        let name = seen.name();
        let message = match seen.expected.server {
            Server::Management => {
                format!(
                    "spec.kubeConfig of {name} does not name Secret {}",
                    kubeconfig(seen)
                )
            }
            Server::Workload => format!("{name} has a spec.kubeConfig, and may be of another cluster"),
        };
        Verdict::waiting(CheckReason::BelongsElsewhere, message)
    },
};

/// The object is not suspended.
pub(super) const NOT_SUSPENDED: Clause = Clause {
    name: "not suspended",
    met: |seen| !flag(seen.object(), "/spec/suspend"),
    objection: |seen| {
        let message = format!("{} is suspended", seen.name());
        Verdict::waiting(CheckReason::DeliverySuspended, message)
    },
};

/// The controller has not given up.
pub(super) const NOT_STALLED: Clause = Clause {
    name: "not stalled",
    met: |seen| condition(seen.object(), "Stalled", "True").is_none(),
    objection: failed,
};

/// The summary of the conditions is a success.
pub(super) const READY: Clause = Clause {
    name: "ready",
    met: |seen| condition(seen.object(), "Ready", "True").is_some() || repeats_a_proof(seen),
    objection: |seen| in_progress(seen, format!("{} is not ready", seen.name())),
};

/// The controller is not at work.
pub(super) const NOT_RECONCILING: Clause = Clause {
    name: "not reconciling",
    met: |seen| condition(seen.object(), "Reconciling", "True").is_none() || repeats_a_proof(seen),
    objection: |seen| in_progress(seen, format!("{} is being reconciled", seen.name())),
};

/// Whether the controller reconciles an object whose proof is recorded, and has met no failure. Any other state than this withdraws a
/// recorded proof.
pub(super) fn repeats_a_proof(seen: &Seen<'_>) -> bool {
    let object = seen.object();
    let is_not_failed = condition(object, "Ready", "True").is_some()
        || reason(object, "Ready", "Unknown") == Some("Progressing");
    seen.latched_at(object)
        && is_not_failed
        && reason(object, "Reconciling", "True") == Some("Progressing")
        && condition(object, "Stalled", "True").is_none()
}

/// Waits for the controller. The detail is the latest condition.
pub(super) fn in_progress(seen: &Seen<'_>, message: String) -> Verdict {
    Verdict::waiting(CheckReason::DeliveryInProgress, message).with_detail(latest_condition(seen))
}

/// Returns the latest condition of an object that is not ready.
pub(super) fn latest_condition(seen: &Seen<'_>) -> String {
    let conditions = [
        ("Ready", "False"),
        ("Stalled", "True"),
        ("Reconciling", "True"),
        ("Ready", "Unknown"),
    ];
    detail(seen.object(), &conditions)
}

/// Reports a failure. The detail is the condition that names its cause.
pub(super) fn failed(seen: &Seen<'_>) -> Verdict {
    let conditions = [
        ("Released", "False"),
        ("TestSuccess", "False"),
        ("Ready", "False"),
        ("Remediated", "True"),
        ("Stalled", "True"),
    ];
    Verdict::Failed {
        reason: CheckReason::DeliveryFailed,
        message: format!("{} failed", seen.name()),
        detail: detail(seen.object(), &conditions),
    }
}

/// Returns the name of the Secret with the kubeconfig of the Cluster.
fn kubeconfig(seen: &Seen<'_>) -> String {
    format!("{}-kubeconfig", seen.expected.cluster)
}

/// Cases of both kinds on the management cluster.
#[cfg(test)]
#[rustfmt::skip]
pub(super) const WRONG: &[super::cases::Wrong] = {
    use super::cases::Without;
    use serde_json::{Value, json};
    &[
        ("of the Cluster", |given| given.set("/spec/kubeConfig/secretRef", "name", json!("prod-2-kubeconfig")), CheckReason::BelongsElsewhere, Without::Proven),
        ("of the Cluster", |given| given.set("/spec/kubeConfig/secretRef", "name", json!("prod-1-user-kubeconfig")), CheckReason::BelongsElsewhere, Without::Proven),
        ("of the Cluster", |given| given.set("/spec/kubeConfig", "secretRef", json!({})), CheckReason::BelongsElsewhere, Without::Proven),
        ("of the Cluster", |given| given.set("/spec/kubeConfig", "configMapRef", json!({"name": "prod-2"})), CheckReason::BelongsElsewhere, Without::Proven),
        ("of the Cluster", |given| given.set("/spec", "kubeConfig", Value::Null), CheckReason::BelongsElsewhere, Without::Proven),
        ("of the Cluster", |given| given.server = crate::protocol::Server::Workload, CheckReason::BelongsElsewhere, Without::Proven),
        ("not suspended", |given| given.set("/spec", "suspend", json!(true)), CheckReason::DeliverySuspended, Without::Proven),
        ("typed", |given| given.set("/spec", "suspend", json!("true")), CheckReason::NotObserved, Without::Proven),
        ("not stalled", |given| given.set_condition_of_object("Stalled", "True", "InvalidCELExpression"), CheckReason::DeliveryFailed, Without::Proven),
        ("observed", |given| given.set("/status", "observedGeneration", json!(2)), CheckReason::NotObserved, Without::Proven),
        ("observed", |given| given.remove("/status", "observedGeneration"), CheckReason::NotObserved, Without::Proven),
        ("observed", |given| given.set("/status", "observedGeneration", json!(-1)), CheckReason::NotObserved, Without::Proven),
        ("ready", |given| given.set_condition_of_object("Ready", "False", "DependencyNotReady"), CheckReason::DeliveryInProgress, Without::Proven),
        ("ready", |given| given.set_condition_of_object("Ready", "Unknown", "Progressing"), CheckReason::DeliveryInProgress, Without::Proven),
        ("ready", |given| given.set("/status", "conditions", json!([])), CheckReason::DeliveryInProgress, Without::Proven),
        ("not reconciling", |given| given.set_condition_of_object("Reconciling", "True", "Progressing"), CheckReason::DeliveryInProgress, Without::Proven),
    ]
};

/// Marks an object with a recorded proof as reconciled again at its interval.
#[cfg(test)]
pub(super) fn at_its_interval(mut given: super::cases::Given) -> super::cases::Given {
    given.record();
    given.set_condition_of_object("Reconciling", "True", "Progressing");
    given.set_condition_of_object("Ready", "Unknown", "Progressing");
    given
}

/// Edits of an object that is reconciled again, which withdraw its recorded proof.
#[cfg(test)]
#[rustfmt::skip]
pub(super) const WITHDRAWN: &[(&str, super::cases::Edit, CheckReason)] = {
    use serde_json::{Value, json};
    use sluice_crds::lifecycle::CheckState;
    &[
        ("not recorded", |given| given.latch = None, CheckReason::DeliveryInProgress),
        ("cancellation", |given| given.set_condition_of_object("Ready", "False", "HealthCheckCanceled"), CheckReason::DeliveryInProgress),
        ("dependency", |given| given.set_condition_of_object("Ready", "False", "DependencyNotReady"), CheckReason::DeliveryInProgress),
        ("unknown reason", |given| given.set_condition_of_object("Ready", "Unknown", "Newer"), CheckReason::DeliveryInProgress),
        ("retry", |given| given.set_condition_of_object("Reconciling", "True", "ProgressingWithRetry"), CheckReason::DeliveryInProgress),
        ("no summary", |given| given.set("/status", "conditions", json!([{"type": "Reconciling", "status": "True", "reason": "Progressing"}])), CheckReason::DeliveryInProgress),
        ("stalled", |given| given.set_condition_of_object("Stalled", "True", "AccessDenied"), CheckReason::DeliveryFailed),
        ("suspension", |given| given.set("/spec", "suspend", json!(true)), CheckReason::DeliverySuspended),
        ("deletion", |given| given.set("/metadata", "deletionTimestamp", json!("2026-11-26T10:02:11Z")), CheckReason::ObjectDeleting),
        ("absence", |given| given.object = None, CheckReason::ObjectNotFound),
        ("another Cluster", |given| given.set("/spec/kubeConfig/secretRef", "name", json!("prod-2-kubeconfig")), CheckReason::BelongsElsewhere),
        ("recreated", |given| given.set("/metadata", "uid", json!("u9")), CheckReason::DeliveryInProgress),
        ("edited", |given| given.set("/metadata", "generation", json!(4)), CheckReason::NotObserved),
        ("edited and observed", |given| for (parent, key) in [("/metadata", "generation"), ("/status", "observedGeneration"), ("/status", "lastAttemptedGeneration")] { given.set(parent, key, json!(4)); }, CheckReason::DeliveryInProgress),
        ("observed generation", |given| given.set("/status", "observedGeneration", Value::Null), CheckReason::NotObserved),
        ("recorded at another version", |given| given.latch.as_mut().unwrap().version = "1.17.4".to_owned(), CheckReason::DeliveryInProgress),
        ("recorded without uid", |given| given.latch.as_mut().unwrap().uid = None, CheckReason::DeliveryInProgress),
        ("recorded without generation", |given| given.latch.as_mut().unwrap().generation = None, CheckReason::DeliveryInProgress),
        ("recorded as waiting", |given| given.latch.as_mut().unwrap().state = CheckState::Waiting, CheckReason::DeliveryInProgress),
        ("recorded as failed", |given| given.latch.as_mut().unwrap().state = CheckState::Failed, CheckReason::DeliveryInProgress),
    ]
};

/// Asserts that each of these edits withdraws the recorded proof of an object that is reconciled again.
#[cfg(test)]
pub(super) fn each_withdraws(
    proven: fn() -> super::cases::Given,
    edits: &[(&str, super::cases::Edit, CheckReason)],
) {
    let again = at_its_interval(proven());
    assert_eq!(again.judged().reason(), None, "{}", again.message());
    for (name, edit, reason) in edits {
        let mut given = again.clone();
        edit(&mut given);
        let judged = given.judged();
        assert_eq!(judged.reason(), Some(*reason), "{name}: {judged:?}");
    }
}
