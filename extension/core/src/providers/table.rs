//! The table of configuration kinds.

use kube::core::ApiResource;

use super::{
    antrea::Antrea,
    calico::Calico,
    cloud_csi::{AwsEbsCsi, AzureDiskCsi, AzureFileCsi},
    kapp_controller::KappController,
    kind::Kind,
    kubevip_cpi::KubevipCpi,
    oracle_cpi::OracleCpi,
    vsphere_cpi::VSphereCpi,
    vsphere_csi::VSphereCsi,
};

/// Every kind that is turned into values. A new one is a file beside this one and a line here.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::of::<KappController>(),
        Kind::of::<Antrea>(),
        Kind::of::<Calico>(),
        Kind::of::<VSphereCpi>(),
        Kind::of::<OracleCpi>(),
        Kind::of::<KubevipCpi>(),
        Kind::of::<VSphereCsi>(),
        Kind::of::<AwsEbsCsi>(),
        Kind::of::<AzureDiskCsi>(),
        Kind::of::<AzureFileCsi>(),
    ]
}

/// Whether a kind is one that provides values: of Sluice, or of another project. Those of Kubernetes, Cluster API, Carvel and Tanzu are
/// none: Sluice may do more to them than tenants who name them.
#[must_use]
pub fn provides_values(group: &str, kind: &str) -> bool {
    let within = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    let is_theirs = [
        "k8s.io",
        "x-k8s.io",
        "k14s.io",
        "carvel.dev",
        "tanzu.vmware.com",
        "nsx.vmware.com",
        "sluice.dev",
    ];
    let is_of_others = group.contains('.') && !is_theirs.into_iter().any(within);
    is_of_others || own_resource(group, kind).is_some()
}

/// How a kind is served, if it is one of Sluice.
#[must_use]
pub fn own_resource(group: &str, kind: &str) -> Option<ApiResource> {
    let mut resources = kinds().into_iter().map(|kind| kind.resource);
    resources.find(|resource| (resource.group.as_str(), resource.kind.as_str()) == (group, kind))
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
    #[case::an_unknown_kind_of_tanzu("cni.tanzu.vmware.com", "OtherConfig", false)]
    fn only_some_kinds_provide_values(#[case] group: &str, #[case] kind: &str, #[case] provides: bool) {
        assert_eq!(provides_values(group, kind), provides);
    }
}
