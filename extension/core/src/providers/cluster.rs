//! Values that configurations derive from their Cluster.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::ResourceExt as _;
use serde_json::Value;
use sluice_crds::{
    ProxySettings,
    foreign::{Cluster, cluster::ObjectReference},
    labels::{annotation, name},
};

use super::{
    problem::{Problem, Reason},
    source::text,
};

/// Name of the Cluster in messages.
pub(crate) fn named(cluster: &Cluster) -> String {
    let namespace = cluster.namespace().unwrap_or_default();
    format!("Cluster {namespace}/{}", cluster.name_any())
}

/// Returns a variable of the topology.
pub(super) fn variable(cluster: &Cluster, named: &str) -> Option<Value> {
    cluster.spec.topology.as_ref()?.variable(named)
}

/// API group of infrastructure providers.
const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// Fails unless the infrastructure of the Cluster is of this kind.
pub(super) fn runs_on(cluster: &Cluster, kind: &str) -> Result<(), Problem> {
    let reference = infrastructure(cluster)?;
    if (reference.group(), reference.kind.as_str()) == (INFRASTRUCTURE_GROUP, kind) {
        return Ok(());
    }
    let message = format!(
        "spec.infrastructureRef of {} is of kind {:?} in group {:?}, not {kind} in {INFRASTRUCTURE_GROUP}",
        named(cluster),
        reference.kind,
        reference.group()
    );
    Err(Problem::new(Reason::InfrastructureUnknown, message))
}

/// Name of the infrastructure in package values.
pub(super) fn infrastructure_name(cluster: &Cluster) -> Result<&'static str, Problem> {
    let reference = infrastructure(cluster)?;
    Ok(match reference.kind.as_str() {
        "VSphereCluster" => "vsphere",
        "AWSCluster" => "aws",
        "AzureCluster" => "azure",
        "DockerCluster" => "docker",
        "OCICluster" => "oci",
        other => {
            let message = format!(
                "spec.infrastructureRef of {} is of kind {other:?}; known are VSphereCluster, AWSCluster, AzureCluster, \
                 DockerCluster and OCICluster",
                named(cluster)
            );
            return Err(Problem::new(Reason::InfrastructureUnknown, message));
        }
    })
}

/// Returns the reference to the infrastructure object of the Cluster.
pub(super) fn infrastructure(cluster: &Cluster) -> Result<&ObjectReference, Problem> {
    let reference = cluster.spec.infrastructure_ref.as_ref();
    reference
        .filter(|reference| !reference.name.is_empty())
        .ok_or_else(|| {
            let message = format!("{} has no spec.infrastructureRef yet", named(cluster));
            Problem::new(Reason::InfrastructureNotFound, message)
        })
}

/// Proxy settings of a Cluster.
///
/// The variables of the topology take precedence. The annotations are copies of them by the addons-manager, or come
/// from a user whose topology has no such variable.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Proxies {
    pub(super) http: String,
    pub(super) https: String,
    pub(super) no: String,
    /// Certificates in PEM.
    pub(super) ca_certs: String,
    pub(super) skip_tls_verify: String,
}

impl Proxies {
    /// Reads the settings of a Cluster. An unreadable setting is empty.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let given = |key: &str| cluster.annotations().get(key).cloned().unwrap_or_default();
        let or = |derived: String, key: &str| if derived.is_empty() { given(key) } else { derived };
        let proxy = &variable(cluster, name::PROXY).unwrap_or_default();
        let trust = variable(cluster, name::TRUST).unwrap_or_default();
        let from_variable = list(trust.get("additionalTrustedCAs"))
            .map(|authority| decoded(text(authority, "/data")))
            .collect::<String>();
        Self {
            http: or(text(proxy, "/httpProxy").to_owned(), annotation::HTTP_PROXY),
            https: or(text(proxy, "/httpsProxy").to_owned(), annotation::HTTPS_PROXY),
            no: or(joined(proxy.get("noProxy"), ","), annotation::NO_PROXY),
            ca_certs: if from_variable.is_empty() {
                decoded(&given(annotation::PROXY_CA_CERT))
            } else {
                from_variable
            },
            skip_tls_verify: or(
                joined(variable(cluster, name::SKIP_TLS_VERIFY).as_ref(), ", "),
                annotation::SKIP_TLS_VERIFY,
            ),
        }
    }

    /// Returns these settings unless the configuration sets its own proxies.
    pub(super) fn under(self, own: &ProxySettings) -> Self {
        Self {
            http: given(own.http_proxy.as_ref(), &self.http),
            https: given(own.https_proxy.as_ref(), &self.https),
            no: given(own.no_proxy.as_ref(), &self.no),
            ..self
        }
    }
}

