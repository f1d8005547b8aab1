//! Initial objects of a walk: one Cluster at v1.35.4 with kapp-controller, a CNI and a package without values, and the releases of the
//! next two versions.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sluice_core::reconcile::cluster::{
    Key, Resource,
    Server::{self, Management},
};
use sluice_crds::labels::label;

use crate::servers::{Place, Servers, place};

pub(crate) const SYSTEM: &str = "tkg-system";
pub(crate) const TEAM: &str = "team-a";
/// Kubernetes versions. The first ones ascend, and releases and package versions have the same indexes.
pub(crate) const VERSIONS: [&str; 4] = ["v1.35.4", "v1.36.3", "v1.37.1", "v1.36.4"];
/// Number of versions that have a release in the beginning.
pub(crate) const RELEASED: usize = 3;
/// Index of a later patch version of the second minor version.
pub(crate) const LATER: usize = 3;
/// Releases of a version in ascending order. Those after the first three exist only after an edit, or in walks with images.
pub(crate) const RELEASES: [&str; 9] = [
    "v1.35.4---test.1",
    "v1.36.3---test.1",
    "v1.37.1---test.1",
    "v1.36.3---test.2",
    "v1.36.3---test.3",
    "v1.35.4---test.2",
    "v1.35.4---test.3",
    "v1.35.4---test.4",
    "v1.36.4---test.1",
];
/// Index of the other release of the second version.
pub(crate) const OTHER_RELEASE: usize = 3;
/// Index of the release of the second version with the packages of the first release.
pub(crate) const SAME_RELEASE: usize = 4;
/// Index of a higher release of the first version, with later packages.
pub(crate) const HIGHER_RELEASE: usize = 5;
/// Index of the next higher release, with later packages.
pub(crate) const HIGHEST_RELEASE: usize = 6;
/// Index of a still higher release, with the packages of the first release.
pub(crate) const REBUILT_RELEASE: usize = 7;
/// Index of the release of the later patch version.
pub(crate) const LATER_RELEASE: usize = 8;
/// Versions of each package.
pub(crate) const PACKAGE_VERSIONS: [&str; 6] = ["1.8.0", "1.9.0", "2.0.0", "1.9.5", "1.8.3", "1.8.6"];
/// Number of versions in the catalogue of every walk.
pub(crate) const CATALOGUE: usize = 4;
const REF_NAMES: [&str; 3] = [
    "kapp-controller.example.com",
    "antrea.example.com",
    "metrics.example.com",
];
/// Indexes of kapp-controller, the CNI and the other package.
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

pub(crate) fn control_plane_key() -> Key {
    Key {
        server: Management,
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

pub(crate) fn class() -> Place {
    place(Management, "clusterclasses", TEAM, "class")
}

/// Returns the place of the PackageInstall of the package that is uninstalled from a deleted Cluster.
pub(crate) fn additional() -> Place {
    of_package(2, "packageinstalls")
}

pub(crate) fn worker() -> Place {
    place(Management, "machinedeployments", TEAM, "one-md")
}

pub(crate) fn leaving_worker() -> Place {
    place(Management, "machinedeployments", TEAM, "two-md")
}

pub(crate) fn release(index: usize) -> Place {
    place(Management, "tanzukubernetesreleases", "", RELEASES[index])
}

pub(crate) fn template(index: usize) -> Place {
    place(Management, "clusterbootstraptemplates", SYSTEM, RELEASES[index])
}

/// Returns the values source of the CNI that the created ClusterBootstrap refers to.
pub(crate) fn values_source() -> Place {
    place(Management, "secrets", TEAM, "one-antrea-package")
}

pub(crate) fn kubeconfig() -> Place {
    place(Management, "secrets", TEAM, "one-kubeconfig")
}

pub(crate) fn kube_system() -> Place {
    place(Server::Workload, "namespaces", "", "kube-system")
}

/// UID of the management cluster.
pub(crate) const MANAGEMENT_UID: &str = "management";

/// Returns the place of a kapp-controller of the workload that a user has installed.
pub(crate) fn by_hand() -> Place {
    place(Server::Workload, "deployments", SYSTEM, "kapp-controller")
}

/// Whether the workload API server is the management API server.
pub(crate) fn is_own_server(servers: &Servers) -> bool {
    let namespace = servers.get(&kube_system());
    namespace.is_some_and(|namespace| namespace["metadata"]["uid"] == MANAGEMENT_UID)
}

/// Whether another client installs kapp-controller of the workload.
pub(crate) fn is_unmanaged(servers: &Servers) -> bool {
    is_own_server(servers) || servers.get(&by_hand()).is_some()
}

pub(crate) fn package_place(name: &str) -> Place {
    place(Management, "packages", SYSTEM, name)
}

/// Returns the name of a Package at a version.
pub(crate) fn package_name(package: usize, version: usize) -> String {
    format!("{}.{}", REF_NAMES[package], PACKAGE_VERSIONS[version])
}

pub(crate) fn ref_name(package: usize) -> &'static str {
    REF_NAMES[package]
}

pub(crate) fn short_name(package: usize) -> &'static str {
    REF_NAMES[package].split('.').next().unwrap_or_default()
}

