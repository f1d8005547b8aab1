//! Values that the packages of a Cluster on a Supervisor get besides their own (`addons-manager.md` §3.6).

use serde_json::{Value, json};
use sluice_crds::labels::{label, name};

use super::Values;

/// Fields of the document, by their path. The first one selects Nodes.
const FIELDS: [&[&str]; 5] = [
    &["nodeSelector"],
    &["deployment", "updateStrategy"],
    &["deployment", "rollingUpdate", "maxUnavailable"],
    &["deployment", "rollingUpdate", "maxSurge"],
    &["daemonset", "updateStrategy"],
];

/// Content of empty values.
const EMPTY: &[u8] = b"{}\n";

/// Fields of `tkgs-values.yaml` that the values schema of a Package lacks. ytt refuses values that a schema does not declare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LackedFields([bool; FIELDS.len()]);

impl LackedFields {
    /// Returns the fields that `Package.spec.valuesSchema` lacks. A Package without a schema lacks none.
    #[must_use]
    pub fn of(schema: &Value) -> Self {
        let schema = &schema["openAPIv3"];
        Self(FIELDS.map(|path| lacks(schema, path)))
    }

    /// Whether Nodes are selected.
    #[must_use]
    pub const fn selects_nodes(self) -> bool {
        let Self([lacks_selector, ..]) = self;
        !lacks_selector
    }
}

fn lacks(mut schema: &Value, path: &[&str]) -> bool {
    for field in path {
        match schema["properties"].get(*field) {
            Some(property) => schema = property,
            None => return is_closed(schema),
        }
    }
    false
}

/// Whether an object of this schema has only the listed properties.
fn is_closed(schema: &Value) -> bool {
    match &schema["additionalProperties"] {
        Value::Null => schema["properties"].is_object(),
        others => *others == Value::Bool(false),
    }
}

/// Returns `values` with those for a Supervisor, whose Nodes have the label of `release`. They replace those of the addons-manager in a
/// Secret that it had completed. Empty values are left out, as by the addons-manager.
#[must_use]
pub fn with_tkgs_values(mut values: Values, release: &str, lacked: LackedFields) -> Values {
    values.remove(name::TKGS_VALUES_KEY);
    let is_empty = |values: &Values| {
        let mut contents = values.iter();
        contents.all(|(key, content)| key == name::VALUES_KEY && content == EMPTY)
    };
    match document(release, lacked) {
        Some(document) => {
            if is_empty(&values) {
                values.clear();
            }
            values.insert(name::TKGS_VALUES_KEY.to_owned(), document);
        }
        // Values are never empty.
        None if values.is_empty() => {
            values.insert(name::VALUES_KEY.to_owned(), EMPTY.to_vec());
        }
        None => {}
    }
    values
}

/// Returns the document without the lacked fields; `None` if all are lacked. JSON is valid YAML, and its bytes are stable.
fn document(release: &str, LackedFields(lacked): LackedFields) -> Option<Vec<u8>> {
    let mut document = json!({
        "nodeSelector": {label::TKR: release},
        "deployment": {
            "updateStrategy": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
        },
        "daemonset": {"updateStrategy": "OnDelete"},
    });
    for (path, _) in FIELDS.iter().zip(lacked).filter(|(_, lacked)| *lacked) {
        remove(&mut document, path);
    }
    let has_fields = document.as_object().is_some_and(|fields| !fields.is_empty());
    has_fields.then(|| format!("{document}\n").into_bytes())
}

