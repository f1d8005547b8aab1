//! Antrea's connection to NSX: values, and accounts on a Supervisor.

use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use sluice_crds::{
    cni::{AntreaConfig, AntreaConfigSpec, AntreaNsx, NsxInline, NsxProvider},
    foreign::Cluster,
};

use super::{
    credentials::{required, secret},
    kind::Config,
    output::Output,
    problem::{Problem, Reason},
    source::{Source, Sources, ValuesError, text},
    supervisor::{self, Rule, ServiceAccount},
    vsphere::vsphere_cluster,
    zeros::without_zeros,
};

const GROUP: &str = "nsx.vmware.com";
const API_VERSION: &str = "nsx.vmware.com/v1alpha1";
const KIND: &str = "NSXServiceAccount";

/// Adds the values and objects of the connection.
pub(super) fn add(
    output: &mut Output,
    nsx: &AntreaNsx,
    config: &Config<'_, AntreaConfigSpec>,
    cluster: &Cluster,
    sources: &Sources,
) -> Result<(), ValuesError> {
    let from = nsx.bootstrap_from.clone().unwrap_or_default();
    let bootstrap = match (&from.provider_ref, &from.inline) {
        (Some(_), Some(_)) => {
            let message = format!(
                "spec.antreaNsx.bootstrapFrom of AntreaConfig {}/{} has providerRef and inline; keep one",
                config.namespace, config.name
            );
            return Err(Problem::new(Reason::NsxSourcesAmbiguous, message).into());
        }
        (provider, None) => {
            let provider = provider
                .as_ref()
                .map(|provider| checked(provider, config))
                .transpose()?;
            accounts(output, config, cluster, sources)?;
            json!({ "providerRef": provider })
        }
        (None, Some(inline)) => {
            let namespace = cluster.namespace().unwrap_or_default();
            output.obsolete.push(Source::namespaced(
                GROUP,
                KIND,
                &namespace,
                &account_name(cluster),
            ));
            json!({ "inline": inline_values(inline, config, sources)? })
        }
    };
    output.values["antreaNsx"] = without_zeros(json!({
        "enable": true,
        "bootstrapFrom": bootstrap,
        "config": nsx.config,
    }));
    Ok(())
}

/// Returns the reference if it names an NSXServiceAccount.
fn checked(provider: &NsxProvider, config: &Config<'_, AntreaConfigSpec>) -> Result<Value, Problem> {
    let (group, kind) = (provider.apigroup.as_deref(), provider.kind.as_deref());
    // The addons-manager compared kinds case-insensitively.
    let right = group == Some(GROUP) && kind.is_some_and(|kind| kind.eq_ignore_ascii_case(KIND));
    if !right {
        let message = format!(
            "spec.antreaNsx.bootstrapFrom.providerRef of AntreaConfig {}/{} is to {:?} of group {:?}; it has to be to \
             {KIND} of group {GROUP}",
            config.namespace,
            config.name,
            kind.unwrap_or_default(),
            group.unwrap_or_default()
        );
        return Err(Problem::new(Reason::NsxProviderInvalid, message));
    }
    Ok(json!({"apiVersion": API_VERSION, "kind": KIND, "name": provider.name}))
}

fn inline_values(
    inline: &NsxInline,
    config: &Config<'_, AntreaConfigSpec>,
    sources: &Sources,
) -> Result<Value, ValuesError> {
    let field = "spec.antreaNsx.bootstrapFrom.inline.nsxCertName";
    let name = inline.nsx_cert_name.as_deref().unwrap_or_default();
    let certificate = if name.is_empty() {
        Value::Null
    } else {
        let source = Source::secret(config.namespace, name);
        let found = secret(sources, &source, field)?;
        json!({
            "tls.crt": required(found, &source, "tls.crt", field)?,
            "tls.key": required(found, &source, "tls.key", field)?,
        })
    };
    Ok(
        json!({"nsxManagers": inline.nsx_managers, "clusterName": inline.cluster_name, "NsxCert": certificate}),
    )
}

fn account_name(cluster: &Cluster) -> String {
    format!("{}-antrea", cluster.name_any())
}

/// Builds the account of the cluster at NSX and the right of its nodes to read it. Both are deleted with the configuration, and that with
/// its Cluster.
///
/// The infrastructure provider finds the accounts of a VSphereCluster by `spec.ref`, so the VSphereCluster need not own them.
fn accounts(
    output: &mut Output,
    config: &Config<'_, AntreaConfigSpec>,
    cluster: &Cluster,
    sources: &Sources,
) -> Result<(), ValuesError> {
    let vsphere_cluster = vsphere_cluster(cluster, sources)?;
    let (account, certificate) = (
        account_name(cluster),
        format!("{}-antrea-nsx-cert", cluster.name_any()),
    );
    let rules = [
        Rule::new(GROUP, &["nsxserviceaccounts"], &["get", "list", "watch"]).only(&account),
        Rule::new("", &["secrets"], &["get", "list", "watch"]).only(&certificate),
    ];
    let service_account = ServiceAccount {
        suffix: "antrea",
        namespace: "vmware-system-antrea",
        secret: "supervisor-cred",
        rules: &rules,
    };
    output.objects.push(supervisor::cluster_role(
        "addons-vsphere-antreaConfig-providerserviceaccount-aggregatedrole",
        // All clusters share one role.
        &rules.clone().map(Rule::for_all),
    ));
    let owner = json!([{
        "apiVersion": AntreaConfig::api_version(&()),
        "kind": AntreaConfig::kind(&()),
        "name": config.name,
        "uid": config.uid,
    }]);
    let mut service_account = service_account.for_cluster(vsphere_cluster);
    service_account["metadata"]["ownerReferences"] = owner.clone();
    output.objects.push(service_account);
    output.objects.push(json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": account,
            "namespace": cluster.namespace(),
            "ownerReferences": owner,
        },
        "spec": {},
    }));
    // These owners would keep the accounts after the deletion of the configuration.
    let infrastructure = text(vsphere_cluster, "/metadata/uid").to_owned();
    output.former_owners = cluster.uid().into_iter().chain([infrastructure]).collect();
    Ok(())
}
