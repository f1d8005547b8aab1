//! Reviews of UpgradeOverrides, over the caches of a Cluster.

use std::{collections::BTreeSet, fs, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};

use super::*;

const RELEASE: &str = "v1.36.3---a.1";

/// Returns webhooks that know Cluster `one` and the template of the release.
async fn webhooks(network: &Frozen) -> (Admission, tokio::task::JoinHandle<()>) {
    let client = network.client(|path| {
        if path.ends_with("/clusters") {
            let metadata = json!({"name": "one", "namespace": "team-a", "uid": "u-1"});
            vec![json!({"metadata": metadata, "spec": {}})]
        } else if path.ends_with("/clusterbootstraptemplates") {
            vec![json!({
                "metadata": {"name": RELEASE, "namespace": "system"},
                "spec": {"additionalPackages": [{"refName": "metrics.x.1.0.0"}]},
            })]
        } else {
            Vec::new()
        }
    });
    let (stores, following) = filled(&client).await;
    let admission = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Deny),
        AdmissionMetrics::default(),
    );
    admission.set_caches(caches(stores, client));
    (admission, following)
}

fn of_cluster(cluster: &str) -> Value {
    json!({
        "clusterName": cluster,
        "target": {"kubernetesVersion": "v1.36.3", "release": RELEASE},
        "gate": "ControlPlane",
        "packages": ["metrics"],
        "reason": "CHG-4711",
        "expiresAt": (Timestamp::now() + SignedDuration::from_hours(1)).to_string(),
    })
}

/// Returns a review of an override that Ada creates or changes.
fn written(new: &Value, old: Option<&Value>) -> Value {
    let mut review = body(new, old);
    let request = &mut review["request"];
    request["kind"] =
        json!({"group": "lifecycle.sluice.dev", "version": "v1alpha1", "kind": "UpgradeOverride"});
    request["userInfo"] = json!({"username": "ada", "groups": ["ops"], "extra": {"scope": ["x"]}});
    review
}

async fn reviewed(admission: &Admission, review: &Value) -> Value {
    let (status, text) = ask_of(admission, Webhook::Override, review.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["response"].take()
}

/// No request follows a review, so an unresponsive API server delays none.
#[tokio::test(start_paused = true)]
async fn a_new_override_is_completed_from_the_caches() {
    let network = Frozen::new();
    let (admission, _following) = webhooks(&network).await;
    network.set(true);
    let began = Later::now();
    let response = reviewed(&admission, &written(&of_cluster("one"), None)).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(
        (&response["allowed"], &response["patchType"]),
        (&json!(true), &json!("JSONPatch"))
    );
    let patch = BASE64_STANDARD
        .decode(response["patch"].as_str().unwrap())
        .unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&patch).unwrap(),
        json!([
            {"op": "add", "path": "/spec/requestedBy", "value": "ada"},
            {"op": "add", "path": "/spec/clusterUID", "value": "u-1"},
        ])
    );

    let mut complete = of_cluster("one");
    complete["requestedBy"] = json!("ada");
    complete["clusterUID"] = json!("u-1");
    let response = reviewed(&admission, &written(&complete, None)).await;
    assert_eq!(response, json!({"uid": "f3c1", "allowed": true}));
}

#[tokio::test(start_paused = true)]
async fn an_override_without_effect_is_refused() {
    let (admission, _following) = webhooks(&Frozen::new()).await;
    let mut undecodable = of_cluster("one");
    undecodable["expiresAt"] = json!("tomorrow");
    for (spec, field) in [
        (of_cluster("two"), "spec.clusterName"),
        (undecodable, "spec.expiresAt"),
        (Value::Null, "spec"),
    ] {
        let response = reviewed(&admission, &written(&spec, None)).await;
        assert_eq!(response["allowed"], false, "{spec}");
        assert_eq!(response["patch"], Value::Null);
        let details = &response["status"]["details"];
        assert_eq!(details["kind"], "UpgradeOverride");
        assert_eq!(details["causes"][0]["field"], field);
    }
}

/// The definition refuses a change of the spec; finalizers can be written whatever the caches have.
#[tokio::test(start_paused = true)]
async fn only_creates_are_judged() {
    let (admission, _following) = webhooks(&Frozen::new()).await;
    let gone = of_cluster("two");
    let response = reviewed(&admission, &written(&gone, Some(&gone))).await;
    assert_eq!(response, json!({"uid": "f3c1", "allowed": true}));
}

#[tokio::test(start_paused = true)]
async fn no_override_is_admitted_before_the_caches_are_filled() {
    let admission = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Off),
        AdmissionMetrics::default(),
    );
    let review = written(&of_cluster("one"), None);
    let (status, text) = ask_of(&admission, Webhook::Override, review.to_string()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    let mut anonymous = review;
    anonymous["request"].as_object_mut().unwrap().remove("userInfo");
    let (status, text) = ask_of(&admission, Webhook::Override, anonymous.to_string()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
}

/// The API server calls each webhook by the path in its configuration.
#[test]
fn manifests_register_every_webhook() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base");
    let files = ["webhooks.yaml", "gate-webhook.yaml"];
    let texts = files
        .map(|file| fs::read_to_string(base.join(file)).unwrap())
        .concat();
    let registered: BTreeSet<&str> = texts
        .lines()
        .filter_map(|line| line.strip_prefix("        path: "))
        .collect();
    assert_eq!(registered, Webhook::ALL.map(Webhook::path).into());
}
