//! OracleCPIConfig.

use serde_json::{Value, json};
use sluice_crds::{
    cpi::{OracleCPIConfig, OracleCPIConfigSpec, SecurityListManagementMode},
    foreign::Cluster,
    labels::name,
};

use super::{
    cluster::{given, variable},
    credentials::{required, secret, secret_text},
    kind::{Config, Provider},
    output::Output,
    source::{Source, Sources, Stop},
    zeros::without_zeros,
};

/// Where the infrastructure provider of Oracle keeps its credentials.
const NAMESPACE: &str = "cluster-api-provider-oci-system";
const SECRET: &str = "capoci-auth-config";

pub(super) struct OracleCpi;

impl Provider for OracleCpi {
    type Resource = OracleCPIConfig;
    type Spec = OracleCPIConfigSpec;

    fn values(config: &Config<'_, Self::Spec>, cluster: &Cluster, sources: &Sources) -> Result<Output, Stop> {
        let own = config.spec;
        let derived = |variable_name: &str| {
            variable(cluster, variable_name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let balancer = own.load_balancer.clone().unwrap_or_default();
        let subnet = derived(name::PRIVATE_SERVICE_SUBNET_ID);
        let mut values = json!({
            "auth": auth(sources)?,
            "compartment": given(Some(&own.compartment), derived(name::COMPARTMENT_ID)),
            "vcn": given(Some(&own.vcn), derived(name::EXTERNAL_VCN_ID)),
            "loadBalancer": {
                "subnet1": given(balancer.subnet1.as_ref(), subnet),
                "subnet2": given(balancer.subnet2.as_ref(), subnet),
            },
        });
        // Only where the configuration asks for them: packages from before these settings refuse what they do not know.
        if balancer.security_list_management_mode != SecurityListManagementMode::All {
            values["loadBalancer"]["securityListManagementMode"] =
                json!(balancer.security_list_management_mode);
        }
        if !balancer.security_list_subnet_mapping.is_empty() {
            values["loadBalancer"]["securityListSubnetMapping"] =
                json!(balancer.security_list_subnet_mapping);
        }
        let proxy = without_zeros(json!(own.proxy.clone().unwrap_or_default()));
        if proxy != json!({}) {
            values["proxy"] = proxy;
        }
        Ok(Output::new("oracle-cpi", values))
    }
}

fn auth(sources: &Sources) -> Result<Value, Stop> {
    let source = Source::secret(NAMESPACE, SECRET);
    let asked_by = "the infrastructure provider of Oracle";
    let found = secret(sources, &source, asked_by)?;
    let key = |key: &str| required(found, &source, key, asked_by);
    Ok(json!({
        "region": key("region")?,
        "tenancy": key("tenancy")?,
        "user": key("user")?,
        "key": key("key")?,
        "fingerprint": key("fingerprint")?,
        // A key may have none.
        "passphrase": secret_text(found, "passphrase").unwrap_or_default(),
    }))
}
