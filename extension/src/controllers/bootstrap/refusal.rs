//! What the answers of API servers come to that are none, or that refuse.

use kube::core::Status;
use sluice_core::hold::{Hold, HoldReason};
use tracing::warn;

use super::{chain, targets::Planned};
use crate::bounded::is_too_long;

/// What is said of a workload API server that says nothing.
pub(super) const SILENT: &str = "the workload API server does not answer";

/// Characters of an API server's message that are passed on.
const LONGEST_MESSAGE: usize = 256;

/// The workload API server does not say what it was asked for.
pub(super) fn silent(error: &kube::Error) -> Hold {
    // What went wrong in detail changes from try to try, and the message of a hold must not.
    warn!(error = %chain(error), "Reaching a workload API server");
    let message = match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404) => {
            format!("the workload API server answers with {}", status.code)
        }
        // An API server says the code in its answer, too.
        kube::Error::Api(status) if status.code == 0 => {
            "what the kubeconfig leads to is no Kubernetes API server".to_owned()
        }
        error if is_too_long(error) => {
            "the workload API server answers with more than Sluice reads".to_owned()
        }
        _ => SILENT.to_owned(),
    };
    Hold::new(HoldReason::WorkloadUnreachable, message)
}

/// The management API server did not do what a pass needs.
pub(super) fn failed(error: &kube::Error) -> Hold {
    // As above; what it says goes to the log.
    let message = match error {
        kube::Error::Api(status) if status.code == 409 => "others write the same objects again and again",
        kube::Error::Api(status) if matches!(status.code, 400..=407 | 410..=428) => {
            "the management API server refuses a request; the log of Sluice says which"
        }
        _ => "the management API server does not answer a request; the log of Sluice says why",
    };
    Hold::new(HoldReason::PassFailed, message)
}

/// The workload API server did not take what belongs to a package.
pub(super) fn refused(planned: &Planned, answer: &kube::Error) -> Hold {
    match answer {
        // The package API is served by the kapp-controller that has just been installed or restarted.
        kube::Error::Api(status) if matches!(status.code, 404 | 503) => Hold::new(
            HoldReason::KappControllerRestarting,
            "waiting for kapp-controller to serve the package API",
        ),
        // Another try will not change these.
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 413 | 422) => {
            write_refused(planned, "workload", status)
        }
        other => silent(other),
    }
}

/// An API server does not take what belongs to a package.
pub(super) fn write_refused(planned: &Planned, server: &str, status: &Status) -> Hold {
    let package = &planned.package_name;
    let message = if status.code < 500 {
        shortened(&status.message)
    } else {
        // Its text may name ports and times, and the message of a hold must not change from try to try.
        warn!(package, message = shortened(&status.message), "Writing a package");
        format!("error {}, see the log", status.code)
    };
    Hold::new(
        HoldReason::WriteRefused,
        format!("the {server} API server refuses package {package}: {message}"),
    )
}

/// The beginning of a server's message. It goes into conditions, events and calls, and may be of any length.
fn shortened(message: &str) -> String {
    message.chars().take(LONGEST_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::credentials_that_were_revoked(401, "the workload API server answers with 401")]
    #[case::nothing_of_kubernetes(404, "the workload API server answers with 404")]
    #[case::an_answer_without_code(0, "what the kubeconfig leads to is no Kubernetes API server")]
    #[case::codes_that_change_from_try_to_try(503, "the workload API server does not answer")]
    fn an_answer_that_stays_the_same_is_named(#[case] code: u16, #[case] says: &str) {
        let answer = Status::failure("", "").with_code(code);
        let hold = silent(&kube::Error::Api(answer.boxed()));
        assert_eq!(hold.reason, HoldReason::WorkloadUnreachable);
        assert_eq!(hold.message, says);
    }
}
