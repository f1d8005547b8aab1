//! Builds components that are not in the cache yet.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
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
        let build = |component: &&Component| -> Result<Built> {
            let name = component.binary();
            progress.started(name);
            let outcome = self.build(component, &progress);
            let seconds = progress.ended(name, outcome.as_ref().err());
            outcome.with_context(|| format!("build {name}"))?;
            Ok((name.to_owned(), seconds))
        };
        thread::scope(|scope| {
            let _watched = progress.watch(scope);
            in_lanes(&queue, lanes, &AtomicBool::new(false), build)
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

/// Builds the groups of a queue in several threads, those of a group in order. After an error, which sets `failed`, no
/// thread begins another one.
fn in_lanes<T: Send, B: Send>(
    queue: &Mutex<VecDeque<Vec<T>>>,
    lanes: usize,
    failed: &AtomicBool,
    build: impl Fn(&T) -> Result<B> + Sync,
) -> Result<Vec<B>> {
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || -> Result<Vec<B>> {
        let mut finished = Vec::new();
        while let Some(group) = next() {
            for component in group {
                if failed.load(Ordering::Relaxed) {
                    return Ok(finished);
                }
                let outcome = build(&component);
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                finished.push(outcome?);
            }
        }
        Ok(finished)
    };
    let lanes_ended: Vec<Result<Vec<B>>> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(work)).collect();
        let joined = lanes.into_iter().map(|lane| {
            lane.join()
                .unwrap_or_else(|_| Err(anyhow!("a thread that builds components panicked")))
        });
        joined.collect()
    });
    let finished: Result<Vec<Vec<B>>> = lanes_ended.into_iter().collect();
    Ok(finished?.into_iter().flatten().collect())
}

/// The components of each module, the most expensive module first.
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use anyhow::bail;

    use super::*;

    #[test]
    fn after_an_error_no_other_component_is_begun() {
        let (both, failed) = (Barrier::new(2), AtomicBool::new(false));
        let groups = [vec!["slow", "second"], vec!["broken"], vec!["later"]];
        let queue = Mutex::new(VecDeque::from(groups));
        let begun = Mutex::new(Vec::new());
        let outcome = in_lanes(&queue, 2, &failed, |name| {
            begun.lock().unwrap().push(*name);
            both.wait();
            if *name == "broken" {
                bail!("no compiler");
            }
            while !failed.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            Ok(())
        });
        assert_eq!(outcome.unwrap_err().to_string(), "no compiler");
        let mut begun = begun.into_inner().unwrap();
        begun.sort_unstable();
        assert_eq!(begun, ["broken", "slow"]);
    }

    #[test]
    fn components_of_a_group_are_built_in_order() {
        let queue = Mutex::new(VecDeque::from([vec![1, 2, 3], vec![10, 20]]));
        let built = in_lanes(&queue, 2, &AtomicBool::new(false), |number| Ok(*number)).unwrap();
        let of = |small: bool| {
            built
                .iter()
                .copied()
                .filter(move |number| (*number < 10) == small)
        };
        assert_eq!(of(true).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(of(false).collect::<Vec<_>>(), [10, 20]);
    }
}
