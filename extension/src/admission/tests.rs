//! Reviews from their bytes to their responses, over an in-memory API server.

use std::time::Duration;

use axum::body::Body;
use http::Request as HttpRequest;
use http_body_util::BodyExt as _;
use prometheus_client::{encoding::text::encode, registry::Registry};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::{reconcile::cluster::Settings, schedule::SyncPeriod};
use tokio::time::Instant as Later;

mod flood;
mod gate_in_force;
mod gates;
mod overrides;
mod upgrades;

use super::*;
use crate::{
    cache::{
        control_plane::ControlPlanes, event_handlers::EventHandlers, frozen::Frozen, rollbacks::Rollbacks,
        stores::Stores,
    },
    queue::requeues::Requeues,
};

/// Returns filled stores and the task that keeps them up to date.
async fn filled(client: &kube::Client) -> (Stores, tokio::task::JoinHandle<()>) {
    let (stores, following) = Stores::open(client, "system", &EventHandlers::default());
    let following = tokio::spawn(following);
    stores.synced().await;
    (stores, following)
}

fn caches(stores: Stores, client: kube::Client) -> Caches {
    let control_planes = ControlPlanes::new(
        client.clone(),
        Requeues::default(),
        Vec::new(),
        Rollbacks::default(),
    );
    Caches::new(stores, Arc::new(control_planes), settings(), client)
}

/// Returns these checks of plans, without that of the gate.
const fn plans(upgrade: UpgradeChecks) -> Checks {
    Checks {
        upgrade,
        gate: GateNotInForce::Off,
    }
}

fn settings() -> Settings {
    Settings {
        system_namespace: "system".to_owned(),
        extension_configs: Vec::new(),
        sync_period: SyncPeriod {
            length: Duration::from_mins(10),
            since: Instant::now(),
        },
        deletion_limit: Duration::from_mins(10),
    }
}

/// Returns a review of a ClusterBootstrap `new` that was `old`.
fn body(new: &Value, old: Option<&Value>) -> Value {
    let object = |spec: &Value| json!({"metadata": {"name": "one", "namespace": "team-a"}, "spec": spec});
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "f3c1",
            "kind": {"group": "run.tanzu.vmware.com", "version": "v1alpha3", "kind": "ClusterBootstrap"},
            "name": "one",
            "namespace": "team-a",
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "object": object(new),
            "oldObject": old.map(object),
        },
    })
}

fn spec() -> Value {
    json!({
        "kapp": {"refName": "kapp-controller.x.1.0.0"},
        "cni": {"refName": "antrea.x.1.0.0", "valuesFrom": {"secretRef": "values"}},
    })
}

fn package(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": format!("{name}.x.{version}"), "namespace": "system"},
        "spec": {"refName": format!("{name}.x"), "version": version, "template": {}},
    })
}

