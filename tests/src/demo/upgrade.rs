//! The demo's Cluster and its upgrade.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::{Facts, PackageChange};
use super::report::Report;
use super::story::Story;
use super::terminal::{Terminal, Tone};
use crate::components::minor;
use crate::objects::{Class, Infrastructure, Provider, RESOLVE, Release, TKR, Values};
use crate::repository::{Files, Source, TkrPackage};
use crate::scenario::{Cluster, Scene, TIMEOUT, Table, VERSIONS};
use crate::stack::kubelet::Delay;
use crate::wait;

/// Namespace of the demo.
pub(super) const NAMESPACE: &str = "demo";

/// Time between two updates of the story.
pub(super) const UPDATE: Duration = Duration::from_millis(100);

/// How long an upgrade may take.
const UPGRADE: Duration = Duration::from_mins(4);

/// The ClusterClass of the demo.
pub(super) fn class() -> Class {
    Class {
        // The values of antrea depend on the infrastructure kind.
        infrastructure: Infrastructure::Docker,
        ..Class::default()
    }
}

/// A release of the demo for each Kubernetes version: four packages, the slow one last. As real releases do, they name an AntreaConfig
/// for the values of antrea.
pub(super) fn releases(scene: &Scene) -> Result<Vec<Release>> {
    let binaries = scene.world().stack().core().binaries();
    VERSIONS
        .iter()
        .zip(["1.0.0", "2.0.0", "3.0.0"])
        .map(|(kubernetes, version)| {
            // An installed API server may be of another patch release.
            let kubernetes = binaries.kubernetes_version(kubernetes);
            let release = scene.full_release(&kubernetes, version, Delay::seconds(3), Delay::seconds(6))?;
            let antrea = Provider {
                group: "cni.tanzu.vmware.com",
                version: "v1alpha1",
                kind: "AntreaConfig",
                spec: json!({"antrea": {"config": {"defaultMTU": "1400"}}}),
            };
            Ok(release.values("antrea", Values::Provider(antrea)))
        })
        .collect()
}

/// Offers releases in one PackageRepository, and waits until they are there. Its files are served until what is returned is dropped.
pub(super) async fn offer(terminal: &Terminal, scene: &Scene, releases: &[Release]) -> Result<Source> {
    terminal.say(
        Tone::Heading,
        format!(
            "\nApplying one PackageRepository with {} releases",
            releases.len()
        ),
    );
    let source = Source::Files(Files::serve().await?);
    let mut packages = Vec::new();
    for release in releases {
        packages.push(scene.tkr_package(&source, release, &[]).await?);
    }
    for package in &packages {
        terminal.say(Tone::Plain, format!("  package {}", package.name()));
    }
    let began = Instant::now();
    let offered: Vec<Value> = packages.iter().map(TkrPackage::package).collect();
    scene.offer(&source, &offered).await?;
    terminal.waiting("kapp-controller to install the releases");
    scene.releases_are_ready(releases).await?;
    let seconds = began.elapsed().as_secs_f64();
    terminal.say(Tone::Good, format!("  releases ready after {seconds:.1} s"));
    Ok(source)
}

/// Creates a Cluster of the minor version of a release, which is the only one of it, and waits until it is at rest.
pub(super) async fn create(
    terminal: &Terminal,
    scene: &Scene,
    name: &str,
    release: &Release,
) -> Result<Cluster> {
    terminal.waiting(format!("Cluster {name} at {}", release.kubernetes()));
    // As a user does: the beginning of a version, and no release.
    let version = minor(release.kubernetes());
    admit(scene).await?;
    let asks = scene.cluster(name).unmanaged(version).annotated(RESOLVE, "");
    let cluster = asks.workers(1).create().await?;
    let resolved = cluster.object().await?["metadata"]["labels"][TKR].clone();
    ensure!(
        resolved == release.name(),
        "{version} is resolved to {resolved}, not to {}",
        release.name()
    );
    cluster.packages_proven(release, 0, TIMEOUT * 2).await?;
    cluster.is_available(TIMEOUT * 2).await?;
    cluster.is_settled(TIMEOUT).await?;
    Ok(cluster)
}

/// Registers the webhooks for the demo's namespace.
pub(super) async fn admit(scene: &Scene) -> Result<()> {
    let webhooks = format!("addons-sluice-{}", scene.namespace());
    let extension = scene.world().extension()?;
    extension.admit(&webhooks, &[scene.namespace()]).await
}

/// Shows the releases as kubectl does, once each is said to be ready.
pub(super) async fn show_releases(terminal: &Terminal, scene: &Scene) -> Result<()> {
    terminal.waiting("releases to be ready");
    let table = wait::until("releases to be ready", TIMEOUT, || async {
        let table = Table::get(&scene.client(), Release::PATH).await?;
        let ready = |name: &String| table.row(name).is_some_and(|row| row["READY"] == "True");
        if table.rows.iter().filter_map(|row| row.first()).all(ready) {
            Ok(table)
        } else {
            wait::not_yet(table)
        }
    })
    .await?;
    terminal.say(Tone::Heading, "\nkubectl get tkr");
    for line in table.to_string().lines() {
        terminal.say(Tone::Plain, format!("  {line}"));
    }
    Ok(())
}