/// Returns server and namespace that a package is installed from.
pub(crate) fn home(package: usize) -> (Server, &'static str) {
    if package == 0 {
        (Management, TEAM)
    } else {
        (Server::Workload, SYSTEM)
    }
}

/// Returns the place of the PackageInstall or App of a package.
pub(crate) fn of_package(package: usize, plural: &str) -> Place {
    let (server, namespace) = home(package);
    place(server, plural, namespace, &format!("one-{}", short_name(package)))
}

/// Returns a Secret with values.
pub(crate) fn values(replicas: u8) -> Value {
    let document = BASE64_STANDARD.encode(format!("replicas: {replicas}\n"));
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"values.yaml": document}})
}

/// Returns the data of the values Secret of a package without values.
pub(crate) fn no_values() -> Value {
    json!({"values.yaml": BASE64_STANDARD.encode("{}\n")})
}

/// Returns a Package with this content. The last package has no step that takes values.
pub(crate) fn package(package: usize, version: usize, content: &str) -> Value {
    let step = if package == 2 { "kbld" } else { "ytt" };
    let url = format!("{content}-{}", PACKAGE_VERSIONS[version]);
    json!({
        "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package", "metadata": {},
        "spec": {
            "refName": REF_NAMES[package], "version": PACKAGE_VERSIONS[version],
            "template": {"spec": {"fetch": [{"http": {"url": url}}], "template": [{step: {}}], "deploy": [{"kapp": {}}]}},
        },
    })
}

/// Ranges of Kubernetes versions, and whether each contains the versions of a walk.
pub(crate) const RANGES: [(&str, [bool; VERSIONS.len()]); 6] = [
    ("<1.36.0", [true, false, false, false]),
    (">=1.36.0", [false, true, true, true]),
    ("<1.37.0", [true, true, false, true]),
    (">=1.35.0 <1.38.0", [true, true, true, true]),
    ("<1.36.0 || >=1.37.0", [true, false, true, false]),
    (">=1.36.0 <1.36.0", [false, false, false, false]),
];

/// Whether a Package permits a Kubernetes version.
pub(crate) fn permits(package: &Value, version: &str) -> bool {
    let constraints = package["spec"]["kubernetesVersionSelection"]["constraints"].as_str();
    let range = RANGES.iter().find(|(range, _)| constraints == Some(*range));
    let version = VERSIONS.iter().position(|known| *known == version);
    range
        .zip(version)
        .is_none_or(|((_, permitted), version)| permitted[version])
}

/// Tokens of kubeconfigs.
pub(crate) const TOKENS: [&str; 2] = ["token", "other"];

/// Returns the digest of the kubeconfig in a Secret.
pub(crate) fn kubeconfig_digest(secret: &Value) -> String {
    let value = secret["data"]["value"].as_str().unwrap_or_default();
    sluice_core::kubeconfig::digest(&BASE64_STANDARD.decode(value).expect("base64"))
}

/// Returns a kubeconfig with this token.
pub(crate) fn kubeconfig_with(token: &str) -> Value {
    let authority = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": authority}}],
        "users": [{"name": "one", "user": {"token": token}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    });
    let value = BASE64_STANDARD.encode(text.to_string());
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"value": value}})
}

/// Whether a version is lower than another one.
pub(crate) fn is_below(version: usize, other: usize) -> bool {
    // All numbers have as many digits.
    VERSIONS[version] < VERSIONS[other]
}

/// Returns the minor version of a version.
pub(crate) fn minor(version: usize) -> u64 {
    let minor = VERSIONS[version].split('.').nth(1);
    minor
        .and_then(|minor| minor.parse().ok())
        .expect("a minor version")
}

/// Returns the index of the first release of a version.
pub(crate) fn release_of_version(version: usize) -> usize {
    if version == LATER { LATER_RELEASE } else { version }
}

/// Returns the index of the Kubernetes version of a release.
pub(crate) fn version_of_release(index: usize) -> usize {
    match index {
        LATER_RELEASE => LATER,
        OTHER_RELEASE | SAME_RELEASE => 1,
        HIGHER_RELEASE..=REBUILT_RELEASE => 0,
        _ => index,
    }
}

/// Returns the index of the package versions of a release.
pub(crate) fn packages_of(release: usize) -> usize {
    match release {
        SAME_RELEASE | REBUILT_RELEASE => 0,
        HIGHER_RELEASE | HIGHEST_RELEASE => release - 1,
        LATER_RELEASE => LATER,
        _ => release,
    }
}

