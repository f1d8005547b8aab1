//! A repository of Helm charts: an index and archives by HTTP, on loopback.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::objects::Chart;

/// Published charts by the names of their archives.
#[derive(Debug, Default)]
struct Published(BTreeMap<String, (Chart, Vec<u8>)>);

type Shared = Arc<Mutex<Published>>;

/// Served until it is dropped.
#[derive(Debug)]
pub struct ChartRepository {
    url: String,
    published: Shared,
    server: AbortHandle,
}

impl ChartRepository {
    /// Serves no chart yet.
    pub async fn serve() -> Result<Self> {
        let published = Shared::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address: SocketAddr = listener.local_addr()?;
        let router = Router::new()
            .route("/index.yaml", get(index))
            .route("/{archive}", get(archive))
            .with_state(Arc::clone(&published));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!("the repository of charts ended: {error}");
            }
        });
        Ok(Self {
            url: format!("http://{address}"),
            published,
            server: server.abort_handle(),
        })
    }

    /// Its URL, `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Serves a chart, in place of one with the same name and version.
    pub fn publish(&self, chart: &Chart) -> Result<()> {
        let archive = chart.archive()?;
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.0.insert(archive_name(chart), (chart.clone(), archive));
        Ok(())
    }
}

impl Drop for ChartRepository {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Published {
    fn index(&self) -> Value {
        let mut entries = BTreeMap::<&str, Vec<Value>>::new();
        for (archive, (chart, content)) in &self.0 {
            entries.entry(chart.name()).or_default().push(json!({
                "apiVersion": "v2",
                "name": chart.name(),
                "version": chart.version(),
                "appVersion": chart.app_version(),
                "digest": digest(content),
                "urls": [archive],
            }));
        }
        json!({"apiVersion": "v1", "entries": entries})
    }
}

fn archive_name(chart: &Chart) -> String {
    format!("{}-{}.tgz", chart.name(), chart.version())
}

fn digest(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .fold(String::new(), |mut digits, byte| {
            // Writing to a String does not fail.
            let _written = write!(digits, "{byte:02x}");
            digits
        })
}

async fn index(State(published): State<Shared>) -> String {
    // JSON is YAML.
    published
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .index()
        .to_string()
}

async fn archive(
    State(published): State<Shared>,
    Path(archive): Path<String>,
) -> Result<Vec<u8>, StatusCode> {
    let published = published.lock().unwrap_or_else(PoisonError::into_inner);
    let found = published.0.get(&archive);
    found
        .map(|(_, content)| content.clone())
        .ok_or(StatusCode::NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use kube::{Client, Config};

    use super::*;

    async fn get(client: &Client, path: &str) -> kube::Result<String> {
        client
            .request_text(http::Request::get(path).body(Vec::new()).unwrap())
            .await
    }

    #[tokio::test]
    async fn every_version_of_a_chart_is_in_the_index() {
        let repository = ChartRepository::serve().await.unwrap();
        for version in ["1.17.4", "1.18.2"] {
            repository.publish(&Chart::new("cni", version, version)).unwrap();
        }
        let client = Client::try_from(Config::new(repository.url().parse().unwrap())).unwrap();
        let index: Value = serde_json::from_str(&get(&client, "/index.yaml").await.unwrap()).unwrap();
        let charts = index["entries"]["cni"].as_array().unwrap();
        assert_eq!(charts.len(), 2);
        assert_eq!(charts[1]["urls"], json!(["cni-1.18.2.tgz"]));
        assert_eq!(charts[1]["digest"].as_str().unwrap().len(), 64);
        assert!(get(&client, "/cni-1.19.0.tgz").await.is_err());
    }
}
