//! Upgrades that wait for the chart of a CNI, which CAAPH delivers, on a management cluster without packages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::report::{milliseconds, seconds};
use super::story::Story;
use super::terminal::{Terminal, Tone};
use super::upgrade;
use crate::compare::Flow;
use crate::compare::counts::Logs;
use crate::components::{CAAPH_VERSION, CLUSTER_API_VERSION, minor};
use crate::objects::{Chart, Check, Gate, HelmChartProxy};
use crate::observer::{Event, Milestone, Revision};
use crate::pace::Quantiles;
use crate::scenario::{Cluster, Columns, Row, Scene, TIMEOUT, VERSIONS, WatchLog, World, Written, gates};
use crate::wait;

/// Version of the chart and tag of its image, before and after.
const CHARTS: [(&str, &str); 2] = [("1.17.4", "v1.17.4"), ("1.18.2", "v1.18.2")];

/// Name of chart, release, DaemonSet and gate.
const CNI: &str = "cni";

/// The checks of the gate.
const CHECKS: [&str; 2] = ["chart", "agent"];

/// Shortest time between the change of `topology.version` and that of the chart.
const LATER: Duration = Duration::from_secs(5);

/// Difference of that time between one upgrade and the next. Cluster API calls a hook again each second after the change of
/// `topology.version`, so ten upgrades spread their changes of the chart over that second.
const APART: Duration = Duration::from_millis(100);

/// Number of differences after which the time is the shortest again.
const PHASES: u32 = 10;

/// How long an upgrade may take.
const UPGRADE: Duration = Duration::from_mins(4);

/// Longest median in seconds from the last proof to the version of the control plane.
const LAG: f64 = 1.0;

/// Fewer upgrades do not show the pace.
const LEAST: usize = 10;

/// Most writes of the record for one hop.
const WRITES: usize = 6;

/// Group, version and kind of the record.
const RECORD: (&str, &str, &str) = ("lifecycle.sluice.dev", "v1alpha1", "ClusterUpgrade");

/// Columns of `kubectl get clusterupgrades`, with the widths of their cells.
const COLUMNS: [(&str, usize); 6] = [
    ("NAME", 9),
    ("HELD BY", 11),
    ("REASON", 19),
    ("SINCE", 7),
    ("HOP", 10),
    ("CHECKS", 6),
];

/// `target/demo/gates.json`. Its fields are a contract: others read them.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Report {
    capi_version: String,
    caaph_version: String,
    /// Kubernetes version before.
    from: String,
    /// Kubernetes version after.
    to: String,
    holds: Vec<Hold>,
    checks: Vec<CheckReport>,
    #[serde(serialize_with = "milliseconds")]
    control_plane_version_written_at: Option<Timestamp>,
    /// From the last proof to that.
    release_lag_seconds: Option<f64>,
    /// Whether any version was written before the checks of the gate had proof, decided by resourceVersion.
    early_release: bool,
    /// Writes of the record.
    management_writes: usize,
    /// Reads of Sluice from the workload cluster, watches included.
    workload_reads: usize,
}

/// What the record was held by, without those of Audit gates.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Hold {
    reason: String,
    seconds: f64,
}

/// A check of the gate.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CheckReport {
    /// `cni/chart`.
    name: String,
    /// When it had the proof that the control plane was released on.
    #[serde(serialize_with = "milliseconds")]
    proven_at: Option<Timestamp>,
}

/// `target/demo/gates-series.json`.
#[derive(Debug, Serialize)]
struct Series {
    upgrades: usize,
    early_releases: usize,
    release_lag_seconds_median: f64,
    release_lag_seconds_max: f64,
    /// Most writes of the record for one upgrade.
    management_writes: usize,
    passed: bool,
    reports: Vec<Report>,
}

