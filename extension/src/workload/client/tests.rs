mod http2;

use std::{convert::Infallible, net::SocketAddr};

use http::{Request, Response};
use kube::{Client, client::Body};
use rstest::rstest;
use sluice_core::{
    kubeconfig::{ClientCertificate, Credentials, Redacted},
    protocol,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::kube_client::{
    bounded::{NoAnswer, TooLong},
    proxy_server::{self, OPENED},
    responses::failure,
    tls_server::{Authority, Identity},
};

/// Certificate of version 1 of `openssl x509 -req`, which Sluice cannot read, with its key.
const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBHDCBwwIUCdObNTLDIvGlNoaS/9eq1D7sJuwwCgYIKoZIzj0EAwIwEDEOMAwG
A1UEAwwFYWRtaW4wIBcNMjYxMTI4MDk0NTEzWhgPMjEyNjExMDQwOTQ1MTNaMBAx
DjAMBgNVBAMMBWFkbWluMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEgz3VuJoY
KQr2LaZKw2oNjJqzrPpywVsmIMcGi3VV2tAW6QWfxI3rQ0gbvq4+/purbQNxNGye
y074tq+YDWEwKTAKBggqhkjOPQQDAgNIADBFAiEAv4eaepIcLqP9TJAzrZ91WhlB
BnX2zvIiKHqFNrz7AgwCIE4g0I6a2iiERqwRMEhhz0Zu6+Y32UTANzGg+dmanCRk
-----END CERTIFICATE-----
";
const KEY_OF_VERSION_1: &str = "\
-----BEGIN EC PARAMETERS-----
BggqhkjOPQMBBw==
-----END EC PARAMETERS-----
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIIxmK1atYWelH+AiyoSJi/CmYYg8n714qw8u2z0LSlJmoAoGCCqGSM49
AwEHoUQDQgAEgz3VuJoYKQr2LaZKw2oNjJqzrPpywVsmIMcGi3VV2tAW6QWfxI3r
Q0gbvq4+/purbQNxNGyey074tq+YDWEwKQ==
-----END EC PRIVATE KEY-----
";

/// Returns the kubeconfig of a server, with a token.
fn kubeconfig(server: &str, authority: &str) -> WorkloadKubeconfig {
    WorkloadKubeconfig {
        server: server.to_owned(),
        certificate_authority: Some(authority.as_bytes().to_vec()),
        tls_server_name: None,
        proxy: None,
        credentials: Credentials {
            authorization: Some(Authorization::Token(Redacted::new("token".to_owned()))),
            certificate: None,
        },
    }
}

/// Returns a client with a TLS configuration of its own.
fn client(kubeconfig: &WorkloadKubeconfig, proxies: &Proxies) -> Result<Client, Error> {
    connect(kubeconfig, proxies).map(Transport::into_client)
}

/// Returns the response status that a client reports of a server that runs `serve` after the request. The paused clock advances once the
/// server says so.
async fn answer<F>(serve: impl FnOnce(TcpStream, oneshot::Sender<()>) -> F) -> kube::Result<u16>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let kubeconfig = kubeconfig(&server, &Authority::new("one").pem());
    let client = client(&kubeconfig, &Proxies::default()).unwrap();
    let request = Request::get("/api").body(Body::empty()).unwrap();
    let answer = tokio::spawn(async move { client.send(request).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = [0];
    stream.read_exact(&mut head).await.unwrap();
    let (asked, was_asked) = oneshot::channel();
    let serving = tokio::spawn(serve(stream, asked));
    if was_asked.await.is_ok() {
        tokio::time::pause();
    }
    let answer = answer.await.unwrap();
    serving.abort();
    Ok(answer?.status().as_u16())
}

async fn refusal<F>(serve: impl FnOnce(TcpStream, oneshot::Sender<()>) -> F) -> kube::Error
where
    F: Future<Output = ()> + Send + 'static,
{
    answer(serve).await.unwrap_err()
}

fn is<E: std::error::Error + 'static>(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(error) if error.is::<E>())
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let refusal = refusal(|stream, asked| async move {
        asked.send(()).unwrap();
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    assert!(is::<NoAnswer>(&refusal), "{refusal:?}");
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let refusal = refusal(|mut stream, _| async move {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let nothing = vec![b' '; 64 * 1024];
        while stream.write_all(&nothing).await.is_ok() {}
    })
    .await;
    assert!(is::<TooLong>(&refusal), "{refusal:?}");
}

#[tokio::test]
async fn a_list_of_empty_pages_without_end_is_given_up() {
    let page = tower::service_fn(|_: Request<Body>| async {
        let page = r#"{"metadata":{"resourceVersion":"1","continue":"more"},"items":[]}"#;
        Ok::<_, Infallible>(Response::new(Body::from(page.as_bytes().to_vec())))
    });
    let client = bounded(Client::new(page, "default"), BOUNDS).into_client();
    let mut refused = None;
    for page in 0..100 {
        let query = if page == 0 {
            "limit=500"
        } else {
            "limit=500&continue=more"
        };
        let request = Request::get(format!("/apps?{query}"))
            .body(Body::empty())
            .unwrap();
        if let Err(error) = client.send(request).await {
            refused = Some((page, error));
            break;
        }
    }
    let (pages, refusal) = refused.expect("a list that ends");
    assert!(is::<TooLong>(&refusal), "{refusal:?}");
    assert_eq!(pages, BOUNDS.list / BOUNDS.page);
}

/// A retry would find no server.
#[tokio::test]
async fn a_refusal_is_not_retried_inside_a_request() {
    let answer = answer(|mut stream, asked| async move {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        let _rest = stream.read_to_end(&mut Vec::new()).await;
        let _ended = asked.send(());
    })
    .await;
    assert!(matches!(answer, Ok(503)), "{answer:?}");
}

/// Starts an API server for one request. Returns its address, and the task that returns the head of the request.
async fn api_server(acceptor: TlsAcceptor) -> (SocketAddr, JoinHandle<Option<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => stream,
            Err((_, mut stream)) => {
                // The client reads the alert before the connection ends.
                let _closed = stream.read_to_end(&mut Vec::new()).await;
                return None;
            }
        };
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        stream.write_all(answer).await.ok()?;
        stream.shutdown().await.ok()?;
        String::from_utf8(head).ok()
    });
    (address, serving)
}

