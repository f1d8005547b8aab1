//! Tunnel through an HTTP proxy: method `CONNECT` (RFC 9110, section 9.3.6).

use std::io;

use base64::{Engine, engine::general_purpose::STANDARD};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ProxyError;

/// Maximum size of the head of an answer, in bytes.
const LONGEST_HEAD: usize = 8 * 1024;

/// Opens a tunnel to `server`, which is `host:port`.
pub(super) async fn open<S>(
    stream: &mut S,
    server: &str,
    credentials: Option<(&str, &str)>,
) -> Result<(), ProxyError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let authorization = credentials.map_or_else(String::new, |(user, password)| {
        let value = STANDARD.encode(format!("{user}:{password}"));
        format!("Proxy-Authorization: Basic {value}\r\n")
    });
    let request = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n{authorization}\r\n");
    ask(stream, request.as_bytes())
        .await
        .map_err(ProxyError::Closed)?;
    let head = read_head(stream).await?;
    match status(&head) {
        // The server waits for the client, so nothing else has arrived yet.
        Some(200..=299) if head.ends_with(b"\r\n\r\n") => Ok(()),
        Some(code @ 300..) => Err(ProxyError::Answered(code)),
        _ => Err(ProxyError::Protocol("HTTP")),
    }
}

async fn ask<S: AsyncWrite + Unpin>(stream: &mut S, request: &[u8]) -> io::Result<()> {
    stream.write_all(request).await?;
    stream.flush().await
}

/// Reads the head of an answer, and perhaps a part of its body.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Vec<u8>, ProxyError> {
    let mut head = Vec::new();
    let mut chunk = [0; 512];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > LONGEST_HEAD {
            return Err(ProxyError::Protocol("HTTP"));
        }
        let length = stream.read(&mut chunk).await.map_err(ProxyError::Closed)?;
        if length == 0 {
            return Err(ProxyError::Closed(io::ErrorKind::UnexpectedEof.into()));
        }
        head.extend_from_slice(&chunk[..length]);
    }
    Ok(head)
}

/// Returns the status code of an answer with version 1 of HTTP.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = str::from_utf8(line).ok()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words
        .next()
        .filter(|code| code.len() == 3)
        .and_then(|code| code.parse().ok())
}