/// Address families of nodes in the spelling of the Cluster; empty if the Cluster has none.
pub(super) fn ip_family(cluster: &Cluster) -> String {
    let variable = variable(cluster, annotation::IP_FAMILY);
    let variable = variable.as_ref().and_then(Value::as_str).unwrap_or_default();
    if variable.is_empty() {
        cluster
            .annotations()
            .get(annotation::IP_FAMILY)
            .cloned()
            .unwrap_or_default()
    } else {
        variable.to_owned()
    }
}

/// Whether the plan of the Cluster is for development.
pub(super) fn is_development(cluster: &Cluster) -> bool {
    let plan = cluster.annotations().get(annotation::PLAN);
    plan.is_some_and(|plan| plan == "dev" || plan == "devcc")
}

/// Returns the setting of the configuration if it is not empty, otherwise the derived value.
pub(super) fn given(own: Option<&String>, derived: &str) -> String {
    own.filter(|own| !own.is_empty())
        .map_or(derived, String::as_str)
        .to_owned()
}

fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn joined(value: Option<&Value>, separator: &str) -> String {
    list(value)
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(separator)
}

/// Decodes a certificate in PEM and ends it with a newline; empty if the input is not base64 of text.
fn decoded(encoded: &str) -> String {
    let bytes = BASE64_STANDARD.decode(encoded.trim()).unwrap_or_default();
    match String::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && !text.ends_with('\n') => text + "\n",
        Ok(text) => text,
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(annotations: &Value, variables: &Value) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": "c1", "namespace": "ns1", "annotations": annotations},
            "spec": {"topology": {"version": "v1.34.4", "variables": variables}},
        }))
        .unwrap()
    }

    #[test]
    fn proxies_come_from_variables_and_else_from_annotations() {
        let annotations = json!({
            "tkg.tanzu.vmware.com/tkg-http-proxy": "http://annotated",
            "tkg.tanzu.vmware.com/tkg-https-proxy": "https://annotated",
            "tkg.tanzu.vmware.com/tkg-no-proxy": ".annotated",
            "tkg.tanzu.vmware.com/tkg-proxy-ca-cert": "QQ==",
            "tkg.tanzu.vmware.com/skip-tls-verify": "annotated",
        });
        let from_annotations = Proxies::of(&cluster(&annotations, &json!([])));
        assert_eq!(
            from_annotations,
            Proxies {
                http: "http://annotated".into(),
                https: "https://annotated".into(),
                no: ".annotated".into(),
                ca_certs: "A\n".into(),
                skip_tls_verify: "annotated".into(),
            }
        );
        let variables = json!([
            {"name": "proxy", "value": {"httpProxy": "http://v", "httpsProxy": "https://v", "noProxy": ["a", "b"]}},
            {"name": "trust", "value": {"additionalTrustedCAs": [
                {"name": "one", "data": "Qg=="}, {"name": "two", "data": "Qwo="}, {"name": "none", "data": "!"},
            ]}},
            {"name": "skipTLSVerify", "value": ["c", "d"]},
        ]);
        let from_variables = Proxies::of(&cluster(&annotations, &variables));
        assert_eq!(
            from_variables,
            Proxies {
                http: "http://v".into(),
                https: "https://v".into(),
                no: "a,b".into(),
                ca_certs: "B\nC\n".into(),
                skip_tls_verify: "c, d".into(),
            }
        );
    }

    /// [BUG] of the addons-manager: a variable of the wrong type made it panic.
    #[test]
    fn variables_of_the_wrong_type_are_empty() {
        let variables = json!([
            {"name": "proxy", "value": ["http://a"]},
            {"name": "trust", "value": {"additionalTrustedCAs": "QQ=="}},
            {"name": "skipTLSVerify", "value": {"a": 1}},
            {"name": "tkg.tanzu.vmware.com/tkg-ip-family", "value": 4},
        ]);
        let cluster = cluster(&json!({}), &variables);
        assert_eq!(Proxies::of(&cluster), Proxies::default());
        assert_eq!(ip_family(&cluster), "");
    }
}