/// Returns webhooks that know the packages of [`spec`]. The task keeps the caches up to date.
async fn admission(network: &Frozen) -> (Admission, tokio::task::JoinHandle<()>) {
    let client = network.client(|path| {
        if path.ends_with("/packages") {
            vec![
                package("kapp-controller", "1.0.0"),
                package("antrea", "1.0.0"),
                package("antrea", "0.9.0"),
            ]
        } else if path.ends_with("/tanzukubernetesreleases") {
            let names = ["kapp-controller.x.1.0.0", "antrea.x.1.0.0", "calico.x.1.0.0"];
            vec![json!({
                "metadata": {"name": "v1"},
                "spec": {
                    "version": "v1", "kubernetes": {"version": "v1"},
                    "bootstrapPackages": names.map(|name| json!({"name": name})),
                },
            })]
        } else if path.ends_with("/clusterbootstraptemplates") {
            let template = |name: &str, additional: &str| {
                json!({
                    "metadata": {"name": name, "namespace": "system"},
                    "spec": {
                        "kapp": {"refName": "kapp-controller.x.1.0.0", "valuesFrom": {"inline": {"a": 1.50}}},
                        "cni": {"refName": "antrea.x.1.0.0"},
                        "additionalPackages": [{"refName": additional}],
                    },
                })
            };
            vec![template("v0", "early.x.1.0.0"), template("v1", "metrics.x.1.0.0")]
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

async fn ask(admission: &Admission, body: impl Into<Body>) -> (StatusCode, String) {
    ask_of(admission, Webhook::Validate(Kind::Bootstrap), body).await
}

async fn ask_of(admission: &Admission, webhook: Webhook, body: impl Into<Body>) -> (StatusCode, String) {
    let request = HttpRequest::post(webhook.path()).body(body.into()).unwrap();
    let answer = admission.answer(webhook, request).await;
    let status = answer.status();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(text.to_vec()).unwrap())
}

async fn response(admission: &Admission, body: &Value) -> Value {
    let (status, text) = ask(admission, body.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["response"]["uid"], "f3c1");
    answer["response"].clone()
}

#[tokio::test(start_paused = true)]
async fn reviews_are_answered_as_the_api_server_reads_them() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let good = response(&admission, &body(&spec(), None)).await;
    assert_eq!(good, json!({"uid": "f3c1", "allowed": true}));

    let mut lower = spec();
    lower["cni"]["refName"] = json!("antrea.x.0.9.0");
    let refused = response(&admission, &body(&lower, Some(&spec()))).await;
    assert_eq!(refused["allowed"], false);
    let status = &refused["status"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(422), &json!("Invalid"))
    );
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.cni.refName");
    assert!(
        cause["message"]
            .as_str()
            .unwrap()
            .contains("package downgrade is not allowed"),
        "{cause}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_review_is_decided_before_the_caches_are_filled() {
    let admission = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Deny),
        AdmissionMetrics::default(),
    );
    let (status, text) = ask(&admission, body(&spec(), None).to_string()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
}

/// An unresponsive API server delays only writes that need lookups, by two seconds.
#[tokio::test(start_paused = true)]
async fn a_silent_api_server_is_a_warning_after_two_seconds() {
    let network = Frozen::of("/secrets/values");
    let (admission, _following) = admission(&network).await;
    network.set(true);
    let began = Later::now();
    let slow = tokio::spawn({
        let admission = admission.clone();
        async move { response(&admission, &body(&spec(), None)).await }
    });
    tokio::task::yield_now().await;
    let mut plain = spec();
    plain["cni"]["valuesFrom"] = Value::Null;
    let other = response(&admission, &body(&plain, None)).await;
    assert_eq!(
        (other["allowed"].clone(), began.elapsed()),
        (json!(true), Duration::ZERO)
    );

    let warned = slow.await.unwrap();
    assert_eq!(began.elapsed(), LOOKUP_TIMEOUT);
    assert_eq!(warned["allowed"], true);
    let says =
        "spec.cni.valuesFrom.secretRef: \"values\" was not looked up: the API server did not answer in time";
    assert_eq!(warned["warnings"], json!([says]));
}

#[tokio::test(start_paused = true)]
async fn reviews_are_counted_by_code_and_while_they_are_in_flight() {
    let (metrics, mut registry) = (AdmissionMetrics::default(), Registry::default());
    metrics.register(&mut registry);
    let moved = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let series = text
            .lines()
            .filter(|line| line.starts_with("controller_runtime") && !line.contains("_bucket"));
        let moved = series.filter(|line| !line.ends_with(" 0") && !line.contains("_sum"));
        let mut moved: Vec<_> = moved
            .map(|line| line.replace("controller_runtime_webhook_", ""))
            .collect();
        moved.sort_unstable();
        moved
    };
    let admission = Admission::new("system".to_owned(), plans(UpgradeChecks::Deny), metrics);
    let never = || Body::from_stream(futures::stream::pending::<Result<&str, std::io::Error>>());
    let mut waiting = Box::pin(ask(&admission, never()));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(moved(), [r#"requests_in_flight{webhook="clusterbootstrap"} 1"#]);
    drop(waiting);
    assert_eq!(moved(), Vec::<String>::new(), "the caller is gone");

    for (body, code) in [
        (Body::from("{"), StatusCode::BAD_REQUEST),
        (
            Body::from(body(&spec(), None).to_string()),
            StatusCode::SERVICE_UNAVAILABLE,
        ),
        (never(), StatusCode::REQUEST_TIMEOUT),
    ] {
        assert_eq!(ask(&admission, body).await.0, code);
    }
    let mut connect = body(&spec(), None);
    connect["request"]["operation"] = json!("CONNECT");
    response(&admission, &connect).await;
    assert_eq!(
        moved(),
        [
            r#"latency_seconds_count{webhook="clusterbootstrap"} 4"#,
            r#"requests_total{webhook="clusterbootstrap",code="200"} 1"#,
            r#"requests_total{webhook="clusterbootstrap",code="400"} 1"#,
            r#"requests_total{webhook="clusterbootstrap",code="408"} 1"#,
            r#"requests_total{webhook="clusterbootstrap",code="503"} 1"#,
        ]
    );
}

/// Reviews of a peer beyond those for which something is looked up do not wait for them.
#[tokio::test(start_paused = true)]
async fn many_reviews_do_not_pile_up() {
    let network = Frozen::of("/secrets/values");
    let (admission, _following) = admission(&network).await;
    network.set(true);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..LOOKUPS / 2 {
        let admission = admission.clone();
        asking.spawn(async move { response(&admission, &body(&spec(), None)).await });
    }
    tokio::time::sleep(LOOKUP_TIMEOUT / 2).await;
    let began = Later::now();
    let beyond = response(&admission, &body(&spec(), None)).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    let says = "spec.cni.valuesFrom.secretRef: \"values\" was not looked up: too many reviews at once";
    assert_eq!(beyond["warnings"], json!([says]));
    asking.join_all().await;
    network.set(false);
    assert_eq!(
        response(&admission, &body(&spec(), None)).await["warnings"],
        Value::Null
    );
}

type Edit = fn(&mut Value);

#[rstest]
#[case::another_api(|body: &mut Value| body["apiVersion"] = json!("admission.k8s.io/v1beta1"), "apiVersion is \"admission.k8s.io/v1beta1\"")]
#[case::no_request(|body: &mut Value| body["request"] = Value::Null, "it has no request")]
#[case::another_kind(|body: &mut Value| body["request"]["kind"]["kind"] = json!("Cluster"), "request.kind.kind is \"Cluster\"")]
#[case::another_version(|body: &mut Value| body["request"]["kind"]["version"] = json!("v1beta2"), "request.kind.version is \"v1beta2\"")]
#[case::no_object(|body: &mut Value| body["request"]["object"] = Value::Null, "request.object is missing")]
#[case::no_old_object(|body: &mut Value| body["request"]["operation"] = json!("UPDATE"), "request.oldObject is missing")]
#[case::a_spec_of_another_type(|body: &mut Value| body["request"]["object"]["spec"] = json!([1]), "invalid")]
#[tokio::test(start_paused = true)]
async fn a_malformed_review_is_refused_with_its_reason(#[case] edit: Edit, #[case] says: &str) {
    let (admission, _following) = admission(&Frozen::new()).await;
    let mut review = body(&spec(), None);
    edit(&mut review);
    let (status, text) = ask(&admission, review.to_string()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(text.contains(says), "{text}");
}

#[rstest]
#[case::a_deletion(|body: &mut Value| body["request"]["operation"] = json!("DELETE"))]
#[case::a_status(|body: &mut Value| body["request"]["subResource"] = json!("status"))]
#[case::an_object_that_goes(|body: &mut Value| body["request"]["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"))]
#[tokio::test(start_paused = true)]
async fn reviews_without_a_rule_are_admitted(#[case] edit: Edit) {
    let (admission, _following) = admission(&Frozen::new()).await;
    let mut review = body(&json!({}), None);
    edit(&mut review);
    assert_eq!(response(&admission, &review).await["allowed"], true);
}

#[tokio::test(start_paused = true)]
async fn large_and_odd_objects_are_read() {
    let (admission, _following) = admission(&Frozen::new()).await;
    // Values of 1 MB, old and new, which differ only there, and fields that no definition has.
    let with = |values: &str| {
        let mut spec = spec();
        spec["cni"]["valuesFrom"] = json!({"inline": {"text": values.repeat(1 << 20)}});
        spec["cni"]["odd"] = json!({"a": [1, 2]});
        spec
    };
    let update = body(&with("b"), Some(&with("a")));
    assert_eq!(
        response(&admission, &update).await,
        json!({"uid": "f3c1", "allowed": true})
    );

    // The kept part of a body is bounded, whatever its lists and names.
    let mut many = spec();
    many["additionalPackages"] = json!(vec![json!({"refName": "antrea.x.1.0.0"}); 10_000]);
    let refused = response(&admission, &body(&many, None)).await;
    let message = refused["status"]["message"].to_string();
    assert!(message.contains("lists more than 128 packages"), "{message}");
    let mut long = spec();
    long["cni"]["refName"] = json!("n".repeat(1 << 20));
    let refused = response(&admission, &body(&long, None)).await.to_string();
    assert!(
        refused.contains("no Package can have this name") && refused.len() < 4096,
        "{}",
        refused.len()
    );
}

/// Returns a review of the completion webhook, of a ClusterBootstrap with this annotation.
fn partial(spec: &Value, release: &str) -> Value {
    let mut review = body(spec, None);
    let key = "tkg.tanzu.vmware.com/add-missing-fields-from-tkr";
    review["request"]["object"]["metadata"]["annotations"] = json!({key: release, "other": "x"});
    review
}

async fn completed(admission: &Admission, body: &Value) -> Value {
    let (status, text) = ask_of(admission, Webhook::Default, body.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["response"].take()
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_patched_and_nothing_else() {
    let (admission, _following) = admission(&Frozen::new()).await;
    // Numbers and fields that a decoder would not preserve.
    let own = json!({
        "cni": {"refName": "calico*", "valuesFrom": {"inline": {"a": 1.50, "big": 12_345_678_901_234_567_890_u64}}},
        "additionalPackages": [
            {"refName": "own.x.1.0.0", "valuesFrom": {"inline": {"odd": [1.0]}}},
            {"refName": "antrea*", "valuesFrom": {"inline": {"x": 1.50}}},
        ],
    });
    let answer = completed(&admission, &partial(&own, "v1")).await;
    assert_eq!(
        (&answer["allowed"], &answer["patchType"]),
        (&json!(true), &json!("JSONPatch"))
    );
    let patch = base64::Engine::decode(
        &base64::prelude::BASE64_STANDARD,
        answer["patch"].as_str().unwrap(),
    );
    let patch: Value = serde_json::from_slice(&patch.unwrap()).unwrap();
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    assert_eq!(
        patch,
        json!([
            add("/spec/kapp", json!({"refName": "kapp-controller.x.1.0.0"})),
            add("/spec/cni/refName", json!("calico.x.1.0.0")),
            add(
                "/spec/additionalPackages",
                json!([
                    {"refName": "metrics.x.1.0.0"},
                    own["additionalPackages"][0],
                    own["additionalPackages"][1],
                ])
            ),
            add("/spec/additionalPackages/2/refName", json!("antrea.x.1.0.0")),
        ])
    );

    let nothing = completed(&admission, &body(&json!({}), None)).await;
    assert_eq!(
        nothing,
        json!({"uid": "f3c1", "allowed": true}),
        "it does not ask for it"
    );
    let mut owned = partial(&json!({}), "v1");
    owned["request"]["object"]["metadata"]["ownerReferences"] = json!([{"kind": "Cluster"}]);
    let owned = completed(&admission, &owned).await;
    assert_eq!(
        owned,
        json!({"uid": "f3c1", "allowed": true}),
        "it was completed before"
    );
}

/// The stored spec of an adopted ClusterBootstrap.
fn adopted() -> Value {
    json!({
        "kapp": {"refName": "kapp-controller.x.1.0.0", "valuesFrom": {"inline": {"a": 1.50}}},
        "cni": {"refName": "antrea.x.1.0.0", "valuesFrom": {"inline": {"x": 1.0}}},
        "additionalPackages": [{"refName": "metrics.x.1.0.0"}, {"refName": "own.x.1.0.0"}],
    })
}

const RESOLVED: &str = "lifecycle.sluice.dev/resolved-tkr";

/// Replaces an adopted ClusterBootstrap by a file without its owner and record. Returns the object with the patch, and the response.
async fn replaced(admission: &Admission, stored: &Value, own: &Value) -> (Value, Value) {
    let mut review = partial(own, "v1");
    review["request"]["operation"] = json!("UPDATE");
    review["request"]["oldObject"] = json!({
        "metadata": {
            "name": "one", "namespace": "team-a", "ownerReferences": [{"kind": "Cluster"}],
            "annotations": {"tkg.tanzu.vmware.com/add-missing-fields-from-tkr": "v1", RESOLVED: "v1"},
        },
        "spec": stored,
    });
    let answer = completed(admission, &review).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let patch = base64::Engine::decode(
        &base64::prelude::BASE64_STANDARD,
        answer["patch"].as_str().unwrap(),
    );
    let steps: Vec<Value> = serde_json::from_slice(&patch.unwrap()).unwrap();
    let mut object = review["request"]["object"].take();
    for step in steps {
        let (parent, key) = step["path"].as_str().unwrap().rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        let key = key.replace("~1", "/");
        match step["op"].as_str().unwrap() {
            "add" => drop(parent.insert(key, step["value"].clone())),
            "remove" => assert!(parent.remove(&key).is_some(), "{step}"),
            other => panic!("{other}"),
        }
    }
    (object, answer)
}

/// A file in Git that is applied again after the Cluster has adopted the ClusterBootstrap.
#[tokio::test(start_paused = true)]
async fn a_partial_one_that_is_applied_again_changes_nothing() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let stored = adopted();
    // As a client-side apply merges it, and as a replacement.
    let merged = json!({
        "kapp": stored["kapp"],
        "cni": {"refName": "antrea*", "valuesFrom": {"inline": {"x": 1.0}}},
        "additionalPackages": [{"refName": "own.x.1.0.0"}],
    });
    let mut shortened = merged.clone();
    shortened["kapp"] = json!({"refName": "kapp-controller*"});
    let mut without = merged.clone();
    without["kapp"] = Value::Null;
    // As a server-side apply leaves fields of other owners.
    let mut unnamed = merged.clone();
    unnamed["kapp"] = json!({"valuesFrom": stored["kapp"]["valuesFrom"]});
    unnamed["cpi"] = json!({});
    for own in [merged, shortened, without, unnamed] {
        let (object, answer) = replaced(&admission, &stored, &own).await;
        assert_eq!(object["spec"], stored);
        assert_eq!(object["metadata"]["annotations"][RESOLVED], "v1");
        assert_eq!(object["metadata"]["annotations"]["other"], "x");
        assert_eq!(answer["warnings"], Value::Null);
    }
    // The spec needs no completion.
    let (object, _) = replaced(&admission, &stored, &stored).await;
    assert_eq!(object["metadata"]["annotations"][RESOLVED], "v1");
}

/// A replacement without any annotation. The snapshot of many packages is restored as a whole.
#[tokio::test(start_paused = true)]
async fn a_snapshot_stays_as_it_was() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let snapshot = "s".repeat(60 * 1024);
    for annotations in [None, Some(json!({})), Some(Value::Null)] {
        let mut review = body(&spec(), Some(&spec()));
        let key = "lifecycle.sluice.dev/rollback-to";
        review["request"]["oldObject"]["metadata"]["annotations"] = json!({key: snapshot});
        let has_some = annotations.as_ref().is_some_and(Value::is_object);
        if let Some(annotations) = annotations {
            review["request"]["object"]["metadata"]["annotations"] = annotations;
        }
        let answer = completed(&admission, &review).await;
        let patch = base64::Engine::decode(
            &base64::prelude::BASE64_STANDARD,
            answer["patch"].as_str().unwrap(),
        );
        let steps: Vec<Value> = serde_json::from_slice(&patch.unwrap()).unwrap();
        let object = json!({"op": "add", "path": "/metadata/annotations", "value": {}});
        let of_snapshot = "/metadata/annotations/lifecycle.sluice.dev~1rollback-to";
        let restored = json!({"op": "add", "path": of_snapshot, "value": snapshot});
        let expected = if has_some {
            vec![restored]
        } else {
            vec![object, restored]
        };
        assert_eq!(steps, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn values_that_were_filled_in_stay_with_another_version() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let mut own = adopted();
    own["kapp"] = json!({"refName": "kapp-controller.x.2.0.0"});
    let mut expected = adopted();
    expected["kapp"]["refName"] = json!("kapp-controller.x.2.0.0");
    let (object, _) = replaced(&admission, &adopted(), &own).await;
    assert_eq!(object["spec"], expected);
}

#[tokio::test(start_paused = true)]
async fn values_of_a_user_do_not_come_back() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let mut stored = adopted();
    stored["kapp"]["valuesFrom"]["inline"] = json!({"a": 2});
    let mut own = adopted();
    own["kapp"] = json!({"refName": "kapp-controller*"});
    let (object, _) = replaced(&admission, &stored, &own).await;
    assert_eq!(
        object["spec"]["kapp"],
        json!({"refName": "kapp-controller.x.1.0.0"})
    );
}

/// Also if only the template of another release has the package.
#[tokio::test(start_paused = true)]
async fn an_edit_without_effect_is_warned_of() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let mut stored = adopted();
    stored["additionalPackages"][0]["refName"] = json!("early.x.1.0.0");
    let mut own = stored.clone();
    own["additionalPackages"].as_array_mut().unwrap().remove(0);
    let (object, answer) = replaced(&admission, &stored, &own).await;
    assert_eq!(object["spec"], stored);
    let says = "spec.additionalPackages: early.x.1.0.0 was filled in and stays; to leave it out set \"early=none\" in annotation \
                lifecycle.sluice.dev/keep-package-versions";
    assert_eq!(answer["warnings"], json!([says]));
}

#[rstest]
#[case::empty("", "it must name the TanzuKubernetesRelease")]
#[case::unknown(
    "v2",
    "tanzukubernetesreleases.run.tanzu.vmware.com \"v2\" not found; the nearest are v1"
)]
#[tokio::test(start_paused = true)]
async fn a_release_that_cannot_be_taken_is_refused(#[case] release: &str, #[case] says: &str) {
    let (admission, _following) = admission(&Frozen::new()).await;
    let answer = completed(&admission, &partial(&json!({}), release)).await;
    assert!(answer["patch"].is_null() && answer["allowed"] == false);
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains(says), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_partial_one_without_spec_is_refused() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let mut review = partial(&json!({}), "v1");
    review["request"]["object"]["spec"] = Value::Null;
    let answer = completed(&admission, &review).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("missing spec definition"), "{message}");
}

