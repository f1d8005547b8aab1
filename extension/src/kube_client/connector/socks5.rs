//! Tunnel through a SOCKS 5 proxy (RFC 1928), with user name and password (RFC 1929).

use std::{io, net::IpAddr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ProxyError;

const VERSION: u8 = 5;
/// Version of the negotiation of RFC 1929.
const PASSWORD_VERSION: u8 = 1;
const NO_CREDENTIALS: u8 = 0;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Opens a tunnel to a port of `host`. The proxy resolves a name.
pub(super) async fn open<S>(
    stream: &mut S,
    host: &str,
    port: u16,
    credentials: Option<(&str, &str)>,
) -> Result<(), ProxyError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let hello: &[u8] = match credentials {
        None => &[VERSION, 1, NO_CREDENTIALS],
        Some(_) => &[VERSION, 2, NO_CREDENTIALS, PASSWORD],
    };
    match (ask::<_, 2>(stream, hello).await?, credentials) {
        ([VERSION, NO_CREDENTIALS], _) => {}
        ([VERSION, PASSWORD], Some((user, password))) => authenticate(stream, user, password).await?,
        ([VERSION, _], _) => return Err(ProxyError::CredentialsMissing),
        _ => return Err(ProxyError::Protocol("SOCKS 5")),
    }
    let mut request = vec![VERSION, CONNECT, 0];
    request.extend(address(host)?);
    request.extend(port.to_be_bytes());
    let [version, reply, _, kind] = ask::<_, 4>(stream, &request).await?;
    match (version, reply) {
        (VERSION, 0) => {}
        (VERSION, reply) => return Err(refusal(reply)),
        _ => return Err(ProxyError::Protocol("SOCKS 5")),
    }
    // The address and port of the proxy towards the server.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => usize::from(stream.read_u8().await.map_err(ProxyError::Closed)?),
        _ => return Err(ProxyError::Protocol("SOCKS 5")),
    };
    let mut bound = vec![0; length + 2];
    stream.read_exact(&mut bound).await.map_err(ProxyError::Closed)?;
    Ok(())
}

async fn authenticate<S>(stream: &mut S, user: &str, password: &str) -> Result<(), ProxyError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = vec![PASSWORD_VERSION];
    for text in [user, password] {
        request.push(u8::try_from(text.len()).map_err(|_| ProxyError::CredentialsRefused)?);
        request.extend_from_slice(text.as_bytes());
    }
    match ask::<_, 2>(stream, &request).await? {
        [_, 0] => Ok(()),
        [_, _] => Err(ProxyError::CredentialsRefused),
    }
}

/// Sends a message and reads the answer, or its beginning.
async fn ask<S, const N: usize>(stream: &mut S, message: &[u8]) -> Result<[u8; N], ProxyError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let asked = async {
        stream.write_all(message).await?;
        stream.flush().await?;
        let mut answer = [0; N];
        stream.read_exact(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    asked.await.map_err(ProxyError::Closed)
}

fn address(host: &str) -> Result<Vec<u8>, ProxyError> {
    let (kind, bytes) = match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => (vec![IPV4], address.octets().to_vec()),
        Ok(IpAddr::V6(address)) => (vec![IPV6], address.octets().to_vec()),
        Err(_) => {
            let length = u8::try_from(host.len()).map_err(|_| ProxyError::Address)?;
            (vec![NAME, length], host.as_bytes().to_vec())
        }
    };
    Ok([kind, bytes].concat())
}

/// Returns the error of a reply that opens no tunnel.
pub(super) fn refusal(reply: u8) -> ProxyError {
    match reply {
        // General failure, network or host unreachable, connection refused, TTL expired. For one server, a proxy replies them in turn.
        1 | 3..=6 => ProxyError::ServerUnreachable,
        2 => ProxyError::Refused("not allowed by its rules"),
        // Command or type of address.
        7 | 8 => ProxyError::Refused("request not supported"),
        _ => ProxyError::Refused("unknown reply"),
    }
}
