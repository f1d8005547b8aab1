//! The serving certificate at the start and when it is rotated.

use std::fs;

use jiff::Timestamp;
use rstest::rstest;
use sluice::server::serve::{Error, Metrics, Server, TlsConfig};

use crate::authority::{Authority, Mount, Pair};
use crate::peer::{Listener, Peer, loopback, quick, soon, tls, until};

async fn refusal(mount: &Mount) -> Error {
    Server::bind(loopback(Some(tls(mount)), quick()), Metrics::default())
        .await
        .expect_err("a bad pair is refused")
}

#[rstest]
#[case::no_certificate(
    "tls.crt",
    None,
    "CertificateUnreadable",
    "read serving certificate <dir>/tls.crt: No such file or directory (os error 2)"
)]
#[case::no_key(
    "tls.key",
    None,
    "CertificateUnreadable",
    "read serving key <dir>/tls.key: No such file or directory (os error 2)"
)]
#[case::empty_certificate(
    "tls.crt",
    Some(""),
    "CertificateInvalid",
    "parse serving certificate <dir>/tls.crt: no certificate in it"
)]
#[case::garbage_key(
    "tls.key",
    Some("garbage"),
    "CertificateInvalid",
    "parse serving key <dir>/tls.key: no items found"
)]
#[tokio::test]
async fn a_bad_file_at_the_start_is_named(
    #[case] file: &str,
    #[case] content: Option<&str>,
    #[case] reason: &str,
    #[case] text: &str,
) {
    let mount = Mount::new(&Authority::new().sign());
    let path = mount.path().join("..data").join(file);
    match content {
        None => fs::remove_file(path).unwrap(),
        Some(content) => fs::write(path, content).unwrap(),
    }

    let error = refusal(&mount).await;

    let dir = mount.path().display().to_string();
    assert!(
        error.to_string().replace(&dir, "<dir>").starts_with(text),
        "{error}"
    );
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    assert_eq!(error.reason(), reason);
}

