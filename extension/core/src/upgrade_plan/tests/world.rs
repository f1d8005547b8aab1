//! Objects of a plan: a Cluster at the second of five minor versions with the fifth as its target, and a release of each version.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::Package,
    labels::{annotation, label, name},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, SCHEMA, TanzuKubernetesRelease},
};

use crate::{
    cache::stores::Releases,
    gate::plan_call::NoPlan,
    packages::{bootstrap::PackageFacts, requirements::ManagementPackages},
    protocol::{Failure, Interrupt, Key, Object, Read, ReadResult, Resource, Server, Step},
    reconcile::cluster::{
        CachedControlPlane, Context, Facts, LocalState,
        tests::{clock, facts},
    },
    upgrade::hop::{ControlPlaneFacts, Plan, Rollout, WorkerFacts},
    upgrade_plan::{Effect, FindingReason, Scope, StepsInputs, UpgradePlan, plan, steps},
};

pub(crate) const VERSIONS: [&str; 5] = ["v1.33.9", "v1.34.4", "v1.35.4", "v1.36.3", "v1.37.1"];
pub(crate) const RELEASES: [&str; 5] = [
    "v1.33.9---test.1",
    "v1.34.4---test.1",
    "v1.35.4---test.1",
    "v1.36.3---test.1",
    "v1.37.1---test.1",
];
/// Index of the version of the control plane.
pub(crate) const FROM: usize = 1;
/// Index of the target.
pub(crate) const TO: usize = 4;
/// Release that [`World::swap`] adds.
pub(crate) const OTHER_RELEASE: &str = "v1.34.4---test.2";

pub(crate) const KAPP: &str = "kapp-controller.example.com";
pub(crate) const ANTREA: &str = "antrea.example.com";
pub(crate) const METRICS: &str = "metrics.example.com";
/// Packages of each release. The third release adds one, and most steps keep some.
const PACKAGES: [&[(&str, &str)]; 5] = [
    &[(KAPP, "0.51.0"), (ANTREA, "1.7.0")],
    &[(KAPP, "0.52.0"), (ANTREA, "1.8.0")],
    &[(KAPP, "0.52.0"), (ANTREA, "1.9.0"), (METRICS, "1.0.0")],
    &[(KAPP, "0.53.1"), (ANTREA, "2.0.0"), (METRICS, "1.0.0")],
    &[(KAPP, "0.53.1"), (ANTREA, "2.1.0"), (METRICS, "1.1.0")],
];

pub(crate) fn typed<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn package_name((ref_name, version): &(&str, &str)) -> String {
    format!("{ref_name}.{version}")
}

/// Returns the spec of a ClusterBootstrap or a template with the packages of a release.
fn spec(release: usize) -> Value {
    let mut names = PACKAGES[release].iter().map(package_name);
    let (kapp, cni) = (names.next(), names.next());
    let additional: Vec<Value> = names.map(|name| json!({"refName": name})).collect();
    json!({"kapp": {"refName": kapp}, "cni": {"refName": cni}, "additionalPackages": additional})
}

pub(crate) fn a_release(name: &str, packages: usize) -> TanzuKubernetesRelease {
    let (kubernetes, _) = name.split_once("---").unwrap();
    let packages: Vec<Value> = PACKAGES[packages]
        .iter()
        .map(|package| json!({"name": package_name(package)}))
        .collect();
    typed(json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {"name": name},
        "spec": {
            "version": name.replace("---", "+"), "kubernetes": {"version": kubernetes}, "bootstrapPackages": packages,
        },
    }))
}

fn a_worker(version: &str) -> WorkerFacts {
    WorkerFacts {
        name: "md".to_owned(),
        spec_version: Some(version.to_owned()),
        versions: vec![version.to_owned()],
        ..WorkerFacts::default()
    }
}

/// Returns the error of hook GenerateUpgradePlan without any release.
pub(crate) fn no_release() -> NoPlan {
    let releases = Releases::new();
    let inputs = StepsInputs {
        from: VERSIONS[FROM],
        to: VERSIONS[TO],
        pinned: &[],
        recorded: &[],
        releases: &releases,
    };
    steps(inputs, &|_, _| true).unwrap_err().into()
}

