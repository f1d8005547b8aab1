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
/// Carvel, NSX, VM Operator, `topology.tanzu.vmware.com` and `run.tanzu.vmware.com` are excluded, because Sluice has more rights to them
/// than the tenants that reference them.
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
        "vmoperator.vmware.com",
        "topology.tanzu.vmware.com",
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
    use std::{collections::BTreeSet, fs, path::Path};

    use rstest::rstest;
    use serde_json::Value;

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
    #[case::a_virtual_machine("vmoperator.vmware.com", "VirtualMachine", false)]
    #[case::a_zone("topology.tanzu.vmware.com", "AvailabilityZone", false)]
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

    /// Sluice would read objects for tenants who may not read them.
    #[test]
    fn no_kind_that_a_role_grants_provides_values() {
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/base");
        let mut granted = BTreeSet::new();
        for entry in fs::read_dir(base).unwrap() {
            let path = entry.unwrap().path();
            if !path.file_name().unwrap().to_str().unwrap().starts_with("role-") {
                continue;
            }
            let manifest = fs::read_to_string(&path).unwrap();
            let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
            let rules = objects.iter().filter_map(|object| object["rules"].as_array());
            for rule in rules.flatten() {
                let texts = |field: &str| {
                    let found = rule[field].as_array().into_iter().flatten();
                    let found = found.map(|text| text.as_str().unwrap().to_owned());
                    found.collect::<Vec<String>>()
                };
                for group in texts("apiGroups") {
                    let of_group = texts("resources");
                    granted.extend(of_group.into_iter().map(|resource| (group.clone(), resource)));
                }
            }
        }
        let groups: BTreeSet<&str> = granted.iter().map(|(group, _)| group.as_str()).collect();
        for group in [
            "cluster.x-k8s.io",
            "vmoperator.vmware.com",
            "cni.tanzu.vmware.com",
        ] {
            assert!(groups.contains(group), "{groups:?}");
        }
        for (group, resource) in &granted {
            let (plural, _) = resource.split_once('/').unwrap_or((resource.as_str(), ""));
            let is_own =
                |own: &ApiResource| (own.group.as_str(), own.plural.as_str()) == (group.as_str(), plural);
            // A role names no kind. Own kinds are the only ones that do not depend on the group alone.
            let provides = provides_values(group, "Any");
            assert!(
                !provides || own_resources().iter().any(is_own),
                "{resource} of {group}"
            );
        }
    }
}