/// Upgrades a Cluster, telling the story, and returns the figures.
pub(super) async fn run(
    terminal: &Terminal,
    cluster: &Cluster,
    old: &Release,
    new: &Release,
) -> Result<Report> {
    let answered = cluster.hook_answers()?.len();
    let since = cluster.scene().world().observer().catch_up().await?;
    let mut story = Story::begin(terminal, cluster, since, answered);
    terminal.waiting("Cluster API");
    cluster.upgrade(new).await?;
    let settled = cluster.is_settled_at(new.kubernetes(), UPGRADE);
    let mut settled = std::pin::pin!(settled);
    let outcome = loop {
        tokio::select! {
            outcome = &mut settled => break outcome,
            () = tokio::time::sleep(UPDATE) => story.go_on(),
        }
    };
    let ended = Timestamp::now();
    cluster.scene().world().observer().catch_up().await?;
    story.go_on();
    outcome?;
    let facts = Facts {
        from: old.kubernetes().to_owned(),
        to: new.kubernetes().to_owned(),
        packages: PackageChange::between(old, new),
        milestones: cluster
            .milestones()
            .into_iter()
            .filter(|milestone| milestone.revision > since)
            .collect(),
        violations: violations(cluster),
        answers: cluster.hook_answers()?.split_off(answered),
        began: story.began(),
        ended,
    };
    for violation in &facts.violations {
        terminal.say(Tone::Bad, format!("  too early: {violation}"));
    }
    Ok(Report {
        programs: cluster.scene().world().stack().core().binaries().report(),
        ..Report::of(&facts)
    })
}

/// Writes of the Cluster that came too early.
pub(super) fn violations(cluster: &Cluster) -> Vec<crate::observer::Violation> {
    let scene = cluster.scene();
    scene
        .world()
        .observer()
        .violations(scene.namespace())
        .into_iter()
        .filter(|violation| violation.cluster == cluster.name())
        .collect()
}

/// Says the figures that matter.
pub(super) fn summarize(terminal: &Terminal, report: &Report) {
    let shown = |lag: Option<f64>| lag.map_or_else(|| "-".to_owned(), |lag| format!("{lag:.2} s"));
    let lag = shown(report.release_lag_seconds);
    let workers = shown(report.workers_release_lag_seconds);
    let calls: usize = report.hooks.iter().map(|hook| hook.handler_calls).sum();
    terminal.say(
        Tone::Heading,
        format!("\nUpgrade {} -> {}", report.from, report.to),
    );
    for package in &report.packages {
        let ready = package.ready_at.map_or_else(|| "never".to_owned(), clock);
        terminal.say(
            Tone::Plain,
            format!(
                "  {:<22} {} -> {}   ready at {ready}",
                package.name, package.from, package.to
            ),
        );
    }
    for hook in &report.hooks {
        terminal.say(
            Tone::Plain,
            format!(
                "  {:<27} held {:>5.1} s, {} calls",
                hook.hook, hook.held_seconds, hook.handler_calls
            ),
        );
    }
    terminal.say(Tone::Plain, format!("  hook calls                  {calls}"));
    terminal.say(Tone::Plain, format!("  release after last proof    {lag}"));
    terminal.say(Tone::Plain, format!("  workers after last proof    {workers}"));
    terminal.say(
        Tone::Plain,
        format!(
            "  Cluster paused              {:.1} s",
            report.cluster_paused_seconds
        ),
    );
    terminal.say(
        Tone::Plain,
        format!("  whole upgrade               {:.1} s", report.total_seconds),
    );
    if report.early_release {
        terminal.say(
            Tone::Bad,
            "  order                       VIOLATED: a version was written before its packages were proven",
        );
    } else {
        terminal.say(
            Tone::Good,
            "  order                       kept: every version was written after its packages were proven",
        );
    }
}

fn clock(time: Timestamp) -> String {
    time.strftime("%H:%M:%S.%3fZ").to_string()
}

/// Writes the report beside the build and returns where.
pub(super) fn write(report: &Report) -> Result<std::path::PathBuf> {
    let directory = directory()?;
    let path = directory.join("report.json");
    std::fs::write(&path, serde_json::to_string_pretty(report)? + "\n")
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// `target/demo`, created if it is missing.
pub(super) fn directory() -> Result<std::path::PathBuf> {
    let target = crate::processes::run_directory::target_directory()
        .context("the demo does not run from Cargo's target directory")?;
    let directory = target.join("demo");
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    Ok(directory)
}

impl Cluster {
    /// Waits until the topology is at rest and the control plane runs `version`.
    pub(crate) async fn is_settled_at(&self, version: &str, deadline: Duration) -> Result<()> {
        let since = tokio::time::Instant::now();
        wait::until(
            format!("the control plane to run {version}"),
            deadline,
            || async {
                match self.workload()?.api.version() {
                    running if running == version => Ok(()),
                    running => wait::not_yet(running),
                }
            },
        )
        .await?;
        self.is_settled(deadline.saturating_sub(since.elapsed())).await
    }
}
