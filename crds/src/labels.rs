//! Labels, annotations, finalizers, secret types and fixed names that other software or stored objects rely on.

/// Label keys.
pub mod label {
    /// On a Cluster: name of the wanted TanzuKubernetesRelease; the switch for everything done here. On nodes too.
    pub const TKR: &str = "run.tanzu.vmware.com/tkr";
    /// On a Cluster without a ClusterClass: name of its release, for the controller before this API group.
    pub const TKR_CLASSLESS: &str = "tanzuKubernetesRelease";
    /// On a release: its presence leaves clusters of the release alone that have no ClusterBootstrap.
    pub const LEGACY_TKR: &str = "run.tanzu.vmware.com/legacy-tkr";
    /// On nodes and in `TKR_DATA`: name of the OSImage.
    pub const OS_IMAGE: &str = "run.tanzu.vmware.com/os-image";
    /// On an OSImage and in `TKR_DATA`: operating system family.
    pub const OS_TYPE: &str = "os-type";
    /// On an OSImage and in `TKR_DATA`: distribution.
    pub const OS_NAME: &str = "os-name";
    /// On an OSImage and in `TKR_DATA`: version of the distribution.
    pub const OS_VERSION: &str = "os-version";
    /// On an OSImage and in `TKR_DATA`: processor architecture.
    pub const OS_ARCH: &str = "os-arch";
    /// On an OSImage and in `TKR_DATA`: kind of machine image.
    pub const IMAGE_TYPE: &str = "image-type";
    /// On a release or an OSImage: its presence says that this management cluster cannot use it.
    pub const INCOMPATIBLE: &str = "incompatible";
    /// On a release or an OSImage: its presence says that it was withdrawn.
    pub const DEACTIVATED: &str = "deactivated";
    /// On a release or an OSImage: its presence says that it contradicts itself.
    pub const INVALID: &str = "invalid";
    /// On cloned Secrets, cloned providers and data values: name of the Cluster.
    pub const CLUSTER_NAME: &str = "tkg.tanzu.vmware.com/cluster-name";
    /// On cloned Secrets, cloned providers and data values: name of the Package as a label value.
    pub const PACKAGE_NAME: &str = "tkg.tanzu.vmware.com/package-name";
    /// On an addon Secret from before this API group.
    pub const ADDON_NAME: &str = "tkg.tanzu.vmware.com/addon-name";
    /// On a Cluster: its presence marks a management cluster.
    pub const MANAGEMENT_CLUSTER: &str = "cluster-role.tkg.tanzu.vmware.com/management";
    /// On a Package: it carries the objects of a release.
    pub const TKR_PACKAGE: &str = "run.tanzu.vmware.com/tkr-package";
    /// On a ConfigMap: it lists further compatible releases.
    pub const ADDITIONAL_COMPATIBLE_TKRS: &str = "run.tanzu.vmware.com/additional-compatible-tkrs";
    /// On a VirtualMachine: name of its Cluster; tells a Supervisor from other vSphere.
    pub const CAPV_CLUSTER_NAME: &str = "capv.vmware.com/cluster.name";
    /// On webhook configurations of the old manager, with value `addon-webhooks`.
    pub const ADDON_WEBHOOKS: &str = "tkg.tanzu.vmware.com/addon-webhooks";
    /// On a ClusterRole, with value `true`: adds it to the role of CAPV. The spelling is CAPV's.
    pub const CAPV_AGGREGATE_TO_MANAGER: &str = "capv.infrastucture.cluster.x-k8s.io/aggregate-to-manager";

    /// Cluster API, on every object of a cluster: name of the Cluster.
    pub const CAPI_CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    /// Cluster API: on objects that a topology owns.
    pub const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";
    /// Cluster API, on a MachineDeployment of a topology: its name in the topology.
    pub const TOPOLOGY_MACHINE_DEPLOYMENT: &str = "topology.cluster.x-k8s.io/deployment-name";
    /// Cluster API, on a MachinePool of a topology: its name in the topology.
    pub const TOPOLOGY_MACHINE_POOL: &str = "topology.cluster.x-k8s.io/pool-name";
    /// Cluster API, on every object of a provider's components.
    pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
    /// Cluster API: leaves an object to the manager that watches with this value.
    pub const WATCH_FILTER: &str = "cluster.x-k8s.io/watch-filter";
    /// clusterctl, on a definition: its objects are looked at in a move, and moved when a Cluster owns them.
    pub const CLUSTERCTL: &str = "clusterctl.cluster.x-k8s.io";
    /// clusterctl, on a definition: its objects are moved although no Cluster owns them.
    pub const CLUSTERCTL_MOVE: &str = "clusterctl.cluster.x-k8s.io/move";
}

