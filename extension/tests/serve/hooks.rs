//! Hooks over the listener, as Cluster API reaches them.

use std::fmt::Debug;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use rstest::rstest;
use serde_json::Value;
use sluice::serve::{Metrics, Server};
use sluice_core::decision::Decision;
use sluice_core::hook_call::HookCall;
use sluice_hooks::{Gate, router};
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
}

async fn connect(protocols: &[&str]) -> (Connection, DropGuard) {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let server = Server::bind(loopback(Some(tls(&mount)), quick()), Metrics::default())
        .await
        .unwrap();
    let address = server.local_addr();
    let stop = CancellationToken::new();
    tokio::spawn(server.run(router(Releases, ()), stop.clone()));
    let connection = Peer::trusting(&authority)
        .offering(protocols)
        .connect(address)
        .await
        .unwrap();
    (connection, stop.drop_guard())
}

async fn post(connection: &mut Connection, body: impl Into<Bytes> + Debug) -> (StatusCode, Value) {
    let request = Request::post(format!("https://localhost{PATH}")).header("host", "localhost");
    let sent = connection.send(request.body(Full::new(body.into())).unwrap());
    let answer = soon("an answer", sent).await.unwrap();
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
