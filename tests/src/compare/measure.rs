//! One upgrade of one Cluster, measured.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::counts::{Counts, Logs};
use super::phases::Phases;
use super::side::{DELAYED, Flow, Side};
use crate::demo::Report;
use crate::demo::facts::{Facts, PackageChange};
use crate::demo::report::seconds;
use crate::observer::{Event, Milestone, Violation};
use crate::scenario::Cluster;
use crate::stack::kubelet::Delay;

/// How long an upgrade may take.
const UPGRADE: Duration = Duration::from_mins(4);

/// One upgrade. All times are seconds since the change of label and version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Upgrade {
    /// Flow that upgraded the packages.
    pub flow: Flow,
    /// Seconds that Deployments took until they were ready.
    pub delay_s: u64,
    /// Kubernetes version before and after.
    pub from: String,
    /// Kubernetes version after.
    pub to: String,
    /// Whether the control plane was written before all packages were ready, by the observer.
    pub early: bool,
    /// Packages that were not ready then.
    pub not_ready: usize,
    /// Further writes that came before packages were proven again on the new control plane.
    pub not_proven_again: usize,
    /// When the Cluster was paused and unpaused.
    pub pauses: Vec<(f64, f64)>,
    /// Seconds that it was paused.
    pub paused_s: f64,
    /// When each package was ready, by name.
    pub packages: Vec<(String, f64)>,
    /// When the version was written to the control plane.
    pub control_plane_s: f64,
    /// When it was written to the workers.
    pub workers_s: f64,
    /// From the last package that was ready to the write of the control plane; less than 0 for one that came early.
    pub lag_s: f64,
    /// Until topology and packages were at rest.
    pub total_s: f64,
    /// Where these seconds go.
    pub phases: Phases,
    /// Requests of the flow to the management API server.
    pub management: Counts,
    /// Requests of the flow to the API server of the workload.
    pub workload: Counts,
}

impl Side {
    /// Upgrades a Cluster by one hop (0 is the first one), and waits until topology, workers, packages and the flow are at rest.
    ///
    /// # Errors
    /// Something does not come to rest in time, or a process ends. Nothing of an upgrade that did not end is returned.
    pub async fn upgrade(&self, cluster: &Cluster, hop: usize, delay_s: u64) -> Result<Upgrade> {
        let what = format!(
            "upgrade of {} by the {}, delay {delay_s} s",
            cluster.name(),
            self.flow()
        );
        self.measured(cluster, hop, delay_s).await.context(what)
    }

    async fn measured(&self, cluster: &Cluster, hop: usize, delay_s: u64) -> Result<Upgrade> {
        let [old, new] = [&self.releases()[hop], &self.releases()[hop + 1]];
        for name in DELAYED {
            cluster.delay(name, Delay::seconds(delay_s));
        }
        let mut logs = Logs::of(self.flow(), cluster)?;
        logs.are_at_rest().await?;
        let answers = |from: usize| match self.flow() {
            Flow::Sluice => cluster.hook_answers().map(|mut answers| answers.split_off(from)),
            Flow::Pause => Ok(Vec::new()),
        };
        let answered = answers(0)?.len();
        let observer = cluster.scene().world().observer();
        let since = observer.catch_up().await?;
        let began = Timestamp::now();
        cluster.upgrade(new).await?;
        cluster.is_settled_at(new.kubernetes(), UPGRADE).await?;
        cluster
            .milestone(
                "the workers to be done",
                UPGRADE,
                since,
                |event| matches!(event, Event::WorkersDone { version, .. } if version == new.kubernetes()),
            )
            .await?;
        cluster.packages_proven(new, since, UPGRADE).await?;
        let ended = Timestamp::now();
        logs.are_at_rest().await?;
        observer.catch_up().await?;
        self.check()?;
        let [management, workload] = logs.since(began)?;
        ensure!(
            management.writes > 0 && workload.writes > 0,
            "the audit logs show no write of {:?}",
            self.flow()
        );
        let violations = observer.violations(cluster.scene().namespace());
        let (early, later): (Vec<Violation>, Vec<Violation>) = violations
            .into_iter()
            .filter(|violation| violation.cluster == cluster.name() && violation.revision > since)
            .partition(is_of_control_plane);
        ensure!(
            self.flow() == Flow::Pause || later.is_empty(),
            "Sluice let workers go, or an upgrade end, before packages were proven again: {later:?}"
        );
        let facts = Facts {
            from: old.kubernetes().to_owned(),
            to: new.kubernetes().to_owned(),
            packages: PackageChange::between(old, new),
            milestones: cluster
                .milestones()
                .into_iter()
                .filter(|milestone| milestone.revision > since)
                .collect(),
            // Only what came before any node could be replaced: the pause flow has no second proof.
            violations: early,
            answers: answers(answered)?,
            began,
            ended,
        };
        let beside = Beside {
            delay_s,
            not_proven_again: later.len(),
            management,
            workload,
        };
        let upgrade = beside.of(self.flow(), &facts)?;
        if self.flow() == Flow::Sluice {
            let paused = upgrade.paused_s;
            ensure!(paused <= 0.0, "Sluice paused a Cluster for {paused} s");
            upgrade.phases.check(&facts)?;
        }
        Ok(upgrade)
    }
}

/// Figures of an upgrade beyond its milestones.
struct Beside {
    delay_s: u64,
    not_proven_again: usize,
    management: Counts,
    workload: Counts,
}

impl Beside {
    fn of(self, flow: Flow, facts: &Facts) -> Result<Upgrade> {
        let report = Report::of(facts);
        let since = |at: Timestamp| seconds(at.duration_since(facts.began));
        let packages = report.packages.iter().map(|package| {
            let ready = package.ready_at.context("a package was never ready")?;
            Ok((package.name.clone(), since(ready)))
        });
        let control_plane = report.control_plane_version_written_at;
        let workers = report.workers_version_written_at;
        Ok(Upgrade {
            flow,
            delay_s: self.delay_s,
            from: report.from,
            to: report.to,
            early: report.early_release,
            not_ready: facts.violations.first().map_or(0, |early| early.missing.len()),
            not_proven_again: self.not_proven_again,
            pauses: pauses(&facts.milestones, since),
            paused_s: report.cluster_paused_seconds,
            packages: packages.collect::<Result<_>>()?,
            control_plane_s: since(control_plane.context("no version was written to the control plane")?),
            workers_s: since(workers.context("no version was written to the workers")?),
            lag_s: report.release_lag_seconds.context("no last proof")?,
            total_s: report.total_seconds,
            phases: Phases::of(facts),
            management: self.management,
            workload: self.workload,
        })
    }
}

fn is_of_control_plane(violation: &Violation) -> bool {
    violation.write.starts_with("the control plane was written to ") && !violation.write.contains(", past ")
}

fn pauses(milestones: &[Milestone], since: impl Fn(Timestamp) -> f64) -> Vec<(f64, f64)> {
    let mut pauses = Vec::new();
    let mut began = None;
    for milestone in milestones {
        match milestone.event {
            Event::Paused { paused: true } => began = Some(since(milestone.seen)),
            Event::Paused { paused: false } => {
                pauses.extend(began.take().map(|began| (began, since(milestone.seen))));
            }
            _ => {}
        }
    }
    pauses
}
