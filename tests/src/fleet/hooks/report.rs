//! `target/bench/hooks.json`, whose fields are a contract.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::driver::{Latency, Load, Sample};
use super::rounds::{During, Rounds};
use crate::figures::{commit, machine, median};
use crate::fleet::command::say;

/// Ratios are of Sluice to the peer, an extension in Go, unless they say another one.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Figures {
    machine: String,
    rounds: usize,
    h2_cpu_ratio: Option<f64>,
    h2_throughput_ratio: Option<f64>,
    handshake_cpu_ratio: Option<f64>,
    p99_ratio_1k: Option<f64>,
    echo_cpu_ratio: Option<f64>,
    rss_idle_mb: Option<f64>,
    rss_after_mb: Option<f64>,
    peer_rss_mb: Option<f64>,
    /// Of Sluice to the echo.
    p99_ratio_during_upgrade: Option<f64>,

    // Fields outside the contract.
    /// Measurements; the report never mixes figures of different commits.
    commit: String,
    /// The ratios with their goals, in the order in which they are shown.
    ratios: Vec<Held>,
    /// Medians: server, load, figure.
    medians: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>,
    /// Latencies at 1,000 calls a second in the last round, by server: parts of all calls, and milliseconds.
    curves: BTreeMap<String, Vec<(f64, f64)>>,
    /// The same while clusters are upgraded.
    curves_during_upgrade: BTreeMap<String, Vec<(f64, f64)>>,
    /// p99 in milliseconds while clusters are upgraded, by server.
    p99_ms_during_upgrade: BTreeMap<String, f64>,
    /// Clusters whose packages were all written in that time.
    upgraded: Option<usize>,
}

/// A ratio held against its goal.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Held {
    name: String,
    ratio: f64,
    /// The least and the most among the rounds.
    spread: (f64, f64),
    goal: f64,
    /// Whether the goal is a minimum.
    at_least: bool,
    met: bool,
}

impl Held {
    /// The median of the rounds; none without rounds.
    fn of(name: &str, rounds: &[f64], (goal, at_least): (f64, bool)) -> Option<Self> {
        let ratio = median(rounds)?;
        let spread = rounds.iter().fold((f64::MAX, 0.0_f64), |(least, most), ratio| {
            (least.min(*ratio), most.max(*ratio))
        });
        Some(Self {
            name: name.to_owned(),
            ratio,
            spread,
            goal,
            at_least,
            met: if at_least { ratio >= goal } else { ratio <= goal },
        })
    }
}

impl fmt::Display for Held {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            ratio,
            goal,
            spread: (least, most),
            ..
        } = self;
        let sign = if self.at_least { "≥" } else { "≤" };
        let verdict = if self.met { "met" } else { "missed" };
        write!(
            to,
            "{name:26} {ratio:6.2}  ({least:.2} to {most:.2})  goal {sign} {goal:.2}, {verdict}"
        )
    }
}

/// One ratio: a figure of Sluice over that of another server under the same load in the same round.
struct Ratio {
    name: &'static str,
    load: Load,
    to: &'static str,
    figure: fn(&Sample) -> f64,
    /// Goal, and whether it is a minimum.
    goal: (f64, bool),
}

const fn cpu(sample: &Sample) -> f64 {
    sample.process.cpu_us_per_call
}

const fn throughput(sample: &Sample) -> f64 {
    sample.throughput
}

const fn p99(sample: &Sample) -> f64 {
    sample.latency.p99
}

const RATIOS: [Ratio; 5] = [
    ratio("h2_cpu_ratio", Load::Throughput, "go", cpu, (0.20, false)),
    ratio(
        "h2_throughput_ratio",
        Load::Throughput,
        "go",
        throughput,
        (4.0, true),
    ),
    ratio("handshake_cpu_ratio", Load::Handshakes, "go", cpu, (0.40, false)),
    ratio("p99_ratio_1k", Load::Paced, "go", p99, (0.3, false)),
    ratio("echo_cpu_ratio", Load::Throughput, "echo", cpu, (1.25, false)),
];

const fn ratio(
    name: &'static str,
    load: Load,
    to: &'static str,
    figure: fn(&Sample) -> f64,
    goal: (f64, bool),
) -> Ratio {
    Ratio {
        name,
        load,
        to,
        figure,
        goal,
    }
}

const DURING_GOAL: (f64, bool) = (2.0, false);

fn path() -> PathBuf {
    crate::fleet::report::path().with_file_name("hooks.json")
}

