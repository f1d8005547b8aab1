use std::{collections::BTreeSet, net::SocketAddr};

use base64::{Engine, engine::general_purpose::STANDARD};
use rstest::rstest;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

use super::*;
use crate::kube_client::{
    cause::cause,
    proxy_server::{self, OPENED, forward},
    tls_server::Authority,
};

/// Starts a server that sends each client back what it reads, and closes the connection.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut text = [0; 4];
            if client.read_exact(&mut text).await.is_ok() {
                client.write_all(&text).await.unwrap();
            }
        }
    });
    address
}

/// TLS configuration that trusts this authority.
fn trusting(authority: Option<&Authority>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    if let Some(authority) = authority {
        let certificate = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
        roots.add(certificate).unwrap();
    }
    ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Time of a proxy to open a tunnel. Longer than a test.
const TIME: Duration = Duration::from_mins(1);

fn through(proxy: &str) -> Connector {
    Connector::through(Proxy::parse(proxy).unwrap(), &trusting(None), TIME).unwrap()
}

/// Returns what a server sends back over a connection.
async fn echoed(connector: Connector, server: &str) -> Result<String, BoxError> {
    let url = format!("https://{server}/api").parse::<Uri>().unwrap();
    let mut stream = TokioIo::new(connector.oneshot(url).await?);
    stream.write_all(b"ping").await?;
    let mut text = [0; 4];
    stream.read_exact(&mut text).await?;
    Ok(String::from_utf8(text.to_vec()).unwrap())
}

#[tokio::test]
async fn a_direct_connection_asks_nobody() {
    let server = echo().await;
    let text = echoed(Connector::direct(), &server.to_string()).await.unwrap();
    assert_eq!(text, "ping");
}

/// Go accepts line ends without a carriage return, and any bytes in the reason.
#[rstest]
#[case::with_a_field(OPENED)]
#[case::without_reason(b"HTTP/1.1 200\r\n\r\n")]
#[case::without_carriage_returns(b"HTTP/1.1 200 OK\nVia: proxy\n\n")]
#[case::with_one_at_the_end(b"HTTP/1.1 200 OK\n\r\n")]
#[case::with_another_reason(b"HTTP/1.1 200 \xffOK\r\n\r\n")]
#[tokio::test]
async fn an_http_proxy_opens_a_tunnel(#[case] answer: &[u8]) {
    let server = echo().await;
    let (address, proxy) = proxy_server::start(answer.to_vec(), server).await;
    // The proxy resolves the name.
    let text = echoed(through(&format!("http://{address}")), "api.example.com:6443").await;
    assert_eq!(text.unwrap(), "ping");
    assert_eq!(
        proxy.await.unwrap(),
        "CONNECT api.example.com:6443 HTTP/1.1\r\nHost: api.example.com:6443\r\n\r\n"
    );
}

#[tokio::test]
async fn an_http_proxy_gets_its_own_credentials_only() {
    let server = echo().await;
    let (address, proxy) = proxy_server::start(OPENED.to_vec(), server).await;
    let connector = through(&format!("http://user:s%40cret@{address}"));
    echoed(connector, "[fd00::1]").await.unwrap();
    let expected = format!(
        "CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\nProxy-Authorization: Basic {}\r\n\r\n",
        STANDARD.encode("user:s@cret")
    );
    assert_eq!(proxy.await.unwrap(), expected);
}

#[rstest]
#[case::credentials(
    b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
    "the proxy answered 407"
)]
#[case::forbidden(
    b"HTTP/1.0 403 Forbidden\r\ncontent-length: 6\r\n\r\ncanary",
    "the proxy answered 403"
)]
#[case::unavailable(b"HTTP/1.1 503 canary\r\n\r\n", "the proxy does not reach the API server")]
#[case::bad_gateway(b"HTTP/1.1 502 canary\r\n\r\n", "the proxy does not reach the API server")]
#[case::another_refusal(b"HTTP/1.1 405 canary\r\n\r\n", "the proxy answered 4xx")]
#[case::reason_in_another_encoding(
    b"HTTP/1.1 407 Authentification n\xe9cessaire\r\n\r\n",
    "the proxy answered 407"
)]
#[case::without_reason(b"HTTP/1.1 403\n\n", "the proxy answered 403")]
#[case::another_protocol(b"SSH-2.0-canary\r\n", "the proxy does not speak HTTP")]
#[case::short_line(b"220 canary\r\n", "the proxy does not speak HTTP")]
#[case::code_that_is_none(b"HTTP/1.1 2000 OK\r\n\r\n", "the proxy does not speak HTTP")]
#[case::code_with_a_sign(b"HTTP/1.1 +20 OK\r\n\r\n", "the proxy does not speak HTTP")]
#[case::speaks_first(b"HTTP/1.1 200 OK\r\n\r\ncanary", "the proxy does not speak HTTP")]
#[case::no_answer(b"", "the proxy closed the connection")]
#[case::half_an_answer(b"HTTP/1.1 200 OK\r\n", "the proxy closed the connection")]
#[tokio::test]
async fn a_refusal_of_a_proxy_is_a_cause(#[case] answer: &[u8], #[case] expected: &str) {
    assert_eq!(refused(answer.to_vec()).await.as_deref(), Some(expected));
}