#[tokio::test]
async fn a_key_of_another_certificate_is_refused_at_the_start() {
    let authority = Authority::new();
    let mount = Mount::new(&Pair {
        key: authority.sign().key,
        ..authority.sign()
    });

    let error = refusal(&mount).await;

    let text = error.to_string();
    assert_eq!(error.reason(), "CertificateMismatch", "{text}");
    assert!(text.contains("tls.crt") && text.contains("tls.key"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = loopback(None, quick());
    config.address = taken.local_addr().unwrap();

    let error = Server::bind(config.clone(), Metrics::default())
        .await
        .expect_err("the port is taken");

    let text = error.to_string();
    assert!(
        text.starts_with(&format!("listen on {}: ", config.address)),
        "{text}"
    );
    assert!(text.ends_with("; change --a-flag"), "{text}");
}

/// The leaf that a new connection is shown.
async fn shown(peer: &Peer, listener: &Listener) -> Vec<u8> {
    peer.connect(listener.address).await.unwrap().leaf.to_vec()
}

#[tokio::test]
async fn a_rotated_certificate_is_taken_up_and_old_connections_go() {
    let authority = Authority::new();
    let mut mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let peer = Peer::trusting(&authority).offering(&["h2"]);
    let mut old = peer.connect(listener.address).await.unwrap();
    let before = old.leaf.to_vec();
    let slow = old.get("/slow");
    let both = async {
        let rotate = async {
            listener.entered.notified().await;
            mount.swap(&authority.sign());
            until(
                "the new certificate",
                || shown(&peer, &listener),
                |leaf| *leaf != before,
            )
            .await;
            listener.release.notify_one();
        };
        tokio::join!(slow, rotate)
    };
    let (slow, ()) = soon("the slow request and the rotation", Box::pin(both)).await;

    assert!(
        slow.is_ok(),
        "a request in flight survives the rotation: {slow:?}"
    );
    drop(slow);
    soon("the old connection to be sent away", &mut old.task)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn an_old_http_1_1_connection_goes_with_its_next_answer() {
    let authority = Authority::new();
    let mut mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let peer = Peer::trusting(&authority);
    let mut old = peer.connect(listener.address).await.unwrap();
    assert!(!old.get("/").await.unwrap().headers().contains_key("connection"));
    let before = old.leaf.to_vec();

    mount.swap(&authority.sign());
    until(
        "the new certificate",
        || shown(&peer, &listener),
        |leaf| *leaf != before,
    )
    .await;

    soon("an answer that closes", async {
        while !old
            .get("/")
            .await
            .expect("never closed between requests")
            .headers()
            .contains_key("connection")
        {}
    })
    .await;
    soon("the connection to end", &mut old.task)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_bad_rotation_keeps_the_old_pair_until_a_good_one_comes() {
    let authority = Authority::new();
    let first = authority.sign();
    let mut mount = Mount::new(&first);
    let listener = Listener::start(tls(&mount), quick()).await;
    let peer = Peer::trusting(&authority);
    let before = shown(&peer, &listener).await;
    let errors = async || certificate_errors(&listener);

    for bad in [
        Pair {
            key: authority.sign().key,
            ..authority.sign()
        },
        Pair {
            certificate: String::new(),
            ..authority.sign()
        },
        Pair {
            key: first.key[..first.key.len() / 2].to_owned(),
            ..first.clone()
        },
        authority.sign_until(2020),
    ] {
        let so_far = certificate_errors(&listener);
        mount.swap(&bad);
        until("two refusals", errors, |errors| *errors >= so_far + 2).await;
        assert_eq!(shown(&peer, &listener).await, before);
    }

    mount.swap(&authority.sign());
    until(
        "the good pair",
        || shown(&peer, &listener),
        |leaf| *leaf != before,
    )
    .await;
    assert_eq!(listener.certificate.check(Timestamp::now()), Ok(()));
}

fn certificate_errors(listener: &Listener) -> u64 {
    let mut registry = prometheus_client::registry::Registry::default();
    listener.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("certwatcher_read_certificate_errors_total "));
    line.expect("the counter is registered").parse().unwrap()
}

#[tokio::test]
async fn no_request_fails_in_fifty_rotations_under_load() {
    let authority = Authority::new();
    let mut mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let load = |protocols: &'static [&'static str]| {
        let (peer, stop) = (Peer::trusting(&authority).offering(protocols), stop.clone());
        let address = listener.address;
        tokio::spawn(async move {
            let mut served = 0_u64;
            while !stop.is_cancelled() {
                let mut connection = peer.connect(address).await.expect("a handshake");
                while !stop.is_cancelled() && !connection.is_closed() {
                    match connection.text("/").await {
                        Ok(_) => served += 1,
                        // What Go's client sends again: a request that no byte was written of.
                        Err(error) if error.is_canceled() => break,
                        Err(error) => panic!("after {served} requests: {error:?}"),
                    }
                }
            }
            served
        })
    };
    let peers = [load(&["h2"]), load(&["http/1.1"])];
    let peer = Peer::trusting(&authority);

    for _ in 0..50 {
        let before = shown(&peer, &listener).await;
        mount.swap(&authority.sign());
        until(
            "the new certificate",
            || shown(&peer, &listener),
            |leaf| *leaf != before,
        )
        .await;
    }
    stop.cancel();

    for peer in peers {
        let served = soon("the load to stop", peer).await.unwrap();
        assert!(served > 50, "only {served} requests");
    }
}

#[tokio::test]
async fn an_expired_certificate_is_served_and_reported() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign_until(2020));
    let config = TlsConfig { ..tls(&mount) };

    let server = Server::bind(loopback(Some(config), quick()), Metrics::default())
        .await
        .unwrap();

    let health = server.certificate().unwrap();
    assert_eq!(
        health.check(Timestamp::now()),
        Err("serving certificate expired at 2020-01-01T00:00:00Z".to_owned())
    );
}
