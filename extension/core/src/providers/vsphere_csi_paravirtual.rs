//! Values of a VSphereCSIConfig for clusters on a Supervisor.

use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use sluice_crds::foreign::Cluster;

use super::{
    output::Output,
    source::{Source, Sources, ValuesError},
    supervisor::{self, Rule, ServiceAccount},
    vsphere::vsphere_cluster,
};

const NAMESPACE: &str = "vmware-system-csi";
const CNS: &str = "cns.vmware.com";

/// Computes the values, and the account with which the driver requests volumes from the Supervisor.
pub(super) fn values(cluster: &Cluster, sources: &Sources) -> Result<Output, ValuesError> {
    let infrastructure = vsphere_cluster(cluster, sources)?;
    let features = Source::namespaced("", "ConfigMap", NAMESPACE, "csi-feature-states");
    let features = sources
        .find(&features)?
        .and_then(|features| features.get("data").cloned());
    let zones = Source::Every {
        group: "topology.tanzu.vmware.com".to_owned(),
        kind: "AvailabilityZone".to_owned(),
    };
    let values = json!({
        "vspherePVCSI": {
            "cluster_api_version": Cluster::api_version(&()),
            "cluster_kind": Cluster::kind(&()),
            "cluster_name": cluster.name_any(),
            "cluster_uid": cluster.uid().unwrap_or_default(),
            "namespace": NAMESPACE,
            "supervisor_master_endpoint_hostname": "supervisor.default.svc",
            "supervisor_master_port": 6443,
            "feature_states": features.unwrap_or_else(|| json!({})),
            "zone": sources.every(&zones)?.len() > 1,
        },
    });
    let rules = rules();
    let service_account = ServiceAccount {
        suffix: "pvcsi",
        namespace: NAMESPACE,
        secret: "pvcsi-provider-creds",
        rules: &rules,
    };
    let mut output = Output::new("vsphere-pv-csi", values);
    output.objects = vec![
        supervisor::cluster_role("addons-vsphere-csi-providerserviceaccount-aggregatedrole", &rules),
        service_account.for_cluster(infrastructure),
    ];
    Ok(output)
}

fn rules() -> [Rule; 7] {
    let everything = &["get", "list", "watch", "update", "create", "delete"];
    [
        Rule::new(
            "vmoperator.vmware.com",
            &["virtualmachines"],
            &["get", "list", "watch", "update", "patch"],
        ),
        Rule::new(CNS, &["cnsvolumemetadatas", "cnsfileaccessconfigs"], everything),
        Rule::new(CNS, &["cnscsisvfeaturestates"], &["get", "list", "watch"]),
        Rule::new("", &["persistentvolumeclaims"], everything),
        Rule::new(
            "",
            &["persistentvolumeclaims/status"],
            &["get", "update", "patch"],
        ),
        Rule::new("", &["events"], &["list"]),
        Rule::new(
            "snapshot.storage.k8s.io",
            &["volumesnapshots"],
            &["create", "delete", "get", "list", "patch"],
        ),
    ]
}