/// A tenant may choose the proxy, and each new text is a write.
#[test]
fn a_proxy_has_few_texts_to_choose_from() {
    let codes = (0..1000).map(|code| http_tunnel::refusal(code).to_string());
    let replies = (1..=u8::MAX).map(|reply| socks5::refusal(reply).to_string());
    let texts: BTreeSet<String> = codes.chain(replies).collect();
    assert_eq!(
        texts.into_iter().collect::<Vec<_>>(),
        [
            "the proxy answered 3xx",
            "the proxy answered 403",
            "the proxy answered 407",
            "the proxy answered 4xx",
            "the proxy answered: not allowed by its rules",
            "the proxy answered: request not supported",
            "the proxy answered: unknown reply",
            "the proxy does not reach the API server",
            "the proxy does not speak HTTP",
        ]
    );
}

#[tokio::test]
async fn an_answer_without_end_is_not_read() {
    let answer = format!("HTTP/1.1 200 {}", "a".repeat(64 * 1024));
    assert_eq!(
        refused(answer.into_bytes()).await.as_deref(),
        Some("the proxy does not speak HTTP")
    );
}

/// Returns the cause of a connection to a proxy that answers this.
async fn refused(answer: Vec<u8>) -> Option<String> {
    let (address, _proxy) = proxy_server::start(answer, echo().await).await;
    let connector = through(&format!("http://user:canary@{address}"));
    let error = echoed(connector, "api.example.com").await.unwrap_err();
    cause(&*error)
}

#[tokio::test]
async fn an_unreachable_proxy_is_a_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = echoed(through(&format!("http://{address}")), "api.example.com").await;
    let error = error.unwrap_err();
    assert_eq!(cause(&*error).as_deref(), Some("the proxy cannot be reached"));
}

/// A proxy with a certificate of the authority of the kubeconfig, and one of another authority.
#[rstest]
#[case::trusted(true)]
#[case::not_trusted(false)]
#[tokio::test]
async fn a_proxy_over_tls_is_verified(#[case] trusted: bool) {
    let (authority, other) = (Authority::new("one"), Authority::new("other"));
    let acceptor = authority.issue("127.0.0.1").acceptor(None);
    let server = echo().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let client = acceptor.accept(client).await.ok()?;
        Some(proxy_server::serve(client, OPENED, server).await)
    });
    let tls = trusting(Some(if trusted { &authority } else { &other }));
    let own = Proxy::parse(&format!("https://{address}")).unwrap();
    let text = echoed(Connector::through(own, &tls, TIME).unwrap(), "api.example.com").await;
    if trusted {
        assert_eq!(text.unwrap(), "ping");
        assert!(
            proxy
                .await
                .unwrap()
                .unwrap()
                .starts_with("CONNECT api.example.com:443 ")
        );
    } else {
        let error = text.unwrap_err();
        assert_eq!(
            cause(&*error).as_deref(),
            Some("the proxy cannot be reached: invalid peer certificate: UnknownIssuer")
        );
        assert_eq!(proxy.await.unwrap(), None);
    }
}

/// Starts a SOCKS 5 proxy for one connection, which expects and sends these messages in turn, and then forwards to `server`.
async fn socks_proxy(messages: Vec<(Vec<u8>, Vec<u8>)>, server: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        for (expected, answer) in messages {
            let mut request = vec![0; expected.len()];
            client.read_exact(&mut request).await.unwrap();
            assert_eq!(request, expected);
            client.write_all(&answer).await.unwrap();
        }
        forward(&mut client, server).await;
    });
    (address, serving)
}

