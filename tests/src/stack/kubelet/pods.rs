//! Pods that are bound to a Node: they are Running and Ready at once, and their deletion is finished at once. Pods of a DaemonSet, which
//! name their Node, are bound to it.
//!
//! Beside real controllers of all kinds of workloads, every Pod is bound to a Node that takes it. It becomes Ready after the delay of its
//! workload. Pods of Jobs succeed or fail then. Containers of [images that fail](super::containers) wait until a delay of the workload is set.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, PodTemplateSpec, Taint, Toleration};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::containers::{self, Failure};
use super::delay::{DELAY_ANNOTATION, Delay, Delays};
use super::kapp_controller;

/// On the Pods of a Job: with `true`, they fail.
pub const FAILS_ANNOTATION: &str = "harness.test/fails";

/// Pause after an error: an API server that is being replaced is away for a second or two. Also the time between two tries to find a
/// Node, and between two checks of a delay, which may change.
const RETRY: Duration = Duration::from_millis(200);

/// How long the Pods of a Cluster take to become Ready.
pub(super) struct Pace {
    namespace: String,
    cluster: String,
    delays: Delays,
    /// Whether kube-scheduler binds Pods to Nodes.
    is_scheduled: bool,
    /// By uid: when a Pod that is not Ready was seen first on its Node.
    began: Mutex<HashMap<String, Instant>>,
}

impl Pace {
    pub(super) fn new(namespace: &str, cluster: &str, delays: Delays) -> Self {
        Self {
            namespace: namespace.to_owned(),
            cluster: cluster.to_owned(),
            delays,
            is_scheduled: false,
            began: Mutex::default(),
        }
    }

    /// Beside kube-scheduler, which binds Pods to Nodes.
    pub(super) fn scheduled(mut self) -> Self {
        self.is_scheduled = true;
        self
    }

    /// Whether the delay of a Pod has passed.
    fn has_passed(&self, pod: &Pod) -> bool {
        let began = self.began(pod);
        match self.delay(pod) {
            Delay::After(delay) => began.elapsed() >= delay,
            Delay::Never => false,
        }
    }

    fn began(&self, pod: &Pod) -> Instant {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        *began
            .entry(pod.uid().unwrap_or_default())
            .or_insert_with(Instant::now)
    }

    fn forget(&self, pod: &Pod) {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        began.remove(&pod.uid().unwrap_or_default());
    }

    fn delay(&self, pod: &Pod) -> Delay {
        self.chosen(pod)
            .or_else(|| pod.annotations().get(DELAY_ANNOTATION)?.parse().ok())
            .unwrap_or(Delay::NONE)
    }

    fn chosen(&self, pod: &Pod) -> Option<Delay> {
        self.delays.get(&self.namespace, &self.cluster, workload(pod)?)
    }

    /// Status of a Pod that runs. Its containers are part of it only beside kube-scheduler.
    fn running(&self, pod: &Pod, is_ready: bool) -> Value {
        let mut status = status("Running", is_ready);
        if self.is_scheduled {
            status["status"]["containerStatuses"] = containers::running(pod, is_ready);
        }
        status
    }

    /// Why the containers of a Pod do not run. A delay that a scenario sets repairs them.
    fn failure(&self, pod: &Pod) -> Option<Failure> {
        Failure::of(pod).filter(|_| self.chosen(pod).is_none())
    }
}

/// The stand-in for the kubelets of all Nodes.
struct Kubelets {
    client: Client,
    /// Where Pods without a Node get one, and become Ready after a delay.
    pace: Option<Pace>,
    /// The process of a Pod of kapp-controller, where Pods have a pace.
    kapp_controller: Arc<kapp_controller::Pod>,
}

/// Does the work of the kubelets of all Nodes, without containers; with `pace`, that of a scheduler too, unless there is one.
pub(super) async fn run(client: Client, pace: Option<Pace>, kapp_controller: Arc<kapp_controller::Pod>) {
    let kubelets = Kubelets {
        client: client.clone(),
        pace,
        kapp_controller,
    };
    let settings = Config::default().debounce(Duration::ZERO);
    Controller::new(Api::<Pod>::all(client), watcher::Config::default())
        .with_config(settings)
        .run(
            reconcile,
            |_, _: &kube::Error, _| Action::requeue(RETRY),
            Arc::new(kubelets),
        )
        .for_each(|result| async {
            if let Err(error) = result {
                tracing::debug!("kubelet: {error:#}");
            }
        })
        .await;
}

