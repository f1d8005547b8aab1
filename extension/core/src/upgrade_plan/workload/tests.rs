use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::upgrade_plan::Effect;

/// Returns the steps to these versions. A version with `+w` is followed by the workers.
fn hops(versions: &[&str]) -> Vec<Hop> {
    let hop = |version: &&str| Hop {
        version: version.trim_end_matches("+w").to_owned(),
        release: None,
        workers: version.ends_with("+w"),
        packages: Vec::new(),
    };
    versions.iter().map(hop).collect()
}

fn page(items: &[Value], token: &str) -> String {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"continue": token}, "items": items}).to_string()
}

fn read(list: List, items: &[Value]) -> WorkloadObjects {
    let mut objects = WorkloadObjects::default();
    assert_eq!(objects.add(list, &page(items, "")).unwrap(), None);
    objects
}

/// Returns hop, reason and message of each finding.
fn said(objects: &WorkloadObjects, versions: &[&str]) -> Vec<String> {
    let findings = findings(objects, &hops(versions)).into_iter();
    let text = |finding: Finding| {
        assert_eq!(finding.effect, Effect::Warns);
        let hop = finding.hop.unwrap_or_default();
        format!("{hop} {} {}", finding.reason.as_str(), finding.message)
    };
    findings.map(text).collect()
}

fn budget(spec: &Value, status: &Value) -> Value {
    let metadata = json!({"name": "db", "namespace": "shop", "generation": 2});
    json!({"metadata": metadata, "spec": spec, "status": status})
}

/// Returns the status of a budget that the controller has observed.
fn counted(healthy: i64, desired: i64, expected: i64) -> Value {
    json!({
        "observedGeneration": 2, "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected,
        "disruptionsAllowed": (healthy - desired).max(0),
    })
}

#[rstest]
#[case::all_must_stay(
    counted(3, 3, 3),
    Some("EvictionNeverAllowed PodDisruptionBudget shop/db: 3 of 3 Pods must stay")
)]
#[case::more_than_all_must_stay(
    counted(3, 4, 3),
    Some("EvictionNeverAllowed PodDisruptionBudget shop/db: 4 of 3 Pods must stay")
)]
#[case::too_few_are_healthy(
    counted(2, 2, 3),
    Some("EvictionNotAllowedNow PodDisruptionBudget shop/db: 2 of 3 Pods are healthy, and 2 must stay")
)]
#[case::one_may_go(counted(3, 2, 3), None)]
#[case::without_pods(counted(0, 1, 0), None)]
#[case::uncounted(
    json!({"observedGeneration": 2, "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}]}),
    Some("EvictionNotAllowedNow PodDisruptionBudget shop/db: its Pods cannot be counted (SyncFailed)")
)]
#[case::of_an_earlier_spec(json!({"observedGeneration": 1, "desiredHealthy": 3, "expectedPods": 3}), None)]
#[case::new(Value::Null, None)]
fn a_budget_without_evictions_is_warned_of(#[case] status: Value, #[case] expected: Option<&str>) {
    let objects = read(List::Budgets, &[budget(&json!({"minAvailable": 3}), &status)]);
    let expected = expected.map(|text| format!("v1.36.3 {text}"));
    assert_eq!(
        said(&objects, &["v1.35.4", "v1.36.3+w"]),
        Vec::from_iter(expected)
    );
}

#[rstest]
#[case::no_pod_may_go(json!({"maxUnavailable": 0}), true)]
#[case::no_share_may_go(json!({"maxUnavailable": "0%"}), true)]
#[case::every_pod_must_stay(json!({"minAvailable": "100%"}), true)]
#[case::one_may_go(json!({"maxUnavailable": 1}), false)]
#[case::half_may_go(json!({"minAvailable": "50%"}), false)]
#[case::unset(json!({}), false)]
fn a_spec_without_a_status_decides_alone(#[case] spec: Value, #[case] warns: bool) {
    let objects = read(List::Budgets, &[budget(&spec, &Value::Null)]);
    assert_eq!(!said(&objects, &["v1.36.3"]).is_empty(), warns);
}