/// Annotation keys.
pub mod annotation {
    /// On a Cluster, from the old manager: the release that it paused the Cluster for.
    pub const LEGACY_PAUSED: &str = "tkg.tanzu.vmware.com/paused";
    /// On a Cluster: its presence says that the ClusterBootstrap comes from a user and is waited for.
    pub const CUSTOM_CLUSTER_BOOTSTRAP: &str = "tkg.tanzu.vmware.com/custom-clusterbootstrap";
    /// On a Cluster: the release itself, base64 of gzip of YAML, for when the object is gone.
    pub const TKR_SPEC: &str = "run.tanzu.vmware.com/tkr-spec";
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
    /// On a management Cluster: key into the compatibility data.
    pub const TKG_VERSION: &str = "TKGVERSION";
    /// On a Cluster or ClusterClass: selector for releases; its presence turns resolution on.
    pub const RESOLVE_TKR: &str = "run.tanzu.vmware.com/resolve-tkr";
    /// On a part of a topology or its class: selector for OSImages.
    pub const RESOLVE_OS_IMAGE: &str = "run.tanzu.vmware.com/resolve-os-image";
    /// On a ClusterBootstrap: the release whose template fills in what is missing.
    pub const ADD_MISSING_FIELDS: &str = "tkg.tanzu.vmware.com/add-missing-fields-from-tkr";
    /// On a ClusterBootstrap: its presence says that the CNI is not ours, and `spec.cni` stays empty.
    pub const UNMANAGED_CNI: &str = "tkg.tanzu.vmware.com/unmanaged-cni";
    /// On a ClusterBootstrap: prefixes of packages that survive the deletion of the Cluster, comma separated.
    pub const SKIP_PACKAGE_INSTALL_DELETION: &str = "run.tanzu.vmware.com/skip-packageinstall-deletion";
    /// On a configuration: its presence marks a template that no cluster uses directly.
    pub const TEMPLATE_CONFIG: &str = "tkg.tanzu.vmware.com/template-config";
    /// On a PackageInstall: name of the Cluster.
    pub const CLUSTER_NAME: &str = "tkg.tanzu.vmware.com/cluster-name";
    /// On a PackageInstall: namespace of the Cluster.
    pub const CLUSTER_NAMESPACE: &str = "tkg.tanzu.vmware.com/cluster-namespace";
    /// On a Machine, from the old manager: keeps the infrastructure until packages are removed.
    pub const LEGACY_PRE_TERMINATE: &str =
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/tkg.tanzu.vmware.com";
    /// Value of [`LEGACY_PRE_TERMINATE`].
    pub const LEGACY_PRE_TERMINATE_VALUE: &str = "tkg.tanzu.vmware.com/addons";

    /// Cluster API: its presence stops work on an object.
    pub const PAUSED: &str = "cluster.x-k8s.io/paused";
    /// Cluster API, on a Cluster: any key with this prefix keeps an upgrade from starting.
    pub const BEFORE_UPGRADE_PREFIX: &str = "before-upgrade.hook.cluster.cluster.x-k8s.io";
    /// Cluster API, on a MachineDeployment topology: keeps its upgrade and those after it.
    pub const HOLD_UPGRADE_SEQUENCE: &str = "topology.cluster.x-k8s.io/hold-upgrade-sequence";
    /// Cluster API, on a MachineDeployment topology: leaves it out of the upgrade.
    pub const DEFER_UPGRADE: &str = "topology.cluster.x-k8s.io/defer-upgrade";
    /// clusterctl: its presence keeps `clusterctl move` waiting.
    pub const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";

