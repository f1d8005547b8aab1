//! A full object of each kind goes through its type without loss.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::fs;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_crds::{cni, cpi, csi, lifecycle, run};

fn fixture(kind: &str) -> Value {
    let path = format!(
        "{}/tests/fixtures/{}.yaml",
        env!("CARGO_MANIFEST_DIR"),
        kind.to_lowercase()
    );
    serde_saphyr::from_str(&fs::read_to_string(&path).expect(&path)).expect(&path)
}

fn assert_lossless<K: DeserializeOwned + Serialize>(kind: &str) {
    let written = fixture(kind);
    let read: K = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), written, "{kind}");
}

#[test]
fn full_objects_survive_their_types() {
    assert_lossless::<run::TanzuKubernetesRelease>("TanzuKubernetesRelease");
    assert_lossless::<run::OSImage>("OSImage");
    assert_lossless::<run::ClusterBootstrapTemplate>("ClusterBootstrapTemplate");
    assert_lossless::<run::ClusterBootstrap>("ClusterBootstrap");
    assert_lossless::<run::KappControllerConfig>("KappControllerConfig");
    assert_lossless::<cni::AntreaConfig>("AntreaConfig");
    assert_lossless::<cni::CalicoConfig>("CalicoConfig");
    assert_lossless::<cpi::VSphereCPIConfig>("VSphereCPIConfig");
    assert_lossless::<cpi::OracleCPIConfig>("OracleCPIConfig");
    assert_lossless::<cpi::KubevipCPIConfig>("KubevipCPIConfig");
    assert_lossless::<csi::VSphereCSIConfig>("VSphereCSIConfig");
    assert_lossless::<csi::AwsEbsCSIConfig>("AwsEbsCSIConfig");
    assert_lossless::<csi::AzureDiskCSIConfig>("AzureDiskCSIConfig");
    assert_lossless::<csi::AzureFileCSIConfig>("AzureFileCSIConfig");
    assert_lossless::<lifecycle::UpgradeGate>("UpgradeGate");
    assert_lossless::<lifecycle::ClusterUpgrade>("ClusterUpgrade");
    assert_lossless::<lifecycle::UpgradeOverride>("UpgradeOverride");
}

/// Otherwise "full" would be a promise: a field added to a type has to appear in its fixture.
#[test]
fn full_objects_are_full_and_nothing_more() {
    for crd in sluice_crds::crds() {
        let schema = crd.spec.versions[0]
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref()
            .unwrap();
        let mut object = fixture(&crd.spec.names.kind);
        for outside in ["apiVersion", "kind", "metadata"] {
            object.as_object_mut().unwrap().remove(outside).expect(outside);
        }
        compare(
            &crd.spec.names.kind,
            &serde_json::to_value(schema).unwrap(),
            &[&object],
        );
    }
}