/// Sends a request. An error is the cause in the message of the hold.
async fn asked(kubeconfig: &WorkloadKubeconfig, proxies: &Proxies) -> Result<u16, Option<String>> {
    let client = client(kubeconfig, proxies).unwrap();
    let request = Request::get("/api").body(Body::empty()).unwrap();
    match client.send(request).await {
        Ok(answer) => Ok(answer.status().as_u16()),
        Err(error) => Err(failure(protocol::Server::Workload, &error).cause),
    }
}

fn client_certificate(identity: &Identity) -> ClientCertificate {
    ClientCertificate {
        certificate: identity.certificate.pem().into_bytes(),
        key: Redacted::new(identity.key.serialize_pem().into_bytes()),
    }
}

/// client-go sends both as well; the server decides.
#[tokio::test]
async fn a_token_and_a_client_certificate_are_sent() {
    let authority = Authority::new("one");
    let acceptor = authority.issue("127.0.0.1").acceptor(Some(&authority));
    let (address, serving) = api_server(acceptor).await;
    let mut kubeconfig = kubeconfig(&format!("https://{address}"), &authority.pem());
    kubeconfig.credentials.certificate = Some(client_certificate(&authority.issue("admin")));
    assert_eq!(asked(&kubeconfig, &Proxies::default()).await, Ok(200));
    let head = serving.await.unwrap().unwrap().to_ascii_lowercase();
    assert!(head.contains("\r\nauthorization: bearer token\r\n"), "{head}");
}

#[tokio::test]
async fn a_user_name_is_sent() {
    let authority = Authority::new("one");
    let (address, serving) = api_server(authority.issue("127.0.0.1").acceptor(None)).await;
    let mut kubeconfig = kubeconfig(&format!("https://{address}"), &authority.pem());
    kubeconfig.credentials.authorization = Some(Authorization::Basic {
        username: "admin".to_owned(),
        password: Redacted::new(String::new()),
    });
    assert_eq!(asked(&kubeconfig, &Proxies::default()).await, Ok(200));
    let head = serving.await.unwrap().unwrap();
    // `admin:` in base64.
    assert!(head.contains("Basic YWRtaW46"), "{head}");
}

#[tokio::test]
async fn a_missing_client_certificate_is_a_cause() {
    let authority = Authority::new("one");
    let acceptor = authority.issue("127.0.0.1").acceptor(Some(&authority));
    let (address, _serving) = api_server(acceptor).await;
    let kubeconfig = kubeconfig(&format!("https://{address}"), &authority.pem());
    let cause = asked(&kubeconfig, &Proxies::default()).await.unwrap_err();
    assert_eq!(
        cause.as_deref(),
        Some("received fatal alert: CertificateRequired")
    );
}

