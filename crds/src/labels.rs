//! Labels, annotations, secret types and fixed names that other software or stored objects rely on.

/// Label keys.
pub mod label {
    /// On a Cluster: name of the desired TanzuKubernetesRelease; makes Sluice manage the Cluster. On nodes too.
    pub const TKR: &str = "run.tanzu.vmware.com/tkr";
    /// On a release, by its presence: Sluice does not manage Clusters of the release without a ClusterBootstrap.
    pub const LEGACY_TKR: &str = "run.tanzu.vmware.com/legacy-tkr";
    /// On a release or an OSImage, by its presence: it is not for this management cluster. Set while condition `Compatible` is false.
    pub const INCOMPATIBLE: &str = "incompatible";
    /// On a release or an OSImage, by its presence: an operator has deactivated it.
    pub const DEACTIVATED: &str = "deactivated";
    /// On a release or an OSImage, by its presence: it is unusable. Set while condition `Valid` is false.
    pub const INVALID: &str = "invalid";
    /// On an OSImage: family of its operating system.
    pub const OS_TYPE: &str = "os-type";
    /// On an OSImage: distribution.
    pub const OS_NAME: &str = "os-name";
    /// On an OSImage: version of the distribution.
    pub const OS_VERSION: &str = "os-version";
    /// On an OSImage: processor architecture.
    pub const OS_ARCH: &str = "os-arch";
    /// On an OSImage: kind of image, which also begins the labels of the fields of its reference.
    pub const IMAGE_TYPE: &str = "image-type";
    /// On a Package of the system namespace, by its presence: it contains releases and their objects.
    pub const TKR_PACKAGE: &str = "run.tanzu.vmware.com/tkr-package";
    /// On nodes, through [`TKR_DATA`](super::name::TKR_DATA): name of their OSImage.
    pub const OS_IMAGE: &str = "run.tanzu.vmware.com/os-image";
    /// On a Cluster, by its presence: it is the management cluster.
    pub const MANAGEMENT_CLUSTER: &str = "cluster-role.tkg.tanzu.vmware.com/management";
    /// On a ConfigMap of the system namespace, by its presence: it lists releases that are compatible as well.
    pub const ADDITIONAL_COMPATIBLE_TKRS: &str = "run.tanzu.vmware.com/additional-compatible-tkrs";
    /// On cloned Secrets, cloned providers and data values: name of the Cluster.
    pub const CLUSTER_NAME: &str = "tkg.tanzu.vmware.com/cluster-name";
    /// On cloned Secrets, cloned providers and data values: name of the Package as a label value.
    pub const PACKAGE_NAME: &str = "tkg.tanzu.vmware.com/package-name";
    /// On a ClusterRole, with value `true`: adds it to the role of CAPV. The spelling is CAPV's.
    pub const CAPV_AGGREGATE_TO_MANAGER: &str = "capv.infrastucture.cluster.x-k8s.io/aggregate-to-manager";
    /// CAPV, on a VirtualMachine of a Supervisor: name of the Cluster.
    pub const CAPV_CLUSTER_NAME: &str = "capv.vmware.com/cluster.name";

    /// Cluster API, on every object of a cluster: name of the Cluster.
    pub const CAPI_CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// Cluster API: on objects that a topology owns.
    pub const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";
    /// Cluster API, on a MachineDeployment: name of its pool in the topology.
    pub const DEPLOYMENT_NAME: &str = "topology.cluster.x-k8s.io/deployment-name";
    /// Cluster API, on a MachinePool: name of its pool in the topology.
    pub const POOL_NAME: &str = "topology.cluster.x-k8s.io/pool-name";
    /// Cluster API, on every object of a provider's components.
    pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
    /// clusterctl, on a CRD: a move discovers its objects, and moves those that a Cluster owns.
    pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
    /// clusterctl, on a CRD: a move includes its objects even if no Cluster owns them.
    pub const CLUSTERCTL_MOVE: &str = "clusterctl.cluster.x-k8s.io/move";
}

