//! One etcd per stack; each API server has a prefix of its own in it, so resourceVersions are comparable
//! across all of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::components::Binaries;
use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::processes::run_directory::RunDirectory;

/// A running etcd.
#[derive(Debug)]
pub struct Etcd {
    client_port: Port,
    _peer_port: Port,
    _process: Process,
}

impl Etcd {
    /// Starts etcd on empty data and waits until it is healthy.
    pub async fn start(binaries: &Binaries, directory: &Arc<RunDirectory>) -> Result<Self> {
        let (client_port, peer_port) = (Port::reserve()?, Port::reserve()?);
        let client_url = url(&client_port);
        let peer_url = url(&peer_port);
        let data = directory.subdirectory("etcd")?;
        let launch = Launch::new("etcd", binaries.etcd())
            .arg("--data-dir")
            .arg(data)
            .args([
                "--listen-client-urls",
                &client_url,
                "--advertise-client-urls",
                &client_url,
            ])
            .args([
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
            ])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            // The data never outlives the stack.
            .args(["--unsafe-no-fsync", "--log-level", "warn"]);
        let process = Process::start(directory, launch)?;
        let health = Probe::new(&client_url, "/health")?;
        process
            .until("to be healthy", Duration::from_mins(2), || health.get())
            .await?;
        Ok(Self {
            client_port,
            _peer_port: peer_port,
            _process: process,
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.client_port)
    }

    /// Deletes every key below `/prefix/`. The API server of the prefix must not run.
    pub(crate) async fn delete_below(&self, prefix: &str) -> Result<()> {
        // The byte after the slash ends the range.
        let range = json!({
            "key": BASE64_STANDARD.encode(format!("/{prefix}/")),
            "range_end": BASE64_STANDARD.encode(format!("/{prefix}0")),
        });
        let config = Config::new(self.url().parse().context("read the address of etcd")?);
        let client = Client::try_from(config).context("make a client of etcd")?;
        let request = http::Request::post("/v3/kv/deleterange")
            .header("content-type", "application/json")
            .body(range.to_string().into_bytes())?;
        client.request::<Value>(request).await.map(drop)?;
        Ok(())
    }
}

fn url(port: &Port) -> String {
    format!("http://127.0.0.1:{}", port.number())
}
