//! `target/bench/compare.json`, whose rows and phases are a contract, and its tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::counts::Counts;
use super::measure::Upgrade;
use super::phases::NAMES;
use super::side::Flow;
use crate::figures::{self, commit, machine, median};

/// A run that ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    machine: String,
    /// Compared flows.
    commit: String,
    /// One for each delay and flow.
    rows: Vec<Row>,
    /// Measurements, in their order.
    pub(super) upgrades: Vec<Upgrade>,
}

/// All upgrades of one flow with one delay. Seconds and requests are medians of its upgrades.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    flow: Flow,
    /// Seconds that Deployments took until they were ready.
    delay_s: u64,
    upgrades: usize,
    /// Upgrades whose control plane was written before all packages were ready.
    early: usize,
    paused_s: f64,
    lag_s: Lag,
    total_s: f64,
    management_writes: f64,
    /// Reads of objects and discovery.
    workload_reads: f64,
    workload_writes: f64,

    // Fields outside the contract.
    management_reads: f64,
    /// How much of `workload_reads` is discovery.
    workload_discovery: f64,
    /// Upgrades in which a later step came before packages were proven again on the new control plane.
    not_proven_again: usize,
    /// Reads and writes of all upgrades together, by verb and resource.
    management_by_kind: BTreeMap<String, usize>,
    workload_by_kind: BTreeMap<String, usize>,
}

/// Seconds from the last package that was ready to the write of the control plane; less than 0 where that came first.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Lag {
    median: f64,
    max: f64,
    min: f64,
}

/// Where the file is.
pub(super) fn path() -> Result<PathBuf> {
    let directory = figures::directory();
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    Ok(directory.join("compare.json"))
}

impl Figures {
    /// The figures of all upgrades of a run.
    pub(super) fn of(upgrades: Vec<Upgrade>) -> Self {
        let groups = grouped(&upgrades);
        Self {
            machine: machine(),
            commit: commit(),
            rows: groups.values().filter_map(|group| Row::of(group)).collect(),
            upgrades,
        }
    }

    /// Reads them.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("read {}; `make compare` writes it", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
    }

    /// Writes them in place of those that are there, all at once.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let unfinished = path.with_extension("json.new");
        let text = format!("{}\n", serde_json::to_string_pretty(self)?);
        fs::write(&unfinished, text).with_context(|| format!("write {}", unfinished.display()))?;
        fs::rename(&unfinished, path).with_context(|| format!("write {}", path.display()))
    }
}

impl Row {
    fn of(group: &[&Upgrade]) -> Option<Self> {
        let first = group.first()?;
        let all =
            |of: &dyn Fn(&Upgrade) -> f64| group.iter().map(|upgrade| of(upgrade)).collect::<Vec<f64>>();
        let middle = |of: &dyn Fn(&Upgrade) -> f64| median(&all(of));
        let lags = all(&|upgrade| upgrade.lag_s);
        Some(Self {
            flow: first.flow,
            delay_s: first.delay_s,
            upgrades: group.len(),
            early: group.iter().filter(|upgrade| upgrade.early).count(),
            paused_s: middle(&|upgrade| upgrade.paused_s)?,
            lag_s: Lag {
                median: median(&lags)?,
                max: lags.iter().copied().fold(f64::MIN, f64::max),
                min: lags.iter().copied().fold(f64::MAX, f64::min),
            },
            total_s: middle(&|upgrade| upgrade.total_s)?,
            management_writes: middle(&|upgrade| number(upgrade.management.writes))?,
            workload_reads: middle(&|upgrade| number(asked(&upgrade.workload)))?,
            workload_writes: middle(&|upgrade| number(upgrade.workload.writes))?,
            management_reads: middle(&|upgrade| number(asked(&upgrade.management)))?,
            workload_discovery: middle(&|upgrade| number(upgrade.workload.discovery))?,
            not_proven_again: group
                .iter()
                .filter(|upgrade| upgrade.not_proven_again > 0)
                .count(),
            management_by_kind: summed(group, |upgrade| &upgrade.management),
            workload_by_kind: summed(group, |upgrade| &upgrade.workload),
        })
    }
}

/// The upgrades of each delay and flow.
fn grouped(upgrades: &[Upgrade]) -> BTreeMap<(u64, Flow), Vec<&Upgrade>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for upgrade in upgrades {
        let group = groups.entry((upgrade.delay_s, upgrade.flow)).or_default();
        group.push(upgrade);
    }
    groups
}

fn asked(counts: &Counts) -> usize {
    counts.reads + counts.discovery
}

#[expect(clippy::cast_precision_loss, reason = "requests of one upgrade are few")]
fn number(count: usize) -> f64 {
    count as f64
}

fn summed(group: &[&Upgrade], of: fn(&Upgrade) -> &Counts) -> BTreeMap<String, usize> {
    let mut sums = BTreeMap::new();
    for (kind, count) in group.iter().flat_map(|upgrade| &of(upgrade).by_kind) {
        *sums.entry(kind.clone()).or_default() += count;
    }
    sums
}

