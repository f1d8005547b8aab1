//! A server of tarballs.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::Bundle;

type Tarballs = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Served on loopback until it is dropped.
#[derive(Debug)]
pub struct Files {
    address: SocketAddr,
    tarballs: Tarballs,
    server: AbortHandle,
}

impl Files {
    /// Serves no file yet.
    pub async fn serve() -> Result<Self> {
        let tarballs = Tarballs::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/{name}", get(give))
            .with_state(Arc::clone(&tarballs));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!("the server of tarballs ended: {error}");
            }
        });
        Ok(Self {
            address,
            tarballs,
            server: server.abort_handle(),
        })
    }

    /// Response for a missing file.
    #[must_use]
    pub fn missing(&self) -> Value {
        self.fetch("missing.tar")
    }

    pub(super) fn publish(&self, name: &str, bundle: &Bundle) -> Result<Value> {
        let tarball = bundle.tarball()?;
        let mut tarballs = self.tarballs.lock().unwrap_or_else(PoisonError::into_inner);
        let file = format!("{name}-{}.tar", tarballs.len());
        tarballs.insert(file.clone(), tarball);
        Ok(self.fetch(&file))
    }

    fn fetch(&self, file: &str) -> Value {
        json!({"http": {"url": format!("http://{}/{file}", self.address)}})
    }
}

async fn give(State(tarballs): State<Tarballs>, Path(name): Path<String>) -> Result<Vec<u8>, StatusCode> {
    let tarballs = tarballs.lock().unwrap_or_else(PoisonError::into_inner);
    tarballs.get(&name).cloned().ok_or(StatusCode::NOT_FOUND)
}

impl Drop for Files {
    fn drop(&mut self) {
        self.server.abort();
    }
}