/// One finished upgrade.
struct Facts {
    from: String,
    to: String,
    /// Since the change of version.
    milestones: Vec<Milestone>,
    /// Records of the Cluster since the change of version, in order.
    records: Vec<Written>,
    /// Writes that the observer complains about.
    violations: usize,
    /// Requests of Sluice to the management cluster, by verb and resource.
    management: BTreeMap<String, usize>,
    workload_reads: usize,
}

/// Upgrades `times` Clusters by one hop, one after the other; true if order, pace and number of writes were kept.
pub(super) async fn run(terminal: &Terminal, world: &Arc<World>, times: usize) -> Result<bool> {
    ensure!(times > 0, "--times 0 makes no upgrade");
    let scene = Scene::open(world, upgrade::NAMESPACE, &gates::class()).await?;
    let binaries = world.stack().core().binaries();
    // An installed API server may be of another patch release.
    let [from, to] = [VERSIONS[1], VERSIONS[2]].map(|version| binaries.kubernetes_version(version));
    terminal.waiting("CAAPH and the charts");
    let proxy = scene.cni(&CHARTS).await?;
    let gate = gate(&[&from, &to]);
    scene.gate(&gate).await?;
    tell_gate(terminal, &[&from, &to]);
    let log = scene.watch(&[RECORD]).await?;
    let mut reports = Vec::new();
    while reports.len() < times {
        let name = format!("prod-{}", reports.len() + 1);
        if times > 1 {
            let text = format!("\nUpgrade {} of {times}", reports.len() + 1);
            terminal.say(Tone::Heading, text);
        }
        let cluster = create(terminal, &scene, &name, &from, &proxy).await?;
        let phase = u32::try_from(reports.len()).unwrap_or_default() % PHASES;
        let later = LATER + APART * phase;
        reports.push(one_hop(terminal, &cluster, &log, (&proxy, later), [&from, &to]).await?);
        if reports.len() < times {
            terminal.waiting(format!("Cluster {name} to be deleted"));
            cluster.delete().await?;
        }
    }
    let last = reports.last().context("no upgrade")?;
    write(terminal, "gates.json", last)?;
    let series = Series::of(reports);
    series.tell(terminal);
    if times > 1 {
        write(terminal, "gates-series.json", &series)?;
    }
    Ok(series.passed)
}

/// Writes a file of figures to `target/demo`.
fn write(terminal: &Terminal, name: &str, figures: &impl Serialize) -> Result<()> {
    let path = upgrade::directory()?.join(name);
    std::fs::write(&path, serde_json::to_string_pretty(figures)? + "\n")
        .with_context(|| format!("write {}", path.display()))?;
    terminal.say(Tone::Plain, format!("  {}", path.display()));
    Ok(())
}

/// One row for each version: the chart that CAAPH has to deliver, and the image that its DaemonSet has to run.
fn gate(versions: &[&str; 2]) -> Gate {
    let [chart, agent] = CHECKS;
    let agent = Check::workload(agent, ("apps/v1", "DaemonSet"), Chart::NAMESPACE, CNI);
    let gate = Gate::new(CNI)
        .selects(&json!({CNI: "demo"}))
        .check(Check::proxy(chart, CNI).version_key("chart"))
        .check(agent.container(Chart::CONTAINER).version_key("image"));
    let rows = versions.iter().zip(CHARTS);
    rows.fold(gate, |gate, (version, (chart, image))| {
        gate.row(row_of(version), &[("chart", chart), ("image", image)])
    })
}

/// The minor of a version as rows spell it, `1.36`.
fn row_of(version: &str) -> &str {
    minor(version).trim_start_matches('v')
}

fn tell_gate(terminal: &Terminal, versions: &[&str; 2]) {
    terminal.say(
        Tone::Heading,
        "\nApplying UpgradeGate cni: mode Enforce, before ControlPlane",
    );
    for (version, (chart, image)) in versions.iter().zip(CHARTS) {
        let version = row_of(version);
        let text = format!("  Kubernetes {version}: chart {chart}, image {image}");
        terminal.say(Tone::Plain, text);
    }
}

