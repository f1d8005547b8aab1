//! The steps of RFC 6902 that change a Cluster.

use serde_json::{Value, json};
use sluice_crds::{
    foreign::cluster::{Variable, VariableOverrides},
    labels::name,
};

use super::data::Entries;

/// The variables that differ for a part.
pub(super) fn overrides(variables: Option<&VariableOverrides>) -> &[Variable] {
    variables.map_or(&[], |variables| variables.overrides.as_slice())
}

/// Has `variables`, which are there if `present`, say this.
pub(super) fn put(
    variables: &[Variable],
    present: bool,
    path: &str,
    entries: &Entries,
    steps: &mut Vec<Value>,
) {
    let value = Value::Object(entries.clone());
    let at = variables
        .iter()
        .position(|variable| variable.name == name::TKR_DATA);
    match at {
        Some(at) if variables[at].value == value => {}
        Some(at) => steps.push(replace(&format!("{path}/{at}/value"), value)),
        None if entries.is_empty() => {}
        None => {
            let variable = json!({"name": name::TKR_DATA, "value": value});
            steps.push(if present {
                json!({"op": "add", "path": format!("{path}/-"), "value": variable})
            } else {
                json!({"op": "add", "path": path, "value": [variable]})
            });
        }
    }
}

/// The same of the overrides of a part, which are removed where there is no value.
pub(super) fn put_override(
    overrides: &[Variable],
    present: bool,
    path: &str,
    value: Option<&Value>,
    steps: &mut Vec<Value>,
) {
    let at = overrides
        .iter()
        .position(|variable| variable.name == name::TKR_DATA);
    match (at, value.and_then(Value::as_object)) {
        (None, None) => {}
        // No other one is left, and a list that is empty is none.
        (Some(_), None) if overrides.len() == 1 => steps.push(json!({"op": "remove", "path": path})),
        (Some(at), None) => steps.push(json!({"op": "remove", "path": format!("{path}/overrides/{at}")})),
        (_, Some(entries)) if present => {
            put(
                overrides,
                !overrides.is_empty(),
                &format!("{path}/overrides"),
                entries,
                steps,
            );
        }
        (_, Some(entries)) => {
            let variable = json!({"name": name::TKR_DATA, "value": entries});
            steps.push(json!({"op": "add", "path": path, "value": {"overrides": [variable]}}));
        }
    }
}

pub(super) fn replace(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "replace", "path": path, "value": value.into()})
}