async fn reconcile(pod: Arc<Pod>, kubelets: Arc<Kubelets>) -> Result<Action, kube::Error> {
    match kubelets.step(&pod).await {
        // Deleted in the meantime.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Action::await_change()),
        other => other,
    }
}

impl Kubelets {
    async fn step(&self, pod: &Pod) -> Result<Action, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            if let Some(pace) = &self.pace {
                pace.forget(pod);
            }
            pods.delete(&name, &at_once(pod)).await.map(drop)?;
        } else if is_bound(pod) {
            return self.run_on_node(&pods, pod).await;
        } else if self.pace.as_ref().is_some_and(|pace| pace.is_scheduled) {
            return Ok(Action::await_change());
        } else if let Some(node) = node_of_daemon(pod) {
            bind(&pods, &name, node).await?;
        } else if self.pace.is_some() {
            match self.node_for(pod).await? {
                Some(node) => bind(&pods, &name, &node).await?,
                None => return Ok(Action::requeue(RETRY)),
            }
        }
        Ok(Action::await_change())
    }

    /// Writes the next status of a Pod that is bound to a Node.
    async fn run_on_node(&self, pods: &Api<Pod>, pod: &Pod) -> Result<Action, kube::Error> {
        if !is_to_run(pod) && (self.pace.is_none() || !is_starting(pod)) {
            return Ok(Action::await_change());
        }
        if let Some(pace) = &self.pace {
            if let Some(failure) = pace.failure(pod) {
                if !failure.is_reported(pod) {
                    write(pods, pod, failure.status(pod)).await?;
                }
                return Ok(Action::requeue(RETRY));
            }
            if !pace.has_passed(pod) {
                if is_to_run(pod) {
                    write(pods, pod, pace.running(pod, false)).await?;
                }
                return Ok(Action::requeue(RETRY));
            }
            if let Err(error) = self.run_process(pace, pod).await {
                tracing::debug!("kubelet: {error:#}");
                return Ok(Action::requeue(RETRY));
            }
            pace.forget(pod);
        }
        let written = match &self.pace {
            Some(pace) => end(pod).map_or_else(|| pace.running(pod, true), |phase| status(phase, false)),
            None => status("Running", true),
        };
        write(pods, pod, written).await?;
        Ok(Action::await_change())
    }

    /// Runs the process of a Pod of kapp-controller; those of others are no processes.
    async fn run_process(&self, pace: &Pace, pod: &Pod) -> anyhow::Result<()> {
        if workload(pod) != Some(kapp_controller::NAME) {
            return Ok(());
        }
        // One that moves to another Node stays the same process.
        let spec = pod.spec.clone().map(|spec| PodSpec {
            node_name: None,
            ..spec
        });
        let template = PodTemplateSpec { metadata: None, spec };
        let starts_after = pace.delays.of_kapp_controller(&pace.namespace, &pace.cluster);
        self.kapp_controller
            .run(&pod.namespace().unwrap_or_default(), &template, starts_after)
            .await
            .context("run kapp-controller")
    }

    /// A Node that takes the Pod, if there is one: the first by name.
    async fn node_for(&self, pod: &Pod) -> Result<Option<String>, kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = nodes.list(&ListParams::default()).await?;
        let taking = nodes.items.iter().filter(|node| takes(node, pod));
        Ok(taking.map(kube::ResourceExt::name_any).min())
    }
}

async fn write(pods: &Api<Pod>, pod: &Pod, status: Value) -> Result<(), kube::Error> {
    let (params, patch) = (PatchParams::default(), Patch::Strategic(status));
    pods.patch_status(&pod.name_any(), &params, &patch)
        .await
        .map(drop)
}

async fn bind(pods: &Api<Pod>, name: &str, node: &str) -> Result<(), kube::Error> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    pods.create_subresource::<Value, Value>("binding", name, &PostParams::default(), &binding)
        .await
        .map(drop)
}

