//! A TCP relay that can be frozen, as a network that loses every packet without an error, or slow.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// Forwards connections to a port of 127.0.0.1 until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    frozen: watch::Sender<bool>,
    delay: watch::Sender<Duration>,
    task: AbortHandle,
}

impl Relay {
    /// Listens on a port of its own.
    pub async fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (frozen, state) = watch::channel(false);
        let (delay, delayed) = watch::channel(Duration::ZERO);
        let task = tokio::spawn(accept(listener, target, state, delayed)).abort_handle();
        Ok(Self {
            address,
            frozen,
            delay,
            task,
        })
    }

    /// Where it listens, with TLS of the target: `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// From now on nothing is forwarded, in either direction; connections stay open, and further ones are accepted.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Forwards delayed data, and all later data.
    pub fn thaw(&self) {
        self.frozen.send_replace(false);
    }

    /// Delays all later data by `delay`, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    target: u16,
    frozen: watch::Receiver<bool>,
    delay: watch::Receiver<Duration>,
) -> Result<()> {
    // Aborted with this task.
    let mut connections = JoinSet::new();
    loop {
        let (inner, _) = listener.accept().await.context("accept a connection")?;
        let (frozen, delay) = (frozen.clone(), delay.clone());
        connections.spawn(async move {
            let outer = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
            let ((from_inner, to_inner), (from_outer, to_outer)) = (inner.into_split(), outer.into_split());
            tokio::try_join!(
                forward(from_inner, to_outer, frozen.clone(), &delay),
                forward(from_outer, to_inner, frozen, &delay)
            )
            .map(drop)
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut frozen: watch::Receiver<bool>,
    delay: &watch::Receiver<Duration>,
) -> Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        let delay = *delay.borrow();
        sleep(delay).await;
        frozen.wait_for(|frozen| !frozen).await?;
        if length == 0 {
            return Ok(to.shutdown().await?);
        }
        to.write_all(&buffer[..length]).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn data_through_a_frozen_or_slow_relay_arrives_later() -> Result<()> {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let relay = Relay::start(target.local_addr()?.port()).await?;
        let mut client = TcpStream::connect(relay.address).await?;
        let (mut server, _) = target.accept().await?;
        let mut byte = [0];

        client.write_all(b"a").await?;
        server.read_exact(&mut byte).await?;
        assert_eq!(&byte, b"a");

        relay.freeze();
        client.write_all(b"b").await?;
        let early = timeout(Duration::from_millis(200), server.read_exact(&mut byte)).await;
        assert!(early.is_err(), "{early:?}");
        relay.thaw();
        timeout(Duration::from_secs(10), server.read_exact(&mut byte)).await??;
        assert_eq!(&byte, b"b");

        let delay = Duration::from_millis(50);
        relay.delay(delay);
        let sent = Instant::now();
        client.write_all(b"c").await?;
        timeout(Duration::from_secs(10), server.read_exact(&mut byte)).await??;
        assert!(sent.elapsed() >= delay && &byte == b"c");
        Ok(())
    }
}
