//! Model of helm-controller v1.6.2, with its false-ready windows, and of the chart that source-controller fetches for it.
//!
//! The source facts are in `internal/controller/helmrelease_controller.go` and `internal/reconcile/` of that version: the deferred patch
//! observes the generation of a suspended object; `Reconciling` is set before the source is read; the source comes from a cache that may
//! be behind the template; a failed upgrade is rolled back in the same reconcile.

use serde_json::{Value, json};

use crate::{
    addons::{Delivery, apply, observe},
    flux::{acknowledge, is_elsewhere, remove_condition, set_condition},
    objects::helm_release,
    servers::Servers,
};

/// Maximum number of revisions in the status.
const HISTORY: usize = 5;

/// Revision of the Helm release in a workload cluster.
#[derive(Clone, Debug)]
struct Revision {
    number: usize,
    chart: String,
    values: String,
    status: &'static str,
}

/// Running reconcile. The status is written at its end, with the generation that it began with.
#[derive(Clone, Debug)]
struct Run {
    uid: Value,
    generation: Value,
    chart: String,
    values: String,
    is_elsewhere: bool,
    /// Whether the upgrade has begun.
    upgrades: bool,
}

/// helm-controller, and the Helm release in the workload cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct HelmController {
    /// Version of the chart that source-controller has fetched.
    artifact: Option<String>,
    /// Revisions in the workload cluster of the Cluster, and in another one; the oldest first.
    revisions: [Vec<Revision>; 2],
    run: Option<Run>,
}

fn digest(values: &str) -> Value {
    json!(format!("sha256:{values}"))
}

/// The deferred patch of a suspended object.
fn skip(release: &mut Value) {
    observe(release);
    acknowledge(release);
}

impl HelmController {
    /// Returns the version of the chart that is deployed.
    pub(crate) fn deployed(&self) -> Option<&str> {
        let last = self.revisions[0].last()?;
        (last.status == "deployed").then_some(last.chart.as_str())
    }

    /// source-controller fetches the chart that the HelmRelease asks for. A suspended one does not ask.
    pub(crate) fn fetch(&mut self, servers: &Servers) {
        let found = servers.get(&helm_release());
        let asks = found.filter(|release| release["spec"]["suspend"] != true);
        if let Some(version) = asks.and_then(|release| release["spec"]["chart"]["spec"]["version"].as_str()) {
            self.artifact = Some(version.to_owned());
        }
    }

    /// Takes a step of the reconcile of the HelmRelease. One object is never reconciled twice at the same time.
    pub(crate) fn step(&mut self, servers: &mut Servers, step: Delivery) {
        match step {
            Delivery::Begin | Delivery::BeginBehind => {
                if self.run.is_none() {
                    self.begin(servers, step);
                }
            }
            Delivery::Observe => {
                let found = servers.get(&helm_release());
                if found.is_some_and(|release| release["spec"]["suspend"] == true) {
                    servers.edit(&helm_release(), skip);
                }
            }
            Delivery::Pend => self.pend(servers),
            Delivery::Kill => self.kill(servers),
            Delivery::Succeed
            | Delivery::Fail
            | Delivery::FailAgain
            | Delivery::RollBack
            | Delivery::NotRendered => self.end(servers, step),
        }
    }

    fn begin(&mut self, servers: &mut Servers, step: Delivery) {
        let Some(found) = servers.get(&helm_release()).cloned() else {
            return;
        };
        let (metadata, spec) = (&found["metadata"], &found["spec"]);
        if spec["suspend"] == true {
            servers.edit(&helm_release(), skip);
            return;
        }
        servers.edit(&helm_release(), |release| {
            set_condition(release, "Reconciling", "True", "Progressing");
        });
        let wanted = spec["chart"]["spec"]["version"].as_str();
        let is_read = |chart: &String| step == Delivery::BeginBehind || wanted == Some(chart.as_str());
        let Some(chart) = self.artifact.clone().filter(is_read) else {
            servers.edit(&helm_release(), |release| {
                set_condition(release, "Ready", "False", "SourceNotReady");
                acknowledge(release);
            });
            return;
        };
        self.run = Some(Run {
            uid: metadata["uid"].clone(),
            generation: metadata["generation"].clone(),
            values: spec["values"]["setting"].as_str().unwrap_or_default().to_owned(),
            is_elsewhere: is_elsewhere(&found),
            upgrades: false,
            chart,
        });
    }

    /// Whether the release has chart and values already. Helm is not run then.
    fn is_in_sync(&self, run: &Run) -> bool {
        let last = self.revisions[usize::from(run.is_elsewhere)].last();
        last.is_some_and(|last| {
            last.status == "deployed" && last.chart == run.chart && last.values == run.values
        })
    }

    /// The upgrade begins, and the status shows it.
    fn pend(&mut self, servers: &mut Servers) {
        let Some(run) = self.run.clone().filter(|run| !self.is_in_sync(run)) else {
            return;
        };
        run.edit(servers, |release| {
            run.attempt(release);
            set_condition(release, "Ready", "Unknown", "Progressing");
            set_condition(release, "Reconciling", "True", "Progressing");
        });
        self.run = Some(Run {
            upgrades: true,
            ..run
        });
    }

