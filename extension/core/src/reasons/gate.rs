//! Hold reasons of a gate in the record.

use super::table::{act, held, wait};

held! {
    /// Reason of a closed gate.
    GateReason:
    "Inputs that are missing, or contradict each other" {
        /// The called replica, or the leader, has not listed the API in the message since it started: kapp-controller is not installed or
        /// does not serve its package API, a definition of Cluster API or Sluice is missing, or Sluice may not list it. Unmanaged
        /// Clusters and deletions are not held.
        APIUnavailable("gate, hook message, event"): "required API not listed since the start", Replica, Never,
            act(
                "if the name ends in `carvel.dev` or `k14s.io`, install kapp-controller in the management cluster, or check its \
                 APIService `v1alpha1.data.packaging.carvel.dev`; otherwise apply the missing definition (that of MachinePool as well) \
                 or the roles in `manifests/base`. No restart is needed",
            ),
        /// The label `run.tanzu.vmware.com/tkr` was removed, but the ClusterBootstrap still exists.
        TKRLabelRemoved("gate, event"): "release label removed", Blocked, Never,
            act("set the label again; to take the Cluster out of Sluice see [below](#taking-a-cluster-out-of-sluice)"),
        /// The Cluster, or its ClusterClass, requests a release by annotation `run.tanzu.vmware.com/resolve-tkr`, but the Cluster has no
        /// release label: the resolving webhook was not called. Only BeforeClusterCreate and BeforeClusterUpgrade are held.
        TKRNotResolved("hook message"): "release not resolved", Blocked, Never,
            act(
                "set `run.tanzu.vmware.com/resolve-tkr` on the Cluster to the selector of its class (empty where it has none), or set \
                 the label; `--hold-unresolved=false` turns this off",
            ),
        /// The label names a TanzuKubernetesRelease that is marked legacy, but the Cluster has a ClusterBootstrap.
        TKRLegacy("gate, hook message, event"): "release marked legacy", Blocked, Never,
            act("name another release; to take the Cluster out of Sluice see [below](#taking-a-cluster-out-of-sluice)"),
        /// The label names a TanzuKubernetesRelease that does not exist.
        TKRNotFound("gate, hook message, event"): "TanzuKubernetesRelease not found", Blocked, Never,
            act("create it, or correct the label"),
        /// A release of the upgrade is incompatible, deactivated or invalid by its labels. Checked for all steps before
        /// the packages of the next one are merged. Once the packages of a release are merged, its labels hold nothing.
        TKRNotUsable("gate, event"): "release not usable", Blocked, Never,
            act("set the label to a usable release, or correct the release ([conditions](reference/releases.md#releases-that-hold-an-upgrade))"),
        /// An object that the Cluster depends on exists, but Sluice cannot decode it: the message names the object and the field.
        /// Only Clusters that depend on it are held; metric `sluice_undecodable_object_info` names it as well.
        ObjectUndecodable("gate, hook message, event"): "required object cannot be decoded", Blocked, Never,
            act("correct the field that the message names, or delete the object; no restart is needed"),
        /// No single release matches the next version; also while the Cluster has the new version but not yet the label for it, or while
        /// Sluice plans the steps and a minor version in between has no release.
        NoTKRForHop("gate, event"): "no release for the next version", Blocked, Never,
            act("set the label to a release of that Kubernetes version, or create the one of the step between"),
        /// The ClusterClass names a `generateUpgradePlanExtension`, and `status.controlPlane.upgradePlan` of the Cluster does not lead
        /// to the target (yet).
        UpgradePlanUnknown("gate, event"): "upgrade plan does not lead to the target", Blocked, Never,
            wait(
                "1 min, until Cluster API has called that extension",
                "check that extension. Cluster API before 1.14 does not show the plan: use `generate-upgrade-plan` of Sluice or \
                 `kubernetesVersions` there",
            ),
        /// The packages of a cancelled upgrade go back to the versions from before it, and are not proven there yet.
        RollbackInProgress("gate, event"): "packages go back after a cancellation", Retries, Package,
            wait("the time that the packages take to deploy", "check the packages that the message names"),
        /// The annotation of a rollback under way is missing or cannot be read. Condition `Rollback` of the ClusterBootstrap says so as well.
        RollbackRefused("gate, event"): "rollback not possible", Blocked, Never,
            act("restore the annotation that the message names, or set version and label of the upgrade again"),
        /// `topology.version` is lower than the control plane.
        DowngradeNotSupported("gate, event"): "downgrade not supported", Blocked, Never, act("raise it again"),
        /// The release has no ClusterBootstrapTemplate of its name in the system namespace; also if it is deleted during an upgrade to
        /// the release.
        TemplateNotFound("gate, hook message, event"): "ClusterBootstrapTemplate not found", Blocked, Never,
            act("create it"),
        /// A referenced Package object does not exist in the system namespace.
        PackageNotFound("gate, event"): "Package not in the system namespace", Blocked, Never,
            act("create the Package, or correct the field that the message names"),
        /// Sluice cannot complete a ClusterBootstrap with annotation `tkg.tanzu.vmware.com/add-missing-fields-from-tkr`: the annotation
        /// names no release or another one than the label, a wildcard is ambiguous, or the template lacks the field, too.
        MissingFieldsNotFilled("gate, event"): "missing fields cannot be filled", Blocked, Never,
            act("correct the field that the message names"),
        /// The release lists no version of a package that the user chose instead of the one in the template.
        PackageNotInRelease("gate, event"): "package version not in the release", Blocked, Never,
            act(
                "add it to `spec.bootstrapPackages`, change the ClusterBootstrap, or keep the version by annotation \
                 `lifecycle.sluice.dev/keep-package-versions`",
            ),
        /// `spec.kubernetesVersionSelection` of a Package excludes the Kubernetes version before or after a step of the upgrade, or cannot be
        /// parsed. kapp-controller would not install the Package there. Checked for all steps before the packages of the next one are merged,
        /// and for the next one until the control plane has its version.
        PackageExcludesKubernetes("gate, event"): "package excludes the Kubernetes version", Blocked, Never,
            act(
                "use a version of the package that allows both versions, correct the constraints of the Package, or set annotation \
                 `packaging.carvel.dev/ignore-kubernetes-version-selection` of its PackageInstall, as kapp-controller requires it",
            ),
        /// During an upgrade, a package of the ClusterBootstrap is lower than in the release of the next version, for example because an
        /// old manifest was applied. Sluice writes nothing to the workload cluster meanwhile.
        PackageBelowRelease("gate, event"): "package version below the release", Blocked, Never,
            act(
                "set the version that the message names, or [keep the one that is \
                 there](decisions/0011-release-as-the-lower-bound-of-package-versions.md) by annotation",
            ),
        /// During an upgrade, a package of that release is not in the ClusterBootstrap.
        PackageMissing("gate, event"): "package of the release left out", Blocked, Never,
            act("add it, or leave it out by the same annotation"),
        /// Two packages of the ClusterBootstrap have the same name up to the first dot of `refName`, and would share one PackageInstall;
        /// also after a release that moves a package to another field. Sluice writes nothing to the workload cluster meanwhile.
        PackageDuplicated("gate, event"): "two packages with the same short name", Blocked, Never,
            act(
                "remove one of the two that the message names; in an upgrade, the one in the field where the template of the release \
                 does not have it",
            ),
        /// The machines of a release cannot be created: the release is deactivated or incompatible, a part of the topology has not
        /// exactly one OSImage of it, or the ClusterClass does not exist. The release is that of the next Kubernetes version, which needs
        /// an entry in variable `TKR_DATA`, or another one of the same version, whose packages are proven.
        MachinesNotResolved("gate, `status.upgrade.swap`, event"): "machines not resolved", Blocked, Never,
            act(
                "correct what the message names, set the label to another release, or write the \
                 [entry](reference/resolution.md#intermediate-versions) for the next version",
            ),
        /// The class declares variable `TKR_DATA`, and the Cluster has no entry for the next Kubernetes version yet. Sluice writes it before
        /// any gate of that version opens.
        EntryNotWritten("gate"): "entry for the next version not written yet", Progress, Never,
            wait("10 s", "check the log of the leader for failed writes of the Cluster"),
        /// The packages follow a release of the same Kubernetes version, but the machines stay as they are: the ClusterClass does not
        /// declare variable `TKR_DATA`, or the variable has no entry for the version.
        MachinesKept("`status.upgrade.swap`"): "machines kept", Progress, Never,
            wait(
                "ever, because the upgrade continues without the machines",
                "see [resolution](reference/resolution.md#tkr_data); the next Kubernetes version replaces them",
            ),
        /// The infrastructure of the Cluster is a VSphereCluster, and Sluice cannot tell whether it is on a Supervisor: the API server refuses
        /// the list of VirtualMachines, or their discovery fails. Sluice writes nothing to the workload cluster before the answer is
        /// recorded: packages have other values on a Supervisor. A recorded answer needs no further request.
        SupervisorUnknown("gate, event"): "Supervisor not known", Blocked, Never,
            act(
                "apply the roles in `manifests/base` where the message names a refusal, otherwise check the API server; to record the \
                 answer, Sluice needs to list `virtualmachines` in group `vmoperator.vmware.com` once",
            ),
        /// The Cluster is on a Supervisor, and variable `TKR_DATA` does not give the label `run.tanzu.vmware.com/tkr` of the release to
        /// the Nodes of the version. Sluice writes no selector that no Node has: Pods would leave their Nodes at once.
        NodesNotLabelled("gate, event"): "Nodes without the label of the release", Blocked, Never,
            act("write the [entry](reference/resolution.md#supervisors) for the version that the message names"),
        /// Annotation `lifecycle.sluice.dev/requires` of the release of the next step names a package of the management cluster that no
        /// PackageInstall of the system namespace provides in a proven version. Sluice merges and installs no package of the release
        /// before. Clusters at the release are not held.
        ManagementPackageNotReady("gate, `status.upgrade.swap`, hook message, event"): "management package not proven", Blocked, Never,
            act(
                "upgrade the package that the message names through its own PackageInstall, or list the release in a ConfigMap with \
                 label `run.tanzu.vmware.com/additional-compatible-tkrs` ([requirements](reference/releases.md#required-management-packages))",
            ),
        /// A ClusterBootstrap, or the ClusterBootstrapTemplate of a release, lists more than 128 additional packages: it predates the
        /// limit in the definitions. Sluice reads and writes nothing for such a ClusterBootstrap.
        PackagesTooMany("gate, event"): "too many additional packages", Blocked, Never,
            act("remove some of them from the ClusterBootstrap that the message names; delete a template and create it again with fewer"),
        /// A part of the annotation `lifecycle.sluice.dev/keep-package-versions` is not `<package>=<version>` or `<package>=none`.
        KeptVersionsInvalid("gate, event"): "invalid keep-package-versions", Blocked, Never,
            act("correct the part that the message names, or remove the annotation"),
        /// A values Secret or provider object does not exist, or an object that it references under a key that ends in `LocalObjRef`;
        /// or Sluice may not read its kind. Sluice creates or merges a ClusterBootstrap once all objects that its template names exist.
        /// Later, other packages continue, unless kapp-controller is the one that waits. Sluice recreates a copy
        /// (`<cluster>-<package>-package`) if its original in the template still exists.
        ValuesNotFound("gate, event"): "values source not found", Blocked, Every,
            act("create what the message names, or add the rule that it names"),
        /// The name of a copy (`<cluster>-<package>-package`) is taken by an object of another Cluster in the namespace, because both
        /// combinations of cluster and package give the same name. Or the ClusterBootstrap references a configuration of Sluice that
        /// belongs to another Cluster: its values are computed for that one.
        ValuesOwnerMismatch("gate, event"): "values belong to another Cluster", Blocked, Every,
            act(
                "give one of the two Clusters another name, or a configuration of its own; or remove the owner that the message names \
                 where both shall have the values of a Secret",
            ),
        /// The provider object names no Secret in `status.secretRef` yet, its condition `Ready` is `False`, its
        /// `status.observedGeneration` is outdated, or its values are still those of another version of the package. Creation of a
        /// Cluster is not held: the values may need infrastructure that is created later.
        ValuesNotReady("gate, event"): "values source not ready", Blocked, Every,
            act("check condition `Ready` of the object ([what it says](reference/providers.md)), or the controller of that kind"),
        /// More than one of `inline`, `secretRef`, `providerRef`.
        ValuesSourceAmbiguous("gate, event"): "more than one values source", Blocked, Every, act("keep one"),
        /// The values Secret of a package, or a Secret that a configuration in a template names, is a credential of Kubernetes or
        /// Cluster API: of type `kubernetes.io/service-account-token`, `bootstrap.kubernetes.io/token` or `cluster.x-k8s.io/secret`,
        /// or named after a Cluster of the namespace: `<Cluster>-kubeconfig`, `-ca`, `-etcd`, `-proxy`, `-sa` or the like. Sluice
        /// does not copy it to a workload cluster. After that Cluster is deleted, the gate opens at the next drift check.
        ValuesSecretRefused("gate, event"): "values Secret holds a credential", Blocked, Every,
            act("name a Secret with values"),
        /// The ClusterBootstrap has a CNI and the annotation `unmanaged-cni`.
        UnmanagedCNIConflict("gate, event"): "CNI package despite unmanaged-cni", Blocked, Never,
            act("remove one of the two"),
        /// The name of an object would exceed the limit of Kubernetes.
        NameTooLong("gate, event"): "object name too long", Blocked, Never, act("use a shorter cluster name"),
        /// The new release's packages are not in the ClusterBootstrap yet.
        BootstrapNotMerged("gate"): "ClusterBootstrap not merged yet", Progress, Never,
            wait("10 s", "look for an Event of another reason on the Cluster, and check the log of the leader"),
        /// An API server refused a write.
        WriteRefused("gate, event"): "write refused by an API server", Blocked, Every,
            act(
                "read the message, which is that of the server; usual causes are an admission policy, an outdated definition, or a role \
                 that does not allow Sluice to create or label providers of values, which the message then names",
            ),
        /// An API server refused a write because it could not call a mandatory admission webhook, mostly one of the addons-manager
        /// or of the earlier resolver: its configuration was left behind. It also blocks Cluster API.
        WebhookUnavailable("gate, event, condition `TakeoverIncomplete`"): "mandatory admission webhook unavailable", Blocked, Never,
            act(
                "delete the webhook configuration that has the webhook of the message \
                 ([migrating](migrating.md#webhook-configurations-that-were-left-behind)), or start its server",
            ),
        /// A leftover of the addons-manager was removed and has reappeared: its pause, a finalizer, or the name of a values Secret in a
        /// PackageInstall. Sluice writes nothing to the workload cluster meanwhile, because two controllers would overwrite the same
        /// PackageInstalls. Sluice removes the leftover again once per `--sync-period`.
        AddonsManagerRuns("gate, event, condition `TakeoverIncomplete`"): "addons-manager is still running", Blocked, Never,
            act("scale the Deployment of the addons-manager to 0 ([migrating](migrating.md))"),
        /// A reconcile of the Cluster took longer than 3 s while other slow ones had half of the slots, did not finish within 2 min, or
        /// waited for a slot for 1 min. Sluice retries it.
        ReconcileTimedOut("gate, event"): "reconcile took too long", Blocked, Never,
            act(
                "check for slow API servers; if `sluice_slow_reconciles_canceled_total` grows, which counts the first case, raise \
                 `--cluster-concurrency`",
            ),
        /// Reconciles of the Cluster fail with an error of the management API server: the second failure in a row, the fifth conflict in
        /// a row, or no success within 3 s of the start of the first one, or of its end if it was a conflict. Sluice retries with backoff.
        ReconcileError("gate, event"): "reconciles keep failing", Blocked, Never,
            act(
                "the log names the request and the response (`Failed to reconcile Cluster`); if a rule is missing apply the roles in \
                 `manifests/base`, otherwise check the API server",
            ),
        /// A reconcile of the Cluster panicked, which is a bug of Sluice. Sluice retries with backoff; other Clusters are not affected.
        ReconcilePanicked("gate, event"): "panic during the reconcile", Blocked, Never,
            act("report the bug with the lines of the log around `panicked at`"),
        /// The installed definition of ClusterBootstrap is outdated and drops the record, or fields of it. Sluice restores no altered
        /// values Secret meanwhile.
        CRDOutdated("event; hook message if the whole record is dropped"): "ClusterBootstrap definition outdated", Blocked, Never,
            act("apply the definitions of this release"),
        /// An UpgradeGate of the Cluster has no row in `spec.versions` for the Kubernetes minor version of the hop. A chained upgrade needs
        /// a row for each minor version.
        NoVersionForHop("gate, event"): "no row for the next minor version", Blocked, Never,
            act("add the row that the message names to the UpgradeGate"),
        /// An UpgradeGate of the Cluster is invalid: it was stored while the webhook was switched off, or needs another release of Sluice.
        /// Other Clusters are not held.
        GateInvalid("gate, condition `Accepted` of the UpgradeGate, event"): "UpgradeGate not valid", Blocked, Never,
            act("correct the field that the message names, or set `mode: Audit`"),
        /// An UpgradeGate that holds an upgrade no longer selects the Cluster: the right to label Clusters is not the right to pass a gate.
        GateDeselected("gate, event"): "UpgradeGate deselects the Cluster", Blocked, Never,
            act("restore the label, or set `mode: Audit` of the UpgradeGate"),
        /// The UpgradeGates of the Cluster have more than 64 checks, or its namespace has more than 50 UpgradeGates.
        ChecksTooMany("gate, event"): "too many checks of UpgradeGates", Blocked, Never,
            act("remove checks, or UpgradeGates that the message names"),
    }
    "Paused, or being deleted" {
        /// `spec.paused` or `cluster.x-k8s.io/paused` is set.
        ClusterPaused("gate, event"): "Cluster paused", ClusterPause, Never,
            act("unpause when you are done; Sluice removes only the pause of the addons-manager"),
        /// `spec.paused` of the ClusterBootstrap.
        BootstrapPaused("gate, event"): "ClusterBootstrap paused", Pause, Never, act("the same"),
        /// An annotation `before-upgrade.hook.cluster.cluster.x-k8s.io…` is set.
        StartHeldByAnnotation("gate, event"): "start held by a hook annotation", ClusterPause, Never,
            act("its owner removes it"),
        /// The Cluster is being deleted.
        ClusterDeleting("gate"): "Cluster terminating", Deletion, Never,
            wait(
                "the time that the deletion of the machines takes, often 5 to 15 min",
                "check which finalizer of the Cluster is left, and the controller that removes it",
            ),
        /// Additional packages are being uninstalled; the message names the first of them. If the workload cluster cannot be read, the
        /// gate carries that reason instead.
        UninstallInProgress("gate BeforeClusterDelete"): "packages being uninstalled", Blocked, Never,
            wait(
                "`--cluster-delete-timeout` (10 min) at most",
                "check the log of the leader, because Sluice releases the deletion by then",
            ),
    }
    "Cluster API is at work" {
        /// The kind in `spec.controlPlaneRef` is not served, is forbidden to Sluice, cannot be listed, has returned only errors for 45 s,
        /// or does not belong to a control plane provider.
        ControlPlaneKindUnreadable("gate, event"): "control plane kind cannot be read", Blocked, Never,
            act(
                "the message names the rule, or the label that its CustomResourceDefinition needs; or start Sluice with \
                 `--control-plane-group`",
            ),
        /// The Cluster in the message, or its control plane, differs from the cache of the leader: the watch of the leader lags, or the API
        /// server was restored to an earlier state. No gate opens meanwhile. After two minutes Sluice restarts all watches.
        CacheOutdated("gate, event"): "cache of the leader outdated", Lag, Never,
            wait("2 min", "check the network between the leader and the API server"),
        /// The control plane does not exist or has no version yet.
        ControlPlaneCreating("gate"): "control plane being created", ClusterApi, Never,
            wait(
                "the time that the infrastructure takes to create a machine, often 5 to 15 min",
                "check the control plane object, its Machines, and the log of its provider",
            ),
        /// The control plane is taking the version. A message that names two builds of it, such as `v1.35.4` and `v1.35.4-eks-abc`, may
        /// stay forever: Cluster API waits for the desired one.
        ControlPlaneUpgrading("gate"): "control plane being upgraded", ClusterApi, Never,
            wait(
                "the time that the replacement of each control plane machine takes, often 5 to 15 min for one",
                "check the control plane object, its Machines, and the log of its provider; for two builds, see \
                 [decision 48](decisions/0048-rule-of-cluster-api-for-reported-versions.md)",
            ),
        /// Workers are taking the version. A message that names a MachineDeployment or MachinePool may stay forever. Cluster API may not
        /// observe its last change, because the MachineDeployment or MachinePool is paused. Or its Machines are not up to date, or report
        /// another build than the desired one, such as `v1.35.4` instead of `v1.35.4+k0s`.
        WorkersUpgrading("gate"): "workers being upgraded", ClusterApi, Never,
            wait(
                "the time that Cluster API takes to write the version to all MachineDeployments and MachinePools, one after the other",
                "check condition `TopologyReconciled` of the Cluster, its MachineDeployments and MachinePools, whether one is paused, and \
                 PodDisruptionBudgets of the workload; for two builds, see \
                 [decision 48](decisions/0048-rule-of-cluster-api-for-reported-versions.md)",
            ),
        /// Only pools have not taken the version that an annotation of the topology defers: `topology.cluster.x-k8s.io/defer-upgrade`, or
        /// `…/hold-upgrade-sequence` of the pool or of an earlier one. The message names them. No deadline is exceeded meanwhile, and Cluster
        /// API accepts no further version.
        WorkersDeferred("gate"): "deferred by annotation", ClusterApi, Never,
            wait("as long as the upgrade of the pools shall wait", "remove the annotation"),
        /// Cluster API replaces machines by those of another release of the same Kubernetes version. The message shows replaced and
        /// desired machines of each part.
        ReplacingMachines("`status.upgrade.swap`"): "machines being replaced", ClusterApi, Never,
            wait(
                "the time that the replacement of each machine takes, often 5 to 15 min for one; control plane and pools are replaced at \
                 the same time",
                "check condition `TopologyReconciled` of the Cluster, its Machines, and PodDisruptionBudgets of the workload",
            ),
    }
    "The workload cluster" {
        /// Secret `<cluster>-kubeconfig` or its key `value` does not exist, and the control plane has a version.
        KubeconfigNotFound("gate, event"): "kubeconfig not found", Blocked, Every,
            act("check the provider of the control plane"),
        /// The kubeconfig has a field that Sluice refuses (a program, a file, impersonation, an unverified server), names a proxy that
        /// `--remote-allow-proxy` does not allow, or has data that makes no client.
        KubeconfigInvalid("gate, event"): "kubeconfig not accepted", Blocked, Every,
            act("the message names the field; see [kubeconfigs](reference/kubeconfigs.md)"),
        /// The API server does not respond, or a proxy or the TLS handshake fails, or the API server responds with 401, 403 or 404; the
        /// message names the cause. Also if it is not a Kubernetes API server, if it returns more PackageInstalls or Apps than Sluice
        /// caches (16 MiB each), or if its watch panicked.
        WorkloadUnreachable("gate, event"): "workload API server unreachable", Blocked, Every,
            act(
                "check network and endpoint, or the [cause](reference/kubeconfigs.md#causes) in the message; proofs are kept for 60 s. If \
                 another cluster responds, behind a new kubeconfig or behind the same one, Sluice deploys and proves everything again, \
                 after the work of kapp on the previous cluster has ended",
            ),
        /// Secret `<cluster>-kubeconfig` leads to the API server of the management cluster that Sluice runs in, and led to another cluster
        /// before. Sluice writes nothing there, and uninstalls nothing when the Cluster is deleted.
        ReachesManagementCluster("gate, event, condition `WorkloadUnseen`"): "kubeconfig leads to the management cluster", Blocked, Never,
            act("correct the kubeconfig, or the controller that writes it"),
        /// The leader has not read the UID of namespace `kube-system` of the management cluster since it started, and does not know whether
        /// the workload cluster is the management cluster. Clusters whose record has `kappController: Managed` are not held. Records of an
        /// earlier release lack it: those Clusters are held from their next upgrade on, and their drift checks go on.
        ManagementUIDUnknown("gate, event"): "UID of the management cluster not read", Blocked, Never,
            act(
                "the log of the leader names the response; if the rule is missing, apply the roles in `manifests/base`. No restart is \
                 needed",
            ),
        /// The Cluster got label `cluster-role.tkg.tanzu.vmware.com/management` after Sluice took over its ClusterBootstrap, and neither a
        /// record nor a PackageInstall shows who installs kapp-controller in the workload cluster. Sluice writes nothing there.
        ManagementLabelUnproven("gate, event"): "label of a management cluster not proven", Blocked, Never,
            act(
                "remove the label, or set annotation `lifecycle.sluice.dev/kapp-controller=Unmanaged` on the ClusterBootstrap if another \
                 client installs kapp-controller",
            ),
        /// The Cluster has label `cluster-role.tkg.tanzu.vmware.com/management`, so Sluice does not install kapp-controller in the workload
        /// cluster, and the workload cluster does not serve the package API.
        KappControllerNotInstalled("gate, event"): "kapp-controller not installed", Blocked, Every,
            act("install kapp-controller in the workload cluster, or remove the label"),
        /// kapp-controller does not serve its package API yet.
        KappControllerRestarting("gate"): "kapp-controller not serving its API", Progress, Every,
            wait("1 min", "check kapp-controller in the workload cluster, and its APIService `v1alpha1.data.packaging.carvel.dev`"),
    }
    "Packages" {
        /// Sluice has not determined the packages of the next version yet; also after values or a Package changed during the confirming read.
        /// A merged ClusterBootstrap without any package is not held; its condition `NothingToProve` reports it.
        PackagesUnknown("gate"): "packages not determined yet", Progress, Every,
            wait("10 s", "check the log of the leader"),
        /// One of the named packages has no proof yet. The message names all packages that the gate needs.
        PackagesNotReady("gate, event"): "packages not proven yet", Retries, Package, act("check their entries"),
        /// The named package failed to reconcile.
        PackageFailed("gate, event"): "a package failed", Retries, Package,
            act("check its entry and `status.usefulErrorMessage` of its App; a corrected Package or value releases it"),
        /// A package with readiness `Applied` is not on every node yet; ends after 30 minutes.
        PackagesNotSettled("gate AfterClusterUpgrade, event"): "packages not on every node yet", Blocked, Never,
            act("check its DaemonSet"),
    }
    "Upgrade gates" {
        /// A check of an UpgradeGate is not proven yet. The message names the UpgradeGate and its first unproven check.
        ChecksNotReady("gate, `status` of the ClusterUpgrade, event"): "checks not proven yet", Retries, Never,
            act("check the entry of the check in `status.upgrade.checks[]` of the ClusterUpgrade"),
        /// A check of an UpgradeGate failed. The message names the UpgradeGate and the check.
        CheckFailed("gate, `status` of the ClusterUpgrade, event"): "a check failed", Retries, Never,
            act("check `detail` of its entry in `status.upgrade.checks[]` of the ClusterUpgrade; a corrected object releases it"),
    }
}
