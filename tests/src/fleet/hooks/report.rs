//! `target/bench/hooks.json`, whose fields are a contract.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::driver::{Load, Sample};
use super::rounds::{During, Rounds};
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

    // Beside what the contract names.
    /// The least and the most of each ratio among the rounds.
    #[serde(default)]
    spread: BTreeMap<String, (f64, f64)>,
    /// Medians: server, load, figure.
    #[serde(default)]
    medians: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>,
    /// Latencies at 1,000 calls a second in the last round, by server: parts of all calls, and milliseconds.
    #[serde(default)]
    curves: BTreeMap<String, Vec<(f64, f64)>>,
    /// The same while clusters are upgraded.
    #[serde(default)]
    curves_during_upgrade: BTreeMap<String, Vec<(f64, f64)>>,
}

/// One ratio: a figure of Sluice over that of another server under the same load in the same round.
struct Ratio {
    name: &'static str,
    load: Load,
    to: &'static str,
    figure: fn(&Sample) -> f64,
    /// What it should be, and whether at least that.
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

/// Writes what the rounds came to, keeping what was measured during an upgrade, and prints the ratios first.
pub(super) fn write(rounds: &Rounds) -> Result<PathBuf> {
    let before = read().unwrap_or_default();
    let mut figures = Figures {
        machine: machine(),
        rounds: rounds.count,
        rss_idle_mb: Some(rounds.rss_idle_mb),
        rss_after_mb: Some(rounds.memory("sluice")),
        peer_rss_mb: Some(rounds.memory("go")),
        p99_ratio_during_upgrade: before.p99_ratio_during_upgrade,
        curves_during_upgrade: before.curves_during_upgrade,
        ..Figures::default()
    };
    let mut lines = Vec::new();
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
        let middle = median(&ratios).context("no rounds")?;
        let (least, most) = ratios.iter().fold((f64::MAX, 0.0_f64), |(least, most), ratio| {
            (least.min(*ratio), most.max(*ratio))
        });
        figures.spread.insert((*name).to_owned(), (least, most));
        lines.push(format!(
            "{}  ({least:.2} to {most:.2})",
            goal_line(name, middle, *goal)
        ));
        let field = match *name {
            "h2_cpu_ratio" => &mut figures.h2_cpu_ratio,
            "h2_throughput_ratio" => &mut figures.h2_throughput_ratio,
            "handshake_cpu_ratio" => &mut figures.handshake_cpu_ratio,
            "p99_ratio_1k" => &mut figures.p99_ratio_1k,
            _ => &mut figures.echo_cpu_ratio,
        };
        *field = Some(middle);
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
            ];
            let medians = medians.map(|(name, figure)| (name.to_owned(), figure));
            let loads = figures.medians.entry(server.to_owned()).or_default();
            loads.insert(load.as_str().to_owned(), medians.into());
        }
        let mut last = rounds.all.iter().rev();
        let last = last.find(|one| one.server == server && one.load == Load::Paced);
        if let Some(last) = last {
            debug_assert_eq!(last.round + 1, rounds.count);
            figures
                .curves
                .insert(server.to_owned(), last.sample.latency.curve.clone());
        }
    }
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

/// Adds what was measured during an upgrade to the figures that are there.
pub(super) fn add(during: &During) -> Result<PathBuf> {
    let mut figures = read().unwrap_or_default();
    figures.machine = machine();
    let ratio = during.sluice.latency.p99 / during.echo.latency.p99;
    figures.p99_ratio_during_upgrade = Some(ratio);
    for (server, sample) in [("sluice", &during.sluice), ("echo", &during.echo)] {
        figures
            .curves_during_upgrade
            .insert(server.to_owned(), sample.latency.curve.clone());
    }
    say(goal_line("p99_ratio_during_upgrade", ratio, DURING_GOAL));
    store(&figures)
}

fn goal_line(name: &str, ratio: f64, (goal, at_least): (f64, bool)) -> String {
    let met = if at_least { ratio >= goal } else { ratio <= goal };
    let sign = if at_least { "≥" } else { "≤" };
    let verdict = if met { "met" } else { "missed" };
    format!("{name:26} {ratio:6.2}  goal {sign} {goal:.2}, {verdict}")
}

fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn read() -> Option<Figures> {
    serde_json::from_str(&fs::read_to_string(path()).ok()?).ok()
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

/// The processors that there are, and their model.
fn machine() -> String {
    let processors = thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!(
        "{processors} processors, {}",
        model.map_or("of an unknown model", |(_, model)| model)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_held_against_its_goal() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
        assert!(goal_line("a", 0.21, (0.20, false)).ends_with("missed"));
        assert!(goal_line("a", 4.0, (4.0, true)).ends_with("met"));
    }

    #[test]
    fn figures_without_an_upgrade_are_read() {
        let text = serde_json::to_string(&Figures::default()).unwrap();
        let figures: Figures = serde_json::from_str(&text).unwrap();
        assert_eq!(figures.p99_ratio_during_upgrade, None);
    }
}
