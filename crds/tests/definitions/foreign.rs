//! Foreign objects are read without loss, and a spoilt field spoils nothing else.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs;

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_crds::foreign::packaging::{
    KubeconfigSecretRef, PackageInstallSpec, PackageRef, Prereleases, SecretRef, TargetCluster, Values,
    VersionSelection,
};
use sluice_crds::foreign::{
    App, Cluster, ClusterClass, ClusterV1Beta1, MachineDeployment, MachinePool, Package, PackageInstall,
};

/// Calls a generic check for every foreign kind and its full object.
macro_rules! for_every_kind {
    ($check:ident) => {
        $check::<Cluster>("cluster");
        $check::<ClusterV1Beta1>("cluster-v1beta1");
        $check::<ClusterClass>("clusterclass");
        $check::<MachineDeployment>("machinedeployment");
        $check::<MachinePool>("machinepool");
        $check::<Package>("package");
        $check::<PackageInstall>("packageinstall");
        $check::<App>("app");
    };
}

fn fixture(name: &str) -> Value {
    let path = format!(
        "{}/tests/fixtures/foreign/{name}.yaml",
        env!("CARGO_MANIFEST_DIR")
    );
    serde_saphyr::from_str(&fs::read_to_string(&path).expect(&path)).expect(&path)
}

fn through<K: DeserializeOwned + Serialize>(value: &Value) -> Value {
    let read: K = serde_json::from_value(value.clone()).expect("a foreign object always decodes");
    serde_json::to_value(&read).unwrap()
}

#[test]
fn full_objects_survive_their_types() {
    fn check<K: DeserializeOwned + Serialize>(name: &str) {
        let full = fixture(name);
        assert_eq!(through::<K>(&full), full, "{name}");
    }
    for_every_kind!(check);
}

