//! The state of a stack by its writes, and the judgement on each write of a version.

mod checks;
mod judgement;
mod overrides;
mod rollback;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::judgement::{Missing, Step};
use self::overrides::{Early, Overrides};
use super::answer::{Answered, NextGate};
use super::bootstrap::{Bootstrap, WantedPackage, packages};
use super::cluster::{ClusterObject, ClusterView, Reproof};
use super::conditions::{CLUSTER_NAME, label, text};
use super::evidence::{Evidence, Finding};
use super::feed::{Change, Revision};
use super::gates::{Gates, Stage};
use super::key::{self, Key, Kind, Place};
use super::milestone::{Event, Milestone};
use super::release_data::EntryWritten;
use super::values::Sources;
use super::violation::{Rule, Violation};
use super::workers::{Machine, Workers};
use crate::stack::SYSTEM_NAMESPACE;

/// Hooks that are released when everything was proven again.
const AFTER_CONTROL_PLANE: &str = "AfterControlPlaneUpgrade";
const AFTER_CLUSTER: &str = "AfterClusterUpgrade";

/// Namespace and name.
type Name = (String, String);

/// Everything that the observer keeps: latest states for the judgement, milestones and violations for the report.
#[derive(Debug, Default)]
pub struct Ledger {
    clusters: BTreeMap<Name, ClusterView>,
    machine_deployments: BTreeMap<Name, Workers>,
    machine_pools: BTreeMap<Name, Workers>,
    machines: BTreeMap<Name, Machine>,
    /// Clusters that have had a machine of a Supervisor.
    on_supervisor: BTreeSet<Name>,
    /// Kubernetes version by name of the release.
    releases: BTreeMap<String, String>,
    templates: BTreeMap<String, Vec<WantedPackage>>,
    bootstraps: BTreeMap<Name, Bootstrap>,
    /// Names of the packages that a ClusterBootstrap had last, by its name and their release.
    sets: BTreeMap<(Name, String), BTreeSet<String>>,
    /// refName and version by name of the Package.
    packages: BTreeMap<String, (String, String)>,
    evidence: BTreeMap<(Place, Name), Evidence>,
    sources: Sources,
    gates: Gates,
    overrides: Overrides,
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
        match key.kind {
            Kind::Secret => {
                let name = (key.namespace.clone(), key.name.clone());
                let (place, object) = (key.place.clone(), change.object.as_ref());
                if !self.sources.secret_written(change.revision, place, name, object) {
                    return;
                }
            }
            Kind::Provider => {
                if !self.sources.provider_written(&change.key, change.object.as_ref()) {
                    return;
                }
            }
            Kind::UpgradeGate => {
                let name = (key.namespace.clone(), key.name.clone());
                self.gates.gate_written(name, change.object.as_ref());
                return self.look_at_checks(change, &key);
            }
            Kind::UpgradeOverride => return self.overrides.written(change, key),
            Kind::Checked(kind) => {
                self.gates
                    .object_written(key.clone(), kind, change.object.clone());
                return self.look_at_checks(change, &key);
            }
            _ => self.take(change, key.clone()),
        }
        self.look_again(change, &key);
        self.look_at_checks(change, &key);
    }

    fn take(&mut self, change: &Change, key: Key) {
        match (key.kind, &change.object) {
            (Kind::PackageInstall | Kind::App, object) => self.evidence_written(change, key, object.clone()),
            (Kind::Cluster, Some(object)) => self.cluster_written(change, key, object),
            (Kind::ControlPlane, Some(object)) => self.control_plane_written(change, &key, object),
            (Kind::MachineDeployment, Some(object)) => self.machine_deployment_written(change, key, object),
            (Kind::MachinePool, Some(object)) => self.machine_pool_written(change, key, object),
            (Kind::Machine, object) => self.machine_written(change, key, object.as_ref()),
            (Kind::Release, Some(object)) => {
                self.releases
                    .insert(key.name, text(object, "/spec/kubernetes/version"));
            }
            (Kind::Template, Some(object)) => {
                self.templates.insert(key.name, packages(object));
            }
            (Kind::Bootstrap, Some(object)) => self.bootstrap_written(change, key, object),
            (Kind::Package, Some(object)) => self.package_written(object),
            (Kind::VirtualMachine, Some(object)) => {
                let cluster = label(object, "capv.vmware.com/cluster.name");
                self.on_supervisor.insert((key.namespace, cluster));
            }
            // Taken before.
            (
                Kind::Secret | Kind::Provider | Kind::UpgradeGate | Kind::UpgradeOverride | Kind::Checked(_),
                _,
            ) => {}
            (kind, None) => self.deleted(kind, key),
        }
    }

    /// Notes that everything up to `revision` has been taken: the last writes may have been deletions, which no state shows.
    pub(super) fn reached(&mut self, revision: Revision) {
        self.revision = revision;
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

    /// What is not judged of the checks of UpgradeGates in a namespace: expressions, and objects of kinds without a rule here.
    #[must_use]
    pub fn left_out(&self, namespace: &str) -> Vec<String> {
        self.gates.left_out(namespace)
    }

    /// What happened, in order.
    #[must_use]
    pub fn milestones(&self) -> &[Milestone] {
        &self.milestones
    }

    fn deleted(&mut self, kind: Kind, key: Key) {
        let Key { namespace, name, .. } = key;
        match kind {
            // Its control plane may outlive it, and be given to the next one of that name.
            Kind::Cluster => {
                if let Some(cluster) = self.clusters.get_mut(&(namespace, name)) {
                    cluster.object = None;
                }
            }
            Kind::MachinePool => drop(self.machine_pools.remove(&(namespace, name))),
            Kind::MachineDeployment => drop(self.machine_deployments.remove(&(namespace, name))),
            Kind::Release => drop(self.releases.remove(&name)),
            Kind::Template => drop(self.templates.remove(&name)),
            Kind::Bootstrap => {
                let name = (namespace, name);
                self.bootstraps.remove(&name);
                self.sets.retain(|(of, _), _| *of != name);
                if let Some(cluster) = self.clusters.get_mut(&name) {
                    cluster.gate = None;
                }
            }
            // Package objects are stored under a name that is not theirs; their state matters only while they are wanted.
            Kind::ControlPlane
            | Kind::Machine
            | Kind::Package
            | Kind::PackageInstall
            | Kind::App
            | Kind::Secret
            | Kind::VirtualMachine
            | Kind::UpgradeGate
            | Kind::UpgradeOverride
            | Kind::Checked(_)
            | Kind::Provider => {}
        }
    }

    fn package_written(&mut self, object: &Value) {
        let (ref_name, version) = (text(object, "/spec/refName"), text(object, "/spec/version"));
        self.packages
            .insert(format!("{ref_name}.{version}"), (ref_name, version));
    }

    fn bootstrap_written(&mut self, change: &Change, key: Key, object: &Value) {
        let name = (key.namespace, key.name);
        let before = self.bootstraps.insert(name.clone(), Bootstrap::read(object));
        match before {
            None => self.note(change, &name, Event::Bootstrapped),
            Some(before) => self.judge_rollback(change, &name, &before),
        }
        self.keep_set(&name);
        self.overrides.recorded(&name, object);
        if let Some(cluster) = self.clusters.get_mut(&name) {
            let at = (change.revision, change.seen);
            let before = cluster.open_gate();
            cluster.gate = NextGate::recorded(cluster.gate.take(), at, &cluster.version, object);
            let open = cluster.open_gate();
            if open != before
                && let Some(version) = open
            {
                self.note(change, &name, Event::GateOpened { version });
            }
        }
    }

    fn cluster_written(&mut self, change: &Change, key: Key, object: &Value) {
        let name = (key.namespace, key.name);
        let now = ClusterObject::read(object);
        let withdrawn = self.withdrawn(&name, &now, change.seen);
        let cluster = self.clusters.entry(name.clone()).or_default();
        let before = cluster.object.replace(now.clone());
        cluster.withdrawn = withdrawn;
        if before.as_ref().is_some_and(|before| before.target != now.target) {
            (cluster.aimed, cluster.aimed_at) = (now.generation, change.revision);
        }
        if before.as_ref().is_some_and(|before| before.tkr != now.tkr) {
            cluster.labelled_at = change.revision;
        }
        let version = cluster.version.clone();
        let known = before.clone().unwrap_or_default();
        let turned = |hook: &str| {
            (
                known.pending_hooks.contains(hook),
                now.pending_hooks.contains(hook),
            )
        };
        let gate = cluster.gate.as_ref();
        let may_be_answered = gate.is_some_and(|gate| gate.may_be_answered(change.seen));
        match turned(AFTER_CONTROL_PLANE) {
            (false, true) if may_be_answered => {
                let (revision, seen) = (change.revision, change.seen);
                cluster.answered = Some(Answered { revision, seen });
            }
            (true, false) => cluster.answered = None,
            _ => {}
        }
        if known.tkr != now.tkr {
            let tkr = now.tkr.clone();
            self.note(change, &name, Event::Labelled { tkr });
        }
        if known.paused != now.paused {
            let paused = now.paused;
            self.note(change, &name, Event::Paused { paused });
        }
        if known.topology_message != now.topology_message {
            let message = now.topology_message.clone();
            self.note(change, &name, Event::Topology { message });
        }
        // Cluster API may not know yet that it has just written the next version, and asks about the one before.
        let runs = self
            .clusters
            .get(&name)
            .is_some_and(|cluster| cluster.running == version);
        for hook in [AFTER_CONTROL_PLANE, AFTER_CLUSTER] {
            if runs && turned(hook) == (true, false) && !self.has_just_rolled_back(&name, change.seen) {
                self.judge_reproof(change, &name, &version, format!("{hook} was passed at {version}"));
            }
        }
        // No hook covers a release with the same Kubernetes version: machines roll when their data changes.
        let Some(before) = before else { return };
        let versions = self.versions_of(&name);
        let mut noted = BTreeSet::new();
        for entry in before.release_data.changed(&now.release_data, &versions) {
            let EntryWritten {
                part,
                version,
                release,
            } = entry;
            let write = format!("TKR_DATA of {part} was changed for {version}");
            self.judge(
                change,
                &name,
                &version,
                Step::ReleaseData(release.as_deref()),
                write,
            );
            let release = release.unwrap_or_default();
            if noted.insert((version.clone(), release.clone())) {
                self.note(change, &name, Event::ReleaseDataWritten { version, release });
            }
        }
    }

    /// Kubernetes versions that machines of a Cluster run, or are being made for.
    fn versions_of(&self, name: &Name) -> BTreeSet<String> {
        let control_plane = self.clusters.get(name).map(|cluster| cluster.versions.clone());
        let pools = self
            .machine_deployments
            .iter()
            .chain(&self.machine_pools)
            .filter(|((namespace, _), pool)| *namespace == name.0 && pool.cluster == name.1)
            .map(|(_, pool)| &pool.version);
        let machines = self
            .machines
            .iter()
            .filter(|((namespace, _), machine)| *namespace == name.0 && machine.cluster == name.1)
            .map(|(_, machine)| &machine.version);
        let mut versions = control_plane.unwrap_or_default();
        versions.extend(pools.chain(machines).cloned());
        versions
    }

    fn control_plane_written(&mut self, change: &Change, key: &Key, object: &Value) {
        let name = (key.namespace.clone(), label(object, CLUSTER_NAME));
        let cluster = self.clusters.entry(name.clone()).or_default();
        let (uid, ran) = (cluster.control_plane_uid.clone(), cluster.running.clone());
        let before = cluster.control_plane_written(change.revision, object);
        let (version, running) = (cluster.version.clone(), cluster.running.clone());
        if cluster.control_plane_uid != uid {
            let version = version.clone();
            self.note(change, &name, Event::ControlPlaneCreated { version });
        }
        if let Some(before) = before {
            let write = format!("the control plane was written to {version}");
            self.judge_reproof(change, &name, &before, format!("{write}, past {before},"));
            self.judge_gates(change, &name, &version, Stage::ControlPlane, &write);
            self.judge(change, &name, &version, Step::ControlPlane, write);
            let cluster = self.clusters.entry(name.clone()).or_default();
            cluster.reproof = Some(Reproof::default());
            (cluster.gate, cluster.answered, cluster.withdrawn) = (None, None, None);
            self.note(change, &name, Event::ControlPlaneWritten { version });
        }
        if running != ran && !running.is_empty() {
            self.note(change, &name, Event::ControlPlaneRuns { version: running });
        }
    }

    fn machine_pool_written(&mut self, change: &Change, key: Key, object: &Value) {
        let name = (key.namespace, key.name);
        let workers = self.machine_pools.entry(name.clone()).or_default();
        if workers.written(object) {
            let (cluster, version) = ((name.0, workers.cluster.clone()), workers.version.clone());
            let write = format!("a MachinePool was written to {version}");
            self.judge_gates(change, &cluster, &version, Stage::Workers, &write);
            self.judge(change, &cluster, &version, Step::Workers, write);
            let event = Event::WorkersWritten {
                machine_deployment: name.1,
                version,
            };
            self.note(change, &cluster, event);
        }
    }

    fn machine_deployment_written(&mut self, change: &Change, key: Key, object: &Value) {
        let name = (key.namespace, key.name);
        let workers = self.machine_deployments.entry(name.clone()).or_default();
        if workers.written(object) {
            let (cluster, version) = ((name.0.clone(), workers.cluster.clone()), workers.version.clone());
            let write = format!("a MachineDeployment was written to {version}");
            self.judge_gates(change, &cluster, &version, Stage::Workers, &write);
            self.judge(change, &cluster, &version, Step::Workers, write);
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
            Place::Management => match secret.strip_suffix("-kubeconfig") {
                Some(cluster) => Some((name.0, cluster.to_owned())),
                None => self.managing_itself(&name),
            },
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

    /// The Cluster on the management API server that an installation there belongs to.
    fn managing_itself(&self, installed: &Name) -> Option<Name> {
        let mut managing = self.clusters.iter().filter(|(_, cluster)| cluster.is_management);
        managing
            .find(|(name, _)| is_own_install(&name.1, &installed.0, &installed.1))
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

    /// Records a violation if `step` to `version` lacks a proof at this revision.
    fn judge(&mut self, change: &Change, name: &Name, version: &str, step: Step<'_>, write: String) {
        let cluster = self.clusters.get(name);
        if step == Step::ControlPlane && self.is_withdrawn(name, version) {
            return;
        }
        let gate = cluster
            .filter(|_| step == Step::ControlPlane)
            .and_then(|cluster| cluster.gate.as_ref())
            .filter(|gate| gate.version == version);
        let answered = cluster.and_then(|cluster| cluster.answered);
        let missing: Vec<Missing> = self
            .missing(name, version, step)
            .into_iter()
            .filter(|missing| !gate.is_some_and(|gate| gate.excuses(&missing.of, answered, change.seen)))
            .collect();
        if missing.is_empty() {
            return;
        }
        let early = Early {
            name,
            version,
            step,
            missing: &missing,
            seen: change.seen,
        };
        let (rule, write) = match self.overridden(&early) {
            Ok(uid) => return self.note_override(change, &early, &uid),
            Err(objections) if self.overrides.is_recorded(&early) => (
                Rule::InvalidOverride,
                format!("{write} by an override ({})", objections.join("; ")),
            ),
            Err(_) => (Rule::ReleasedBeforePackages, write),
        };
        let missing = missing.into_iter().map(|missing| missing.text).collect();
        self.violations.push(Violation {
            rule,
            revision: change.revision,
            namespace: name.0.clone(),
            cluster: name.1.clone(),
            write,
            missing,
        });
    }

    /// Judges, once for each version, a write that needs everything to have been proven again at `version`.
    fn judge_reproof(&mut self, change: &Change, name: &Name, version: &str, write: String) {
        let reproof = self
            .clusters
            .get_mut(name)
            .and_then(|cluster| cluster.reproof.as_mut());
        let Some(reproof) = reproof.filter(|reproof| !reproof.judged) else {
            return;
        };
        reproof.judged = true;
        if !reproof.seen {
            self.judge(change, name, version, Step::Reproof, write);
        }
    }

    /// Records new and lost proofs after a write.
    fn look_again(&mut self, change: &Change, key: &Key) {
        let affected: Vec<Name> = self
            .clusters
            .iter()
            .filter(|(name, cluster)| self.concerns(key, name, cluster))
            .map(|(name, _)| name.clone())
            .collect();
        for name in affected {
            let Some(cluster) = self.clusters.get(&name) else {
                continue;
            };
            let reproof = cluster.reproof.is_some_and(|reproof| !reproof.seen)
                && self.missing(&name, &cluster.version, Step::Reproof).is_empty();
            let missing = cluster
                .gate
                .as_ref()
                .map(|gate| self.missing(&name, &gate.version, Step::ControlPlane));
            let Some(cluster) = self.clusters.get_mut(&name) else {
                continue;
            };
            let proven_again = reproof.then(|| cluster.version.clone());
            if reproof {
                cluster.reproof = Some(Reproof {
                    seen: true,
                    ..cluster.reproof.unwrap_or_default()
                });
            }
            if let (Some(gate), Some(missing)) = (&mut cluster.gate, missing) {
                let missing = missing.into_iter().map(|missing| missing.of);
                gate.observe(change.revision, change.seen, key, missing);
            }
            if let Some(version) = proven_again {
                self.note(change, &name, Event::ProvenAgain { version });
            }
        }
    }

    /// Whether a write may change the proofs of a Cluster.
    fn concerns(&self, key: &Key, name: &Name, cluster: &ClusterView) -> bool {
        if let Place::Workload(uid) = &key.place {
            return *uid == cluster.control_plane_uid;
        }
        match key.kind {
            Kind::Release | Kind::Template | Kind::Package => true,
            Kind::Machine
            | Kind::MachineDeployment
            | Kind::MachinePool
            | Kind::UpgradeGate
            | Kind::UpgradeOverride
            | Kind::Checked(_) => false,
            Kind::Cluster | Kind::Bootstrap => (&key.namespace, &key.name) == (&name.0, &name.1),
            Kind::PackageInstall | Kind::App => {
                let installed = (key.place.clone(), (key.namespace.clone(), key.name.clone()));
                let evidence = self.evidence.get(&installed);
                let kubeconfig = format!("{}-kubeconfig", name.1);
                let from_outside = key.namespace == name.0
                    && evidence.is_some_and(|evidence| evidence.kubeconfig_secret() == kubeconfig);
                from_outside || (cluster.is_management && is_own_install(&name.1, &key.namespace, &key.name))
            }
            Kind::Secret if cluster.is_management && key.namespace == SYSTEM_NAMESPACE => true,
            Kind::ControlPlane | Kind::Secret | Kind::Provider | Kind::VirtualMachine => {
                key.namespace == name.0
            }
        }
    }
}

/// Whether a PackageInstall of the management API server is one that Cluster `cluster`, which manages itself, has there for itself.
fn is_own_install(cluster: &str, namespace: &str, install: &str) -> bool {
    let of_cluster = install.strip_prefix(cluster);
    namespace == SYSTEM_NAMESPACE && of_cluster.is_some_and(|rest| rest.starts_with('-'))
}
