//! `sluice-bench load`, run as a user runs it, and the figures that it writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use tokio::process::Command;

use super::servers::Server;
use crate::processes::run_directory::target_directory;

/// How calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// HTTP/2 on one connection with 50 streams, as many calls as are answered.
    Throughput,
    /// A connection for each call, 50 at once, as many as are answered.
    Handshakes,
    /// HTTP/2 on one connection, a thousand calls a second, each at its time.
    Paced,
}

impl Sample {
    /// Fails unless all answers hold for the packages: otherwise the figures are of something else.
    pub(super) fn is_held(&self, server: &str) -> Result<()> {
        let Self { answered, holds, .. } = self;
        ensure!(
            holds.get("PackagesNotReady") == Some(answered) && holds.len() == 1,
            "{server} answered {answered} calls and held {holds:?}; all have to be held for their packages"
        );
        Ok(())
    }
}

impl Load {
    pub(super) const ALL: [Self; 3] = [Self::Throughput, Self::Handshakes, Self::Paced];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Throughput => "h2",
            Self::Handshakes => "handshake",
            Self::Paced => "1000/s",
        }
    }

    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Throughput => &["--closed"],
            Self::Handshakes => &["--closed", "--protocol=handshake"],
            Self::Paced => &["--rate=1000"],
        }
    }
}

/// Output of the driver, as far as it is compared.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Sample {
    pub(super) answered: u64,
    /// Answers that hold, by reason.
    pub(super) holds: BTreeMap<String, u64>,
    pub(super) errors: BTreeMap<String, Failed>,
    pub(super) throughput: f64,
    pub(super) latency: Latency,
    /// CPU usage of the driver, in parts of a processor.
    pub(super) driver_processors: f64,
    pub(super) process: Taken,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Failed {
    count: u64,
    first: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) curve: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Taken {
    pub(super) cpu_us_per_call: f64,
    pub(super) rss_mb_after: f64,
}

/// Where the driver is.
pub(super) fn program() -> PathBuf {
    target_directory()
        .unwrap_or_else(|| PathBuf::from("target"))
        .join("release/sluice-bench")
}

pub(super) fn is_built() -> Result<()> {
    let program = program();
    ensure!(
        program.is_file(),
        "missing: {}; `make build` makes it",
        program.display()
    );
    Ok(())
}

/// Puts load on a server for so many seconds. Fails unless each call was answered.
pub(super) async fn load(server: &Server, load: Load, seconds: u64, directory: &Path) -> Result<Sample> {
    let json = directory.join(format!("{}.json", server.name));
    let output = Command::new(program())
        .args(["load", &server.url, "--quiet", "--warmup=1s"])
        .arg(format!("--duration={seconds}s"))
        .args(load.flags())
        .arg("--ca")
        .arg(&server.ca)
        .arg("--json")
        .arg(&json)
        .arg("--pid")
        .arg(server.pid.to_string())
        .args(
            server
                .bodies
                .iter()
                .flat_map(|body| ["--body".as_ref(), body.as_os_str()]),
        )
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("start sluice-bench")?;
    ensure!(
        output.status.success(),
        "load on {}: {}",
        server.name,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = std::fs::read_to_string(&json).with_context(|| format!("read {}", json.display()))?;
    let sample: Sample = serde_json::from_str(&text).context("read the driver output")?;
    if let Some((kind, failed)) = sample.errors.first_key_value() {
        bail!(
            "load on {}: {} calls were not answered ({kind}: {})",
            server.name,
            failed.count,
            failed.first
        );
    }
    Ok(sample)
}
