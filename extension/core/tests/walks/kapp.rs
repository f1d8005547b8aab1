//! Model of kapp-controller with the status that proofs need: it creates Apps from PackageInstalls, and a run deploys the Package and
//! the values Secret as of its start.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluice_core::reconcile::cluster::Server;
use sluice_crds::labels::annotation;

use crate::{
    objects::{
        PACKAGES, SYSTEM, control_plane, home, is_own_server, is_unmanaged, kube_system, no_values,
        of_package, package_place, permits,
    },
    servers::{Place, Servers, place},
};

/// Annotation of a PackageInstall that is installed on any Kubernetes version.
pub(crate) const IGNORES_SELECTION: &str = "packaging.carvel.dev/ignore-kubernetes-version-selection";

/// Inputs of a run: the steps of the Package, the values if the Package takes any, and the API server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Deployed {
    version: Value,
    steps: Value,
    values: Value,
    host: Host,
}

impl Deployed {
    /// Whether the workload API server is the one that is deployed to.
    fn is_on(&self, servers: &Servers) -> bool {
        self.host.0 == host(servers).0
    }
}

/// UID and version of an API server.
type Host = (Value, Value);

impl std::fmt::Debug for Deployed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = &self.steps[0][0]["http"]["url"];
        write!(
            f,
            "{url} with {} on {} at {}",
            self.values, self.host.0, self.host.1
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    generation: u64,
    began: u64,
    applied: bool,
    deploys: Deployed,
}

/// Current run and last deployment of each package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Kapp {
    runs: BTreeMap<usize, Run>,
    /// Inputs of the last complete apply, if none followed.
    applied: BTreeMap<usize, Deployed>,
    /// Inputs of the last successful run, if no apply followed.
    deployed: BTreeMap<usize, Deployed>,
    /// API servers with a kapp-controller of the workload, by UID.
    runs_on: BTreeSet<String>,
}

/// Returns the API server of the workload.
fn host(servers: &Servers) -> Host {
    let at = |place: &Place, field: fn(&Value) -> Value| servers.get(place).map(field).unwrap_or_default();
    (
        at(&kube_system(), |namespace| namespace["metadata"]["uid"].clone()),
        at(&control_plane(), |plane| plane["status"]["version"].clone()),
    )
}

fn condition(type_: &str) -> Value {
    json!([{"type": type_, "status": "True"}])
}

fn at(time: u64) -> Value {
    json!(jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(time.cast_signed()))
}

impl Kapp {
    /// Whether a kapp-controller exists that reconciles the package.
    fn works(&self, servers: &Servers, package: usize) -> bool {
        package == 0
            || is_unmanaged(servers)
            || self
                .runs_on
                .contains(host(servers).0.as_str().unwrap_or_default())
    }

    /// Updates the App from the PackageInstall and mirrors its status. Like kapp-controller v0.53.1, it mirrors the old success of the App
    /// right after a change.
    pub(crate) fn sync(&mut self, servers: &mut Servers, package: usize) {
        if !self.works(servers, package) {
            return;
        }
        let (install_at, app_at) = (
            of_package(package, "packageinstalls"),
            of_package(package, "apps"),
        );
        let Some(install) = servers.get(&install_at).cloned() else {
            servers.remove(&app_at);
            return;
        };
        if !install["metadata"]["deletionTimestamp"].is_null() {
            // Uninstalled.
            servers.remove(&install_at);
            servers.remove(&app_at);
            self.forget(package);
            return;
        }
        let reference = &install["spec"]["packageRef"];
        let wanted = &reference["versionSelection"]["constraints"];
        let mut status = json!({
            "observedGeneration": install["metadata"]["generation"],
            "lastAttemptedVersion": install["status"]["lastAttemptedVersion"],
        });
        let (server, namespace) = home(package);
        let name = format!(
            "{}.{}",
            reference["refName"].as_str().unwrap_or_default(),
            wanted.as_str().unwrap_or_default()
        );
        // Both API servers are one, so the Packages of the management cluster are there.
        let source_server = if is_own_server(servers) {
            Server::Management
        } else {
            server
        };
        let source = servers.get(&place(
            source_server,
            "packages",
            namespace_of(package, namespace),
            &name,
        ));
        let allowed = !install["metadata"]["annotations"][annotation::DOWNGRADABLE].is_null();
        let tried = install["status"]["lastAttemptedVersion"].as_str();
        let lower = tried.is_some_and(|tried| wanted.as_str().unwrap_or_default() < tried);
        let ignores = !install["metadata"]["annotations"][IGNORES_SELECTION].is_null();
        let (_, version) = host(servers);
        let is_permitted = |source: &&Value| ignores || permits(source, version.as_str().unwrap_or_default());
        let source = source.filter(|_| allowed || !lower).filter(is_permitted);
        let Some(source) = source.cloned() else {
            status["version"] = install["status"]["version"].clone();
            status["conditions"] = condition("ReconcileFailed");
            servers.edit(&install_at, |install| install["status"] = status);
            return;
        };
        make_app(servers, &app_at, &install, &source);
        let app = servers.get(&app_at).cloned().unwrap_or_default();
        status["version"] = wanted.clone();
        status["lastAttemptedVersion"] = wanted.clone();
        status["conditions"] = match &app["status"]["conditions"] {
            Value::Null => condition("Reconciling"),
            shown => shown.clone(),
        };
        servers.edit(&install_at, |install| install["status"] = status);
    }