/// Writes the results of the rounds, keeps those of this commit during an upgrade, and prints the ratios first.
pub(super) fn write(rounds: &Rounds) -> Result<PathBuf> {
    let mut figures = read().unwrap_or_else(Figures::of_this_commit);
    figures.rounds = rounds.count;
    figures.rss_idle_mb = Some(rounds.rss_idle_mb);
    figures.rss_after_mb = Some(rounds.memory("sluice"));
    figures.peer_rss_mb = Some(rounds.memory("go"));
    for Ratio {
        name,
        load,
        to,
        figure,
        goal,
    } in &RATIOS
    {
        let pairs = rounds
            .of("sluice", *load, *figure)
            .into_iter()
            .zip(rounds.of(to, *load, *figure));
        let ratios: Vec<f64> = pairs.map(|(own, others)| own / others).collect();
        figures.hold(Held::of(name, &ratios, *goal).context("no rounds")?);
    }
    for server in ["sluice", "go", "echo"] {
        for load in Load::ALL {
            let of =
                |figure: fn(&Sample) -> f64| median(&rounds.of(server, load, figure)).unwrap_or_default();
            let medians = [
                ("cpu_us", of(cpu)),
                ("answers_per_second", of(throughput)),
                ("p50_ms", of(|sample| sample.latency.p50)),
                ("p99_ms", of(p99)),
                ("driver_processors", of(|sample| sample.driver_processors)),
            ];
            let medians = medians.map(|(name, figure)| (name.to_owned(), figure));
            let loads = figures.medians.entry(server.to_owned()).or_default();
            loads.insert(load.as_str().to_owned(), medians.into());
        }
        let mut last = rounds.all.iter().rev();
        if let Some(last) = last.find(|one| one.server == server && one.load == Load::Paced) {
            let curve = last.sample.latency.curve.clone();
            figures.curves.insert(server.to_owned(), curve);
        }
    }
    let lines: Vec<_> = figures.ratios.iter().map(Held::to_string).collect();
    say(format_args!(
        "ratios, median of {} rounds (least to most)\n{}\nmemory {:.1} MB idle, {:.1} MB at most, the peer {:.1} MB",
        rounds.count,
        lines.join("\n"),
        rounds.rss_idle_mb,
        rounds.memory("sluice"),
        rounds.memory("go")
    ));
    store(&figures)
}

/// Adds measurements during an upgrade to the existing figures.
pub(super) fn add(during: &During) -> Result<PathBuf> {
    let mut figures = read().unwrap_or_else(Figures::of_this_commit);
    for (server, sample) in [("sluice", &during.sluice), ("echo", &during.echo)] {
        let Latency { p99, curve, .. } = &sample.latency;
        figures.p99_ms_during_upgrade.insert(server.to_owned(), *p99);
        figures
            .curves_during_upgrade
            .insert(server.to_owned(), curve.clone());
    }
    figures.upgraded = Some(during.upgraded);
    let ratio = during.sluice.latency.p99 / during.echo.latency.p99;
    let held = Held::of("p99_ratio_during_upgrade", &[ratio], DURING_GOAL).context("no window")?;
    say(&held);
    figures.hold(held);
    store(&figures)
}

impl Figures {
    fn of_this_commit() -> Self {
        Self {
            machine: machine(),
            commit: commit(),
            ..Self::default()
        }
    }

    /// Takes a ratio, in its own field and among all.
    fn hold(&mut self, held: Held) {
        let field = match held.name.as_str() {
            "h2_cpu_ratio" => &mut self.h2_cpu_ratio,
            "h2_throughput_ratio" => &mut self.h2_throughput_ratio,
            "handshake_cpu_ratio" => &mut self.handshake_cpu_ratio,
            "p99_ratio_1k" => &mut self.p99_ratio_1k,
            "echo_cpu_ratio" => &mut self.echo_cpu_ratio,
            _ => &mut self.p99_ratio_during_upgrade,
        };
        *field = Some(held.ratio);
        self.ratios.retain(|other| other.name != held.name);
        self.ratios.push(held);
    }
}

/// The file, if it is of this commit and this machine.
fn read() -> Option<Figures> {
    let figures: Figures = serde_json::from_str(&fs::read_to_string(path()).ok()?).ok()?;
    (figures.commit == commit() && figures.machine == machine()).then_some(figures)
}

fn store(figures: &Figures) -> Result<PathBuf> {
    let path = path();
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    }
    let text = format!("{}\n", serde_json::to_string_pretty(figures)?);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_held_against_its_goal() {
        let held = Held::of("p99_ratio_1k", &[0.5, 0.2, 0.3], (0.3, false)).unwrap();
        assert_eq!((held.ratio, held.spread, held.met), (0.3, (0.2, 0.5), true));
        assert!(!Held::of("h2_throughput_ratio", &[3.9], (4.0, true)).unwrap().met);
        assert!(Held::of("h2_throughput_ratio", &[], (4.0, true)).is_none());
        let mut figures = Figures::default();
        figures.hold(held.clone());
        figures.hold(held);
        assert_eq!((figures.p99_ratio_1k, figures.ratios.len()), (Some(0.3), 1));
    }
}
