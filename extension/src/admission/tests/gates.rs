//! Reviews of UpgradeGates, over an API server that decides rights.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http_body_util::Full;
use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::lock::lock;

/// Response to a SubjectAccessReview.
enum Reply {
    /// Whether the account has the right.
    Decided(bool),
    /// An error response with this status code.
    Refused(u16),
    Never,
}

/// Specs of the received SubjectAccessReviews.
type Asked = Arc<Mutex<Vec<Value>>>;

/// Returns webhooks over an API server that serves HelmChartProxies, and decides rights by their attributes.
fn webhooks(decide: fn(&Value) -> Reply) -> (Admission, Asked) {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let service = service_fn(move |request: HttpRequest<kube::client::Body>| {
        let asked = Arc::clone(&noted);
        async move {
            let path = request.uri().path().to_owned();
            let content = request.into_body().collect().await.unwrap().to_bytes();
            let (code, answer) = match path.as_str() {
                "/apis/addons.cluster.x-k8s.io/v1alpha1" => (200, resources()),
                "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                    let spec = serde_json::from_slice::<Value>(&content).unwrap()["spec"].take();
                    let reply = decide(&spec["resourceAttributes"]);
                    lock(&asked).push(spec);
                    match reply {
                        Reply::Decided(allowed) => (201, decided(allowed)),
                        Reply::Refused(code) => (code, failure(code)),
                        Reply::Never => pending().await,
                    }
                }
                _ => (404, failure(404)),
            };
            let body = Full::new(Bytes::from(answer.to_string()));
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    let admission = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Deny),
        AdmissionMetrics::default(),
    );
    admission.set_rights(Rights::new(kube::Client::new(service, "default")));
    (admission, asked)
}

fn resources() -> Value {
    let proxies = json!({
        "name": "helmchartproxies", "singularName": "helmchartproxy", "kind": "HelmChartProxy", "namespaced": true, "verbs": ["get"],
    });
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "addons.cluster.x-k8s.io/v1alpha1",
        "resources": [proxies],
    })
}

fn decided(allowed: bool) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": {},
        "status": {"allowed": allowed},
    })
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "", "message": "", "code": code})
}

/// A check of each side.
fn gate() -> Value {
    json!({
        "mode": "Enforce",
        "clusterSelector": {},
        "before": "ControlPlane",
        "versions": [{"kubernetes": "1.35", "values": {"chart": "1.18.2", "image": "v1.18.2"}}],
        "checks": [
            {
                "name": "chart",
                "object": {"apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cilium"},
                "versionKey": "chart",
            },
            {
                "name": "agent",
                "cluster": "Workload",
                "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "cilium"},
                "container": "cilium-agent",
                "versionKey": "image",
            },
        ],
    })
}

/// Returns a review of a gate that Ada writes.
fn written(new: &Value, old: Option<&Value>) -> Value {
    let mut review = body(new, old);
    let request = &mut review["request"];
    request["kind"] = json!({"group": "lifecycle.sluice.dev", "version": "v1alpha1", "kind": "UpgradeGate"});
    request["userInfo"] =
        json!({"username": "ada", "uid": "7", "groups": ["ops"], "extra": {"scope": ["x"]}});
    review
}

async fn reviewed(admission: &Admission, review: &Value) -> Value {
    let (status, text) = ask_of(admission, Webhook::Gate, review.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["response"].take()
}

fn message(response: &Value) -> &str {
    response["status"]["message"].as_str().unwrap()
}

/// The account of the review is asked for, not that of Sluice.
#[tokio::test(start_paused = true)]
async fn the_rights_of_the_author_are_asked_for() {
    let (admission, asked) = webhooks(|_| Reply::Decided(true));
    let response = reviewed(&admission, &written(&gate(), None)).await;
    assert_eq!(
        (&response["uid"], &response["allowed"]),
        (&json!("f3c1"), &json!(true))
    );
    let mut asked = lock(&asked).clone();
    asked.sort_by_key(|spec| spec["resourceAttributes"]["verb"].to_string());
    let of = |verb: &str, group: &str, resource: &str, name: &str| {
        json!({
            "user": "ada", "uid": "7", "groups": ["ops"], "extra": {"scope": ["x"]},
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "namespace": "team-a", "name": name,
            },
        })
    };
    assert_eq!(
        asked,
        [
            of("get", "addons.cluster.x-k8s.io", "helmchartproxies", "cilium"),
            of("read-workload", "lifecycle.sluice.dev", "upgradegates", ""),
        ]
    );
}

