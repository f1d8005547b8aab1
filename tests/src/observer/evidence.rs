//! The evidence for one PackageInstall: it and its App, and since when both together prove a version.

use serde_json::Value;

use super::conditions::{annotation, is_observed, is_true, text};
use super::feed::Revision;

const PACKAGE_VERSION: &str = "packaging.carvel.dev/package-version";

/// Both objects of one installation, as last written.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    install: Option<Value>,
    app: Option<Value>,
    /// Where the PackageInstall was given the Secrets that it names.
    values_named: Revision,
    /// Where the App's latest run began: a new generation, or Reconciling after a pause.
    run_began: Revision,
    /// `spec.values` of the PackageInstall at that time.
    values_of_run: Value,
    /// When the deployment began that the App showed then, or at last before its generation was observed: that of a run before.
    deployment_before: Value,
    /// Where the latest run began that got as far as deploying, at the App's generation.
    deployed_by: Option<Revision>,
    proof: Option<Proof>,
    /// Version and generation of the latest false success, so that each counts once.
    false_success: Option<(String, Value)>,
}

/// What one write changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// A version is proven.
    Proven(String),
    /// The App works on a version.
    Working(String),
    /// The App failed at a version.
    Failed(String),
    /// The PackageInstall alone claims a version.
    FalseSuccess(String),
}

/// Since when a version is proven, and by which run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proof {
    pub(super) version: String,
    /// Revision of the write that completed the proof.
    pub(super) revision: Revision,
    /// Start of the run of the proof.
    pub(super) run_began: Revision,
    generations: (Value, Value),
    app_uid: String,
}

impl Evidence {
    /// Takes a write of the PackageInstall.
    pub(super) fn install_written(&mut self, revision: Revision, install: Option<Value>) -> Vec<Finding> {
        let changed = self.install.is_none() || values(install.as_ref()) != values(self.install.as_ref());
        if install.is_some() && changed {
            self.values_named = revision;
        }
        self.install = install;
        let proven = self.weigh(revision);
        let claimed = self.false_success().map(Finding::FalseSuccess);
        proven.into_iter().chain(claimed).collect()
    }

    /// Takes a write of the App.
    pub(super) fn app_written(&mut self, revision: Revision, app: Option<Value>) -> Vec<Finding> {
        let before = self.app.take();
        let mut findings = Vec::new();
        if let Some(now) = &app {
            let same_generation = before
                .as_ref()
                .is_some_and(|before| before["metadata"]["generation"] == now["metadata"]["generation"]);
            let turned =
                |kind| is_true(now, kind) && !before.as_ref().is_some_and(|before| is_true(before, kind));
            let version = annotation(now, PACKAGE_VERSION);
            if !same_generation || turned("Reconciling") {
                self.run_began = revision;
                self.values_of_run = values(self.install.as_ref());
            }
            if !same_generation {
                self.deployed_by = None;
            }
            // A run at the generation before may still go on and deploy.
            if !is_observed(now) || turned("Reconciling") {
                self.deployment_before = deployment(now).clone();
            } else if deployment(now).is_string() && *deployment(now) != self.deployment_before {
                self.deployed_by = Some(self.run_began);
            }
            // A retry that is under way when the generation changes leaves Reconciling True.
            let observed_anew = is_observed(now) && !before.as_ref().is_some_and(is_observed);
            if turned("Reconciling") || observed_anew && is_true(now, "Reconciling") {
                findings.push(Finding::Working(version.clone()));
            }
            if turned("ReconcileFailed") {
                findings.push(Finding::Failed(version));
            }
        }
        self.app = app;
        findings.extend(self.weigh(revision));
        findings
    }

    pub(super) fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    pub(super) fn ref_name(&self) -> String {
        self.install
            .as_ref()
            .map(|install| text(install, "/spec/packageRef/refName"))
            .unwrap_or_default()
    }

    /// Name of the Secret with the kubeconfig of the cluster that is installed into, for an install from outside.
    pub(super) fn kubeconfig_secret(&self) -> String {
        self.install
            .as_ref()
            .map(|install| text(install, "/spec/cluster/kubeconfigSecretRef/name"))
            .unwrap_or_default()
    }

    /// `spec.values` of the PackageInstall, and since when the App's latest run may have had them. Others that it named after that
    /// run had begun, and does not name any more, were not taken up: the App would have run again.
    pub(super) fn values(&self) -> (Value, Revision) {
        let values = values(self.install.as_ref());
        let since = if values == self.values_of_run {
            self.values_named.min(self.run_began.saturating_sub(1))
        } else {
            self.values_named
        };
        (values, since)
    }

