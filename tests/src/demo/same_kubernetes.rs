//! Releases of one Kubernetes version, one after the other: packages are proven, then machines are replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::Serialize;

use super::report::seconds;
use super::story::Story;
use super::terminal::{Terminal, Tone};
use super::upgrade;
use crate::compare::Flow;
use crate::compare::counts::Logs;
use crate::objects::{Class, Images, RESOLVE, Release};
use crate::observer::{Event, Revision};
use crate::pace::Quantiles;
use crate::scenario::{Cluster, Scene, TIMEOUT, VERSIONS, WatchLog, World, Written};
use crate::stack::kubelet::Delay;

/// Longest median in seconds from the last proof to the change of `TKR_DATA`.
const LAG: f64 = 0.7;

/// Fewer swaps do not show the pace.
const LEAST: usize = 10;

/// Most writes of Sluice to the management API server for one swap, without Events and progress: the ClusterBootstrap, a label of its Secret, values
/// Secret and PackageInstall of kapp-controller, entries and condition of the Cluster, and the record as it begins, opens, shows the entries and ends.
const WRITES: usize = 10;

/// Most Events of one swap.
const EVENTS: usize = 2;

/// Machines of the one pool.
const MACHINES: u32 = 2;

/// Where the record is.
const KIND: (&str, &str, &str) = ("run.tanzu.vmware.com", "v1alpha3", "ClusterBootstrap");

/// `target/demo/same-kubernetes.json`.
#[derive(Debug, Serialize)]
struct Series {
    swaps: usize,
    /// Release before the first swap.
    from: String,
    /// Release after the last one.
    to: String,
    /// Holds of all swaps.
    holds: usize,
    /// Median seconds from the last proof to the change of `TKR_DATA`.
    swap_lag_seconds: f64,
    swap_lag_seconds_max: f64,
    /// Machines that are gone, of all swaps. A control plane of the harness has none.
    machines_replaced: usize,
    /// Changes of `TKR_DATA` before the last proof, by resourceVersion.
    early_swap: usize,
    /// Most writes of one swap, without Events.
    management_writes: usize,
    /// Most Events of one swap.
    events: usize,
    /// Writes that the observer complains about.
    violations: usize,
    passed: bool,
    reports: Vec<Report>,
}

/// One swap.
#[derive(Debug, Clone, Serialize)]
struct Report {
    /// Release of packages and machines before.
    from: String,
    /// Release after.
    to: String,
    /// How often something else was waited for.
    holds: usize,
    held_by: Vec<Hold>,
    /// From the last proof to the change of `TKR_DATA`, as both were seen.
    swap_lag_seconds: f64,
    machines_replaced: usize,
    early_swap: usize,
    /// From the new label to the end of the upgrade, as both were seen.
    seconds: f64,
    /// Writes of Sluice to the management API server until it was at rest, without Events.
    management_writes: usize,
    /// Most writes in this time.
    permitted_writes: usize,
    events: usize,
    /// All requests of Sluice to it but leases, by verb and resource.
    management_requests: BTreeMap<String, usize>,
    violations: usize,
}

/// Something that the record waited for.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Hold {
    reason: String,
    message: String,
    held_seconds: f64,
}

/// Moves one Cluster to `times` higher releases; true if order, pace and number of writes were kept.
pub(super) async fn run(terminal: &Terminal, world: &Arc<World>, times: usize) -> Result<bool> {
    ensure!(times > 0, "--times 0 makes no upgrade");
    let class = Class {
        images: Some(Images::default()),
        ..upgrade::class()
    };
    let scene = Scene::open(world, upgrade::NAMESPACE, &class).await?;
    let releases = releases(&scene, times + 1)?;
    for release in &releases {
        scene.publish(release).await?;
    }
    terminal.waiting("releases to be ready");
    scene.releases_are_ready(&releases).await?;
    let log = scene.watch(&[KIND]).await?;
    let first = releases.first().context("no release")?;
    let cluster = create(terminal, &scene, first).await?;
    let mut reports = Vec::new();
    for hop in releases.windows(2) {
        let [old, new] = hop else { continue };
        terminal.say(Tone::Heading, format!("\nSetting the label to {}", new.name()));
        reports.push(swap(terminal, &cluster, &log, old, new).await?);
    }
    let series = Series::of(reports);
    series.tell(terminal);
    let path = upgrade::directory()?.join("same-kubernetes.json");
    std::fs::write(&path, serde_json::to_string_pretty(&series)? + "\n")
        .with_context(|| format!("write {}", path.display()))?;
    terminal.say(Tone::Plain, format!("  {}", path.display()));
    Ok(series.passed)
}

