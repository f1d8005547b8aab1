//! `target/bench/fleet.json`: one entry for each size, whose fields are a contract, and the goals that they are held against.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::bump::Figures;
use super::gated;

/// Measurements with this number of clusters; null if not measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) clusters: u32,
    pub(super) rss_mb_leader: Option<f64>,
    pub(super) rss_mb_standby: Option<f64>,
    /// The growth from the size before to this one.
    pub(super) kib_per_cold_cluster: Option<f64>,
    /// Measured beside the smallest size.
    pub(super) kib_per_hot_cluster: Option<f64>,
    pub(super) requests_between_looks: Option<f64>,
    pub(super) requests_per_look_management: Option<f64>,
    pub(super) requests_per_look_workload: Option<f64>,
    /// Measured beside the smallest size.
    pub(super) waiting_requests_per_cluster_minute: Option<f64>,
    pub(super) ready_s: Option<f64>,
    pub(super) discovery_ms: Option<f64>,
    pub(super) relist_peak_ratio: Option<f64>,
    pub(super) sweep_seconds_after_catalogue_change: Option<f64>,
    pub(super) idle_cpu_percent: Option<f64>,
    /// The growth by a gate with ten checks that selects every cluster.
    pub(super) kib_per_gated_cluster: Option<f64>,
    /// Measured beside the smallest size: the growth while that gate holds upgrades.
    pub(super) kib_per_hot_gated_cluster: Option<f64>,

    // Fields outside the contract.
    pub(super) pss_mb_leader: Option<f64>,
    pub(super) pss_mb_standby: Option<f64>,
    /// Until the leader holds the lease, which it takes once every store is filled.
    pub(super) leads_s: Option<f64>,
    pub(super) sync_period_s: f64,
    pub(super) first_sweep_s: Option<f64>,
    /// Clusters without a drift check in the rest. Requests between drift checks are those for them, and for none.
    pub(super) clusters_between_looks: Option<u32>,
    /// Clusters with two drift checks.
    pub(super) seen_twice: Option<u32>,
    pub(super) cpu_ms_per_look: Option<f64>,
    pub(super) requests_after_catalogue_change: Option<usize>,
    /// Lists of stores, of both replicas, after all watches broke.
    pub(super) relists: Option<usize>,
    /// Writes to the management API server during all that. Clusters at rest need none.
    pub(super) writes: Option<usize>,
    pub(super) peer_rss_mb: Option<f64>,
    pub(super) peer_ready_s: Option<f64>,
}

/// The size that goals are for. A real API server is not filled with so many clusters.
const AIM: u32 = 10_000;

/// A figure, and how large it may be with [`AIM`] clusters.
struct Goal {
    name: &'static str,
    most: f64,
    of: Figure,
}

/// Takes a figure out of an entry.
type Figure = fn(&Entry) -> Option<f64>;

const GOALS: [Goal; 13] = [
    goal("kib_per_cold_cluster", 8.0, |entry| entry.kib_per_cold_cluster),
    goal("kib_per_hot_cluster", 100.0, |entry| entry.kib_per_hot_cluster),
    goal("rss_mb_leader", 120.0, |entry| entry.rss_mb_leader),
    goal("rss_mb_standby", 120.0, |entry| entry.rss_mb_standby),
    goal("relist_peak_ratio", 1.5, |entry| entry.relist_peak_ratio),
    goal("discovery_ms", 100.0, |entry| entry.discovery_ms),
    goal("ready_s", 3.0, |entry| entry.ready_s),
    goal("requests_between_looks", 0.0, |entry| {
        entry.requests_between_looks
    }),
    goal("requests_per_look_management", 12.0, |entry| {
        entry.requests_per_look_management
    }),
    goal("requests_per_look_workload", 10.0, |entry| {
        entry.requests_per_look_workload
    }),
    goal("idle_cpu_percent", 1.0, |entry| entry.idle_cpu_percent),
    goal("kib_per_gated_cluster", 2.0, |entry| entry.kib_per_gated_cluster),
    goal("kib_per_hot_gated_cluster", 100.0, |entry| {
        entry.kib_per_hot_gated_cluster
    }),
];

/// Figures without a goal.
const OTHERS: [(&str, Figure); 5] = [
    ("waiting_requests_per_cluster_minute", |entry| {
        entry.waiting_requests_per_cluster_minute
    }),
    ("sweep_seconds_after_catalogue_change", |entry| {
        entry.sweep_seconds_after_catalogue_change
    }),
    ("leads_s", |entry| entry.leads_s),
    ("peer_rss_mb", |entry| entry.peer_rss_mb),
    ("peer_ready_s", |entry| entry.peer_ready_s),
];

/// Figures that are said of [`AIM`] clusters by their growth.
const ESTIMATED: [&str; 2] = ["rss_mb_leader", "rss_mb_standby"];

const fn goal(name: &'static str, most: f64, of: Figure) -> Goal {
    Goal { name, most, of }
}

impl Entry {
    /// Nothing is measured yet.
    pub(super) fn of(clusters: u32, sync_period: Duration) -> Self {
        Self {
            clusters,
            sync_period_s: sync_period.as_secs_f64(),
            ..Self::default()
        }
    }

