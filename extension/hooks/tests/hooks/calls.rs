//! Hook calls as a gate receives them.

use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::gate::{decision::Decision, hook_call::LONGEST_LABELS};
use sluice_hooks::{Hook, Request, router};

use crate::caller::{always, call, changed, recorded};

/// The hook call of a body.
async fn asked(hook: Hook, body: impl Into<String>) -> String {
    let gate = always(Decision::Release);
    let asked = gate.asked.clone();
    let answer = call(&router(gate, ()), hook, body.into()).await;
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 1, "{answer:?}");
    asked[0].clone()
}

#[tokio::test]
async fn recorded_requests_ask() {
    let mut questions = Vec::new();
    for hook in Hook::ALL {
        questions.push(asked(hook, recorded(hook)).await);
    }
    insta::assert_snapshot!(questions.join("\n"));
}

#[tokio::test]
async fn the_first_step_of_a_chain_is_asked_about() {
    let body = changed(Hook::BeforeClusterUpgrade, |request| {
        request["controlPlaneUpgrades"] = json!([{"version": "v1.35.4"}, {"version": "v1.36.3"}]);
    });
    let question = asked(Hook::BeforeClusterUpgrade, body).await;
    assert!(
        question.contains("version=v1.36.3 first_step=Some(\"v1.35.4\")"),
        "{question}"
    );
}

/// The recorded Cluster as older releases of Cluster API send it.
pub(crate) fn v1beta1(cluster: &mut Value, typed: bool) {
    let fields = cluster.as_object_mut().unwrap();
    if typed {
        fields.insert("apiVersion".into(), json!("cluster.x-k8s.io/v1beta1"));
        fields.insert(
            "status".into(),
            json!({"phase": "Provisioned", "conditions": [{"type": "Ready"}]}),
        );
        cluster["metadata"]["managedFields"] = json!([{"manager": "manager", "fieldsV1": {"f:spec": {}}}]);
    } else {
        fields.remove("apiVersion");
        fields.remove("kind");
        fields.insert(
            "status".into(),
            json!({"infrastructureReady": false, "controlPlaneReady": false}),
        );
    }
    let spec = &mut cluster["spec"];
    spec["controlPlaneRef"] =
        json!({"apiVersion": "harness.test/v1", "kind": "K", "namespace": "team-a", "name": "one"});
    let topology = spec["topology"].as_object_mut().unwrap();
    topology.remove("classRef");
    topology.insert("class".into(), json!("h"));
    topology.insert(
        "variables".into(),
        json!([{"name": "TKR_DATA", "value": {"v1.36.3": {"labels": {}}}}]),
    );
}

#[rstest]
#[tokio::test]
async fn every_shape_of_the_cluster_asks_the_same(#[values(true, false)] typed: bool) {
    for hook in Hook::ALL {
        let body = changed(hook, |request| v1beta1(&mut request["cluster"], typed));
        assert_eq!(asked(hook, body).await, asked(hook, recorded(hook)).await);
    }
}

#[rstest]
#[case::absent(Value::Null, "None")]
#[case::empty(json!({"run.tanzu.vmware.com/tkr": ""}), "None")]
#[case::set(json!({"a": "b", "run.tanzu.vmware.com/tkr": "v1.36.3---sluice.1"}), r#"Some("v1.36.3---sluice.1")"#)]
#[case::another_label(json!({"run.tanzu.vmware.com/tkr-package": "x"}), "None")]
#[tokio::test]
async fn the_label_is_read(#[case] labels: Value, #[case] label: &str) {
    let hook = Hook::BeforeClusterUpgrade;
    let body = changed(hook, |request| request["cluster"]["metadata"]["labels"] = labels);
    let question = asked(hook, body).await;
    assert!(question.contains(&format!("label={label} ")), "{question}");
}

#[tokio::test]
async fn escapes_in_strings_are_undone() {
    let hook = Hook::BeforeClusterUpgrade;
    let body = recorded(hook)
        .replace(r#""name": "one""#, r#""name": "\u006fne""#)
        .replace("v1.36.3", "\\u00761.36.3");
    assert_eq!(asked(hook, body).await, asked(hook, recorded(hook)).await);
}

/// Gates select Clusters by any label. The request is valid whatever the other labels are.
#[rstest]
#[case::absent(Value::Null, None)]
#[case::none(json!({}), Some("{}"))]
#[case::texts(json!({"cni": "cilium", "run.tanzu.vmware.com/tkr": "v1"}), Some(r#"{"cni":"cilium","run.tanzu.vmware.com/tkr":"v1"}"#))]
#[case::another_type(json!({"cni": 1}), Some(r#"{"cni":1}"#))]
#[case::nothing(json!({"cni": null}), Some(r#"{"cni":null}"#))]
#[case::list(json!({"cni": [{}]}), Some(r#"{"cni":[{}]}"#))]
fn labels_are_kept_as_text(#[case] labels: Value, #[case] expected: Option<&str>) {
    for hook in Hook::ALL {
        let body = changed(hook, |request| {
            request["cluster"]["metadata"]["labels"] = labels.clone();
        });
        let request = Request::parse(hook, body.as_bytes()).unwrap();
        assert_eq!(request.call().labels, expected, "{hook}");
    }
}

/// A call that waits for a read has no share of the memory for bodies any more.
#[test]
fn labels_of_any_length_are_not_kept() {
    let hook = Hook::BeforeClusterUpgrade;
    let kept = |length: usize| {
        let labels = json!({"cni": "x".repeat(length)});
        let body = changed(hook, |request| request["cluster"]["metadata"]["labels"] = labels);
        let request = Request::parse(hook, body.as_bytes()).unwrap();
        request.call().labels.map(str::len)
    };
    let around = r#"{"cni":""}"#.len();
    assert_eq!(kept(LONGEST_LABELS - around), Some(LONGEST_LABELS));
    assert_eq!(kept(LONGEST_LABELS - around + 1), Some(0));
}
