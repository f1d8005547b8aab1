//! Initial objects of a walk: one Cluster at v1.34.4 with a CNI that CAAPH or Flux delivers, and an UpgradeGate for it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sluice_core::protocol::{Key, Resource, Server};
use sluice_crds::lifecycle::GateRecord;

use crate::{
    addons::report_backend,
    flux::KUBECONFIG,
    servers::{Place, Servers},
};

pub(crate) const TEAM: &str = "team-a";
/// Kubernetes versions. The rows of the gate expect the chart of the same index.
pub(crate) const VERSIONS: [&str; 3] = ["v1.34.4", "v1.35.4", "v1.36.3"];
const MINORS: [&str; 3] = ["1.34", "1.35", "1.36"];
/// Versions of the chart. The image of each has the same version with a `v`.
pub(crate) const CHARTS: [&str; 3] = ["1.17.4", "1.18.2", "1.19.1"];
/// Versions of the definition that come with each chart, and that stay served. Helm never upgrades them.
pub(crate) const APIS: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];

/// System that delivers the add-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum System {
    /// CAAPH, with a HelmChartProxy.
    #[default]
    Caaph,
    /// Flux, with a HelmRelease on the management cluster.
    HelmRelease,
    /// Flux, with a Kustomization on the management cluster.
    Kustomization,
}

impl System {
    pub(crate) const ALL: [Self; 3] = [Self::Caaph, Self::HelmRelease, Self::Kustomization];

    /// Returns group, version and kind that the gate checks.
    const fn kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Caaph => ("addons.cluster.x-k8s.io/v1alpha1", "HelmChartProxy"),
            Self::HelmRelease => ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
            Self::Kustomization => ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
        }
    }

    /// Returns the object that names the wanted version, and its field.
    pub(crate) fn wants(self) -> (Place, &'static str) {
        match self {
            Self::Caaph => (chart(), "/spec/version"),
            Self::HelmRelease => (helm_release(), "/spec/chart/spec/version"),
            Self::Kustomization => (source(), "/spec/ref/tag"),
        }
    }

    /// Returns the object with other content of the delivery, and its field: values or a path.
    pub(crate) fn content(self) -> (Place, &'static str) {
        match self {
            Self::Caaph => (chart(), "/spec/valuesTemplate"),
            Self::HelmRelease => (helm_release(), "/spec/values/setting"),
            Self::Kustomization => (kustomization(), "/spec/path"),
        }
    }

    /// Returns the object that is applied to the workload cluster.
    pub(crate) fn delivered(self) -> Place {
        match self {
            Self::Caaph => release(),
            Self::HelmRelease => helm_release(),
            Self::Kustomization => kustomization(),
        }
    }
}

/// Variant of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) system: System,
    /// Whether the gate also checks a CustomResourceDefinition, and an object by an expression.
    pub(crate) has_extras: bool,
}

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

/// Returns the place of the Audit gate.
pub(crate) fn audit_gate() -> Place {
    management("upgradegates", "watch")
}

pub(crate) fn chart() -> Place {
    management("helmchartproxies", "cilium")
}

pub(crate) fn release() -> Place {
    management("helmreleaseproxies", "cilium-one")
}

pub(crate) fn helm_release() -> Place {
    management("helmreleases", "cilium")
}

pub(crate) fn kustomization() -> Place {
    management("kustomizations", "cilium")
}

/// Returns the place of the GitRepository of the Kustomization.
pub(crate) fn source() -> Place {
    management("gitrepositories", "cilium")
}

/// Returns the place of the CustomResourceDefinition.
pub(crate) fn definition() -> Place {
    workload("customresourcedefinitions", "", "backends.example.com")
}

/// Returns the place of the object that an expression checks.
pub(crate) fn backend() -> Place {
    workload("backends", "kube-system", "main")
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
    let (chart, api) = (CHARTS[chart], APIS[chart]);
    json!({"kubernetes": MINORS[minor], "values": {"chart": chart, "image": format!("v{chart}"), "api": api}})
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

/// Returns the checks of the definition, and of the object that only an expression can judge.
fn extra_checks() -> [Value; 2] {
    let served = json!({
        "name": "api", "cluster": "Workload", "versionKey": "api",
        "object": {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": "backends.example.com",
        },
    });
    let reported = json!({
        "name": "backend", "cluster": "Workload", "versionKey": "chart", "cel": "object.status.version == version",
        "object": {"apiVersion": "example.com/v1", "kind": "Backend", "namespace": "kube-system", "name": "main"},
    });
    [served, reported]
}

/// Returns the gate before the control plane.
pub(crate) fn manifest(setup: Setup) -> Value {
    let (api_version, kind) = setup.system.kind();
    let chart = json!({
        "name": "chart", "versionKey": "chart",
        "object": {"apiVersion": api_version, "kind": kind, "name": "cilium"},
    });
    let mut checks = vec![chart, agent_check()];
    if setup.has_extras {
        checks.extend(extra_checks());
    }
    a_gate("ControlPlane", &json!(checks))
}

/// Returns the gate before the workers.
pub(crate) fn workers_manifest() -> Value {
    a_gate("Workers", &json!([agent_check()]))
}

/// Returns an Audit gate with the checks of the gate before the control plane, at a version that no chart has.
pub(crate) fn audit_manifest(setup: Setup) -> Value {
    let mut gate = manifest(setup);
    gate["spec"]["mode"] = json!("Audit");
    let rows = gate["spec"]["versions"].as_array_mut();
    for row in rows.into_iter().flatten() {
        row["values"]["chart"] = json!("9.9.9");
    }
    gate
}

/// Returns the HelmChartProxy with a version of the chart.
fn a_chart(version: usize) -> Value {
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "metadata": {},
        "spec": {"version": CHARTS[version], "valuesTemplate": "fine", "reconcileStrategy": "Continuous"},
    })
}