/// Every property of `schema` is set in some of `values`, and they set no other that the API server would drop.
fn compare(path: &str, schema: &Value, values: &[&Value]) {
    assert!(!values.is_empty(), "{path} is not set in the fixture");
    if let Some(items) = schema.get("items") {
        let elements: Vec<_> = values
            .iter()
            .filter_map(|value| value.as_array())
            .flatten()
            .collect();
        return compare(&format!("{path}[]"), items, &elements);
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    for (name, property) in properties {
        let set: Vec<_> = values.iter().filter_map(|value| value.get(name)).collect();
        compare(&format!("{path}.{name}"), property, &set);
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for name in values
        .iter()
        .filter_map(|value| value.as_object())
        .flat_map(|object| object.keys())
    {
        assert!(
            properties.contains_key(name),
            "{path}.{name} is not in the schema"
        );
    }
}

#[test]
fn template_and_bootstrap_share_one_spec() {
    let template: run::ClusterBootstrapTemplate =
        serde_json::from_value(fixture("ClusterBootstrapTemplate")).unwrap();
    let copied = run::ClusterBootstrap::new("blue", template.spec.0.clone());
    assert_eq!(
        serde_json::to_value(&copied).unwrap()["spec"],
        serde_json::to_value(&template).unwrap()["spec"]
    );
}

#[test]
fn a_release_without_packages_differs_from_one_with_an_empty_list() {
    let spec = json!({"version": "v1.34.4+a", "kubernetes": {"version": "v1.34.4"}});
    let absent: run::TanzuKubernetesReleaseSpec = serde_json::from_value(spec.clone()).unwrap();
    assert_eq!(absent.bootstrap_packages, None);

    let mut spec = spec;
    spec["bootstrapPackages"] = json!([]);
    let empty: run::TanzuKubernetesReleaseSpec = serde_json::from_value(spec.clone()).unwrap();
    assert_eq!(empty.bootstrap_packages, Some(Vec::new()));
    assert_eq!(serde_json::to_value(&empty).unwrap(), spec);
}

/// A record of another schema, or spoilt by hand, must not hide the ClusterBootstrap: it counts as no record, and
/// without a record hooks hold.
#[test]
fn an_unreadable_record_is_no_record() {
    let upgrades = [
        json!(null),
        json!("garbage"),
        json!([]),
        json!({"schema": 2, "hops": []}),
        json!({"schema": 1, "clusterUID": 5}),
    ];
    for upgrade in upgrades {
        let mut object = fixture("ClusterBootstrap");
        object["status"]["upgrade"] = upgrade.clone();
        let read: run::ClusterBootstrap = serde_json::from_value(object).unwrap();
        let status = read.status.unwrap();
        assert_eq!(status.upgrade, None, "{upgrade}");
        assert_eq!(status.resolved_tkr.as_deref(), Some("v1.34.4---sluice.1"));
        assert_eq!(status.conditions.len(), 2);
    }
}

/// The same for a record of gates.
#[test]
fn an_unreadable_record_of_gates_is_no_record() {
    let upgrades = [
        json!(null),
        json!("garbage"),
        json!([]),
        json!({"schema": 2, "hops": []}),
        json!({"schema": 1, "clusterUID": 5}),
    ];
    for upgrade in upgrades {
        let mut object = fixture("ClusterUpgrade");
        object["status"]["upgrade"] = upgrade.clone();
        object["status"]["history"][0]["began"] = json!("yesterday");
        object["status"]["conditions"][0]["lastTransitionTime"] = json!("today");
        let read: lifecycle::ClusterUpgrade = serde_json::from_value(object).unwrap();
        let status = read.status.unwrap();
        assert_eq!(status.upgrade, None, "{upgrade}");
        assert!(status.history.is_empty());
        assert_eq!(status.conditions.len(), 1);
        assert_eq!(status.held_by.as_deref(), Some("cni/agent"));
    }
}

/// What hooks are answered from is written as it always was. Earlier releases read it, and a leader compares it.
#[test]
fn the_record_of_packages_is_written_as_before() {
    let written = |record: &run::UpgradeRecord| serde_json::to_string_pretty(record).unwrap() + "\n";
    let full: run::ClusterBootstrap = serde_json::from_value(fixture("ClusterBootstrap")).unwrap();
    let full = full.status.and_then(|status| status.upgrade).unwrap();
    assert_eq!(
        written(&full),
        include_str!("../golden/clusterbootstrap-upgrade.json")
    );
    assert_eq!(
        serde_json::to_string(&run::UpgradeRecord::default()).unwrap(),
        r#"{"schema":0,"clusterUID":"","observedClusterGeneration":0,"observedBootstrapGeneration":0,"label":"","to":""}"#
    );
}

#[test]
fn nothing_is_written_that_was_not_said() {
    let empty = run::ClusterBootstrap::new("blue", run::ClusterBootstrapSpec::default());
    assert_eq!(
        serde_json::to_value(&empty).unwrap(),
        json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3",
            "kind": "ClusterBootstrap",
            "metadata": {"name": "blue"},
            "spec": {},
        })
    );
    let empty = lifecycle::ClusterUpgrade::new("blue", lifecycle::ClusterUpgradeSpec::default());
    assert_eq!(
        serde_json::to_value(&empty).unwrap(),
        json!({
            "apiVersion": "lifecycle.sluice.dev/v1alpha1",
            "kind": "ClusterUpgrade",
            "metadata": {"name": "blue"},
        })
    );
    // Another client may have sent an empty spec.
    let mut with_spec = serde_json::to_value(&empty).unwrap();
    with_spec["spec"] = json!({});
    assert_eq!(
        serde_json::from_value::<lifecycle::ClusterUpgrade>(with_spec).unwrap(),
        empty
    );
}