/// The CA bundle of a kubeconfig, the server certificate, and the cause of a failure.
#[rstest]
#[case::one_authority(|authority: &Authority| authority.pem(), None)]
#[case::several_authorities(|authority: &Authority| format!("{}{}", Authority::new("other").pem(), authority.pem()), None)]
#[case::several_keys_of_one_name(|authority: &Authority| format!("{}{}", Authority::new("one").pem(), authority.pem()), None)]
#[case::among_what_is_none(
    |authority: &Authority| format!(
        "text\n-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n\
         -----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n{}",
        authority.pem()
    ),
    None
)]
#[case::another_authority(|_: &Authority| Authority::new("other").pem(), Some("invalid peer certificate: UnknownIssuer"))]
#[tokio::test]
async fn a_server_is_verified(#[case] bundle: fn(&Authority) -> String, #[case] expected: Option<&str>) {
    let authority = Authority::new("one");
    let (address, _serving) = api_server(authority.issue("127.0.0.1").acceptor(None)).await;
    let kubeconfig = kubeconfig(&format!("https://{address}"), &bundle(&authority));
    let answer = asked(&kubeconfig, &Proxies::default()).await;
    assert_eq!(
        answer,
        expected.map_or(Ok(200), |cause| Err(Some(cause.to_owned())))
    );
}

/// The name of the certificate, and `tls-server-name`.
#[rstest]
#[case::address_of_the_server("127.0.0.1", None, None)]
#[case::another_address("127.0.0.2", None, Some("invalid peer certificate: NotValidForName"))]
#[case::name("api.example.com", Some("api.example.com"), None)]
#[case::another_name(
    "api.example.com",
    Some("other.example.com"),
    Some("invalid peer certificate: NotValidForName")
)]
#[case::address_as_name("10.0.0.1", Some("10.0.0.1"), None)]
#[tokio::test]
async fn the_name_of_a_server_is_verified(
    #[case] certified: &str,
    #[case] name: Option<&str>,
    #[case] expected: Option<&str>,
) {
    let authority = Authority::new("one");
    let issued = authority.issue(certified);
    // The same for a certificate that is itself in the bundle.
    let own = Identity::self_signed(certified);
    for (identity, bundle) in [(&issued, authority.pem()), (&own, own.certificate.pem())] {
        let (address, _serving) = api_server(identity.acceptor(None)).await;
        let mut kubeconfig = kubeconfig(&format!("https://{address}"), &bundle);
        kubeconfig.tls_server_name = name.map(str::to_owned);
        let answer = asked(&kubeconfig, &Proxies::default()).await;
        assert_eq!(
            answer,
            expected.map_or(Ok(200), |cause| Err(Some(cause.to_owned())))
        );
    }
}

/// Go trusts a certificate in the bundle without looking for its issuer.
#[tokio::test]
async fn a_server_certificate_in_the_bundle_is_trusted() {
    let issued = Authority::new("unknown").issue("127.0.0.1");
    let (address, _serving) = api_server(issued.acceptor(None)).await;
    let known = kubeconfig(&format!("https://{address}"), &issued.certificate.pem());
    assert_eq!(asked(&known, &Proxies::default()).await, Ok(200));

    // The same names and another key.
    let own = Identity::self_signed("127.0.0.1");
    let (address, _serving) = api_server(own.acceptor(None)).await;
    let another = Identity::self_signed("127.0.0.1").certificate.pem();
    let other = kubeconfig(&format!("https://{address}"), &another);
    assert_eq!(
        asked(&other, &Proxies::default()).await,
        Err(Some("invalid peer certificate: CaUsedAsEndEntity".to_owned()))
    );
}

#[rstest]
#[case::without_certificate(|kubeconfig: &mut WorkloadKubeconfig| kubeconfig.certificate_authority = Some(b"text".to_vec()), "certificate-authority-data holds no PEM certificate")]
#[case::name(|kubeconfig: &mut WorkloadKubeconfig| kubeconfig.tls_server_name = Some("a b".to_owned()), "tls-server-name is no name")]
#[case::server(|kubeconfig: &mut WorkloadKubeconfig| kubeconfig.server = "https://[".to_owned(), "server is not a URL")]
#[case::certificate(
    |kubeconfig: &mut WorkloadKubeconfig| kubeconfig.credentials.certificate = Some(ClientCertificate {
        certificate: b"text".to_vec(),
        key: Redacted::new(KEY_OF_VERSION_1.as_bytes().to_vec()),
    }),
    "client-certificate-data holds no PEM certificate"
)]
#[case::key(
    |kubeconfig: &mut WorkloadKubeconfig| kubeconfig.credentials.certificate = Some(ClientCertificate {
        certificate: VERSION_1.as_bytes().to_vec(),
        key: Redacted::new(b"canary".to_vec()),
    }),
    "client-key-data holds no private key"
)]
#[case::key_of_another_certificate(
    |kubeconfig: &mut WorkloadKubeconfig| {
        let mut certificate = client_certificate(&Identity::self_signed("admin"));
        certificate.key = client_certificate(&Identity::self_signed("admin")).key;
        kubeconfig.credentials.certificate = Some(certificate);
    },
    "client-key-data is not the key of the certificate"
)]
#[case::proxy(
    |kubeconfig: &mut WorkloadKubeconfig| kubeconfig.proxy = Proxy::parse("http://user:canary@proxy"),
    "proxy-url names a proxy that flag --remote-allow-proxy does not allow"
)]
fn what_makes_no_client_is_named(#[case] edit: fn(&mut WorkloadKubeconfig), #[case] expected: &str) {
    let mut kubeconfig = kubeconfig("https://127.0.0.1", &Authority::new("one").pem());
    edit(&mut kubeconfig);
    let error = client(&kubeconfig, &Proxies::default()).err().unwrap();
    let text = format!("{error} {error:?}");
    assert!(text.contains(expected) && !text.contains("canary"), "{text}");
}

