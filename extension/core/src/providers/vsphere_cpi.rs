//! Values of a VSphereCPIConfig for clusters on vCenter.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    cpi::{IpFamily, Nsxt, VSphereCPI, VSphereCPIConfig, VSphereCPIConfigSpec, VSphereCPIMode, VmNetwork},
    foreign::Cluster,
};

use super::{
    addresses::Ranges,
    cluster::{Proxies, given, ip_family, named},
    credentials::{Login, identity_login, named_login},
    kind::{Config, Provider},
    output::Output,
    problem::{Problem, Reason},
    source::{Sources, ValuesError, text},
    vsphere::{machine_template, vsphere_cluster},
    vsphere_cpi_paravirtual,
};

pub(super) struct VSphereCpi;

impl Provider for VSphereCpi {
    type Resource = VSphereCPIConfig;
    type Spec = VSphereCPIConfigSpec;

    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        sources: &Sources,
    ) -> Result<Output, ValuesError> {
        let own = &config.spec.vsphere_cpi;
        match own.mode {
            Some(VSphereCPIMode::VCenter) => towards_vcenter(config, own, cluster, sources),
            Some(VSphereCPIMode::Paravirtual) => vsphere_cpi_paravirtual::values(own, cluster, sources),
            None => {
                let message = format!(
                    "spec.vsphereCPI.mode of VSphereCPIConfig {}/{} is not set; set vsphereCPI or vsphereParavirtualCPI",
                    config.namespace, config.name
                );
                Err(Problem::new(Reason::ModeMissing, message).into())
            }
        }
    }
}

fn towards_vcenter(
    config: &Config<'_, VSphereCPIConfigSpec>,
    own: &VSphereCPI,
    cluster: &Cluster,
    sources: &Sources,
) -> Result<Output, ValuesError> {
    let infrastructure = vsphere_cluster(cluster, sources)?;
    let thumbprint = given(
        own.tls_thumbprint.as_ref(),
        text(infrastructure, "/spec/thumbprint"),
    );
    let insecure = own.insecure.unwrap_or(thumbprint.is_empty());
    if !insecure && thumbprint.is_empty() {
        let message = format!(
            "spec.vsphereCPI.insecure of VSphereCPIConfig {}/{} is false, and neither it nor the VSphereCluster of {} has \
             a thumbprint; set spec.vsphereCPI.tlsThumbprint",
            config.namespace,
            config.name,
            named(cluster)
        );
        return Err(Problem::new(Reason::ThumbprintMissing, message).into());
    }
    let datacenter = match own.datacenter.as_ref().filter(|own| !own.is_empty()) {
        Some(own) => own.clone(),
        None => text(
            machine_template(cluster, sources)?,
            "/spec/template/spec/datacenter",
        )
        .to_owned(),
    };
    let login = login(config, own, cluster, sources, infrastructure)?;
    let nsxt = Nsxt::default();
    let nsxt = own.nsxt.as_ref().unwrap_or(&nsxt);
    let nsxt_login = nsxt_login(config, nsxt, sources)?;
    let network = VmNetwork::default();
    let network = own.vm_network.as_ref().unwrap_or(&network);
    let derived = Proxies::of(cluster);
    let proxy = own.proxy.clone().unwrap_or_default();
    let values = json!({
        "vsphereCPI": {
            "mode": "vsphereCPI",
            "tlsThumbprint": thumbprint,
            "server": given(own.vcenter_api_endpoint.as_ref(), text(infrastructure, "/spec/server")),
            "datacenter": datacenter,
            "username": login.username,
            "password": login.password,
            "region": given(own.region.as_ref(), ""),
            "zone": given(own.zone.as_ref(), ""),
            "insecureFlag": insecure,
            "ipFamily": own.ip_family.map_or_else(|| ip_family(cluster), |own| IpFamily::as_str(own).to_owned()),
            "vmInternalNetwork": given(network.internal.as_ref(), ""),
            "vmExternalNetwork": given(network.external.as_ref(), ""),
            "vmExcludeInternalNetworkSubnetCidr": given(network.exclude_internal_subnet_cidr.as_ref(), ""),
            "vmExcludeExternalNetworkSubnetCidr": given(network.exclude_external_subnet_cidr.as_ref(), ""),
            "cloudProviderExtraArgs": {"tls-cipher-suites": own.tls_cipher_suites},
            "nsxt": nsxt_values(nsxt, nsxt_login.as_ref(), config, cluster)?,
            "http_proxy": given(proxy.http_proxy.as_ref(), &derived.http),
            "https_proxy": given(proxy.https_proxy.as_ref(), &derived.https),
            "no_proxy": given(proxy.no_proxy.as_ref(), &derived.no),
        },
    });
    let mut output = Output::new("vsphere-cpi", values);
    if own.credential.is_some() {
        output.owned.push(login.secret);
    }
    output.owned.extend(nsxt_login.map(|login| login.secret));
    Ok(output)
}

