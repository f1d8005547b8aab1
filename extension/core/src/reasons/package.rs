//! Why a package has no proof.

use super::table::held;

held! {
    /// Why a package has no proof.
    PackageReason:
    "One package" {
        /// Nothing of the package was written yet.
        PackageInstallPending("package"): "nothing; the gate says what is waited for",
        /// The workload cluster does not answer, and nothing is recorded of the package at this version.
        WorkloadUnreachable("package"): "see the gate",
        /// Its PackageInstall is being deleted.
        PackageInstallDeleting("package"): "find out who deletes it",
        /// Its PackageInstall is paused.
        PackageInstallPaused("package"): "set `spec.paused: false`",
        /// Its PackageInstall is canceled.
        PackageInstallCanceled("package"): "set `spec.canceled: false`",
        /// Its PackageInstall asks for other content than wanted.
        PackageInstallMismatch("package"): "find out who else writes it",
        /// kapp-controller has not seen the change.
        PackageInstallNotObserved("package"): "nothing; if it lasts, look at kapp-controller",
        /// kapp-controller has not chosen the version.
        PackageInstallVersionMismatch("package"): "nothing",
        /// Not yet succeeded.
        PackageInstallReconciling("package"): "nothing",
        /// Its PackageInstall failed.
        PackageInstallFailed("package"): "its `status.usefulErrorMessage`",
        /// Its App does not exist yet.
        AppNotFound("package"): "nothing",
        /// An App of that name belongs to something else.
        AppOwnerMismatch("package"): "rename or remove that App",
        /// Its App is being deleted.
        AppDeleting("package"): "find out who deletes it",
        /// Its App is paused.
        AppPaused("package"): "set `spec.paused: false`",
        /// Its App is canceled.
        AppCanceled("package"): "set `spec.canceled: false`",
        /// Its App was cut off from its PackageInstall by annotation.
        AppManuallyControlled("package"): "remove the annotation",
        /// Its App is for another version.
        AppVersionMismatch("package"): "nothing",
        /// Its App uses other values; for a package without a ytt or Helm step, its App has another `spec.syncPeriod` than the
        /// PackageInstall is given.
        AppValuesMismatch("package"): "nothing",
        /// Its App has other steps than the Package as it is: the Package was edited, or edited and put back, and kapp-controller has
        /// not looked at it again. Also where another Package of that name and version stands beside the PackageInstall.
        AppTemplateMismatch("package"): "nothing; in the last case remove that Package",
        /// kapp-controller has not seen the change.
        AppNotObserved("package"): "nothing",
        /// kapp-controller works on it.
        AppReconciling("package"):
            "nothing; if it lasts, look at its Deployments. An App with a ytt or Helm step that has not moved for 90 s is asked for \
             again (annotation `lifecycle.sluice.dev/nudged-at` on its values Secret), because a restarted kapp-controller would \
             leave it for a whole sync period. With readiness `Applied` it may take a second run of kapp, which begins when the first \
             one gives up (`--wait-timeout` of the package, 15 minutes by default; decision 10)",
        /// The last attempt failed; it is tried again by itself.
        AppFailed("package"): "`status.usefulErrorMessage` of the App",
    }
}
