//! Samples a run from outside while it goes on: its progress, and the resources of driver and extension.

use std::io::IsTerminal as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::sleep;

use super::arguments::Arguments;
use super::process::{self, Look};
use super::worker::Run;

/// Time between two samples.
const LOOK: Duration = Duration::from_millis(200);

/// What driver and extension have taken until a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks {
    pub(super) at: Instant,
    pub(super) driver: Look,
    pub(super) process: Option<Look>,
}

/// Samples of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    /// Before the first call.
    pub(super) before: Looks,
    /// When calls began to count.
    pub(super) from: Looks,
    /// After the last call.
    pub(super) after: Looks,
    /// Connections to the extension that were open at one of the last samples.
    pub(super) connections: usize,
}

impl Looks {
    pub(super) fn take(pid: Option<u32>) -> Result<Self> {
        Ok(Self {
            at: Instant::now(),
            driver: process::look(std::process::id())?,
            process: pid.map(process::look).transpose().context("--pid")?,
        })
    }

    /// Seconds from an earlier sample to this one.
    pub(super) fn seconds_since(&self, earlier: &Self) -> f64 {
        self.at
            .saturating_duration_since(earlier.at)
            .as_secs_f64()
            .max(1e-9)
    }
}

/// Watches a run until it `has_ended`.
pub(super) async fn watch(arguments: &Arguments, run: &Run, has_ended: impl Fn() -> bool) -> Result<Watched> {
    let before = Looks::take(arguments.pid)?;
    let (mut from, mut connections) = (before, None);
    let progress = progress(arguments);
    let port = run.target.port();
    let mut looks = 0_u32;
    while !has_ended() {
        sleep(until_next(run)).await;
        let now = Instant::now();
        if from.at < run.pace.counts_from && now >= run.pace.counts_from {
            from = Looks::take(arguments.pid)?;
        }
        // Linux lists all that were closed lately, too, which are very many where each call has its own.
        let is_worth_it = looks.is_multiple_of(10) || now + LOOK >= run.pace.ends;
        if arguments.pid.is_some() && is_worth_it {
            connections = Some(process::connections(port)?);
        }
        looks += 1;
        progress.set_position(milliseconds(now.saturating_duration_since(before.at)));
        progress.set_message(format!(
            "{} answered, {} errors",
            run.seen.answered.load(Ordering::Relaxed),
            run.seen.errors.load(Ordering::Relaxed)
        ));
    }
    progress.finish_and_clear();
    Ok(Watched {
        before,
        from,
        after: Looks::take(arguments.pid)?,
        connections: connections.unwrap_or_default(),
    })
}

/// Time until the next sample.
fn until_next(run: &Run) -> Duration {
    let left = run.pace.counts_from.saturating_duration_since(Instant::now());
    if left.is_zero() { LOOK } else { LOOK.min(left) }
}

fn progress(arguments: &Arguments) -> ProgressBar {
    let bar = ProgressBar::new(milliseconds(arguments.warmup + arguments.duration));
    if arguments.quiet || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:30} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
