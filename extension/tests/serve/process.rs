//! Probes and logs of the process: readiness, liveness, and responses to hooks.

use std::time::Duration;

use http::Request;
use serde_json::Value;
use sluice_proto::status::v1::ListClustersRequest;

use crate::frames::{ACK, Frames, PING};
use crate::replica::{Api, PATH, Replica, ask};

const PLAN: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/generateupgradeplan/generate-upgrade-plan";

/// Between listening and being ready without having read anything.
const STARTING: Duration = Duration::from_secs(5);

/// More lines than a pipe that is not read takes, many times.
const MORE_LINES: usize = 1_500;

/// Responses about one Cluster in the log.
fn answers<'a>(log: &'a [Value], cluster: &str) -> Vec<&'a Value> {
    log.iter()
        .filter(|line| line["message"] == "Answered hook call" && line["cluster"] == cluster)
        .collect()
}

/// A replica with an empty cache, and the responses of `/readyz` within the first five seconds.
async fn starting() -> (Replica, (u16, String)) {
    for _ in 0..10 {
        let replica = Replica::start(Api::Silent, &[]).await;
        let early = replica.probe("/readyz").await;
        // On a machine that is too busy for this it is another try.
        if replica.started.elapsed() < STARTING {
            return (replica, early);
        }
    }
    panic!("the process was never asked within {STARTING:?}")
}

#[tokio::test]
async fn a_replica_that_has_read_nothing_holds_and_is_ready_soon_and_until_it_ends() {
    let (mut replica, (status, text)) = starting().await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("[-]index failed: not synced"), "{text}");
    let held = |answer: &Value| answer["status"] == "Success" && answer["retryAfterSeconds"] == 1;
    let before = replica.ask("one").await;
    let says = "Starting: waiting for clusterbootstraps.run.tanzu.vmware.com to be listed";
    assert!(held(&before) && before["message"] == says, "{before}");

    replica.until("/readyz", 200).await;
    let after = replica.ask("one").await;
    assert_eq!(after, before, "ready, and it still has read nothing");
    assert_eq!(replica.probe("/livez/runtime").await, (200, "ok".to_owned()));

    replica.terminate();
    let text = replica.until("/readyz", 503).await;
    assert!(text.contains("[-]running failed: terminating"), "{text}");
    let last = replica.ask("two").await;
    assert!(held(&last), "hooks are answered until callers have gone: {last}");

    let ended = replica.ended().await;
    assert!(ended.success(), "{ended}");
    let log = replica.log();
    let one = answers(log, "one");
    assert_eq!(one.len(), 1, "one line for each change of an answer: {one:?}");
    assert_eq!(
        (&one[0]["answer"], &one[0]["reason"]),
        (&"hold".into(), &"Starting".into())
    );
    assert_eq!(answers(log, "two").len(), 1);
}

#[tokio::test]
async fn a_replica_that_has_read_everything_is_ready_and_watches_its_reconciler() {
    let replica = Replica::start(Api::Empty, &[]).await;

    for watched in ["reconciler", "gates"] {
        replica.until(&format!("/livez/{watched}"), 200).await;
    }

    assert_eq!(replica.probe("/readyz").await, (200, "ok".to_owned()));
    let (_, live) = replica.probe("/livez?verbose").await;
    assert_eq!(live, "[+]runtime ok\n[+]reconciler ok\n[+]gates ok\n");
    let answer = replica.ask("one").await;
    let message = answer["message"].as_str().unwrap();
    assert!(
        !message.contains("Starting") && !message.contains("to be listed"),
        "{answer}"
    );
}

#[tokio::test]
async fn the_status_service_is_watched_and_speaks_http_2_alone() {
    let replica = Replica::start(Api::Empty, &["--status-addr", "127.0.0.1:0"]).await;
    replica.until("/livez/status", 200).await;

    for protocols in [&["http/1.1"][..], &[]] {
        let answered = match replica.connect_to_status(protocols).await {
            Ok(mut connection) => connection.text("/").await.is_ok(),
            Err(_) => false,
        };
        assert!(!answered, "{protocols:?}");
    }
    let connection = replica.connect_to_status(&["h2"]).await;
    assert!(connection.is_ok_and(|connection| connection.is_h2()));
}