/// Login of the configuration, otherwise of the cluster's identity, otherwise of the Secret with the name of the Cluster.
fn login(
    config: &Config<'_, VSphereCPIConfigSpec>,
    own: &VSphereCPI,
    cluster: &Cluster,
    sources: &Sources,
    infrastructure: &Value,
) -> Result<Login, ValuesError> {
    if let Some(own) = &own.credential {
        let field = "spec.vsphereCPI.vSphereCredentialLocalObjRef";
        return named_login(sources, config.namespace, own, field);
    }
    let by_name = json!({"kind": "Secret", "name": cluster.name_any()});
    let reference = infrastructure.pointer("/spec/identityRef").unwrap_or(&by_name);
    identity_login(
        sources,
        cluster,
        reference,
        "spec.identityRef of the VSphereCluster",
    )
}

fn nsxt_login(
    config: &Config<'_, VSphereCPIConfigSpec>,
    nsxt: &Nsxt,
    sources: &Sources,
) -> Result<Option<Login>, ValuesError> {
    let field = "spec.vsphereCPI.nsxt.credentialLocalObjRef";
    let reference = nsxt.credential.as_ref();
    reference
        .map(|reference| named_login(sources, config.namespace, reference, field))
        .transpose()
}

fn nsxt_values(
    own: &Nsxt,
    login: Option<&Login>,
    config: &Config<'_, VSphereCPIConfigSpec>,
    cluster: &Cluster,
) -> Result<Value, Problem> {
    let route = own.route.clone().unwrap_or_default();
    let secret_name = own.credential.as_ref().map_or("", |reference| &reference.name);
    Ok(json!({
        "podRoutingEnabled": own.pod_routing_enabled,
        "routes": {
            "routerPath": given(route.router_path.as_ref(), ""),
            "clusterCidr": pod_range(cluster)?,
        },
        "username": login.map_or("", |login| &login.username),
        "password": login.map_or("", |login| &login.password),
        "host": given(own.api_host.as_ref(), ""),
        "insecure": own.insecure.unwrap_or_default(),
        "remoteAuthEnabled": own.remote_auth.unwrap_or_default(),
        "vmcAccessToken": given(own.vmc_access_token.as_ref(), ""),
        "vmcAuthHost": given(own.vmc_auth_host.as_ref(), ""),
        "clientCertKeyData": given(own.client_cert_key_data.as_ref(), ""),
        "clientCertData": given(own.client_cert_data.as_ref(), ""),
        "rootCAData": given(own.root_ca_data.as_ref(), ""),
        "secretName": secret_name,
        "secretNamespace": if secret_name.is_empty() { "" } else { config.namespace },
    }))
}

/// First range of Pods; empty if the Cluster has none, because then there is nothing to route.
fn pod_range(cluster: &Cluster) -> Result<String, Problem> {
    match Ranges::of_pods(cluster) {
        Ok(ranges) => Ok(ranges.first().to_owned()),
        Err(problem) if problem.reason == Reason::CIDRMissing => Ok(String::new()),
        Err(problem) => Err(problem),
    }
}
