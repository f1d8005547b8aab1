//! Reasons of a missing package proof.

use super::table::{act, held, wait};

held! {
    /// Reason why a package has no proof.
    PackageReason:
    "One package" {
        /// Sluice has written nothing of the package yet.
        PackageInstallPending("package"): "PackageInstall not written", Progress, Package,
            wait("10 s after the gate before it opens", "check the reason of the gate, which names the cause"),
        /// The workload cluster does not respond, and the record has nothing about the package at this version.
        WorkloadUnreachable("package"): "PackageInstall not readable", Blocked, Package, act("see the gate"),
        /// Its PackageInstall is being deleted.
        PackageInstallDeleting("package"): "PackageInstall terminating", Blocked, Package,
            act("find the client that deletes it"),
        /// Its PackageInstall is paused.
        PackageInstallPaused("package"): "PackageInstall paused", Pause, Package, act("set `spec.paused: false`"),
        /// Its PackageInstall is canceled.
        PackageInstallCanceled("package"): "PackageInstall canceled", Pause, Package,
            act("set `spec.canceled: false`"),
        /// The spec of its PackageInstall differs from the desired one.
        PackageInstallMismatch("package"): "PackageInstall spec differs", Blocked, Package,
            act("find the other client that writes it"),
        /// kapp-controller has not observed the latest generation of its PackageInstall.
        PackageInstallNotObserved("package"): "PackageInstall not observed", Progress, Package,
            wait("10 s", "check that kapp-controller runs, and its log"),
        /// kapp-controller has not selected the version yet.
        PackageInstallVersionMismatch("package"): "version not selected yet", Progress, Package,
            wait("10 s", "check the conditions of the PackageInstall, and that the Package of that version exists in its namespace"),
        /// Its PackageInstall has not succeeded yet.
        PackageInstallReconciling("package"): "PackageInstall reconciling", Progress, Package,
            wait("the time that the package takes to deploy", "check the conditions of the PackageInstall and of its App"),
        /// kapp-controller reports a failure of its PackageInstall.
        PackageInstallFailed("package"): "PackageInstall failed", Retries, Package,
            act("check its `status.usefulErrorMessage`"),
        /// Its App does not exist yet.
        AppNotFound("package"): "App not created yet", Progress, Package,
            wait("10 s", "check the conditions of the PackageInstall, its ServiceAccount, and the log of kapp-controller"),
        /// An App of that name has another owner.
        AppOwnerMismatch("package"): "App of another owner", Blocked, Package, act("rename or remove that App"),
        /// Its App is being deleted.
        AppDeleting("package"): "App terminating", Blocked, Package, act("find the client that deletes it"),
        /// Its App is paused.
        AppPaused("package"): "App paused", Pause, Package, act("set `spec.paused: false`"),
        /// Its App is canceled.
        AppCanceled("package"): "App canceled", Pause, Package, act("set `spec.canceled: false`"),
        /// An annotation detaches its App from its PackageInstall.
        AppManuallyControlled("package"): "App detached by annotation", Pause, Package, act("remove the annotation"),
        /// Its App is for another version.
        AppVersionMismatch("package"): "App has another version", Progress, Package,
            wait("10 s", "check the conditions of the PackageInstall, and the log of kapp-controller"),
        /// Its App uses other values; for a package without a ytt or Helm step, `spec.syncPeriod` of the App differs from the
        /// PackageInstall.
        AppValuesMismatch("package"): "App has other values", Progress, Package,
            wait("10 s", "check that the values Secret of the PackageInstall exists, and the log of kapp-controller"),
        /// The steps of its App differ from the Package: the Package was edited, or edited and restored, and kapp-controller has not
        /// reconciled it since. Also if another Package of that name and version exists in the namespace of the PackageInstall.
        AppTemplateMismatch("package"): "App differs from Package", Progress, Package,
            wait(
                "one sync period of the PackageInstall",
                "remove the other Package of that name and version in its namespace, if there is one, or check the log of kapp-controller",
            ),
        /// kapp-controller has not observed the latest generation of its App.
        AppNotObserved("package"): "App change not observed yet", Progress, Package,
            wait("10 s, or until a running deploy of the App ends", "check the log of kapp-controller"),
        /// kapp-controller is reconciling its App.
        AppReconciling("package"): "App reconciling", Progress, Package,
            wait(
                "the time that the package takes to deploy",
                "check its Deployments and DaemonSets. Sluice requests a resync of an App with a ytt or Helm step after 90 s without \
                 progress (annotation `lifecycle.sluice.dev/nudged-at` on its values Secret), because a restarted kapp-controller \
                 ignores it for a whole sync period. With readiness `Applied` it may take a second run of kapp, which begins when the \
                 first one times out (`--wait-timeout` of the package, 15 minutes by default; decision 10)",
            ),
        /// The last attempt failed; kapp-controller retries it.
        AppFailed("package"): "App failed", Retries, Package, act("check `status.usefulErrorMessage` of the App"),
    }
}
