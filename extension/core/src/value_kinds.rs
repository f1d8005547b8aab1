//! Kinds of configurations that provide values.

use std::sync::Arc;

use kube::core::ApiResource;
use sluice_crds::{
    cni::{AntreaConfig, CalicoConfig},
    cpi::{KubevipCPIConfig, OracleCPIConfig, VSphereCPIConfig},
    csi::{AwsEbsCSIConfig, AzureDiskCSIConfig, AzureFileCSIConfig, VSphereCSIConfig},
    run::KappControllerConfig,
};

use crate::cluster::ClusterRef;

/// Reference to one configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConfigRef {
    /// Kind of the configuration.
    pub kind: Arc<str>,
    /// Namespace and name.
    pub object: ClusterRef,
}

/// Whether a kind provides values: a configuration kind of Sluice, or a kind of another project. Kinds of Kubernetes, Cluster API,
/// Carvel, NSX and `run.tanzu.vmware.com` are excluded, because Sluice has more rights to them than the tenants that reference them.
///
/// To a kind of another group below `tanzu.vmware.com` Sluice has only the rights that an operator grants. The API server knows whether
/// the kind is namespaced; cluster-scoped kinds provide no values.
#[must_use]
pub fn provides_values(group: &str, kind: &str) -> bool {
    let within = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    let is_theirs = [
        "k8s.io",
        "x-k8s.io",
        "k14s.io",
        "carvel.dev",
        "run.tanzu.vmware.com",
        "nsx.vmware.com",
        "sluice.dev",
    ];
    let is_of_others =
        group.contains('.') && group != "tanzu.vmware.com" && !is_theirs.into_iter().any(within);
    is_of_others || own_resource(group, kind).is_some()
}

/// Returns the API resource of a configuration kind of Sluice.
#[must_use]
pub fn own_resource(group: &str, kind: &str) -> Option<ApiResource> {
    own_resources()
        .into_iter()
        .find(|resource| (resource.group.as_str(), resource.kind.as_str()) == (group, kind))
}

/// Returns the configuration kinds of Sluice.
fn own_resources() -> [ApiResource; 10] {
    [
        ApiResource::erase::<KappControllerConfig>(&()),
        ApiResource::erase::<AntreaConfig>(&()),
        ApiResource::erase::<CalicoConfig>(&()),
        ApiResource::erase::<VSphereCPIConfig>(&()),
        ApiResource::erase::<OracleCPIConfig>(&()),
        ApiResource::erase::<KubevipCPIConfig>(&()),
        ApiResource::erase::<VSphereCSIConfig>(&()),
        ApiResource::erase::<AwsEbsCSIConfig>(&()),
        ApiResource::erase::<AzureDiskCSIConfig>(&()),
        ApiResource::erase::<AzureFileCSIConfig>(&()),
    ]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_sluice("cni.tanzu.vmware.com", "AntreaConfig", true)]
    #[case::of_another_project("fleet.test", "FleetConfig", true)]
    #[case::of_a_name_that_is_like("notk8s.io", "FleetConfig", true)]
    #[case::a_secret("", "Secret", false)]
    #[case::a_deployment("apps", "Deployment", false)]
    #[case::a_cluster("cluster.x-k8s.io", "Cluster", false)]
    #[case::a_control_plane("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", false)]
    #[case::an_account("nsx.vmware.com", "NSXServiceAccount", false)]
    #[case::a_role("rbac.authorization.k8s.io", "ClusterRole", false)]
    #[case::a_package_install("packaging.carvel.dev", "PackageInstall", false)]
    #[case::a_package("data.packaging.carvel.dev", "Package", false)]
    #[case::an_app("kappctrl.k14s.io", "App", false)]
    #[case::a_cluster_bootstrap("run.tanzu.vmware.com", "ClusterBootstrap", false)]
    #[case::a_release("run.tanzu.vmware.com", "TanzuKubernetesRelease", false)]
    #[case::below_the_group_of_releases("addons.run.tanzu.vmware.com", "OtherConfig", false)]
    #[case::a_configuration_of_kapp_controller("run.tanzu.vmware.com", "KappControllerConfig", true)]
    #[case::another_kind_in_a_group_of_sluice("cni.tanzu.vmware.com", "OtherConfig", true)]
    #[case::in_another_group_of_tanzu("fleet.tanzu.vmware.com", "FleetConfig", true)]
    #[case::in_the_domain_of_tanzu_itself("tanzu.vmware.com", "FleetConfig", false)]
    fn only_some_kinds_provide_values(#[case] group: &str, #[case] kind: &str, #[case] provides: bool) {
        assert_eq!(provides_values(group, kind), provides);
    }
}
