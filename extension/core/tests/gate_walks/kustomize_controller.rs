//! Model of kustomize-controller v1.9.4 and of the GitRepository of source-controller v1.9.4, with their false-ready windows.
//!
//! The source facts are in `internal/controller/kustomization_controller.go` of the one and `gitrepository_controller.go` of the other: a
//! new commit changes no generation; a suspended object observes its generation if it was ready, and a suspended source does so in any
//! case and keeps its artifact.

use serde_json::{Value, json};

use crate::{
    addons::{Delivery, apply, observe},
    flux::{acknowledge, is_elsewhere, is_true, remove_condition, set_condition},
    objects::{kustomization, source},
    servers::Servers,
};

/// Running reconcile. The status is written at its end, with the generation that it began with.
#[derive(Clone, Debug)]
struct Run {
    uid: Value,
    generation: Value,
    revision: String,
    path: String,
    is_elsewhere: bool,
    /// Whether objects are being applied.
    applies: bool,
}

/// Revision of the source, and path in it.
type Content = (String, String);

/// kustomize-controller and source-controller, and the objects in the workload cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct KustomizeController {
    /// Number of commits in the repository.
    commits: u64,
    /// Last fetched revision, and the one before, which a cache may still show.
    fetched: [Option<String>; 2],
    /// Content that was applied completely to the workload cluster of the Cluster, and to another one.
    applied: [Option<Content>; 2],
    run: Option<Run>,
}

/// Returns the version of a revision, `1.18.2` of `1.18.2@sha1:7`.
fn version_of(revision: &str) -> &str {
    revision.split_once('@').map_or(revision, |(version, _)| version)
}

/// The last patch of a suspended object.
fn skip(found: &mut Value) {
    acknowledge(found);
    if is_true(found, "Ready") {
        observe(found);
    }
}

impl KustomizeController {
    /// Returns the version that is applied, if it is of the revision that the source has.
    pub(crate) fn deployed(&self, servers: &Servers) -> Option<&str> {
        let (revision, _) = self.applied[0].as_ref()?;
        let source = servers.get(&source())?;
        (source["status"]["artifact"]["revision"] == *revision).then(|| version_of(revision))
    }

    /// A user pushes a commit, and moves the tag to it.
    pub(crate) fn commit(&mut self) {
        self.commits += 1;
    }

    /// source-controller fetches the tag that the GitRepository names.
    pub(crate) fn fetch(&mut self, servers: &mut Servers) {
        let Some(found) = servers.get(&source()).cloned() else {
            return;
        };
        if found["spec"]["suspend"] == true {
            servers.edit(&source(), |source| {
                observe(source);
                acknowledge(source);
            });
            return;
        }
        let tag = found["spec"]["ref"]["tag"].as_str().unwrap_or_default();
        let revision = format!("{tag}@sha1:{}", self.commits);
        if self.fetched[0].as_ref() != Some(&revision) {
            self.fetched.swap(0, 1);
            self.fetched[0] = Some(revision.clone());
        }
        servers.edit(&source(), |source| {
            source["status"]["artifact"] = json!({"revision": revision});
            observe(source);
            set_condition(source, "Ready", "True", "Succeeded");
        });
    }

    /// Takes a step of the reconcile of the Kustomization. One object is never reconciled twice at the same time.
    pub(crate) fn step(&mut self, servers: &mut Servers, step: Delivery) {
        match step {
            Delivery::Begin | Delivery::BeginBehind => {
                if self.run.is_none() {
                    self.begin(servers, step);
                }
            }
            Delivery::Observe => {
                let found = servers.get(&kustomization());
                if found.is_some_and(|found| found["spec"]["suspend"] == true) {
                    servers.edit(&kustomization(), skip);
                }
            }
            Delivery::Pend => {
                if let Some(run) = &mut self.run {
                    run.applies = true;
                    run.edit(servers, |found| run.attempt(found));
                }
            }
            Delivery::Kill => self.kill(servers),
            Delivery::Succeed
            | Delivery::Fail
            | Delivery::FailAgain
            | Delivery::RollBack
            | Delivery::NotRendered => self.end(servers, step),
        }
    }