#[tokio::test]
async fn a_client_certificate_of_version_1_is_left_to_the_server() {
    let mut kubeconfig = kubeconfig("https://127.0.0.1", &Authority::new("one").pem());
    kubeconfig.credentials.certificate = Some(ClientCertificate {
        certificate: VERSION_1.as_bytes().to_vec(),
        key: Redacted::new(KEY_OF_VERSION_1.as_bytes().to_vec()),
    });
    assert!(client(&kubeconfig, &Proxies::default()).is_ok());
}

/// Whether the kubeconfig names the proxy, or the operator.
#[rstest]
#[case::of_the_kubeconfig(true)]
#[case::of_the_operator(false)]
#[tokio::test]
async fn a_server_behind_a_proxy_is_verified_like_others(#[case] of_kubeconfig: bool) {
    let authority = Authority::new("one");
    let (server, serving) = api_server(authority.issue("api.example.com").acceptor(None)).await;
    let (address, proxying) = proxy_server::start(OPENED.to_vec(), server).await;
    let proxy = Proxy::parse(&format!("http://{address}"));
    let mut kubeconfig = kubeconfig("https://api.example.com:6443", &authority.pem());
    let mut proxies = Proxies::default();
    if of_kubeconfig {
        kubeconfig.proxy = proxy;
        proxies.allowed = vec!["127.0.0.0/8".parse().unwrap()];
    } else {
        proxies.operator = proxy;
    }
    assert_eq!(asked(&kubeconfig, &proxies).await, Ok(200));
    let head = serving.await.unwrap().unwrap();
    assert!(head.starts_with("GET /api HTTP/1.1\r\n"), "{head}");
    let request = proxying.await.unwrap();
    assert!(
        request.starts_with("CONNECT api.example.com:6443 HTTP/1.1\r\n"),
        "{request}"
    );
}

/// The time to connect includes the proxy, which is named as the cause.
#[rstest]
#[case::tls("https", "the proxy does not answer: no connection in time")]
#[case::tunnel("http", "the proxy does not answer: no tunnel in time")]
#[case::tunnel_of_socks("socks5", "the proxy does not answer: no tunnel in time")]
#[tokio::test]
async fn a_proxy_that_never_answers_is_given_up(#[case] protocol: &str, #[case] expected: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("{protocol}://{}", listener.local_addr().unwrap());
    let proxies = Proxies {
        allowed: vec!["127.0.0.1".parse().unwrap()],
        ..Proxies::default()
    };
    let mut kubeconfig = kubeconfig("https://api.example.com", &Authority::new("one").pem());
    kubeconfig.proxy = Proxy::parse(&proxy);
    let asking = tokio::spawn(async move { asked(&kubeconfig, &proxies).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.read_u8().await.unwrap();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    assert_eq!(asking.await.unwrap(), Err(Some(expected.to_owned())));
    assert!(began.elapsed() < CONNECT, "{:?}", began.elapsed());
    drop(stream);
}

/// Its packets are lost.
#[tokio::test(start_paused = true)]
async fn a_proxy_that_accepts_no_connection_is_given_up() {
    // Linux drops packets to a socket whose backlog is full.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let _waiting = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let proxies = Proxies {
        operator: Proxy::parse(&format!("http://{}", listener.local_addr().unwrap())),
        ..Proxies::default()
    };
    let kubeconfig = kubeconfig("https://api.example.com", &Authority::new("one").pem());
    assert_eq!(
        asked(&kubeconfig, &proxies).await,
        Err(Some(
            "the proxy does not answer: no connection in time".to_owned()
        ))
    );
}
