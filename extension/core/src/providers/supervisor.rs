//! Address of, and accounts on, the Supervisor that a cluster runs on.

use http::Uri;
use serde_json::{Value, json};
use sluice_crds::labels::label;

use super::{
    problem::{Problem, Reason},
    source::{Source, Sources, ValuesError, text},
};

/// Group and version of the objects of CAPV on a Supervisor.
const CAPV_GROUP_VERSION: &str = "vmware.infrastructure.cluster.x-k8s.io/v1beta1";
const PORT_NAME: &str = "kube-apiserver";

/// Rights of an account on some resources.
#[derive(Clone, Debug)]
pub(super) struct Rule(Value);

impl Rule {
    pub(super) fn new(group: &str, resources: &[&str], verbs: &[&str]) -> Self {
        Self(json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
    }

    /// Restricts the rule to the object of this name.
    pub(super) fn only(mut self, name: &str) -> Self {
        self.0["resourceNames"] = json!([name]);
        self
    }

    /// Extends the rule to all objects.
    pub(super) fn for_all(mut self) -> Self {
        if let Some(rule) = self.0.as_object_mut() {
            rule.remove("resourceNames");
        }
        self
    }
}

/// Builds a role that CAPV must hold before it can grant the role to the accounts of clusters.
pub(super) fn cluster_role(name: &str, rules: &[Rule]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {label::CAPV_AGGREGATE_TO_MANAGER: "true"}},
        "rules": rules_of(rules),
    })
}

/// Account on the Supervisor whose token CAPV copies into the workload cluster.
pub(super) struct ServiceAccount<'a> {
    /// Suffix of its name: the account is named `<VSphereCluster>-<suffix>`.
    pub(super) suffix: &'a str,
    /// Namespace in the workload cluster.
    pub(super) namespace: &'a str,
    /// Name of the Secret in the workload cluster.
    pub(super) secret: &'a str,
    pub(super) rules: &'a [Rule],
}

impl ServiceAccount<'_> {
    /// Builds the ProviderServiceAccount of a VSphereCluster, which is its controller.
    pub(super) fn for_cluster(&self, vsphere_cluster: &Value) -> Value {
        let name = text(vsphere_cluster, "/metadata/name");
        let namespace = text(vsphere_cluster, "/metadata/namespace");
        json!({
            "apiVersion": CAPV_GROUP_VERSION,
            "kind": "ProviderServiceAccount",
            "metadata": {
                "name": format!("{name}-{}", self.suffix),
                "namespace": namespace,
                "ownerReferences": [{
                    "apiVersion": text(vsphere_cluster, "/apiVersion"),
                    "kind": "VSphereCluster",
                    "name": name,
                    "uid": text(vsphere_cluster, "/metadata/uid"),
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "ref": {"name": name, "namespace": namespace},
                "rules": rules_of(self.rules),
                "targetNamespace": self.namespace,
                "targetSecretName": self.secret,
            },
        })
    }
}

fn rules_of(rules: &[Rule]) -> Vec<&Value> {
    rules.iter().map(|Rule(rule)| rule).collect()
}

/// Host and port of the Supervisor's API server: from its load balancer, otherwise from cluster-info.
pub(super) fn endpoint(sources: &Sources) -> Result<(String, u16), ValuesError> {
    let service = Source::namespaced("", "Service", "kube-system", "kube-apiserver-lb-svc");
    if let Some(found) = sources.find(&service)?.and_then(of_load_balancer) {
        return Ok(found);
    }
    let config_map = Source::namespaced("", "ConfigMap", "kube-public", "cluster-info");
    if let Some(found) = sources.find(&config_map)?.and_then(of_cluster_info) {
        return Ok(found);
    }
    let message = format!(
        "{service} has no ingress with a port named {PORT_NAME}, and {config_map} has no kubeconfig with a server and \
         its port"
    );
    Err(Problem::new(Reason::SupervisorNotFound, message).into())
}

fn of_load_balancer(service: &Value) -> Option<(String, u16)> {
    let ingress = service.pointer("/status/loadBalancer/ingress/0")?;
    let address = [text(ingress, "/ip"), text(ingress, "/hostname")];
    let address = address.into_iter().find(|address| !address.is_empty())?;
    let ports = service.pointer("/spec/ports")?.as_array()?;
    let port = ports.iter().find(|port| text(port, "/name") == PORT_NAME)?;
    Some((
        address.to_owned(),
        u16::try_from(port.get("port")?.as_u64()?).ok()?,
    ))
}

fn of_cluster_info(config_map: &Value) -> Option<(String, u16)> {
    let kubeconfig: Value = serde_saphyr::from_str(text(config_map, "/data/kubeconfig")).ok()?;
    let clusters = kubeconfig.get("clusters")?.as_array()?;
    let named = |name: &str| clusters.iter().find(|cluster| text(cluster, "/name") == name);
    // kubeadm writes one cluster without a name. Otherwise the current context selects the cluster.
    let cluster = named("").or_else(|| {
        let current = text(&kubeconfig, "/current-context");
        let contexts = kubeconfig.get("contexts")?.as_array()?;
        let context = contexts
            .iter()
            .find(|context| text(context, "/name") == current)?;
        named(text(context, "/context/cluster"))
    })?;
    let server: Uri = text(cluster, "/cluster/server").parse().ok()?;
    let host = server.host()?.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), server.port_u16()?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn service(ingress: &Value) -> Value {
        json!({
            "spec": {"ports": [{"name": "nsx", "port": 1}, {"name": "kube-apiserver", "port": 6443}]},
            "status": {"loadBalancer": {"ingress": ingress}},
        })
    }

    fn cluster_info(kubeconfig: &str) -> Value {
        json!({"data": {"kubeconfig": kubeconfig}})
    }

    const UNNAMED: &str = "clusters: [{name: '', cluster: {server: 'https://10.0.0.1:6443'}}]";
    const NAMED: &str = "{clusters: [{name: a, cluster: {server: 'https://[fd00::1]:443'}}], current-context: b, \
                         contexts: [{name: b, context: {cluster: a}}]}";

    #[rstest]
    #[case::ip(Some(json!([{"ip": "10.1.1.1", "hostname": "a.example"}])), None, "10.1.1.1", 6443)]
    #[case::hostname(Some(json!([{"hostname": "a.example"}])), None, "a.example", 6443)]
    #[case::no_ingress(Some(json!([])), Some(UNNAMED), "10.0.0.1", 6443)]
    #[case::no_service(None, Some(NAMED), "fd00::1", 443)]
    fn the_supervisor_is_found(
        #[case] ingress: Option<Value>,
        #[case] info: Option<&str>,
        #[case] host: &str,
        #[case] port: u16,
    ) {
        let mut sources = Sources::default();
        let found = |sources: &Sources| endpoint(sources);
        let Err(ValuesError::Unread(first)) = found(&sources) else {
            panic!("reads the Service first")
        };
        sources.insert(first, ingress.iter().map(service).collect());
        if let Err(ValuesError::Unread(second)) = found(&sources) {
            sources.insert(second, info.map(cluster_info).into_iter().collect());
        }
        assert_eq!(found(&sources).unwrap(), (host.to_owned(), port));
    }

    #[rstest]
    #[case("")]
    #[case("clusters: []")]
    #[case("clusters: [{name: '', cluster: {server: 'https://10.0.0.1'}}]")]
    #[case("clusters: [{name: a, cluster: {server: 'https://10.0.0.1:1'}}]")]
    fn a_supervisor_without_address_is_a_problem(#[case] kubeconfig: &str) {
        assert_eq!(of_cluster_info(&cluster_info(kubeconfig)), None);
    }
}
