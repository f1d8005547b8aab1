//! References of a values provider to other objects of its namespace (addons-manager §3.2a).

use serde_json::{Map, Value};

/// Suffix of the field names of such references.
const SUFFIX: &str = "LocalObjRef";

/// Reference to an object of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedReference {
    /// Path of the field from the root of the object: `spec.vsphereCPI.vSphereCredentialLocalObjRef`.
    pub field: String,
    /// API group of the object; the core group is empty.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace in the reference. References are local to the namespace of their object, so there should be none.
    pub namespace: Option<String>,
}

/// Returns the references in the spec of `object`, each object once. Lists are not searched, and malformed references are skipped.
#[must_use]
pub fn embedded_references(object: &Value) -> Vec<EmbeddedReference> {
    let mut found = Vec::new();
    if let Some(spec) = object["spec"].as_object() {
        collect_references(spec, "spec", &mut found);
    }
    found
}

fn collect_references(fields: &Map<String, Value>, path: &str, found: &mut Vec<EmbeddedReference>) {
    for (key, value) in fields {
        let Some(value) = value.as_object() else {
            continue;
        };
        let field = format!("{path}.{key}");
        if !key.ends_with(SUFFIX) {
            collect_references(value, &field, found);
            continue;
        }
        let Some(reference) = reference(value, field) else {
            continue;
        };
        let same = |other: &EmbeddedReference| {
            (&other.group, &other.kind, &other.name) == (&reference.group, &reference.kind, &reference.name)
                && other.namespace == reference.namespace
        };
        if !found.iter().any(same) {
            found.push(reference);
        }
    }
}

fn reference(value: &Map<String, Value>, field: String) -> Option<EmbeddedReference> {
    let text = |key: &str| value.get(key).map_or(Some(""), Value::as_str);
    let named = |key: &str| text(key).filter(|text| !text.is_empty()).map(str::to_owned);
    Some(EmbeddedReference {
        field,
        group: text("apiGroup")?.to_owned(),
        kind: named("kind")?,
        name: named("name")?,
        namespace: named("namespace"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn names(object: &Value) -> Vec<String> {
        let found = embedded_references(object);
        found.into_iter().map(|reference| reference.name).collect()
    }

    #[test]
    fn a_reference_is_found_by_the_name_of_its_field() {
        let object = json!({"spec": {"vsphereCPI": {
            "server": "vcenter",
            "vSphereCredentialLocalObjRef": {"kind": "Secret", "name": "credentials"},
        }}});
        let expected = EmbeddedReference {
            field: "spec.vsphereCPI.vSphereCredentialLocalObjRef".to_owned(),
            group: String::new(),
            kind: "Secret".to_owned(),
            name: "credentials".to_owned(),
            namespace: None,
        };
        assert_eq!(embedded_references(&object), [expected]);
    }

    #[test]
    fn a_malformed_reference_does_not_hide_others() {
        let object = json!({"spec": {
            "aLocalObjRef": {"kind": "Secret"},
            "bLocalObjRef": {"kind": 1, "name": "number"},
            "cLocalObjRef": {"kind": "Secret", "name": "", "apiGroup": ""},
            "dLocalObjRef": {"kind": "Secret", "name": "group", "apiGroup": 1},
            "eLocalObjRef": "text",
            "fLocalObjRef": {"kind": "Secret", "name": "good"},
            "nested": {"gLocalObjRef": {"apiGroup": "a.test", "kind": "A", "name": "nested"}},
        }});
        assert_eq!(names(&object), ["good", "nested"]);
    }

    #[test]
    fn lists_and_other_parts_of_the_object_are_not_searched() {
        let reference = json!({"kind": "Secret", "name": "a"});
        let object = json!({
            "metadata": {"aLocalObjRef": reference}, "status": {"aLocalObjRef": reference},
            "spec": {"list": [{"aLocalObjRef": reference}], "aLocalObjRefs": reference},
        });
        assert_eq!(embedded_references(&object), []);
    }

    #[test]
    fn an_object_that_two_fields_name_is_found_once() {
        let reference = json!({"kind": "Secret", "name": "a"});
        let object = json!({"spec": {"aLocalObjRef": reference, "bLocalObjRef": reference}});
        assert_eq!(names(&object), ["a"]);
    }

    #[test]
    fn a_namespace_is_reported() {
        let object =
            json!({"spec": {"aLocalObjRef": {"kind": "Secret", "name": "a", "namespace": "kube-system"}}});
        let found = embedded_references(&object);
        assert_eq!(found[0].namespace.as_deref(), Some("kube-system"));
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            "[a-z]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let key = prop_oneof![
                "[a-z]{1,3}",
                "[a-z]{0,2}LocalObjRef",
                Just("kind".to_owned()),
                Just("name".to_owned())
            ];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(key, inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Each reference is at its reported field.
        #[test]
        fn found_references_exist(spec in json()) {
            let object = json!({"spec": spec});
            for reference in embedded_references(&object) {
                let pointer = format!("/{}", reference.field.replace('.', "/"));
                let there = object.pointer(&pointer).unwrap();
                prop_assert_eq!(&there["kind"], &reference.kind);
                prop_assert_eq!(&there["name"], &reference.name);
            }
        }
    }
}