#[rstest]
#[case::management(
    "get",
    "spec.checks[0].object.name",
    "user \"ada\" may not get helmchartproxies.addons.cluster.x-k8s.io \"cilium\""
)]
#[case::workload(
    "read-workload",
    "spec.checks[1].cluster",
    "user \"ada\" may not read-workload upgradegates.lifecycle.sluice.dev"
)]
#[tokio::test(start_paused = true)]
async fn an_author_without_a_right_is_refused(#[case] verb: &str, #[case] field: &str, #[case] says: &str) {
    let decide: fn(&Value) -> Reply = match verb {
        "get" => |right: &Value| Reply::Decided(right["verb"] != "get"),
        _ => |right: &Value| Reply::Decided(right["verb"] != "read-workload"),
    };
    let (admission, _asked) = webhooks(decide);
    let response = reviewed(&admission, &written(&gate(), None)).await;
    assert_eq!(response["allowed"], false);
    assert!(message(&response).contains(says), "{response}");
    let cause = &response["status"]["details"]["causes"][0];
    assert_eq!(cause["field"], field, "{response}");
}

/// Unlike other reviews: nothing else checks the rights of the author.
#[rstest]
#[case::silent(|_: &Value| Reply::Never, "the API server did not answer in time; try again", 2)]
#[case::failing(|_: &Value| Reply::Refused(500), "the API server answers with 500; try again", 0)]
#[case::forbidden(
    |_: &Value| Reply::Refused(403),
    "add a ClusterRole that allows to create subjectaccessreviews in group authorization.k8s.io",
    0
)]
#[tokio::test(start_paused = true)]
async fn a_gate_is_refused_while_a_right_is_not_known(
    #[case] decide: fn(&Value) -> Reply,
    #[case] says: &str,
    #[case] seconds: u64,
) {
    let (admission, _asked) = webhooks(decide);
    let began = Later::now();
    let response = reviewed(&admission, &written(&gate(), None)).await;
    assert_eq!(began.elapsed().as_secs(), seconds);
    assert_eq!(response["allowed"], false);
    assert_eq!(
        (&response["status"]["code"], &response["status"]["reason"]),
        (&json!(503), &json!("ServiceUnavailable"))
    );
    assert!(message(&response).contains(says), "{response}");
}

#[tokio::test(start_paused = true)]
async fn no_gate_is_decided_without_a_client() {
    let admission = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Deny),
        AdmissionMetrics::default(),
    );
    let (status, text) = ask_of(&admission, Webhook::Gate, written(&gate(), None).to_string()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
}

/// For example, a controller adds a finalizer or a label, and an operator ends a hold.
#[rstest]
#[case::labels(&json!({}))]
#[case::audit(&json!({"mode": "Audit"}))]
#[tokio::test(start_paused = true)]
async fn an_update_that_reads_nothing_else_needs_no_right(#[case] change: &Value) {
    let admission = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Deny),
        AdmissionMetrics::default(),
    );
    let mut new = gate();
    new.as_object_mut()
        .unwrap()
        .extend(change.as_object().unwrap().clone());
    let mut review = written(&new, Some(&gate()));
    review["request"]["object"]["metadata"]["labels"] = json!({"a": "b"});
    let response = reviewed(&admission, &review).await;
    assert_eq!(response, json!({"uid": "f3c1", "allowed": true}));
}

