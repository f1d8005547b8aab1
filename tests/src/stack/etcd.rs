//! One etcd per stack; each API server has a prefix of its own in it, so resourceVersions are comparable
//! across all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::{Client, Config};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::components::Binaries;
use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process, stands_still};
use crate::processes::run_directory::RunDirectory;
use crate::wait;

/// How soon a process stands still after SIGSTOP.
const STOPS: Duration = Duration::from_secs(20);

/// A running etcd: ports for its whole life, and a process that may be replaced.
#[derive(Debug)]
pub struct Etcd {
    client_port: Port,
    _peer_port: Port,
    launch: Launch,
    data: PathBuf,
    process: Mutex<Process>,
    // Last, so that the process is killed before the directory is removed.
    directory: Arc<RunDirectory>,
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
            .arg(&data)
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
        let process = run(directory, launch.clone(), &client_url).await?;
        Ok(Self {
            client_port,
            _peer_port: peer_port,
            launch,
            data,
            process: Mutex::new(process),
            directory: directory.clone(),
        })
    }

    /// Copies all data as they are now, and returns the directory of the copy.
    ///
    /// etcd only stands still for that, so its clients notice nothing. The copy is what a crash would have left behind: etcd recovers
    /// from it.
    pub async fn back_up(&self) -> Result<PathBuf> {
        let copy = tempfile::Builder::new()
            .prefix("etcd-backup-")
            .tempdir_in(self.directory.path())
            .context("create a directory for a copy of the data of etcd")?
            .keep();
        let process = self.process.lock().await;
        process.signal(Signal::SIGSTOP)?;
        let copied = copy_still(&process, &self.data, &copy).await;
        process.signal(Signal::SIGCONT)?;
        copied.context("copy the data of etcd")?;
        Ok(copy)
    }

    /// Kills etcd, puts a copy of [`Self::back_up`] in the place of its data and starts it again at the same address. Revisions go on
    /// from that of the copy, so they come a second time. No API server may run.
    pub async fn restore(&self, copy: &Path) -> Result<()> {
        let mut process = self.process.lock().await;
        process.kill().await?;
        fs::remove_dir_all(&self.data).context("remove the data of etcd")?;
        fs::rename(copy, &self.data).context("put a copy in the place of the data of etcd")?;
        *process = run(&self.directory, self.launch.clone(), &self.url()).await?;
        Ok(())
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

/// Starts etcd and waits until it is healthy.
async fn run(directory: &Arc<RunDirectory>, launch: Launch, url: &str) -> Result<Process> {
    let process = Process::start(directory, launch)?;
    let health = Probe::new(url, "/health")?;
    process
        .until("to be healthy", Duration::from_mins(2), || health.get())
        .await?;
    Ok(process)
}

/// Copies the data of a process that was stopped, once all of it stands still.
async fn copy_still(process: &Process, from: &Path, to: &Path) -> Result<()> {
    process
        .until("to stand still", STOPS, || async {
            if stands_still(process.id())? {
                Ok(())
            } else {
                wait::not_yet("a thread that still runs")
            }
        })
        .await?;
    let (from, to) = (from.to_owned(), to.to_owned());
    tokio::task::spawn_blocking(move || copy_directory(&from, &to))
        .await
        .context("wait for the copy")?
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_directory(&source, &target)?;
        } else {
            fs::copy(&source, &target).with_context(|| format!("copy {}", source.display()))?;
        }
    }
    Ok(())
}

fn url(port: &Port) -> String {
    format!("http://127.0.0.1:{}", port.number())
}