/// Returns webhooks that know one release of v1.35, and a class without the resolve annotation.
async fn resolving() -> (Admission, tokio::task::JoinHandle<()>) {
    let client = Frozen::new().client(|path| {
        if path.ends_with("/tanzukubernetesreleases") {
            vec![json!({
                "metadata": {"name": "v1.35.4---a.1"},
                "spec": {"version": "v1.35.4+a.1", "kubernetes": {"version": "v1.35.4"}, "bootstrapPackages": []},
            })]
        } else if path.ends_with("/clusterclasses") {
            vec![json!({"metadata": {"name": "class", "namespace": "team-a"}, "spec": {}})]
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

/// Returns a review of the creation of a Cluster of this version.
fn of_cluster(version: &str) -> Value {
    let mut body = body(&Value::Null, None);
    body["request"]["kind"] = json!({"group": "cluster.x-k8s.io", "version": "v1beta2", "kind": "Cluster"});
    body["request"]["object"] = json!({
        "metadata": {
            "name": "one", "namespace": "team-a", "annotations": {"run.tanzu.vmware.com/resolve-tkr": "", "other": "x"},
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"topology": {"classRef": {"name": "class"}, "version": version}},
    });
    body
}

async fn resolved(admission: &Admission, body: &Value) -> (StatusCode, String, Value) {
    let (status, text) = ask_of(admission, Webhook::Resolve, body.to_string()).await;
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    (status, text, answer["response"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_cluster_gets_its_release_as_a_patch() {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    let (admission, _following) = resolving().await;
    let (_, _, answer) = resolved(&admission, &of_cluster("v1.35")).await;
    assert_eq!(
        (&answer["allowed"], &answer["patchType"]),
        (&json!(true), &json!("JSONPatch"))
    );
    let patch = BASE64_STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&patch).unwrap(),
        json!([
            {"op": "add", "path": "/metadata/labels", "value": {"run.tanzu.vmware.com/tkr": "v1.35.4---a.1"}},
            {"op": "replace", "path": "/spec/topology/version", "value": "v1.35.4"},
        ])
    );

    let (_, _, answer) = resolved(&admission, &of_cluster("v1.36")).await;
    let message = answer["status"]["message"].as_str().unwrap();
    let begin =
        "Cluster.cluster.x-k8s.io \"one\" is invalid: spec.topology.version: Invalid value: \"v1.36\"";
    assert!(message.starts_with(begin), "{message}");

    let mut gone = of_cluster("v1.36");
    gone["request"]["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (_, _, answer) = resolved(&admission, &gone).await;
    assert_eq!(answer, json!({"uid": "f3c1", "allowed": true}));
}

/// A newer release of the same version does not break a ClusterBootstrap that pins one.
#[tokio::test(start_paused = true)]
async fn a_cluster_gets_the_release_that_its_bootstrap_pins() {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    let client = Frozen::new().client(|path| {
        if path.ends_with("/tanzukubernetesreleases") {
            let release = |build: u32| {
                json!({
                    "metadata": {"name": format!("v1.35.4---a.{build}")},
                    "spec": {
                        "version": format!("v1.35.4+a.{build}"), "kubernetes": {"version": "v1.35.4"},
                        "bootstrapPackages": [],
                    },
                })
            };
            vec![release(1), release(2)]
        } else if path.ends_with("/clusterclasses") {
            vec![json!({"metadata": {"name": "class", "namespace": "team-a"}, "spec": {}})]
        } else if path.ends_with("/clusterbootstraps") {
            let pins = json!({"tkg.tanzu.vmware.com/add-missing-fields-from-tkr": "v1.35.4---a.1"});
            vec![json!({
                "metadata": {"name": "one", "namespace": "team-a", "annotations": pins},
                "spec": {},
            })]
        } else {
            Vec::new()
        }
    });
    let (stores, _following) = filled(&client).await;
    let admission = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Deny),
        AdmissionMetrics::default(),
    );
    admission.set_caches(caches(stores, client));
    let (_, _, answer) = resolved(&admission, &of_cluster("v1.35.4")).await;
    let patch = BASE64_STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&patch).unwrap(),
        json!([{
            "op": "add", "path": "/metadata/labels", "value": {"run.tanzu.vmware.com/tkr": "v1.35.4---a.1"},
        }])
    );
}

/// Without the class it is unknown whether the entries of a Cluster may change.
#[tokio::test(start_paused = true)]
async fn a_cluster_with_a_label_waits_for_its_class() {
    let (admission, _following) = resolving().await;
    let mut labelled = of_cluster("v1.35.4");
    let object = &mut labelled["request"]["object"];
    object["metadata"]["labels"] = json!({"run.tanzu.vmware.com/tkr": "v1.35.4---a.1"});
    object["spec"]["topology"]["classRef"]["name"] = json!("other");
    let (status, text, _) = resolved(&admission, &labelled).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("has not observed ClusterClass other yet"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn reviews_wait_until_classes_are_cached() {
    let frozen = Frozen::of("clusterclasses");
    frozen.set(true);
    let (stores, following) = Stores::open(
        &frozen.client(|_| Vec::new()),
        "system",
        &EventHandlers::default(),
    );
    let following = tokio::spawn(following);
    let filled = tokio::time::timeout(Duration::from_secs(5), stores.filled_for_reviews()).await;
    assert!(filled.is_err(), "classes were not read");
    frozen.set(false);
    let filled = tokio::time::timeout(Duration::from_mins(5), stores.filled_for_reviews()).await;
    assert!(filled.is_ok(), "they are never read");
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_no_api_server_stores_is_refused() {
    let (admission, _following) = resolving().await;
    let mut long = of_cluster("v1.35");
    long["request"]["object"]["spec"]["topology"]["variables"] =
        json!([{"name": "a", "value": "x".repeat(1 << 20)}]);
    let (status, text, _) = resolved(&admission, &long).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        text.contains("no AdmissionReview of a Cluster: the spec has more than 1 MiB"),
        "{text}"
    );

    let starting = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Deny),
        AdmissionMetrics::default(),
    );
    let (status, _, _) = resolved(&starting, &of_cluster("v1.35")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}