fn status(phase: &str, is_ready: bool) -> Value {
    let status = if is_ready { "True" } else { "False" };
    // Without reason and message, which a container that waited may have left.
    let condition = |kind: &str| json!({"type": kind, "status": status, "reason": null, "message": null});
    json!({"status": {
        "phase": phase,
        "conditions": [condition("ContainersReady"), condition("Ready")],
    }})
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Whether a Pod on a Node does not run yet.
fn is_to_run(pod: &Pod) -> bool {
    phase(pod).is_none_or(|phase| phase == "Pending")
}

/// Whether a Pod runs and is not Ready yet.
fn is_starting(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    phase(pod) == Some("Running") && !is_ready
}

/// The last phase of a Pod of a Job; none for the Pods of others, which run until they are deleted.
fn end(pod: &Pod) -> Option<&'static str> {
    let owners = pod.owner_references();
    let is_of_job = owners
        .iter()
        .any(|owner| owner.controller == Some(true) && owner.kind == "Job");
    let fails = pod
        .annotations()
        .get(FAILS_ANNOTATION)
        .is_some_and(|fails| fails == "true");
    is_of_job.then_some(if fails { "Failed" } else { "Succeeded" })
}

/// Name of the DaemonSet, Deployment, StatefulSet or Job of a Pod.
fn workload(pod: &Pod) -> Option<&str> {
    let owners = pod.owner_references();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    if owner.kind == "ReplicaSet" {
        // It has the name of its Deployment, and a hash.
        return owner.name.rsplit_once('-').map(|(deployment, _)| deployment);
    }
    Some(&owner.name)
}

/// Whether a Node is ready and has what the Pod selects, and no taint that the Pod does not tolerate.
fn takes(node: &Node, pod: &Pod) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let spec = pod.spec.as_ref();
    let selected = spec.and_then(|spec| spec.node_selector.as_ref());
    let mut selected = selected.into_iter().flatten();
    let is_selected = selected.all(|(label, value)| node.labels().get(label) == Some(value));
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut taints = taints
        .into_iter()
        .flatten()
        .filter(|taint| taint.effect != "PreferNoSchedule");
    let tolerations = spec
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default();
    let is_tolerated = taints.all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    is_ready && is_selected && !is_cordoned && is_tolerated
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let has_effect = toleration
        .effect
        .as_ref()
        .is_none_or(|effect| *effect == taint.effect);
    let has_key = toleration.key.as_ref().is_none_or(|key| *key == taint.key);
    let exists = toleration.operator.as_deref() == Some("Exists");
    let is_equal =
        toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    has_effect && has_key && (exists || toleration.key.is_some() && is_equal)
}

/// The Node that a Pod without one is meant for: the DaemonSet controller names it in the affinity of its Pods.
fn node_of_daemon(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref().filter(|spec| spec.node_name.is_none())?;
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let fields = required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name");
    names.next()?.values.as_ref()?.first().map(String::as_str)
}

