//! The listener of the admission webhooks, beside that of hooks.

use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;

use axum::{Router, routing::post as on_post};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::authority::Authority;
use crate::peer::{Connection, soon};
use crate::replica::{Api, Replica};

const PATH: &str = "/validate-run-tanzu-vmware-com-v1alpha3-clusterbootstrap";

const OF_GATES: &str = "/validate-lifecycle-sluice-dev-v1alpha1-upgradegate";

/// More than the listener takes.
const CONNECTIONS: usize = 200;

async fn post(connection: &mut Connection, path: &str, body: impl Into<Bytes>) -> (StatusCode, String) {
    let request = Request::post(format!("https://localhost{path}")).header("host", "localhost");
    let sent = connection.send(request.body(Full::new(body.into())).unwrap());
    let answer = soon("an answer", sent).await.unwrap();
    let status = answer.status();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&text).into_owned())
}

fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "run.tanzu.vmware.com", "version": "v1alpha3", "kind": "ClusterBootstrap"},
            "name": "one", "namespace": "team-a", "operation": "CREATE",
            "object": {"metadata": {"name": "one", "namespace": "team-a"}, "spec": {}},
        },
    })
}

#[tokio::test]
async fn a_flood_of_reviews_takes_nothing_from_hooks() {
    let replica = Replica::start(Api::Empty, &[]).await;
    replica.until("/readyz", 200).await;
    let mut flood = JoinSet::new();
    let mut refused = 0;
    for _ in 0..CONNECTIONS {
        let Some(mut connection) = replica.connect_for_reviews().await else {
            refused += 1;
            continue;
        };
        flood.spawn(async move {
            loop {
                // It ends with the process.
                let body = Full::new(Bytes::from_static(&[b'['; 4096]));
                let request = Request::post(format!("https://localhost{PATH}"))
                    .body(body)
                    .unwrap();
                let Ok(answer) = connection.send(request).await else {
                    return;
                };
                assert_ne!(answer.status(), StatusCode::OK);
                let _ = answer.into_body().collect().await;
            }
        });
    }
    assert!(refused > 0, "an address has its share of the connections");
    for call in 0..50 {
        let answer = replica.ask(&format!("one-{call}")).await;
        assert_eq!(answer["status"], "Success", "{answer}");
    }
    flood.shutdown().await;
}

