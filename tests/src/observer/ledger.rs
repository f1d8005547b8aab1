//! The state of a stack as its writes tell it, and the judgement on each write of a version.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster::{ClusterView, Exceptions, WantedPackage, packages, release_data, topology_message};
use super::conditions::{CLUSTER_NAME, label, text};
use super::evidence::{Evidence, Finding};
use super::feed::{Change, Revision};
use super::key::{self, Key, Kind, Place};
use super::milestone::{Event, Milestone};
use super::violation::Violation;
use super::workers::{Machine, Workers};

/// Namespace and name.
type Name = (String, String);

/// Everything that the observer keeps: latest states for the judgement, milestones and violations for the report.
#[derive(Debug, Default)]
pub struct Ledger {
    clusters: BTreeMap<Name, ClusterView>,
    machine_deployments: BTreeMap<Name, Workers>,
    machines: BTreeMap<Name, Machine>,
    /// Kubernetes version by name of the release.
    releases: BTreeMap<String, String>,
    templates: BTreeMap<String, Vec<WantedPackage>>,
    bootstraps: BTreeMap<Name, (Vec<WantedPackage>, Exceptions)>,
    /// refName and version by name of the Package.
    packages: BTreeMap<String, (String, String)>,
    evidence: BTreeMap<(Place, Name), Evidence>,
    milestones: Vec<Milestone>,
    violations: Vec<Violation>,
    revision: Revision,
}

impl Ledger {
    /// Takes the next write.
    pub fn observe(&mut self, change: &Change) {
        self.revision = change.revision;
        let Some(key) = key::parse(&change.key) else {
            return;
        };
        match (key.kind, &change.object) {
            (Kind::PackageInstall | Kind::App, object) => self.evidence_written(change, key, object.clone()),
            (Kind::Cluster, Some(object)) => self.cluster_written(change, key, object),
            (Kind::ControlPlane, Some(object)) => self.control_plane_written(change, &key, object),
            (Kind::MachineDeployment, Some(object)) => self.machine_deployment_written(change, key, object),
            (Kind::Machine, object) => self.machine_written(change, key, object.as_ref()),
            (Kind::Release, Some(object)) => {
                self.releases
                    .insert(key.name, text(object, "/spec/kubernetes/version"));
            }
            (Kind::Template, Some(object)) => {
                self.templates.insert(key.name, packages(object));
            }
            (Kind::Bootstrap, Some(object)) => {
                let view = (packages(object), Exceptions::of(object));
                let name = (key.namespace, key.name);
                if self.bootstraps.insert(name.clone(), view).is_none() {
                    self.note(change, &name, Event::Bootstrapped);
                }
            }
            (Kind::Package, Some(object)) => self.package_written(object),
            (kind, None) => self.deleted(kind, key),
        }
    }

    /// Revision of the last write taken.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Writes that came too early, in order.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// What happened, in order.
    #[must_use]
    pub fn milestones(&self) -> &[Milestone] {
        &self.milestones
    }

    fn deleted(&mut self, kind: Kind, key: Key) {
        let Key { namespace, name, .. } = key;
        match kind {
            Kind::Cluster => drop(self.clusters.remove(&(namespace, name))),
            Kind::MachineDeployment => drop(self.machine_deployments.remove(&(namespace, name))),
            Kind::Release => drop(self.releases.remove(&name)),
            Kind::Template => drop(self.templates.remove(&name)),
            Kind::Bootstrap => drop(self.bootstraps.remove(&(namespace, name))),
            // Package objects are stored under a name that is not theirs; their state matters only while they are wanted.
            Kind::ControlPlane | Kind::Machine | Kind::Package | Kind::PackageInstall | Kind::App => {}
        }
    }

    fn package_written(&mut self, object: &Value) {
        let (ref_name, version) = (text(object, "/spec/refName"), text(object, "/spec/version"));
        self.packages
            .insert(format!("{ref_name}.{version}"), (ref_name, version));
    }

    fn cluster_written(&mut self, change: &Change, key: Key, object: &Value) {
        let name = (key.namespace, key.name);
        let cluster = self.clusters.entry(name.clone()).or_default();
        let tkr = label(object, "run.tanzu.vmware.com/tkr");
        let relabelled = tkr != cluster.tkr;
        cluster.tkr.clone_from(&tkr);
        let paused = object["spec"]["paused"] == true;
        let pause = (paused != cluster.paused).then_some(paused);
        cluster.paused = paused;
        let message = topology_message(object);
        let says = (message != cluster.topology_message).then(|| message.clone());
        cluster.topology_message = message;
        let data = release_data(object, &cluster.running);
        let before = std::mem::replace(&mut cluster.release_data, data);
        if relabelled {
            self.note(change, &name, Event::Labelled { tkr });
        }
        if let Some(paused) = pause {
            self.note(change, &name, Event::Paused { paused });
        }
        if let Some(message) = says {
            self.note(change, &name, Event::Topology { message });
        }
        // No hook covers a release with the same Kubernetes version: machines roll when their data changes.
        let cluster = self.clusters.entry(name.clone()).or_default();
        if before.is_some() && before != cluster.release_data {
            let version = cluster.running.clone();
            self.judge(change, &name, &version, Step::ReleaseData);
        }
    }

