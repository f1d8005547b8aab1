//! Models of CAAPH v0.6.4 and of the DaemonSet controller, with their false-ready windows, and the state of the workload cluster that no
//! status shows.

use serde_json::{Value, json};
use sluice_crds::labels::annotation::PAUSED;

use crate::{
    objects::{CHARTS, TEAM, agent, chart, release},
    servers::Servers,
};

/// Number of Nodes.
pub(crate) const NODES: usize = 3;

/// Step of the reconcile of the HelmReleaseProxy. The status is written at the end of a Helm run, with the generation that it began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helm {
    /// A run begins. For an object with `InstallOnce` that was installed, only the deferred patch of the status is made, which advances
    /// `observedGeneration`. A paused object is not reconciled.
    Begin,
    /// The deferred patch of the status is made for a paused object. CAAPH does so only if the pause arrives during a reconcile; Flux
    /// always does.
    Observe,
    /// The run shows as pending: an earlier process was interrupted.
    Pend,
    /// The run succeeds.
    Succeed,
    /// The run fails, after the manifests were applied. One that repeats a success does not.
    Fail,
    /// The run fails in any case.
    FailAgain,
    /// The manifests cannot be rendered. The Helm release stays `deployed` at its earlier version.
    NotRendered,
}

/// Running Helm action.
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

/// Pod of the DaemonSet.
#[derive(Clone, Debug)]
struct Pod {
    owner: Value,
    image: Value,
    is_available: bool,
}

/// Controllers of the add-on, and the state of the workload cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addons {
    /// Version of the chart of the last complete Helm action, if it succeeded.
    deployed: Option<String>,
    run: Option<Run>,
    pods: [Option<Pod>; NODES],
}

/// Whether the object has the annotation that pauses its controller.
fn is_paused(object: &Value) -> bool {
    !object["metadata"]["annotations"][PAUSED].is_null()
}

fn is_installed(release: &Value) -> bool {
    let mut conditions = release["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "HelmReleaseReady" && condition["status"] == "True")
}

/// Notes the generation of an object as observed.
fn observe(object: &mut Value) {
    object["status"]["observedGeneration"] = object["metadata"]["generation"].clone();
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

/// Installs the manifests of a version of the chart, or updates them.
pub(crate) fn apply(servers: &mut Servers, version: &str) {
    if servers.get(&agent()).is_none() {
        let containers = json!([{"name": "agent", "image": ""}]);
        let set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {},
            "spec": {"updateStrategy": {"type": "RollingUpdate"}, "template": {"spec": {"containers": containers}}},
        });
        servers.put(agent(), set);
    }
    let image = json!(format!("example.com/cilium:v{version}"));
    servers.edit(&agent(), |set| {
        set["spec"]["template"]["spec"]["containers"][0]["image"] = image;
    });
}

/// Returns UID and image of the DaemonSet.
fn agent_of(servers: &Servers) -> Option<(&Value, &Value)> {
    let set = servers.get(&agent())?;
    let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
    Some((&set["metadata"]["uid"], image))
}

impl Addons {
    /// Returns the version of the chart that is deployed.
    pub(crate) fn deployed(&self) -> Option<&str> {
        self.deployed.as_deref()
    }

