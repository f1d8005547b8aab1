//! Load on the hooks of a runtime extension, as Cluster API makes it.
//!
//! Calls have their times, and a latency counts from when a call was due: the stall of an extension is in the figures of all calls that
//! waited for it, also of those that were made late or not at all, because all streams waited for answers.

mod arguments;
mod calls;
mod outcome;
mod pace;
pub mod plot;
mod process;
mod report;
mod tally;
mod target;
mod watch;
mod wire;
mod worker;

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::runtime;

pub use self::arguments::{Arguments, Protocol};
use self::calls::Calls;
use self::pace::Pace;
pub use self::report::{Failed, Latency, Load, Report, Taken};
use self::tally::Tally;
use self::target::Target;
use self::worker::Run;

/// Makes the calls, and says what was measured. Fails with one line where nothing was answered.
pub fn run(arguments: &Arguments) -> Result<Report> {
    arguments.check()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (target, calls) = runtime.block_on(async {
        let target = Target::of(arguments).await?;
        let calls = Calls::of(arguments, &target).await?;
        anyhow::Ok((target, calls))
    })?;
    let run = Arc::new(begin(arguments, target, calls));
    let lanes: Vec<_> = parts(arguments)
        .map(|connections| {
            let run = Arc::clone(&run);
            thread::spawn(move || worker::lane(&run, connections))
        })
        .collect();
    let has_ended = || lanes.iter().all(thread::JoinHandle::is_finished);
    let watched = runtime.block_on(watch::watch(arguments, &run, has_ended))?;
    let mut tally = Tally::new()?;
    for lane in lanes {
        let counted = lane
            .join()
            .map_err(|_| anyhow!("a thread of the driver panicked"))?;
        tally.add(&counted.context("the driver")?)?;
    }
    for (due, calls) in run.pace.unsent() {
        let waited = watched.after.at.saturating_duration_since(due);
        tally.count(Err(worker::unsent()), waited, calls);
    }
    if tally.answered() == 0 {
        let kinds = tally.errors.iter();
        let kinds: Vec<_> = kinds
            .map(|(kind, errors)| format!("{} {} ({})", errors.count, kind.as_str(), errors.first))
            .collect();
        match kinds.as_slice() {
            [] => bail!("{}: no call was due in {:?}", arguments.url, arguments.duration),
            _ => bail!("{}: nothing was answered: {}", arguments.url, kinds.join(", ")),
        }
    }
    Ok(Report::of(arguments, &run, &tally, &watched))
}

/// The run, which begins now.
fn begin(arguments: &Arguments, target: Target, calls: Calls) -> Run {
    let most = arguments.requests.unwrap_or(u64::MAX);
    Run {
        timeout: calls.timeout(),
        target,
        pace: Pace::new(
            Instant::now(),
            arguments.rate,
            arguments.warmup,
            arguments.duration,
            most,
        ),
        calls,
        protocol: arguments.protocol,
        streams: arguments.streams,
        seen: worker::Seen::default(),
    }
}

/// How many connections each thread has.
fn parts(arguments: &Arguments) -> impl Iterator<Item = u64> {
    let (connections, threads) = (arguments.connections(), arguments.threads);
    (0..threads)
        .map(move |thread| connections / threads + u64::from(thread < connections % threads))
        .filter(|connections| *connections > 0)
}