/// Returns the HelmRelease with a version of the chart.
fn a_helm_release(version: usize) -> Value {
    json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {},
        "spec": {
            "interval": "10m", "suspend": false,
            "chart": {
                "spec": {
                    "chart": "cilium", "version": CHARTS[version],
                    "sourceRef": {"kind": "HelmRepository", "name": "cilium"},
                },
            },
            "kubeConfig": {"secretRef": {"name": KUBECONFIG}},
            "values": {"setting": "fine"},
        },
    })
}

/// Returns the GitRepository at the tag of a version.
fn a_source(version: usize) -> Value {
    json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {},
        "spec": {
            "interval": "1m", "suspend": false, "url": "https://git.example.com/cilium", "ref": {"tag": CHARTS[version]},
        },
    })
}

fn a_kustomization() -> Value {
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {},
        "spec": {
            "interval": "10m", "suspend": false, "path": "fine", "prune": true,
            "kubeConfig": {"secretRef": {"name": KUBECONFIG}},
            "sourceRef": {"kind": "GitRepository", "name": "cilium"},
        },
    })
}

/// Creates the missing objects of the system that delivers the add-on, for a version of it.
pub(crate) fn put_delivery(servers: &mut Servers, system: System, version: usize) {
    let objects = match system {
        System::Caaph => vec![(chart(), a_chart(version))],
        System::HelmRelease => vec![(helm_release(), a_helm_release(version))],
        System::Kustomization => vec![
            (source(), a_source(version)),
            (kustomization(), a_kustomization()),
        ],
    };
    for (place, object) in objects {
        if servers.get(&place).is_none() {
            servers.put(place, object);
        }
    }
}

/// Returns the served versions of the definition that comes with a version of the chart.
pub(crate) fn apis(version: usize) -> Value {
    let name = |at: usize| json!({"name": APIS[at], "served": true, "storage": at == version});
    (0..=version).map(name).collect()
}

/// Returns the CustomResourceDefinition that comes with a version of the chart.
pub(crate) fn a_definition(version: usize) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": apis(version),
            "names": {"kind": "Backend", "plural": "backends"},
        },
        "status": {
            "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}],
        },
    })
}

/// Returns the object that an expression checks, at a version of the chart.
pub(crate) fn a_backend(version: usize) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Backend", "metadata": {}, "spec": {"version": CHARTS[version]},
    })
}

/// Creates a Cluster at the first version, with its workers and an empty workload cluster. Earlier ones are removed, and with them the Flux
/// objects that deliver to it.
pub(crate) fn put_cluster(servers: &mut Servers, setup: Setup) {
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
    for place in [
        release(),
        helm_release(),
        kustomization(),
        source(),
        agent(),
        definition(),
        backend(),
    ] {
        servers.remove(&place);
    }
    put_delivery(servers, setup.system, 0);
    if setup.has_extras {
        servers.put(definition(), a_definition(0));
        servers.put(backend(), a_backend(0));
        report_backend(servers);
    }
}

/// Returns the initial state. The add-on is not installed in the workload cluster.
pub(crate) fn servers(setup: Setup) -> Servers {
    let mut servers = Servers::default();
    put_cluster(&mut servers, setup);
    let class = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass", "metadata": {}, "spec": {"kubernetesVersions": VERSIONS},
    });
    servers.put(management("clusterclasses", "class"), class);
    servers.put(gate(), manifest(setup));
    let authority = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": authority}}],
        "users": [{"name": "one", "user": {"token": "token"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    });
    let data = json!({"value": BASE64_STANDARD.encode(kubeconfig.to_string())});
    servers.put(
        management("secrets", KUBECONFIG),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": data}),
    );
    servers
}
