use rstest::rstest;
use serde_json::json;

use super::*;

/// State of a discovered ExtensionConfig with the fields of `more` merged into it.
fn registration(more: &Value) -> Registration {
    let mut config = json!({
        "metadata": {"name": "sluice", "generation": 2, "managedFields": [{"time": "9999-12-31T23:59:59Z"}]},
        "spec": {},
        "status": {"conditions": [
            {"type": "Paused", "status": "False"},
            {"type": "Discovered", "status": "True", "reason": "Discovered", "observedGeneration": 2},
        ]},
    });
    merge(&mut config, more);
    Registration::of(Some(&config))
}

/// Merges like a merge patch.
fn merge(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(fields), Value::Object(more)) => {
            for (field, value) in more {
                merge(fields.entry(field).or_insert(Value::Null), value);
            }
        }
        (object, more) => *object = more.clone(),
    }
}

fn discovered(condition: &Value) -> Value {
    json!({"status": {"conditions": [condition]}})
}

#[rstest]
#[case::discovered(json!({}), "Discovered")]
#[case::of_a_release_that_says_no_generation(discovered(&json!({"type": "Discovered", "status": "True"})), "Discovered")]
#[case::refused(discovered(&json!({"type": "Discovered", "status": "False", "reason": "NotDiscovered"})), "NotDiscovered")]
#[case::not_yet(json!({"status": null}), "NoCondition")]
#[case::another_condition(discovered(&json!({"type": "Ready", "status": "True"})), "NoCondition")]
#[case::no_conditions(json!({"status": {"conditions": "none"}}), "NoCondition")]
#[case::no_condition(discovered(&json!({"type": "Discovered", "status": true})), "NoCondition")]
#[case::changed_since(json!({"metadata": {"generation": 3}}), "Outdated")]
#[case::being_deleted(json!({"metadata": {"deletionTimestamp": "2026-11-25T00:00:00Z"}}), "Deleting")]
fn state_of_an_extension_config(#[case] more: Value, #[case] expected: &str) {
    let registration = registration(&more);
    let said = match &registration {
        Registration::Undiscovered { reason, .. } => reason,
        Registration::Discovered => "Discovered",
        other => panic!("{other:?}"),
    };
    assert_eq!(said, expected);
    assert_eq!(registration.is_discovered(), Some(expected == "Discovered"));
}

fn refused(reason: &str, message: &str) -> Finding {
    let condition = json!({"type": "Discovered", "status": "False", "reason": reason, "message": message});
    Finding::Registered("sluice".to_owned(), registration(&discovered(&condition)))
}

fn registered(registration: Registration) -> Finding {
    Finding::Registered("sluice".to_owned(), registration)
}

#[test]
fn each_finding_is_one_line() {
    let unselected = Finding::Unselected {
        clusters: 9,
        namespaces: ["a", "b", "c", "d", "e", "f", "g"].map(str::to_owned).to_vec(),
    };
    for (finding, trouble, text) in [
        (
            registered(Registration::of(None)),
            true,
            "ExtensionConfig sluice does not exist",
        ),
        (
            registered(Registration::unreadable("403\nforbidden")),
            true,
            "it is unknown whether Cluster API calls hooks: 403 forbidden",
        ),
        (
            refused("NotDiscovered", "dial tcp:\n  connection refused"),
            true,
            "sluice (NotDiscovered: dial tcp: connection refused); see section",
        ),
        (
            registered(registration(&json!({"status": null}))),
            true,
            "has no ca.crt, or Cluster API does not run with feature gate RuntimeSDK",
        ),
        (
            registered(Registration::Discovered),
            false,
            "has discovered the hooks of ExtensionConfig sluice",
        ),
        (
            Finding::ScopeUnknown("403\nforbidden".to_owned()),
            true,
            "are unknown: 403 forbidden",
        ),
        (
            unselected,
            true,
            "upgrades of Clusters with a ClusterBootstrap or a ClusterUpgrade (9) are not held, because no discovered ExtensionConfig selects their \
             namespaces: a, b, c, d, e and 2 more; label",
        ),
    ] {
        assert_eq!(finding.is_trouble(), trouble, "{finding}");
        let line = finding.to_string();
        assert!(line.contains(text) && !line.contains('\n'), "{line}");
    }
    assert_eq!(Registration::unreadable("").is_discovered(), None);
}

#[test]
fn a_finding_is_reported_once() {
    let before = [
        refused("NotDiscovered", "port 1"),
        Finding::Registered("other".to_owned(), Registration::unreadable("a")),
    ];
    assert!(!refused("NotDiscovered", "port 2").is_new(&before));
    assert!(refused("Other", "port 1").is_new(&before));
    assert!(registered(Registration::unreadable("a")).is_new(&before));
    let other = Finding::Registered("other".to_owned(), Registration::unreadable("b"));
    assert!(!other.is_new(&before));
    let discovered = registered(Registration::Discovered);
    assert!(discovered.is_new(&before));
    assert!(!discovered.is_new(std::slice::from_ref(&discovered)));
}

#[rstest]
#[case::none(json!({}), Ok("nothing"))]
#[case::null(json!({"namespaceSelector": null}), Ok("nothing"))]
#[case::empty(json!({"namespaceSelector": {}}), Ok("all"))]
#[case::labels(json!({"namespaceSelector": {"matchLabels": {"a": "b"}}}), Ok("a=b"))]
#[case::names(
    json!({"namespaceSelector": {"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["x", "y"]},
    ]}}),
    Ok("kubernetes.io/metadata.name in (x,y)")
)]
#[case::an_operator_of_later(json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}), Err(()))]
#[case::a_text(json!({"namespaceSelector": "all"}), Err(()))]
fn namespace_selectors_are_parsed(#[case] spec: Value, #[case] expected: Result<&str, ()>) {
    let selected = selected(&json!({"spec": spec})).map(|selected| match selected {
        Selected::NoNamespace => "nothing".to_owned(),
        Selected::AllNamespaces => "all".to_owned(),
        Selected::Matching(selector) => selector.to_string(),
    });
    assert_eq!(selected.map_err(drop), expected.map(str::to_owned));
}

#[test]
fn clusters_in_unselected_namespaces_are_counted() {
    let clusters = [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")];
    let clusters = clusters.map(|(namespace, name)| ClusterRef::new(namespace, name));
    let in_a = Scope::Namespaces(BTreeSet::from(["a".to_owned()]));
    let found = Finding::Unselected {
        clusters: 2,
        namespaces: vec!["b".to_owned(), "c".to_owned()],
    };
    assert_eq!(unselected(&in_a, &clusters), Some(found));
    assert_eq!(unselected(&in_a, &clusters[..2]), None);
    assert_eq!(unselected(&Scope::AllNamespaces, &clusters), None);
}

#[test]
fn cluster_api_asks_about_selected_namespaces() {
    assert_eq!(unasked(Some(&Scope::AllNamespaces), "team-a"), None);
    let selected = Scope::Namespaces(BTreeSet::from(["team-a".to_owned()]));
    assert_eq!(unasked(Some(&selected), "team-a"), None);
    let other = unasked(Some(&selected), "team-b");
    assert!(other.is_some_and(|why| why.contains("selects namespace team-b")));
    assert!(unasked(None, "team-a").is_some());
}
