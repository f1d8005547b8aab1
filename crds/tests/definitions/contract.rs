//! The interface of each kind: those of the Tanzu addons-manager as it served them, and those of Sluice.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use serde_json::{Value, json};

mod kinds;

use kinds::CONTRACTS;

#[test]
fn names_scope_columns_and_subresources_are_the_promised_ones() {
    let crds = sluice_crds::crds();
    assert_eq!(crds.len(), CONTRACTS.len());
    for (crd, (group, kind, plural, scope, short, status, columns)) in crds.iter().zip(CONTRACTS) {
        let names = &crd.spec.names;
        assert_eq!((names.kind.as_str(), names.plural.as_str()), (kind, plural));
        assert_eq!(crd.metadata.name.as_deref(), Some(&*format!("{plural}.{group}")));
        assert_eq!(crd.spec.scope, scope, "{kind}");
        assert_eq!(
            names.short_names.as_deref(),
            short.map(|short| vec![short.to_owned()]).as_deref(),
            "{kind}"
        );

        let version = only_version(crd);
        let name = if group == "run.tanzu.vmware.com" {
            "v1alpha3"
        } else {
            "v1alpha1"
        };
        assert_eq!(version.name, name, "{kind}");
        assert!(version.served && version.storage, "{kind}");
        assert_eq!(
            version
                .subresources
                .as_ref()
                .is_some_and(|sub| sub.status.is_some()),
            status,
            "{kind}"
        );
        let found: Vec<_> = version
            .additional_printer_columns
            .iter()
            .flatten()
            .map(|c| {
                (
                    c.name.as_str(),
                    c.type_.as_str(),
                    c.json_path.as_str(),
                    c.priority.unwrap_or(0),
                )
            })
            .collect();
        assert_eq!(found, columns, "{kind}");
    }
}

