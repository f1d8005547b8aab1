//! Defaults in the definitions and defaults in the types are the same.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_crds::{
    cni::AntreaConfig,
    cpi::VSphereCPIConfig,
    lifecycle::{CheckedCluster, UpgradeGate},
    run::{ClusterBootstrap, KappControllerConfig, KappControllerConfigSpec, Phase, Readiness},
};

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

#[test]
fn a_check_is_of_the_management_cluster_and_proves_a_version_unless_told_otherwise() {
    let object = json!({"spec": {
        "mode": "Audit", "clusterSelector": {}, "before": "Workers",
        "checks": [{
            "name": "agent",
            "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent-${hop}"},
        }],
    }});
    let stored = stored("UpgradeGate", object.clone());
    let mut expected = object.clone();
    expected["spec"]["checks"][0]["cluster"] = json!("Management");
    expected["spec"]["checks"][0]["healthOnly"] = json!(false);
    assert_eq!(stored, expected);
    let decoded = |object| {
        let api_version = "lifecycle.sluice.dev/v1alpha1";
        read::<UpgradeGate>(with_type_meta(api_version, "UpgradeGate", object))
    };
    let from_file = decoded(object);
    assert_eq!(decoded(stored).spec, from_file.spec);
    let check = &from_file.spec.checks[0];
    assert_eq!(
        (check.cluster, check.health_only),
        (CheckedCluster::Management, false)
    );
}

/// Parents have no default: what is not spoken about stays unsaid, and its leaves get none either.
#[test]
fn antrea_config_defaults_are_those_of_the_leaves() {
    assert_eq!(stored("AntreaConfig", json!({"spec": {}})), json!({"spec": {}}));
    let object = json!({"spec": {"antrea": {"config": {"featureGates": {}}}, "antreaNsx": {}}});
    let stored = stored("AntreaConfig", object.clone());
    assert_eq!(
        stored["spec"],
        json!({
            "antreaNsx": {"enable": false},
            "antrea": {"config": {
                "tunnelPort": 0,
                "tunnelCsum": false,
                "enableUsageReporting": false,
                "trafficEncapMode": "encap",
                "noSNAT": false,
                "disableUdpTunnelOffload": false,
                "defaultMTU": "",
                "tlsCipherSuites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,\
                    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,\
                    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_256_GCM_SHA384",
                "enableBridgingMode": false,
                "disableTXChecksumOffload": false,
                "dnsServerOverride": "",
                "featureGates": {
                    "AntreaProxy": true,
                    "EndpointSlice": false,
                    "AntreaPolicy": true,
                    "FlowExporter": false,
                    "Egress": true,
                    "NodePortLocal": true,
                    "AntreaTraceflow": true,
                    "NetworkPolicyStats": false,
                    "AntreaIPAM": false,
                    "ServiceExternalIP": false,
                    "Multicast": false,
                    "Multicluster": false,
                    "SecondaryNetwork": false,
                    "TrafficControl": false,
                    "TopologyAwareHints": false,
                },
            }},
        })
    );
    same_to_server_and_type::<AntreaConfig>("cni.tanzu.vmware.com/v1alpha1", "AntreaConfig", &object);
}

/// Where a parent is absent, the rules that keep a setting as it is take what the server would fill in.
#[test]
fn what_is_fixed_counts_as_its_default_where_a_parent_is_absent() {
    let crds = sluice_crds::crds();
    let crd = crds
        .iter()
        .find(|crd| crd.spec.names.kind == "AntreaConfig")
        .unwrap();
    let crd = serde_json::to_value(crd).unwrap();
    let rules = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"];
    let stored = stored(
        "AntreaConfig",
        json!({"spec": {"antrea": {"config": {}}, "antreaNsx": {}}}),
    );
    let mut fixed = Vec::new();
    for rule in rules.as_array().unwrap() {
        if rule["message"] != "field is immutable" {
            continue;
        }
        let path = rule["fieldPath"].as_str().unwrap();
        let default = &stored["spec"].pointer(&path.replace('.', "/")).unwrap();
        let default = default
            .as_str()
            .map_or(format!("orValue({default})"), |text| format!(": '{text}'"));
        let text = rule["rule"].as_str().unwrap();
        assert_eq!(text.matches(&default).count(), 2, "{path}: {text}");
        fixed.push(path);
    }
    assert_eq!(fixed.len(), 5, "{fixed:?}");
}

/// As users write it, and as objects of earlier releases have it.
#[test]
fn an_mtu_is_a_number_or_a_text() {
    for mtu in [json!(9000), json!("9000"), json!("")] {
        let object = json!({"spec": {"antrea": {"config": {"defaultMTU": mtu}}}});
        let stored = stored("AntreaConfig", object.clone());
        assert_eq!(stored["spec"]["antrea"]["config"]["defaultMTU"], mtu);
        let read: AntreaConfig = read(with_type_meta(
            "cni.tanzu.vmware.com/v1alpha1",
            "AntreaConfig",
            object,
        ));
        let written = serde_json::to_value(read).unwrap();
        assert_eq!(written["spec"]["antrea"]["config"]["defaultMTU"], mtu);
    }
}

#[test]
fn vsphere_cpi_config_defaults_are_the_documented_ones() {
    let object = json!({"spec": {"vsphereCPI": {"nsxt": {}}}});
    assert_eq!(
        stored("VSphereCPIConfig", object.clone())["spec"]["vsphereCPI"],
        json!({
            "tlsCipherSuites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,\
                TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,\
                TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "antreaNSXPodRoutingEnabled": false,
            "nsxt": {"podRoutingEnabled": false},
        })
    );
    same_to_server_and_type::<VSphereCPIConfig>("cpi.tanzu.vmware.com/v1alpha1", "VSphereCPIConfig", &object);
}

#[test]
fn other_configurations_default_where_the_old_ones_did() {
    assert_eq!(
        stored("CalicoConfig", json!({"spec": {"calico": {"config": {}}}})),
        json!({"spec": {"calico": {"config": {"vethMTU": 0, "skipCNIBinaries": false}}}})
    );
    assert_eq!(
        stored("OracleCPIConfig", json!({"spec": {"loadBalancer": {}}})),
        json!({"spec": {"loadBalancer": {"securityListManagementMode": "All"}}})
    );
    for (kind, spec) in [
        ("KubevipCPIConfig", json!({})),
        (
            "VSphereCSIConfig",
            json!({"vsphereCSI": {"mode": "vsphereCSI", "config": {}}}),
        ),
        ("AwsEbsCSIConfig", json!({"awsEBSCSIDriver": {"namespace": "a"}})),
        ("AzureDiskCSIConfig", json!({"azureDiskCSIDriver": {}})),
        (
            "AzureFileCSIConfig",
            json!({"azureFileCSIDriver": {"namespace": "a"}}),
        ),
    ] {
        let object = json!({"spec": spec});
        assert_eq!(stored(kind, object.clone()), object, "{kind}");
    }
}

fn same_to_server_and_type<K>(api_version: &str, kind: &str, object: &Value)
where
    K: DeserializeOwned + Serialize,
{
    let through = |object: Value| {
        let read: K = read(with_type_meta(api_version, kind, object));
        serde_json::to_value(read).unwrap()
    };
    assert_eq!(
        through(stored(kind, object.clone())),
        through(object.clone()),
        "{kind}"
    );
}

fn with_type_meta(api_version: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"] = json!({"name": "blue"});
    object
}