/// Creates a Cluster with one worker, and waits until it is at rest with the chart of its version.
async fn create(
    terminal: &Terminal,
    scene: &Scene,
    name: &str,
    version: &str,
    proxy: &HelmChartProxy,
) -> Result<Cluster> {
    let text = format!(
        "\nCreating Cluster {name} at {version}, with chart {}",
        CHARTS[0].0
    );
    terminal.say(Tone::Heading, text);
    terminal.waiting(format!("Cluster {name} at {version}"));
    scene.deliver(proxy).await?;
    let cluster = scene.cluster(name).unmanaged(version).labelled(CNI, "demo");
    let cluster = cluster.workers(1).create().await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    cluster.delivered(proxy, TIMEOUT).await?;
    cluster.rolled_out(CNI, CHARTS[0].1, TIMEOUT).await?;
    Ok(cluster)
}

/// Upgrades a Cluster, telling the story, and returns the figures.
async fn one_hop(
    terminal: &Terminal,
    cluster: &Cluster,
    log: &WatchLog,
    (proxy, later): (&HelmChartProxy, Duration),
    [from, to]: [&str; 2],
) -> Result<Report> {
    let columns = cluster.upgrade_columns().await?;
    let mut logs = Logs::of(Flow::Sluice, cluster)?;
    logs.are_at_rest().await?;
    let answered = cluster.hook_answers()?.len();
    let observer = cluster.scene().world().observer();
    let complaints = upgrade::violations(cluster).len();
    let since = observer.catch_up().await?;
    let began = Timestamp::now();
    terminal.say(Tone::Heading, format!("\nSetting topology.version to {to}"));
    let mut story = Story::begin(terminal, cluster, since, answered);
    let mut lines = Lines::begin(terminal, &columns);
    terminal.waiting("Cluster API");
    let mut bumped = std::pin::pin!(bump(terminal, cluster, (proxy, later), to));
    let outcome = loop {
        tokio::select! {
            outcome = &mut bumped => break outcome,
            () = tokio::time::sleep(upgrade::UPDATE) => {
                story.go_on();
                lines.go_on();
            }
        }
    };
    observer.catch_up().await?;
    story.go_on();
    lines.go_on();
    outcome?;
    logs.are_at_rest().await?;
    observer.catch_up().await?;
    let [management, workload] = logs.since(began)?;
    for violation in upgrade::violations(cluster).iter().skip(complaints) {
        terminal.say(Tone::Bad, format!("  too early: {violation}"));
    }
    let milestones = cluster.milestones().into_iter();
    let records = log.writes().await?.into_iter();
    Ok(Report::of(&Facts {
        from: from.to_owned(),
        to: to.to_owned(),
        milestones: milestones
            .filter(|milestone| milestone.revision > since)
            .collect(),
        records: records.filter(|record| is_of(record, cluster, since)).collect(),
        violations: upgrade::violations(cluster).len() - complaints,
        management: management.by_kind,
        workload_reads: workload.reads,
    }))
}

fn is_of(record: &Written, cluster: &Cluster, since: Revision) -> bool {
    record.name == cluster.name() && record.revision > since
}

/// Bumps the version first and the chart `later`, and waits until the upgrade is complete.
async fn bump(
    terminal: &Terminal,
    cluster: &Cluster,
    (proxy, later): (&HelmChartProxy, Duration),
    version: &str,
) -> Result<()> {
    cluster.upgrade_unmanaged(version).await?;
    tokio::time::sleep(later).await;
    let chart = CHARTS[1].0;
    terminal.say(
        Tone::Heading,
        format!("Setting version of HelmChartProxy cni to {chart}"),
    );
    let proxy = proxy.clone().version(chart);
    cluster.scene().deliver(&proxy).await?;
    cluster.is_settled_at(version, UPGRADE).await?;
    let what = format!("the upgrade of {} to be over", cluster.name());
    cluster
        .cluster_upgrade_until(what, TIMEOUT, |record| {
            let status = &record["status"];
            if status["upgrade"]["outcome"] == "Completed" {
                Ok(())
            } else {
                wait::not_yet(status)
            }
        })
        .await
}

