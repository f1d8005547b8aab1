//! Measurements of a run: as text, and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::arguments::{Arguments, Protocol};
use super::process::Look;
use super::tally::Tally;
use super::watch::Watched;
use super::worker::Run;

/// What one run has measured. Latencies are milliseconds from when a call was due; MB are 10^6 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was asked.
    pub load: Load,
    /// Calls that were answered as the Runtime SDK says.
    pub answered: u64,
    /// Of these, the ones that Cluster API may go on after.
    pub released: u64,
    /// Of these, the ones that have it wait.
    pub held: u64,
    /// These by reason, the first word of the message.
    pub holds: BTreeMap<String, u64>,
    /// Calls without such an answer, by kind.
    pub errors: BTreeMap<String, Failed>,
    /// Answers a second.
    pub throughput: f64,
    /// Latencies of all calls; one without an answer counts until it was given up.
    pub latency: Latency,
    /// Connections that were opened.
    pub connections_opened: u64,
    /// Processor time of this driver in parts of one processor. Near the number of its threads it is the driver that is measured.
    pub driver_processors: f64,
    /// What the process of `--pid` took.
    pub process: Option<Taken>,
}

/// The flags of a run, as far as its figures depend on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// How connections were used.
    pub protocol: Option<Protocol>,
    /// Calls a second; absent where each stream called again as soon as it had its answer.
    pub rate: Option<f64>,
    /// Seconds of calls that count.
    pub seconds: f64,
    /// Connections at once.
    pub connections: u64,
    /// Calls in flight at most.
    pub in_flight: u64,
    /// The hooks.
    pub hooks: Vec<String>,
    /// Sizes of bodies in bytes.
    pub sizes: Vec<usize>,
}

/// Calls of one kind without an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// How many.
    pub count: u64,
    /// What was seen first.
    pub first: String,
}

/// A distribution in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the calls took no longer.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// The whole distribution: parts of all calls, from 0 to 1, and how long these took at most.
    pub curve: Vec<(f64, f64)>,
}

/// What a process took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// User and system time for each answer, in microseconds.
    pub cpu_us_per_call: f64,
    /// User and system time in parts of one processor.
    pub processors: f64,
    /// Resident memory before the first call, in MB.
    pub rss_mb_before: f64,
    /// The same after the last call.
    pub rss_mb_after: f64,
    /// Connections that were open within the last two seconds.
    pub connections: usize,
}

impl Report {
    pub(super) fn of(arguments: &Arguments, run: &Run, tally: &Tally, watched: &Watched) -> Self {
        let Watched {
            before,
            from,
            after,
            connections,
        } = watched;
        let ended = match run.seen.last() {
            Some(last) if run.pace.is_counted_out(tally.latencies.len()) => last,
            last => run.pace.ends.max(last.unwrap_or(run.pace.ends)),
        };
        let seconds = ended
            .saturating_duration_since(run.pace.counts_from)
            .as_secs_f64()
            .max(1e-9);
        let looked = after.seconds_since(from);
        let taken = |before: Look, from: Look, after: Look| {
            let took = after.processor.saturating_sub(from.processor).as_secs_f64();
            Taken {
                cpu_us_per_call: took * 1e6 / float(tally.answered()),
                processors: took / looked,
                rss_mb_before: float(before.resident) / 1e6,
                rss_mb_after: float(after.resident) / 1e6,
                connections: *connections,
            }
        };
        let process = before.process.zip(from.process).zip(after.process);
        let driver = after.driver.processor.saturating_sub(from.driver.processor);
        Self {
            load: Load {
                protocol: Some(arguments.protocol),
                rate: arguments.rate,
                seconds,
                connections: arguments.connections(),
                in_flight: arguments.in_flight(),
                hooks: run.calls.hooks().into_iter().map(str::to_owned).collect(),
                sizes: run.calls.sizes(),
            },
            answered: tally.answered(),
            released: tally.released,
            held: tally.holds(),
            holds: tally.held.clone(),
            errors: tally.failed().collect(),
            throughput: float(tally.answered()) / seconds,
            latency: Latency::of(tally),
            connections_opened: tally.opened,
            driver_processors: driver.as_secs_f64() / looked,
            process: process.map(|((before, from), after)| taken(before, from, after)),
        }
    }
}

impl Latency {
    fn of(tally: &Tally) -> Self {
        let milliseconds = |nanoseconds: u64| float(nanoseconds) / 1e6;
        let quantile = |part: f64| milliseconds(tally.latencies.value_at_quantile(part));
        let curve = tally.latencies.iter_quantiles(5);
        Self {
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: milliseconds(tally.latencies.max()),
            curve: curve
                .map(|step| (step.quantile(), milliseconds(step.value_iterated_to())))
                .collect(),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "far fewer than 2^52 answers, bytes and nanoseconds"
)]
const fn float(number: u64) -> f64 {
    number as f64
}

impl fmt::Display for Report {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency {
            p50,
            p90,
            p99,
            p999,
            max,
            ..
        } = self.latency;
        writeln!(
            to,
            "latency     p50 {p50:.3} ms   p90 {p90:.3}   p99 {p99:.3}   p99.9 {p999:.3}   max {max:.3}"
        )?;
        writeln!(
            to,
            "throughput  {:.0} answers a second for {:.1} s over {} connections opened",
            self.throughput, self.load.seconds, self.connections_opened
        )?;
        writeln!(
            to,
            "answers     {}: {} held, {} released",
            self.answered, self.held, self.released
        )?;
        for (reason, calls) in self.holds.iter().filter(|(reason, _)| !reason.is_empty()) {
            writeln!(to, "held        {calls} {reason}")?;
        }
        for (kind, failed) in &self.errors {
            writeln!(
                to,
                "errors      {} {kind}, the first: {}",
                failed.count, failed.first
            )?;
        }
        if let Some(taken) = &self.process {
            writeln!(
                to,
                "process     {:.1} µs of CPU for each answer, {:.2} processors, {:.1} MB resident ({:.1} before), {} connections",
                taken.cpu_us_per_call,
                taken.processors,
                taken.rss_mb_after,
                taken.rss_mb_before,
                taken.connections
            )?;
        }
        write!(to, "driver      {:.2} processors", self.driver_processors)
    }
}