    /// On a Cluster: when Sluice last had Cluster API repeat a call that had failed.
    pub const RECALLED_AT: &str = "lifecycle.sluice.dev/recalled-at";
    /// On a Secret with values in a workload cluster: when kapp-controller was last asked to work on its App again.
    pub const ASKED_AGAIN_AT: &str = "lifecycle.sluice.dev/asked-again-at";
    /// On a ClusterBootstrap: the release whose packages are in its spec.
    pub const RESOLVED_TKR: &str = "lifecycle.sluice.dev/resolved-tkr";
    /// On a ClusterBootstrap: exact versions of packages that do not follow a release, `antrea=1.7.1+vmware.1-tkg.1`, and `none`
    /// for one that is left out on purpose; comma separated.
    pub const KEEP_PACKAGE_VERSIONS: &str = "lifecycle.sluice.dev/keep-package-versions";

    /// kapp-controller, on an App: version of the Package that it works on.
    pub const PACKAGE_VERSION: &str = "packaging.carvel.dev/package-version";
    /// kapp-controller, on an App: `spec.refName` of the Package that it works on.
    pub const PACKAGE_REF_NAME: &str = "packaging.carvel.dev/package-ref-name";
    /// kapp-controller, on an App: its presence cuts the App off from its PackageInstall.
    pub const MANUALLY_CONTROLLED: &str = "ext.packaging.carvel.dev/manually-controlled";
    /// kapp-controller, on a PackageInstall: its presence allows a lower version.
    pub const DOWNGRADABLE: &str = "packaging.carvel.dev/downgradable";
}

/// Finalizers.
pub mod finalizer {
    /// On a Cluster, its kubeconfig Secret and its ClusterBootstrap, from the old manager.
    pub const ADDON: &str = "tkg.tanzu.vmware.com/addon";
}

/// Types of Secrets.
pub mod secret_type {
    /// Values of a package: cloned, inline or empty.
    pub const CLUSTER_BOOTSTRAP: &str = "clusterbootstrap-secret";
    /// Data values for a PackageInstall.
    pub const OPAQUE: &str = "Opaque";
    /// Addon from before this API group.
    pub const LEGACY_ADDON: &str = "tkg.tanzu.vmware.com/addon";
    /// Cluster API: kubeconfigs and certificates of a cluster.
    pub const CAPI_CLUSTER: &str = "cluster.x-k8s.io/secret";
}

/// Fixed names of objects and keys.
pub mod name {
    /// Value of [`label::PROVIDER`](super::label::PROVIDER) on everything that belongs to Sluice.
    pub const PROVIDER: &str = "runtime-extension-sluice";
    /// System namespace on the management cluster and in workload clusters.
    pub const SYSTEM_NAMESPACE: &str = "tkg-system";
    /// System namespace on a Supervisor.
    pub const SUPERVISOR_SYSTEM_NAMESPACE: &str = "vmware-system-tkg";
    /// ServiceAccount in a workload cluster that packages are installed as.
    pub const SERVICE_ACCOUNT: &str = "tanzu-cluster-bootstrap-sa";
    /// ClusterRole of [`SERVICE_ACCOUNT`].
    pub const CLUSTER_ROLE: &str = "tanzu-cluster-bootstrap-clusterrole";
    /// ClusterRoleBinding of [`SERVICE_ACCOUNT`].
    pub const CLUSTER_ROLE_BINDING: &str = "tanzu-cluster-bootstrap-clusterrolebinding";
    /// Key of the values in a Secret.
    pub const VALUES_KEY: &str = "values.yaml";
    /// Key of the values that a Supervisor adds.
    pub const TKGS_VALUES_KEY: &str = "tkgs-values.yaml";
    /// Suffix of the Secret with a cluster's kubeconfig: `<cluster>-kubeconfig`.
    pub const KUBECONFIG_SUFFIX: &str = "-kubeconfig";
    /// Key of the kubeconfig in its Secret.
    pub const KUBECONFIG_KEY: &str = "value";
    /// Topology variable with the images and labels for each Kubernetes version.
    pub const TKR_DATA: &str = "TKR_DATA";
}