/// Cached objects of a Cluster, and the objects that a plan of it may read.
pub(crate) struct World {
    pub(crate) facts: Facts,
    templates: BTreeMap<String, Arc<ClusterBootstrapTemplate>>,
    packages: BTreeMap<String, Arc<Package>>,
    /// PackageInstalls; the workload does not respond without any.
    installs: Vec<(Server, String, Value)>,
    /// Versions of the control plane on the API server, if the cache is behind.
    pub(crate) read_control_plane: Option<ControlPlaneFacts>,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self {
            facts: facts(),
            templates: BTreeMap::new(),
            packages: BTreeMap::new(),
            installs: Vec::new(),
            read_control_plane: None,
        };
        for (index, name) in RELEASES.iter().enumerate() {
            world.add_release(name, index);
        }
        for package in PACKAGES.iter().copied().flatten() {
            world.set_package(&package_name(package), &json!({}));
        }
        world.set_bootstrap(FROM);
        world.set_target(TO);
        world.set_control_plane(FROM, FROM);
        world.facts.workers = vec![a_worker(VERSIONS[FROM])];
        world.facts.plan = Plan::Listed(VERSIONS.map(str::to_owned).to_vec());
        world.facts.class = Some(Arc::new(typed(json!({
            "metadata": {"name": "class", "namespace": "team-a"}, "spec": {"kubernetesVersions": VERSIONS},
        }))));
        world
    }

    /// Adds a release with the packages of another one.
    pub(crate) fn add_release(&mut self, name: &str, packages: usize) {
        let releases = Arc::make_mut(&mut self.facts.releases);
        releases.insert(name.to_owned(), Arc::new(a_release(name, packages)));
        let template = json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrapTemplate",
            "metadata": {"name": name, "namespace": "system"}, "spec": spec(packages),
        });
        self.templates.insert(name.to_owned(), Arc::new(typed(template)));
    }

    pub(crate) fn remove_release(&mut self, release: usize) {
        Arc::make_mut(&mut self.facts.releases).remove(RELEASES[release]);
    }

    pub(crate) fn remove_template(&mut self, release: usize) {
        self.templates.remove(RELEASES[release]);
    }

    pub(crate) fn edit_release(&mut self, name: &str, edit: impl FnOnce(&mut TanzuKubernetesRelease)) {
        let releases = Arc::make_mut(&mut self.facts.releases);
        edit(Arc::make_mut(releases.get_mut(name).unwrap()));
    }

    pub(crate) fn label_release(&mut self, name: &str, label: &str) {
        self.edit_release(name, |release| {
            release.labels_mut().insert(label.to_owned(), String::new());
        });
    }

    /// Sets the management packages that a release needs.
    pub(crate) fn require(&mut self, release: usize, requires: &str) {
        self.edit_release(RELEASES[release], |release| {
            let requires = (annotation::REQUIRES.to_owned(), requires.to_owned());
            release.annotations_mut().extend([requires]);
        });
    }

    /// Sets the only management package, which is proven at this version.
    pub(crate) fn prove(&mut self, ref_name: &str, version: &str) {
        let succeeded = json!([{"type": "ReconcileSucceeded", "status": "True"}]);
        let status = json!({"observedGeneration": 1, "version": version, "conditions": succeeded});
        let install = json!({
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "metadata": {"name": "required", "namespace": "system", "uid": "install", "generation": 1},
            "spec": {"packageRef": {"refName": ref_name, "versionSelection": {"constraints": version}}},
            "status": status,
        });
        let app = json!({
            "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
            "metadata": {
                "name": "required", "namespace": "system", "uid": "app", "generation": 1,
                "annotations": {annotation::PACKAGE_VERSION: version},
                "ownerReferences": [{
                    "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall", "name": "required", "uid": "install",
                }],
            },
            "spec": {}, "status": {"observedGeneration": 1, "conditions": succeeded},
        });
        let mut packages = ManagementPackages::default();
        packages.install(&typed(install), true);
        packages.app(&typed(app), true);
        self.facts.management_packages = Arc::new(packages);
    }

    /// The label names another release of the version of the control plane, which has the packages of the third release.
    pub(crate) fn swap(&mut self) {
        self.add_release(OTHER_RELEASE, 2);
        self.set_target(FROM);
        OTHER_RELEASE.clone_into(&mut self.facts.label);
    }

    /// The upgrade to the next version was cancelled after its packages were merged. The policy asks for a rollback, and Cluster API has
    /// reconciled the earlier version.
    pub(crate) fn roll_back(&mut self) {
        self.set_bootstrap(FROM + 1);
        self.set_target(FROM);
        let packages = PACKAGES[FROM].iter().map(|package| {
            let before = json!({"name": package_name(package), "values": false});
            (package.0.to_owned(), before)
        });
        let packages: BTreeMap<String, Value> = packages.collect();
        let snapshot = json!({"version": VERSIONS[FROM], "release": RELEASES[FROM], "packages": packages});
        let record = json!({
            "schema": SCHEMA, "clusterUID": "uid", "observedClusterGeneration": 2, "observedBootstrapGeneration": 1,
            "label": RELEASES[FROM], "to": VERSIONS[FROM], "hop": VERSIONS[FROM + 1], "outcome": "Cancelled",
        });
        self.edit_bootstrap(|bootstrap| {
            let annotations = bootstrap.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::ROLLBACK_TO.to_owned(), snapshot.to_string());
            bootstrap.spec.upgrade_policy = Some(typed(json!({"onCancel": "Rollback"})));
            bootstrap.status = Some(typed(json!({"upgrade": record})));
        });
        let reconciled =
            json!({"type": name::TOPOLOGY_RECONCILED, "status": "True", "observedGeneration": 2});
        let cluster = Arc::make_mut(&mut self.facts.cluster);
        cluster.metadata.generation = Some(2);
        cluster.status = Some(typed(json!({"conditions": [reconciled]})));
    }

    /// Sets the release that the machines are made of.
    pub(crate) fn set_machines(&mut self, release: &str) {
        let entry = json!({"osImageRef": {}, "labels": {label::TKR: release}});
        let data = json!([{"name": name::TKR_DATA, "value": {VERSIONS[FROM]: entry}}]);
        self.facts.topology.variables = typed(data);
        let cluster = Arc::make_mut(&mut self.facts.cluster);
        cluster.spec.topology = Some(self.facts.topology.clone());
        self.facts.made_of = Some(release.to_owned());
    }

    /// Sets a Package with these further fields of its spec.
    pub(crate) fn set_package(&mut self, name: &str, more: &Value) {
        let (ref_name, version) = name.split_at(name.find("com.").unwrap() + 3);
        let mut spec = json!({"refName": ref_name, "version": &version[1..]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let package: Package = typed(json!({
            "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package",
            "metadata": {"name": name, "namespace": "system"}, "spec": spec,
        }));
        Arc::make_mut(&mut self.facts.catalogue).insert(name.to_owned(), PackageFacts::of(&package));
        self.packages.insert(name.to_owned(), Arc::new(package));
    }

    pub(crate) fn remove_package(&mut self, name: &str) {
        Arc::make_mut(&mut self.facts.catalogue).remove(name);
        self.packages.remove(name);
    }

    /// Sets the Kubernetes versions that a Package permits.
    pub(crate) fn constrain(&mut self, name: &str, constraints: &str) {
        self.set_package(
            name,
            &json!({"kubernetesVersionSelection": {"constraints": constraints}}),
        );
    }

    /// Sets a ClusterBootstrap with the packages of a release.
    pub(crate) fn set_bootstrap(&mut self, release: usize) {
        self.facts.bootstrap = Some(Arc::new(typed(json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
            "metadata": {
                "name": "one", "namespace": "team-a", "uid": "bootstrap",
                "annotations": {annotation::RESOLVED_TKR: RELEASES[release]},
                "ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": "uid",
                    "controller": true,
                }],
            },
            "spec": spec(release),
        }))));
    }

    pub(crate) fn edit_bootstrap(&mut self, edit: impl FnOnce(&mut ClusterBootstrap)) {
        edit(Arc::make_mut(self.facts.bootstrap.as_mut().unwrap()));
    }

    /// Sets the phase of a package.
    pub(crate) fn set_phase(&mut self, package: &str, phase: &str) {
        let policy = json!({"packages": [{"package": package, "phase": phase}]});
        self.edit_bootstrap(|bootstrap| bootstrap.spec.upgrade_policy = Some(typed(policy)));
    }

    /// Sets version and label of the Cluster.
    pub(crate) fn set_target(&mut self, to: usize) {
        RELEASES[to].clone_into(&mut self.facts.label);
        self.facts.topology.version = VERSIONS[to].to_owned();
        let cluster = Arc::make_mut(&mut self.facts.cluster);
        cluster.spec.topology = Some(self.facts.topology.clone());
    }

    /// Sets desired and current version of the control plane.
    pub(crate) fn set_control_plane(&mut self, desired: usize, current: usize) {
        self.facts.control_plane = Some(CachedControlPlane {
            key: Key {
                server: Server::Management,
                resource: Resource {
                    group: "controlplane.example.com".into(),
                    version: "v1".into(),
                    kind: "Good".into(),
                    plural: "goods".into(),
                },
                namespace: Some("team-a".to_owned()),
                name: "one".to_owned(),
            },
            uid: Some("plane".to_owned()),
            generation: Some(1),
            resource_version: Some("1".to_owned()),
            versions: ControlPlaneFacts {
                spec_version: Some(VERSIONS[desired].to_owned()),
                status_version: Some(VERSIONS[current].to_owned()),
            },
            rollout: Rollout::default(),
        });
    }

    /// Sets the steps that hook GenerateUpgradePlan of Sluice returns; Cluster API shows none yet.
    pub(crate) fn plan_steps(&mut self, steps: Result<&[&str], NoPlan>) {
        let owned = |steps: &[&str]| steps.iter().map(|step| (*step).to_owned()).collect();
        self.facts.own_steps = Some(steps.map(owned));
        self.facts.plan = Plan::Given {
            control_plane: Vec::new(),
            workers: Vec::new(),
        };
    }

    /// Sets the version of the workers.
    pub(crate) fn set_workers(&mut self, version: usize) {
        self.facts.workers = vec![a_worker(VERSIONS[version])];
    }

    /// The Cluster requests machines of releases: the entry of each version names an image, and each release has one.
    pub(crate) fn require_entries(&mut self) {
        let data = json!([{"name": name::TKR_DATA, "value": {VERSIONS[FROM]: {"osImageRef": {}}}}]);
        self.facts.topology.variables = typed(data);
        let cluster = Arc::make_mut(&mut self.facts.cluster);
        cluster
            .annotations_mut()
            .insert(annotation::RESOLVE_TKR.to_owned(), String::new());
        cluster.spec.topology = Some(self.facts.topology.clone());
        let class = json!({
            "metadata": {"name": "class", "namespace": "team-a"},
            "spec": {"kubernetesVersions": VERSIONS, "variables": [{"name": name::TKR_DATA}]},
        });
        self.facts.class = Some(Arc::new(typed(class)));
        for (index, name) in RELEASES.iter().enumerate() {
            self.edit_release(name, |release| {
                release.spec.os_images = typed(json!([{"name": name}]));
            });
            let image: OSImage = typed(json!({
                "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage", "metadata": {"name": name},
                "spec": {
                    "kubernetesVersion": VERSIONS[index],
                    "os": {"type": "linux", "name": "ubuntu", "version": "5", "arch": "amd64"},
                    "image": {"type": "ova", "ref": {"name": name}},
                },
            }));
            let images = Arc::make_mut(self.facts.images.get_or_insert_default());
            images.insert((*name).to_owned(), Arc::new(image));
        }
    }

    pub(crate) fn remove_image(&mut self, release: usize) {
        Arc::make_mut(self.facts.images.get_or_insert_default()).remove(RELEASES[release]);
    }

    /// Sets the PackageInstall of a package with these annotations.
    pub(crate) fn install(&mut self, package: &str, annotations: &Value) {
        let (server, namespace) = if package == "kapp-controller" {
            (Server::Management, "team-a")
        } else {
            (Server::Workload, "system")
        };
        let name = format!("one-{package}");
        let install = json!({
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations}, "spec": {},
        });
        self.installs.push((server, name, install));
    }

    /// Returns the result of `evaluate` once its reads are answered, and all reads.
    pub(crate) fn evaluate<T>(
        &self,
        evaluate: impl Fn(&Context<'_>) -> Step<T>,
    ) -> (Result<T, Interrupt>, Vec<Read>) {
        let local = LocalState::default();
        let mut context = Context::new(&self.facts, &local, clock());
        let mut asked = Vec::new();
        loop {
            let reads = match evaluate(&context) {
                Err(Interrupt::Need(reads)) => reads,
                outcome => return (outcome, asked),
            };
            for read in context.unanswered(reads).unwrap() {
                let answer = self.answer(&read);
                asked.push(read.clone());
                context.record_answer(read, answer);
            }
        }
    }

    fn answer(&self, read: &Read) -> ReadResult {
        match read {
            Read::Template(name) => {
                let template = self.templates.get(name).cloned();
                template.map_or(ReadResult::Absent, ReadResult::Template)
            }
            Read::Package(name) => {
                let package = self.packages.get(name).cloned();
                package.map_or(ReadResult::Absent, ReadResult::Package)
            }
            Read::Connection(_) => ReadResult::Connected(1),
            Read::Object(key, _) if key.resource.kind == "Secret" => ReadResult::Found(Object(kubeconfig())),
            Read::Object(key, _) if key.resource.kind == "PackageInstall" => {
                let is_it =
                    |(server, name, _): &&(Server, String, Value)| (*server, name) == (key.server, &key.name);
                match self.installs.iter().find(is_it) {
                    Some((_, _, install)) => ReadResult::Found(Object(install.clone())),
                    None if self.installs.is_empty() => {
                        ReadResult::Failed(Failure::other(key.server, "no response"))
                    }
                    None => ReadResult::Absent,
                }
            }
            Read::Object(key, _) if key.resource.kind == "Cluster" => {
                ReadResult::Found(Object(serde_json::to_value(self.facts.cluster.as_ref()).unwrap()))
            }
            Read::Object(key, _) if key.resource.kind == "ClusterBootstrap" => ReadResult::Found(Object(
                serde_json::to_value(self.facts.bootstrap.as_deref()).unwrap(),
            )),
            Read::Object(key, _) if key.resource.kind == "Good" => ReadResult::Found(self.control_plane()),
            other => panic!("{other:?} is read"),
        }
    }

    /// Returns the control plane as the API server has it.
    fn control_plane(&self) -> Object {
        let cached = self.facts.control_plane.as_ref().unwrap();
        let versions = self.read_control_plane.as_ref().unwrap_or(&cached.versions);
        Object(json!({
            "metadata": {
                "uid": cached.uid, "generation": cached.generation, "resourceVersion": cached.resource_version,
            },
            "spec": {"version": versions.spec_version}, "status": {"version": versions.status_version},
        }))
    }

    pub(crate) fn plan(&self) -> UpgradePlan {
        let (plan, _) = self.evaluate(|context| {
            plan(
                context,
                Scope {
                    schemas: true,
                    values: false,
                },
            )
        });
        plan.unwrap()
    }
}

fn kubeconfig() -> Value {
    let authority = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": authority}}],
        "users": [{"name": "one", "user": {"token": "token"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    });
    let value = BASE64_STANDARD.encode(text.to_string());
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one-kubeconfig"}, "data": {"value": value}})
}

/// Returns version and reason of the findings of steps that block.
pub(crate) fn blocking(plan: &UpgradePlan) -> Vec<(&str, &str)> {
    let blocking = plan.findings.iter().filter(|found| {
        let is_of_gate = matches!(found.reason, FindingReason::Gate(_));
        found.effect == Effect::Blocks && is_of_gate
    });
    blocking
        .filter_map(|found| Some((found.hop.as_deref()?, found.reason.as_str())))
        .collect()
}