/// Releases of the newest Kubernetes version, each higher than the one before. Each has an image.
fn releases(scene: &Scene, count: usize) -> Result<Vec<Release>> {
    let binaries = scene.world().stack().core().binaries();
    // An installed API server may be of another patch release.
    let kubernetes = binaries.kubernetes_version(VERSIONS[2]);
    (1..=count)
        .map(|build| {
            let version = format!("{build}.0.0");
            let (antrea, metrics) = (Delay::seconds(3), Delay::seconds(6));
            let release = scene.full_release(&kubernetes, &version, antrea, metrics)?;
            let release = release.build(format!("{}.{build}", scene.namespace()));
            let image = release.name().replace('.', "-");
            Ok(release.image(image, "ubuntu"))
        })
        .collect()
}

async fn create(terminal: &Terminal, scene: &Scene, release: &Release) -> Result<Cluster> {
    terminal.say(
        Tone::Heading,
        format!(
            "\nCreating a Cluster at {} with {MACHINES} workers",
            release.name()
        ),
    );
    terminal.waiting(format!("a Cluster at {}", release.name()));
    upgrade::admit(scene).await?;
    // The label keeps it from the newer releases.
    let asks = scene.cluster("demo").at(release).annotated(RESOLVE, "");
    let cluster = asks.workers(MACHINES).create().await?;
    let object = cluster.object().await?;
    let resolved = &object["spec"]["topology"]["variables"][0];
    ensure!(
        resolved["name"] == "TKR_DATA",
        "the Cluster has no TKR_DATA, its first variable is {resolved}"
    );
    cluster.packages_proven(release, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    Ok(cluster)
}

/// Moves the label, telling the story, and returns the figures.
async fn swap(
    terminal: &Terminal,
    cluster: &Cluster,
    log: &WatchLog,
    old: &Release,
    new: &Release,
) -> Result<Report> {
    let mut logs = Logs::of(Flow::Sluice, cluster)?;
    logs.are_at_rest().await?;
    let before = cluster.machines().await?;
    let answered = cluster.hook_answers()?.len();
    let observer = cluster.scene().world().observer();
    let complaints = upgrade::violations(cluster).len();
    let since = observer.catch_up().await?;
    let began = Timestamp::now();
    let mut story = Story::begin(terminal, cluster, since, answered);
    terminal.waiting("Sluice");
    cluster.relabel(new).await?;
    let mut replaced = std::pin::pin!(cluster.machines_replaced(new, TIMEOUT));
    let outcome = loop {
        tokio::select! {
            outcome = &mut replaced => break outcome,
            () = tokio::time::sleep(upgrade::UPDATE) => story.go_on(),
        }
    };
    observer.catch_up().await?;
    story.go_on();
    outcome?;
    cluster.is_settled(TIMEOUT).await?;
    logs.are_at_rest().await?;
    observer.catch_up().await?;

    let proven = cluster.packages_proven(new, since, TIMEOUT).await?;
    let name = new.name();
    let is_swap =
        |event: &Event| matches!(event, Event::ReleaseDataWritten { release, .. } if *release == name);
    let written = cluster
        .milestone("a change of TKR_DATA", TIMEOUT, since, is_swap)
        .await?;
    let changes = cluster.milestones().into_iter().filter(|milestone| {
        milestone.revision > since && matches!(milestone.event, Event::ReleaseDataWritten { .. })
    });
    let early_swap = changes.filter(|change| change.revision < proven.revision).count();
    let after = cluster.machines().await?;
    let records = log.writes().await?;
    let held_by = holds(&records, since, &name);
    let ended = records.iter().find(|write| ends(write, since, &name));
    let ended = ended.context("no record of a completed upgrade")?;
    let lasted = seconds(ended.seen.duration_since(began));
    let [management, _] = logs.since(began)?;
    let is_event = |kind: &str| kind.ends_with(" events");
    let events = management.by_kind.iter().filter(|(kind, _)| is_event(kind));
    let events = events.map(|(_, count)| count).sum();
    for violation in upgrade::violations(cluster).iter().skip(complaints) {
        terminal.say(Tone::Bad, format!("  too early: {violation}"));
    }
    Ok(Report {
        from: old.name(),
        to: name,
        holds: held_by.len(),
        held_by,
        swap_lag_seconds: seconds(written.seen.duration_since(proven.seen)),
        machines_replaced: before.difference(&after).count(),
        early_swap,
        seconds: lasted,
        management_writes: management.writes - events,
        permitted_writes: permitted_writes(lasted),
        events,
        management_requests: management.by_kind,
        violations: upgrade::violations(cluster).len() - complaints,
    })
}

/// Whether the record of a swap says for the first time that it has ended.
fn ends(write: &Written, since: Revision, to: &str) -> bool {
    let record = &write.object["status"]["upgrade"];
    write.revision > since && record["swap"]["to"] == to && record["outcome"] == "Completed"
}

/// Most writes of a swap of these seconds. Each write of progress follows the last one by 5, 10 and then always 15 s.
fn permitted_writes(lasted: f64) -> usize {
    let times = std::iter::once(5.0).chain((1..).map(|further| 15.0 * f64::from(further)));
    WRITES + times.take_while(|time| *time <= lasted).count()
}

/// What the records of a swap waited for, each for as long as until the next record. `writes` are those of ClusterBootstraps, in order.
fn holds(writes: &[Written], since: Revision, to: &str) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    for pair in writes.windows(2) {
        let [write, next] = pair else { continue };
        let swap = &write.object["status"]["upgrade"]["swap"];
        if write.revision <= since || swap["to"] != to || swap["open"] == true {
            continue;
        }
        let held_seconds = seconds(next.seen.duration_since(write.seen));
        let text = |field: &str| swap[field].as_str().unwrap_or_default().to_owned();
        let hold = Hold {
            reason: text("reason"),
            message: text("message"),
            held_seconds,
        };
        match holds.last_mut() {
            Some(last) if last.reason == hold.reason && last.message == hold.message => {
                last.held_seconds += held_seconds;
            }
            _ => holds.push(hold),
        }
    }
    holds
}