#[tokio::test]
async fn what_is_no_review_is_refused_with_its_reason() {
    let replica = Replica::start(Api::Empty, &[]).await;
    replica.until("/livez/reconciler", 200).await;
    let mut connection = replica.connect_for_reviews().await.unwrap();

    let (status, answer) = post(&mut connection, PATH, review().to_string()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let response = &answer["response"];
    assert_eq!(
        (&response["uid"], &response["allowed"]),
        (&json!("1"), &json!(false))
    );
    let message = response["status"]["message"].as_str().unwrap();
    let says = "ClusterBootstrap.run.tanzu.vmware.com \"one\" is invalid: [spec.cni: Invalid value: \"null\": package can't be nil";
    assert!(message.starts_with(says), "{message}");

    let large = "x".repeat(8 * 1024 * 1024 + 1);
    for (path, body, status, says) in [
        (
            PATH,
            "{".to_owned(),
            StatusCode::BAD_REQUEST,
            "no AdmissionReview",
        ),
        (PATH, large, StatusCode::PAYLOAD_TOO_LARGE, "8 MiB"),
        ("/validate", review().to_string(), StatusCode::NOT_FOUND, ""),
    ] {
        let (answered, text) = post(&mut connection, path, body).await;
        assert_eq!(answered, status, "{text}");
        assert!(text.contains(says), "{text}");
    }
    let metrics = replica.probe("/metrics").await.1;
    for outcome in ["Refused", "Malformed", "TooLarge"] {
        let counted =
            format!("sluice_admission_reviews_total{{webhook=\"clusterbootstrap\",outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&counted), "no {counted}");
    }
}

/// On shared connections a flood of reviews would delay the renewal of the lease.
#[tokio::test]
async fn what_reviews_ask_of_the_api_server_has_connections_of_its_own() {
    let replica = Replica::start(Api::Empty, &[]).await;
    replica.until("/livez/reconciler", 200).await;
    let mut connection = replica.connect_for_reviews().await.unwrap();
    for number in 0..3 {
        let mut review = review();
        let by = json!({"apiGroup": "values.example.com", "kind": format!("Kind{number}"), "name": "one"});
        review["request"]["object"]["spec"] = json!({
            "kapp": {"refName": "kapp-controller.x.1.0.0"},
            "cni": {"refName": "antrea.x.1.0.0", "valuesFrom": {"providerRef": by}},
        });
        let (status, answer) = post(&mut connection, PATH, review.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let of = |paths: &[&str]| -> BTreeSet<u16> {
        let of_path = |path: &&str| replica.connections(path).0;
        paths.iter().flat_map(of_path).collect()
    };
    let of_reviews = of(&["/apis", "/packages/antrea.x.1.0.0"]);
    let lists = [
        "/clusters",
        "/clusterclasses",
        "/clusterbootstraps",
        "/clusterbootstraptemplates",
        "/machinedeployments",
        "/machinepools",
        "/osimages",
        "/packages",
        "/tanzukubernetesreleases",
    ];
    let of_lists = of(&lists);
    assert!(!of_reviews.is_empty() && !of_lists.is_empty());
    let shared: Vec<_> = of_reviews.intersection(&of_lists).collect();
    assert!(shared.is_empty(), "lists and reviews share {shared:?}");
}

#[tokio::test]
async fn without_a_certificate_of_the_authorities_that_are_asked_for_nothing_is_answered() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("ca.crt");
    std::fs::write(&path, Authority::new().pem()).unwrap();
    let replica = Replica::start(Api::Empty, &["--admission-client-ca", path.to_str().unwrap()]).await;
    replica.until("/livez/reconciler", 200).await;
    let answered = async {
        let mut connection = replica.connect_for_reviews().await?;
        let request = Request::post(format!("https://localhost{PATH}")).header("host", "localhost");
        let sent = connection.send(request.body(Full::new(review().to_string().into())).unwrap());
        soon("an end", sent).await.ok()
    };
    assert!(answered.await.is_none());
    let hook = replica.ask("one").await;
    assert_eq!(hook["status"], "Success", "hooks have no such rule");
}

/// An API server that answers nothing but rights, of which Ada alone has any.
fn with_rights() -> Router {
    let decide = |body: Bytes| async move {
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let decided = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": {},
            "status": {"allowed": asked["spec"]["user"] == "ada"},
        });
        (StatusCode::CREATED, decided.to_string())
    };
    Router::new()
        .route(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            on_post(decide),
        )
        .fallback(pending::<StatusCode>)
}

/// A review of a gate that this user creates. It checks a DaemonSet of workload clusters.
fn review_of_gate(user: &str) -> Value {
    let object =
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "cilium"});
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "lifecycle.sluice.dev", "version": "v1alpha1", "kind": "UpgradeGate"},
            "name": "cni", "namespace": "team-a", "operation": "CREATE",
            "userInfo": {"username": user},
            "object": {
                "metadata": {"name": "cni", "namespace": "team-a"},
                "spec": {
                    "mode": "Audit", "clusterSelector": {}, "before": "ControlPlane",
                    "checks": [{"name": "agent", "cluster": "Workload", "object": object, "healthOnly": true}],
                },
            },
        },
    })
}

/// Sends a review of a gate. Sluice has a client some milliseconds after it listens.
async fn reviewed_gate(connection: &mut Connection, user: &str) -> (StatusCode, String) {
    let body = review_of_gate(user).to_string();
    let reviewed = async {
        loop {
            let answered = post(connection, OF_GATES, body.clone()).await;
            if answered.0 != StatusCode::SERVICE_UNAVAILABLE {
                return answered;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    soon("a review of a gate", reviewed).await
}

/// No list is answered, so the replica neither leads nor knows a Cluster.
#[tokio::test]
async fn gates_are_reviewed_without_packages_and_lists() {
    let replica = Replica::start(Api::Of(with_rights()), &["--packages=false"]).await;
    let mut connection = replica.connect_for_reviews().await.unwrap();
    for (user, allowed) in [("ada", true), ("eve", false)] {
        let (status, answer) = reviewed_gate(&mut connection, user).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["response"]["allowed"], allowed, "{answer}");
    }
    let (status, _) = post(&mut connection, PATH, review().to_string()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn without_gates_there_is_no_webhook_for_them() {
    let replica = Replica::start(Api::Empty, &["--gates=false"]).await;
    replica.until("/livez/reconciler", 200).await;
    let mut connection = replica.connect_for_reviews().await.unwrap();
    let (status, _) = post(&mut connection, OF_GATES, review_of_gate("ada").to_string()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}
