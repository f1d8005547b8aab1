//! Why a gate of the record is closed.

use super::table::held;

held! {
    /// Why a gate is closed.
    GateReason:
    "Inputs that are missing, or contradict each other" {
        /// The replica that answers, or the leader, has never listed the API that the message names since it started: kapp-controller is
        /// not installed or does not serve its package API, a definition of Cluster API or Sluice is missing, or Sluice may not list it.
        /// Clusters that Sluice does not manage, and deletions, are not held.
        APIUnavailable("gate, hook message, event"):
            "where the name ends in `carvel.dev` or `k14s.io`, install kapp-controller in the management cluster, or look at its \
             APIService `v1alpha1.data.packaging.carvel.dev`; otherwise apply the missing definition (that of MachinePool as well) or \
             the roles in `manifests/base`. No restart is needed",
        /// The label `run.tanzu.vmware.com/tkr` is gone, the ClusterBootstrap is not.
        TKRLabelRemoved("gate, event"):
            "set the label again; to take the Cluster out of Sluice see [below](#taking-a-cluster-out-of-sluice)",
        /// The Cluster, or its ClusterClass, asks for a release by annotation `run.tanzu.vmware.com/resolve-tkr`, and no label says which:
        /// the webhook that resolves it was not asked. Only BeforeClusterCreate and BeforeClusterUpgrade are held.
        TKRNotResolved("hook message"):
            "set `run.tanzu.vmware.com/resolve-tkr` on the Cluster to the selector of its class (empty where it has none), or set the \
             label; `--hold-unresolved=false` turns this off",
        /// The label names a TanzuKubernetesRelease that is marked legacy, but the Cluster has a ClusterBootstrap.
        TKRLegacy("gate, hook message, event"):
            "name another release; to take the Cluster out of Sluice see [below](#taking-a-cluster-out-of-sluice)",
        /// The label names a TanzuKubernetesRelease that does not exist.
        TKRNotFound("gate, hook message, event"): "create it, or correct the label",
        /// An object that the Cluster rests on is in the API server, but Sluice cannot decode it: the message names the object and the field.
        /// Only Clusters that rest on it are held; metric `sluice_undecodable_object_info` names it as well.
        ObjectUndecodable("gate, hook message, event"):
            "correct the field that the message names, or delete the object; no restart is needed",
        /// No single release belongs to the version that comes next; also while the version has arrived and its label has not.
        NoTKRForHop("gate, event"): "set the label to a release of that Kubernetes version, or create the one of the step between",
        /// The ClusterClass names a `generateUpgradePlanExtension`, and `status.controlPlane.upgradePlan` of the Cluster does not lead
        /// to the target (yet).
        UpgradePlanUnknown("gate, event"):
            "nothing; if it lasts, look at that extension. Cluster API before 1.14 does not show the plan: use `kubernetesVersions` \
             there",
        /// `topology.version` is lower than the control plane.
        DowngradeNotSupported("gate, event"): "raise it again",
        /// The release has no ClusterBootstrapTemplate of its name in the system namespace; also when it is deleted while a cluster is
        /// on its way to the release.
        TemplateNotFound("gate, hook message, event"): "create it",
        /// A Package object that is named does not exist in the system namespace.
        PackageNotFound("gate, event"): "create the Package, or correct the field that the message names",
        /// A ClusterBootstrap with annotation `tkg.tanzu.vmware.com/add-missing-fields-from-tkr` cannot get what it lacks: the annotation
        /// names no release or another one than the label of the Cluster, a wildcard has not one meaning, or the template lacks it, too.
        MissingFieldsNotFilled("gate, event"): "correct the field that the message names",
        /// The release lists no version of a package that the cluster chose for itself.
        PackageNotInRelease("gate, event"):
            "add it to `spec.bootstrapPackages`, change the ClusterBootstrap, or keep the version by annotation \
             `lifecycle.sluice.dev/keep-package-versions`",
        /// During an upgrade, a package of the ClusterBootstrap is lower than in the release of the version that comes next: something
        /// put an old manifest back. Nothing is written to the workload meanwhile.
        PackageBelowRelease("gate, event"):
            "set the version that the message names, or [keep the one that is \
             there](decisions/0011-release-as-the-lower-bound-of-package-versions.md) by annotation",
        /// During an upgrade, a package of that release is not in the ClusterBootstrap.
        PackageMissing("gate, event"): "add it, or leave it out by the same annotation",
        /// Two packages of the ClusterBootstrap have the same name up to the first dot of `refName`, and would be one PackageInstall;
        /// also after a release that moves a package to another field. Nothing is written to the workload meanwhile.
        PackageDuplicated("gate, event"):
            "remove one of the two that the message names; in an upgrade, the one in the field where the template of the release does \
             not have it",
        /// A ClusterBootstrap, or the ClusterBootstrapTemplate of a release, lists more than 128 additional packages: it was stored
        /// before the definitions refused that. Nothing is read or written for such a ClusterBootstrap.
        PackagesTooMany("gate, event"):
            "remove some of them from the ClusterBootstrap that the message names; delete a template and create it again with fewer",
        /// A part of the annotation `lifecycle.sluice.dev/keep-package-versions` is not `<package>=<version>` or `<package>=none`.
        KeptVersionsInvalid("gate, event"): "correct the part that the message names, or remove the annotation",
        /// A values Secret or provider object does not exist, or one that the template names, or one that this refers to under a key
        /// that ends in `LocalObjRef`; or Sluice may not read its kind. A ClusterBootstrap is created, or merged, once all that its
        /// template names exists; afterwards other packages go on, unless it is kapp-controller that waits. A copy of what the template
        /// names (`<cluster>-<package>-package`) is made again where that still exists.
        ValuesNotFound("gate, event"): "create what the message names, or add the rule that it names",
        /// What the template names is to be copied to a name (`<cluster>-<package>-package`) whose object belongs to another Cluster of
        /// the namespace: cluster and package name together give the same name. Or the ClusterBootstrap refers to a configuration of
        /// Sluice that belongs to another Cluster: its values are computed for that one.
        ValuesOwnerMismatch("gate, event"):
            "give one of the two Clusters another name, or a configuration of its own; or remove the owner that the message names where \
             both shall have the values of a Secret",
        /// The provider object names no Secret in `status.secretRef` yet, its condition `Ready` is `False`, its
        /// `status.observedGeneration` is behind, or its values are still those for another version of the package. A Cluster is
        /// created nevertheless: its values may need infrastructure that comes after.
        ValuesNotReady("gate, event"):
            "look at condition `Ready` of the object ([what it says](reference/providers.md)), or at the controller of that kind",
        /// More than one of `inline`, `secretRef`, `providerRef`.
        ValuesSourceAmbiguous("gate, event"): "keep one",
        /// The Secret that a package takes its values from, or that a configuration in a template names, is a credential of Kubernetes or
        /// Cluster API: of type `kubernetes.io/service-account-token`, `bootstrap.kubernetes.io/token` or `cluster.x-k8s.io/secret`, or named
        /// `<Cluster>-kubeconfig`, `-ca`, `-etcd`, `-proxy`, `-sa` or the like after a Cluster of the namespace. It is not copied to a
        /// workload. Where that Cluster is gone, the gate opens at the next periodic look.
        ValuesSecretRefused("gate, event"): "name a Secret with values",
        /// A CNI is set beside the annotation `unmanaged-cni`.
        UnmanagedCNIConflict("gate, event"): "remove one of the two",
        /// The name of an object would exceed what Kubernetes takes.
        NameTooLong("gate, event"): "use a shorter cluster name",
        /// The new release's packages are not in the ClusterBootstrap yet.
        BootstrapNotMerged("gate"): "nothing; if it lasts, another reason stands beside it",
        /// An API server refused a write.
        WriteRefused("gate, event"):
            "the message is that of the server; usually an admission policy, an outdated definition, or a role that does not let \
             Sluice make or label what provides values, which the message names then",
        /// A write was refused because an admission webhook could not be called that must not be left out, mostly one of the addons-manager
        /// or of the resolver before Sluice: its configuration was left behind. It also stops Cluster API.
        WebhookUnavailable("gate, event, condition `TakeoverIncomplete`"):
            "delete the webhook configuration that has the webhook of the message ([migrating](migrating.md#webhook-configurations-that-were-left-behind)), or start \
             what answers for it",
        /// Something of the addons-manager was removed and is there again: its pause, a finalizer, or the name of a values Secret in a
        /// PackageInstall. Nothing is written to the workload meanwhile, because two would write the same PackageInstalls; what came back is
        /// removed again once in a `--sync-period`.
        AddonsManagerRuns("gate, event, condition `TakeoverIncomplete`"):
            "scale the Deployment of the addons-manager to 0 ([migrating](migrating.md))",
        /// A pass over the Cluster took longer than 3 s while other slow ones had half of the slots, or did not come to its end within
        /// 2 min, or has waited for a slot for 1 min; it is made again in its turn.
        ReconcileTimedOut("gate, event"):
            "look for API servers that are slow; where `sluice_slow_reconciles_canceled_total` grows, which counts the first sort, raise \
             `--cluster-concurrency`",
        /// Passes over the Cluster end with an error of the management API server: the second in a row, the fifth where each met a
        /// conflict, or one that comes to no end within 3 s of the first one's beginning; they are repeated after growing delays.
        ReconcileError("gate, event"):
            "the log names request and answer (`Reconciling Cluster`); if a rule is missing apply the roles of `manifests/base`, \
             otherwise look after the API server",
        /// A pass over the Cluster ended in a bug of Sluice; it is repeated after growing delays, and passes over others go on.
        ReconcilePanicked("gate, event"): "report the bug with the lines of the log around `panicked at`",
        /// The installed definition of ClusterBootstrap is older and drops the record, or fields of it; a values Secret that was
        /// altered is not restored before.
        CRDOutdated("event; hook message if the whole record is dropped"): "apply the definitions of this release",
    }
    "Paused, or being deleted" {
        /// `spec.paused` or `cluster.x-k8s.io/paused` is set.
        ClusterPaused("gate, event"): "unpause when you are done; Sluice removes only the pause of the addons-manager",
        /// `spec.paused` of the ClusterBootstrap.
        BootstrapPaused("gate, event"): "the same",
        /// An annotation `before-upgrade.hook.cluster.cluster.x-k8s.io…` is set.
        StartHeldByAnnotation("gate, event"): "its owner removes it",
        /// The Cluster is being deleted.
        ClusterDeleting("gate"): "nothing",
        /// Additional packages are being uninstalled; the first one that is waited for is named. Where the workload cluster cannot be
        /// asked for it the gate carries that reason.
        UninstallInProgress("gate BeforeClusterDelete"): "nothing; ends after `--cluster-delete-timeout` at the latest",
    }
    "Cluster API is at work" {
        /// The kind in `spec.controlPlaneRef` is not served, may not be read, cannot be listed, has brought only errors for 45 s, or is
        /// none of a control plane provider.
        ControlPlaneKindUnreadable("gate, event"):
            "the message names the rule, or the label that its CustomResourceDefinition needs; or start Sluice with \
             `--control-plane-group`",
        /// The control plane does not exist or has no version yet.
        ControlPlaneCreating("gate"): "nothing",
        /// The control plane is taking the version.
        ControlPlaneUpgrading("gate"): "nothing; if it lasts, look at the control plane object",
        /// Workers are taking the version.
        WorkersUpgrading("gate"): "nothing",
    }
    "The workload cluster" {
        /// Secret `<cluster>-kubeconfig` or its key `value` does not exist, and the control plane has a version.
        KubeconfigNotFound("gate, event"): "look at the provider of the control plane",
        /// The kubeconfig holds something that Sluice does not use (exec, files, insecure …).
        KubeconfigInvalid("gate, event"): "the message names the field; put a token or client certificate there",
        /// The API server does not answer, or not any more, or answers with 401, 403 or 404, which the message says, or is none, or
        /// shows more PackageInstalls or Apps than Sluice keeps in memory (16 MiB each), or what is kept of it ended in a bug of
        /// Sluice.
        WorkloadUnreachable("gate, event"):
            "check network and endpoint; proofs are kept for 60 s. Where another cluster answers, behind a new kubeconfig or behind \
             the same one, everything is deployed and proven again; what kapp was doing on the one before ends first",
        /// kapp-controller does not serve its package API yet.
        KappControllerRestarting("gate"): "nothing; if it lasts, look at kapp-controller in the workload cluster",
    }
    "Packages" {
        /// The packages of the next version are not known yet. A ClusterBootstrap without any package is not held once it is merged:
        /// its condition `NothingToProve` says so. Also while values or a Package were changed as their proof was read again.
        PackagesUnknown("gate"): "nothing",
        /// One of the named packages has no proof yet; all that the gate needs are named.
        PackagesNotReady("gate, event"): "look at their entries",
        /// The named package failed to reconcile.
        PackageFailed("gate, event"):
            "look at its entry and at `status.usefulErrorMessage` of its App; a corrected Package or value releases it",
        /// A package with readiness `Applied` is not on every node yet; ends after 30 minutes.
        PackagesNotSettled("gate AfterClusterUpgrade, event"): "look at its DaemonSet",
    }
}
