//! Maps API errors to hold reasons.

use sluice_crds::labels::label;

use super::{Context, provider::COPYING};
use crate::rbac::missing_rule;
use crate::{
    packages::build::Owner,
    protocol::{Error, Failure, Interrupt, Key, ReconcileFailure},
    reasons::{GateReason, Hold},
};

/// Hold message for a workload API server that does not respond.
const SILENT: &str = "the workload API server does not respond";

/// Maximum length of an API server's message in a hold, in characters.
const LONGEST_MESSAGE: usize = 256;

/// Returns the hold for a failed read of the workload API server.
///
/// Its message omits details that change between attempts, because the message of a hold must not change.
pub(crate) fn silent(failure: &Failure) -> Hold {
    if let Some(object) = &failure.undecodable {
        return object.hold();
    }
    let message = match failure.code {
        Some(code @ (401 | 403 | 404)) => format!("the workload API server answers with {code}"),
        // A Kubernetes API server repeats the code in its response body; 0 means that the body has none.
        Some(0) => "the server of the kubeconfig is not a Kubernetes API server".to_owned(),
        _ if failure.too_long => "the response of the workload API server exceeds the limit".to_owned(),
        _ => return unanswered(failure.cause.as_deref()),
    };
    Hold::new(GateReason::WorkloadUnreachable, message)
}

/// Returns the hold for a workload API server without response, with the cause that TLS or a proxy reports.
pub(crate) fn unanswered(cause: Option<&str>) -> Hold {
    let message = match cause {
        Some(cause) => format!("no connection to the workload API server: {cause}"),
        None => SILENT.to_owned(),
    };
    Hold::new(GateReason::WorkloadUnreachable, message)
}

/// Returns the hold for a failed request of a reconcile to the management API server.
#[must_use]
pub fn reconcile_failed(failure: &Failure) -> Hold {
    if let Some(object) = &failure.undecodable {
        return object.hold();
    }
    // The message must not change between attempts; the server's own message goes to the log.
    let message = match failure.code {
        _ if failure.too_long => {
            "the objects that Sluice reads for this Cluster, such as Secrets with values, exceed 8 MiB of memory; make them smaller"
        }
        Some(409) => "other clients keep writing the same objects",
        Some(400..=407 | 410..=428) => "the management API server refuses a request; see the log of Sluice",
        _ => "the management API server does not respond; see the log of Sluice",
    };
    Hold::new(GateReason::ReconcileError, message)
}

/// Returns the hold of a Cluster whose reconcile did not complete.
#[must_use]
pub fn ended_early(error: &Error) -> Hold {
    let (reason, message) = match error {
        Error::Refused(failure) => return reconcile_failed(failure),
        Error::Failed(ReconcileFailure::TimedOut) => {
            return Hold::new(GateReason::ReconcileTimedOut, error.to_string());
        }
        Error::Unfinished(_) => (GateReason::ReconcileError, "makes no progress, a bug of Sluice"),
        Error::Failed(ReconcileFailure::Panicked) => {
            (GateReason::ReconcilePanicked, "panicked, a bug of Sluice")
        }
    };
    let message = format!("reconcile {message}; see the log of Sluice");
    Hold::new(reason, message)
}

/// Returns the hold for a failed write of an object of `package` to the workload.
pub(super) fn refused(package: &str, failure: &Failure) -> Hold {
    match failure.code {
        // The package API is served by the kapp-controller that has just been installed or restarted.
        Some(404 | 503) => Hold::new(
            GateReason::KappControllerRestarting,
            "waiting for kapp-controller to serve the package API",
        ),
        // A retry does not help against these codes.
        Some(400 | 403 | 413 | 422) => write_refused(package, "workload", failure),
        _ => silent(failure),
    }
}

/// Returns the failure of a write to a values source of `package`, as a hold if a retry does not help.
pub(super) fn object_refused(key: &Key, package: &str, failure: Failure) -> Interrupt {
    match failure.code {
        Some(400 | 403 | 413 | 422) => object_refused_with(key, package, &failure).into(),
        _ => Interrupt::Failed(failure),
    }
}

/// Returns the same hold for any response.
pub(super) fn object_refused_with(key: &Key, package: &str, failure: &Failure) -> Hold {
    let said = refusal_message(failure);
    // Authorizers use this wording; quotas and admission respond with 403 as well.
    let is_unauthorized = failure.code == Some(403) && failure.message.contains(" cannot ");
    let rule = if is_unauthorized && !key.resource.group.is_empty() {
        format!(
            "; {}",
            missing_rule(COPYING, &key.resource.group, &key.resource.plural)
        )
    } else {
        String::new()
    };
    let message = format!("{key}, the values source of package {package}, cannot be written: {said}{rule}");
    Hold::new(GateReason::WriteRefused, message)
}