/// Removes a field, and the objects that are empty without it.
fn remove(document: &mut Value, path: &[&str]) {
    let (Some(fields), Some((field, below))) = (document.as_object_mut(), path.split_first()) else {
        return;
    };
    if let Some(value) = fields.get_mut(*field).filter(|_| !below.is_empty()) {
        remove(value, below);
        if value.as_object().is_none_or(|left| !left.is_empty()) {
            return;
        }
    }
    fields.remove(*field);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const RELEASE: &str = "v1.35.4---sluice.1";

    fn values(pairs: &[(&str, &str)]) -> Values {
        let pairs = pairs
            .iter()
            .map(|(key, content)| ((*key).to_owned(), content.as_bytes().to_vec()));
        pairs.collect()
    }

    fn tkgs(values: &Values) -> Value {
        let content = values.get(name::TKGS_VALUES_KEY);
        content.map_or(Value::Null, |content| serde_json::from_slice(content).unwrap())
    }

    fn all() -> Value {
        json!({
            "nodeSelector": {"run.tanzu.vmware.com/tkr": RELEASE},
            "deployment": {"updateStrategy": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "daemonset": {"updateStrategy": "OnDelete"},
        })
    }

    #[rstest]
    #[case::no_schema(Value::Null, all())]
    #[case::any(json!({"openAPIv3": {}}), all())]
    #[case::any_other(json!({"openAPIv3": {"properties": {"a": {}}, "additionalProperties": true}}), all())]
    #[case::unlisted_below(
        json!({"openAPIv3": {"properties": {"nodeSelector": {"type": "object"}, "deployment": {}, "daemonset": {"nullable": true}}}}),
        all()
    )]
    #[case::one(
        json!({"openAPIv3": {"properties": {"daemonset": {"properties": {"updateStrategy": {"type": "string"}}}}}}),
        json!({"daemonset": {"updateStrategy": "OnDelete"}})
    )]
    #[case::nested(
        json!({"openAPIv3": {"additionalProperties": false, "properties": {
            "nodeSelector": {}, "deployment": {"properties": {"rollingUpdate": {"properties": {"maxSurge": {}}}}},
        }}}),
        json!({"nodeSelector": {"run.tanzu.vmware.com/tkr": RELEASE}, "deployment": {"rollingUpdate": {"maxSurge": 1}}})
    )]
    #[case::others(json!({"openAPIv3": {"properties": {"antrea": {}}}}), Value::Null)]
    #[case::none(json!({"openAPIv3": {"additionalProperties": false}}), Value::Null)]
    fn lacked_fields_are_left_out(#[case] schema: Value, #[case] expected: Value) {
        let lacked = LackedFields::of(&schema);
        let has_selector = !expected["nodeSelector"].is_null();
        let values = with_tkgs_values(values(&[("values.yaml", "a: 1\n")]), RELEASE, lacked);
        assert_eq!(tkgs(&values), expected);
        assert_eq!(lacked.selects_nodes(), has_selector);
        assert_eq!(values[name::VALUES_KEY], b"a: 1\n");
    }

    #[rstest]
    #[case::none(&[("values.yaml", "{}\n")], &["tkgs-values.yaml"])]
    #[case::only_those_of_the_addons_manager(&[("tkgs-values.yaml", "a: 1\n")], &["tkgs-values.yaml"])]
    #[case::both(&[("tkgs-values.yaml", "a: 1\n"), ("values.yaml", "a: 1\n")], &["tkgs-values.yaml", "values.yaml"])]
    #[case::another_key(&[("a.yaml", "{}\n")], &["a.yaml", "tkgs-values.yaml"])]
    fn a_package_without_values_gets_them_alone(#[case] own: &[(&str, &str)], #[case] keys: &[&str]) {
        let found = with_tkgs_values(values(own), RELEASE, LackedFields::default());
        assert_eq!(found.keys().collect::<Vec<_>>(), keys);
        assert_eq!(tkgs(&found), all(), "those of the addons-manager are replaced");
    }

    #[test]
    fn a_package_that_lacks_all_fields_keeps_its_values() {
        let lacked = LackedFields::of(&json!({"openAPIv3": {"additionalProperties": false}}));
        for (own, expected) in [
            (("values.yaml", "a: 1\n"), ("values.yaml", "a: 1\n")),
            (("tkgs-values.yaml", "a: 1\n"), ("values.yaml", "{}\n")),
        ] {
            assert_eq!(
                with_tkgs_values(values(&[own]), RELEASE, lacked),
                values(&[expected])
            );
        }
    }
}
