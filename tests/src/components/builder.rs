//! Builds components that are not in the cache yet.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::{fs, thread};

use anyhow::{Context, Result, anyhow};

use super::cache::Cache;
use super::catalogue::{CLUSTER_API, Component, KAPP_CONTROLLER, MODULES};
use super::cluster_api::{ClusterApiFiles, copy, copy_files};
use super::go::{build, sources_of};
use super::once::once;
use super::preflight;
use super::progress::Progress;
use super::recorded;

/// Components that are built at once. Those of one module are built one after another, because they share most packages.
const LANES: usize = 2;

/// Builds into a [`Cache`].
#[derive(Debug)]
pub(super) struct Builder {
    cache: Cache,
}

/// A component that was built, and the seconds that it took.
pub(super) type Built = (String, f64);

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

    /// Builds those of `wanted` that are missing, and copies the manifests beside them. Returns what was built.
    ///
    /// A program appears under its name only when it is complete, so an interrupted build goes on where it
    /// stopped.
    pub(super) fn build_missing(&self, wanted: &[Component]) -> Result<Vec<Built>> {
        if self.missing(wanted).is_empty() && self.has_manifests() {
            return Ok(Vec::new());
        }
        preflight::go()?;
        let _lock = self.cache.lock()?;
        // Again under the lock: the other process has probably built them.
        let missing = self.missing(wanted);
        self.write_modules()?;
        let built = self.build_all(&missing)?;
        self.copy_manifests()?;
        Ok(built)
    }

    fn build_all(&self, missing: &[&Component]) -> Result<Vec<Built>> {
        let queue = Mutex::new(by_module(missing));
        let lanes = LANES.min(queue.lock().map_or(LANES, |queue| queue.len()));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let names = missing.iter().map(|component| component.binary());
        let progress = Progress::begin(names, lanes, cores);
        let work = || -> Result<Vec<Built>> {
            let mut built = Vec::new();
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            while let Some(components) = next() {
                for component in components {
                    let name = component.binary();
                    progress.started(name);
                    let outcome = self.build(component, &progress);
                    let seconds = progress.ended(name, outcome.is_ok());
                    if let Err(error) = outcome {
                        // The other lane ends after its present component.
                        queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
                        return Err(error).with_context(|| format!("build {name}"));
                    }
                    built.push((name.to_owned(), seconds));
                }
            }
            Ok(built)
        };
        thread::scope(|scope| {
            let _watched = progress.watch(scope);
            let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(work)).collect();
            let mut built = Vec::new();
            for lane in lanes {
                built.extend(
                    lane.join()
                        .map_err(|_| anyhow!("a thread that builds components panicked"))??,
                );
            }
            Ok(built)
        })
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

    fn build(&self, component: &Component, progress: &Progress) -> Result<()> {
        let Component {
            package,
            linker_flags,
            ..
        } = component;
        let module = self.module(component.module);
        once(&self.programs().join(component.binary()), |unfinished| {
            build(&module, package, linker_flags, unfinished, |line| {
                progress.printed(component.binary(), line);
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

/// The components of each module, the dearest module first.
fn by_module<'a>(components: &[&'a Component]) -> VecDeque<Vec<&'a Component>> {
    let mut modules: Vec<Vec<&Component>> = Vec::new();
    for component in components {
        match modules
            .iter_mut()
            .find(|module| module[0].module == component.module)
        {
            Some(module) => module.push(component),
            None => modules.push(vec![component]),
        }
    }
    let cost = |module: &Vec<&Component>| -> f64 {
        module
            .iter()
            .map(|component| recorded::seconds(component.binary()))
            .sum()
    };
    modules.sort_by(|one, other| cost(other).total_cmp(&cost(one)));
    modules.into()
}