    /// Where the run began that deployed `version`, finished or not, if that is the version of the App and nothing has failed or
    /// was stopped.
    pub(super) fn has_deployed(&self, version: &str) -> Option<Revision> {
        let (install, app) = (self.install.as_ref()?, self.app.as_ref()?);
        let is_current = annotation(app, PACKAGE_VERSION) == version && is_observed(app);
        let goes_on = is_usable(install) && is_usable(app) && !self.has_failed();
        self.deployed_by.filter(|_| is_current && goes_on)
    }

    /// Whether kapp-controller reports a failure.
    pub(super) fn has_failed(&self) -> bool {
        [&self.install, &self.app]
            .into_iter()
            .flatten()
            .any(|object| is_true(object, "ReconcileFailed"))
    }

    /// State of the package without a proof.
    pub(super) fn describe(&self) -> String {
        let Some(install) = &self.install else {
            return "no PackageInstall".to_owned();
        };
        let app = match &self.app {
            Some(app) => format!(
                "App generation {} observed {} version {:?} {}",
                app["metadata"]["generation"],
                app["status"]["observedGeneration"],
                annotation(app, PACKAGE_VERSION),
                state(app),
            ),
            None => "no App".to_owned(),
        };
        format!(
            "PackageInstall generation {} observed {} version {:?} {}, {app}",
            install["metadata"]["generation"],
            install["status"]["observedGeneration"],
            text(install, "/status/version"),
            state(install),
        )
    }

    /// Version that the PackageInstall claims while its App contradicts it, once for each generation.
    fn false_success(&mut self) -> Option<String> {
        let install = self.install.as_ref()?;
        let version = text(install, "/status/version");
        let claims =
            is_observed(install) && is_true(install, "ReconcileSucceeded") && wanted(install) == version;
        if !claims || self.found(0).is_some() {
            return None;
        }
        let claim = Some((version.clone(), install["metadata"]["generation"].clone()));
        if self.false_success == claim {
            return None;
        }
        self.false_success = claim;
        Some(version)
    }

    fn weigh(&mut self, revision: Revision) -> Option<Finding> {
        let found = self.found(revision);
        match (&found, &self.proof) {
            (Some(found), Some(kept)) if found.is_of_same_run(kept) => return None,
            (None, Some(kept)) if self.stands(kept) => return None,
            _ => {}
        }
        self.proof = found;
        let proof = self.proof.as_ref()?;
        Some(Finding::Proven(proof.version.clone()))
    }

    /// The proof that both objects give at this moment. The PackageInstall alone gives none: right after a bump it shows the
    /// success of the old App with the new version and an observed generation.
    fn found(&self, revision: Revision) -> Option<Proof> {
        let (install, app) = (self.install.as_ref()?, self.app.as_ref()?);
        let version = text(install, "/status/version");
        let proven = [install, app]
            .into_iter()
            .all(|object| is_usable(object) && is_observed(object) && is_true(object, "ReconcileSucceeded"))
            && !version.is_empty()
            && wanted(install) == version
            && annotation(app, PACKAGE_VERSION) == version;
        proven.then(|| Proof {
            version,
            revision,
            run_began: self.run_began,
            generations: generations(install, app),
            app_uid: text(app, "/metadata/uid"),
        })
    }

    /// Whether an earlier proof still counts: kapp-controller works on the same generations again, and has not failed.
    fn stands(&self, kept: &Proof) -> bool {
        let (Some(install), Some(app)) = (&self.install, &self.app) else {
            return false;
        };
        generations(install, app) == kept.generations
            && text(app, "/metadata/uid") == kept.app_uid
            && [install, app]
                .into_iter()
                .all(|object| is_usable(object) && !is_true(object, "ReconcileFailed"))
    }
}

impl Proof {
    fn is_of_same_run(&self, other: &Self) -> bool {
        self.version == other.version
            && self.run_began == other.run_began
            && self.generations == other.generations
            && self.app_uid == other.app_uid
    }
}

fn values(install: Option<&Value>) -> Value {
    install.map_or(Value::Null, |install| install["spec"]["values"].clone())
}

/// When the deployment began that the App shows. It is that of the run before until a run gets so far.
fn deployment(app: &Value) -> &Value {
    &app["status"]["deploy"]["startedAt"]
}

fn is_usable(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_null()
        && object["spec"]["paused"] != true
        && object["spec"]["canceled"] != true
}

fn wanted(install: &Value) -> String {
    text(install, "/spec/packageRef/versionSelection/constraints")
}

fn generations(install: &Value, app: &Value) -> (Value, Value) {
    (
        install["metadata"]["generation"].clone(),
        app["metadata"]["generation"].clone(),
    )
}

fn state(object: &Value) -> String {
    ["ReconcileSucceeded", "Reconciling", "ReconcileFailed"]
        .into_iter()
        .find(|kind| is_true(object, kind))
        .unwrap_or("without condition")
        .to_owned()
}
