//! Many upgrades in a row, and whether all of them kept the order and the pace.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::report::Report;
use super::terminal::{Terminal, Tone};
use super::upgrade;
use crate::pace::{Goals, LEAST, Pace, Quantiles};
use crate::scenario::{Scene, World};

/// Longest time in seconds from the last proof to the write of the version.
const GOALS: Goals = Goals {
    p50: Some(0.7),
    p95: 1.5,
};

/// `target/demo/repeat.json`. Seconds are those from the last proof to the write of the version.
#[derive(Debug, Serialize)]
struct Series {
    upgrades: usize,
    early_releases: usize,
    /// Of control planes.
    release_lag_seconds_median: f64,
    /// Of control planes.
    release_lag_seconds_max: f64,
    /// Releases that were measured: the control plane of each upgrade, and its workers.
    releases: usize,
    /// Releases without a last proof, or without a write.
    releases_without_lag: usize,
    control_plane_release_lag_seconds: Quantiles,
    workers_release_lag_seconds: Quantiles,
    /// Limits for the pace.
    all_release_lag_seconds: Quantiles,
    pace: Pace,
    passed: bool,
    reports: Vec<Report>,
}

/// Makes `times` upgrades on Clusters that live for two of them each; true if order and pace were kept.
pub(super) async fn run(terminal: &Terminal, world: &Arc<World>, times: usize) -> Result<bool> {
    ensure!(times > 0, "--times 0 makes no upgrade");
    let scene = Scene::open(world, upgrade::NAMESPACE, &upgrade::class()).await?;
    let releases = upgrade::releases(&scene)?;
    let _served = upgrade::offer(terminal, &scene, &releases).await?;
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
    let series = Series::of(reports);
    series.tell(terminal);
    let path = upgrade::directory()?.join("repeat.json");
    std::fs::write(&path, serde_json::to_string_pretty(&series)? + "\n")
        .with_context(|| format!("write {}", path.display()))?;
    terminal.say(Tone::Plain, format!("  {}", path.display()));
    Ok(series.passed)
}

impl Series {
    fn of(reports: Vec<Report>) -> Self {
        let lags = |of: fn(&Report) -> Option<f64>| reports.iter().filter_map(of).collect::<Vec<f64>>();
        let control_planes = lags(|report| report.release_lag_seconds);
        let workers = lags(|report| report.workers_release_lag_seconds);
        let all = [control_planes.as_slice(), &workers].concat();
        let asked_for = 2 * reports.len();
        let early_releases = reports.iter().filter(|report| report.early_release).count();
        let pace = GOALS.judge(&all);
        let control_plane = Quantiles::of(control_planes);
        let keeps_pace = match pace {
            Pace::Kept => all.len() == asked_for,
            Pace::Missed => false,
            Pace::TooFew => !is_judged(reports.len()),
        };
        Self {
            upgrades: reports.len(),
            early_releases,
            release_lag_seconds_median: control_plane.p50,
            release_lag_seconds_max: control_plane.max,
            releases: all.len(),
            releases_without_lag: asked_for - all.len(),
            control_plane_release_lag_seconds: control_plane,
            workers_release_lag_seconds: Quantiles::of(workers),
            all_release_lag_seconds: Quantiles::of(all),
            pace,
            passed: early_releases == 0 && keeps_pace,
            reports,
        }
    }

    fn tell(&self, terminal: &Terminal) {
        terminal.say(Tone::Heading, format!("\n{} upgrades", self.upgrades));
        for line in self.lines() {
            terminal.say(Tone::Plain, line);
        }
        if self.passed {
            terminal.say(Tone::Good, "  passed");
        } else {
            terminal.say(Tone::Bad, "  FAILED");
        }
    }

