//! A file that packages fetch over HTTP, and that is not given out for as long as a scenario wants.

use std::net::Ipv4Addr;

use anyhow::Result;
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Served until it is dropped.
#[derive(Debug)]
pub struct SlowFile {
    url: String,
    given: watch::Sender<bool>,
    server: AbortHandle,
}

impl SlowFile {
    /// Serves it on loopback; it is given out.
    pub async fn serve() -> Result<Self> {
        let (given, open) = watch::channel(true);
        let file = move || {
            let mut open = open.clone();
            async move {
                // The sender lives as long as the server.
                drop(open.wait_for(|open| *open).await);
                "nothing\n"
            }
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/file.txt", listener.local_addr()?);
        let router = Router::new().route("/file.txt", get(file));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!("the server of a slow file ended: {error}");
            }
        });
        Ok(Self {
            url,
            given,
            server: server.abort_handle(),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Blocks all reads of the file, or answers the waiting ones.
    pub fn set_given(&self, given: bool) {
        self.given.send_replace(given);
    }
}

impl Drop for SlowFile {
    fn drop(&mut self) {
        self.server.abort();
    }
}
