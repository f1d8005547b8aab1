//! The loop of the stand-in, one for each kind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::delay::{DELAY_ANNOTATION, Delay, Delays};
use super::kapp_controller::{self, Pod, RunningProcess};
use super::pods::{self, Pace};
use super::workload_kind::{WorkloadKind, node_selector};
use crate::stack::StackCore;
use crate::stack::apiserver::ApiServer;

/// Pause after an error: an API server that is being replaced is away for a second or two.
const RETRY: Duration = Duration::from_millis(100);

/// The stand-in for the kubelets of one workload cluster.
pub struct Kubelet {
    node: Arc<Node>,
    loops: Mutex<JoinSet<()>>,
}

/// What the stand-in rolls out. A real controller rolls out the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rollouts {
    /// Deployments and DaemonSets.
    All,
    /// Deployments, beside a real DaemonSet controller.
    Deployments,
    /// DaemonSets, beside a real Deployment controller. No Pod runs.
    DaemonSets,
    /// Nothing, beside the real controllers of all kinds. Every Pod is bound to a Node and runs.
    None,
    /// Nothing, beside the real controllers of all kinds and kube-scheduler. Every Pod that is bound to a Node runs.
    Scheduled,
}

/// How soon it is noticed that a process has ended.
const ALIVE: Duration = Duration::from_secs(1);

/// Shared state of the loops.
struct Node {
    api: Arc<ApiServer>,
    namespace: String,
    cluster: String,
    delays: Delays,
    rollouts: Rollouts,
    kapp_controller: Arc<Pod>,
}

/// A rollout that waits for its time.
struct Rollout<K> {
    object: K,
    began: Instant,
}

impl Kubelet {
    /// Starts watching `api`, the API server of Cluster `namespace`/`cluster`.
    #[must_use]
    pub fn start(
        core: &Arc<StackCore>,
        api: &Arc<ApiServer>,
        namespace: &str,
        cluster: &str,
        delays: Delays,
        rollouts: Rollouts,
    ) -> Self {
        let node = Arc::new(Node {
            api: api.clone(),
            namespace: namespace.to_owned(),
            cluster: cluster.to_owned(),
            delays,
            rollouts,
            kapp_controller: Arc::new(Pod::new(core, api, namespace, cluster)),
        });
        let loops = Mutex::new(node.loops());
        Self { node, loops }
    }

    /// Restarts kapp-controller, which then reconciles every App again. False if it does not run.
    pub async fn restart_kapp_controller(&self) -> Result<bool> {
        self.node.kapp_controller.restart().await
    }

    /// The process of kapp-controller, while one runs.
    pub async fn kapp_controller(&self) -> Option<RunningProcess> {
        self.node.kapp_controller.process().await
    }

    /// Ends kapp-controller, until its Deployment rolls out again.
    pub async fn end_kapp_controller(&self) -> Result<()> {
        self.node.kapp_controller.stop().await
    }

    /// Ends the loops and the processes.
    pub async fn stop(&self) -> Result<()> {
        self.loops.lock().await.shutdown().await;
        self.node.kapp_controller.stop().await
    }

    /// Starts loops and processes again after [`Self::stop`], by what the API server says now: it may have gone back meanwhile.
    pub async fn restart(&self) -> Result<()> {
        self.node.run_ready().await?;
        *self.loops.lock().await = self.node.loops();
        Ok(())
    }
}

impl Node {
    fn loops(self: &Arc<Self>) -> JoinSet<()> {
        let mut loops = JoinSet::new();
        if matches!(self.rollouts, Rollouts::All | Rollouts::DaemonSets) {
            loops.spawn(self.clone().run::<DaemonSet>());
        }
        if matches!(self.rollouts, Rollouts::All | Rollouts::Deployments) {
            loops.spawn(self.clone().run::<Deployment>());
            loops.spawn(self.clone().keep_alive());
            loops.spawn(pods::run(
                self.api.admin_client(),
                None,
                self.kapp_controller.clone(),
            ));
        }
        if matches!(self.rollouts, Rollouts::None | Rollouts::Scheduled) {
            let pace = Pace::new(&self.namespace, &self.cluster, self.delays.clone());
            let pace = if self.rollouts == Rollouts::Scheduled {
                pace.scheduled()
            } else {
                pace
            };
            loops.spawn(self.clone().keep_alive());
            loops.spawn(pods::run(
                self.api.admin_client(),
                Some(pace),
                self.kapp_controller.clone(),
            ));
        }
        loops
    }

    /// Runs the pods of kapp-controller if its Deployment is ready: a loop runs them only when it rolls out.
    async fn run_ready(&self) -> Result<()> {
        let named = ListParams::default().fields(&format!("metadata.name={}", kapp_controller::NAME));
        let deployments = Api::<Deployment>::all(self.api.admin_client());
        let found = deployments.list(&named).await.context("list Deployments")?;
        match found.items.iter().find(|deployment| deployment.is_ready()) {
            Some(deployment) => self.run_pods(deployment).await,
            None => Ok(()),
        }
    }