    /// Starts a run of an App: its generation is observed, and its status still shows the steps of the last run.
    pub(crate) fn begin(&mut self, servers: &mut Servers, package: usize, time: u64) {
        let app_at = of_package(package, "apps");
        let Some(app) = servers.get(&app_at).cloned() else {
            return;
        };
        if !self.works(servers, package) {
            return;
        }
        let generation = app["metadata"]["generation"].as_u64().unwrap_or_default();
        // A stopped App only shows that its change was observed, and keeps its conditions.
        if is_stopped(&app["spec"]) {
            servers.edit(&app_at, |app| {
                app["status"]["observedGeneration"] = json!(generation);
            });
            return;
        }
        let may = package == 0 || has_identity(servers);
        let values = values_of(servers, package, &app["spec"]);
        // Without its account or its values a run fails and is retried.
        let (true, Some(values)) = (may, values) else {
            self.runs.remove(&package);
            set(servers, &app_at, generation, "ReconcileFailed");
            return;
        };
        let deploys = Deployed {
            version: app["metadata"]["annotations"][annotation::PACKAGE_VERSION].clone(),
            steps: steps(&app["spec"]),
            values,
            host: host(servers),
        };
        self.runs.insert(
            package,
            Run {
                generation,
                began: time,
                applied: false,
                deploys,
            },
        );
        set(servers, &app_at, generation, "Reconciling");
    }

    pub(crate) fn is_at_work(&self, package: usize) -> bool {
        self.runs.contains_key(&package)
    }

    /// Starts a run, unless the App shows the end of a run with the same inputs.
    pub(crate) fn begin_what_differs(&mut self, servers: &mut Servers, package: usize, time: u64) {
        let (before, there) = (self.clone(), servers.clone());
        self.begin(servers, package, time);
        let again = self.runs.get(&package).is_some_and(|run| {
            let app = there
                .get(&of_package(package, "apps"))
                .cloned()
                .unwrap_or_default();
            before.deployed.get(&package) == Some(&run.deploys)
                && app["status"]["observedGeneration"] == json!(run.generation)
                && app["status"]["conditions"] == condition("ReconcileSucceeded")
        });
        if again {
            (*self, *servers) = (before, there);
        }
    }

    /// The run of an App has applied all resources and waits.
    pub(crate) fn apply(&mut self, servers: &mut Servers, package: usize, time: u64) {
        let Some(run) = self.runs.get_mut(&package).filter(|run| !run.applied) else {
            return;
        };
        run.applied = true;
        let (began, now) = (at(run.began), at(time));
        let deploys = run.deploys.clone();
        if deploys.is_on(servers) {
            if self.deployed.get(&package) != Some(&deploys) {
                self.deployed.remove(&package);
            }
            self.applied.insert(package, deploys);
        }

        servers.edit(&of_package(package, "apps"), |app| {
            app["status"]["fetch"] = json!({"exitCode": 0, "startedAt": began, "updatedAt": began});
            app["status"]["template"] = json!({"exitCode": 0, "updatedAt": now});
            app["status"]["deploy"] = json!({
                "finished": false, "startedAt": now, "updatedAt": now,
                "stdout": "---- applying 1 changes [0/1 done] ----\n---- waiting on 1 changes [0/1 done] ----\n",
            });
        });
    }

    /// Ends the run of an App.
    pub(crate) fn end(&mut self, servers: &mut Servers, package: usize, time: u64, well: bool) {
        self.apply(servers, package, time);
        let Some(run) = self.runs.remove(&package) else {
            return;
        };
        let app_at = of_package(package, "apps");
        let is_here = run.deploys.is_on(servers);
        let before = self.deployed.get(&package) == Some(&run.deploys);
        if well && is_here {
            self.deployed.insert(package, run.deploys.clone());
        } else if is_here {
            // The result of a failed run is unknown.
            self.forget(package);
        }
        if package == 0 && well {
            self.runs_on
                .extend(run.deploys.host.0.as_str().map(str::to_owned));
            if !before && is_here {
                PACKAGES[1..].iter().for_each(|other| self.interrupt(*other));
            }
        }
        let condition = if well {
            "ReconcileSucceeded"
        } else {
            "ReconcileFailed"
        };
        set(servers, &app_at, run.generation, condition);
        servers.edit(&app_at, |app| app["status"]["deploy"]["finished"] = json!(true));
    }

    /// Returns the state of the same deployments on another API server, without current runs. kapp-controller itself was never deployed
    /// there.
    pub(crate) fn on(&self, uid: &str) -> Self {
        let mut other = self.clone();
        other.forget(0);
        other.runs.clear();
        let deployments = other.applied.values_mut().chain(other.deployed.values_mut());
        for deployed in deployments {
            deployed.host.0 = json!(uid);
        }
        if !self.runs_on.is_empty() {
            other.runs_on.insert(uid.to_owned());
        }
        other
    }

