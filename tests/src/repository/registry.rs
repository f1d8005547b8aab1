//! A registry of images: a Go program, built from `tests/go/registry`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::Bundle;
use crate::components::build_here;
use crate::processes::process::{Launch, Process};
use crate::stack::StackCore;
use crate::wait;

/// How long the program may take to listen.
const READY: Duration = Duration::from_secs(30);

/// Served on loopback until it is dropped.
pub struct Registry {
    address: String,
    client: Client,
    published: AtomicUsize,
    _process: Process,
}

impl Registry {
    /// Builds the program and starts it; it has no image yet.
    pub async fn start(core: &StackCore) -> Result<Self> {
        let directory = core.directory().subdirectory("registry")?;
        let program = build(&directory).await?;
        let address = directory.join("address");
        let launch = Launch::new("registry", program).arg(&address);
        let process = Process::start(core.directory(), launch)?;
        let address = process
            .until("to listen", READY, || async {
                match fs::read_to_string(&address) {
                    Ok(address) => Ok(address),
                    Err(error) => wait::not_yet(error),
                }
            })
            .await?;
        Ok(Self {
            client: Client::try_from(Config::new(format!("http://{address}").parse()?))?,
            address,
            published: AtomicUsize::default(),
            _process: process,
        })
    }

    pub(super) async fn publish(&self, name: &str, bundle: &Bundle) -> Result<Value> {
        let tag = format!("r{}", self.published.fetch_add(1, Ordering::Relaxed));
        let request = http::Request::put(format!("/bundles/{name}/{tag}")).body(bundle.tarball()?)?;
        let pushed = self.client.request_text(request).await;
        pushed.with_context(|| format!("push bundle {name}:{tag}"))?;
        Ok(json!({"imgpkgBundle": {"image": format!("{}/{name}:{tag}", self.address)}}))
    }
}

async fn build(directory: &Path) -> Result<PathBuf> {
    let program = directory.join("registry");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("go/registry");
    let built = program.clone();
    tokio::task::spawn_blocking(move || build_here(&sources, &built)).await??;
    Ok(program)
}
