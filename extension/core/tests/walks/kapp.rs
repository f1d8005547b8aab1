//! kapp-controller, as far as its word is a proof: PackageInstalls become Apps, and an App is deployed from what its Package and its
//! values Secret are when the run begins.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_core::pass::Server;
use sluice_crds::labels::annotation;

use crate::{
    objects::{SYSTEM, control_plane, of_package, package_place},
    servers::{Place, Servers, place},
};

/// What a run deploys: the steps of the Package, the content of the values, and the version of the API server that it runs on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Deployed {
    pub(crate) version: Value,
    pub(crate) template: Value,
    pub(crate) values: Value,
    pub(crate) stage: Value,
}

/// What runs, and what was deployed last, by package.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kapp {
    runs: BTreeMap<usize, (u64, Deployed)>,
    pub(crate) deployed: BTreeMap<usize, Deployed>,
}

impl Kapp {
    /// Makes the App of a package what its PackageInstall asks for, and mirrors its status.
    pub(crate) fn sync(&mut self, servers: &mut Servers, package: usize) {
        let (install_at, app_at) = (
            of_package(package, "packageinstalls"),
            of_package(package, "apps"),
        );
        let Some(install) = servers.get(&install_at).cloned() else {
            // Uninstalled with its owner.
            servers.remove(&app_at);
            self.runs.remove(&package);
            self.deployed.remove(&package);
            return;
        };
        let reference = &install["spec"]["packageRef"];
        let wanted = &reference["versionSelection"]["constraints"];
        let tried = &install["status"]["lastAttemptedVersion"];
        let allowed = !install["metadata"]["annotations"]["packaging.carvel.dev/downgradable"].is_null();
        // Versions of a walk compare as texts.
        let lower = tried
            .as_str()
            .is_some_and(|tried| wanted.as_str().unwrap_or_default() < tried);
        let (namespace, server) = if app_at.0 {
            (app_at.2.clone(), Server::Workload)
        } else {
            (SYSTEM.to_owned(), Server::Management)
        };
        let name = format!(
            "{}.{}",
            reference["refName"].as_str().unwrap_or_default(),
            wanted.as_str().unwrap_or_default()
        );
        let Some(source) = servers
            .get(&place(server, "packages", &namespace, &name))
            .cloned()
        else {
            return;
        };
        if lower && !allowed {
            return;
        }
        let mut spec = source["spec"]["template"]["spec"].clone();
        spec["template"][0]["ytt"]["valuesFrom"] = install["spec"]["values"].clone();
        let owner = json!([{
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "name": install["metadata"]["name"], "uid": install["metadata"]["uid"],
        }]);
        let app = json!({
            "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
            "metadata": {"ownerReferences": owner, "annotations": {annotation::PACKAGE_VERSION: wanted}},
            "spec": spec, "status": {},
        });
        match servers.get(&app_at).cloned() {
            None => drop(servers.put(app_at.clone(), app)),
            Some(found) => {
                let mut next = found.clone();
                next["spec"] = app["spec"].clone();
                for field in ["ownerReferences", "annotations"] {
                    next["metadata"][field] = app["metadata"][field].clone();
                }
                if next != found {
                    servers.put(app_at.clone(), next);
                }
            }
        }
        let app = servers.get(&app_at).cloned().unwrap_or_default();
        let seen = app["status"]["observedGeneration"] == app["metadata"]["generation"];
        let conditions = if seen {
            app["status"]["conditions"].clone()
        } else {
            json!([{"type": "Reconciling", "status": "True"}])
        };
        let status = json!({
            "observedGeneration": install["metadata"]["generation"], "version": wanted,
            "lastAttemptedVersion": wanted, "conditions": conditions,
        });
        if install["status"] != status {
            servers.edit(&install_at, |install| install["status"] = status);
        }
    }

    /// Begins a run of an App, if there is something to deploy.
    pub(crate) fn begin(&mut self, servers: &mut Servers, package: usize) {
        let app_at = of_package(package, "apps");
        let Some(app) = servers.get(&app_at).cloned() else {
            return;
        };
        let values = |secret: &Value| {
            let name = secret["secretRef"]["name"].as_str().unwrap_or_default();
            let server = if app_at.0 {
                Server::Workload
            } else {
                Server::Management
            };
            servers.get(&place(server, "secrets", &app_at.2, name))
        };
        // Without its values a run fails; it is tried again.
        let Some(values) = values(&app["spec"]["template"][0]["ytt"]["valuesFrom"][0]).cloned() else {
            return;
        };
        let stage = servers
            .get(&control_plane())
            .map(|plane| plane["status"]["version"].clone());
        let deployed = Deployed {
            version: app["metadata"]["annotations"][annotation::PACKAGE_VERSION].clone(),
            template: without_values(&app["spec"]),
            values: values["data"].clone(),
            stage: stage.unwrap_or_default(),
        };
        let generation = app["metadata"]["generation"].as_u64().unwrap_or_default();
        self.runs.insert(package, (generation, deployed));
        set(servers, &app_at, generation, "Reconciling");
    }

    /// Ends the run of an App.
    pub(crate) fn end(&mut self, servers: &mut Servers, package: usize, well: bool) {
        let Some((generation, deployed)) = self.runs.remove(&package) else {
            return;
        };
        let app_at = of_package(package, "apps");
        // What a run that fails has left behind is not known.
        self.deployed.remove(&package);
        if well {
            self.deployed.insert(package, deployed);
        }
        let condition = if well {
            "ReconcileSucceeded"
        } else {
            "ReconcileFailed"
        };
        set(servers, &app_at, generation, condition);
    }

    /// Whether the package is deployed as its Package, with this version, and its values are now, on the API server that runs now, and
    /// nothing else is being deployed. The same may be: a proof outlives that kapp-controller looks again.
    pub(crate) fn is_right(&self, servers: &Servers, package: usize, name: &str, values: &Value) -> bool {
        let Some(source) = servers.get(&package_place(name)) else {
            return false;
        };
        let stage = servers
            .get(&control_plane())
            .map(|plane| &plane["status"]["version"]);
        self.deployed.get(&package).is_some_and(|deployed| {
            deployed.version == source["spec"]["version"]
                && deployed.template == without_values(&source["spec"]["template"]["spec"])
                && deployed.values == *values
                && Some(&deployed.stage) == stage
                && self
                    .runs
                    .get(&package)
                    .is_none_or(|(_, running)| running == deployed)
        })
    }
}

fn set(servers: &mut Servers, app: &Place, generation: u64, condition: &str) {
    servers.edit(app, |app| {
        app["status"] = json!({
            "observedGeneration": generation,
            "conditions": [{"type": condition, "status": "True"}],
        });
    });
}

fn without_values(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(tool) = spec["template"][0]["ytt"].as_object_mut() {
        tool.remove("valuesFrom");
    }
    spec
}