/// The lines of `kubectl get clusterupgrades -w`, each as it comes.
struct Lines<'a> {
    terminal: &'a Terminal,
    columns: &'a Columns,
    shown: usize,
    /// The last line, without its times.
    last: Vec<String>,
}

impl<'a> Lines<'a> {
    /// Prints the names of the columns, and the present line.
    fn begin(terminal: &'a Terminal, columns: &'a Columns) -> Self {
        let names = COLUMNS.map(|(name, width)| format!("{name:<width$}"));
        terminal.say(Tone::Plain, "  kubectl get clusterupgrades -w");
        terminal.say(Tone::Plain, format!("  | {}", names.join(" ").trim_end()));
        let mut lines = Self {
            terminal,
            columns,
            shown: columns.rows().len().saturating_sub(1),
            last: Vec::new(),
        };
        lines.go_on();
        lines
    }

    fn go_on(&mut self) {
        let rows = self.columns.rows();
        for row in rows.iter().skip(self.shown) {
            let told = told(row);
            if told != self.last {
                self.terminal.say(Tone::Plain, line(row));
                self.last = told;
            }
        }
        self.shown = rows.len();
    }
}

fn told(row: &Row) -> Vec<String> {
    let names = COLUMNS.iter().filter(|(name, _)| *name != "SINCE");
    names.map(|(name, _)| cell(row, name)).collect()
}

fn line(row: &Row) -> String {
    let cells = COLUMNS.map(|(name, width)| format!("{:<width$}", cell(row, name)));
    format!("  | {}", cells.join(" ").trim_end())
}

fn cell(row: &Row, name: &str) -> String {
    row.get(name).cloned().unwrap_or_default()
}

impl Report {
    fn of(facts: &Facts) -> Self {
        let written = facts.milestones.iter().find(|milestone| {
            matches!(&milestone.event, Event::ControlPlaneWritten { version } if *version == facts.to)
        });
        let proofs: Vec<Option<&Milestone>> =
            CHECKS.iter().map(|check| proof(facts, check, written)).collect();
        // All are positions in the one order of etcd; the clock has no say in it.
        let are_proven = written.is_some() && proofs.iter().all(Option::is_some);
        let last = proofs.iter().flatten().max_by_key(|proof| proof.revision);
        let lag = last.zip(written).filter(|_| are_proven);
        let checks = CHECKS.iter().zip(&proofs).map(|(check, proof)| CheckReport {
            name: format!("{CNI}/{check}"),
            proven_at: proof.map(|proof| proof.seen),
        });
        Self {
            capi_version: CLUSTER_API_VERSION.to_owned(),
            caaph_version: CAAPH_VERSION.to_owned(),
            from: facts.from.clone(),
            to: facts.to.clone(),
            holds: holds(&facts.records),
            checks: checks.collect(),
            control_plane_version_written_at: written.map(|written| written.seen),
            release_lag_seconds: lag.map(|(last, written)| seconds(written.seen.duration_since(last.seen))),
            early_release: !are_proven || facts.violations > 0,
            management_writes: writes_of_record(&facts.management),
            workload_reads: facts.workload_reads,
        }
    }
}

/// The last proof of a check before the version of the control plane.
fn proof<'a>(facts: &'a Facts, check: &str, written: Option<&Milestone>) -> Option<&'a Milestone> {
    let wanted = row_of(&facts.to);
    let before = written.map_or(Revision::MAX, |written| written.revision);
    facts.milestones.iter().rfind(|milestone| {
        let is_proof = matches!(&milestone.event, Event::CheckProven { check: of, minor, .. }
            if of == check && minor == wanted);
        is_proof && milestone.revision < before
    })
}