/// Sluice reads its objects until it is gone.
#[tokio::test(start_paused = true)]
async fn a_gate_that_is_being_deleted_is_reviewed() {
    let (admission, _asked) = webhooks(|_| Reply::Decided(false));
    let mut other = gate();
    other["checks"][0]["object"]["name"] = json!("other");
    let mut review = written(&other, Some(&gate()));
    review["request"]["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let response = reviewed(&admission, &review).await;
    assert_eq!(response["allowed"], false);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_gate_is_refused_before_any_lookup() {
    let (admission, asked) = webhooks(|_| Reply::Decided(true));
    let mut range = gate();
    range["versions"][0]["values"]["chart"] = json!("^1.18");
    let response = reviewed(&admission, &written(&range, None)).await;
    let says = "UpgradeGate.lifecycle.sluice.dev \"one\" is invalid: spec.versions[0].values.chart: Invalid value: \"^1.18\": a range";
    assert!(message(&response).starts_with(says), "{response}");
    assert_eq!(lock(&asked).len(), 0);
}

#[rstest]
#[case::no_account(|body: &mut Value| body["request"]["userInfo"] = Value::Null, "request.userInfo is missing")]
#[case::odd_groups(|body: &mut Value| body["request"]["userInfo"]["groups"] = json!("ops"), "request.userInfo: field groups")]
#[tokio::test(start_paused = true)]
async fn a_review_without_an_author_is_malformed(#[case] edit: Edit, #[case] says: &str) {
    let (admission, asked) = webhooks(|_| Reply::Decided(true));
    let mut review = written(&gate(), None);
    edit(&mut review);
    let (status, text) = ask_of(&admission, Webhook::Gate, review.to_string()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(text.contains(says), "{text}");
    assert_eq!(lock(&asked).len(), 0);
}

#[rstest]
#[case::a_deletion(|body: &mut Value| body["request"]["operation"] = json!("DELETE"))]
#[case::a_status(|body: &mut Value| body["request"]["subResource"] = json!("status"))]
#[tokio::test(start_paused = true)]
async fn reviews_of_gates_without_a_rule_are_admitted(#[case] edit: Edit) {
    let (admission, _asked) = webhooks(|_| Reply::Decided(false));
    let mut review = written(&gate(), None);
    edit(&mut review);
    assert_eq!(reviewed(&admission, &review).await["allowed"], true);
}

/// Any Pod may send reviews, and each one asks for several rights.
#[tokio::test(start_paused = true)]
async fn reviews_of_one_peer_do_not_pile_up() {
    let (admission, _asked) = webhooks(|_| Reply::Never);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..LOOKUPS / 2 {
        let admission = admission.clone();
        asking.spawn(async move { reviewed(&admission, &written(&gate(), None)).await });
    }
    tokio::time::sleep(LOOKUP_TIMEOUT / 2).await;
    let began = Later::now();
    let (status, _) = ask_of(&admission, Webhook::Gate, written(&gate(), None).to_string()).await;
    assert_eq!(
        (status, began.elapsed()),
        (StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO)
    );
    for response in asking.join_all().await {
        assert_eq!(response["allowed"], false);
    }
}

/// Other webhooks decide without lookups then. This one refuses, unless its verdict depends on no right.
#[tokio::test(start_paused = true)]
async fn a_review_without_a_share_of_the_lookups_is_refused_as_busy() {
    let (admission, asked) = webhooks(|_| Reply::Decided(true));
    let mut registry = Registry::default();
    admission.0.metrics.register(&mut registry);
    let shares_of = |last: u8| {
        let peer = IpAddr::from([192, 0, 2, last]);
        let lookups = &admission.0.lookups;
        (0..).map_while(move |_| lookups.take(&peer))
    };
    let taken: Vec<_> = (0..8).flat_map(shares_of).collect();
    assert_eq!(taken.len(), LOOKUPS);

    let (status, text) = ask_of(&admission, Webhook::Gate, written(&gate(), None).to_string()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert!(text.contains("too many reviews at once; try again"), "{text}");
    assert_eq!(lock(&asked).len(), 0);
    let mut counted = String::new();
    encode(&mut counted, &registry).unwrap();
    let busy = r#"sluice_admission_reviews_total{webhook="upgradegate",outcome="Busy"} 1"#;
    assert!(counted.contains(busy), "{counted}");
    let mut audit = gate();
    audit["mode"] = json!("Audit");
    let way_out = reviewed(&admission, &written(&audit, Some(&gate()))).await;
    assert_eq!(way_out["allowed"], true);

    drop(taken);
    assert_eq!(
        reviewed(&admission, &written(&gate(), None)).await["allowed"],
        true
    );
}

/// `--packages` and `--gates` decide which webhooks exist.
#[rstest]
#[case::gates_only(false, true)]
#[case::packages_only(true, false)]
#[case::both(true, true)]
#[tokio::test(start_paused = true)]
async fn only_webhooks_of_enabled_features_exist(#[case] packages: bool, #[case] gates: bool) {
    let admission = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Deny),
        AdmissionMetrics::default(),
    );
    for webhook in Webhook::ALL {
        let request = HttpRequest::post(webhook.path()).body(Body::from("{")).unwrap();
        let answer = admission.router(packages, gates).oneshot(request).await;
        let expected = if webhook == Webhook::Gate { gates } else { packages };
        let exists = answer.unwrap().status() != StatusCode::NOT_FOUND;
        assert_eq!(exists, expected, "{webhook:?}");
    }
}
