//! Names one cause for a wait.

use sluice_crds::run::HeldCause;

use super::{
    cause::{Cause, held_cause},
    objects::HeldObjects,
    texts::Texts,
};
use crate::{
    explanation::Explanation,
    reasons::{GateReason, PackageReason},
};

/// Returns the cause of a wait. The hold reason comes first. It is followed by errors of kapp and kapp-controller that name a cause, objects
/// of the package, and a timeout of kapp. A drain comes before the timeout and before Pods without a Node, which it may have evicted, unless
/// there is another error. Without evidence the cause is `Unknown`.
#[must_use]
pub fn classify(wait: &Explanation<'_>, texts: &Texts, objects: &HeldObjects) -> HeldCause {
    if let Some(cause) = of_reason(wait) {
        return match objects.failure() {
            Some(failure) if wait.is_unreachable() => HeldCause {
                evidence: failure.to_owned(),
                ..cause
            },
            _ => cause,
        };
    }
    evidence(texts, objects).unwrap_or_else(|| unknown(wait, texts, objects))
}

/// Returns the cause that errors and objects show.
pub(super) fn evidence(texts: &Texts, objects: &HeldObjects) -> Option<HeldCause> {
    texts
        .specific()
        .or_else(|| objects.of_package_alone().cloned())
        .or_else(|| objects.budget().filter(|_| texts.only_time_out()))
        .or_else(|| objects.of_package().cloned())
        .or_else(|| texts.timeout())
}

/// Returns the cause that the hold reason alone shows. A reason that no object explains is `Unknown`.
pub(crate) fn of_reason(wait: &Explanation<'_>) -> Option<HeldCause> {
    if wait.is_unreachable() {
        let evidence = format!("{}: {}", contact_of(wait.message), wait.message);
        return Some(held_cause(
            Cause::WorkloadUnreachable,
            "workload API server",
            &evidence,
        ));
    }
    if wait.package.is_some() {
        return is_stopped(wait).then(|| held_cause(Cause::PackagePaused, &wait.subject(), &said(wait)));
    }
    match GateReason::parse(wait.reason) {
        Some(GateReason::PackageExcludesKubernetes) => {
            let object = package_in(wait.message).unwrap_or_default();
            Some(held_cause(
                Cause::PackageExcludesKubernetes,
                &object,
                wait.message,
            ))
        }
        _ if is_probed(wait) => None,
        _ => Some(held_cause(Cause::Unknown, "", &said(wait))),
    }
}

/// Whether objects may show the cause of a wait, or the failure of a request.
pub(crate) fn is_probed(wait: &Explanation<'_>) -> bool {
    use GateReason::{
        KappControllerRestarting, PackageFailed, PackagesNotReady, PackagesNotSettled, RollbackInProgress,
    };
    let of_packages = |reason| {
        matches!(
            reason,
            KappControllerRestarting
                | PackageFailed
                | PackagesNotReady
                | PackagesNotSettled
                | RollbackInProgress
        )
    };
    wait.is_unreachable()
        || match wait.package {
            Some(_) => !is_stopped(wait),
            None => GateReason::parse(wait.reason).is_some_and(of_packages),
        }
}

/// Whether a user has stopped the PackageInstall or App of the package.
fn is_stopped(wait: &Explanation<'_>) -> bool {
    use PackageReason::{
        AppCanceled, AppManuallyControlled, AppPaused, PackageInstallCanceled, PackageInstallPaused,
    };
    let stops = |reason| {
        matches!(
            reason,
            AppCanceled | AppManuallyControlled | AppPaused | PackageInstallCanceled | PackageInstallPaused
        )
    };
    wait.package.is_some() && PackageReason::parse(wait.reason).is_some_and(stops)
}

/// Returns how the contact to a workload API server fails, by the message of the hold: `TLS`, `status` or `connect`. The message does not tell
/// DNS from other failed connections; a failed request does.
fn contact_of(message: &str) -> &'static str {
    let has = |word: &&str| message.contains(word);
    if [
        "answers with ",
        "not a Kubernetes API server",
        "exceeds the limit",
    ]
    .iter()
    .any(has)
    {
        "status"
    } else if ["certificate", "fatal alert", "TLS", "peer is incompatible"]
        .iter()
        .any(has)
    {
        "TLS"
    } else {
        "connect"
    }
}

/// Returns the Package that a hold message names: `Package antrea.1.9.0 allows Kubernetes …`.
fn package_in(message: &str) -> Option<String> {
    let (_, after) = message.split_once("Package ")?;
    let name = after.split([' ', ':']).next()?;
    Some(format!("Package {name}"))
}

/// Returns cause `Unknown` of a wait for a workload API server that responds, with an error of kapp, a failed request or the hold reason.
fn unknown(wait: &Explanation<'_>, texts: &Texts, objects: &HeldObjects) -> HeldCause {
    match (texts.first(), objects.failure()) {
        (Some((object, text)), _) => held_cause(Cause::Unknown, object, text),
        (None, Some(failure)) => held_cause(Cause::Unknown, &wait.subject(), failure),
        (None, None) => held_cause(Cause::Unknown, &wait.subject(), &said(wait)),
    }
}

/// Returns reason and message of a wait.
fn said(wait: &Explanation<'_>) -> String {
    match wait.message {
        "" => wait.reason.to_owned(),
        message => format!("{}: {message}", wait.reason),
    }
}
