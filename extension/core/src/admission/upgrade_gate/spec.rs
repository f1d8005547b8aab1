//! Decodes the spec of an UpgradeGate, and refuses fields that this release does not know.

use serde_json::Value;
use sluice_crds::{
    decode::{self, Limit},
    lifecycle::{MAX_CHECKS, MAX_ROWS, UpgradeGateSpec},
};

use crate::{
    decode::{CACHED, OF_TENANT},
    fault::Fault,
};

/// Memory limit of a spec, in bytes. The rest of the limit of a cached gate is for its metadata and its status.
const LARGEST: usize = CACHED / 4 * 3;

/// Maximum number of requirements of a selector, as in the definition.
const MAX_REQUIREMENTS: usize = 32;

/// Decodes a spec.
///
/// # Errors
/// A field has another type, or this release does not know it: where only the definitions were upgraded, Sluice would ignore it.
pub(super) fn decoded(json: &str) -> Result<UpgradeGateSpec, Fault> {
    let (spec, _) = decode::from_str::<UpgradeGateSpec>(json, Limit::whole(LARGEST)).map_err(undecodable)?;
    let requirements = spec
        .cluster_selector
        .match_expressions
        .as_ref()
        .map_or(0, Vec::len);
    // The definition accepts no longer lists, and encoded they would take many times their memory.
    if spec.versions.len() > MAX_ROWS || spec.checks.len() > MAX_CHECKS || requirements > MAX_REQUIREMENTS {
        let text = format!(
            "a gate has at most {MAX_ROWS} rows, {MAX_CHECKS} checks and {MAX_REQUIREMENTS} requirements of its selector; remove some"
        );
        return Err(Fault::new("spec", "", text));
    }
    let (given, _) = decode::from_str::<Value>(json, Limit::whole(OF_TENANT)).map_err(undecodable)?;
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
