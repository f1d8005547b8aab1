//! The programs that a stack runs, built from source with the Go toolchain and kept in the user's cache
//! directory.

mod builder;
mod caaph;
mod cache;
mod catalogue;
mod cluster_api;
mod flux;
mod go;
mod installed;
mod kapp_controller;
mod kube_scheduler;
mod once;
mod origin;
mod preflight;
mod previous;
mod progress;
mod recorded;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

pub use caaph::CAAPH_VERSION;
pub use catalogue::{CLUSTER_API_VERSION, KAPP_CONTROLLER_VERSION, KUBERNETES_VERSIONS, MANAGEMENT_VERSION};
pub use cluster_api::{ClusterApiFiles, ClusterApiRelease};
pub use flux::{
    FluxController, FluxFiles, HELM_CONTROLLER_VERSION, KUSTOMIZE_CONTROLLER_VERSION,
    SOURCE_CONTROLLER_VERSION,
};
pub use kapp_controller::ranges;
pub use preflight::Isolation;
pub use previous::previous_sluice;

pub(crate) use cache::user_cache;
pub(crate) use catalogue::{Module, module};
pub(crate) use cluster_api::copy;
pub(crate) use go::{Program, build_here, go, sources_of};
pub(crate) use installed::{NOT_USED, minor};
pub(crate) use once::{lock, once};
pub(crate) use preflight::git_backend;

pub use origin::{Origin, ProgramReport};

use builder::{Builder, Built};
use catalogue::{Component, ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER};
use installed::{Installed, Wanted};

/// The programs of a stack and the manifests that belong to them.
#[derive(Debug)]
pub struct Binaries {
    builder: Builder,
    isolation: Isolation,
    /// The components that stacks of this process need.
    components: Vec<Component>,
    /// Programs that replace built ones; only in the demo.
    installed: Vec<Installed>,
    /// Components that this process has built.
    built: Vec<Built>,
}

/// The programs of every stack of this process.
static READY: OnceCell<Arc<Binaries>> = OnceCell::const_new();

impl Binaries {
    /// The programs of every stack of this process, built first where that is needed.
    ///
    /// The first call on a machine takes minutes and prints its progress; with everything in place a call
    /// takes milliseconds. Several processes may call at once: one builds, the others wait for it.
    pub async fn ready() -> Result<Arc<Self>> {
        Self::once(|| (catalogue::all(), Vec::new())).await
    }

    /// The programs that the demo needs for Clusters of the newest version and of `earlier` versions before it. Those that are installed on
    /// this machine in a suitable version are not built. Later calls of [`Self::ready`] return the same.
    pub async fn of_the_demo(earlier: usize) -> Result<Arc<Self>> {
        Self::once(move || {
            let components = catalogue::of_the_demo(earlier);
            let wanted: Vec<Wanted> = components
                .iter()
                .filter_map(Component::replaceable)
                .map(|(program, version)| Wanted::like(program, version))
                .collect();
            let installed = installed::find(&wanted, &installed::directories());
            (components, installed)
        })
        .await
    }

    async fn once(
        select: impl FnOnce() -> (Vec<Component>, Vec<Installed>) + Send + 'static,
    ) -> Result<Arc<Self>> {
        let prepare = || async {
            let prepared = tokio::task::spawn_blocking(move || {
                let isolation = Isolation::detect()?;
                let builder = Builder::open()?;
                let (components, installed) = select();
                let is_built = |component: &&Component| instead_of(&installed, component).is_none();
                let missing: Vec<Component> = components.iter().filter(is_built).cloned().collect();
                let built = builder.build_missing(&missing)?;
                Ok(Self {
                    builder,
                    isolation,
                    components,
                    installed,
                    built,
                })
            });
            prepared.await.context("build the components")?.map(Arc::new)
        };
        READY.get_or_try_init(prepare).await.cloned()
    }