    /// Exchanges the deployments of the workload. A run that deploys kapp-controller itself is in the management cluster and goes on; its
    /// result on the API server that it deploys to is unknown.
    pub(crate) fn exchange(&mut self, other: &mut Self) {
        std::mem::swap(self, other);
        if let Some(run) = other.runs.remove(&0) {
            if other.applied.get(&0) != Some(&run.deploys) {
                other.forget(0);
            }
            self.runs.insert(0, run);
        }
        self.runs_on.extend(other.runs_on.iter().cloned());
    }

    /// The process ends during a run. Its status stays.
    pub(crate) fn interrupt(&mut self, package: usize) {
        if let Some(run) = self.runs.remove(&package)
            && self.applied.get(&package) != Some(&run.deploys)
        {
            self.forget(package);
        }
    }

    fn forget(&mut self, package: usize) {
        self.runs.remove(&package);
        self.applied.remove(&package);
        self.deployed.remove(&package);
    }

    /// Whether the package is deployed with its current Package, version and values on the current API server, and no run deploys other
    /// inputs. A run with the same inputs may be in progress: a proof outlives a resync. With `waits`, a complete apply suffices.
    pub(crate) fn is_right(
        &self,
        servers: &Servers,
        package: usize,
        name: &str,
        values: &Value,
        waits: bool,
    ) -> bool {
        let Some(source) = servers.get(&package_place(name)) else {
            return false;
        };
        let right = |deployed: &Deployed| {
            deployed.version == source["spec"]["version"]
                && deployed.steps == steps(&source["spec"]["template"]["spec"])
                && deployed.values == *values
                && deployed.host == host(servers)
        };
        let last = if waits { &self.applied } else { &self.deployed };
        last.get(&package).is_some_and(right) && self.runs.get(&package).is_none_or(|run| right(&run.deploys))
    }
}

fn is_stopped(spec: &Value) -> bool {
    ["paused", "canceled"]
        .iter()
        .any(|field| spec[*field] == json!(true))
}

/// Creates or updates the App of a PackageInstall.
fn make_app(servers: &mut Servers, app_at: &Place, install: &Value, source: &Value) {
    let mut spec = source["spec"]["template"]["spec"].clone();
    if spec["template"][0].get("ytt").is_some() {
        spec["template"][0]["ytt"]["valuesFrom"] = install["spec"]["values"].clone();
    }
    spec["syncPeriod"] = install["spec"]["syncPeriod"].clone();
    for field in ["paused", "canceled"] {
        if !install["spec"][field].is_null() {
            spec[field] = install["spec"][field].clone();
        }
    }
    let mut app = servers.get(app_at).cloned().unwrap_or_else(
        || json!({"apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App", "metadata": {}, "status": {}}),
    );
    app["spec"] = spec;
    app["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
        "name": install["metadata"]["name"], "uid": install["metadata"]["uid"],
    }]);
    let version = &install["spec"]["packageRef"]["versionSelection"]["constraints"];
    app["metadata"]["annotations"] = json!({annotation::PACKAGE_VERSION: version});
    servers.put(app_at.clone(), app);
}

/// Returns the namespace of the Packages of a PackageInstall. Those of the management cluster are global.
fn namespace_of(package: usize, namespace: &str) -> &str {
    if package == 0 { SYSTEM } else { namespace }
}

/// Whether packages may be installed in the workload.
fn has_identity(servers: &Servers) -> bool {
    ["serviceaccounts", "clusterroles", "clusterrolebindings"]
        .iter()
        .all(|kind| servers.of(Server::Workload, kind).next().is_some())
}

/// Returns the values that an App names; null if its Package takes none. Without `valuesFrom`, ytt renders the defaults.
fn values_of(servers: &Servers, package: usize, spec: &Value) -> Option<Value> {
    let Some(tool) = spec["template"][0].get("ytt") else {
        return Some(Value::Null);
    };
    let (server, namespace) = home(package);
    let Some(source) = tool["valuesFrom"].get(0) else {
        return Some(no_values());
    };
    let name = source["secretRef"]["name"].as_str()?;
    let secret = servers.get(&place(server, "secrets", namespace, name))?;
    Some(secret["data"].clone())
}

fn set(servers: &mut Servers, app: &Place, generation: u64, type_: &str) {
    servers.edit(app, |app| {
        app["status"]["observedGeneration"] = json!(generation);
        app["status"]["conditions"] = condition(type_);
        // The failure stays until a run succeeds.
        let failures = &mut app["status"]["consecutiveReconcileFailures"];
        match type_ {
            "ReconcileSucceeded" => *failures = Value::Null,
            "ReconcileFailed" => *failures = json!(failures.as_u64().unwrap_or_default() + 1),
            _ => {}
        }
    });
}

/// Returns the fields of an App that come from the Package.
fn steps(spec: &Value) -> Value {
    let mut steps = json!([spec["fetch"], spec["template"], spec["deploy"]]);
    if let Some(tool) = steps.pointer_mut("/1/0/ytt").and_then(Value::as_object_mut) {
        tool.remove("valuesFrom");
    }
    steps
}