#[test]
fn kinds_know_where_they_are_served() {
    fn check<K: Resource<DynamicType = ()>>(name: &str) {
        let full = fixture(name);
        assert_eq!(
            K::api_version(&()),
            full["apiVersion"].as_str().unwrap(),
            "{name}"
        );
        assert_eq!(K::kind(&()), full["kind"].as_str().unwrap(), "{name}");
        let plural = match &*K::kind(&()) {
            "ClusterClass" => "clusterclasses".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        assert_eq!(
            K::url_path(&(), Some("default")),
            format!("/apis/{}/namespaces/default/{plural}", K::api_version(&()))
        );
    }
    for_every_kind!(check);
}

#[test]
fn an_object_with_nothing_in_it_decodes() {
    fn check<K: DeserializeOwned + Serialize>(name: &str) {
        let metadata = fixture(name)["metadata"].take();
        for spec in [json!(null), json!({}), json!("garbage"), json!([1])] {
            for status in [json!(null), json!({}), json!("garbage"), json!([1])] {
                let object = json!({"metadata": metadata, "spec": spec, "status": status});
                assert_eq!(through::<K>(&object)["metadata"], metadata, "{name}: {object}");
            }
        }
    }
    for_every_kind!(check);
}

/// Every field of every kind in turn is replaced by everything it should not be. The rest reads as before, up to the
/// element of the list that the field is in.
#[test]
fn a_spoilt_field_spoils_nothing_else() {
    fn check<K: DeserializeOwned + Serialize>(name: &str) {
        let full = fixture(name);
        let before = leaves(&full);
        for part in ["spec", "status"] {
            if full.get(part).is_none() {
                continue;
            }
            for pointer in pointers(&full[part], &format!("/{part}")) {
                for junk in [
                    json!("garbage"),
                    json!(-1.5),
                    json!([]),
                    json!({}),
                    json!(null),
                    json!([[]]),
                ] {
                    let mut spoilt = full.clone();
                    *spoilt.pointer_mut(&pointer).unwrap() = junk.clone();
                    let after = leaves(&through::<K>(&spoilt));
                    let reach = reach(&pointer);
                    for (path, value) in before.iter().filter(|(path, _)| !within(path, &reach)) {
                        assert_eq!(
                            after.get(path),
                            Some(value),
                            "{name}: {pointer} = {junk} spoils {path}"
                        );
                    }
                }
            }
        }
    }
    for_every_kind!(check);
}

#[test]
fn a_spoilt_element_leaves_the_list() {
    let mut object = fixture("packageinstall");
    object["status"]["conditions"] = json!([
        {"type": "Reconciling"},
        "garbage",
        {"type": 5, "status": "True"},
        {"type": "ReconcileSucceeded", "status": "True", "message": 5},
        {"type": "ReconcileSucceeded", "status": "True"},
    ]);
    let read: PackageInstall = serde_json::from_value(object).unwrap();
    let conditions = read.status.unwrap().conditions;
    assert_eq!(conditions.len(), 1);
    assert!(conditions[0].is_true());
}

#[test]
fn conditions_of_a_cluster_that_nothing_reads_are_skipped() {
    let mut object = fixture("cluster");
    object["status"]["conditions"] = json!([
        {"type": "Available", "status": "True"},
        {"type": "TopologyReconciled", "status": "True"},
        {"type": "Deleting", "status": "False"},
    ]);
    let read: Cluster = serde_json::from_value(object).unwrap();
    let conditions = read.status.unwrap().conditions;
    assert_eq!(conditions.len(), 1);
    assert_eq!(conditions[0].type_, "TopologyReconciled");
}

/// A pause that cannot be read is a pause: the other way round an upgrade could slip through it.
#[test]
fn only_false_and_absence_mean_not_stopped() {
    fn stopped<K: DeserializeOwned + Serialize>(name: &str, field: &str, value: &Value) -> bool {
        let mut object = fixture(name);
        object["spec"][field] = value.clone();
        through::<K>(&object)["spec"][field] == json!(true)
    }
    for (value, expected) in [
        (json!(null), false),
        (json!(false), false),
        (json!(true), true),
        (json!("false"), true),
        (json!(0), true),
        (json!({}), true),
    ] {
        assert_eq!(
            stopped::<Cluster>("cluster", "paused", &value),
            expected,
            "{value}"
        );
        assert_eq!(
            stopped::<ClusterV1Beta1>("cluster-v1beta1", "paused", &value),
            expected,
            "{value}"
        );
        assert_eq!(
            stopped::<MachineDeployment>("machinedeployment", "paused", &value),
            expected,
            "{value}"
        );
        for field in ["paused", "canceled"] {
            assert_eq!(stopped::<App>("app", field, &value), expected, "{field}: {value}");
            assert_eq!(
                stopped::<PackageInstall>("packageinstall", field, &value),
                expected,
                "{field}: {value}"
            );
        }
    }
}

#[test]
fn both_versions_of_a_cluster_say_the_same() {
    let new: Cluster = serde_json::from_value(fixture("cluster")).unwrap();
    let old: ClusterV1Beta1 = serde_json::from_value(fixture("cluster-v1beta1")).unwrap();
    for cluster in [new, old.into()] {
        let control_plane = cluster.spec.control_plane_ref.unwrap();
        assert_eq!(control_plane.group(), "controlplane.cluster.x-k8s.io");
        assert_eq!(
            cluster.spec.infrastructure_ref.unwrap().group(),
            "infrastructure.cluster.x-k8s.io"
        );
        let topology = cluster.spec.topology.unwrap();
        assert_eq!(topology.class_name(), Some("tanzu"));
        assert_eq!(topology.class_namespace(), Some("classes"));
        assert_eq!(topology.version, "v1.36.3");
        assert!(topology.variable("TKR_DATA").unwrap().is_object());
        assert_eq!(topology.variable("proxy"), None);
        let status = cluster.status.unwrap();
        assert!(status.infrastructure_provisioned());
        assert_eq!(status.control_plane_initialized(), Some(true));
    }
}

#[test]
fn a_cluster_that_says_nothing_is_not_initialized() {
    let unknown = json!({});
    for status in [
        unknown.clone(),
        json!({"initialization": {}}),
        json!({"initialization": {"infrastructureProvisioned": "yes", "controlPlaneInitialized": "yes"}}),
        json!({"conditions": [{"type": "ControlPlaneInitialized", "status": "False"}]}),
        // In v1beta2 the fields decide, whatever a condition of that name says.
        json!({"initialization": {}, "conditions": [{"type": "ControlPlaneInitialized", "status": "True"}]}),
    ] {
        let cluster: Cluster = serde_json::from_value(json!({"status": status})).unwrap();
        let read = cluster.status.unwrap();
        assert!(!read.infrastructure_provisioned(), "{status}");
        let says = (status != unknown).then_some(false);
        assert_eq!(read.control_plane_initialized(), says, "{status}");
    }
}

#[test]
fn a_package_install_is_written_as_the_old_manager_wrote_it() {
    let mut install = PackageInstall {
        spec: PackageInstallSpec {
            noop_delete: true,
            sync_period: Some("10m0s".to_owned()),
            package_ref: Some(PackageRef {
                ref_name: "kapp-controller.tanzu.vmware.com".to_owned(),
                version_selection: Some(VersionSelection {
                    constraints: Some("0.38.3+vmware.1-tkg.1".to_owned()),
                    prereleases: Some(Prereleases::default()),
                }),
            }),
            cluster: Some(TargetCluster {
                namespace: None,
                kubeconfig_secret_ref: Some(KubeconfigSecretRef {
                    name: "c1-kubeconfig".to_owned(),
                    key: Some("value".to_owned()),
                }),
            }),
            values: vec![Values {
                secret_ref: Some(SecretRef {
                    name: "c1-kapp-controller-data-values".to_owned(),
                    key: None,
                }),
            }],
            ..PackageInstallSpec::default()
        },
        ..PackageInstall::default()
    };
    install.metadata.name = Some("c1-kapp-controller".to_owned());
    assert_eq!(
        serde_json::to_value(&install).unwrap(),
        json!({
            "apiVersion": "packaging.carvel.dev/v1alpha1",
            "kind": "PackageInstall",
            "metadata": {"name": "c1-kapp-controller"},
            "spec": {
                "noopDelete": true,
                "syncPeriod": "10m0s",
                "packageRef": {
                    "refName": "kapp-controller.tanzu.vmware.com",
                    "versionSelection": {"constraints": "0.38.3+vmware.1-tkg.1", "prereleases": {}},
                },
                "cluster": {"kubeconfigSecretRef": {"name": "c1-kubeconfig", "key": "value"}},
                "values": [{"secretRef": {"name": "c1-kapp-controller-data-values"}}],
            },
        })
    );
}

/// Everything inside a value, itself included, as JSON pointers.
fn pointers(value: &Value, at: &str) -> Vec<String> {
    let inner: Vec<_> = match value {
        Value::Object(object) => object
            .iter()
            .flat_map(|(name, value)| pointers(value, &format!("{at}/{}", escape(name))))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(i, value)| pointers(value, &format!("{at}/{i}")))
            .collect(),
        _ => Vec::new(),
    };
    std::iter::once(at.to_owned()).chain(inner).collect()
}

/// The scalars of a value by JSON pointer.
fn leaves(value: &Value) -> BTreeMap<String, Value> {
    pointers(value, "")
        .into_iter()
        .map(|pointer| (pointer.clone(), value.pointer(&pointer).unwrap().clone()))
        .filter(|(_, value)| !value.is_object() && !value.is_array())
        .collect()
}

/// How far a spoilt field may reach: to the outermost list that it is in, else not beyond itself.
fn reach(pointer: &str) -> String {
    let segments: Vec<_> = pointer.split('/').collect();
    let in_list = segments
        .iter()
        .position(|segment| segment.parse::<usize>().is_ok());
    segments[..in_list.unwrap_or(segments.len())].join("/")
}

fn within(pointer: &str, reach: &str) -> bool {
    pointer
        .strip_prefix(reach)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