    /// Adds measurements with these clusters.
    pub(super) fn beside(&mut self, figures: Figures) {
        self.kib_per_hot_cluster = Some(figures.kib_per_hot_cluster);
        self.waiting_requests_per_cluster_minute = Some(figures.waiting_requests_per_cluster_minute);
    }

    /// Adds measurements with gates.
    pub(super) fn gated(&mut self, figures: gated::Figures) {
        self.kib_per_gated_cluster = Some(figures.kib_per_gated_cluster);
        self.kib_per_hot_gated_cluster = figures.kib_per_hot_gated_cluster;
    }
}

/// The entries with what follows from two of them: the growth to each size from the one before.
pub(super) fn complete(entries: &mut [Entry]) {
    for larger in 1..entries.len() {
        let (before, rest) = entries.split_at_mut(larger);
        if let (Some(smaller), Some(larger)) = (before.last(), rest.first_mut()) {
            let growth = growth(smaller, larger, |entry| entry.rss_mb_leader);
            larger.kib_per_cold_cluster = growth.map(|megabytes| megabytes * 1e6 / 1024.0);
        }
    }
}

/// How much a figure grows with each cluster from one size to the other.
fn growth(smaller: &Entry, larger: &Entry, of: Figure) -> Option<f64> {
    let more = of(larger)? - of(smaller)?;
    let clusters = larger
        .clusters
        .checked_sub(smaller.clusters)
        .filter(|more| *more > 0)?;
    Some(more / f64::from(clusters))
}

/// Extrapolates a figure to [`AIM`] clusters from the growth between the two largest sizes.
fn estimate(entries: &[Entry], of: Figure) -> Option<f64> {
    let [.., smaller, larger] = entries else {
        return None;
    };
    let more = AIM.checked_sub(larger.clusters)?;
    Some(of(larger)? + growth(smaller, larger, of)? * f64::from(more))
}

/// Where the file is.
pub(super) fn path() -> PathBuf {
    crate::figures::directory().join("fleet.json")
}

/// Writes the file, and prints its path.
pub(super) fn write(entries: &[Entry]) -> Result<PathBuf> {
    let path = path();
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    }
    let text = format!("{}\n", serde_json::to_string_pretty(entries)?);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Reads the file.
