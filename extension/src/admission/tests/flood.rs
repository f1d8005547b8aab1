//! Reviews that no API server sends: any Pod may send any body, any number of times.

use std::{convert::Infallible, net::Ipv4Addr};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use tokio::task::{JoinHandle, yield_now};

use super::*;
use crate::{
    cache::control_plane::tests::{GROUP, Server},
    kube_client::scripted_server::Answer,
};

const MIB: usize = 1024 * 1024;

/// Returns peers at addresses of their own.
fn peers<const N: usize>() -> [Peer; N] {
    let mut last = 0;
    [(); N].map(|()| {
        last += 1;
        Peer::at(Ipv4Addr::new(192, 0, 2, last).into())
    })
}

async fn ask_from(
    admission: &Admission,
    webhook: Webhook,
    peer: &Peer,
    body: impl Into<Body>,
) -> axum::response::Response {
    let request = HttpRequest::post(webhook.path()).extension(peer.clone());
    admission
        .answer(webhook, request.body(body.into()).unwrap())
        .await
}

/// Sends a review in a task of its own, and waits for its start.
async fn begun(
    admission: &Admission,
    webhook: Webhook,
    peer: &Peer,
    body: impl Into<Body>,
) -> JoinHandle<axum::response::Response> {
    let (admission, peer, body) = (admission.clone(), peer.clone(), body.into());
    let asking = tokio::spawn(async move { ask_from(&admission, webhook, &peer, body).await });
    for _ in 0..8 {
        yield_now().await;
    }
    asking
}

/// Pads a review to this many bytes.
fn padded(review: &Value, bytes: usize) -> String {
    format!("{review}{}", " ".repeat(bytes))
}

/// Returns a body that begins and does not end.
fn half_sent(bytes: usize) -> Body {
    let begun = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b' '; bytes]))]);
    Body::from_stream(begun.chain(stream::pending()))
}

fn plain_spec() -> Value {
    let mut plain = spec();
    plain["cni"]["valuesFrom"] = Value::Null;
    plain
}

const BOOTSTRAP: Webhook = Webhook::Validate(Kind::Bootstrap);

/// Peers and their bodies of 4 MiB, up to the limit of each.
const FULL: [usize; 5] = [0, 0, 0, 1, 2];

/// Reviews of 4 MiB, which wait for lookups.
#[tokio::test(start_paused = true)]
async fn a_review_is_counted_until_it_is_answered() {
    let network = Frozen::of("/secrets/values");
    let (admission, _following) = admission(&network).await;
    network.set(true);
    let slow = padded(&body(&spec(), None), 4 * MIB - 1024);
    let (peers, mut waiting) = (peers::<4>(), Vec::new());
    for of in FULL {
        waiting.push(begun(&admission, BOOTSTRAP, &peers[of], slow.clone()).await);
    }
    let large = padded(&body(&plain_spec(), None), 4 * MIB - 1024);
    for of in [0, 3] {
        let refused = ask_from(&admission, BOOTSTRAP, &peers[of], large.clone()).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    let small = ask_from(
        &admission,
        BOOTSTRAP,
        &peers[3],
        body(&plain_spec(), None).to_string(),
    )
    .await;
    assert_eq!(small.status(), StatusCode::OK, "small bodies have their own");
    for answer in waiting {
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    let admitted = ask_from(&admission, BOOTSTRAP, &peers[3], large).await;
    assert_eq!(admitted.status(), StatusCode::OK, "the memory was given back");
}

/// The patch contains the additional packages as written.
#[tokio::test(start_paused = true)]
async fn an_answer_is_counted_until_it_is_read_or_given_up() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let values = json!({"inline": {"text": "x".repeat(4 * MIB - 64 * 1024)}});
    let own = json!({"additionalPackages": [{"refName": "own.x.1.0.0", "valuesFrom": values}], "cni": {"refName": "calico*"}});
    let review = partial(&own, "v1").to_string();
    let (peers, mut unread) = (peers::<4>(), Vec::new());
    let ask = |of: usize| ask_from(&admission, Webhook::Default, &peers[of], review.clone());
    for of in FULL {
        let answer = ask(of).await;
        assert_eq!(answer.status(), StatusCode::OK);
        unread.push(answer);
    }
    assert_eq!(ask(3).await.status(), StatusCode::SERVICE_UNAVAILABLE);

    let whole = unread
        .pop()
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    assert!(whole.len() > 4 * MIB, "{}", whole.len());
    let admitted = ask(3).await;
    assert_eq!(admitted.status(), StatusCode::OK, "one was read");
    unread.push(admitted);
    assert_eq!(ask(3).await.status(), StatusCode::SERVICE_UNAVAILABLE);

    tokio::time::sleep(Duration::from_secs(11)).await;
    let again = [ask(3).await, ask(3).await];
    assert!(
        again.iter().all(|answer| answer.status() == StatusCode::OK),
        "they were given up after 10 s"
    );
    let late = unread.pop().unwrap().into_body().collect().await;
    assert!(late.is_err(), "nothing is left of it");
}

/// Half-sent reviews of one peer.
#[tokio::test(start_paused = true)]
async fn one_peer_leaves_memory_for_a_large_review_of_another() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let peers = peers::<2>();
    for _ in 0..10 {
        begun(&admission, BOOTSTRAP, &peers[0], half_sent(2 * MIB)).await;
    }
    // Old and new object: 1.5 MiB each in etcd, and the JSON around them.
    let largest = padded(&body(&plain_spec(), None), 5 * MIB);
    let answer = ask_from(&admission, BOOTSTRAP, &peers[1], largest).await;
    assert_eq!(answer.status(), StatusCode::OK);
}

