//! Values of a VSphereCPIConfig for clusters on a Supervisor.

use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use sluice_crds::{cpi::VSphereCPI, foreign::Cluster};

use super::{
    output::Output,
    source::{Sources, ValuesError},
    supervisor::{self, Rule, ServiceAccount},
    vsphere::vsphere_cluster,
};

const VM_OPERATOR: &str = "vmoperator.vmware.com";
const NSX: &str = "nsx.vmware.com";

/// Computes the values, and the account with which the cloud provider requests load balancers from the Supervisor.
pub(super) fn values(own: &VSphereCPI, cluster: &Cluster, sources: &Sources) -> Result<Output, ValuesError> {
    let infrastructure = vsphere_cluster(cluster, sources)?;
    let (host, port) = supervisor::endpoint(sources)?;
    let values = json!({
        "vsphereCPI": {
            "mode": "vsphereParavirtualCPI",
            "clusterAPIVersion": Cluster::api_version(&()),
            "clusterKind": Cluster::kind(&()),
            "clusterName": cluster.name_any(),
            "clusterUID": cluster.uid().unwrap_or_default(),
            "supervisorMasterEndpointIP": host,
            "supervisorMasterPort": port.to_string(),
            "antreaNSXPodRoutingEnabled": own.antrea_nsx_pod_routing_enabled,
        },
    });
    let rules = rules();
    let service_account = ServiceAccount {
        suffix: "ccm",
        namespace: "vmware-system-cloud-provider",
        secret: "cloud-provider-creds",
        rules: &rules,
    };
    let mut output = Output::new("vsphere-cpi", values);
    output.objects = vec![
        supervisor::cluster_role("addons-vsphere-cpi-providerserviceaccount-aggregatedrole", &rules),
        service_account.for_cluster(infrastructure),
    ];
    Ok(output)
}

fn rules() -> [Rule; 4] {
    [
        Rule::new(
            VM_OPERATOR,
            &["virtualmachineservices", "virtualmachineservices/status"],
            &["get", "create", "update", "patch", "delete"],
        ),
        Rule::new(
            VM_OPERATOR,
            &["virtualmachines", "virtualmachines/status"],
            &["get", "list"],
        ),
        Rule::new(
            NSX,
            &["ippools", "ippools/status"],
            &["get", "create", "update", "list", "patch", "delete", "watch"],
        ),
        Rule::new(
            NSX,
            &["routesets", "routesets/status"],
            &["get", "create", "update", "list", "patch", "delete"],
        ),
    ]
}
