//! Front of the servers: forwards connections to the real API server or to the misbehaving one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::fault::Fault;

/// How late everything is that a late server sends.
const LATE: Duration = Duration::from_secs(2);

/// What a client sends before a server that resets connections does so: the first part of its handshake, and its second part with
/// the first request.
const READS_BEFORE_RESET: u32 = 2;

/// Whether the fault is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Well,
    Struck,
}

/// Accepts connections until it is aborted.
pub(super) async fn serve(
    real: u16,
    misbehaving: u16,
    fault: Fault,
    state: watch::Receiver<State>,
    asked: Arc<AtomicU64>,
) -> Result<(SocketAddr, AbortHandle)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let accepting = async move {
        // Aborted with this task.
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let state = state.clone();
            if *state.borrow() == State::Struck {
                asked.fetch_add(1, Ordering::Relaxed);
            }
            connections.spawn(async move {
                if let Err(error) = connection(client, (real, misbehaving), fault, state).await {
                    tracing::debug!("a connection to a server with fault {fault:?}: {error:#}");
                }
            });
            while connections.try_join_next().is_some() {}
        }
    };
    Ok((address, tokio::spawn(accepting).abort_handle()))
}

/// Serves one connection until its end or the next change of the fault.
async fn connection(
    client: TcpStream,
    (real, misbehaving): (u16, u16),
    fault: Fault,
    mut state: watch::Receiver<State>,
) -> Result<()> {
    client.set_nodelay(true)?;
    // Whatever is still open when the state changes ends with a reset.
    client.set_zero_linger()?;
    let struck = *state.borrow_and_update() == State::Struck;
    let (target, late) = match fault {
        _ if !struck => (real, Duration::ZERO),
        Fault::Late => (real, LATE),
        _ => (misbehaving, Duration::ZERO),
    };
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target))
        .await
        .context("connect to the real server")?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let reads = (struck && fault == Fault::Resets).then_some(READS_BEFORE_RESET);
    let forwards = async {
        tokio::select! {
            ended = forward(from_client, to_server, Duration::ZERO, reads) => ended,
            ended = forward(from_server, to_client, late, None) => ended,
        }
    };
    tokio::pin!(forwards);
    tokio::select! {
        ended = &mut forwards => return ended,
        changed = state.changed() => changed?,
    }
    // Requests on an earlier connection wait as long as on any other.
    if !struck && fault.never_ends() {
        state.changed().await?;
    }
    Ok(())
}

/// Forwards bytes, `late` after their read. Ends after so many `reads`, if there is a limit.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    late: Duration,
    reads: Option<u32>,
) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut read = 0;
    loop {
        let length = from.read(&mut buffer).await?;
        read += 1;
        if length == 0 || Some(read) == reads {
            return Ok(());
        }
        if !late.is_zero() {
            sleep(late).await;
        }
        to.write_all(&buffer[..length]).await?;
    }
}