/// The table of the rows, as Markdown.
pub(super) fn table(figures: &Figures) -> String {
    let mut table = format!(
        "On {}. Seconds and requests are medians of the upgrades of a row.\n\n\
         | delay, s | | upgrades | early | paused, s | release lag, s: median (least to most) | whole upgrade, s | management: writes, reads | workload: writes, reads |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        figures.machine
    );
    for row in &figures.rows {
        let Lag { median, max, min } = row.lag_s;
        let _never = writeln!(
            table,
            "| {} | {} | {} | **{}** | {:.1} | {median:.2} ({min:.2} to {max:.2}) | {:.1} | {:.0}, {:.0} | {:.0}, {:.0} |",
            row.delay_s,
            row.flow,
            row.upgrades,
            row.early,
            row.paused_s,
            row.total_s,
            row.management_writes,
            row.management_reads,
            row.workload_writes,
            row.workload_reads
        );
    }
    table
}

/// The table of the phases, as Markdown.
pub(super) fn table_of_phases(figures: &Figures) -> String {
    let mut table = format!(
        "Where the seconds go: medians of the upgrades of a row.\n\n| delay, s | | {} |\n|---|---|{}\n",
        NAMES.map(|name| format!("`{name}`")).join(" | "),
        "---|".repeat(NAMES.len())
    );
    for ((delay, flow), group) in grouped(&figures.upgrades) {
        let medians = (0..NAMES.len()).map(|phase| {
            let taken = group.iter().filter_map(|upgrade| upgrade.phases.0[phase]);
            let median = median(&taken.collect::<Vec<f64>>());
            median.map_or_else(|| "–".to_owned(), |median| format!("{median:.2}"))
        });
        let medians = medians.collect::<Vec<String>>().join(" | ");
        let _never = writeln!(table, "| {delay} | {flow} | {medians} |");
    }
    table
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::phases::Phases;
    use super::*;

    /// An upgrade whose control plane was written so many seconds after its last package was ready, at 6 s.
    pub(in crate::compare) fn upgrade(flow: Flow, delay_s: u64, lag_s: f64) -> Upgrade {
        Upgrade {
            flow,
            delay_s,
            from: "v1.35.4".to_owned(),
            to: "v1.36.3".to_owned(),
            early: lag_s < 0.0,
            not_ready: 0,
            not_proven_again: 0,
            pauses: vec![(0.0, 1.5)],
            paused_s: 1.5,
            packages: vec![("antrea".to_owned(), 5.0), ("metrics-server".to_owned(), 6.0)],
            control_plane_s: 6.0 + lag_s,
            workers_s: 10.0,
            lag_s,
            total_s: 20.0,
            // The pause flow confirms nothing.
            phases: Phases(std::array::from_fn(|phase| match (flow, NAMES[phase]) {
                (Flow::Pause, "confirm_s") => None,
                (_, "release_s") => Some(lag_s),
                _ => Some(2.0),
            })),
            management: Counts {
                writes: 7,
                ..Counts::default()
            },
            workload: Counts {
                reads: 2,
                discovery: 30,
                writes: 9,
                ..Counts::default()
            },
        }
    }

    #[test]
    fn a_row_has_the_upgrades_of_one_flow_and_delay() {
        let figures = Figures::of(vec![
            upgrade(Flow::Sluice, 5, 0.5),
            upgrade(Flow::Pause, 5, -4.0),
            upgrade(Flow::Pause, 5, -5.0),
            upgrade(Flow::Pause, 5, 0.1),
        ]);
        let [pause, sluice] = &figures.rows[..] else {
            panic!("{:?}", figures.rows)
        };
        assert_eq!((pause.flow, pause.upgrades, pause.early), (Flow::Pause, 3, 2));
        assert_eq!((sluice.flow, sluice.upgrades, sluice.early), (Flow::Sluice, 1, 0));
        let Lag { median, max, min } = pause.lag_s;
        assert_eq!((median, max, min), (-4.0, 0.1, -5.0));
        let json = serde_json::to_value(pause).unwrap();
        assert_eq!(
            (&json["flow"], &json["workload_reads"]),
            (&"pause".into(), &32.0.into())
        );
        assert!(table(&figures).contains("| 5 | Sluice | 1 | **0** |"));
    }

    #[test]
    fn an_upgrade_has_its_phases_by_name() {
        let json = serde_json::to_value(upgrade(Flow::Pause, 5, -4.0)).unwrap();
        let phases = &json["phases"];
        assert_eq!(phases["release_s"].as_f64(), Some(-4.0));
        assert_eq!(phases.get("confirm_s"), Some(&serde_json::Value::Null));
    }

    #[test]
    fn the_table_of_phases_has_their_medians() {
        let table = table_of_phases(&Figures::of(vec![
            upgrade(Flow::Sluice, 5, 0.5),
            upgrade(Flow::Pause, 5, -4.0),
            upgrade(Flow::Pause, 5, -5.0),
            upgrade(Flow::Pause, 5, 0.1),
        ]));
        let rows: Vec<&str> = table.lines().skip(4).collect();
        assert_eq!(
            rows,
            [
                "| 5 | pause flow | 2.00 | 2.00 | – | -4.00 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 |",
                "| 5 | Sluice | 2.00 | 2.00 | 2.00 | 0.50 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 |",
            ]
        );
    }
}