/// Returns the hold for a refused owner reference of the ClusterBootstrap to its Cluster.
pub(super) fn owner_refused(context: &Context<'_>, failure: &Failure) -> Hold {
    let Owner { namespace, name, .. } = &context.facts.owner;
    let said = refusal_message(failure);
    let message = format!(
        "ClusterBootstrap {namespace}/{name} is not deleted with its Cluster: the management API server refuses the owner reference: {said}"
    );
    Hold::new(GateReason::WriteRefused, message)
}

/// Returns the hold for a Cluster whose label could not be changed to the release `pinned` by its ClusterBootstrap.
pub(super) fn label_refused(context: &Context<'_>, pinned: &str, failure: &Failure) -> Hold {
    let facts = context.facts;
    let Owner { namespace, name, .. } = &facts.owner;
    if let Some(hold) = webhook_in_the_way(&format!("Cluster {namespace}/{name}"), failure) {
        return hold;
    }
    // The resolver repeats the query before its result.
    let result = failure.message.rsplit_once("result: ");
    let said = result.map_or_else(
        || refusal_message(failure),
        |(_, result)| result.chars().take(LONGEST_MESSAGE).collect(),
    );
    Hold::new(
        GateReason::MissingFieldsNotFilled,
        format!(
            "ClusterBootstrap {name} pins TanzuKubernetesRelease {pinned}, but label {} of the Cluster says {:?} and cannot be changed: \
             {said}",
            label::TKR,
            facts.label
        ),
    )
}

/// Returns the hold for `object`, a Cluster whose machines cannot be replaced by those of a release.
pub(super) fn swap_refused(object: &str, release: &str, failure: &Failure) -> Hold {
    let said = refusal_message(failure);
    Hold::new(
        GateReason::WriteRefused,
        format!("{object}: the entry of TanzuKubernetesRelease {release} in TKR_DATA is refused: {said}"),
    )
}

/// Returns reason and message, with a remedy, for the leftover `what` of `object` that cannot be removed.
pub(super) fn not_removed(object: &str, what: &str, failure: &Failure) -> (&'static str, String) {
    if let Some(hold) = webhook_in_the_way(object, failure) {
        return (hold.reason.as_str(), hold.message);
    }
    let said = match (failure.code, &*refusal_message(failure)) {
        (None, _) => "the management API server does not respond".to_owned(),
        (Some(code), "") => format!("error {code}"),
        (_, said) => said.to_owned(),
    };
    let way_out = if failure.code == Some(403) {
        "; apply the roles and the admission policy of manifests/base"
    } else {
        "; Sluice retries"
    };
    (
        "LeftoversNotRemoved",
        format!("{object}: {what} of the addons-manager cannot be removed: {said}{way_out}"),
    )
}

/// Returns the hold for a write of `object` that was refused because a webhook could not be called.
pub(super) fn webhook_in_the_way(object: &str, failure: &Failure) -> Option<Hold> {
    let webhook = failure.uncalled_webhook()?;
    let message = format!(
        "{object} cannot be written: webhook {webhook} cannot be called; delete its webhook configuration if the addons-manager \
         left it behind (docs/migrating.md)"
    );
    Some(Hold::new(GateReason::WebhookUnavailable, message))
}

/// Returns the message of a refusal.
fn refusal_message(failure: &Failure) -> String {
    match failure.code {
        // The text may contain ports and times, and the message of a hold must not change between attempts.
        Some(code @ 500..) => format!("error {code}, see the log"),
        // The text appears in conditions, events and hook responses, and may have any length.
        _ => failure.message.chars().take(LONGEST_MESSAGE).collect(),
    }
}

/// Returns the hold for a refused write of an object of `package`.
pub(super) fn write_refused(package: &str, server: &str, failure: &Failure) -> Hold {
    let said = refusal_message(failure);
    Hold::new(
        GateReason::WriteRefused,
        format!("the {server} API server refuses package {package}: {said}"),
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::protocol::Server;

    #[rstest]
    #[case::credentials_that_were_revoked(401, "the workload API server answers with 401")]
    #[case::nothing_of_kubernetes(404, "the workload API server answers with 404")]
    #[case::an_answer_without_code(0, "the server of the kubeconfig is not a Kubernetes API server")]
    #[case::codes_that_change_from_try_to_try(503, "the workload API server does not respond")]
    fn a_stable_error_is_named(#[case] code: u16, #[case] says: &str) {
        let failure = Failure {
            code: Some(code),
            ..Failure::other(Server::Workload, "")
        };
        let hold = silent(&failure);
        assert_eq!(hold.reason, GateReason::WorkloadUnreachable);
        assert_eq!(hold.message, says);
    }

    #[test]
    fn the_cause_of_a_failed_connection_is_named() {
        let failure = Failure {
            cause: Some("invalid peer certificate: UnknownIssuer".to_owned()),
            ..Failure::other(Server::Workload, "client error (Connect): the whole chain")
        };
        let hold = silent(&failure);
        assert_eq!(hold.reason, GateReason::WorkloadUnreachable);
        assert_eq!(
            hold.message,
            "no connection to the workload API server: invalid peer certificate: UnknownIssuer"
        );
    }
}
