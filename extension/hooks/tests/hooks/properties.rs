//! Properties for any bytes: no panic, and no release without a request that names its Cluster.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;
use sluice_hooks::{Hook, Request};

use crate::caller::recorded;

fn hooks() -> impl Strategy<Value = Hook> {
    select(Hook::ALL.to_vec())
}

/// Every place of a value, as JSON pointers.
pub(crate) fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            places(value, &format!("{at}/{name}"), found);
        }),
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| places(value, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

pub(crate) fn odd_values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(serde_json::json!([])),
        Just(serde_json::json!({})),
        Just(serde_json::json!([[{"version": "v1.0.0"}]])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_refused(hook in hooks(), body in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Request::parse(hook, &body).is_err());
    }

    #[test]
    fn arbitrary_json_like_text_is_refused(hook in hooks(), body in r#"[\[\]{}:,"a-z0-9 \\.eE+-]{0,200}"#) {
        prop_assert!(Request::parse(hook, body.as_bytes()).is_err());
    }

    #[test]
    fn a_request_that_is_cut_short_is_refused(hook in hooks(), at in any::<Index>()) {
        let body = recorded(hook).trim_end().as_bytes();
        prop_assert!(Request::parse(hook, &body[..at.index(body.len())]).is_err());
    }

    #[test]
    fn changed_bytes_never_panic(hook in hooks(), changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..8)) {
        let mut body = recorded(hook).as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok(request) = Request::parse(hook, &body) {
            let call = request.call();
            prop_assert!(!call.name.is_empty() && !call.namespace.is_empty() && !call.uid.is_empty());
            prop_assert!(call.generation > 0);
        }
    }

    /// Whatever one value of a request is changed to, the request is refused or asks about the same cluster or about a
    /// cluster that the changed value names.
    #[test]
    fn a_changed_value_changes_no_other(hook in hooks(), at in any::<Index>(), value in odd_values()) {
        let mut request: Value = serde_json::from_str(recorded(hook)).unwrap();
        let mut found = Vec::new();
        places(&request, "", &mut found);
        let place = at.get(&found);
        *request.pointer_mut(place).unwrap() = value;
        let (changed, original) = (request.to_string(), recorded(hook));
        let original = Request::parse(hook, original.as_bytes()).unwrap();
        let original = original.call();
        if let Ok(request) = Request::parse(hook, changed.as_bytes()) {
            let call = request.call();
            for (pointer, same) in [
                ("/cluster/metadata/name", call.name == original.name),
                ("/cluster/metadata/namespace", call.namespace == original.namespace),
                ("/cluster/metadata/uid", call.uid == original.uid),
                ("/cluster/metadata/generation", call.generation == original.generation),
            ] {
                prop_assert!(same || place == pointer, "{pointer} differs after a change of {place}");
            }
        }
    }
}