/// What the records were held by, each for as long as until the next record.
fn holds(records: &[Written]) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    for pair in records.windows(2) {
        let [record, next] = pair else { continue };
        let status = &record.object["status"];
        let is_held = |by: &str| !by.ends_with(" (audit)");
        if !status["heldBy"].as_str().is_some_and(is_held) {
            continue;
        }
        let hold = Hold {
            reason: status["reason"].as_str().unwrap_or_default().to_owned(),
            seconds: seconds(next.seen.duration_since(record.seen)),
        };
        match holds.last_mut() {
            Some(last) if last.reason == hold.reason => last.seconds += hold.seconds,
            _ => holds.push(hold),
        }
    }
    holds
}

fn writes_of_record(requests: &BTreeMap<String, usize>) -> usize {
    let is_write = |kind: &str| {
        kind.split_once(' ').is_some_and(|(verb, resource)| {
            let is_of_record = resource == "clusterupgrades" || resource == "clusterupgrades/status";
            is_of_record && ["create", "update", "patch", "delete"].contains(&verb)
        })
    };
    let writes = requests.iter().filter(|(kind, _)| is_write(kind));
    writes.map(|(_, count)| count).sum()
}

impl Series {
    fn of(reports: Vec<Report>) -> Self {
        let lags = Quantiles::of(reports.iter().filter_map(|report| report.release_lag_seconds));
        let early_releases = reports.iter().filter(|report| report.early_release).count();
        let writes = reports.iter().map(|report| report.management_writes).max();
        let management_writes = writes.unwrap_or_default();
        let keeps_pace = reports.len() < LEAST || lags.p50 <= LAG;
        let is_measured = |report: &Report| report.release_lag_seconds.is_some();
        Self {
            upgrades: reports.len(),
            early_releases,
            release_lag_seconds_median: lags.p50,
            release_lag_seconds_max: lags.max,
            management_writes,
            passed: early_releases == 0
                && management_writes <= WRITES
                && keeps_pace
                && reports.iter().all(is_measured),
            reports,
        }
    }

    fn tell(&self, terminal: &Terminal) {
        terminal.say(Tone::Heading, format!("\n{} upgrades", self.upgrades));
        let (median, longest) = (self.release_lag_seconds_median, self.release_lag_seconds_max);
        for line in [
            format!("  early releases              {} (goal 0)", self.early_releases),
            format!(
                "  release after last proof    median {median:.2} s, longest {longest:.2} s (goal: median {LAG} s of {LEAST} upgrades)"
            ),
            format!(
                "  writes of the record        {} for one upgrade at most (goal {WRITES})",
                self.management_writes
            ),
        ] {
            terminal.say(Tone::Plain, line);
        }
        for hold in self.reports.iter().flat_map(|report| &report.holds) {
            let Hold { reason, seconds } = hold;
            terminal.say(Tone::Plain, format!("  held by {reason:<19} {seconds:.1} s"));
        }
        if self.passed {
            terminal.say(Tone::Good, "  passed");
        } else {
            terminal.say(Tone::Bad, "  FAILED");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const TO: &str = "v1.36.3";

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_795_000_000_000 + milliseconds).unwrap()
    }

    fn milestone(revision: Revision, milliseconds: i64, event: Event) -> Milestone {
        Milestone {
            revision,
            seen: at(milliseconds),
            namespace: "demo".to_owned(),
            cluster: "prod-1".to_owned(),
            event,
        }
    }

    fn proven(revision: Revision, milliseconds: i64, check: &str, minor: &str) -> Milestone {
        let event = Event::CheckProven {
            gate: CNI.to_owned(),
            check: check.to_owned(),
            minor: minor.to_owned(),
        };
        milestone(revision, milliseconds, event)
    }

    fn record(revision: Revision, milliseconds: i64, held_by: &Value, reason: &str) -> Written {
        Written {
            revision,
            seen: at(milliseconds),
            kind: "ClusterUpgrade".to_owned(),
            name: "prod-1".to_owned(),
            object: json!({"status": {"heldBy": held_by, "reason": reason}}),
        }
    }

