//! The management plane, started as a whole, and the API servers of workload clusters.

pub mod apiserver;
pub mod audit;
pub mod caaph;
pub mod capi;
pub mod charts;
pub mod complaints;
pub mod controller_manager;
pub mod etcd;
pub mod flux;
pub mod git;
pub mod kapp_controller;
pub mod kubelet;
pub mod manifests;
pub mod pki;
pub mod scheduler;
mod webhooks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::components::{Binaries, ClusterApiRelease, MANAGEMENT_VERSION};
use crate::processes::run_directory::RunDirectory;
use crate::requests::apply;
use crate::stack::apiserver::ApiServer;
use crate::stack::audit::Audited;
use crate::stack::capi::ClusterApi;
use crate::stack::complaints::Complaints;
use crate::stack::controller_manager::ControllerManager;
use crate::stack::etcd::Etcd;
use crate::stack::kapp_controller::{KappController, Settings};

/// Sluice's own namespace on the management cluster, also the one whose packages every namespace sees.
pub const SYSTEM_NAMESPACE: &str = "tkg-system";

/// What every API server of a stack shares: programs, directory, etcd.
#[derive(Debug)]
pub struct StackCore {
    binaries: Arc<Binaries>,
    etcd: Etcd,
    /// Users whose requests API servers write down; none are written down where it is absent.
    audited: Option<Audited>,
    /// Whether API servers store built-in kinds as JSON.
    stores_json: bool,
    // Last, so that the processes above are killed before the directory is removed.
    directory: Arc<RunDirectory>,
}

impl StackCore {
    /// Builds missing components, creates a directory and starts etcd. `name` is part of the names of kept logs.
    pub async fn start(name: &str) -> Result<Arc<Self>> {
        Self::start_with(name, None, false).await
    }

    /// [`Self::start`] with API servers that write down the requests of these users, and with built-in kinds that are stored as JSON.
    pub async fn start_with(name: &str, audited: Option<Audited>, stores_json: bool) -> Result<Arc<Self>> {
        let binaries = Binaries::ready().await?;
        let directory = Arc::new(RunDirectory::create(name)?);
        let etcd = Etcd::start(&binaries, &directory).await?;
        Ok(Arc::new(Self {
            binaries,
            etcd,
            audited,
            stores_json,
            directory,
        }))
    }

    /// The programs.
    #[must_use]
    pub fn binaries(&self) -> &Arc<Binaries> {
        &self.binaries
    }

    /// The stack's directory.
    #[must_use]
    pub fn directory(&self) -> &Arc<RunDirectory> {
        &self.directory
    }

    /// Users whose requests API servers write down.
    #[must_use]
    pub fn audited(&self) -> Option<&Audited> {
        self.audited.as_ref()
    }

    /// Whether API servers store built-in kinds as JSON, as they store custom resources.
    #[must_use]
    pub fn stores_json(&self) -> bool {
        self.stores_json
    }

    /// The one etcd.
    #[must_use]
    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }
}

/// Options of a stack.
#[derive(Debug, Clone)]
pub struct Options {
    name: String,
    crds: Vec<Value>,
    audited: Option<Audited>,
    cluster_api: ClusterApiRelease,
    packages: bool,
    stores_json: bool,
}

impl Options {
    /// A stack whose kept logs carry `name`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            crds: Vec::new(),
            audited: None,
            cluster_api: ClusterApiRelease::default(),
            packages: true,
            stores_json: false,
        }
    }

    /// Without kapp-controller and the kinds of packages. Built-in kinds are stored as JSON.
    #[must_use]
    pub fn without_packages(mut self) -> Self {
        self.packages = false;
        self.stores_json()
    }

    /// Whether there is a kapp-controller.
    #[must_use]
    pub fn has_packages(&self) -> bool {
        self.packages
    }

    /// API servers that store built-in kinds as JSON, so that the observer reads Deployments, DaemonSets, StatefulSets, Jobs and Pods.
    #[must_use]
    pub fn stores_json(mut self) -> Self {
        self.stores_json = true;
        self
    }

    /// With this release of Cluster API.
    #[must_use]
    pub fn cluster_api(mut self, release: ClusterApiRelease) -> Self {
        self.cluster_api = release;
        self
    }

    /// The release of Cluster API.
    #[must_use]
    pub fn release(&self) -> ClusterApiRelease {
        self.cluster_api
    }

    /// API servers that write down the requests of these users, those of workload clusters too.
    #[must_use]
    pub fn audited(mut self, audited: Audited) -> Self {
        self.audited = Some(audited);
        self
    }

    /// CustomResourceDefinitions that are there before Cluster API starts, as those of its providers are.
    #[must_use]
    pub fn crds(mut self, definitions: impl IntoIterator<Item = Value>) -> Self {
        self.crds.extend(definitions);
        self
    }
}

