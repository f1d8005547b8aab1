//! Fields of objects that have no type in Sluice.

use serde_json::Value;

use crate::text::one_line;

/// Longest detail of a check, in characters.
const LONGEST_DETAIL: usize = 512;

/// Field by its JSON pointer, and its type.
pub(super) type Field = (&'static str, Type);

/// Type of a field, as its API declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// String.
    Text,
    /// Integer.
    Number,
    /// Boolean.
    Flag,
    /// Object.
    Map,
    /// Object whose fields are strings.
    Texts,
    /// List of conditions.
    Conditions,
    /// List of containers.
    Containers,
    /// List of owner references.
    Owners,
    /// List of Helm releases.
    Releases,
    /// List of versions of a definition.
    Versions,
}

/// Fields of the metadata of each object.
pub(super) const METADATA: &[Field] = &[
    ("/metadata", Type::Map),
    ("/metadata/name", Type::Text),
    ("/metadata/namespace", Type::Text),
    ("/metadata/uid", Type::Text),
    ("/metadata/generation", Type::Number),
    ("/metadata/deletionTimestamp", Type::Text),
    ("/metadata/labels", Type::Texts),
    ("/metadata/annotations", Type::Texts),
    ("/metadata/ownerReferences", Type::Owners),
];

/// Further fields of each object whose kind has a judge.
pub(super) const BODY: &[Field] = &[
    ("/spec", Type::Map),
    ("/status", Type::Map),
    ("/status/conditions", Type::Conditions),
];

impl Type {
    fn is_of(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Number => value.as_i64().is_some(),
            Self::Flag => value.is_boolean(),
            Self::Map => value.is_object(),
            Self::Texts => value
                .as_object()
                .is_some_and(|texts| texts.values().all(Value::is_string)),
            Self::Conditions => each(value, |condition| {
                has_text(condition, "type")
                    && has_text(condition, "status")
                    && has_no_other(condition, "reason", Value::is_string)
                    && has_no_other(condition, "message", Value::is_string)
            }),
            Self::Containers => each(value, |container| {
                has_text(container, "name") && has_no_other(container, "image", Value::is_string)
            }),
            Self::Owners => each(value, |owner| {
                has_text(owner, "uid") && has_no_other(owner, "controller", Value::is_boolean)
            }),
            Self::Releases => each(value, |release| {
                release.get("version").is_some_and(Value::is_i64)
                    && ["status", "chartVersion", "configDigest"]
                        .iter()
                        .all(|key| has_text(release, key))
            }),
            Self::Versions => each(value, |version| {
                has_text(version, "name") && has_no_other(version, "served", Value::is_boolean)
            }),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Number => "an integer",
            Self::Flag => "a boolean",
            Self::Map => "an object",
            Self::Texts => "a map of strings",
            Self::Conditions => "a list of conditions",
            Self::Containers => "a list of containers",
            Self::Owners => "a list of owner references",
            Self::Releases => "a list of Helm releases",
            Self::Versions => "a list of versions",
        }
    }
}

/// Whether the value is a list, and each element is as expected.
fn each(value: &Value, is_expected: impl Fn(&Value) -> bool) -> bool {
    value
        .as_array()
        .is_some_and(|elements| elements.iter().all(is_expected))
}

/// Whether the field is a string.
fn has_text(element: &Value, key: &str) -> bool {
    element.get(key).is_some_and(Value::is_string)
}

/// Whether the field is absent, or of this type.
fn has_no_other(element: &Value, key: &str, is_type: fn(&Value) -> bool) -> bool {
    element
        .get(key)
        .is_none_or(|value| value.is_null() || is_type(value))
}

/// Returns the first of the common fields and `fields` that has another type, `status.conditions is not a list of conditions`.
pub(super) fn mistyped(object: &Value, fields: &[Field]) -> Option<String> {
    first_mistyped(object, METADATA.iter().chain(BODY).chain(fields))
}

/// Returns the same for an object whose kind has no judge. Its spec, its status and its conditions may have any type.
pub(super) fn mistyped_other(object: &Value, fields: &[Field]) -> Option<String> {
    first_mistyped(object, METADATA.iter().chain(fields))
}

fn first_mistyped<'f>(object: &Value, mut fields: impl Iterator<Item = &'f Field>) -> Option<String> {
    let (pointer, type_) = fields.find(|(pointer, type_)| {
        object
            .pointer(pointer)
            .is_some_and(|value| !value.is_null() && !type_.is_of(value))
    })?;
    let field = pointer.trim_start_matches('/').replace('/', ".");
    Some(format!("{field} is not {}", type_.as_str()))
}

/// Returns a string.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?.as_str()
}

/// Returns an integer.
pub(super) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer)?.as_i64()
}

/// Whether a boolean is set.
pub(super) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer) == Some(&Value::Bool(true))
}

/// Returns the value of a label.
pub(super) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

/// Whether the object has an annotation, whatever its value.
pub(super) fn is_annotated(object: &Value, key: &str) -> bool {
    object
        .pointer("/metadata/annotations")
        .is_some_and(|annotations| annotations.get(key).is_some())
}

