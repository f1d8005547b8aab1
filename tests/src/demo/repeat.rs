//! Many upgrades in a row, and whether all of them kept the order and the pace.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::report::Report;
use super::terminal::{Terminal, Tone};
use super::upgrade;
use crate::scenario::{Scene, World};

/// Goals of the release lag in seconds.
const MEDIAN: f64 = 1.0;
const MAXIMUM: f64 = 2.5;

/// `target/demo/repeat.json`.
#[derive(Debug, Serialize)]
struct Series {
    upgrades: usize,
    early_releases: usize,
    release_lag_seconds_median: f64,
    release_lag_seconds_max: f64,
    passed: bool,
    reports: Vec<Report>,
}

/// Makes `times` upgrades on Clusters that live for two of them each; true if order and pace were kept.
pub(super) async fn run(terminal: &Terminal, world: &Arc<World>, times: usize) -> Result<bool> {
    let scene = Scene::open(world, upgrade::NAMESPACE, &upgrade::class()).await?;
    let releases = upgrade::releases(&scene)?;
    for release in &releases {
        scene.publish(release).await?;
    }
    let mut reports = Vec::new();
    while reports.len() < times {
        let name = format!("demo-{}", reports.len());
        let cluster = upgrade::create(terminal, &scene, &name, &releases[0]).await?;
        for hop in releases.windows(2).take(times - reports.len()) {
            terminal.say(
                Tone::Heading,
                format!("\nUpgrade {} of {times}, Cluster {name}", reports.len() + 1),
            );
            reports.push(upgrade::run(terminal, &cluster, &hop[0], &hop[1]).await?);
        }
        terminal.waiting(format!("Cluster {name} to be deleted"));
        cluster.delete().await?;
    }
    let series = Series::of(reports).context("no upgrade was made")?;
    series.tell(terminal);
    let path = upgrade::directory()?.join("repeat.json");
    std::fs::write(&path, serde_json::to_string_pretty(&series)? + "\n")
        .with_context(|| format!("write {}", path.display()))?;
    terminal.say(Tone::Plain, format!("  {}", path.display()));
    Ok(series.passed)
}

impl Series {
    fn of(reports: Vec<Report>) -> Option<Self> {
        // An upgrade without a lag was early; it fails the series on that account.
        let mut lags: Vec<f64> = reports
            .iter()
            .filter_map(|report| report.release_lag_seconds)
            .collect();
        lags.sort_by(f64::total_cmp);
        let max = *lags.last()?;
        let median = median(&lags);
        let early_releases = reports.iter().filter(|report| report.early_release).count();
        Some(Self {
            upgrades: reports.len(),
            early_releases,
            release_lag_seconds_median: median,
            release_lag_seconds_max: max,
            passed: early_releases == 0 && median <= MEDIAN && max <= MAXIMUM,
            reports,
        })
    }

    fn tell(&self, terminal: &Terminal) {
        let Self {
            upgrades,
            early_releases,
            release_lag_seconds_median: median,
            release_lag_seconds_max: max,
            passed,
            ..
        } = self;
        terminal.say(Tone::Heading, format!("\n{upgrades} upgrades"));
        terminal.say(
            Tone::Plain,
            format!("  early releases              {early_releases} (goal 0)"),
        );
        terminal.say(
            Tone::Plain,
            format!("  release lag, median         {median:.2} s (goal {MEDIAN} s)"),
        );
        terminal.say(
            Tone::Plain,
            format!("  release lag, longest        {max:.2} s (goal {MAXIMUM} s)"),
        );
        if *passed {
            terminal.say(Tone::Good, "  passed");
        } else {
            terminal.say(Tone::Bad, "  FAILED");
        }
    }
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted {
        [] => f64::NAN,
        _ if sorted.len() % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert!((median(&[0.2, 0.4, 0.8, 3.0]) - 0.6).abs() < 1e-9);
        assert!((median(&[0.2, 0.4, 3.0]) - 0.4).abs() < 1e-9);
    }
}