/// A management plane: etcd, kube-apiserver, kube-controller-manager, Cluster API, and kapp-controller where there are packages.
pub struct Stack {
    // First, so that it is not started again while the others end.
    kapp_controller: Option<Kept>,
    core: Arc<StackCore>,
    management: Arc<ApiServer>,
    cluster_api: ClusterApi,
    controller_manager: ControllerManager,
    started_in: Duration,
}

/// A kapp-controller with the task that starts it again where it ends by itself.
struct Kept {
    controller: Arc<KappController>,
    keeper: AbortHandle,
}

impl Kept {
    async fn start(core: &Arc<StackCore>, management: &ApiServer) -> Result<Self> {
        let settings = Settings {
            kept_alive: true,
            ..Settings::new("kapp-controller", SYSTEM_NAMESPACE)
        };
        let controller = Arc::new(KappController::start(core, management, settings).await?);
        let kept = Arc::clone(&controller);
        Ok(Self {
            controller,
            keeper: tokio::spawn(async move { kept.keep_alive().await }).abort_handle(),
        })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Stack {
    /// Starts everything and waits until all of it is ready. When that fails, the error names the kept logs.
    pub async fn start(options: Options) -> Result<Self> {
        let Options {
            name,
            crds,
            audited,
            cluster_api,
            packages,
            stores_json,
        } = options;
        // Not in the measured time: the first call on a machine builds for minutes.
        Binaries::ready().await?;
        let began = Instant::now();
        let core = StackCore::start_with(&name, audited, stores_json).await?;
        match Self::start_on(core.clone(), &crds, cluster_api, packages, began).await {
            Ok(stack) => Ok(stack),
            Err(error) => {
                let kept = core.directory().keep_logs(&name);
                core.directory().close().await?;
                Err(error.context(format!(
                    "start the stack (its logs are kept in {})",
                    kept.display()
                )))
            }
        }
    }

    async fn start_on(
        core: Arc<StackCore>,
        crds: &[Value],
        release: ClusterApiRelease,
        packages: bool,
        began: Instant,
    ) -> Result<Self> {
        let version = core.binaries().kubernetes_version(MANAGEMENT_VERSION);
        let management = Arc::new(ApiServer::start(&core, "mgmt", &version).await?);
        let client = management.admin_client();
        let (controller_manager, cluster_api, kapp_controller) = tokio::try_join!(
            ControllerManager::start(&core, &management),
            async {
                apply::apply_crds(&client, crds).await?;
                ClusterApi::start(&core, &management, release).await
            },
            async {
                if packages {
                    Kept::start(&core, &management).await.map(Some)
                } else {
                    Ok(None)
                }
            },
        )?;
        Ok(Self {
            kapp_controller,
            core,
            management,
            cluster_api,
            controller_manager,
            started_in: began.elapsed(),
        })
    }

    /// Shared state of the API servers of the stack.
    #[must_use]
    pub fn core(&self) -> &Arc<StackCore> {
        &self.core
    }

    /// The management API server.
    #[must_use]
    pub fn management(&self) -> &Arc<ApiServer> {
        &self.management
    }

    /// A client of the management cluster with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.management.admin_client()
    }

    /// Cluster API.
    #[must_use]
    pub fn cluster_api(&self) -> &ClusterApi {
        &self.cluster_api
    }

    /// The management cluster's kube-controller-manager.
    #[must_use]
    pub fn controller_manager(&self) -> &ControllerManager {
        &self.controller_manager
    }

    /// The management cluster's kapp-controller.
    ///
    /// # Errors
    /// The stack was started [without packages](Options::without_packages).
    pub fn kapp_controller(&self) -> Result<&KappController> {
        let kept = self.kapp_controller.as_ref();
        let kept = kept.context("the stack has no kapp-controller: it was started without packages")?;
        Ok(&kept.controller)
    }

    /// Whether there is a kapp-controller.
    #[must_use]
    pub fn has_packages(&self) -> bool {
        self.kapp_controller.is_some()
    }

    /// How long the start took, builds left out.
    #[must_use]
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// Fails if a process of the stack has ended that was not stopped, or a log holds a panic or a secret.
    pub fn check(&self) -> Result<()> {
        Complaints::of(self.core.directory())?.none()
    }

    /// Stops everything and removes the stack's directory.
    pub async fn stop(&self) -> Result<()> {
        // Otherwise the kubelet would restart killed processes.
        if let Some(kept) = &self.kapp_controller {
            kept.keeper.abort();
        }
        self.core.directory().close().await
    }
}