#[test]
fn definitions_belong_to_the_provider_and_say_what_moves() {
    let expected = BTreeMap::from([
        ("TanzuKubernetesRelease", vec![]),
        ("OSImage", vec![]),
        ("ClusterBootstrapTemplate", vec![]),
        (
            "ClusterBootstrap",
            vec!["clusterctl.cluster.x-k8s.io", "clusterctl.cluster.x-k8s.io/move"],
        ),
        // Copies belong to a Cluster and go with it; templates in the system namespace stay where they are.
        ("KappControllerConfig", vec!["clusterctl.cluster.x-k8s.io"]),
        (
            "UpgradeGate",
            vec!["clusterctl.cluster.x-k8s.io", "clusterctl.cluster.x-k8s.io/move"],
        ),
        // The leader creates it again after a move.
        ("ClusterUpgrade", vec![]),
        // It names the UID of a Cluster, which a move changes.
        ("UpgradeOverride", vec![]),
    ]);
    let configuration = vec!["clusterctl.cluster.x-k8s.io"];
    for crd in sluice_crds::crds() {
        let mut labels = crd.metadata.labels.unwrap_or_default();
        assert_eq!(
            labels.remove("cluster.x-k8s.io/provider").as_deref(),
            Some("runtime-extension-sluice")
        );
        assert_eq!(
            labels.keys().collect::<Vec<_>>(),
            *expected.get(&*crd.spec.names.kind).unwrap_or(&configuration),
            "{}",
            crd.spec.names.kind
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "the fields of all kinds")]
fn required_fields_are_the_promised_ones() {
    let expected = json!({
        "TanzuKubernetesRelease": {
            "": ["spec"],
            "spec": ["kubernetes", "version"],
            "spec.kubernetes": ["version"],
            "status.conditions[]": ["lastTransitionTime", "status", "type"],
            // Sluice alone writes them.
            "status.requirements": ["requires"],
            "status.requirements.proven[]": ["appGeneration", "appUID", "package", "version"],
        },
        "OSImage": {
            "": ["spec"],
            "spec": ["image", "kubernetesVersion", "os"],
            "spec.os": ["arch", "name", "type", "version"],
            "spec.image": ["ref", "type"],
            "status.conditions[]": ["lastTransitionTime", "status", "type"],
        },
        "KappControllerConfig": with_conditions(json!({})),
        "AntreaConfig": with_conditions(json!({})),
        "CalicoConfig": with_conditions(json!({})),
        "VSphereCPIConfig": with_conditions(json!({
            "spec": ["vsphereCPI"],
            "spec.vsphereCPI.vSphereCredentialLocalObjRef": ["kind", "name"],
            "spec.vsphereCPI.nsxt.credentialLocalObjRef": ["kind", "name"],
        })),
        "OracleCPIConfig": with_conditions(json!({
            "spec": ["compartment", "vcn"],
            "spec.loadBalancer.securityListSubnetMapping[]": ["securityList", "subnet"],
        })),
        "KubevipCPIConfig": with_conditions(json!({})),
        "VSphereCSIConfig": with_conditions(json!({
            "spec": ["vsphereCSI"],
            "spec.vsphereCSI": ["mode"],
            "spec.vsphereCSI.config.vSphereCredentialLocalObjRef": ["kind", "name"],
        })),
        "AwsEbsCSIConfig": with_conditions(json!({
            "spec": ["awsEBSCSIDriver"],
            "spec.awsEBSCSIDriver": ["namespace"],
        })),
        "AzureDiskCSIConfig": with_conditions(json!({"spec": ["azureDiskCSIDriver"]})),
        "AzureFileCSIConfig": with_conditions(json!({
            "spec": ["azureFileCSIDriver"],
            "spec.azureFileCSIDriver": ["namespace"],
        })),
        "UpgradeGate": {
            "": ["spec"],
            "spec": ["before", "checks", "clusterSelector", "mode"],
            "spec.clusterSelector.matchExpressions[]": ["key", "operator"],
            "spec.versions[]": ["kubernetes", "values"],
            "spec.checks[]": ["name", "object"],
            "spec.checks[].object": ["apiVersion", "kind", "name"],
            "status.conditions[]": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
        // It has no spec. Sluice alone writes its status; types are those of a ClusterBootstrap.
        "ClusterUpgrade": {
            "status.conditions[]": ["lastTransitionTime", "message", "reason", "status", "type"],
            "status.upgrade": ["clusterUID", "observedClusterGeneration", "schema", "to"],
            "status.upgrade.gates[]": ["hook", "open", "version"],
            "status.upgrade.gates[].overriddenBy": ["expiresAt", "name", "reason", "uid", "user"],
            "status.upgrade.selected[]": ["generation", "mode", "name", "uid"],
            "status.upgrade.checks[]": ["gate", "name", "state"],
            "status.history[]": ["began", "from", "to"],
            "status.history[].overrides[]": ["gate", "name", "reason", "uid", "user", "version"],
        },
        // The webhook sets clusterUID and requestedBy.
        "UpgradeOverride": {
            "": ["spec"],
            "spec": ["clusterName", "expiresAt", "gate", "packages", "reason", "target"],
            "spec.target": ["kubernetesVersion", "release"],
            "status.conditions[]": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
    });
    for crd in sluice_crds::crds() {
        let mut found = BTreeMap::new();
        visit("", &schema(&crd), &mut |path, schema| {
            if let Some(required) = schema.get("required") {
                found.insert(path.to_owned(), required.clone());
            }
        });
        let kind = &*crd.spec.names.kind;
        if let Some(expected) = expected.get(kind) {
            assert_eq!(&json!(found), expected, "{kind}");
            continue;
        }
        // What Sluice has added, which its own status alone carries.
        let added = ["status.upgrade", "status.held", "status.history"];
        found.retain(|path, _| {
            !added.iter().any(|field| path.starts_with(field)) && !path.contains("upgradePolicy")
        });
        let mut bootstrap = BTreeMap::from([(String::new(), json!(["spec"]))]);
        for package in ["kapp", "cni", "cpi", "csi", "additionalPackages[]"] {
            bootstrap.insert(format!("spec.{package}"), json!(["refName"]));
            bootstrap.insert(
                format!("spec.{package}.valuesFrom.providerRef"),
                json!(["kind", "name"]),
            );
        }
        if kind == "ClusterBootstrap" {
            bootstrap.insert(
                "status.conditions[]".to_owned(),
                json!(["lastTransitionTime", "status", "type"]),
            );
        }
        assert_eq!(found, bootstrap, "{kind}");
    }
}

/// What every configuration kind requires, and `more`.
fn with_conditions(mut more: Value) -> Value {
    more[""] = json!(["spec"]);
    more["status.conditions[]"] = json!(["lastTransitionTime", "status", "type"]);
    more
}

/// The API server refuses a schema with alternatives in it, and stores nulls where `nullable` lets it.
#[test]
fn schemas_are_structural_and_take_no_null() {
    for crd in sluice_crds::crds() {
        visit("", &schema(&crd), &mut |path, schema| {
            for word in [
                "anyOf",
                "oneOf",
                "allOf",
                "not",
                "nullable",
                "$ref",
                "uniqueItems",
            ] {
                assert!(
                    schema.get(word).is_none(),
                    "{}: {path} has {word}",
                    crd.spec.names.kind
                );
            }
            // A number or a text has none, so that the API server takes both.
            let is_either = schema.get("x-kubernetes-int-or-string") == Some(&json!(true));
            assert!(
                schema["type"].is_string() != is_either,
                "{}: {path} has no type, or one too many",
                crd.spec.names.kind
            );
            let description = schema
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or_default();
            assert!(
                !description.contains(['\n', '[']),
                "{}: {path}: {description}",
                crd.spec.names.kind
            );
        });
    }
}

/// A text that was stored once stays one, whatever it says.
#[test]
fn an_mtu_is_either_and_its_number_is_not_negative() {
    let mut either = BTreeMap::new();
    for crd in sluice_crds::crds() {
        visit("", &schema(&crd), &mut |path, schema| {
            if schema.get("x-kubernetes-int-or-string").is_some() {
                let mut schema = schema.clone();
                schema.as_object_mut().unwrap().remove("description");
                either.insert(format!("{} {path}", crd.spec.names.kind), schema);
            }
        });
    }
    let mtu = json!({"x-kubernetes-int-or-string": true, "default": "", "minimum": 0.0, "maximum": f64::from(i32::MAX)});
    assert_eq!(
        json!(either),
        json!({"AntreaConfig spec.antrea.config.defaultMTU": mtu})
    );
}

fn only_version(crd: &CustomResourceDefinition) -> &CustomResourceDefinitionVersion {
    let [version] = crd.spec.versions.as_slice() else {
        panic!("one version")
    };
    version
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let schema = only_version(crd)
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    serde_json::to_value(schema.expect("a schema")).unwrap()
}

/// Calls `see` with every schema and the path of what it describes.
fn visit(path: &str, schema: &Value, see: &mut impl FnMut(&str, &Value)) {
    see(path, schema);
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        visit(&path, property, see);
    }
    if let Some(items) = schema.get("items") {
        visit(&format!("{path}[]"), items, see);
    }
}
