//! `docs/performance/hooks-*.svg` and the table of `docs/performance.md`, made from the file that `make bench-hooks` writes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Deserialize;

use crate::load::{Latency, plot};

/// What the table stands between.
const BEGIN: &str = "<!-- begin of the table of hooks -->\n";
const END: &str = "<!-- end of the table of hooks -->\n";

/// Draws the pictures of docs/performance.md, and writes its table, from what `make bench-hooks` has measured.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// What was measured.
    #[arg(long, value_name = "FILE", default_value = "target/bench/hooks.json")]
    pub figures: PathBuf,
    /// Where performance.md is.
    #[arg(long, value_name = "DIRECTORY", default_value = "docs")]
    pub docs: PathBuf,
}

/// The file, as far as it is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Figures {
    machine: String,
    rounds: usize,
    h2_cpu_ratio: Option<f64>,
    h2_throughput_ratio: Option<f64>,
    handshake_cpu_ratio: Option<f64>,
    p99_ratio_1k: Option<f64>,
    echo_cpu_ratio: Option<f64>,
    p99_ratio_during_upgrade: Option<f64>,
    rss_idle_mb: Option<f64>,
    rss_after_mb: Option<f64>,
    peer_rss_mb: Option<f64>,
    spread: BTreeMap<String, (f64, f64)>,
    medians: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>,
    curves: BTreeMap<String, Vec<(f64, f64)>>,
    curves_during_upgrade: BTreeMap<String, Vec<(f64, f64)>>,
}

/// A ratio: its name, its goal, and whether that is the least.
type Goal = (&'static str, fn(&Figures) -> Option<f64>, f64, bool);

const GOALS: [Goal; 6] = [
    ("h2_cpu_ratio", |figures| figures.h2_cpu_ratio, 0.20, false),
    (
        "h2_throughput_ratio",
        |figures| figures.h2_throughput_ratio,
        4.0,
        true,
    ),
    (
        "handshake_cpu_ratio",
        |figures| figures.handshake_cpu_ratio,
        0.40,
        false,
    ),
    ("p99_ratio_1k", |figures| figures.p99_ratio_1k, 0.3, false),
    ("echo_cpu_ratio", |figures| figures.echo_cpu_ratio, 1.25, false),
    (
        "p99_ratio_during_upgrade",
        |figures| figures.p99_ratio_during_upgrade,
        2.0,
        false,
    ),
];

/// Names of the servers in the file, and in the pictures.
const SERVERS: [(&str, &str); 3] = [
    ("sluice", "Sluice"),
    ("go", "extension in Go"),
    ("echo", "bare echo"),
];

/// The loads in the file.
const LOADS: [&str; 3] = ["h2", "handshake", "1000/s"];

/// Writes the table and the pictures.
pub fn draw(arguments: &Arguments) -> Result<()> {
    let Arguments { figures: path, docs } = arguments;
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let figures: Figures = serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))?;
    let page = docs.join("performance.md");
    let text = fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
    let text = with_table(&text, &table(&figures))
        .with_context(|| format!("{} has no place for a table", page.display()))?;
    fs::write(&page, text).with_context(|| format!("write {}", page.display()))?;
    for (file, title, curves) in [
        (
            "hooks-latency.svg",
            "Answers that hold, 1,000 calls a second",
            &figures.curves,
        ),
        (
            "hooks-during-upgrade.svg",
            "The same while 200 clusters are upgraded",
            &figures.curves_during_upgrade,
        ),
    ] {
        if !curves.is_empty() {
            picture(&docs.join("performance").join(file), title, curves)?;
        }
    }
    Ok(())
}

fn picture(path: &Path, title: &str, curves: &BTreeMap<String, Vec<(f64, f64)>>) -> Result<()> {
    let latency = |name: &str| {
        let curve = curves.get(name)?.clone();
        Some(Latency {
            curve,
            ..Latency::default()
        })
    };
    let found: Vec<_> = SERVERS
        .iter()
        .filter_map(|(name, shown)| Some((*shown, latency(name)?)))
        .collect();
    let of: Vec<_> = found.iter().map(|(name, latency)| (*name, latency)).collect();
    let svg = plot::distribution(title, &of)?;
    fs::write(path, svg).with_context(|| format!("write {}", path.display()))
}

/// Ratios first, then the medians that they are of.
fn table(figures: &Figures) -> String {
    let mut table = format!(
        "On {}; medians of {} rounds.\n\n| ratio | median | least to most | goal | |\n|---|---|---|---|---|\n",
        figures.machine, figures.rounds
    );
    for (name, of, goal, at_least) in GOALS {
        let sign = if at_least { "≥" } else { "≤" };
        let (ratio, verdict) = match of(figures) {
            Some(ratio) if (at_least && ratio >= goal) || (!at_least && ratio <= goal) => {
                (format!("{ratio:.2}"), "met")
            }
            Some(ratio) => (format!("{ratio:.2}"), "missed"),
            None => ("–".to_owned(), "not measured"),
        };
        let spread = figures.spread.get(name).map_or_else(
            || "–".to_owned(),
            |(least, most)| format!("{least:.2} to {most:.2}"),
        );
        let _never = writeln!(
            table,
            "| `{name}` | {ratio} | {spread} | {sign} {goal:.2} | {verdict} |"
        );
    }
    table.push_str("\n| | load | CPU of an answer, µs | answers a second | p50, ms | p99, ms |\n|---|---|---|---|---|---|\n");
    for (name, shown) in SERVERS {
        for load in LOADS {
            let of = |figure: &str| {
                figures
                    .medians
                    .get(name)
                    .and_then(|loads| loads.get(load)?.get(figure))
                    .copied()
                    .unwrap_or_default()
            };
            let _never = writeln!(
                table,
                "| {shown} | {load} | {:.1} | {:.0} | {:.2} | {:.2} |",
                of("cpu_us"),
                of("answers_per_second"),
                of("p50_ms"),
                of("p99_ms")
            );
        }
    }
    let megabytes =
        |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.1}"));
    let _never = writeln!(
        table,
        "\nMemory: Sluice {} MB before and {} MB at most after a load, the extension in Go {} MB.",
        megabytes(figures.rss_idle_mb),
        megabytes(figures.rss_after_mb),
        megabytes(figures.peer_rss_mb)
    );
    table
}

/// The page with this table in place of the one that it has.
fn with_table(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gets_its_table() {
        let page = format!("a\n{BEGIN}old\n{END}b\n");
        let figures = Figures {
            machine: "2 processors, of some kind".to_owned(),
            rounds: 5,
            h2_cpu_ratio: Some(0.21),
            h2_throughput_ratio: Some(4.2),
            spread: [("h2_cpu_ratio".to_owned(), (0.2, 0.24))].into(),
            ..Figures::default()
        };
        let text = with_table(&page, &table(&figures)).unwrap();
        assert!(text.starts_with("a\n") && text.ends_with("b\n") && !text.contains("old"));
        assert!(
            text.contains("| `h2_cpu_ratio` | 0.21 | 0.20 to 0.24 | ≤ 0.20 | missed |"),
            "{text}"
        );
        assert!(
            text.contains("| `h2_throughput_ratio` | 4.20 | – | ≥ 4.00 | met |"),
            "{text}"
        );
        assert!(
            text.contains("| `p99_ratio_1k` | – | – | ≤ 0.30 | not measured |"),
            "{text}"
        );
        assert_eq!(with_table("a", ""), None);
    }
}
