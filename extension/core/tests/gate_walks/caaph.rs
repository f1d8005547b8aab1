//! Model of CAAPH v0.6.4, with its false-ready windows.

use serde_json::{Value, json};
use sluice_crds::labels::annotation::PAUSED;

use crate::{
    addons::{Delivery, apply, observe},
    objects::{TEAM, chart, release},
    servers::Servers,
};

/// Running Helm action. The status is written at its end, with the generation that it began with.
#[derive(Clone, Debug)]
struct Run {
    uid: Value,
    generation: Value,
    version: String,
    /// Whether the version is deployed already.
    is_repeated: bool,
    /// Whether its values can be rendered.
    can_be_rendered: bool,
}

/// CAAPH, and the Helm release in the workload cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caaph {
    /// Version of the chart of the last complete Helm action, if it succeeded.
    deployed: Option<String>,
    run: Option<Run>,
}

/// Whether the object has the annotation that pauses its controller.
fn is_paused(object: &Value) -> bool {
    !object["metadata"]["annotations"][PAUSED].is_null()
}

fn is_installed(release: &Value) -> bool {
    let mut conditions = release["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "HelmReleaseReady" && condition["status"] == "True")
}

/// Returns the HelmReleaseProxy of a HelmChartProxy, without its version.
fn release_of(proxy: &Value) -> Value {
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
        "metadata": {
            "labels": {
                "cluster.x-k8s.io/cluster-name": "one",
                "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name": "cilium",
            },
            "ownerReferences": [{
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cilium",
                "uid": proxy["metadata"]["uid"], "controller": true,
            }],
        },
        "spec": {
            "clusterRef": {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "namespace": TEAM},
        },
    })
}

/// Reconciles the HelmChartProxy once. It stops at values that cannot be parsed for another Cluster, before it comes to this one. Its
/// status observes the generation all the same.
pub(crate) fn reconcile_chart(servers: &mut Servers) {
    let Some(proxy) = servers.get(&chart()).filter(|proxy| !is_paused(proxy)).cloned() else {
        return;
    };
    let spec = &proxy["spec"];
    let reaches_cluster = spec["valuesTemplate"] != "broken for another Cluster";
    if reaches_cluster {
        if servers.get(&release()).is_none() {
            servers.put(release(), release_of(&proxy));
        }
        servers.edit(&release(), |release| {
            release["spec"]["version"] = spec["version"].clone();
            release["spec"]["values"] = spec["valuesTemplate"].clone();
            release["spec"]["reconcileStrategy"] = spec["reconcileStrategy"].clone();
        });
    }
    servers.edit(&chart(), |proxy| {
        observe(proxy);
        let status = if reaches_cluster { "True" } else { "False" };
        proxy["status"]["conditions"] = json!([{"type": "HelmReleaseProxySpecsUpToDate", "status": status}]);
    });
}

impl Caaph {
    /// Returns the version of the chart that is deployed.
    pub(crate) fn deployed(&self) -> Option<&str> {
        self.deployed.as_deref()
    }

    /// Takes a step of the reconcile of the HelmReleaseProxy. One object is never reconciled twice at the same time.
    pub(crate) fn step(&mut self, servers: &mut Servers, step: Delivery) {
        match step {
            Delivery::Begin | Delivery::BeginBehind => {
                if self.run.is_none() {
                    self.begin(servers);
                }
            }
            Delivery::Observe => {
                // CAAPH does so only if the pause arrives during a reconcile.
                if servers.get(&release()).is_some_and(is_paused) {
                    servers.edit(&release(), observe);
                }
            }
            Delivery::Pend => {
                if let Some(run) = &self.run {
                    run.report(servers, Some("pending-upgrade"), "HelmReleasePending");
                }
            }
            Delivery::Kill => self.run = None,
            Delivery::Succeed
            | Delivery::Fail
            | Delivery::FailAgain
            | Delivery::RollBack
            | Delivery::NotRendered => self.end(servers, step),
        }
    }

    /// For an object with `InstallOnce` that was installed, only the deferred patch of the status is made, which advances
    /// `observedGeneration`. A paused object is not reconciled.
    fn begin(&mut self, servers: &mut Servers) {
        let Some(found) = servers.get(&release()).cloned() else {
            return;
        };
        let spec = &found["spec"];
        if is_paused(&found) {
            return;
        }
        if spec["reconcileStrategy"] == "InstallOnce" && is_installed(&found) {
            servers.edit(&release(), observe);
            return;
        }
        let version = spec["version"].as_str().unwrap_or_default().to_owned();
        self.run = Some(Run {
            uid: found["metadata"]["uid"].clone(),
            generation: found["metadata"]["generation"].clone(),
            is_repeated: self.deployed.as_ref() == Some(&version),
            can_be_rendered: spec["values"] != "broken",
            version,
        });
    }

    /// Ends the run. A release whose values cannot be rendered stays `deployed` at its earlier version.
    fn end(&mut self, servers: &mut Servers, end: Delivery) {
        let Some(run) = self.run.take() else { return };
        if !run.can_be_rendered || end == Delivery::NotRendered && !run.is_repeated {
            run.report(servers, None, "HelmInstallOrUpgradeFailed");
        } else if end.fails(run.is_repeated) {
            self.deployed = None;
            apply(servers, &run.version);
            run.report(servers, Some("failed"), "HelmInstallOrUpgradeFailed");
        } else {
            apply(servers, &run.version);
            run.report(servers, Some("deployed"), "Ready");
            self.deployed = Some(run.version);
        }
    }

    /// The HelmReleaseProxy is deleted, and with it the Helm release. Its manifests stay.
    pub(crate) fn uninstall(&mut self, servers: &mut Servers) {
        servers.remove(&release());
        (self.deployed, self.run) = (None, None);
    }
}

impl Run {
    /// Writes the status of the HelmReleaseProxy that the run is about.
    fn report(&self, servers: &mut Servers, helm: Option<&str>, reason: &str) {
        let found = servers.get(&release());
        if found.is_none_or(|found| found["metadata"]["uid"] != self.uid) {
            return;
        }
        let ready = if reason == "Ready" { "True" } else { "False" };
        servers.edit(&release(), |release| {
            let status = &mut release["status"];
            if let Some(helm) = helm {
                status["status"] = json!(helm);
            }
            status["observedGeneration"] = self.generation.clone();
            status["conditions"] = json!([
                {"type": "ClusterAvailable", "status": "True", "reason": "Available"},
                {"type": "HelmReleaseReady", "status": ready, "reason": reason},
                {"type": "Ready", "status": ready, "reason": reason},
            ]);
        });
    }
}