    async fn keep_alive(self: Arc<Self>) {
        let mut tick = tokio::time::interval(ALIVE);
        loop {
            tick.tick().await;
            if let Err(error) = self.kapp_controller.keep_alive().await {
                tracing::debug!(
                    "kapp-controller of {}/{}: {error:#}",
                    self.namespace,
                    self.cluster
                );
            }
        }
    }

    async fn run<K: WorkloadKind>(self: Arc<Self>) {
        let mut waiting: HashMap<String, Rollout<K>> = HashMap::new();
        let mut changes = self.delays.changes();
        let events = watcher(Api::<K>::all(self.api.admin_client()), watcher::Config::default());
        let mut events = std::pin::pin!(events);
        loop {
            let next = self.next_due(&waiting);
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Apply(object) | Event::InitApply(object))) => self.observe(&mut waiting, object).await,
                    Some(Ok(Event::Delete(object))) => drop(waiting.remove(&key(&object))),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!("kubelet of {}/{}: {error}", self.namespace, self.cluster);
                        tokio::time::sleep(RETRY).await;
                    }
                    None => return,
                },
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    self.finish_due(&mut waiting).await;
                }
                _ = changes.changed() => {}
            }
        }
    }

    /// A new generation begins to roll out; the status shows it at once, like that of a Deployment controller.
    async fn observe<K: WorkloadKind>(&self, waiting: &mut HashMap<String, Rollout<K>>, object: K) {
        if object.is_ready() {
            waiting.remove(&key(&object));
            return;
        }
        let key = key(&object);
        let known = waiting
            .get(&key)
            .is_some_and(|rollout| rollout.object.meta().generation == object.meta().generation);
        if known {
            return;
        }
        // One with a selector may wait for a Node.
        let may_wait = self.delay(&object) != Delay::NONE || node_selector(&object).is_some();
        if may_wait && let Err(error) = self.write(&object, object.rolling()).await {
            tracing::debug!("{key}: {error:#}");
        }
        let began = Instant::now();
        waiting.insert(key, Rollout { object, began });
    }

    fn next_due<K: WorkloadKind>(&self, waiting: &HashMap<String, Rollout<K>>) -> Option<Instant> {
        waiting.values().filter_map(|rollout| self.due(rollout)).min()
    }

    fn due<K: WorkloadKind>(&self, rollout: &Rollout<K>) -> Option<Instant> {
        match self.delay(&rollout.object) {
            Delay::After(delay) => Some(rollout.began + delay),
            Delay::Never => None,
        }
    }

    async fn finish_due<K: WorkloadKind>(&self, waiting: &mut HashMap<String, Rollout<K>>) {
        let now = Instant::now();
        let due: Vec<String> = waiting
            .iter()
            .filter(|(_, rollout)| self.due(rollout).is_some_and(|due| due <= now))
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            let Some(rollout) = waiting.remove(&key) else {
                continue;
            };
            if let Err(error) = self.finish(&rollout.object).await {
                tracing::debug!("{key}: {error:#}");
                tokio::time::sleep(RETRY).await;
                waiting.insert(key, rollout);
            }
        }
    }

    async fn finish<K: WorkloadKind>(&self, object: &K) -> Result<()> {
        self.has_node(object).await?;
        self.run_pods(object).await?;
        self.write(object, object.ready()).await
    }

    /// Fails unless a Node has the labels that the pods select, which is tried again.
    async fn has_node<K: WorkloadKind>(&self, object: &K) -> Result<()> {
        let Some(selector) = node_selector(object) else {
            return Ok(());
        };
        let nodes: Api<NodeObject> = Api::all(self.api.admin_client());
        let found = nodes.list(&ListParams::default().labels(&selector)).await;
        let found = found.context("list Nodes")?;
        ensure!(!found.items.is_empty(), "no Node has the labels {selector}");
        Ok(())
    }

    /// Runs the pods of kapp-controller; those of others are no processes.
    async fn run_pods<K: WorkloadKind>(&self, object: &K) -> Result<()> {
        if object.name_any() == kapp_controller::NAME
            && let Some(template) = object.pods()
        {
            let starts_after = self.delays.of_kapp_controller(&self.namespace, &self.cluster);
            self.kapp_controller
                .run(&object.namespace().unwrap_or_default(), template, starts_after)
                .await
                .context("run kapp-controller")?;
        }
        Ok(())
    }

    async fn write<K: WorkloadKind>(&self, object: &K, status: Value) -> Result<()> {
        let api: Api<K> = Api::namespaced(self.api.admin_client(), &object.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({"status": status}));
        match api
            .patch_status(&object.name_any(), &PatchParams::default(), &patch)
            .await
        {
            // Deleted in the meantime.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    fn delay<K: WorkloadKind>(&self, object: &K) -> Delay {
        self.chosen_delay(&object.name_any())
            .or_else(|| object.annotations().get(DELAY_ANNOTATION)?.parse().ok())
            .unwrap_or(Delay::NONE)
    }

    fn chosen_delay(&self, name: &str) -> Option<Delay> {
        self.delays.get(&self.namespace, &self.cluster, name)
    }
}

fn key<K: WorkloadKind>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