    fn control_plane_written(&mut self, change: &Change, key: &Key, object: &Value) {
        let name = (key.namespace.clone(), label(object, CLUSTER_NAME));
        let cluster = self.clusters.entry(name.clone()).or_default();
        let running_before = cluster.running.clone();
        let is_new = cluster.control_plane_uid.is_empty();
        let changed = cluster.control_plane_written(change.revision, object);
        let (version, running) = (cluster.version.clone(), cluster.running.clone());
        if is_new {
            let version = version.clone();
            self.note(change, &name, Event::ControlPlaneCreated { version });
        }
        if changed.is_some() {
            self.judge(change, &name, &version, Step::ControlPlane);
            self.note(change, &name, Event::ControlPlaneWritten { version });
        }
        if running != running_before && !running.is_empty() {
            self.note(change, &name, Event::ControlPlaneRuns { version: running });
        }
    }

    fn machine_deployment_written(&mut self, change: &Change, key: Key, object: &Value) {
        let name = (key.namespace, key.name);
        let workers = self.machine_deployments.entry(name.clone()).or_default();
        if workers.written(object) {
            let (cluster, version) = ((name.0.clone(), workers.cluster.clone()), workers.version.clone());
            self.judge(change, &cluster, &version, Step::Workers);
            let event = Event::WorkersWritten {
                machine_deployment: name.1.clone(),
                version,
            };
            self.note(change, &cluster, event);
        }
        self.look_at_workers(change, &name);
    }

    fn machine_written(&mut self, change: &Change, key: Key, object: Option<&Value>) {
        let name = (key.namespace, key.name);
        let before = match object {
            Some(object) => self.machines.insert(name.clone(), Machine::read(object)),
            None => self.machines.remove(&name),
        };
        if let Some(machine) = self.machines.get(&name).or(before.as_ref()) {
            let machine_deployment = (name.0, machine.owner.clone());
            self.look_at_workers(change, &machine_deployment);
        }
    }

    /// Notes when the last Machine of a MachineDeployment has followed a change of version.
    fn look_at_workers(&mut self, change: &Change, name: &Name) {
        let Some(workers) = self.machine_deployments.get_mut(name) else {
            return;
        };
        let machines = self
            .machines
            .iter()
            .filter(|((namespace, _), machine)| *namespace == name.0 && machine.owner == name.1)
            .map(|(_, machine)| machine);
        if workers.have_followed(machines) {
            let (cluster, version) = (workers.cluster.clone(), workers.version.clone());
            let event = Event::WorkersDone {
                machine_deployment: name.1.clone(),
                version,
            };
            self.note(change, &(name.0.clone(), cluster), event);
        }
    }

    fn evidence_written(&mut self, change: &Change, key: Key, object: Option<Value>) {
        let place = key.place;
        let name = (key.namespace, key.name);
        let evidence = self.evidence.entry((place.clone(), name.clone())).or_default();
        let findings = if key.kind == Kind::App {
            evidence.app_written(change.revision, object)
        } else {
            evidence.install_written(change.revision, object)
        };
        let (ref_name, secret) = (evidence.ref_name(), evidence.kubeconfig_secret());
        let cluster = match &place {
            Place::Management => secret
                .strip_suffix("-kubeconfig")
                .map(|cluster| (name.0, cluster.to_owned())),
            Place::Workload(uid) => self.cluster_of(uid),
        };
        let Some(cluster) = cluster else {
            return;
        };
        for finding in findings {
            let ref_name = ref_name.clone();
            let event = match finding {
                Finding::Proven(version) => Event::PackageProven { ref_name, version },
                Finding::Working(version) => Event::PackageWorking { ref_name, version },
                Finding::Failed(version) => Event::PackageFailed { ref_name, version },
                Finding::FalseSuccess(version) => Event::FalseSuccess { ref_name, version },
            };
            self.note(change, &cluster, event);
        }
    }

    fn cluster_of(&self, control_plane_uid: &str) -> Option<Name> {
        self.clusters
            .iter()
            .find(|(_, cluster)| cluster.control_plane_uid == control_plane_uid)
            .map(|(name, _)| name.clone())
    }

    fn note(&mut self, change: &Change, cluster: &Name, event: Event) {
        self.milestones.push(Milestone {
            revision: change.revision,
            seen: change.seen,
            namespace: cluster.0.clone(),
            cluster: cluster.1.clone(),
            event,
        });
    }

    /// Records a violation if the packages for `version` have no proof at this moment.
    fn judge(&mut self, change: &Change, name: &Name, version: &str, step: Step) {
        let missing = self.missing(name, version, step);
        if missing.is_empty() {
            return;
        }
        self.violations.push(Violation {
            revision: change.revision,
            namespace: name.0.clone(),
            cluster: name.1.clone(),
            write: format!("{step} {version}"),
            missing,
        });
    }

