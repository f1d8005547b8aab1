//! Initial objects of a walk: one Cluster at v1.34.4 with a CNI that CAAPH delivers, and an UpgradeGate for it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sluice_core::protocol::{Key, Resource, Server};
use sluice_crds::lifecycle::GateRecord;

use crate::servers::{Place, Servers};

pub(crate) const TEAM: &str = "team-a";
/// Kubernetes versions. The rows of the gate expect the chart of the same index.
pub(crate) const VERSIONS: [&str; 3] = ["v1.34.4", "v1.35.4", "v1.36.3"];
const MINORS: [&str; 3] = ["1.34", "1.35", "1.36"];
/// Versions of the chart. The image of each has the same version with a `v`.
pub(crate) const CHARTS: [&str; 3] = ["1.17.4", "1.18.2", "1.19.1"];

fn management(plural: &str, name: &str) -> Place {
    (false, plural.to_owned(), TEAM.to_owned(), name.to_owned())
}

fn workload(plural: &str, namespace: &str, name: &str) -> Place {
    (true, plural.to_owned(), namespace.to_owned(), name.to_owned())
}

pub(crate) fn cluster() -> Place {
    management("clusters", "one")
}

pub(crate) fn control_plane() -> Place {
    management("goods", "one")
}

pub(crate) fn worker() -> Place {
    management("machinedeployments", "one-md")
}

pub(crate) fn upgrade() -> Place {
    management("clusterupgrades", "one")
}

/// Returns the place of the gate before the control plane.
pub(crate) fn gate() -> Place {
    management("upgradegates", "cni")
}

/// Returns the place of the gate before the workers.
pub(crate) fn workers_gate() -> Place {
    management("upgradegates", "nodes")
}

pub(crate) fn chart() -> Place {
    management("helmchartproxies", "cilium")
}

pub(crate) fn release() -> Place {
    management("helmreleaseproxies", "cilium-one")
}

pub(crate) fn agent() -> Place {
    workload("daemonsets", "kube-system", "cilium")
}

pub(crate) fn kube_system() -> Place {
    workload("namespaces", "", "kube-system")
}

pub(crate) fn control_plane_key() -> Key {
    Key {
        server: Server::Management,
        resource: Resource {
            group: "controlplane.example.com".into(),
            version: "v1".into(),
            kind: "Good".into(),
            plural: "goods".into(),
        },
        namespace: Some(TEAM.to_owned()),
        name: "one".to_owned(),
    }
}

/// Returns the index of a Kubernetes version.
pub(crate) fn index_of(version: &Value) -> usize {
    let known = VERSIONS.iter().position(|known| version == known);
    known.expect("a version of the walk")
}

/// Returns desired and reported version of the control plane or of the workers.
pub(crate) fn versions_at(servers: &Servers, place: &Place) -> [usize; 2] {
    let object = servers.get(place).unwrap_or(&Value::Null);
    if place.1 == "machinedeployments" {
        let spec = &object["spec"]["template"]["spec"]["version"];
        [
            index_of(spec),
            index_of(&object["status"]["versions"][0]["version"]),
        ]
    } else {
        [
            index_of(&object["spec"]["version"]),
            index_of(&object["status"]["version"]),
        ]
    }
}

/// Returns the index of the target.
pub(crate) fn target(servers: &Servers) -> usize {
    let cluster = servers.get(&cluster()).unwrap_or(&Value::Null);
    index_of(&cluster["spec"]["topology"]["version"])
}

/// Returns the record on the API server.
pub(crate) fn record(servers: &Servers) -> Option<GateRecord> {
    let upgrade = servers.get(&upgrade())?;
    serde_json::from_value(upgrade["status"]["upgrade"].clone()).ok()
}

/// Returns the row of a Kubernetes version for a version of the chart.
pub(crate) fn row(minor: usize, chart: usize) -> Value {
    let chart = CHARTS[chart];
    json!({"kubernetes": MINORS[minor], "values": {"chart": chart, "image": format!("v{chart}")}})
}

/// Returns the rows of all Kubernetes versions.
pub(crate) fn rows() -> Value {
    (0..VERSIONS.len()).map(|index| row(index, index)).collect()
}

fn agent_check() -> Value {
    json!({
        "name": "agent", "cluster": "Workload", "container": "agent", "versionKey": "image",
        "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "cilium"},
    })
}

/// Returns a gate for the Clusters with label `cni: cilium`.
fn a_gate(before: &str, checks: &Value) -> Value {
    json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeGate", "metadata": {},
        "spec": {
            "mode": "Enforce", "clusterSelector": {"matchLabels": {"cni": "cilium"}}, "before": before,
            "versions": rows(), "checks": checks,
        },
    })
}

/// Returns the gate before the control plane.
pub(crate) fn manifest() -> Value {
    let chart = json!({
        "name": "chart", "versionKey": "chart",
        "object": {"apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cilium"},
    });
    a_gate("ControlPlane", &json!([chart, agent_check()]))
}

/// Returns the gate before the workers.
pub(crate) fn workers_manifest() -> Value {
    a_gate("Workers", &json!([agent_check()]))
}

/// Returns the HelmChartProxy with a version of the chart.
pub(crate) fn a_chart(version: usize) -> Value {
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "metadata": {},
        "spec": {"version": CHARTS[version], "valuesTemplate": "fine", "reconcileStrategy": "Continuous"},
    })
}

/// Creates a Cluster at the first version, with its workers and an empty workload cluster. Earlier ones are removed.
pub(crate) fn put_cluster(servers: &mut Servers) {
    let first = VERSIONS[0];
    let versions = json!([{"version": first, "replicas": 1}]);
    let objects = [
        (
            cluster(),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"labels": {"cni": "cilium"}},
                "spec": {
                    "topology": {"classRef": {"name": "class"}, "version": first},
                    "controlPlaneRef": {"apiGroup": "controlplane.example.com", "kind": "Good", "name": "one"},
                },
            }),
        ),
        (
            control_plane(),
            json!({"metadata": {}, "spec": {"version": first}, "status": {"version": first}}),
        ),
        (
            worker(),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": {},
                "spec": {"clusterName": "one", "template": {"spec": {"version": first}}},
                "status": {"versions": versions, "replicas": 1, "upToDateReplicas": 1},
            }),
        ),
        (
            kube_system(),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {}}),
        ),
    ];
    for (place, object) in objects {
        servers.remove(&place);
        servers.put(place, object);
    }
    servers.remove(&release());
    servers.remove(&agent());
}

/// Returns the initial state. Nothing is installed in the workload cluster.
pub(crate) fn servers() -> Servers {
    let mut servers = Servers::default();
    put_cluster(&mut servers);
    let class = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass", "metadata": {}, "spec": {"kubernetesVersions": VERSIONS},
    });
    servers.put(management("clusterclasses", "class"), class);
    servers.put(gate(), manifest());
    servers.put(chart(), a_chart(0));
    let authority = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": authority}}],
        "users": [{"name": "one", "user": {"token": "token"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    });
    let data = json!({"value": BASE64_STANDARD.encode(kubeconfig.to_string())});
    servers.put(
        management("secrets", "one-kubeconfig"),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": data}),
    );
    servers
}
