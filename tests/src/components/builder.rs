//! Builds components that are not in the cache yet.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::cache::Cache;
use super::catalogue::{CLUSTER_API, Component, KAPP_CONTROLLER, MODULES};
use super::cluster_api::{ClusterApiFiles, copy, copy_files};
use super::go::{build, sources_of};
use super::once::once;
use super::preflight;
use super::progress::Progress;

/// Builds into a [`Cache`].
#[derive(Debug)]
pub(super) struct Builder {
    cache: Cache,
}

impl Builder {
    pub(super) fn open() -> Result<Self> {
        Ok(Self {
            cache: Cache::open()?,
        })
    }

    pub(super) fn programs(&self) -> PathBuf {
        self.cache.join("bin")
    }

    pub(super) fn manifests(&self) -> PathBuf {
        self.cache.join("manifests")
    }

    /// Builds those of `wanted` that are missing, and copies the manifests beside them.
    ///
    /// A program appears under its name only when it is complete, so an interrupted build goes on where it
    /// stopped.
    pub(super) fn build_missing(&self, wanted: &[Component]) -> Result<()> {
        if self.missing(wanted).is_empty() && self.has_manifests() {
            return Ok(());
        }
        preflight::go()?;
        let _lock = self.cache.lock()?;
        // Again under the lock: the other process has probably built them.
        let missing = self.missing(wanted);
        self.write_modules()?;
        for (index, component) in missing.iter().enumerate() {
            let mut progress = Progress::begin(component.binary(), index + 1, missing.len());
            match self.build(component, &mut progress) {
                Ok(()) => progress.end("built"),
                Err(error) => {
                    progress.end("failed");
                    return Err(error).with_context(|| format!("build {}", component.binary()));
                }
            }
        }
        self.copy_manifests()
    }

    fn missing<'a>(&self, wanted: &'a [Component]) -> Vec<&'a Component> {
        wanted
            .iter()
            .filter(|component| !self.programs().join(component.binary()).exists())
            .collect()
    }

    fn write_modules(&self) -> Result<()> {
        for module in MODULES {
            let directory = self.module(module.name);
            fs::create_dir_all(&directory)?;
            fs::write(directory.join("go.mod"), module.go_mod)?;
            fs::write(directory.join("go.sum"), module.go_sum)?;
        }
        Ok(())
    }

    fn build(&self, component: &Component, progress: &mut Progress) -> Result<()> {
        let Component {
            package,
            linker_flags,
            ..
        } = component;
        let module = self.module(component.module);
        once(&self.programs().join(component.binary()), |unfinished| {
            build(&module, package, linker_flags, unfinished, |line| {
                progress.said(line);
            })
        })
    }

    fn module(&self, name: &str) -> PathBuf {
        self.cache.join("go").join(name)
    }

    fn has_manifests(&self) -> bool {
        self.complete().exists()
    }

    /// Copied last: its presence marks the others as complete.
    fn complete(&self) -> PathBuf {
        self.manifests().join("complete")
    }

    /// Copies CRDs, webhooks and RBAC out of the module cache, so that a run needs no Go.
    fn copy_manifests(&self) -> Result<()> {
        once(&self.complete(), |complete| {
            let manifests = self.manifests();
            let capi = sources_of(&self.module(CLUSTER_API.name), "sigs.k8s.io/cluster-api")?;
            let kapp = sources_of(&self.module(KAPP_CONTROLLER.name), "carvel.dev/kapp-controller")?;
            let files = ClusterApiFiles::of(PathBuf::new(), &manifests.join("cluster-api"));
            copy_files(&capi.join("core/config"), &files.definitions, &files.webhooks)?;
            fs::create_dir_all(manifests.join("kapp-controller"))?;
            for name in ["crds.yml", "rbac.yml"] {
                let from = kapp.join("config/config").join(name);
                copy(&from, &manifests.join("kapp-controller").join(name))?;
            }
            fs::write(complete, "").context("mark the manifests complete")
        })
    }
}
