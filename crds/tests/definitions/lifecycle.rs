//! The rules of all definitions, and the examples of UpgradeGates.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use sluice_crds::lifecycle::{MAX_CHECKS, MAX_KEYS, MAX_PACKAGES, MAX_ROWS, UpgradeGate};

/// The schema of each kind.
fn schemas() -> Vec<(String, Value)> {
    let crds = sluice_crds::crds().into_iter().map(|mut crd| {
        let version = crd.spec.versions.remove(0);
        let schema = version.schema.and_then(|schema| schema.open_api_v3_schema);
        let schema = serde_json::to_value(schema.expect("a schema")).unwrap();
        (crd.spec.names.kind, schema)
    });
    crds.collect()
}

/// Calls `see` with every schema, also those of the values of maps, and its path.
fn visit(path: &str, schema: &Value, see: &mut impl FnMut(&str, &Value)) {
    see(path, schema);
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        visit(&format!("{path}.{name}"), property, see);
    }
    for (key, step) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(below) = schema.get(key) {
            visit(&format!("{path}{step}"), below, see);
        }
    }
}

/// Returns the limits of all texts, lists and maps of the spec of a kind, by their paths. A time has none: its format limits it.
fn limits_of(kind: &str) -> BTreeMap<String, u64> {
    let schemas = schemas();
    let (_, found) = schemas.iter().find(|(found, _)| found == kind).unwrap();
    let mut limits = BTreeMap::new();
    visit("spec", &found["properties"]["spec"], &mut |path, schema| {
        let limit = match schema["type"].as_str() {
            Some("string") if schema.get("enum").is_some() || schema["format"] == "date-time" => return,
            Some("string") => "maxLength",
            Some("array") => "maxItems",
            Some("object") if schema.get("additionalProperties").is_some() => "maxProperties",
            _ => return,
        };
        let most = schema.get(limit).and_then(Value::as_u64);
        let most = most.unwrap_or_else(|| panic!("{kind} {path} has no {limit}"));
        limits.insert(path.to_owned(), most);
    });
    limits
}

/// The API server estimates what a rule costs from these limits, and refuses a definition with a rule that costs too much.
#[test]
fn all_that_rules_read_is_limited() {
    let (gate, of) = (limits_of("UpgradeGate"), limits_of("UpgradeOverride"));
    for (limits, path, most) in [
        (&gate, "spec.checks", MAX_CHECKS),
        (&gate, "spec.versions", MAX_ROWS),
        (&gate, "spec.versions[].values", MAX_KEYS),
        (&of, "spec.packages", MAX_PACKAGES),
        (&of, "spec.packages[]", 253),
        (&of, "spec.reason", 1024),
        (&of, "spec.requestedBy", 1024),
    ] {
        assert_eq!(limits.get(path).copied(), u64::try_from(most).ok(), "{path}");
    }
}

/// The API server refuses a definition whose rule names a field that does not exist, or has a message of several lines.
#[test]
fn each_rule_names_a_field_and_has_a_message_of_one_line() {
    let mut rules = 0;
    for (kind, schema) in schemas() {
        visit("", &schema, &mut |path, schema| {
            let found = schema.get("x-kubernetes-validations").and_then(Value::as_array);
            for rule in found.into_iter().flatten() {
                let message = rule["message"].as_str().unwrap_or_default();
                assert!(
                    !message.is_empty() && !message.contains('\n') && !message.contains("  "),
                    "{kind}{path}: {message:?}"
                );
                let field = rule.get("fieldPath").and_then(Value::as_str).unwrap_or_default();
                let mut below = schema;
                for name in field.split('.').skip(1) {
                    below = &below["properties"][name];
                }
                assert!(!below.is_null(), "{kind}{path}: no field {field}");
                rules += 1;
            }
        });
    }
    assert!(rules > 20, "{rules}");
}

/// clusterctl replaces variables in all texts of its components.
#[test]
fn no_definition_contains_a_variable_of_clusterctl() {
    for crd in sluice_crds::crds() {
        let text = serde_json::to_string(&crd).unwrap();
        for variable in ["${", "$$"] {
            assert!(!text.contains(variable), "{}: {variable}", crd.spec.names.kind);
        }
    }
}

/// `tests/tests/real/gate_definitions.rs` sends them to an API server.
#[test]
fn examples_are_gates() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/upgradegate.yaml");
    let gates: Vec<UpgradeGate> = serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap();
    let names: Vec<_> = gates
        .iter()
        .filter_map(|gate| gate.metadata.name.as_deref())
        .collect();
    assert_eq!(names, ["cni", "cloud", "csi"]);
}