/// The request for a tunnel to port 443 of an address or a name.
fn tunnel_to(kind: u8, address: &[u8]) -> Vec<u8> {
    [&[5, 1, 0, kind][..], address, &443_u16.to_be_bytes()].concat()
}

/// The answer that the tunnel is open.
fn opened() -> Vec<u8> {
    vec![5, 0, 0, 1, 127, 0, 0, 1, 4, 56]
}

#[rstest]
#[case::name("api.example.com", tunnel_to(3, b"\x0fapi.example.com"))]
#[case::address("10.0.0.1", tunnel_to(1, &[10, 0, 0, 1]))]
#[case::address_of_ipv6("[::1]", tunnel_to(4, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]))]
#[tokio::test]
async fn a_socks_proxy_opens_a_tunnel(#[case] server: &str, #[case] request: Vec<u8>) {
    let messages = vec![(vec![5, 1, 0], vec![5, 0]), (request, opened())];
    let (address, proxy) = socks_proxy(messages, echo().await).await;
    let text = echoed(through(&format!("socks5://{address}")), server).await;
    assert_eq!(text.unwrap(), "ping");
    proxy.await.unwrap();
}

#[tokio::test]
async fn a_socks_proxy_gets_its_credentials() {
    let bound_to_a_name = [&[5, 0, 0, 3, 5][..], b"proxy", &[4, 56]].concat();
    let messages = vec![
        (vec![5, 2, 0, 2], vec![5, 2]),
        ([&[1, 4][..], b"user", &[6], b"secret"].concat(), vec![1, 0]),
        (tunnel_to(1, &[10, 0, 0, 1]), bound_to_a_name),
    ];
    let (address, proxy) = socks_proxy(messages, echo().await).await;
    let text = echoed(through(&format!("socks5://user:secret@{address}")), "10.0.0.1").await;
    assert_eq!(text.unwrap(), "ping");
    proxy.await.unwrap();
}

#[rstest]
#[case::credentials_are_missing(
    "",
    vec![(vec![5, 1, 0], vec![5, 255])],
    "the proxy requires other credentials than user name and password of its URL"
)]
#[case::credentials_are_refused(
    "a:b@",
    vec![(vec![5, 2, 0, 2], vec![5, 2]), (vec![1, 1, b'a', 1, b'b'], vec![1, 1])],
    "the proxy refused user name and password of its URL"
)]
#[case::not_allowed(
    "",
    vec![(vec![5, 1, 0], vec![5, 0]), (tunnel_to(1, &[10, 0, 0, 1]), vec![5, 2, 0, 1])],
    "the proxy answered: not allowed by its rules"
)]
#[case::host_unreachable(
    "",
    vec![(vec![5, 1, 0], vec![5, 0]), (tunnel_to(1, &[10, 0, 0, 1]), vec![5, 4, 0, 1])],
    "the proxy does not reach the API server"
)]
#[case::another_protocol("", vec![(vec![5, 1, 0], b"HTTP".to_vec())], "the proxy does not speak SOCKS 5")]
#[case::unknown_kind_of_address(
    "",
    vec![(vec![5, 1, 0], vec![5, 0]), (tunnel_to(1, &[10, 0, 0, 1]), vec![5, 0, 0, 9])],
    "the proxy does not speak SOCKS 5"
)]
#[tokio::test]
async fn a_refusal_of_a_socks_proxy_is_a_cause(
    #[case] user: &str,
    #[case] messages: Vec<(Vec<u8>, Vec<u8>)>,
    #[case] expected: &str,
) {
    let (address, proxy) = socks_proxy(messages, echo().await).await;
    let error = echoed(through(&format!("socks5://{user}{address}")), "10.0.0.1").await;
    let error = error.unwrap_err();
    assert_eq!(cause(&*error).as_deref(), Some(expected), "{error:?}");
    proxy.await.unwrap();
}

#[tokio::test]
async fn names_and_credentials_that_do_not_fit_are_refused() {
    let name = "a".repeat(256);
    let messages = vec![(vec![5, 1, 0], vec![5, 0])];
    let (address, _proxy) = socks_proxy(messages, echo().await).await;
    let error = echoed(through(&format!("socks5://{address}")), &name).await;
    let error = error.unwrap_err();
    assert_eq!(
        cause(&*error).as_deref(),
        Some("the address of the API server is too long for the proxy")
    );
}
