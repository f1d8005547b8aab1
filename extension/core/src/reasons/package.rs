//! Reasons of a missing package proof.

use super::table::held;

held! {
    /// Reason why a package has no proof.
    PackageReason:
    "One package" {
        /// Sluice has written nothing of the package yet.
        PackageInstallPending("package"): "nothing; the gate names the cause",
        /// The workload cluster does not respond, and the record has nothing about the package at this version.
        WorkloadUnreachable("package"): "see the gate",
        /// Its PackageInstall is being deleted.
        PackageInstallDeleting("package"): "find the client that deletes it",
        /// Its PackageInstall is paused.
        PackageInstallPaused("package"): "set `spec.paused: false`",
        /// Its PackageInstall is canceled.
        PackageInstallCanceled("package"): "set `spec.canceled: false`",
        /// The spec of its PackageInstall differs from the desired one.
        PackageInstallMismatch("package"): "find the other client that writes it",
        /// kapp-controller has not observed the latest generation of its PackageInstall.
        PackageInstallNotObserved("package"): "nothing; if it lasts, check kapp-controller",
        /// kapp-controller has not selected the version yet.
        PackageInstallVersionMismatch("package"): "nothing",
        /// Its PackageInstall has not succeeded yet.
        PackageInstallReconciling("package"): "nothing",
        /// Its PackageInstall failed.
        PackageInstallFailed("package"): "check its `status.usefulErrorMessage`",
        /// Its App does not exist yet.
        AppNotFound("package"): "nothing",
        /// An App of that name has another owner.
        AppOwnerMismatch("package"): "rename or remove that App",
        /// Its App is being deleted.
        AppDeleting("package"): "find the client that deletes it",
        /// Its App is paused.
        AppPaused("package"): "set `spec.paused: false`",
        /// Its App is canceled.
        AppCanceled("package"): "set `spec.canceled: false`",
        /// An annotation detaches its App from its PackageInstall.
        AppManuallyControlled("package"): "remove the annotation",
        /// Its App is for another version.
        AppVersionMismatch("package"): "nothing",
        /// Its App uses other values; for a package without a ytt or Helm step, `spec.syncPeriod` of the App differs from the
        /// PackageInstall.
        AppValuesMismatch("package"): "nothing",
        /// The steps of its App differ from the Package: the Package was edited, or edited and restored, and kapp-controller has not
        /// reconciled it since. Also if another Package of that name and version exists in the namespace of the PackageInstall.
        AppTemplateMismatch("package"): "nothing; in the last case remove that Package",
        /// kapp-controller has not observed the latest generation of its App.
        AppNotObserved("package"): "nothing",
        /// kapp-controller is reconciling its App.
        AppReconciling("package"):
            "nothing; if it lasts, check its Deployments. Sluice requests a resync of an App with a ytt or Helm step after 90 s \
             without progress (annotation `lifecycle.sluice.dev/nudged-at` on its values Secret), because a restarted kapp-controller \
             ignores it for a whole sync period. With readiness `Applied` it may take a second run of kapp, which begins when the first \
             one times out (`--wait-timeout` of the package, 15 minutes by default; decision 10)",
        /// The last attempt failed; kapp-controller retries it.
        AppFailed("package"): "check `status.usefulErrorMessage` of the App",
    }
}