    /// Returns the version of the image that runs on every Node.
    pub(crate) fn running<'a>(&'a self, servers: &Servers) -> Option<&'a str> {
        let (uid, _) = agent_of(servers)?;
        let first = &self.pods[0].as_ref()?.image;
        let mut pods = self.pods.iter().flatten();
        let is_right = |pod: &Pod| pod.owner == *uid && pod.image == *first && pod.is_available;
        let runs = self.pods.iter().all(Option::is_some) && pods.all(is_right);
        let (_, version) = first.as_str()?.split_once(':')?;
        runs.then_some(version)
    }

    /// Takes a step of the reconcile of the HelmReleaseProxy. One object is never reconciled twice at the same time.
    pub(crate) fn helm(&mut self, servers: &mut Servers, step: Helm) {
        match step {
            Helm::Begin if self.run.is_none() => self.begin(servers),
            Helm::Begin => {}
            Helm::Observe => {
                if servers.get(&release()).is_some_and(is_paused) {
                    servers.edit(&release(), observe);
                }
            }
            Helm::Pend => {
                if let Some(run) = &self.run {
                    run.report(servers, Some("pending-upgrade"), "HelmReleasePending");
                }
            }
            Helm::Succeed | Helm::Fail | Helm::FailAgain | Helm::NotRendered => self.end(servers, step),
        }
    }

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

    fn end(&mut self, servers: &mut Servers, end: Helm) {
        let Some(run) = self.run.take() else { return };
        let fails = end == Helm::FailAgain || end == Helm::Fail && !run.is_repeated;
        if !run.can_be_rendered || end == Helm::NotRendered && !run.is_repeated {
            run.report(servers, None, "HelmInstallOrUpgradeFailed");
        } else if fails {
            self.deployed = None;
            apply(servers, &run.version);
            run.report(servers, Some("failed"), "HelmInstallOrUpgradeFailed");
        } else {
            apply(servers, &run.version);
            run.report(servers, Some("deployed"), "Ready");
            self.deployed = Some(run.version);
        }
    }

    /// CAAPH delivers what the HelmChartProxy wants, as far as it can.
    pub(crate) fn deliver(&mut self, servers: &mut Servers) {
        reconcile_chart(servers);
        self.helm(servers, Helm::Succeed);
        self.helm(servers, Helm::Begin);
        self.helm(servers, Helm::Succeed);
    }

    /// The HelmReleaseProxy is deleted, and with it the Helm release. Its manifests stay.
    pub(crate) fn uninstall(&mut self, servers: &mut Servers) {
        servers.remove(&release());
        (self.deployed, self.run) = (None, None);
    }

    /// The DaemonSet is deleted, and with it its Pods.
    pub(crate) fn delete_agent(&mut self, servers: &mut Servers) {
        servers.remove(&agent());
        self.pods = Default::default();
    }

    /// The Pod of a Node is deleted.
    pub(crate) fn delete_pod(&mut self, node: usize) {
        self.pods[node] = None;
    }

    /// The DaemonSet controller replaces an outdated Pod. With `OnDelete` it only creates missing ones.
    pub(crate) fn replace_pod(&mut self, servers: &Servers, node: usize) {
        let Some((uid, image)) = agent_of(servers) else {
            return;
        };
        let on_delete = servers
            .get(&agent())
            .is_some_and(|set| set["spec"]["updateStrategy"]["type"] == "OnDelete");
        let is_kept = |pod: &Pod| pod.owner == *uid && (on_delete || pod.image == *image);
        if !self.pods[node].as_ref().is_some_and(is_kept) {
            self.pods[node] = Some(Pod {
                owner: uid.clone(),
                image: image.clone(),
                is_available: false,
            });
        }
    }

    /// The Pod of a Node becomes available, or fails.
    pub(crate) fn set_available(&mut self, node: usize, is_available: bool) {
        if let Some(pod) = &mut self.pods[node] {
            pod.is_available = is_available;
        }
    }

    /// The DaemonSet controller counts the Pods.
    pub(crate) fn count(&self, servers: &mut Servers) {
        let Some((uid, image)) = agent_of(servers) else {
            return;
        };
        let mine: Vec<&Pod> = self
            .pods
            .iter()
            .flatten()
            .filter(|pod| pod.owner == *uid)
            .collect();
        let updated = mine.iter().filter(|pod| pod.image == *image).count();
        let available = mine.iter().filter(|pod| pod.is_available).count();
        servers.edit(&agent(), |set| {
            observe(set);
            set["status"]["desiredNumberScheduled"] = json!(NODES);
            set["status"]["updatedNumberScheduled"] = json!(updated);
            set["status"]["numberAvailable"] = json!(available);
        });
    }

    /// The DaemonSet controller rolls the DaemonSet out.
    pub(crate) fn roll_out(&mut self, servers: &mut Servers) {
        for node in 0..NODES {
            self.replace_pod(servers, node);
            self.set_available(node, true);
        }
        self.count(servers);
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

/// Returns the index of the version of the chart that the HelmChartProxy wants.
pub(crate) fn wanted(servers: &Servers) -> usize {
    let wanted = servers.get(&chart()).map(|proxy| &proxy["spec"]["version"]);
    let index = wanted.and_then(|wanted| CHARTS.iter().position(|version| wanted == version));
    index.unwrap_or_default()
}