    /// Directory of the programs.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.builder.programs()
    }

    /// How kapp-controller gets its own view of its fixed directories on this machine.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// `etcd`.
    #[must_use]
    pub fn etcd(&self) -> PathBuf {
        self.installed_or_built(ETCD)
    }

    /// `kube-controller-manager`.
    #[must_use]
    pub fn kube_controller_manager(&self) -> PathBuf {
        self.installed_or_built(KUBE_CONTROLLER_MANAGER)
    }

    /// `kube-scheduler`, which is built first if that was not done before. The first build takes minutes.
    pub async fn kube_scheduler(&self) -> Result<PathBuf> {
        tokio::task::spawn_blocking(|| kube_scheduler::program()?.build())
            .await
            .context("build kube-scheduler")?
    }

    /// The files of a release of Cluster API; an older one is built first if that was not done before.
    pub async fn cluster_api(&self, release: ClusterApiRelease) -> Result<ClusterApiFiles> {
        match release.program() {
            None => Ok(ClusterApiFiles::of(
                self.program("capi-core"),
                &self.manifest("cluster-api"),
            )),
            Some(program) => tokio::task::spawn_blocking(move || ClusterApiFiles::built(&program))
                .await
                .context("build an older Cluster API")?,
        }
    }

    /// The files of CAAPH, which is built first if that was not done before. The first build takes minutes.
    pub async fn caaph(&self) -> Result<ClusterApiFiles> {
        tokio::task::spawn_blocking(|| ClusterApiFiles::built(&caaph::program()))
            .await
            .context("build CAAPH")?
    }

    /// The files of a controller of Flux, which is built first if that was not done before. The first build takes minutes.
    pub async fn flux(&self, controller: FluxController) -> Result<FluxFiles> {
        tokio::task::spawn_blocking(move || FluxFiles::built(controller))
            .await
            .with_context(|| format!("build {}", controller.name()))?
    }

    /// `kapp-controller`; `ytt`, `kbld`, `kapp` and `vendir` lie beside it.
    #[must_use]
    pub fn kapp_controller(&self) -> PathBuf {
        self.program("kapp-controller")
    }

    /// A `kube-apiserver` that says it is `version` (`v1.35.4`) and serves the API of that minor, as
    /// *emulated* by the newest one in [`KUBERNETES_VERSIONS`]. Linked first if it is not among the
    /// prepared ones.
    pub async fn kube_apiserver_for(self: &Arc<Self>, version: &str) -> Result<PathBuf> {
        let is_it = |found: &&Installed| found.program == KUBE_APISERVER && found.version == version;
        if let Some(installed) = self.installed.iter().find(is_it) {
            return Ok(installed.path.clone());
        }
        let component = Component::kube_apiserver(version)?;
        let path = self.program(component.binary());
        if !path.exists() {
            let this = self.clone();
            tokio::task::spawn_blocking(move || this.builder.build_missing(&[component]))
                .await
                .context("build kube-apiserver")??;
        }
        Ok(path)
    }

    /// A file that belongs to a component: `cluster-api/crds/*.yaml`, `cluster-api/webhooks.yaml`,
    /// `kapp-controller/crds.yml`, `kapp-controller/rbac.yml`.
    #[must_use]
    pub fn manifest(&self, name: impl AsRef<Path>) -> PathBuf {
        self.builder.manifests().join(name)
    }

    /// The version of an API server of the same minor version as `version`: that of the installed one, or `version` itself.
    #[must_use]
    pub fn kubernetes_version(&self, version: &str) -> String {
        let wanted = Wanted::like(KUBE_APISERVER, version);
        let installed = self.installed.iter().find(|found| wanted.is(found));
        installed.map_or_else(|| version.to_owned(), |found| found.version.clone())
    }

    /// The programs of the stack and where they are from.
    #[must_use]
    pub fn report(&self) -> Vec<ProgramReport> {
        let seconds = |name: &str| {
            let built = self.built.iter().find(|(built, _)| built == name);
            built.map(|(_, seconds)| *seconds)
        };
        self.components
            .iter()
            .map(|component| match instead_of(&self.installed, component) {
                Some(installed) => ProgramReport::installed(component.binary(), installed),
                None => ProgramReport::built(component, seconds(component.binary())),
            })
            .collect()
    }

    fn installed_or_built(&self, program: &str) -> PathBuf {
        let installed = self.installed.iter().find(|found| found.program == program);
        installed.map_or_else(|| self.program(program), |found| found.path.clone())
    }

    fn program(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }
}

/// The installed program that replaces a component.
fn instead_of<'a>(installed: &'a [Installed], component: &Component) -> Option<&'a Installed> {
    let (program, version) = component.replaceable()?;
    let wanted = Wanted::like(program, version);
    installed.iter().find(|found| wanted.is(found))
}