impl Series {
    fn of(reports: Vec<Report>) -> Self {
        let sum = |of: fn(&Report) -> usize| reports.iter().map(of).sum::<usize>();
        let lags = Quantiles::of(reports.iter().map(|report| report.swap_lag_seconds));
        let early_swap = sum(|report| report.early_swap);
        let violations = sum(|report| report.violations);
        let most = |of: fn(&Report) -> usize| reports.iter().map(of).max().unwrap_or_default();
        let management_writes = most(|report| report.management_writes);
        let events = most(|report| report.events);
        let machines = usize::try_from(MACHINES).unwrap_or_default();
        let is_replaced = |report: &Report| report.machines_replaced == machines;
        let keeps_pace = reports.len() < LEAST || lags.p50 <= LAG;
        Self {
            swaps: reports.len(),
            from: reports
                .first()
                .map(|first| first.from.clone())
                .unwrap_or_default(),
            to: reports.last().map(|last| last.to.clone()).unwrap_or_default(),
            holds: sum(|report| report.holds),
            swap_lag_seconds: lags.p50,
            swap_lag_seconds_max: lags.max,
            machines_replaced: sum(|report| report.machines_replaced),
            early_swap,
            management_writes,
            events,
            violations,
            passed: early_swap == 0
                && violations == 0
                && keeps_pace
                && reports
                    .iter()
                    .all(|report| report.management_writes <= report.permitted_writes)
                && events <= EVENTS
                && reports.iter().all(is_replaced),
            reports,
        }
    }

