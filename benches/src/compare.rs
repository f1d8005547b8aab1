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
    ratios: Vec<Compared>,
    rss_idle_mb: Option<f64>,
    rss_after_mb: Option<f64>,
    peer_rss_mb: Option<f64>,
    medians: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>,
    curves: BTreeMap<String, Vec<(f64, f64)>>,
    curves_during_upgrade: BTreeMap<String, Vec<(f64, f64)>>,
    p99_ms_during_upgrade: BTreeMap<String, f64>,
    upgraded: Option<usize>,
}

/// A ratio held against its goal.
#[derive(Debug, Deserialize)]
struct Compared {
    name: String,
    ratio: f64,
    spread: (f64, f64),
    goal: f64,
    at_least: bool,
    met: bool,
}

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
    for Compared {
        name,
        ratio,
        spread: (least, most),
        goal,
        at_least,
        met,
    } in &figures.ratios
    {
        let sign = if *at_least { "≥" } else { "≤" };
        let verdict = if *met { "met" } else { "missed" };
        let _never = writeln!(
            table,
            "| `{name}` | {ratio:.2} | {least:.2} to {most:.2} | {sign} {goal:.2} | {verdict} |"
        );
    }
    table.push_str(
        "\n| | load | CPU of an answer, µs | answers a second | p50, ms | p99, ms | processors of the driver |\n|---|---|---|---|---|---|---|\n",
    );
    for (name, shown) in SERVERS {
        for load in LOADS {
            let of = |figure: &str| {
                let loads = figures.medians.get(name);
                let figures = loads.and_then(|loads| loads.get(load));
                figures
                    .and_then(|figures| figures.get(figure))
                    .copied()
                    .unwrap_or_default()
            };
            let _never = writeln!(
                table,
                "| {shown} | {load} | {:.1} | {:.0} | {:.2} | {:.2} | {:.2} |",
                of("cpu_us"),
                of("answers_per_second"),
                of("p50_ms"),
                of("p99_ms"),
                of("driver_processors")
            );
        }
    }
    let shown = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.1}"));
    let during = |server: &str| shown(figures.p99_ms_during_upgrade.get(server).copied());
    let _never = writeln!(
        table,
        "\nMemory: Sluice {} MB before and {} MB at most after a load, the extension in Go {} MB. While clusters are upgraded, {} of them within 30 s, p99 is \
         {} ms, that of the echo {} ms.",
        shown(figures.rss_idle_mb),
        shown(figures.rss_after_mb),
        shown(figures.peer_rss_mb),
        figures.upgraded.unwrap_or_default(),
        during("sluice"),
        during("echo")
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
            ratios: vec![Compared {
                name: "h2_cpu_ratio".to_owned(),
                ratio: 0.21,
                spread: (0.2, 0.24),
                goal: 0.2,
                at_least: false,
                met: false,
            }],
            ..Figures::default()
        };
        let text = with_table(&page, &table(&figures)).unwrap();
        assert!(text.starts_with("a\n") && text.ends_with("b\n") && !text.contains("old"));
        assert!(
            text.contains("| `h2_cpu_ratio` | 0.21 | 0.20 to 0.24 | ≤ 0.20 | missed |"),
            "{text}"
        );
        assert!(text.contains("Sluice – MB before"), "{text}");
        assert_eq!(with_table("a", ""), None);
    }
}