pub(crate) fn a_release(index: usize) -> Value {
    let packages = PACKAGES.map(|package| json!({"name": package_name(package, packages_of(index))}));
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {},
        "spec": {
            "version": RELEASES[index].replace("---", "+"),
            "kubernetes": {"version": VERSIONS[version_of_release(index)]},
            "bootstrapPackages": packages,
        },
    })
}

pub(crate) fn a_template(index: usize) -> Value {
    let [kapp, cni, other] = PACKAGES.map(|package| package_name(package, packages_of(index)));
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrapTemplate", "metadata": {},
        "spec": {
            "kapp": {"refName": kapp},
            "cni": {"refName": cni, "valuesFrom": {"secretRef": "values"}},
            "additionalPackages": [{"refName": other}],
        },
    })
}

/// Source of the steps of an upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum PlannedBy {
    /// The target is the only step.
    Nobody,
    /// The ClusterClass lists all versions. The control plane takes each minor version, workers the last.
    #[default]
    Class,
    /// An extension plans every minor version, also for workers.
    Extension,
    /// Sluice plans the control plane, and workers take the last version.
    Sluice {
        /// Whether Cluster API shows the steps in the status of the Cluster, as since 1.14.
        shown: bool,
    },
}

/// Handler of Sluice in a ClusterClass. The name of its ExtensionConfig tells whether Cluster API shows the steps.
const SHOWN: &str = "generate-upgrade-plan.sluice";
const NOT_SHOWN: &str = "generate-upgrade-plan.sluice-not-shown";

/// Returns the ClusterClass with these steps.
pub(crate) fn a_class(planned_by: PlannedBy) -> Value {
    let planned = |handler: &str| json!({"upgrade": {"external": {"generateUpgradePlanExtension": handler}}});
    let spec = match planned_by {
        PlannedBy::Nobody => json!({}),
        PlannedBy::Class => json!({"kubernetesVersions": &VERSIONS[..RELEASED]}),
        PlannedBy::Extension => planned("plan"),
        PlannedBy::Sluice { shown: true } => planned(SHOWN),
        PlannedBy::Sluice { shown: false } => planned(NOT_SHOWN),
    };
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass", "metadata": {}, "spec": spec})
}

/// Returns the source of the steps of upgrades.
pub(crate) fn planned_by(servers: &Servers) -> PlannedBy {
    let spec = servers.get(&class()).map_or(&Value::Null, |class| &class["spec"]);
    match spec["upgrade"]["external"]["generateUpgradePlanExtension"].as_str() {
        Some(SHOWN) => PlannedBy::Sluice { shown: true },
        Some(NOT_SHOWN) => PlannedBy::Sluice { shown: false },
        Some(_) => PlannedBy::Extension,
        None if !spec["kubernetesVersions"].is_null() => PlannedBy::Class,
        None => PlannedBy::Nobody,
    }
}

/// Returns workers at the first version.
fn workers() -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": {},
        "spec": {"clusterName": "one", "template": {"spec": {"version": VERSIONS[0]}}},
        "status": {"versions": [{"version": VERSIONS[0], "replicas": 1}], "replicas": 1, "upToDateReplicas": 1},
    })
}

/// Returns workers that are being deleted with a machine that never terminates.
pub(crate) fn leaving_workers() -> Value {
    let mut leaving = workers();
    leaving["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
    leaving["status"]["versions"][0]["version"] = json!("v1.34.1");
    leaving
}

/// Returns the initial state, without installed packages and ClusterBootstrap.
pub(crate) fn servers() -> Servers {
    let mut servers = Servers::default();
    let mut put = |place, object| drop(servers.put(place, object));
    put(
        cluster(),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"labels": {label::TKR: RELEASES[0]}},
            "spec": {
                "topology": {"classRef": {"name": "class"}, "version": VERSIONS[0]},
                "controlPlaneRef": {"apiGroup": "controlplane.example.com", "kind": "Good", "name": "one"},
            },
        }),
    );
    let plane = json!({"metadata": {}, "spec": {"version": VERSIONS[0]}, "status": {"version": VERSIONS[0]}});
    put(control_plane(), plane);
    put(class(), a_class(PlannedBy::default()));
    put(worker(), workers());
    for index in 0..RELEASED {
        put(release(index), a_release(index));
        put(template(index), a_template(index));
    }
    for version in 0..CATALOGUE {
        for index in PACKAGES {
            put(
                package_place(&package_name(index, version)),
                package(index, version, "a"),
            );
        }
    }
    put(place(Management, "secrets", SYSTEM, "values"), values(1));
    put(kubeconfig(), kubeconfig_with(TOKENS[0]));
    put(
        kube_system(),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {}}),
    );
    servers
}