/// Annotation keys.
pub mod annotation {
    /// On a Cluster, from the addons-manager: the release that it paused the Cluster for.
    pub const LEGACY_PAUSED: &str = "tkg.tanzu.vmware.com/paused";
    /// On a Machine, from the addons-manager, with value [`LEGACY_PRE_TERMINATE_OWNER`]: blocks the deletion of the Machine by Cluster API.
    pub const LEGACY_PRE_TERMINATE: &str =
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/tkg.tanzu.vmware.com";
    /// Value of [`LEGACY_PRE_TERMINATE`] from the addons-manager.
    pub const LEGACY_PRE_TERMINATE_OWNER: &str = "tkg.tanzu.vmware.com/addons";
    /// On a Cluster, by its presence: a user creates the ClusterBootstrap, and Sluice waits for it.
    pub const CUSTOM_CLUSTER_BOOTSTRAP: &str = "tkg.tanzu.vmware.com/custom-clusterbootstrap";
    /// On a Cluster or a ClusterClass: a selector of releases, empty for any. Its presence requests the resolution of `topology.version`.
    pub const RESOLVE_TKR: &str = "run.tanzu.vmware.com/resolve-tkr";
    /// On control plane or workers of a Cluster's topology, or of a ClusterClass: a selector of OSImages.
    pub const RESOLVE_OS_IMAGE: &str = "run.tanzu.vmware.com/resolve-os-image";
    /// On a Cluster: HTTP proxy.
    pub const HTTP_PROXY: &str = "tkg.tanzu.vmware.com/tkg-http-proxy";
    /// On a Cluster: HTTPS proxy.
    pub const HTTPS_PROXY: &str = "tkg.tanzu.vmware.com/tkg-https-proxy";
    /// On a Cluster: hosts that are reached without a proxy.
    pub const NO_PROXY: &str = "tkg.tanzu.vmware.com/tkg-no-proxy";
    /// On a Cluster: CA certificates of the proxy, base64.
    pub const PROXY_CA_CERT: &str = "tkg.tanzu.vmware.com/tkg-proxy-ca-cert";
    /// On a Cluster: IP family.
    pub const IP_FAMILY: &str = "tkg.tanzu.vmware.com/tkg-ip-family";
    /// On a Cluster: hosts whose certificates are not verified.
    pub const SKIP_TLS_VERIFY: &str = "tkg.tanzu.vmware.com/skip-tls-verify";
    /// On a Cluster: `dev` and `devcc` mean single replicas.
    pub const PLAN: &str = "tkg/plan";
    /// On the Cluster that is the management cluster: its version, as compatibility data names it.
    pub const TKG_VERSION: &str = "TKGVERSION";
    /// On a ClusterBootstrap of a user: the release that its missing fields are completed from. Ignored once it has an owner.
    pub const ADD_MISSING_FIELDS: &str = "tkg.tanzu.vmware.com/add-missing-fields-from-tkr";
    /// On a ClusterBootstrap, by its presence: Sluice does not manage the CNI, and `spec.cni` stays empty.
    pub const UNMANAGED_CNI: &str = "tkg.tanzu.vmware.com/unmanaged-cni";
    /// On a ClusterBootstrap: prefixes of packages that survive the deletion of the Cluster, comma separated.
    pub const SKIP_PACKAGE_INSTALL_DELETION: &str = "run.tanzu.vmware.com/skip-packageinstall-deletion";
    /// On a configuration, by its presence: it is a template that no cluster uses directly.
    pub const TEMPLATE_CONFIG: &str = "tkg.tanzu.vmware.com/template-config";
    /// On a PackageInstall: name of the Cluster.
    pub const CLUSTER_NAME: &str = "tkg.tanzu.vmware.com/cluster-name";
    /// On a PackageInstall: namespace of the Cluster.
    pub const CLUSTER_NAMESPACE: &str = "tkg.tanzu.vmware.com/cluster-namespace";

