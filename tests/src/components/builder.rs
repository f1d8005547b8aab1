//! Builds components that are not in the cache yet.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::cache::Cache;
use super::catalogue::{CLUSTER_API, Component, KAPP_CONTROLLER, MODULES};
use super::cluster_api::{copy, copy_files};
use super::go::{go, sources_of};
use super::preflight;
use super::progress::Progress;
use crate::processes::notice;

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
        let _lock = self
            .cache
            .lock(|| notice("another process is building the stack's programs; waiting for it"))?;
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
        if !self.has_manifests() {
            self.copy_manifests()?;
        }
        Ok(())
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
        let finished = self.programs().join(component.binary());
        let unfinished = self.programs().join(format!(".{}", component.binary()));
        let mut child = go(&self.module(component.module))
            .args([
                "build",
                "-v",
                "-trimpath",
                "-ldflags",
                &component.linker_flags,
                "-o",
            ])
            .arg(&unfinished)
            .arg(component.package)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start go")?;
        let output = child.stderr.take().context("go has no standard error")?;
        let mut complaint = None;
        for line in BufReader::new(output).lines() {
            let line = line.context("read what go says")?;
            progress.said(&line);
            if !line.starts_with("go: downloading") && line.contains(' ') {
                complaint = Some(line);
            }
        }
        if !child.wait().context("wait for go")?.success() {
            bail!("go says: {}", complaint.as_deref().unwrap_or("nothing").trim());
        }
        fs::rename(&unfinished, &finished).with_context(|| format!("move {} into place", finished.display()))
    }

    fn module(&self, name: &str) -> PathBuf {
        self.cache.join("go").join(name)
    }

    fn has_manifests(&self) -> bool {
        self.manifests().join("complete").exists()
    }

    /// Copies CRDs, webhooks and RBAC out of the module cache, so that a run needs no Go.
    fn copy_manifests(&self) -> Result<()> {
        let manifests = self.manifests();
        let capi = sources_of(&self.module(CLUSTER_API.name), "sigs.k8s.io/cluster-api")?;
        let kapp = sources_of(&self.module(KAPP_CONTROLLER.name), "carvel.dev/kapp-controller")?;
        copy_files(&capi.join("core/config"), &manifests.join("cluster-api"))?;
        fs::create_dir_all(manifests.join("kapp-controller"))?;
        for name in ["crds.yml", "rbac.yml"] {
            let from = kapp.join("config/config").join(name);
            copy(&from, &manifests.join("kapp-controller").join(name))?;
        }
        fs::write(manifests.join("complete"), "").context("mark the manifests complete")
    }
}