    fn missing(&self, name: &Name, version: &str, step: Step) -> Vec<String> {
        let Some(cluster) = self.clusters.get(name) else {
            return vec![format!("a Cluster {}/{}", name.0, name.1)];
        };
        let bootstrap = self.bootstraps.get(name);
        if cluster.tkr.is_empty() && bootstrap.is_none() {
            return Vec::new();
        }
        let release = match self.release(&cluster.tkr, version) {
            Ok(release) => release,
            Err(missing) => return vec![missing],
        };
        let Some(template) = self.templates.get(release) else {
            return vec![format!("a template of release {release}")];
        };
        let (own, exceptions) = bootstrap.cloned().unwrap_or_default();
        // A write to workers needs a run against the control plane that they will talk to.
        let run_after = match step {
            Step::Workers => cluster.running_since,
            Step::ControlPlane | Step::ReleaseData => 0,
        };
        let mut missing = Vec::new();
        for (package, (ref_name, package_version)) in self.wanted(template, &own, &mut missing) {
            let excepted = step == Step::ControlPlane && exceptions.after_control_plane.contains(&ref_name);
            let applied = exceptions.applied.contains(&ref_name);
            let found: Vec<&Evidence> = self.evidence_of(name, cluster, &package, &ref_name).collect();
            let proven = !found.is_empty()
                && found.iter().all(|evidence| {
                    applied && evidence.has_taken_up(&package_version)
                        || evidence.proof().is_some_and(|proof| {
                            proof.version == package_version && proof.run_began > run_after
                        })
                });
            if !excepted && !proven {
                missing.push(describe(&package, &found, run_after));
            }
        }
        missing
    }

    /// Name of the release whose packages belong to `version`: that of the label, else the only one there is.
    fn release(&self, tkr: &str, version: &str) -> Result<&str, String> {
        let mut fitting = self
            .releases
            .iter()
            .filter(|(_, kubernetes)| *kubernetes == version);
        if let Some((name, _)) = fitting.clone().find(|(name, _)| *name == tkr) {
            return Ok(name);
        }
        match (fitting.next(), fitting.next()) {
            (Some((name, _)), None) => Ok(name),
            (None, _) => Err(format!("a release of Kubernetes {version}")),
            (Some(_), Some(_)) => Err(format!("one release of Kubernetes {version}: there are several")),
        }
    }

    /// The template's packages, and those that only the ClusterBootstrap has, with refName and version. A package of the
    /// ClusterBootstrap that no template names was chosen by its user, and stands for the template's.
    fn wanted(
        &self,
        template: &[WantedPackage],
        own: &[WantedPackage],
        missing: &mut Vec<String>,
    ) -> Vec<(WantedPackage, (String, String))> {
        let mut wanted: Vec<(WantedPackage, (String, String))> = Vec::new();
        let named = |package: &&WantedPackage| {
            self.templates
                .values()
                .flatten()
                .any(|known| known.name == package.name)
        };
        let chosen = own.iter().filter(|package| !named(package));
        for package in chosen.chain(template).chain(own) {
            match self.packages.get(&package.name) {
                None => missing.push(format!("a Package {}", package.name)),
                Some(found) if wanted.iter().any(|(_, (ref_name, _))| *ref_name == found.0) => {}
                Some(found) => wanted.push((package.clone(), found.clone())),
            }
        }
        wanted
    }

    fn evidence_of<'a>(
        &'a self,
        name: &'a Name,
        cluster: &'a ClusterView,
        package: &'a WantedPackage,
        ref_name: &'a str,
    ) -> impl Iterator<Item = &'a Evidence> {
        let kubeconfig = format!("{}-kubeconfig", name.1);
        self.evidence
            .iter()
            .filter(move |((place, (namespace, _)), evidence)| {
                let is_here = match place {
                    Place::Management => {
                        package.is_kapp_controller
                            && *namespace == name.0
                            && evidence.kubeconfig_secret() == kubeconfig
                    }
                    Place::Workload(uid) => !package.is_kapp_controller && *uid == cluster.control_plane_uid,
                };
                is_here && evidence.ref_name() == ref_name
            })
            .map(|(_, evidence)| evidence)
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    ControlPlane,
    Workers,
    ReleaseData,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ControlPlane => "the control plane was written to",
            Self::Workers => "a MachineDeployment was written to",
            Self::ReleaseData => "TKR_DATA was changed for",
        })
    }
}

fn describe(package: &WantedPackage, found: &[&Evidence], run_after: Revision) -> String {
    if found.is_empty() {
        return format!("{} (not installed)", package.name);
    }
    let states: Vec<String> = found
        .iter()
        .map(|evidence| match evidence.proof() {
            Some(proof) if proof.run_began <= run_after => format!(
                "proven at {} by a run from revision {}, older than {run_after}",
                proof.version, proof.run_began
            ),
            _ => evidence.describe(),
        })
        .collect();
    format!("{} ({})", package.name, states.join(", "))
}
