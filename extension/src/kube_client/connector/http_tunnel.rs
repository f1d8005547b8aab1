//! Tunnel through an HTTP proxy: method `CONNECT` (RFC 9110, section 9.3.6).

use std::io;

use base64::{Engine, engine::general_purpose::STANDARD};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ProxyError;

/// Maximum size of the head of an answer, in bytes.
const LONGEST_HEAD: usize = 8 * 1024;

/// Length of version and status code, with the byte after them.
const STATUS: usize = b"HTTP/1.1 200 ".len();

/// Ends of a head. Like Go, accepts lines that end without a carriage return.
const ENDS: [&[u8]; 2] = [b"\n\r\n", b"\n\n"];

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
    let head = read_until(stream, Vec::new(), has_status).await?;
    match status(&head) {
        Some(200..=299) => {}
        Some(code) => return Err(refusal(code)),
        None => return Err(ProxyError::Protocol("HTTP")),
    }
    let head = read_until(stream, head, has_end).await?;
    // The server waits for the client, so nothing else has arrived yet.
    if ENDS.iter().any(|end| head.ends_with(end)) {
        Ok(())
    } else {
        Err(ProxyError::Protocol("HTTP"))
    }
}

/// Returns the error of a status code that opens no tunnel. For one unreachable server, a proxy answers 502, 503 and 504 in turn.
pub(super) fn refusal(code: u16) -> ProxyError {
    match code {
        403 => ProxyError::Answered("403"),
        407 => ProxyError::Answered("407"),
        300..=399 => ProxyError::Answered("3xx"),
        400..=499 => ProxyError::Answered("4xx"),
        500..=599 => ProxyError::ServerUnreachable,
        _ => ProxyError::Protocol("HTTP"),
    }
}

async fn ask<S: AsyncWrite + Unpin>(stream: &mut S, request: &[u8]) -> io::Result<()> {
    stream.write_all(request).await?;
    stream.flush().await
}

/// Reads on until `is_enough` accepts the head of an answer. It may contain a part of the body.
async fn read_until<S: AsyncRead + Unpin>(
    stream: &mut S,
    mut head: Vec<u8>,
    is_enough: fn(&[u8]) -> bool,
) -> Result<Vec<u8>, ProxyError> {
    let mut chunk = [0; 512];
    while !is_enough(&head) {
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

fn has_status(head: &[u8]) -> bool {
    head.len() >= STATUS || head.contains(&b'\n')
}

fn has_end(head: &[u8]) -> bool {
    ENDS.iter()
        .any(|end| head.windows(end.len()).any(|window| window == *end))
}

/// Returns the status code of an answer with version 1 of HTTP. The reason after it may have any bytes.
fn status(head: &[u8]) -> Option<u16> {
    let [_, b' ', code @ .., b' ' | b'\r' | b'\n'] = head.get(..STATUS)?.strip_prefix(b"HTTP/1.")? else {
        return None;
    };
    let is_number = code.iter().all(u8::is_ascii_digit);
    let code = str::from_utf8(code).ok().filter(|_| is_number)?;
    code.parse().ok()
}
