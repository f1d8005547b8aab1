//! Builds components that are not in the cache yet.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::cache::Cache;
use super::catalogue::{CLUSTER_API, Component, KAPP_CONTROLLER, MODULES};
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
            let directory = self.cache.join("go").join(module.name);
            fs::create_dir_all(&directory)?;
            fs::write(directory.join("go.mod"), module.go_mod)?;
            fs::write(directory.join("go.sum"), module.go_sum)?;
        }
        Ok(())
    }

    fn build(&self, component: &Component, progress: &mut Progress) -> Result<()> {
        let finished = self.programs().join(component.binary());
        let unfinished = self.programs().join(format!(".{}", component.binary()));
        let mut child = self
            .go(component.module)
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
            .stdin(Stdio::null())
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

    fn go(&self, module: &str) -> Command {
        let mut go = Command::new("go");
        go.current_dir(self.cache.join("go").join(module))
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "0")
            // A go.work above the cache directory, or flags meant for other builds, would change what is
            // built.
            .env("GOWORK", "off")
            .env("GOFLAGS", "-buildvcs=false");
        go
    }

    fn has_manifests(&self) -> bool {
        self.manifests().join("complete").exists()
    }

    /// Copies CRDs, webhooks and RBAC out of the module cache, so that a run needs no Go.
    fn copy_manifests(&self) -> Result<()> {
        let manifests = self.manifests();
        let capi = self
            .module_directory(CLUSTER_API.name, "sigs.k8s.io/cluster-api")?
            .join("core/config");
        let kapp = self
            .module_directory(KAPP_CONTROLLER.name, "carvel.dev/kapp-controller")?
            .join("config/config");
        let crds = manifests.join("cluster-api/crds");
        fs::create_dir_all(&crds)?;
        fs::create_dir_all(manifests.join("kapp-controller"))?;
        for entry in fs::read_dir(capi.join("crd/bases")).context("list the CRDs of Cluster API")? {
            let entry = entry?;
            copy(&entry.path(), &crds.join(entry.file_name()))?;
        }
        copy(
            &capi.join("webhook/manifests.yaml"),
            &manifests.join("cluster-api/webhooks.yaml"),
        )?;
        for name in ["crds.yml", "rbac.yml"] {
            copy(&kapp.join(name), &manifests.join("kapp-controller").join(name))?;
        }
        fs::write(manifests.join("complete"), "").context("mark the manifests complete")
    }

    fn module_directory(&self, module: &str, path: &str) -> Result<PathBuf> {
        let output = self
            .go(module)
            .args(["list", "-m", "-f", "{{.Dir}}", path])
            .output()
            .context("start go")?;
        let directory = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || directory.is_empty() {
            bail!(
                "find the sources of {path}: go says: {}",
                preflight::last_line(&output.stderr)
            );
        }
        Ok(PathBuf::from(directory))
    }
}

/// Copies content only: files of the module cache are read-only, and would stay so.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let content = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    fs::write(to, content).with_context(|| format!("write {}", to.display()))
}