    /// The process is killed. The release of an upgrade that has begun stays pending.
    fn kill(&mut self, servers: &mut Servers) {
        let Some(run) = self.run.take() else { return };
        if run.upgrades && run.is_current(servers) {
            self.revise(servers, &run, "pending-upgrade");
        }
    }

    fn end(&mut self, servers: &mut Servers, end: Delivery) {
        let Some(run) = self.run.take() else { return };
        if !run.is_current(servers) {
            return;
        }
        if self.is_in_sync(&run) {
            self.succeeded(servers, &run);
            return;
        }
        if run.values == "broken" || end == Delivery::NotRendered {
            self.failed(servers, &run, |_| {});
            return;
        }
        if !end.fails(false) {
            self.revise(servers, &run, "deployed");
            self.succeeded(servers, &run);
            return;
        }
        let revisions = &self.revisions[usize::from(run.is_elsewhere)];
        let mut earlier = revisions.iter().rev();
        let earlier = earlier.find(|revision| revision.status == "deployed").cloned();
        self.revise(servers, &run, "failed");
        let Some(earlier) = earlier.filter(|_| end == Delivery::RollBack) else {
            self.failed(servers, &run, |_| {});
            return;
        };
        let back = Run {
            chart: earlier.chart,
            values: earlier.values,
            ..run.clone()
        };
        self.revise(servers, &back, "deployed");
        self.failed(servers, &run, |release| {
            set_condition(release, "Remediated", "True", "RollbackSucceeded");
        });
    }

    /// Adds a revision to the release, and applies its manifests.
    fn revise(&mut self, servers: &mut Servers, run: &Run, status: &'static str) {
        let revisions = &mut self.revisions[usize::from(run.is_elsewhere)];
        if status == "deployed" {
            for earlier in revisions
                .iter_mut()
                .filter(|earlier| earlier.status == "deployed")
            {
                earlier.status = "superseded";
            }
        }
        revisions.push(Revision {
            number: revisions.len() + 1,
            chart: run.chart.clone(),
            values: run.values.clone(),
            status,
        });
        if !run.is_elsewhere {
            apply(servers, &run.chart);
        }
    }

    /// Writes the status of a release that is in sync.
    fn succeeded(&self, servers: &mut Servers, run: &Run) {
        self.report(servers, run, |release| {
            for type_ in ["Reconciling", "Remediated", "Stalled"] {
                remove_condition(release, type_);
            }
            set_condition(release, "Released", "True", "UpgradeSucceeded");
            set_condition(release, "Ready", "True", "UpgradeSucceeded");
            release["status"]["observedGeneration"] = run.generation.clone();
        });
    }

    /// Writes the status of a failure, which is retried. Its generation is not observed.
    fn failed(&self, servers: &mut Servers, run: &Run, remediate: impl FnOnce(&mut Value)) {
        self.report(servers, run, |release| {
            remove_condition(release, "Remediated");
            set_condition(release, "Released", "False", "UpgradeFailed");
            set_condition(release, "Ready", "False", "UpgradeFailed");
            set_condition(release, "Reconciling", "True", "ProgressingWithRetry");
            remediate(release);
        });
    }

    fn report(&self, servers: &mut Servers, run: &Run, edit: impl FnOnce(&mut Value)) {
        let revisions = &self.revisions[usize::from(run.is_elsewhere)];
        let newest = revisions.iter().rev().take(HISTORY);
        let history: Value = newest.map(Revision::snapshot).collect();
        run.edit(servers, |release| {
            run.attempt(release);
            release["status"]["history"] = history;
            acknowledge(release);
            edit(release);
        });
    }

    /// The HelmRelease is deleted, and with it the Helm release. Its manifests stay.
    pub(crate) fn uninstall(&mut self, servers: &mut Servers) {
        servers.remove(&helm_release());
        let artifact = self.artifact.take();
        *self = Self {
            artifact,
            ..Self::default()
        };
    }
}

impl Revision {
    /// Returns the entry in `status.history`.
    fn snapshot(&self) -> Value {
        json!({
            "name": "cilium", "namespace": "kube-system", "version": self.number, "status": self.status,
            "chartName": "cilium", "chartVersion": self.chart, "appVersion": self.chart,
            "configDigest": digest(&self.values), "digest": digest(&self.number.to_string()),
            "firstDeployed": "2026-11-26T10:00:00Z", "lastDeployed": "2026-11-26T10:00:00Z",
        })
    }
}

impl Run {
    /// Whether the HelmRelease is the one that the run is about.
    fn is_current(&self, servers: &Servers) -> bool {
        let found = servers.get(&helm_release());
        found.is_some_and(|found| found["metadata"]["uid"] == self.uid)
    }

    fn edit(&self, servers: &mut Servers, edit: impl FnOnce(&mut Value)) {
        if self.is_current(servers) {
            servers.edit(&helm_release(), edit);
        }
    }

    /// Sets the fields of the last attempt.
    fn attempt(&self, release: &mut Value) {
        let status = &mut release["status"];
        status["lastAttemptedGeneration"] = self.generation.clone();
        status["lastAttemptedRevision"] = json!(self.chart);
        status["lastAttemptedConfigDigest"] = digest(&self.values);
    }
}
