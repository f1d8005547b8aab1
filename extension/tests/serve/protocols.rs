//! Protocols that a peer may use.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use rstest::rstest;
use rustls::{ProtocolVersion, version};
use sluice::server::serve::{TlsConfig, TlsVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::authority::{Authority, Mount};
use crate::peer::{Listener, Peer, quick, soon, tls};

#[rstest]
#[case::newest(&["h2", "http/1.1"], true, true)]
#[case::http_1_1_over_tls_1_3(&["http/1.1"], true, false)]
#[case::without_alpn(&[], true, false)]
#[case::tls_1_2(&["h2", "http/1.1"], false, true)]
#[case::oldest(&[], false, false)]
#[tokio::test]
async fn both_http_versions_over_both_tls_versions(
    #[case] protocols: &[&str],
    #[case] tls_1_3: bool,
    #[case] h2: bool,
) {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let (versions, want) = if tls_1_3 {
        (&version::TLS13, ProtocolVersion::TLSv1_3)
    } else {
        (&version::TLS12, ProtocolVersion::TLSv1_2)
    };

    let peer = Peer::with(&authority, &[versions], None, protocols);
    let mut connection = peer.connect(listener.address).await.unwrap();

    assert_eq!(connection.version, want);
    assert_eq!(connection.is_h2(), h2);
    assert_eq!(connection.text("/").await.unwrap(), "quick");
    let large = Bytes::from(vec![b'x'; 3 << 20]);
    let request = Request::post("https://localhost/echo").header("host", "localhost");
    let echo = connection
        .send(request.body(Full::new(large.clone())).unwrap())
        .await
        .unwrap();
    assert_eq!(echo.into_body().collect().await.unwrap().to_bytes(), large);
}

#[tokio::test]
async fn an_answer_over_http_1_1_has_a_length() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;
    let mut connection = Peer::trusting(&authority)
        .connect(listener.address)
        .await
        .unwrap();

    let answer = connection.get("/").await.unwrap();

    assert_eq!(answer.headers()["content-length"], "5");
    assert!(!answer.headers().contains_key("transfer-encoding"));
}

#[tokio::test]
async fn tls_1_2_is_refused_where_1_3_is_asked_for() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let config = TlsConfig {
        min_version: TlsVersion::V1_3,
        ..tls(&mount)
    };
    let listener = Listener::start(config, quick()).await;

    assert!(
        Peer::with(&authority, &[&version::TLS12], None, &[])
            .connect(listener.address)
            .await
            .is_err()
    );
    assert!(
        Peer::with(&authority, &[&version::TLS13], None, &[])
            .connect(listener.address)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn where_only_http_2_is_spoken_other_peers_are_sent_away() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let config = TlsConfig {
        http2_only: true,
        ..tls(&mount)
    };
    let listener = Listener::start(config, quick()).await;
    let peer = Peer::trusting(&authority);

    for protocols in [&["http/1.1"][..], &[]] {
        let connected = peer.clone().offering(protocols).connect(listener.address).await;
        let answered = match connected {
            Ok(mut connection) => soon("the end of a connection", connection.text("/"))
                .await
                .is_ok(),
            Err(_) => false,
        };
        assert!(!answered, "{protocols:?}");
    }
    let both = peer.offering(&["http/1.1", "h2"]);
    let mut connection = both.connect(listener.address).await.unwrap();
    assert_eq!(connection.text("/").await.unwrap(), "quick");
}

#[tokio::test]
async fn plain_http_is_refused_and_harms_nobody() {
    let authority = Authority::new();
    let mount = Mount::new(&authority.sign());
    let listener = Listener::start(tls(&mount), quick()).await;

    let mut plain = TcpStream::connect(listener.address).await.unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = soon("the listener to close", plain.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");

    let mut connection = Peer::trusting(&authority)
        .connect(listener.address)
        .await
        .unwrap();
    assert_eq!(connection.text("/").await.unwrap(), "quick");
}

#[tokio::test]
async fn only_known_clients_where_authorities_are_given() {
    let (authority, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let mount = Mount::new(&authority.sign());
    let client_ca = mount.path().join("clients.crt");
    std::fs::write(&client_ca, clients.pem()).unwrap();
    let listener = Listener::start(
        TlsConfig {
            client_ca: Some(client_ca),
            ..tls(&mount)
        },
        quick(),
    )
    .await;
    let answers = async |client: Option<crate::authority::Pair>| {
        let peer = Peer::with(&authority, &[&version::TLS13], client.as_ref(), &["h2"]);
        match peer.connect(listener.address).await {
            Ok(mut connection) => connection.text("/").await.is_ok(),
            Err(_) => false,
        }
    };

    assert!(answers(Some(clients.sign())).await);
    assert!(!answers(None).await, "no certificate");
    assert!(!answers(Some(others.sign())).await, "another authority");
    assert!(!answers(Some(clients.sign_until(2020))).await, "expired");
}