    fn tell(&self, terminal: &Terminal) {
        terminal.say(
            Tone::Heading,
            format!("\n{} -> {}, {} swaps", self.from, self.to, self.swaps),
        );
        let (median, longest) = (self.swap_lag_seconds, self.swap_lag_seconds_max);
        for line in [
            format!("  early swaps                 {} (goal 0)", self.early_swap),
            format!(
                "  TKR_DATA after last proof   median {median:.2} s, longest {longest:.2} s (goal: median {LAG} s of {LEAST} swaps)"
            ),
            format!("  machines replaced           {}", self.machines_replaced),
            format!(
                "  writes, management          {} for one swap at most (limit {WRITES}, and progress after 5, 15, 30 … s), and {} Events (goal {EVENTS})",
                self.management_writes, self.events
            ),
        ] {
            terminal.say(Tone::Plain, line);
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
    use serde_json::{Value, json};

    use super::*;

    fn report(lag: f64) -> Report {
        Report {
            from: "a".to_owned(),
            to: "b".to_owned(),
            holds: 1,
            held_by: Vec::new(),
            swap_lag_seconds: lag,
            machines_replaced: 2,
            early_swap: 0,
            seconds: 12.0,
            management_writes: 11,
            permitted_writes: 11,
            events: 2,
            management_requests: BTreeMap::new(),
            violations: 0,
        }
    }

    fn with(change: impl Fn(&mut Report)) -> Series {
        let mut reports = vec![report(0.5); 10];
        change(&mut reports[3]);
        Series::of(reports)
    }

    #[test]
    fn ten_swaps_within_the_goals_pass() {
        let series = with(|_| {});
        assert!(series.passed);
        assert_eq!((series.holds, series.machines_replaced), (10, 20));
        // The median counts.
        assert!(with(|report| report.swap_lag_seconds = 9.0).passed);
    }

    #[test]
    fn each_goal_can_be_missed() {
        let changes: [fn(&mut Report); 5] = [
            |report| report.early_swap = 1,
            |report| report.violations = 1,
            |report| report.management_writes = 12,
            |report| report.events = 3,
            |report| report.machines_replaced = 1,
        ];
        for change in changes {
            assert!(!with(change).passed);
        }
        assert!(!Series::of(vec![report(0.8); 10]).passed);
        assert!(Series::of(vec![report(0.8); 9]).passed, "too few");
    }

    #[test]
    fn only_time_permits_writes_of_progress() {
        let cases = [
            (4.9, 10),
            (5.0, 11),
            (14.9, 11),
            (15.0, 12),
            (29.9, 12),
            (30.0, 13),
            (45.0, 14),
        ];
        for (lasted, permitted) in cases {
            assert_eq!(permitted_writes(lasted), permitted, "{lasted} s");
        }
    }

    #[test]
    fn holds_last_until_the_next_record() {
        let write = |revision, second, swap: Value| Written {
            revision,
            seen: Timestamp::from_second(second).unwrap(),
            kind: String::new(),
            name: String::new(),
            object: json!({"status": {"upgrade": {"swap": swap}}}),
        };
        let waits = |message: &str, open: bool| json!({"to": "b", "open": open, "reason": "PackagesNotReady", "message": message});
        let writes = [
            write(1, 0, waits("before", false)),
            write(2, 1, waits("antrea", false)),
            write(3, 3, waits("antrea", false)),
            write(4, 6, waits("metrics", false)),
            write(5, 7, waits("", true)),
            write(6, 9, json!(null)),
        ];
        let found = holds(&writes, 1, "b");
        let texts: Vec<(&str, f64)> = found
            .iter()
            .map(|hold| (hold.message.as_str(), hold.held_seconds))
            .collect();
        assert_eq!(texts, [("antrea", 5.0), ("metrics", 1.0)]);
        assert!(holds(&writes, 1, "c").is_empty());
    }
}