    fn facts() -> Facts {
        let version = TO.to_owned();
        Facts {
            from: "v1.35.4".to_owned(),
            to: TO.to_owned(),
            milestones: vec![
                proven(10, 0, "agent", "1.35"),
                proven(11, 1_000, "chart", "1.36"),
                proven(12, 4_000, "agent", "1.36"),
                milestone(14, 4_750, Event::ControlPlaneWritten { version }),
                proven(20, 9_000, "agent", "1.36"),
            ],
            records: vec![
                record(8, 0, &json!("cni/chart"), "NotAtVersion"),
                record(9, 2_000, &json!("cni/chart"), "NotAtVersion"),
                record(10, 3_000, &json!("cni/agent"), "NotRolledOut"),
                record(11, 4_500, &json!("other/x (audit)"), "NotComplete"),
                record(12, 5_000, &Value::Null, ""),
            ],
            violations: 0,
            management: [
                ("update clusterupgrades/status", 4),
                ("create clusterupgrades", 1),
                ("get clusterupgrades", 9),
                ("patch upgradegates/status", 2),
            ]
            .map(|(kind, count)| (kind.to_owned(), count))
            .into(),
            workload_reads: 7,
        }
    }

    #[test]
    fn the_file_has_exactly_the_fields_of_the_contract() {
        let json = serde_json::to_value(Report::of(&facts())).unwrap();
        let fields: Vec<&String> = json.as_object().unwrap().keys().collect();
        let mut wanted = vec![
            "capi_version",
            "caaph_version",
            "from",
            "to",
            "holds",
            "checks",
            "control_plane_version_written_at",
            "release_lag_seconds",
            "early_release",
            "management_writes",
            "workload_reads",
        ];
        wanted.sort_unstable();
        let mut fields: Vec<&str> = fields.iter().map(|field| field.as_str()).collect();
        fields.sort_unstable();
        assert_eq!(fields, wanted);
        assert_eq!(
            json["checks"][1],
            json!({"name": "cni/agent", "proven_at": "2026-11-18T11:06:44.000Z"})
        );
        assert_eq!(
            json["holds"],
            json!([
                {"reason": "NotAtVersion", "seconds": 3.0},
                {"reason": "NotRolledOut", "seconds": 1.5},
            ])
        );
    }

    #[test]
    fn the_lag_is_from_the_last_proof_before_the_write() {
        let report = Report::of(&facts());
        assert_eq!(report.release_lag_seconds, Some(0.75));
        assert!(!report.early_release);
        assert_eq!((report.management_writes, report.workload_reads), (5, 7));
    }

    #[test]
    fn a_write_before_a_proof_is_early_regardless_of_the_clock() {
        let mut late = facts();
        late.milestones[2].revision = 15;
        let report = Report::of(&late);
        assert!(report.early_release);
        assert_eq!(report.release_lag_seconds, None);
        let mut complaint = facts();
        complaint.violations = 1;
        assert!(Report::of(&complaint).early_release);
    }

    #[test]
    fn each_goal_of_a_series_can_be_missed() {
        let with = |change: fn(&mut Report)| {
            let mut reports = vec![Report::of(&facts()); LEAST];
            change(&mut reports[3]);
            Series::of(reports)
        };
        assert!(with(|_| {}).passed);
        // The median counts.
        assert!(with(|report| report.release_lag_seconds = Some(9.0)).passed);
        let changes: [fn(&mut Report); 3] = [
            |report| report.early_release = true,
            |report| report.management_writes = WRITES + 1,
            |report| report.release_lag_seconds = None,
        ];
        for change in changes {
            assert!(!with(change).passed);
        }
        let slow = |count: usize| {
            let report = Report {
                release_lag_seconds: Some(1.1),
                ..Report::of(&facts())
            };
            Series::of(vec![report; count])
        };
        assert!(!slow(LEAST).passed);
        assert!(slow(LEAST - 1).passed, "too few");
    }
}
