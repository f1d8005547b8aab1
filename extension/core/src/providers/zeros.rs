//! Removal of zero values.

use serde_json::Value;

/// Returns the value without empty strings, zeros, `false`, nulls, and lists and objects that become empty.
///
/// Packages have their own defaults for unset values; a zero would override them.
pub(super) fn without_zeros(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, field)| (name, without_zeros(field)))
            .filter(|(_, field)| !is_zero(field))
            .collect(),
        other => other,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn zero_values_are_dropped() {
        let value = json!({
            "a": "", "b": 0, "c": false, "d": null, "e": [], "f": {"g": {"h": ""}},
            "i": "0", "j": 1, "k": true, "l": [0, ""], "m": {"n": 2, "o": 0},
        });
        assert_eq!(
            without_zeros(value),
            json!({"i": "0", "j": 1, "k": true, "l": [0, ""], "m": {"n": 2}})
        );
    }
}
