//! The objects that a walk begins with: one Cluster at v1.35.4 with kapp-controller, a CNI and another package, and the release of
//! v1.36.3.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sluice_core::pass::Server::{self, Management};
use sluice_crds::labels::label;

use crate::servers::{Place, Servers, place};

pub(crate) const SYSTEM: &str = "tkg-system";
pub(crate) const TEAM: &str = "team-a";
/// Kubernetes versions, and by the same index the releases and the versions of both packages.
pub(crate) const VERSIONS: [&str; 2] = ["v1.35.4", "v1.36.3"];
pub(crate) const RELEASES: [&str; 2] = ["v1.35.4---test.1", "v1.36.3---test.1"];
const PACKAGE_VERSIONS: [&str; 2] = ["1.8.0", "1.9.0"];
pub(crate) const REF_NAMES: [&str; 3] = [
    "kapp-controller.example.com",
    "antrea.example.com",
    "metrics.example.com",
];
/// Of kapp-controller, the CNI and the other package, the index of each.
pub(crate) const PACKAGES: [usize; 3] = [0, 1, 2];

pub(crate) fn cluster() -> Place {
    place(Management, "clusters", TEAM, "one")
}

pub(crate) fn bootstrap() -> Place {
    place(Management, "clusterbootstraps", TEAM, "one")
}

pub(crate) fn control_plane() -> Place {
    place(Management, "goods", TEAM, "one")
}

pub(crate) fn worker() -> Place {
    place(Management, "machinedeployments", TEAM, "one-md")
}

/// The values of the CNI, as the ClusterBootstrap names them once it was created.
pub(crate) fn values_source() -> Place {
    place(Management, "secrets", TEAM, "one-antrea-package")
}

pub(crate) fn package_place(name: &str) -> Place {
    place(Management, "packages", SYSTEM, name)
}

/// Name of a Package.
pub(crate) fn package_name(package: usize, release: usize) -> String {
    format!("{}.{}", REF_NAMES[package], PACKAGE_VERSIONS[release])
}

/// PackageInstall and App of a package.
pub(crate) fn of_package(package: usize, plural: &str) -> Place {
    let (server, namespace) = if package == 0 {
        (Management, TEAM)
    } else {
        (Server::Workload, SYSTEM)
    };
    let short = REF_NAMES[package].split('.').next().unwrap_or_default();
    place(server, plural, namespace, &format!("one-{short}"))
}

/// A Secret with values.
pub(crate) fn values(replicas: u64) -> Value {
    let document = BASE64_STANDARD.encode(format!("replicas: {replicas}\n"));
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"values.yaml": document}})
}

/// A Package with this path of its version in its template.
pub(crate) fn package(package: usize, release: usize, path: &str) -> Value {
    let path = format!("{path}-{}", PACKAGE_VERSIONS[release]);
    json!({
        "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package", "metadata": {},
        "spec": {
            "refName": REF_NAMES[package], "version": PACKAGE_VERSIONS[release],
            "template": {"spec": {"template": [{"ytt": {"paths": [path]}}], "deploy": [{"kapp": {}}]}},
        },
    })
}

fn kubeconfig() -> Value {
    let authority = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": authority}}],
        "users": [{"name": "one", "user": {"token": "token"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    });
    let value = BASE64_STANDARD.encode(text.to_string());
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"value": value}})
}

/// Everything at the beginning. Nothing is installed, and there is no ClusterBootstrap.
pub(crate) fn servers() -> Servers {
    let mut servers = Servers::default();
    let mut put = |place, object| drop(servers.put(place, object));
    put(
        cluster(),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"uid": "uid", "labels": {label::TKR: RELEASES[0]}},
            "spec": {
                "topology": {"classRef": {"name": "class"}, "version": VERSIONS[0]},
                "controlPlaneRef": {"apiGroup": "controlplane.example.com", "kind": "Good", "name": "one"},
            },
        }),
    );
    put(
        control_plane(),
        json!({"metadata": {}, "spec": {"version": VERSIONS[0]}, "status": {"version": VERSIONS[0]}}),
    );
    put(
        worker(),
        json!({"metadata": {}, "spec": {"version": VERSIONS[0]}, "status": {"version": VERSIONS[0]}}),
    );
    for release in [0, 1] {
        let packages = PACKAGES.map(|package| package_name(package, release));
        put(
            place(Management, "tanzukubernetesreleases", "", RELEASES[release]),
            json!({
                "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {},
                "spec": {
                    "version": RELEASES[release].replace("---", "+"),
                    "kubernetes": {"version": VERSIONS[release]},
                    "bootstrapPackages": packages.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
                },
            }),
        );
        put(
            place(Management, "clusterbootstraptemplates", SYSTEM, RELEASES[release]),
            json!({
                "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrapTemplate", "metadata": {},
                "spec": {"kapp": {"refName": packages[0]}, "cni": {"refName": packages[1], "valuesFrom": {"secretRef": "values"}}, "additionalPackages": [{"refName": packages[2]}]},
            }),
        );
        for (index, name) in packages.iter().enumerate() {
            put(package_place(name), package(index, release, "a"));
        }
    }
    put(place(Management, "secrets", SYSTEM, "values"), values(1));
    put(place(Management, "secrets", TEAM, "one-kubeconfig"), kubeconfig());
    put(
        place(Server::Workload, "namespaces", "", "kube-system"),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"uid": "workload"}}),
    );
    servers
}