pub(super) fn read() -> Result<Vec<Entry>> {
    let path = path();
    let text = fs::read_to_string(&path)
        .with_context(|| format!("read {}, which `make bench-fleet` writes", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
}

/// Each goal, each value under its measured size, and whether the size of the goal meets it.
pub(super) fn table(entries: &[Entry]) -> String {
    let is_measured = entries.iter().any(|entry| entry.clusters == AIM);
    let mut table = format!("| {:36} | {:>8} |", "figure", "goal");
    for entry in entries {
        let _never = write!(table, " {:>10} |", entry.clusters);
    }
    if !is_measured {
        let _never = write!(table, " {AIM}, estimated |");
    }
    let _never = write!(table, " met at {AIM} |\n|---|---|");
    table += &"---|".repeat(entries.len() + 1 + usize::from(!is_measured));
    let goals = GOALS.iter().map(|goal| (goal.name, Some(goal.most), goal.of));
    let others = OTHERS.iter().map(|(name, of)| (*name, None, *of));
    for (name, most, of) in goals.chain(others) {
        let goal = most.map_or_else(String::new, |most| format!("≤ {most}"));
        let _never = write!(table, "\n| {name:36} | {goal:>8} |");
        for entry in entries {
            let _never = write!(table, " {:>10} |", shown(of(entry)));
        }
        if !is_measured {
            let estimate = ESTIMATED.contains(&name).then(|| estimate(entries, of)).flatten();
            let estimate = estimate.map_or_else(String::new, |value| format!("about {value:.0}"));
            let _never = write!(table, " {estimate:>16} |");
        }
        let met = most.map_or_else(String::new, |most| met(entries, most, of));
        let _never = write!(table, " {met} |");
    }
    table + "\n"
}

/// Whether a goal is met with [`AIM`] clusters. A smaller size can only show that the goal is missed.
fn met(entries: &[Entry], most: f64, of: Figure) -> String {
    let measured = entries
        .iter()
        .rev()
        .find_map(|entry| Some((entry.clusters, of(entry)?)));
    match measured {
        Some((AIM, value)) => if value <= most { "yes" } else { "no" }.to_owned(),
        Some((clusters, value)) if value > most => format!("not measured; missed at {clusters}"),
        None | Some(_) => "not measured".to_owned(),
    }
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}

/// Missing figures, of those that the contract names at each size. The fan-out requeue is left out: some products do not expose it.
pub(super) fn missing(entries: &[Entry]) -> Vec<String> {
    let mut missing = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        let is_due = |name: &str| match name {
            "kib_per_cold_cluster" => place > 0,
            "kib_per_hot_cluster" | "kib_per_hot_gated_cluster" => place == 0,
            _ => true,
        };
        let of = GOALS
            .iter()
            .filter(|goal| (goal.of)(entry).is_none() && is_due(goal.name));
        missing.extend(of.map(|goal| format!("{} with {} clusters", goal.name, entry.clusters)));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(clusters: u32, rss: f64) -> Entry {
        Entry {
            rss_mb_leader: Some(rss),
            ..Entry::of(clusters, Duration::from_secs(90))
        }
    }

    #[test]
    fn memory_per_cluster_is_the_growth_from_the_size_before() {
        let mut entries = [entry(100, 20.0), entry(1_000, 24.608), entry(2_000, 28.704)];
        complete(&mut entries);
        let kib = entries.map(|entry| entry.kib_per_cold_cluster);
        assert_eq!(kib[0], None);
        for (kib, wanted) in [(kib[1], 5.0), (kib[2], 4.0)] {
            assert!((kib.unwrap() - wanted).abs() < 1e-9, "{kib:?}");
        }
    }

    #[test]
    fn a_measurement_with_one_size_appears_only_there() {
        let mut entries = [entry(100, 20.0), entry(1_000, 24.0)];
        entries[0].beside(Figures {
            waiting_requests_per_cluster_minute: 7.76,
            kib_per_hot_cluster: 335.0,
        });
        let hot = [Some(90.0), None];
        for (entry, kib_per_hot_gated_cluster) in entries.iter_mut().zip(hot) {
            entry.gated(gated::Figures {
                kib_per_gated_cluster: 1.5,
                kib_per_hot_gated_cluster,
            });
        }
        complete(&mut entries);
        assert_eq!(entries[0].kib_per_hot_cluster, Some(335.0));
        assert_eq!(entries[1].kib_per_hot_cluster, None);
        assert_eq!(entries[1].kib_per_hot_gated_cluster, None);
        assert_eq!(entries[1].waiting_requests_per_cluster_minute, None);
        let missing = missing(&entries);
        assert!(
            !missing.iter().any(|missing| missing.contains("kib_per")),
            "{missing:?}"
        );
    }

    #[test]
    fn the_fields_are_those_of_the_contract() {
        let entry = serde_json::to_value(entry(100, 20.0)).unwrap();
        for field in [
            "clusters",
            "rss_mb_leader",
            "rss_mb_standby",
            "kib_per_cold_cluster",
            "kib_per_hot_cluster",
            "requests_between_looks",
            "requests_per_look_management",
            "requests_per_look_workload",
            "waiting_requests_per_cluster_minute",
            "ready_s",
            "discovery_ms",
            "relist_peak_ratio",
            "sweep_seconds_after_catalogue_change",
            "idle_cpu_percent",
            "kib_per_gated_cluster",
            "kib_per_hot_gated_cluster",
        ] {
            assert!(entry.get(field).is_some(), "{field}");
        }
    }

    fn row(table: &str, name: &str) -> String {
        table.lines().find(|line| line.contains(name)).unwrap().to_owned()
    }

    #[test]
    fn no_goal_counts_as_met_at_a_size_that_was_not_measured() {
        let mut entries = [entry(100, 20.0), entry(1_000, 24.0)];
        entries[0].kib_per_hot_cluster = Some(335.0);
        entries[1].idle_cpu_percent = Some(12.0);
        let table = table(&entries);
        assert!(
            table.lines().next().unwrap().ends_with("| met at 10000 |"),
            "{table}"
        );
        for (name, met) in [
            ("rss_mb_leader", "| not measured |"),
            ("ready_s", "| not measured |"),
            ("kib_per_hot_cluster", "| not measured; missed at 100 |"),
            ("idle_cpu_percent", "| not measured; missed at 1000 |"),
        ] {
            assert!(row(&table, name).ends_with(met), "{table}");
        }
        assert!(!table.contains("yes"), "{table}");
    }

    #[test]
    fn memory_of_ten_thousand_clusters_is_an_estimate_until_it_is_measured() {
        let mut entries = [entry(100, 35.21), entry(1_000, 47.55)];
        let estimated = table(&entries);
        assert!(estimated.contains("| 10000, estimated |"), "{estimated}");
        assert!(
            row(&estimated, "rss_mb_leader").contains("about 171 |"),
            "{estimated}"
        );
        assert!(!row(&estimated, "peer_rss_mb").contains("about"), "{estimated}");

        entries[1].clusters = AIM;
        let measured = table(&entries);
        assert!(
            !measured.contains("estimated") && !measured.contains("about"),
            "{measured}"
        );
    }

    #[test]
    fn a_size_of_the_goals_is_held_against_them() {
        let entries = [entry(100, 20.0), entry(AIM, 121.0)];
        let table = table(&entries);
        assert!(row(&table, "rss_mb_leader").ends_with("| no |"), "{table}");
        assert!(row(&table, "ready_s").ends_with("| not measured |"), "{table}");
        assert!(missing(&entries).contains(&"ready_s with 100 clusters".to_owned()));
        assert!(
            !missing(&entries)
                .iter()
                .any(|missing| missing.contains("rss_mb_leader"))
        );
    }
}