#[rstest]
#[case::alone(json!({}), true)]
#[case::owned(json!({"ownerReferences": [{"kind": "Foo", "name": "a"}]}), true)]
#[case::controlled(json!({"ownerReferences": [{"kind": "Foo", "name": "a"}, {"kind": "ReplicaSet", "controller": true}]}), false)]
#[case::mirror(json!({"annotations": {"kubernetes.io/config.mirror": "hash"}}), false)]
#[case::going(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), false)]
fn a_pod_without_a_controller_is_warned_of(#[case] mut metadata: Value, #[case] warns: bool) {
    metadata["name"] = json!("once");
    metadata["namespace"] = json!("shop");
    let objects = read(List::Pods, &[json!({"metadata": metadata})]);
    let expected =
        "v1.36.3 PodWithoutController Pod shop/once has no controller: a drain deletes it for good";
    let said = said(&objects, &["v1.36.3+w"]);
    assert_eq!(said, Vec::from_iter(warns.then(|| expected.to_owned())));
}

#[rstest]
#[case::as_new("v1.35.4", &["v1.36.3+w"], None)]
#[case::three_behind("v1.33.1", &["v1.36.3+w"], None)]
#[case::four_behind("v1.32.1+vmware.2", &["v1.36.3+w"], Some("v1.36.3"))]
#[case::behind_a_later_step("v1.32.1", &["v1.35.4", "v1.36.3+w"], Some("v1.36.3"))]
#[case::workers_follow_before("v1.32.1", &["v1.35.4+w", "v1.36.3+w"], None)]
#[case::newer("v1.37.0", &["v1.36.3+w"], None)]
#[case::no_version("?", &["v1.36.3+w"], None)]
fn a_node_is_warned_of_that_a_step_leaves_behind(
    #[case] kubelet: &str,
    #[case] versions: &[&str],
    #[case] expected: Option<&str>,
) {
    let node = json!({"metadata": {"name": "a"}, "status": {"nodeInfo": {"kubeletVersion": kubelet}}});
    let objects = read(List::Nodes, &[node, json!({"metadata": {"name": "b"}})]);
    let expected = expected.map(|hop| {
        format!("{hop} NodeTooOld Node a: kubelet {kubelet} is 4 minor versions older than {hop}")
    });
    assert_eq!(said(&objects, versions), Vec::from_iter(expected));
}

#[test]
fn requested_apis_are_warned_of_up_to_the_target() {
    let series = |removed: &str, group: &str, subresource: &str, value: &str| {
        format!(
            "apiserver_requested_deprecated_apis{{group=\"{group}\",removed_release=\"{removed}\",resource=\"foos\",\
             subresource=\"{subresource}\",version=\"v1beta1\"}} {value}"
        )
    };
    let text = [
        "# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs".to_owned(),
        "apiserver_request_total{removed_release=\"1.36\"} 1".to_owned(),
        series("1.36", "example.com", "", "1"),
        series("1.36", "example.com", "", "1"),
        series("1.35", "", "status", "1"),
        series("1.37", "later.example.com", "", "1"),
        series("", "unknown.example.com", "", "1"),
        series("1.36", "unused.example.com", "", "0"),
        "apiserver_requested_deprecated_apis{".to_owned(),
    ];
    let mut objects = WorkloadObjects::default();
    objects.add_metrics(&text.join("\n"));
    let reason = "RemovedAPIRequested a client has requested";
    assert_eq!(
        said(&objects, &["v1.35.4", "v1.36.3+w"]),
        [
            format!("v1.35.4 {reason} v1beta1 foos/status, which Kubernetes 1.35 no longer serves"),
            format!("v1.36.3 {reason} example.com/v1beta1 foos, which Kubernetes 1.36 no longer serves"),
        ]
    );
}

fn pods(number: usize) -> Vec<Value> {
    let pod = |number| json!({"metadata": {"name": format!("p{number}"), "namespace": "shop"}});
    (0..number).map(pod).collect()
}

#[test]
fn many_findings_of_a_reason_are_counted() {
    let objects = read(List::Pods, &pods(OF_REASON));
    assert_eq!(said(&objects, &["v1.36.3"]).len(), OF_REASON);
    let objects = read(List::Pods, &pods(5_000));
    let said = said(&objects, &["v1.36.3"]);
    assert_eq!(said.len(), OF_REASON + 1);
    assert_eq!(said[OF_REASON], " PodWithoutController and 4980 more");
}

#[test]
fn without_a_step_nothing_is_warned_of() {
    assert_eq!(findings(&read(List::Pods, &pods(1)), &[]), []);
}