    fn begin(&mut self, servers: &mut Servers, step: Delivery) {
        let Some(found) = servers.get(&kustomization()).cloned() else {
            return;
        };
        let (metadata, spec) = (&found["metadata"], &found["spec"]);
        if spec["suspend"] == true {
            servers.edit(&kustomization(), skip);
            return;
        }
        let artifact = servers
            .get(&source())
            .and_then(|source| source["status"]["artifact"]["revision"].as_str());
        let revision = match step {
            Delivery::BeginBehind if self.fetched[1].is_some() => self.fetched[1].clone(),
            _ => artifact.map(str::to_owned),
        };
        let Some(revision) = revision else {
            servers.edit(&kustomization(), |found| {
                set_condition(found, "Ready", "False", "ArtifactFailed");
                acknowledge(found);
            });
            return;
        };
        servers.edit(&kustomization(), |found| {
            set_condition(found, "Ready", "Unknown", "Progressing");
            set_condition(found, "Reconciling", "True", "Progressing");
        });
        self.run = Some(Run {
            uid: metadata["uid"].clone(),
            generation: metadata["generation"].clone(),
            path: spec["path"].as_str().unwrap_or_default().to_owned(),
            is_elsewhere: is_elsewhere(&found),
            applies: false,
            revision,
        });
    }

    /// Whether the content is applied already.
    fn is_repeated(&self, run: &Run) -> bool {
        let applied = &self.applied[usize::from(run.is_elsewhere)];
        applied
            .as_ref()
            .is_some_and(|(revision, path)| *revision == run.revision && *path == run.path)
    }

    /// The process is killed while it applies objects, or before.
    fn kill(&mut self, servers: &mut Servers) {
        let Some(run) = self.run.take() else { return };
        if run.applies && run.path != "broken" && run.is_current(servers) && !self.is_repeated(&run) {
            self.apply(servers, &run, false);
        }
    }

    fn end(&mut self, servers: &mut Servers, end: Delivery) {
        let Some(run) = self.run.take() else { return };
        if !run.is_current(servers) {
            return;
        }
        let is_repeated = self.is_repeated(&run);
        if run.path == "broken" || end == Delivery::NotRendered && !is_repeated {
            run.failed(servers, "BuildFailed");
            return;
        }
        let fails = end.fails(is_repeated);
        self.apply(servers, &run, !fails);
        if fails {
            run.failed(servers, "HealthCheckFailed");
            return;
        }
        run.edit(servers, |found| {
            run.attempt(found);
            found["status"]["lastAppliedRevision"] = json!(run.revision);
            remove_condition(found, "Reconciling");
            set_condition(found, "Ready", "True", "ReconciliationSucceeded");
            found["status"]["observedGeneration"] = run.generation.clone();
            acknowledge(found);
        });
    }

    /// Applies the objects of a revision, all of them or some.
    fn apply(&mut self, servers: &mut Servers, run: &Run, is_complete: bool) {
        let content = (run.revision.clone(), run.path.clone());
        self.applied[usize::from(run.is_elsewhere)] = Some(content).filter(|_| is_complete);
        if !run.is_elsewhere {
            apply(servers, version_of(&run.revision));
        }
    }

    /// The Kustomization is deleted, and its objects with it, except for those that the walk looks at.
    pub(crate) fn uninstall(&mut self, servers: &mut Servers) {
        servers.remove(&kustomization());
        self.applied = [None, None];
        self.run = None;
    }
}

impl Run {
    /// Whether the Kustomization is the one that the run is about.
    fn is_current(&self, servers: &Servers) -> bool {
        let found = servers.get(&kustomization());
        found.is_some_and(|found| found["metadata"]["uid"] == self.uid)
    }

    fn edit(&self, servers: &mut Servers, edit: impl FnOnce(&mut Value)) {
        if self.is_current(servers) {
            servers.edit(&kustomization(), edit);
        }
    }

    fn attempt(&self, found: &mut Value) {
        found["status"]["lastAttemptedRevision"] = json!(self.revision);
    }

    /// Writes the status of a failure, which is retried. Its generation is not observed.
    fn failed(&self, servers: &mut Servers, reason: &str) {
        self.edit(servers, |found| {
            self.attempt(found);
            set_condition(found, "Ready", "False", reason);
            set_condition(found, "Reconciling", "True", "ProgressingWithRetry");
            acknowledge(found);
        });
    }
}
