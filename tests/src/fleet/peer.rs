//! The peer: a Go program with informers over the same objects, built from `tests/go/informers`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::time::sleep;

use super::bed::Bed;
use super::command::say;
use super::report;
use crate::components::build_here;
use crate::processes::gauge::Gauge;
use crate::processes::process::{Launch, Process};
use crate::wait;

/// How long it may take to list everything.
const READY: Duration = Duration::from_mins(5);

/// How long its memory may settle.
const REST: Duration = Duration::from_secs(10);

/// The built program.
#[derive(Debug, Clone)]
pub(super) struct Peer(PathBuf);

/// Measurements of the peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) ready_s: f64,
    pub(super) rss_mb: f64,
}

impl Peer {
    /// Builds it beside the report.
    pub(super) fn build() -> Result<Self> {
        let directory = report::path();
        let directory = directory.parent().context("the report is in no directory")?;
        fs::create_dir_all(directory)?;
        let program = fs::canonicalize(directory)?.join("informers");
        say("building the peer with go");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("go/informers");
        build_here(&sources, &program).context("the peer (--without-peer leaves it out)")?;
        Ok(Self(program))
    }
}

/// Starts it beside a fleet of so many clusters, and ends it.
pub(super) async fn measure(bed: &Bed, peer: &Peer, clusters: u32) -> Result<Measured> {
    let directory = bed.core.directory().subdirectory("peer")?;
    let (kubeconfig, ready) = (
        directory.join("kubeconfig"),
        directory.join(format!("ready-{clusters}")),
    );
    fs::write(&kubeconfig, bed.management.admin_kubeconfig())?;
    let launch = Launch::new("informers", &peer.0)
        // As Go programs run by default.
        .env("GOGC", "100")
        .arg(&kubeconfig)
        .arg(&ready);
    let began = Instant::now();
    let mut process = Process::start(bed.core.directory(), launch)?;
    let is_there = || async {
        if ready.exists() {
            Ok(())
        } else {
            wait::not_yet("its informers are being filled")
        }
    };
    process.until("to be ready", READY, is_there).await?;
    let ready_s = began.elapsed().as_secs_f64();
    sleep(REST).await;
    let rss_mb = Gauge::of(process.id()).resident()?;
    process.kill().await?;
    say(format_args!(
        "the peer is ready after {ready_s:.2} s, and takes {rss_mb:.1} MB"
    ));
    Ok(Measured { ready_s, rss_mb })
}