#[test]
fn a_summary_names_one_object_of_each_reason() {
    assert_eq!(summary(&WorkloadObjects::default(), "v1.36.3"), None);
    let mut objects = read(List::Pods, &pods(3));
    objects
        .add(List::Budgets, &page(&[budget(&json!({}), &counted(1, 1, 1))], ""))
        .unwrap();
    let (reason, text) = summary(&objects, "v1.36.3").unwrap();
    assert_eq!(reason, "EvictionNeverAllowed");
    assert_eq!(
        text,
        "v1.36.3: PodDisruptionBudget shop/db: 1 of 1 Pods must stay; \
         Pod shop/p0 has no controller: a drain deletes it for good (and 2 more)"
    );
}

#[rstest]
#[case::nothing(
    WorkloadObjects::default(),
    "ObjectsNotChecked",
    "v1.36.3: not all objects were checked"
)]
#[case::a_pod(
    read(List::Pods, &pods(1)),
    "PodWithoutController",
    "v1.36.3: not all objects were checked; Pod shop/p0 has no controller: a drain deletes it for good"
)]
fn a_summary_names_incomplete_lists(
    #[case] objects: WorkloadObjects,
    #[case] reason: &'static str,
    #[case] text: &str,
) {
    assert_eq!(
        summary(&objects.incomplete(), "v1.36.3"),
        Some((reason, text.to_owned()))
    );
}

#[test]
fn a_list_is_read_page_by_page() {
    let first = List::Pods.request(500, None).unwrap();
    assert_eq!(first.uri().path(), "/api/v1/pods");
    let query = first.uri().query().unwrap();
    assert!(
        query.contains("limit=500") && query.contains("fieldSelector=status.phase"),
        "{query}"
    );
    assert!(
        first.headers()["accept"]
            .to_str()
            .unwrap()
            .contains("as=PartialObjectMetadataList")
    );
    let mut objects = WorkloadObjects::default();
    assert_eq!(
        objects
            .add(List::Pods, &page(&pods(2), "next"))
            .unwrap()
            .as_deref(),
        Some("next")
    );
    let second = List::Budgets.request(500, Some("next")).unwrap();
    assert_eq!(second.uri().path(), "/apis/policy/v1/poddisruptionbudgets");
    assert!(second.uri().query().unwrap().contains("continue=next"));
    assert_eq!(objects.add(List::Pods, &page(&pods(1), "")).unwrap(), None);
    assert_eq!(objects.pods.len(), 3);
}

/// A workload cluster is untrusted.
#[rstest]
#[case::no_json("<html>".to_owned())]
#[case::no_list(json!({"kind": "Status", "items": null}).to_string())]
#[case::nothing("{}".to_owned())]
#[case::odd_items(json!({"kind": "PodList", "items": [{"metadata": 1}]}).to_string())]
#[case::too_many_items(format!("{{\"kind\": \"PodList\", \"items\": [{}{{\"metadata\":{{}}}}]}}", "{\"metadata\":{}},".repeat(300_000)))]
fn other_content_is_a_failure(#[case] text: String) {
    let mut objects = WorkloadObjects::default();
    assert!(objects.add(List::Pods, &text).is_err());
    assert_eq!(objects, WorkloadObjects::default());
}

#[test]
fn names_are_escaped_and_bounded() {
    let metadata = json!({"name": "a\u{1b}[31m".repeat(500), "namespace": "shop"});
    let mut objects = read(List::Pods, &[json!({"metadata": metadata})]).incomplete();
    let status = json!({"nodeInfo": {"kubeletVersion": "v1.31.0"}});
    let node = json!({"metadata": metadata, "status": status});
    objects.add(List::Nodes, &page(&[node], "")).unwrap();
    let budget = json!({"metadata": metadata, "status": counted(1, 1, 1)});
    objects.add(List::Budgets, &page(&[budget], "")).unwrap();
    let (_, text) = summary(&objects, "v1.36.3").unwrap();
    assert!(
        !text.contains('\u{1b}') && text.chars().count() == LONGEST_SUMMARY,
        "{text}"
    );
    assert!(text.contains(NOT_ALL_CHECKED), "{text}");
}

proptest! {
    #[test]
    fn any_metrics_are_read(text in "(apiserver_requested_deprecated_apis\\{)?.{0,80}") {
        let mut objects = WorkloadObjects::default();
        objects.add_metrics(&text);
        prop_assert!(findings(&objects, &hops(&["v1.36.3"])).len() <= 1);
    }
}