/// Whether a field has a value, of any type.
pub(super) fn is_set(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}

/// Whether the object is being deleted.
pub(super) fn is_deleting(object: &Value) -> bool {
    is_set(object, "/metadata/deletionTimestamp")
}

/// Whether the controller has observed the latest generation. The generation in a condition is never read: a controller may advance it
/// without having observed the object.
pub(super) fn is_observed(object: &Value) -> bool {
    let observed = number(object, "/status/observedGeneration");
    observed.is_some() && observed == number(object, "/metadata/generation")
}

/// Returns the elements of a list.
pub(super) fn elements<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Returns the condition with this type and status.
pub(super) fn condition<'a>(object: &'a Value, type_: &str, status: &str) -> Option<&'a Value> {
    let is = |condition: &Value, key: &str, expected: &str| {
        condition.get(key).and_then(Value::as_str) == Some(expected)
    };
    elements(object, "/status/conditions")
        .find(|condition| is(condition, "type", type_) && is(condition, "status", status))
}

/// Returns the reason of the condition with this type and status.
pub(super) fn reason<'a>(object: &'a Value, type_: &str, status: &str) -> Option<&'a str> {
    condition(object, type_, status)?.get("reason")?.as_str()
}

/// Returns the first of these conditions, by type and status, as `Ready=False (Reason): message`; empty if there is none.
pub(super) fn detail(object: &Value, conditions: &[(&str, &str)]) -> String {
    let mut found = conditions.iter().filter_map(|(type_, status)| {
        let condition = condition(object, type_, status)?;
        let said = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
        let (reason, message) = (said("reason"), said("message"));
        Some(format!("{type_}={status} ({reason}): {message}"))
    });
    one_line(&found.next().unwrap_or_default(), LONGEST_DETAIL)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::text(Type::Text, json!("a"), json!(1))]
    #[case::number(Type::Number, json!(1), json!("1"))]
    #[case::fraction(Type::Number, json!(1), json!(1.5))]
    #[case::flag(Type::Flag, json!(false), json!("false"))]
    #[case::map(Type::Map, json!({}), json!([]))]
    #[case::texts(Type::Texts, json!({"a": "b"}), json!({"a": 1}))]
    #[case::conditions(Type::Conditions, json!([{"type": "Ready", "status": "True"}]), json!({}))]
    #[case::condition_without_type(Type::Conditions, json!([]), json!([{"status": "True"}]))]
    #[case::condition_with_a_flag(Type::Conditions, json!([]), json!([{"type": "Ready", "status": true}]))]
    #[case::containers(Type::Containers, json!([{"name": "a", "image": "b"}]), json!([{"name": 1}]))]
    #[case::container_with_another_image(Type::Containers, json!([{"name": "a"}]), json!([{"name": "a", "image": []}]))]
    #[case::owners(Type::Owners, json!([{"uid": "a", "controller": true}]), json!([{"uid": "a", "controller": "true"}]))]
    #[case::owner_without_uid(Type::Owners, json!([]), json!([{}]))]
    #[case::releases(
        Type::Releases,
        json!([{"version": 1, "status": "deployed", "chartVersion": "1.0.0", "configDigest": "sha256:a"}]),
        json!([{"version": "1", "status": "deployed", "chartVersion": "1.0.0", "configDigest": "sha256:a"}])
    )]
    #[case::release_without_digest(Type::Releases, json!([]), json!([{"version": 1, "status": "deployed", "chartVersion": "1.0.0"}]))]
    #[case::versions(Type::Versions, json!([{"name": "v1", "served": true}]), json!([{"name": "v1", "served": "true"}]))]
    #[case::version_without_name(Type::Versions, json!([]), json!([{"served": true}]))]
    fn a_field_of_another_type_is_named(#[case] type_: Type, #[case] right: Value, #[case] wrong: Value) {
        let fields: &[Field] = &[("/spec/field", type_)];
        assert_eq!(mistyped(&json!({"spec": {"field": right}}), fields), None);
        assert_eq!(mistyped(&json!({"spec": {"field": null}}), fields), None);
        assert_eq!(mistyped(&json!({"spec": {}}), fields), None);
        assert_eq!(
            mistyped(&json!({"spec": {"field": wrong}}), fields),
            Some(format!("spec.field is not {}", type_.as_str()))
        );
    }

    #[test]
    fn a_detail_is_one_escaped_line_of_512_characters() {
        let object = |message: &str| {
            json!({"status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "Fine", "message": "fine"},
                {"type": "Released", "status": "False", "reason": "Broken", "message": message},
            ]}})
        };
        let said = |message: &str| detail(&object(message), &[("Ready", "False"), ("Released", "False")]);
        assert_eq!(
            said("two\nlines\u{1b}[31m"),
            "Released=False (Broken): two lines\\u{1b}[31m"
        );
        assert_eq!(said(&"é".repeat(4096)).chars().count(), 512);
        assert_eq!(detail(&object(""), &[("Ready", "False")]), "");
        assert_eq!(
            detail(&json!({"status": {"conditions": "none"}}), &[("Ready", "False")]),
            ""
        );
    }
}