    /// Cluster API: its presence stops work on an object.
    pub const PAUSED: &str = "cluster.x-k8s.io/paused";
    /// Cluster API, on a Cluster: any key with this prefix blocks the start of an upgrade.
    pub const BEFORE_UPGRADE_PREFIX: &str = "before-upgrade.hook.cluster.cluster.x-k8s.io";
    /// Cluster API, on workers of a Cluster's topology, by its presence: they keep their version.
    pub const DEFER_UPGRADE: &str = "topology.cluster.x-k8s.io/defer-upgrade";
    /// Cluster API, on workers of a Cluster's topology, by its presence: they and all later ones of their kind keep their version.
    pub const HOLD_UPGRADE_SEQUENCE: &str = "topology.cluster.x-k8s.io/hold-upgrade-sequence";
    /// Cluster API, on a Cluster: version of the step of an upgrade that is under way. Between upgrades it is empty in Cluster
    /// API 1.12.4 to 1.13, and absent in other versions.
    pub const UPGRADE_STEP: &str = "topology.internal.cluster.x-k8s.io/upgrade-step";
    /// Cluster API, on a Cluster: hooks that it still has to call, comma separated.
    pub const PENDING_HOOKS: &str = "runtime.cluster.x-k8s.io/pending-hooks";
    /// Cluster API, on a Cluster, by its presence: most rules for a change of `topology.version` do not apply.
    pub const DISABLE_VERSION_CHECK: &str = "unsafe.topology.cluster.x-k8s.io/disable-update-version-check";
    /// Cluster API, on a Cluster that is being deleted, by its presence: hook BeforeClusterDelete has released the deletion.
    pub const OK_TO_DELETE: &str = "runtime.cluster.x-k8s.io/ok-to-delete";

    /// On a Cluster: time of the last retrigger of a failed hook call by Sluice.
    pub const RETRIGGERED_AT: &str = "lifecycle.sluice.dev/retriggered-at";
    /// On a Secret with values in a workload cluster: time of the last resync of its App that Sluice requested from kapp-controller.
    pub const APP_RESYNCED_AT: &str = "lifecycle.sluice.dev/nudged-at";
    /// On a PackageInstall of the system namespace: name of the Package with releases that Sluice installs by it.
    pub const TKR_PACKAGE: &str = "lifecycle.sluice.dev/tkr-package";
    /// On a PackageInstall, of kapp-controller: name of a Secret whose files the first ytt step includes.
    pub const YTT_PATHS: &str = "ext.packaging.carvel.dev/ytt-paths-from-secret-name";
    /// On a Secret with the values of a configuration: UID of the configuration that they were computed from.
    pub const CONFIGURATION_UID: &str = "lifecycle.sluice.dev/configuration-uid";
    /// On a Secret that values are copied from into other namespaces: these namespaces, comma separated; `*` for all of them.
    pub const ALLOWED_NAMESPACES: &str = "lifecycle.sluice.dev/allowed-namespaces";
    /// On a ClusterBootstrap: the release whose packages are in its spec.
    pub const RESOLVED_TKR: &str = "lifecycle.sluice.dev/resolved-tkr";
    /// On a ClusterBootstrap: its packages from before the upgrade under way, as JSON.
    pub const ROLLBACK_TO: &str = "lifecycle.sluice.dev/rollback-to";
    /// On a Package: `false` if no cancelled upgrade goes back from it to an earlier version.
    pub const ROLLBACK: &str = "lifecycle.sluice.dev/rollback";
    /// On a ClusterBootstrap: `Unmanaged` if another client installs kapp-controller, as label
    /// [`MANAGEMENT_CLUSTER`](super::label::MANAGEMENT_CLUSTER) of the Cluster said when Sluice took over the ClusterBootstrap.
    pub const KAPP_CONTROLLER: &str = "lifecycle.sluice.dev/kapp-controller";
    /// On a ClusterBootstrap: exact versions of packages that do not follow a release, `antrea=1.7.1+vmware.1-tkg.1`, and `none`
    /// for one that is left out on purpose; comma separated.
    pub const KEEP_PACKAGE_VERSIONS: &str = "lifecycle.sluice.dev/keep-package-versions";
    /// On a release: management packages that it needs, `tkg-clusterclass-vsphere.tanzu.vmware.com>=0.31.0`; comma separated.
    pub const REQUIRES: &str = "lifecycle.sluice.dev/requires";
    /// On ConfigMap [`BOM_METADATA`](super::name::BOM_METADATA), by its presence: nothing maintains its data any more.
    pub const FROZEN: &str = "lifecycle.sluice.dev/frozen";
    /// On a paused Cluster: Kubernetes version whose entry in `TKR_DATA` the same request changes, although machines may run it.
    pub const EDIT_TKR_DATA: &str = "lifecycle.sluice.dev/edit-tkr-data";
    /// On a Cluster: value of `topology.version` that admission does not check. Gates hold all the same.
    pub const SKIP_UPGRADE_CHECKS: &str = "lifecycle.sluice.dev/skip-upgrade-checks";