/// One thread serves all, so a peer with very many connections must not get a turn for each of them.
#[tokio::test(start_paused = true)]
async fn reviews_of_one_peer_take_turns() {
    let (admission, _following) = admission(&Frozen::new()).await;
    let (peers, review) = (peers::<2>(), body(&plain_spec(), None).to_string());
    let mut unfinished = Vec::new();
    for _ in 0..4 {
        unfinished.push(begun(&admission, BOOTSTRAP, &peers[0], half_sent(10)).await);
    }
    let mut own = begun(&admission, BOOTSTRAP, &peers[0], review.clone()).await;
    assert!(
        (&mut own).now_or_never().is_none(),
        "four of its reviews are being read"
    );
    let began = Later::now();
    let other = ask_from(&admission, BOOTSTRAP, &peers[1], review.clone()).await;
    assert_eq!(
        (other.status(), began.elapsed()),
        (StatusCode::OK, Duration::ZERO)
    );
    assert_eq!(own.await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(began.elapsed(), Duration::from_secs(1), "no review waits longer");
    for late in unfinished {
        assert_eq!(late.await.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
    }
    let again = ask_from(&admission, BOOTSTRAP, &peers[0], review).await;
    assert_eq!(again.status(), StatusCode::OK, "once they were given up");
}

/// Returns webhooks that know these Clusters, whose control planes are at `server`.
async fn knowing(clusters: Vec<Value>, server: &Server) -> (Admission, Requeues, JoinHandle<()>) {
    let client = Frozen::new().client(move |path| {
        if path.ends_with("/clusters") {
            clusters.clone()
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
    let triggers = Requeues::default();
    let control_planes = ControlPlanes::new(
        server.client(),
        triggers.clone(),
        Vec::new(),
        Rollbacks::default(),
    );
    admission.set_caches(Caches::new(
        stores,
        Arc::new(control_planes),
        settings(),
        server.client(),
    ));
    (admission, triggers, following)
}

/// Returns a Cluster with the data of its machines, if that is left in it.
fn cluster(name: &str, kind: &str, has_data: bool) -> Value {
    let entry = json!({"kubernetesSpec": {}, "osImageRef": {}, "labels": {"run.tanzu.vmware.com/tkr": "v1.35.4---a.1"}});
    let data = json!([{"name": "TKR_DATA", "value": {"v1.35.4": entry}}]);
    json!({
        "metadata": {"name": name, "namespace": "team-a", "labels": {"run.tanzu.vmware.com/tkr": "v1.35.4---a.1"}},
        "spec": {
            "controlPlaneRef": {"apiGroup": GROUP, "kind": kind, "name": "one"},
            "topology": {
                "classRef": {"name": "class"}, "version": "v1.35.4", "variables": if has_data { data } else { json!([]) },
            },
        },
    })
}

/// Returns a review of an update that depends on the versions of machines.
fn update(name: &str, kind: &str) -> String {
    let mut review = of_cluster("v1.35.4");
    review["request"]["name"] = json!(name);
    review["request"]["operation"] = json!("UPDATE");
    review["request"]["object"] = cluster(name, kind, false);
    review["request"]["oldObject"] = cluster(name, kind, true);
    review.to_string()
}

async fn resolved_as(admission: &Admission, name: &str, kind: &str) -> StatusCode {
    ask_from(admission, Webhook::Resolve, &Peer::default(), update(name, kind))
        .await
        .status()
}

#[tokio::test(start_paused = true)]
async fn an_uncached_cluster_is_neither_kept_nor_read() {
    let server = Server::new(Some(Answer::Refusal(500)));
    let (admission, triggers, _following) = knowing(vec![cluster("known", "Bad", true)], &server).await;
    let mut requeues = triggers.listen();
    let before = server.times_asked();
    for number in 0..100 {
        let began = Later::now();
        let status = resolved_as(&admission, &format!("unknown-{number}"), "Bad").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(began.elapsed(), Duration::ZERO, "it does not wait for a Cluster");
    }
    assert_eq!(server.times_asked(), before, "the API server was asked nothing");

    let known = resolved_as(&admission, "known", "Bad").await;
    assert_eq!(known, StatusCode::OK, "its entries stay as they were");
    server.set(|state| state.bad = None);
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(resolved_as(&admission, "known", "Bad").await, StatusCode::OK);
    assert!(requeues.next().now_or_never().is_none(), "no Cluster is requeued");
}

/// Sluice serves the kind of the stored Cluster, whatever kind a caller names.
#[tokio::test(start_paused = true)]
async fn a_caller_does_not_choose_the_kind_of_a_control_plane() {
    let server = Server::new(None);
    let (admission, _triggers, _following) = knowing(vec![cluster("known", "Good", true)], &server).await;
    assert_eq!(resolved_as(&admission, "known", "Bad").await, StatusCode::OK);
    assert!(server.asked_for("/apis/controlplane.example.com/v1/goods"));
    assert!(!server.asked_for("/apis/controlplane.example.com/v1/bads"));
}

/// Small maps take much more memory than text.
#[tokio::test(start_paused = true)]
async fn a_review_that_waits_is_counted_as_it_is_decoded() {
    let server = Server::new(Some(Answer::Never));
    let (admission, _triggers, _following) = knowing(vec![cluster("slow", "Bad", true)], &server).await;
    let mut review: Value = serde_json::from_str(&update("slow", "Bad")).unwrap();
    for object in ["object", "oldObject"] {
        let (pools, blocks) = (vec![json!({}); 1990], vec![json!(""); 3000]);
        let spec = &mut review["request"][object]["spec"];
        spec["topology"]["workers"] = json!({"machineDeployments": pools});
        spec["clusterNetwork"] = json!({"services": {"cidrBlocks": blocks}});
    }
    let (peer, review) = (Peer::at(Ipv4Addr::LOCALHOST.into()), review.to_string());
    assert!(review.len() < MIB / 16, "{} bytes", review.len());
    let began = Later::now();
    let mut asking = Vec::new();
    for _ in 0..16 {
        asking.push(begun(&admission, Webhook::Resolve, &peer, review.clone()).await);
    }
    let waiting = asking.iter().filter(|asking| !asking.is_finished()).count();
    assert!((1..8).contains(&waiting), "{waiting} reviews wait");
    for answer in asking {
        assert_eq!(answer.await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert!(began.elapsed() > Duration::from_secs(1), "some have waited");
}

/// Tenants create Clusters of kinds that do not exist, and cause reviews of each.
#[tokio::test(start_paused = true)]
async fn kinds_of_reviews_are_discovered_a_few_times_a_minute() {
    let server = Server::new(None);
    let clusters: Vec<Value> = (0..100)
        .map(|number| cluster(&format!("c{number}"), &format!("Kind{number}"), true))
        .collect();
    let (admission, _triggers, _following) = knowing(clusters, &server).await;
    for minute in 1..=3 {
        for _ in 0..2 {
            for number in 0..100 {
                resolved_as(&admission, &format!("c{number}"), &format!("Kind{number}")).await;
            }
            tokio::time::sleep(Duration::from_secs(29)).await;
        }
        let asked = server.count_of("/apis");
        assert!(asked <= 12 * minute, "{asked} discoveries within {minute} min");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

fn provided_by(kind: &str) -> String {
    let mut spec = spec();
    let by = json!({"apiGroup": "values.example.com", "kind": kind, "name": "one"});
    spec["cni"]["valuesFrom"] = json!({"providerRef": by});
    body(&spec, None).to_string()
}

#[tokio::test(start_paused = true)]
async fn kinds_that_provide_values_are_discovered_a_few_times_a_minute() {
    let server = Server::new(None);
    let (admission, _triggers, _following) = knowing(Vec::new(), &server).await;
    let asked_of = async |kind: &str| {
        let answer = ask_from(&admission, BOOTSTRAP, &Peer::default(), provided_by(kind)).await;
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(text.to_vec()).unwrap()
    };
    for _ in 0..50 {
        let text = asked_of("Known").await;
        assert!(
            text.contains("unable to find server preferred resource"),
            "{text}"
        );
    }
    assert_eq!(
        server.count_of("/apis"),
        1,
        "one kind is discovered once in a minute"
    );
    for number in 0..100 {
        asked_of(&format!("Kind{number}")).await;
    }
    assert!(server.count_of("/apis") <= 6, "{}", server.count_of("/apis"));
    let text = asked_of("Other").await;
    assert!(text.contains("was not looked up: too many kinds"), "{text}");
}