#[tokio::test]
async fn reviews_have_connections_of_their_own() {
    let replica = Replica::start(Api::Empty, &["--status-addr", "127.0.0.1:0"]).await;
    replica.until("/livez/reconciler", 200).await;
    let mut client = replica.status_client().await;
    for number in 0..3 {
        let mut request = tonic::Request::new(ListClustersRequest::default());
        let token = format!("Bearer {number}").parse().unwrap();
        request.metadata_mut().insert("authorization", token);
        // That API server makes no reviews.
        let refused = client.list_clusters(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    }

    let (of_reviews, others) = replica.connections("/tokenreviews");

    assert!(!of_reviews.is_empty() && !others.is_empty());
    let shared: Vec<_> = of_reviews.intersection(&others).collect();
    assert!(
        shared.is_empty(),
        "a review waits behind other requests on {shared:?}"
    );
}

#[tokio::test]
async fn every_call_is_logged_where_that_is_asked_for() {
    let mut replica = Replica::start(Api::Silent, &["--v", "4"]).await;
    for _ in 0..3 {
        replica.ask("one").await;
    }
    replica.terminate();
    replica.ended().await;
    assert_eq!(answers(replica.log(), "one").len(), 3);
}

#[tokio::test]
async fn what_is_refused_is_logged_once_for_each_kind() {
    let mut replica = Replica::start(Api::Silent, &[]).await;
    let url = |path| format!("https://localhost{path}");
    for _ in 0..3 {
        replica.call(Request::post(url(PATH)), "{").await;
        replica.call(Request::post(url(PATH)), "").await;
        assert_eq!(replica.call(Request::get(url(PATH)), "").await, 405);
        assert_eq!(replica.call(Request::post(url("/healthz")), "").await, 404);
        replica.call(Request::post(url(PLAN)), "{").await;
    }
    let (_, metrics) = replica.probe("/metrics").await;
    for (hook, count) in [("BeforeClusterUpgrade", 6), ("GenerateUpgradePlan", 3)] {
        let counted = format!("sluice_hook_requests_total{{hook=\"{hook}\",status=\"Failed\"}} {count}");
        assert!(metrics.contains(&counted), "every call is counted: {metrics}");
    }

    replica.terminate();
    replica.ended().await;
    let log = replica.log().iter();
    let refused: Vec<_> = log.filter(|line| line["message"] == "Refused request").collect();
    let reasons: Vec<_> = refused
        .iter()
        .map(|line| line["reason"].as_str().unwrap())
        .collect();
    let once = [
        "MalformedBody",
        "EmptyBody",
        "WrongMethod",
        "NotFound",
        "MalformedBody",
    ];
    assert_eq!(reasons, once, "{refused:?}");
    assert!(
        refused.iter().all(|line| line["peer"] == "127.0.0.1"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn what_is_no_request_is_logged_once() {
    let mut replica = Replica::start(Api::Silent, &[]).await;
    for _ in 0..3 {
        replica.send_plain(b"GET / HTTP/1.1\r\n\r\n").await;
    }
    let mut frames = Frames::begin(replica.handshake().await).await;
    for _ in 0..3 {
        frames.send(PING, ACK, b"unasked!").await;
    }
    frames.until_pong().await;
    drop(frames);

    replica.terminate();
    replica.ended().await;
    let ours = ["Starting", "Listening", "Stopping", "Listener stopped"];
    let log = replica.log().iter();
    let lines: Vec<_> = log
        .filter(|line| !ours.contains(&line["message"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["message"], "Refused connection");
}

#[tokio::test]
async fn a_log_that_is_not_read_stalls_nothing() {
    let mut replica = Replica::start(Api::Empty, &["--v", "4"]).await;
    replica.until("/livez/reconciler", 200).await;
    let mut connection = replica.connect().await;

    for number in 0..MORE_LINES {
        ask(&mut connection, &format!("cluster-{number}")).await;
    }

    let (status, text) = replica.probe("/livez").await;
    assert_eq!(status, 200, "{text}");
    let (_, metrics) = replica.probe("/metrics").await;
    assert!(metrics.contains("sluice_log_dropped_lines_total "), "{metrics}");
    replica.terminate();
    assert!(replica.ended().await.success());
}
