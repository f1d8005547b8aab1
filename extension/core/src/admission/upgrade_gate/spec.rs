//! Decodes the spec of an UpgradeGate, and refuses fields that this release does not know.

use serde_json::Value;
use sluice_crds::{
    decode::{self, Limit},
    lifecycle::UpgradeGateSpec,
};

use crate::{decode::OF_TENANT, fault::Fault};

/// Decodes a spec.
///
/// # Errors
/// A field has another type, or this release does not know it: where only the definitions were upgraded, Sluice would ignore it.
pub(super) fn decoded(json: &str) -> Result<UpgradeGateSpec, Fault> {
    let limit = Limit::whole(OF_TENANT);
    let (spec, _) = decode::from_str::<UpgradeGateSpec>(json, limit).map_err(undecodable)?;
    let (given, _) = decode::from_str::<Value>(json, limit).map_err(undecodable)?;
    let known = serde_json::to_value(&spec).unwrap_or_default();
    match unknown(&given, &known, "spec") {
        Some(field) => {
            let text = "this release of Sluice does not know the field; remove it, or upgrade Sluice";
            Err(Fault::new(field, "", text))
        }
        None => Ok(spec),
    }
}

fn undecodable(decode::Fault { path, what }: decode::Fault) -> Fault {
    let field = match path.as_str() {
        "." => "spec".to_owned(),
        path => format!("spec.{path}"),
    };
    Fault::new(field, "", what)
}

/// Returns the path of the first field of `given` that is not in `known`.
fn unknown(given: &Value, known: &Value, path: &str) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match known.get(name) {
                Some(known) => unknown(value, known, &path),
                // Absent fields and empty lists are not encoded.
                None if is_empty(value) => None,
                None => Some(path),
            }
        }),
        (Value::Array(given), Value::Array(known)) => {
            let mut pairs = given.iter().zip(known).enumerate();
            pairs.find_map(|(at, (given, known))| unknown(given, known, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
