//! Values of a VSphereCSIConfig for clusters on vCenter.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    csi::{VSphereCSIConfig, VSphereCSIConfigSpec, VSphereCSIMode, VSphereCSISettings},
    foreign::Cluster,
    labels::name,
};

use super::{
    cluster::{Proxies, given, variable},
    credentials::{Login, identity_login, named_login},
    kind::{Config, Provider},
    output::Output,
    source::{Sources, ValuesError, text},
    vsphere::{control_plane, machine_template, vsphere_cluster},
    vsphere_csi_paravirtual,
};

const NAMESPACE: &str = "kube-system";
const TIMEOUT: &str = "300s";
/// The controller uses leader election, so more than three replicas do not help.
const MOST_REPLICAS: i64 = 3;

pub(super) struct VSphereCsi;

impl Provider for VSphereCsi {
    type Resource = VSphereCSIConfig;
    type Spec = VSphereCSIConfigSpec;

    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        sources: &Sources,
    ) -> Result<Output, ValuesError> {
        let none = VSphereCSISettings::default();
        let own = config.spec.vsphere_csi.config.as_ref().unwrap_or(&none);
        match config.spec.vsphere_csi.mode {
            VSphereCSIMode::VCenter => towards_vcenter(config, own, cluster, sources),
            VSphereCSIMode::Paravirtual => vsphere_csi_paravirtual::values(cluster, sources),
        }
    }
}

fn towards_vcenter(
    config: &Config<'_, VSphereCSIConfigSpec>,
    own: &VSphereCSISettings,
    cluster: &Cluster,
    sources: &Sources,
) -> Result<Output, ValuesError> {
    let infrastructure = vsphere_cluster(cluster, sources)?;
    let template = machine_template(cluster, sources)?;
    let in_template = |field: &str| text(template, &format!("/spec/template/spec/{field}"));
    let login = login(config, own, cluster, sources)?;
    let proxies = Proxies::of(cluster).under(&own.proxies);
    let values = json!({
        "vsphereCSI": {
            "tlsThumbprint": given(own.tls_thumbprint.as_ref(), text(infrastructure, "/spec/thumbprint")),
            "namespace": given(own.namespace.as_ref(), NAMESPACE),
            "clusterName": given(own.cluster_name.as_ref(), &cluster.name_any()),
            "server": given(own.server.as_ref(), text(infrastructure, "/spec/server")),
            "datacenter": given(own.datacenter.as_ref(), in_template("datacenter")),
            "publicNetwork": given(own.public_network.as_ref(), in_template("network/devices/0/networkName")),
            "username": login.username,
            "password": login.password,
            "region": given(own.region.as_ref(), ""),
            "zone": given(own.zone.as_ref(), ""),
            "insecureFlag": own.insecure_flag.unwrap_or(true),
            "useTopologyCategories": own.use_topology_categories.unwrap_or(false),
            "provisionTimeout": given(own.provision_timeout.as_ref(), TIMEOUT),
            "attachTimeout": given(own.attach_timeout.as_ref(), TIMEOUT),
            "resizerTimeout": given(own.resizer_timeout.as_ref(), TIMEOUT),
            "vSphereVersion": given(own.vsphere_version.as_ref(), ""),
            "http_proxy": proxies.http,
            "https_proxy": proxies.https,
            "no_proxy": proxies.no,
            "deployment_replicas": replicas(own, cluster, sources)?,
            "windows_support": own.windows_support.unwrap_or(false),
            "netpermissions": own.net_permissions,
        },
    });
    let mut output = Output::new("vsphere-csi", values);
    if own.credential.is_some() {
        output.owned.push(login.secret);
    }
    Ok(output)
}

/// Replicas of the configuration, otherwise of the control plane, up to a limit.
fn replicas(own: &VSphereCSISettings, cluster: &Cluster, sources: &Sources) -> Result<i64, ValuesError> {
    let replicas = match own.deployment_replicas {
        Some(own) => i64::from(own),
        None => control_plane(cluster, sources)?
            .pointer("/spec/replicas")
            .and_then(Value::as_i64)
            .unwrap_or(1),
    };
    Ok(replicas.clamp(1, MOST_REPLICAS))
}

/// Login of the configuration, otherwise of the reference in the topology, otherwise of the Secret with the name of the Cluster.
fn login(
    config: &Config<'_, VSphereCSIConfigSpec>,
    own: &VSphereCSISettings,
    cluster: &Cluster,
    sources: &Sources,
) -> Result<Login, ValuesError> {
    if let Some(own) = &own.credential {
        let field = "spec.vsphereCSI.config.vSphereCredentialLocalObjRef";
        return named_login(sources, config.namespace, own, field);
    }
    let by_name = || json!({"kind": "Secret", "name": cluster.name_any()});
    let reference = variable(cluster, name::IDENTITY_REF).unwrap_or_else(by_name);
    identity_login(sources, cluster, &reference, "variable identityRef")
}