/// The end of the deletion of this very Pod, as a kubelet requests it after the last container.
fn at_once(pod: &Pod) -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            ..Preconditions::default()
        }),
        ..DeleteParams::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: Option<&str>, field: &str) -> Pod {
        let terms = json!([{"matchFields": [{"key": field, "operator": "In", "values": ["worker"]}]}]);
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        serde_json::from_value(json!({
            "spec": {"containers": [], "nodeName": node, "affinity": {"nodeAffinity": required}},
        }))
        .unwrap()
    }

    /// A Pod that this workload controls, with annotations.
    fn owned(kind: &str, name: &str, annotations: &Value) -> Pod {
        let owner = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": "a", "controller": true});
        serde_json::from_value(json!({
            "metadata": {"uid": "b", "annotations": annotations, "ownerReferences": [owner]},
            "spec": {"containers": [], "nodeName": "worker"},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_of_a_daemon_set_names_its_node_until_it_is_bound() {
        assert_eq!(node_of_daemon(&pod(None, "metadata.name")), Some("worker"));
        assert_eq!(node_of_daemon(&pod(Some("worker"), "metadata.name")), None);
        assert_eq!(node_of_daemon(&pod(None, "metadata.namespace")), None);
        assert_eq!(node_of_daemon(&Pod::default()), None);
    }

    #[test]
    fn only_pods_of_jobs_end() {
        let none = json!({});
        assert_eq!(end(&owned("Job", "backup", &none)), Some("Succeeded"));
        let fails = json!({FAILS_ANNOTATION: "true"});
        assert_eq!(end(&owned("Job", "backup", &fails)), Some("Failed"));
        assert_eq!(end(&owned("DaemonSet", "cni", &fails)), None);
        assert_eq!(end(&Pod::default()), None);
    }

    #[test]
    fn the_delay_of_a_pod_is_that_of_its_workload() {
        let delays = Delays::default();
        let pace = Pace::new("a", "one", delays.clone());
        let annotations = json!({DELAY_ANNOTATION: "5s"});
        let pods = [
            owned("DaemonSet", "cni", &annotations),
            owned("ReplicaSet", "cni-6b5d", &annotations),
        ];
        for pod in &pods {
            assert_eq!(pace.delay(pod), Delay::seconds(5));
            assert!(!pace.has_passed(pod));
        }
        delays.set("a", "one", "cni", Delay::NONE);
        for pod in &pods {
            assert!(pace.has_passed(pod), "{pod:?}");
        }
        assert!(pace.has_passed(&Pod::default()));
    }

    #[test]
    fn a_delay_that_is_set_repairs_an_image() {
        let delays = Delays::default();
        let pace = Pace::new("a", "one", delays.clone()).scheduled();
        let mut pod = owned("ReplicaSet", "cni-6b5d", &json!({}));
        assert_eq!(pace.failure(&pod), None);
        let containers = json!([{"name": "cni", "image": format!("{}cni:1", containers::MISSING)}]);
        pod.spec.as_mut().unwrap().containers = serde_json::from_value(containers).unwrap();
        assert_eq!(pace.failure(&pod), Some(Failure::Missing));
        delays.set("a", "one", "cni", Delay::NONE);
        assert_eq!(pace.failure(&pod), None);
        let status = pace.running(&pod, true);
        assert_eq!(status["status"]["containerStatuses"][0]["ready"], true);
    }

    #[test]
    fn a_pod_starts_until_it_is_ready() {
        let with = |phase: &str, is_ready: bool| {
            let mut pod = owned("DaemonSet", "cni", &json!({}));
            pod.status = serde_json::from_value(status(phase, is_ready)["status"].clone()).unwrap();
            pod
        };
        assert!(is_to_run(&owned("DaemonSet", "cni", &json!({}))));
        assert!(is_to_run(&with("Pending", false)));
        assert!(is_starting(&with("Running", false)));
        assert!(!is_starting(&with("Running", true)));
        assert!(!is_starting(&with("Succeeded", false)) && !is_to_run(&with("Succeeded", false)));
    }

    #[test]
    fn a_node_takes_pods_that_tolerate_its_taints() {
        let node = |taints: Value, labels: Value| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": "worker", "labels": labels},
                "spec": {"taints": taints},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .unwrap()
        };
        let pod = |tolerations: Value, selector: Value| -> Pod {
            let spec = json!({"containers": [], "tolerations": tolerations, "nodeSelector": selector});
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        let tainted = node(
            json!([{"key": "a", "value": "b", "effect": "NoSchedule"}]),
            json!({}),
        );
        assert!(!takes(&tainted, &pod(json!([]), json!({}))));
        assert!(takes(&tainted, &pod(json!([{"operator": "Exists"}]), json!({}))));
        assert!(takes(
            &tainted,
            &pod(json!([{"key": "a", "value": "b"}]), json!({}))
        ));
        assert!(!takes(
            &tainted,
            &pod(json!([{"key": "a", "value": "c"}]), json!({}))
        ));
        let labelled = node(json!([]), json!({"pool": "x"}));
        assert!(takes(&labelled, &pod(json!([]), json!({"pool": "x"}))));
        assert!(!takes(&labelled, &pod(json!([]), json!({"pool": "y"}))));
        assert!(!takes(&Node::default(), &Pod::default()));
    }
}