    /// kapp-controller, on an App: version of the Package that it works on.
    pub const PACKAGE_VERSION: &str = "packaging.carvel.dev/package-version";
    /// kapp-controller, on an App: its presence cuts the App off from its PackageInstall.
    pub const MANUALLY_CONTROLLED: &str = "ext.packaging.carvel.dev/manually-controlled";
    /// kapp-controller, on a PackageInstall: its presence allows a lower version.
    pub const DOWNGRADABLE: &str = "packaging.carvel.dev/downgradable";
}

/// Finalizers.
pub mod finalizer {
    /// On a Cluster, its ClusterBootstrap and the Secret with its kubeconfig, from the old manager: it had packages to uninstall.
    pub const LEGACY_ADDON: &str = "tkg.tanzu.vmware.com/addon";
}

/// Types of Secrets.
pub mod secret_type {
    /// Values of a package: cloned, inline or empty.
    pub const CLUSTER_BOOTSTRAP: &str = "clusterbootstrap-secret";
    /// Data values for a PackageInstall.
    pub const OPAQUE: &str = "Opaque";
}

/// Fixed names of objects and keys.
pub mod name {
    /// Value of [`label::PROVIDER`](super::label::PROVIDER) on everything that belongs to Sluice.
    pub const PROVIDER: &str = "runtime-extension-sluice";
    /// ServiceAccount in a workload cluster that packages are installed as.
    pub const SERVICE_ACCOUNT: &str = "tanzu-cluster-bootstrap-sa";
    /// ClusterRole of [`SERVICE_ACCOUNT`].
    pub const CLUSTER_ROLE: &str = "tanzu-cluster-bootstrap-clusterrole";
    /// ClusterRoleBinding of [`SERVICE_ACCOUNT`].
    pub const CLUSTER_ROLE_BINDING: &str = "tanzu-cluster-bootstrap-clusterrolebinding";
    /// Key of the values in a Secret.
    pub const VALUES_KEY: &str = "values.yaml";
    /// Key of the values for a Supervisor in a Secret.
    pub const TKGS_VALUES_KEY: &str = "tkgs-values.yaml";
    /// Suffix of the Secret with a cluster's kubeconfig: `<cluster>-kubeconfig`.
    pub const KUBECONFIG_SUFFIX: &str = "-kubeconfig";
    /// Key of the kubeconfig in its Secret.
    pub const KUBECONFIG_KEY: &str = "value";
    /// ServiceAccount of the system namespace that Packages with releases are installed as.
    pub const TKR_INSTALLER: &str = "sluice-tkr-installer";
    /// Secret of the system namespace that has kapp keep the labels of releases and OSImages which others have set.
    pub const TKR_KAPP_CONFIG: &str = "sluice-tkr-kapp-config";
    /// ConfigMap of the system namespace with the supported releases of each version of the management cluster.
    pub const BOM_METADATA: &str = "bom-metadata";
    /// Key of that in its `binaryData`.
    pub const BOM_COMPATIBILITY: &str = "compatibility";
    /// Key of the list in a ConfigMap labelled [`label::ADDITIONAL_COMPATIBLE_TKRS`](super::label::ADDITIONAL_COMPATIBLE_TKRS).
    pub const TKR_VERSIONS: &str = "tkrVersions";
    /// Topology variable with the images and labels for each Kubernetes version.
    pub const TKR_DATA: &str = "TKR_DATA";
    /// Topology variable whose field `host` is the registry of all images.
    pub const IMAGE_REPOSITORY: &str = "imageRepository";
    /// Topology variable with the proxies of the nodes.
    pub const PROXY: &str = "proxy";
    /// Topology variable with the certificates that nodes trust.
    pub const TRUST: &str = "trust";
    /// Topology variable with the hosts whose certificates are not verified.
    pub const SKIP_TLS_VERIFY: &str = "skipTLSVerify";
    /// Topology variable that names the credentials of a cloud.
    pub const IDENTITY_REF: &str = "identityRef";
    /// Topology variable with the compartment of Oracle Cloud.
    pub const COMPARTMENT_ID: &str = "compartmentId";
    /// Topology variable with the network of Oracle Cloud.
    pub const EXTERNAL_VCN_ID: &str = "externalVCNId";
    /// Topology variable with the subnet of load balancers of Oracle Cloud.
    pub const PRIVATE_SERVICE_SUBNET_ID: &str = "privateServiceSubnetId";
    /// The conditions of a Cluster that Sluice reads. All others are skipped when a Cluster is decoded, except
    /// [`HEALTH_CONDITIONS`].
    pub const CLUSTER_CONDITIONS: [&str; 4] = [
        CONTROL_PLANE_INITIALIZED,
        TOPOLOGY_RECONCILED,
        RELEASE_COMPATIBLE,
        UPDATES_AVAILABLE,
    ];
    /// Conditions of a Cluster (v1beta2) that a user should know before an upgrade. Only their types and statuses are read, and only
    /// while they are not True.
    pub const HEALTH_CONDITIONS: [&str; 3] = [
        "ControlPlaneMachinesReady",
        "WorkerMachinesReady",
        "RemoteConnectionProbe",
    ];
    /// Condition of a Cluster (v1beta1): the API server of the workload has responded once.
    pub const CONTROL_PLANE_INITIALIZED: &str = "ControlPlaneInitialized";
    /// Condition of a Cluster: Cluster API has reconciled its topology.
    pub const TOPOLOGY_RECONCILED: &str = "TopologyReconciled";
    /// Condition of Clusters and ClusterBootstraps: whether the release in the label is compatible with this management cluster.
    pub const RELEASE_COMPATIBLE: &str = "ReleaseCompatible";
    /// Condition of Clusters, ClusterBootstraps and releases: newer releases.
    pub const UPDATES_AVAILABLE: &str = "UpdatesAvailable";
    /// The topology variables that Sluice reads. All others are skipped when a Cluster is decoded.
    pub const VARIABLES: [&str; 10] = [
        TKR_DATA,
        IMAGE_REPOSITORY,
        PROXY,
        TRUST,
        SKIP_TLS_VERIFY,
        super::annotation::IP_FAMILY,
        IDENTITY_REF,
        COMPARTMENT_ID,
        EXTERNAL_VCN_ID,
        PRIVATE_SERVICE_SUBNET_ID,
    ];
}

