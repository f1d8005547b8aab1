//! Models of the DaemonSet controller and of the system that delivers the add-on, and the state of the workload cluster that no status
//! shows.

use serde_json::{Value, json};

use crate::{
    caaph::{Caaph, reconcile_chart},
    helm_controller::HelmController,
    kustomize_controller::KustomizeController,
    objects::{CHARTS, Setup, System, agent, backend},
    servers::Servers,
};

/// Number of Nodes.
pub(crate) const NODES: usize = 3;

/// Step of the controller that delivers the add-on: CAAPH with a HelmReleaseProxy, helm-controller with a HelmRelease, or
/// kustomize-controller with a Kustomization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A run begins. A suspended or paused object has none.
    Begin,
    /// The same, by a cache that shows the source as it was before.
    BeginBehind,
    /// The controller observes a suspended or paused object.
    Observe,
    /// The run shows as pending.
    Pend,
    /// The run succeeds.
    Succeed,
    /// The run fails, after the manifests were applied. One that repeats a success does not.
    Fail,
    /// The run fails in any case.
    FailAgain,
    /// The run fails, and the earlier version is deployed again. A system without rollbacks leaves the failure.
    RollBack,
    /// The manifests cannot be rendered. The earlier version stays.
    NotRendered,
    /// The process is killed.
    Kill,
}

impl Delivery {
    /// Whether the run fails that this step ends.
    pub(crate) fn fails(self, is_repeated: bool) -> bool {
        self == Self::FailAgain || matches!(self, Self::Fail | Self::RollBack) && !is_repeated
    }
}

/// Controllers of the system that delivers the add-on.
#[derive(Clone, Debug)]
enum Controller {
    Caaph(Caaph),
    Helm(HelmController),
    Kustomize(KustomizeController),
}

/// Pod of the DaemonSet.
#[derive(Clone, Debug)]
struct Pod {
    owner: Value,
    image: Value,
    is_available: bool,
}

/// Controllers of the add-on, and the state of the workload cluster.
#[derive(Clone, Debug)]
pub(crate) struct Addons {
    controller: Controller,
    pods: [Option<Pod>; NODES],
}

/// Notes the generation of an object as observed.
pub(crate) fn observe(object: &mut Value) {
    object["status"]["observedGeneration"] = object["metadata"]["generation"].clone();
}

/// The controller of the Backend reports the version that it wants, which runs.
pub(crate) fn report_backend(servers: &mut Servers) {
    servers.edit(&backend(), |backend| {
        backend["status"]["version"] = backend["spec"]["version"].clone();
        observe(backend);
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
    /// Returns the controllers of a system before their first reconcile, and an empty workload cluster.
    pub(crate) fn of(setup: Setup) -> Self {
        let controller = match setup.system {
            System::Caaph => Controller::Caaph(Caaph::default()),
            System::HelmRelease => Controller::Helm(HelmController::default()),
            System::Kustomization => Controller::Kustomize(KustomizeController::default()),
        };
        Self {
            controller,
            pods: Default::default(),
        }
    }

    /// Returns the version of the content that is deployed.
    pub(crate) fn deployed(&self, servers: &Servers) -> Option<&str> {
        match &self.controller {
            Controller::Caaph(caaph) => caaph.deployed(),
            Controller::Helm(helm) => helm.deployed(),
            Controller::Kustomize(kustomize) => kustomize.deployed(servers),
        }
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

    /// The controller of the object that names the version reconciles it: CAAPH the HelmChartProxy, source-controller the chart or the
    /// GitRepository.
    pub(crate) fn source(&mut self, servers: &mut Servers) {
        match &mut self.controller {
            Controller::Caaph(_) => reconcile_chart(servers),
            Controller::Helm(helm) => helm.fetch(servers),
            Controller::Kustomize(kustomize) => kustomize.fetch(servers),
        }
    }

    /// The controller that delivers takes a step.
    pub(crate) fn delivery(&mut self, servers: &mut Servers, step: Delivery) {
        match &mut self.controller {
            Controller::Caaph(caaph) => caaph.step(servers, step),
            Controller::Helm(helm) => helm.step(servers, step),
            Controller::Kustomize(kustomize) => kustomize.step(servers, step),
        }
    }

    /// The system delivers what its objects want, as far as it can.
    pub(crate) fn deliver(&mut self, servers: &mut Servers) {
        self.source(servers);
        for step in [Delivery::Succeed, Delivery::Begin, Delivery::Succeed] {
            self.delivery(servers, step);
        }
    }

    /// A user pushes a commit to the repository of manifests. Charts have versions of their own.
    pub(crate) fn commit(&mut self) {
        if let Controller::Kustomize(kustomize) = &mut self.controller {
            kustomize.commit();
        }
    }

    /// The delivered object is deleted. Its manifests stay.
    pub(crate) fn uninstall(&mut self, servers: &mut Servers) {
        match &mut self.controller {
            Controller::Caaph(caaph) => caaph.uninstall(servers),
            Controller::Helm(helm) => helm.uninstall(servers),
            Controller::Kustomize(kustomize) => kustomize.uninstall(servers),
        }
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

/// Returns the index of the version that the objects of the system want.
pub(crate) fn wanted(servers: &Servers, system: System) -> usize {
    let (place, pointer) = system.wants();
    let wanted = servers.get(&place).and_then(|object| object.pointer(pointer));
    let index = wanted.and_then(|wanted| CHARTS.iter().position(|version| wanted == version));
    index.unwrap_or_default()
}
