//! Defaults in the definitions and defaults in the types are the same.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_crds::run::{ClusterBootstrap, KappControllerConfig, KappControllerConfigSpec, Phase, Readiness};

/// The object as the API server stores it: absent properties with a default get it, outermost first.
fn stored(kind: &str, mut object: Value) -> Value {
    let crd = sluice_crds::crds()
        .into_iter()
        .find(|crd| crd.spec.names.kind == kind)
        .unwrap();
    let schema = crd.spec.versions[0]
        .schema
        .as_ref()
        .unwrap()
        .open_api_v3_schema
        .as_ref()
        .unwrap();
    fill(&serde_json::to_value(schema).unwrap(), &mut object);
    object
}

fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (name, property) in schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                if let Some(default) = property.get("default") {
                    object.entry(name.clone()).or_insert_with(|| default.clone());
                }
                if let Some(child) = object.get_mut(name) {
                    fill(property, child);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(&schema["items"], item)),
        _ => {}
    }
}

fn read<K: DeserializeOwned + Serialize>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

#[test]
fn an_empty_kapp_controller_config_means_the_same_to_server_and_type() {
    for spec in [
        json!({}),
        json!({"kappController": {}}),
        json!({"kappController": {"deployment": {}}}),
        json!({"kappController": {"deployment": {"concurrency": 4}, "createNamespace": false}}),
    ] {
        let object = json!({"spec": spec});
        let stored = stored("KappControllerConfig", object.clone());
        let from_server: KappControllerConfig = read(with_type_meta(
            "run.tanzu.vmware.com/v1alpha3",
            "KappControllerConfig",
            stored,
        ));
        let from_file: KappControllerConfig = read(with_type_meta(
            "run.tanzu.vmware.com/v1alpha3",
            "KappControllerConfig",
            object,
        ));
        assert_eq!(from_server.spec, from_file.spec, "{spec}");
        assert_eq!(from_server.spec, KappControllerConfigSpec::default(), "{spec}");
    }
}

#[test]
fn kapp_controller_config_defaults_are_the_documented_ones() {
    assert_eq!(
        stored("KappControllerConfig", json!({"spec": {}})),
        json!({"spec": {
            "namespace": "tkg-system",
            "kappController": {
                "createNamespace": false,
                "globalNamespace": "tkg-system",
                "deployment": {
                    "hostNetwork": true,
                    "priorityClassName": "system-cluster-critical",
                    "concurrency": 4,
                    "apiPort": 10100,
                    "metricsBindAddress": "0",
                    "tolerations": [
                        {"key": "CriticalAddonsOnly", "operator": "Exists"},
                        {"effect": "NoSchedule", "key": "node-role.kubernetes.io/control-plane"},
                        {"effect": "NoSchedule", "key": "node-role.kubernetes.io/master"},
                        {"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"},
                        {
                            "effect": "NoSchedule",
                            "key": "node.cloudprovider.kubernetes.io/uninitialized",
                            "value": "true",
                        },
                    ],
                },
            },
        }})
    );
}

#[test]
fn a_bootstrap_waits_for_everything_unless_told_otherwise() {
    let object = json!({"spec": {"upgradePolicy": {"packages": [{"package": "antrea"}]}}});
    let stored = stored("ClusterBootstrap", object.clone());
    assert_eq!(
        stored["spec"],
        json!({
            "paused": false,
            "upgradePolicy": {
                "packages": [
                    {"package": "antrea", "readiness": "Reconciled", "phase": "BeforeControlPlane"},
                ],
            },
        })
    );
    let from_server: ClusterBootstrap = read(with_type_meta(
        "run.tanzu.vmware.com/v1alpha3",
        "ClusterBootstrap",
        stored,
    ));
    let from_file: ClusterBootstrap = read(with_type_meta(
        "run.tanzu.vmware.com/v1alpha3",
        "ClusterBootstrap",
        object,
    ));
    assert_eq!(from_server.spec, from_file.spec);
    let policy = &from_server.spec.upgrade_policy.unwrap().packages[0];
    assert_eq!(
        (policy.readiness, policy.phase),
        (Readiness::Reconciled, Phase::BeforeControlPlane)
    );
}

fn with_type_meta(api_version: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"] = json!({"name": "blue"});
    object
}