/// Whether Sluice reads the label or annotation with this key.
#[must_use]
pub fn is_read(key: &str) -> bool {
    READ.contains(&key)
}

/// Whether a cached object always keeps a label or annotation with this key. Others are dropped beyond
/// [`UNREAD`](crate::decode::UNREAD) bytes.
#[must_use]
pub fn is_kept(key: &str) -> bool {
    is_read(key) || key.starts_with(annotation::BEFORE_UPGRADE_PREFIX)
}

/// Every key of [`label`] and [`annotation`].
const READ: [&str; 69] = [
    label::TKR,
    label::LEGACY_TKR,
    label::INCOMPATIBLE,
    label::DEACTIVATED,
    label::INVALID,
    label::OS_TYPE,
    label::OS_NAME,
    label::OS_VERSION,
    label::OS_ARCH,
    label::IMAGE_TYPE,
    label::TKR_PACKAGE,
    label::OS_IMAGE,
    label::MANAGEMENT_CLUSTER,
    label::ADDITIONAL_COMPATIBLE_TKRS,
    label::CLUSTER_NAME,
    label::PACKAGE_NAME,
    label::CAPV_AGGREGATE_TO_MANAGER,
    label::CAPV_CLUSTER_NAME,
    label::CAPI_CLUSTER_NAME,
    label::TOPOLOGY_OWNED,
    label::DEPLOYMENT_NAME,
    label::POOL_NAME,
    label::PROVIDER,
    label::CLUSTERCTL,
    label::CLUSTERCTL_MOVE,
    annotation::LEGACY_PAUSED,
    annotation::LEGACY_PRE_TERMINATE,
    annotation::CUSTOM_CLUSTER_BOOTSTRAP,
    annotation::RESOLVE_TKR,
    annotation::RESOLVE_OS_IMAGE,
    annotation::HTTP_PROXY,
    annotation::HTTPS_PROXY,
    annotation::NO_PROXY,
    annotation::PROXY_CA_CERT,
    annotation::IP_FAMILY,
    annotation::SKIP_TLS_VERIFY,
    annotation::PLAN,
    annotation::TKG_VERSION,
    annotation::ADD_MISSING_FIELDS,
    annotation::UNMANAGED_CNI,
    annotation::SKIP_PACKAGE_INSTALL_DELETION,
    annotation::TEMPLATE_CONFIG,
    annotation::CLUSTER_NAME,
    annotation::CLUSTER_NAMESPACE,
    annotation::PAUSED,
    annotation::DEFER_UPGRADE,
    annotation::HOLD_UPGRADE_SEQUENCE,
    annotation::UPGRADE_STEP,
    annotation::PENDING_HOOKS,
    annotation::DISABLE_VERSION_CHECK,
    annotation::OK_TO_DELETE,
    annotation::RETRIGGERED_AT,
    annotation::APP_RESYNCED_AT,
    annotation::TKR_PACKAGE,
    annotation::YTT_PATHS,
    annotation::CONFIGURATION_UID,
    annotation::RESOLVED_TKR,
    annotation::ROLLBACK_TO,
    annotation::ROLLBACK,
    annotation::KAPP_CONTROLLER,
    annotation::KEEP_PACKAGE_VERSIONS,
    annotation::REQUIRES,
    annotation::FROZEN,
    annotation::EDIT_TKR_DATA,
    annotation::SKIP_UPGRADE_CHECKS,
    annotation::PACKAGE_VERSION,
    annotation::MANUALLY_CONTROLLED,
    annotation::DOWNGRADABLE,
    annotation::ALLOWED_NAMESPACES,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_and_annotation_is_kept() {
        let text = include_str!("labels.rs");
        let texts = text.split("pub mod finalizer {").next().unwrap().split('"');
        let keys = texts.skip(1).step_by(2).filter(|key| {
            let is_value = *key == annotation::LEGACY_PRE_TERMINATE_OWNER;
            (key.contains('.') || key.contains('/')) && !is_value
        });
        let keys: Vec<&str> = keys.collect();
        assert!(keys.len() > 40, "{keys:?}");
        for key in keys {
            assert!(is_kept(key), "{key}");
        }
    }
}