    fn lines(&self) -> Vec<String> {
        let lags = |of: &str, lags: &Quantiles, goals: &str| {
            format!(
                "  {of:<27} median {:.2} s, p95 {:.2} s, longest {:.2} s{goals}",
                lags.p50, lags.p95, lags.max
            )
        };
        let goals = format!(
            " (goals: median {} s, p95 {} s)",
            GOALS.p50.unwrap_or_default(),
            GOALS.p95
        );
        let mut lines = vec![
            format!("  early releases              {} (goal 0)", self.early_releases),
            "  releases after the last proof:".to_owned(),
            lags("control planes", &self.control_plane_release_lag_seconds, ""),
            lags("workers", &self.workers_release_lag_seconds, ""),
            lags("together", &self.all_release_lag_seconds, &goals),
        ];
        if self.releases_without_lag > 0 {
            lines.push(format!(
                "  {} releases without a last proof or a write",
                self.releases_without_lag
            ));
        }
        if self.pace == Pace::TooFew {
            lines.push(format!(
                "  {} releases are too few to judge the pace: {LEAST} are needed, of which each upgrade makes two",
                self.releases
            ));
        }
        lines
    }
}

/// Whether so many upgrades have to show the pace. A few that are made by hand only show the order.
fn is_judged(upgrades: usize) -> bool {
    2 * upgrades >= LEAST
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A series whose releases took so long, in the order of its upgrades.
    fn series(control_planes: &[f64], workers: &[f64]) -> Series {
        let reports = control_planes
            .iter()
            .zip(workers)
            .map(|(control_plane, workers)| {
                let mut report = Report::without_figures();
                report.release_lag_seconds = Some(*control_plane);
                report.workers_release_lag_seconds = Some(*workers);
                report
            });
        Series::of(reports.collect())
    }

    /// Twenty releases with the figures that twenty upgrades had while each reconcile was followed by a rest of 1 to 3 s.
    fn with_pauses() -> Vec<f64> {
        [[1.5; 9].as_slice(), &[1.69; 9], &[1.85; 2]].concat()
    }

    #[test]
    fn twenty_upgrades_within_the_goals_pass() {
        let series = series(&[0.6; 20], &[0.7; 20]);
        assert_eq!(
            (series.releases, series.pace, series.passed),
            (40, Pace::Kept, true)
        );
    }

    #[test]
    fn pauses_between_the_last_proof_and_either_release_fail_the_series() {
        for (control_planes, workers) in [
            (with_pauses(), vec![0.5; 20]),
            (vec![0.5; 20], vec![2.7; 20]),
            (with_pauses(), vec![2.7; 20]),
        ] {
            let series = series(&control_planes, &workers);
            assert_eq!((series.pace, series.passed), (Pace::Missed, false));
        }
        let series = series(&with_pauses(), &[2.7; 20]);
        assert!((series.release_lag_seconds_median - 1.69).abs() < 1e-9);
        assert!((series.release_lag_seconds_max - 1.85).abs() < 1e-9);
    }

    #[test]
    fn an_early_release_and_one_that_was_not_measured_fail_the_series() {
        let good = || series(&[0.5; 20], &[0.5; 20]).reports;
        let with = |change: fn(&mut Report)| {
            let mut reports = good();
            change(&mut reports[7]);
            Series::of(reports)
        };
        assert!(!with(|report| report.early_release = true).passed);
        let unmeasured = with(|report| report.workers_release_lag_seconds = None);
        assert_eq!((unmeasured.releases_without_lag, unmeasured.passed), (1, false));
        assert!(Series::of(good()).passed);
    }

    #[test]
    fn too_few_releases_are_reported_and_fail_a_long_series() {
        let by_hand = series(&[9.0; 9], &[9.0; 9]);
        assert_eq!((by_hand.pace, by_hand.passed), (Pace::TooFew, true));
        assert!(by_hand.lines().concat().contains("18 releases are too few"));

        let mut reports = series(&[0.5; 10], &[0.5; 10]).reports;
        reports[0].workers_release_lag_seconds = None;
        let series = Series::of(reports);
        assert_eq!((series.pace, series.passed), (Pace::TooFew, false));
    }
}
