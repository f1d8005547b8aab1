//! Hooks over the listener, as Cluster API reaches them.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use rstest::rstest;
use serde_json::Value;
use sluice::server::serve::{Metrics, Server};
use sluice_core::gate::decision::Decision;
use sluice_core::gate::hook_call::{HookCall, OwnedHookCall};
use sluice_core::gate::retry::RetryAfter;
use sluice_core::reasons::{CallReason, HoldReason};
use sluice_hooks::{Gate, NoPlan, PlanCall, router};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::authority::{Authority, Mount};
use crate::peer::{Connection, Peer, loopback, quick, soon, tls};

const BODY: &str = include_str!("../../hooks/tests/hooks/requests/BeforeClusterUpgrade.json");
const PATH: &str =
    "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade/before-cluster-upgrade?timeout=3s";
const TOO_LARGE: usize = 20 * 1024 * 1024 + 1;

struct Releases;

impl Gate for Releases {
    fn decide(&self, call: &HookCall<'_>) -> Decision {
        assert_ne!(call.name, "bad");
        Decision::Release
    }

    async fn confirm(&self, _: OwnedHookCall, _: IpAddr) -> Decision {
        Decision::Release
    }

    async fn plan(&self, call: PlanCall, _: IpAddr) -> Result<Vec<String>, NoPlan> {
        Ok(vec![call.to])
    }
}

/// Gate that holds until its cache is synced.
#[derive(Default)]
struct StartingOnce(AtomicBool);

impl Gate for StartingOnce {
    fn decide(&self, _: &HookCall<'_>) -> Decision {
        if self.0.swap(true, Ordering::Relaxed) {
            return Decision::Release;
        }
        Decision::Hold {
            retry_after: RetryAfter::SHORTEST,
            reason: HoldReason::Call(CallReason::Starting),
            message: "Starting".into(),
        }
    }

    async fn confirm(&self, _: OwnedHookCall, _: IpAddr) -> Decision {
        Decision::Release
    }

    async fn plan(&self, call: PlanCall, _: IpAddr) -> Result<Vec<String>, NoPlan> {
        Ok(vec![call.to])
    }
}

async fn connect(protocols: &[&str]) -> (Connection, DropGuard) {
    let (peer, address, stop) = serve(Releases, protocols).await;
    (peer.connect(address).await.unwrap(), stop)
}

async fn serve(gate: impl Gate, protocols: &[&str]) -> (Peer, SocketAddr, DropGuard) {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let server = Server::bind(loopback(Some(tls(&mount)), quick()), Metrics::default())
        .await
        .unwrap();
    let address = server.local_addr();
    let stop = CancellationToken::new();
    tokio::spawn(server.run(router(gate, ()), stop.clone()));
    let peer = Peer::trusting(&authority).offering(protocols);
    (peer, address, stop.drop_guard())
}

async fn ask(connection: &mut Connection, body: impl Into<Bytes> + Debug) -> Response<Incoming> {
    let request = Request::post(format!("https://localhost{PATH}")).header("host", "localhost");
    let sent = connection.send(request.body(Full::new(body.into())).unwrap());
    soon("an answer", sent).await.unwrap()
}

async fn post(connection: &mut Connection, body: impl Into<Bytes> + Debug) -> (StatusCode, Value) {
    let answer = ask(connection, body).await;
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[rstest]
#[tokio::test]
async fn one_connection_outlives_every_bad_request(#[values("h2", "http/1.1")] protocol: &str) {
    let (mut connection, _stop) = connect(&[protocol]).await;
    for (bad, code, status) in [
        (String::new(), 200, "Failure"),
        ("null".to_owned(), 200, "Failure"),
        ("[".repeat(10_000), 200, "Failure"),
        (BODY.replace("\"one\"", "\"bad\""), 200, "Success"),
        (" ".repeat(TOO_LARGE - 1), 200, "Failure"),
    ] {
        let (got, answer) = post(&mut connection, bad).await;
        assert_eq!(
            (got.as_u16(), answer["status"].as_str()),
            (code, Some(status)),
            "{answer}"
        );

        let (got, answer) = post(&mut connection, BODY).await;
        assert_eq!(
            (got.as_u16(), answer["retryAfterSeconds"].as_i64()),
            (200, Some(0)),
            "{answer}"
        );
    }
    let (got, answer) = post(&mut connection, vec![b' '; TOO_LARGE]).await;
    assert_eq!(
        (got.as_u16(), answer["status"].as_str()),
        (413, Some("Failure")),
        "{answer}"
    );
    let (got, _) = post(&mut connection, BODY).await;
    assert_eq!(got, 200, "also after a request that was too large");
}

#[rstest]
#[case::header("http/1.1", Some("close"))]
#[case::goaway("h2", None)]
#[tokio::test]
async fn the_connection_ends_with_the_answer_of_a_starting_replica(
    #[case] protocol: &str,
    #[case] header: Option<&str>,
) {
    let (peer, address, _stop) = serve(StartingOnce::default(), &[protocol]).await;
    let mut first = peer.connect(address).await.unwrap();

    let answer = ask(&mut first, BODY).await;

    let said = answer
        .headers()
        .get("connection")
        .map(|value| value.to_str().unwrap());
    assert_eq!(said, header);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (body["status"].as_str(), body["retryAfterSeconds"].as_i64()),
        (Some("Success"), Some(1)),
        "the answer arrives whole: {body}"
    );
    soon("the connection to end", &mut first.task)
        .await
        .unwrap()
        .unwrap();

    let mut next = peer.connect(address).await.unwrap();
    let (_, body) = post(&mut next, BODY).await;
    assert_eq!(body["retryAfterSeconds"], 0, "{body}");
    let (_, body) = post(&mut next, BODY).await;
    assert_eq!(
        body["retryAfterSeconds"], 0,
        "a release keeps the connection: {body}"
    );
}
