//! One hook call, as Cluster API makes it: HTTP/1.1 over TLS.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Timeout of Cluster API.
const TIMEOUT: Duration = Duration::from_secs(3);

/// An answer to a POST.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Its body.
    pub(crate) body: Value,
    /// Whether the server ended the connection after it.
    pub(crate) closed: bool,
}

/// Asks the server on a port of 127.0.0.1 whose certificate `ca_bundle` (base64 of PEM) has signed.
pub(crate) async fn ask(port: u16, ca_bundle: &str, path: &str, request: &Value) -> Result<Answer> {
    timeout(TIMEOUT, exchange(port, ca_bundle, path, request))
        .await
        .with_context(|| format!("no answer of {path} within {TIMEOUT:?}"))?
        .with_context(|| format!("ask {path}"))
}

async fn exchange(port: u16, ca_bundle: &str, path: &str, request: &Value) -> Result<Answer> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(
        &BASE64_STANDARD.decode(ca_bundle)?,
    )?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(ServerName::try_from("localhost")?, tcp).await?;

    let body = request.to_string();
    let length = body.len();
    let head =
        format!("POST {path}?timeout=3s HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;

    let mut answer = Vec::new();
    let (head, length) = loop {
        ensure!(
            stream.read_buf(&mut answer).await? > 0,
            "the connection ended before the answer"
        );
        if let Some(head) = head_of(&answer) {
            break head;
        }
    };
    let closes = header(&head, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let whole = length
        + header(&head, "content-length")
            .context("an answer without length")?
            .parse::<usize>()?;
    while answer.len() < whole {
        ensure!(
            stream.read_buf(&mut answer).await? > 0,
            "the connection ended in the middle of the answer"
        );
    }
    if closes {
        ensure!(
            stream.read_buf(&mut answer).await? == 0,
            "more follows an answer that ends the connection"
        );
    }
    Ok(Answer {
        body: serde_json::from_slice(&answer[length..])?,
        closed: closes,
    })
}

/// The head of an answer and its length, once it is complete.
fn head_of(answer: &[u8]) -> Option<(String, usize)> {
    let length = answer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    Some((String::from_utf8_lossy(&answer[..length]).into_owned(), length))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(head_of(&answer[..30]), None);
        let (head, length) = head_of(answer).unwrap();
        assert_eq!(&answer[length..], b"{}");
        assert_eq!(header(&head, "connection"), Some("close"));
        assert_eq!(header(&head, "Content-Length"), Some("2"));
        assert_eq!(header(&head, "server"), None);
    }
}
