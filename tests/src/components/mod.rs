//! The programs that a stack runs, built from source with the Go toolchain and kept in the user's cache
//! directory.

mod builder;
mod cache;
mod catalogue;
mod cluster_api;
mod go;
mod once;
mod preflight;
mod progress;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

pub use catalogue::{CLUSTER_API_VERSION, KAPP_CONTROLLER_VERSION, KUBERNETES_VERSIONS, MANAGEMENT_VERSION};
pub use cluster_api::{ClusterApiFiles, ClusterApiRelease};
pub use preflight::Isolation;

pub(crate) use cache::user_cache;
pub(crate) use catalogue::{Module, module};
pub(crate) use cluster_api::copy;
pub(crate) use go::{Program, build_here, go, sources_of};
pub(crate) use once::{lock, once};

use builder::Builder;
use catalogue::Component;

/// The built programs and the manifests that belong to them.
#[derive(Debug)]
pub struct Binaries {
    builder: Builder,
    isolation: Isolation,
}

impl Binaries {
    /// The programs of every stack of this process, built first where that is needed.
    ///
    /// The first call on a machine takes minutes and prints its progress; with everything in place a call
    /// takes milliseconds. Several processes may call at once: one builds, the others wait for it.
    pub async fn ready() -> Result<Arc<Self>> {
        static READY: OnceCell<Arc<Binaries>> = OnceCell::const_new();
        READY
            .get_or_try_init(|| async { Self::prepare().await.map(Arc::new) })
            .await
            .cloned()
    }

    async fn prepare() -> Result<Self> {
        tokio::task::spawn_blocking(|| {
            let isolation = Isolation::detect()?;
            let builder = Builder::open()?;
            builder.build_missing(&catalogue::all())?;
            Ok(Self { builder, isolation })
        })
        .await
        .context("build the components")?
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
        self.program("etcd")
    }

    /// `kube-controller-manager`.
    #[must_use]
    pub fn kube_controller_manager(&self) -> PathBuf {
        self.program("kube-controller-manager")
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

    /// `kapp-controller`; `ytt`, `kbld`, `kapp` and `vendir` lie beside it.
    #[must_use]
    pub fn kapp_controller(&self) -> PathBuf {
        self.program("kapp-controller")
    }

    /// A `kube-apiserver` that says it is `version` (`v1.35.4`) and serves the API of that minor, as
    /// *emulated* by the newest one in [`KUBERNETES_VERSIONS`]. Linked first if it is not among the
    /// prepared ones.
    pub async fn kube_apiserver_for(self: &Arc<Self>, version: &str) -> Result<PathBuf> {
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

    fn program(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }
}
