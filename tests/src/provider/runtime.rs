//! The controllers of the provider, running.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::error::Error;
use super::kinds::{DockerCluster, HarnessCluster, VSphereCluster};
use super::workload::{Workload, Workloads};
use super::{cluster, config, control_plane, machine};
use crate::stack::StackCore;
use crate::stack::apiserver::ApiServer;
use crate::stack::kubelet::Delays;

/// Requeue interval while a required object is missing that has no watch.
pub(super) const REQUEUE: Duration = Duration::from_millis(200);

/// Shared state of the controllers.
pub(super) struct Context {
    pub(super) core: Arc<StackCore>,
    pub(super) client: Client,
    /// The management API server, which may be the workload cluster's as well.
    pub(super) management: Arc<ApiServer>,
    pub(super) workloads: Workloads,
    pub(super) delays: Delays,
}

impl Context {
    /// Whether the Cluster is paused; a Cluster that is gone is not.
    pub(super) async fn is_paused(&self, namespace: &str, cluster: &str) -> Result<bool, Error> {
        let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster");
        let clusters: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &ApiResource::from_gvk(&kind));
        let cluster = clusters.get_opt(cluster).await?;
        Ok(cluster.is_some_and(|cluster| cluster.data["spec"]["paused"] == true))
    }
}

/// The running provider. Its state lives in memory: it ends with the stack that it serves.
pub struct Provider {
    context: Arc<Context>,
    controllers: Mutex<JoinSet<()>>,
}

impl Provider {
    /// Starts the controllers on the management cluster.
    #[must_use]
    pub fn start(core: &Arc<StackCore>, management: &Arc<ApiServer>) -> Self {
        let context = Arc::new(Context {
            core: core.clone(),
            client: management.admin_client(),
            management: management.clone(),
            workloads: Workloads::default(),
            delays: Delays::default(),
        });
        let controllers = Mutex::new(controllers(&context));
        Self { context, controllers }
    }

    /// Ends the controllers. The workload clusters run on.
    pub async fn stop(&self) {
        self.controllers.lock().await.shutdown().await;
    }

    /// Starts the controllers again after [`Self::stop`]. They list all objects again.
    pub async fn restart(&self) {
        *self.controllers.lock().await = controllers(&self.context);
    }

    /// The workload cluster of a Cluster, once its control plane has been started.
    #[must_use]
    pub fn workload(&self, namespace: &str, cluster: &str) -> Option<Arc<Workload>> {
        self.context.workloads.of_cluster(namespace, cluster)
    }

    /// All workload clusters that run.
    #[must_use]
    pub fn workloads(&self) -> Vec<Arc<Workload>> {
        self.context.workloads.all()
    }

    /// How long Deployments and DaemonSets take to become ready.
    #[must_use]
    pub fn delays(&self) -> &Delays {
        &self.context.delays
    }
}

fn controllers(context: &Arc<Context>) -> JoinSet<()> {
    let mut controllers = JoinSet::new();
    controllers.spawn(run(context.clone(), control_plane::reconcile));
    controllers.spawn(run(context.clone(), cluster::reconcile::<HarnessCluster>));
    controllers.spawn(run(context.clone(), cluster::reconcile::<DockerCluster>));
    controllers.spawn(run(context.clone(), cluster::reconcile::<VSphereCluster>));
    controllers.spawn(run(context.clone(), config::reconcile));
    controllers.spawn(run(context.clone(), machine::reconcile));
    controllers
}

async fn run<K, F>(context: Arc<Context>, reconcile: impl FnMut(Arc<K>, Arc<Context>) -> F)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let objects: Api<K> = Api::all(context.client.clone());
    // The default waits a second before it reconciles the same object again.
    let settings = Config::default().debounce(Duration::ZERO);
    Controller::new(objects, watcher::Config::default())
        .with_config(settings)
        .run(reconcile, retry, context)
        .for_each(|result| async {
            if let Err(error) = result {
                tracing::debug!("provider: {error:#}");
            }
        })
        .await;
}

#[expect(clippy::needless_pass_by_value, reason = "the signature is the Controller's")]
fn retry<K: Resource<DynamicType = ()>>(object: Arc<K>, error: &Error, _: Arc<Context>) -> Action {
    tracing::debug!("{} {}: {error}", K::kind(&()), object.name_any());
    Action::requeue(REQUEUE)
}
