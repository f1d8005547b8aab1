//! `target/bench/fleet.json`: one entry for each size, whose fields are a contract, and the goals that they are held against.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::bump::Figures;
use crate::processes::run_directory::target_directory;

/// What was measured with so many clusters. What was not is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) clusters: u32,
    pub(super) rss_mb_leader: Option<f64>,
    pub(super) rss_mb_standby: Option<f64>,
    /// From the two largest sizes of the run, in each entry.
    pub(super) kib_per_cold_cluster: Option<f64>,
    /// Measured beside the smallest size, in each entry.
    pub(super) kib_per_hot_cluster: Option<f64>,
    pub(super) requests_between_looks: Option<f64>,
    pub(super) requests_per_look_management: Option<f64>,
    pub(super) requests_per_look_workload: Option<f64>,
    /// Measured beside the smallest size, in each entry.
    pub(super) waiting_requests_per_cluster_minute: Option<f64>,
    pub(super) ready_s: Option<f64>,
    pub(super) discovery_ms: Option<f64>,
    pub(super) relist_peak_ratio: Option<f64>,
    pub(super) sweep_seconds_after_catalogue_change: Option<f64>,
    pub(super) idle_cpu_percent: Option<f64>,

    // Beside what the contract names.
    pub(super) pss_mb_leader: Option<f64>,
    pub(super) pss_mb_standby: Option<f64>,
    /// Until the leader holds the lease, which it takes once every store is filled.
    pub(super) leads_s: Option<f64>,
    pub(super) sync_period_s: f64,
    pub(super) first_sweep_s: Option<f64>,
    /// Clusters that were not looked at in the rest; requests between looks are those for them, and for none.
    pub(super) clusters_between_looks: Option<u32>,
    /// Clusters that were looked at twice.
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

/// A figure, and how large it may be. Goals are for the largest size.
struct Goal {
    name: &'static str,
    most: f64,
    of: Figure,
}

/// Takes a figure out of an entry.
type Figure = fn(&Entry) -> Option<f64>;

const GOALS: [Goal; 11] = [
    goal("kib_per_cold_cluster", 4.0, |entry| entry.kib_per_cold_cluster),
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
];

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
}

/// The entries with what is measured once: of hot and waiting clusters, and of the growth from one size to the next.
pub(super) fn complete(entries: &mut [Entry], figures: Option<Figures>) {
    let cold = per_cold_cluster(entries);
    for entry in entries {
        entry.kib_per_cold_cluster = cold;
        if let Some(figures) = figures {
            entry.kib_per_hot_cluster = Some(figures.kib_per_hot_cluster);
            entry.waiting_requests_per_cluster_minute = Some(figures.waiting_requests_per_cluster_minute);
        }
    }
}

/// KiB that the leader takes more for each cluster between the two largest sizes.
fn per_cold_cluster(entries: &[Entry]) -> Option<f64> {
    let [.., smaller, larger] = entries else {
        return None;
    };
    let more = larger.rss_mb_leader? - smaller.rss_mb_leader?;
    let clusters = larger
        .clusters
        .checked_sub(smaller.clusters)
        .filter(|more| *more > 0)?;
    Some(more * 1e6 / 1024.0 / f64::from(clusters))
}

/// Where the file is.
pub(super) fn path() -> PathBuf {
    target_directory()
        .unwrap_or_else(|| PathBuf::from("target"))
        .join("bench")
        .join("fleet.json")
}

/// Writes the file, and says where.
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

/// Each goal, each value, and whether the largest size meets it.
pub(super) fn table(entries: &[Entry]) -> String {
    let mut table = format!("| {:36} | {:>8} |", "figure", "goal");
    for entry in entries {
        let _never = write!(table, " {:>10} |", entry.clusters);
    }
    table += " met |\n|---|---|";
    table += &"---|".repeat(entries.len() + 1);
    for goal in &GOALS {
        let _never = write!(
            table,
            "\n| {:36} | {:>8} |",
            goal.name,
            format!("≤ {}", goal.most)
        );
        for entry in entries {
            let _never = write!(table, " {:>10} |", shown((goal.of)(entry)));
        }
        let met = match entries.last().and_then(goal.of) {
            None => "–",
            Some(value) if value <= goal.most => "yes",
            Some(_) => "no",
        };
        let _never = write!(table, " {met} |");
    }
    let more: [(&str, Figure); 5] = [
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
    for (name, of) in more {
        let _never = write!(table, "\n| {name:36} | {:>8} |", "");
        for entry in entries {
            let _never = write!(table, " {:>10} |", shown(of(entry)));
        }
        table += "  |";
    }
    table + "\n"
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}

/// What could not be measured, of what the contract names. The sweep is left out: a product that shows no way to see it has none.
pub(super) fn missing(entries: &[Entry]) -> Vec<String> {
    let missing = |entry: &Entry| {
        let of = GOALS.iter().filter(|goal| (goal.of)(entry).is_none());
        let clusters = entry.clusters;
        of.map(|goal| format!("{} with {clusters} clusters", goal.name))
            .collect::<Vec<_>>()
    };
    entries.iter().flat_map(missing).collect()
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
    fn memory_per_cluster_is_the_growth_between_the_two_largest_sizes() {
        let mut entries = [entry(100, 20.0), entry(1_000, 24.0), entry(10_000, 60.864)];
        complete(&mut entries, None);
        for entry in &entries {
            let kib = entry.kib_per_cold_cluster.unwrap();
            assert!((kib - 4.0).abs() < 1e-9, "{kib}");
        }
        assert_eq!(per_cold_cluster(&entries[..1]), None);
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
        ] {
            assert!(entry.get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn the_largest_size_is_held_against_the_goals() {
        let entries = [entry(100, 20.0), entry(10_000, 121.0)];
        let table = table(&entries);
        let row = |name: &str| table.lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert!(row("rss_mb_leader").ends_with("| no |"), "{table}");
        assert!(row("ready_s").ends_with("| – |"), "{table}");
        assert!(missing(&entries).contains(&"ready_s with 100 clusters".to_owned()));
        assert!(
            !missing(&entries)
                .iter()
                .any(|missing| missing.contains("rss_mb_leader"))
        );
    }
}
