//! Values of an OracleCPIConfig.

use serde_json::{Value, json};
use sluice_crds::{
    cpi::{OracleCPIConfig, OracleCPIConfigSpec, SecurityListManagementMode},
    foreign::Cluster,
    labels::{annotation::ALLOWED_NAMESPACES, name},
};

use super::{
    cluster::{given, runs_on, variable},
    credentials::{required, secret, secret_text},
    kind::{Config, Provider},
    output::Output,
    problem::{Problem, Reason},
    source::{Source, Sources, ValuesError},
    zeros::without_zeros,
};

/// Namespace in which the infrastructure provider of Oracle keeps its credentials.
const NAMESPACE: &str = "cluster-api-provider-oci-system";
const SECRET: &str = "capoci-auth-config";

pub(super) struct OracleCpi;

impl Provider for OracleCpi {
    type Resource = OracleCPIConfig;
    type Spec = OracleCPIConfigSpec;

    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        sources: &Sources,
    ) -> Result<Output, ValuesError> {
        // The key belongs to the management cluster and is read for no other kind of Cluster.
        runs_on(cluster, "OCICluster")?;
        let own = config.spec;
        let derived = |variable_name: &str| {
            let value = variable(cluster, variable_name);
            value
                .as_ref()
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let balancer = own.load_balancer.clone().unwrap_or_default();
        let subnet = derived(name::PRIVATE_SERVICE_SUBNET_ID);
        let mut values = json!({
            "auth": auth(config.namespace, sources)?,
            "compartment": given(Some(&own.compartment), &derived(name::COMPARTMENT_ID)),
            "vcn": given(Some(&own.vcn), &derived(name::EXTERNAL_VCN_ID)),
            "loadBalancer": {
                "subnet1": given(balancer.subnet1.as_ref(), &subnet),
                "subnet2": given(balancer.subnet2.as_ref(), &subnet),
            },
        });
        // Only if the configuration sets them: older packages refuse unknown settings.
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

/// Credentials of the package, for a Cluster in `namespace`.
fn auth(namespace: &str, sources: &Sources) -> Result<Value, ValuesError> {
    let source = Source::secret(NAMESPACE, SECRET);
    let asked_by = "the infrastructure provider of Oracle";
    let found = secret(sources, &source, asked_by)?;
    if !allows(found, namespace) {
        let message = format!(
            "annotation {ALLOWED_NAMESPACES} of {source} does not list namespace {namespace}: its key is not copied there, and a copy \
             that exists is not refreshed; add the namespace to the list, or * for all"
        );
        return Err(Problem::new(Reason::CredentialsNotAllowed, message).into());
    }
    let key = |key: &str| required(found, &source, key, asked_by);
    Ok(json!({
        "region": key("region")?,
        "tenancy": key("tenancy")?,
        "user": key("user")?,
        "key": key("key")?,
        "fingerprint": key("fingerprint")?,
        // A key may have no passphrase.
        "passphrase": secret_text(found, "passphrase").unwrap_or_default(),
    }))
}

/// Whether the content of a Secret may be copied into a namespace. A tenant who may write configurations must not be able to read the key
/// of the management cluster.
fn allows(secret: &Value, namespace: &str) -> bool {
    let listed = secret["metadata"]["annotations"][ALLOWED_NAMESPACES].as_str();
    let mut listed = listed.unwrap_or_default().split(',').map(str::trim);
    listed.any(|listed| listed == "*" || listed == namespace)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(json!({}), false)]
    #[case::empty(json!({ALLOWED_NAMESPACES: ""}), false)]
    #[case::all(json!({ALLOWED_NAMESPACES: " * "}), true)]
    #[case::it(json!({ALLOWED_NAMESPACES: "team-b, team-a"}), true)]
    #[case::others(json!({ALLOWED_NAMESPACES: "team,team-ab,team-*"}), false)]
    #[case::no_text(json!({ALLOWED_NAMESPACES: true}), false)]
    fn a_secret_is_copied_into_the_namespaces_that_its_annotation_lists(
        #[case] annotations: Value,
        #[case] allowed: bool,
    ) {
        let secret = json!({"metadata": {"annotations": annotations}});
        assert_eq!(allows(&secret, "team-a"), allowed);
    }

    #[rstest]
    #[case::another_kind("infrastructure.cluster.x-k8s.io", "DockerCluster")]
    #[case::a_kind_of_a_tenant("tenant.test", "OCICluster")]
    fn the_key_is_not_read_for_other_infrastructure(#[case] group: &str, #[case] kind: &str) {
        let cluster: Cluster = serde_json::from_value(json!({
            "metadata": {"name": "one", "namespace": "team-a"},
            "spec": {"infrastructureRef": {"apiGroup": group, "kind": kind, "name": "one"}},
        }))
        .unwrap();
        let spec = serde_json::from_value(json!({"compartment": "c", "vcn": "v"})).unwrap();
        let config = Config {
            name: "one",
            namespace: "team-a",
            uid: "uid",
            labels: &std::collections::BTreeMap::new(),
            spec: &spec,
        };
        match OracleCpi::values(&config, &cluster, &Sources::default()) {
            Err(ValuesError::Problem(problem)) => assert_eq!(problem.reason, Reason::InfrastructureUnknown),
            other => panic!("{other:?}"),
        }
    }
}
