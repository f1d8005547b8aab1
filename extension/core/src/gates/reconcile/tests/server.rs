//! Fake API servers with preconditions, and reconciles of the only Cluster.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_crds::{
    foreign::Cluster,
    lifecycle::{ClusterUpgrade, ClusterUpgradeStatus, GateRecord, UpgradeGate},
    run::Hook,
};
use sluice_test_store::{Refused, Store, Strategy, identify};

use super::super::{GateEffects, GateLocalState, reconcile};
use crate::{
    cache::stores::tests::undecodable,
    clock::Clock,
    decode::Undecodable,
    gates::facts::{CachedGate, GateFacts, GateSettings},
    packages::build::Owner,
    protocol::{
        Context, Done, Failure, Interrupt, Key, Object, Read, ReadPhase, ReadResult, Resource, Server, Verb,
        Write,
    },
    reconcile::cluster::CachedControlPlane,
    schedule::SyncPeriod,
    upgrade::hop::{ControlPlaneFacts, Plan, Rollout, WorkerFacts},
};

pub(super) const V34: &str = "v1.34.4";
pub(super) const V35: &str = "v1.35.4";
pub(super) const V36: &str = "v1.36.3";

/// Kind, namespace, name.
pub(super) type Place = (&'static str, &'static str, &'static str);

pub(super) const CLUSTER: Place = ("Cluster", "team-a", "one");
pub(super) const CONTROL_PLANE: Place = ("Good", "team-a", "one");
pub(super) const GATE: Place = ("UpgradeGate", "team-a", "cni");
pub(super) const UPGRADE: Place = ("ClusterUpgrade", "team-a", "one");
pub(super) const CHART: Place = ("HelmChartProxy", "team-a", "cilium");
pub(super) const RELEASE: Place = ("HelmReleaseProxy", "team-a", "cilium-one");
pub(super) const AGENT: Place = ("DaemonSet", "kube-system", "cilium");
pub(super) const OPERATOR: Place = ("Deployment", "kube-system", "operator");
pub(super) const KUBE_SYSTEM: Place = ("Namespace", "", "kube-system");

const KUBECONFIG: &str = "\
apiVersion: v1
clusters:
- cluster:
    server: https://10.0.0.1:6443
    certificate-authority-data: YXV0aG9yaXR5
  name: one
contexts:
- context:
    cluster: one
    user: one
  name: one
current-context: one
kind: Config
preferences: {}
users:
- name: one
  user:
    token: token
";

/// Kind, namespace and name of a stored object.
type Stored = (String, String, String);

/// Number of writes.
#[derive(Clone, Default)]
pub(super) struct Revision(u64);

impl Strategy<Stored> for Revision {
    fn prepare(&mut self, (_, namespace, name): &Stored, before: Option<&Value>, object: &mut Value) {
        self.0 += 1;
        identify(object, namespace, name, format!("uid-{}", self.0));
        object["metadata"]["resourceVersion"] = json!(self.0.to_string());
        let generation = match before {
            None => 1,
            Some(before) => {
                let generation = before["metadata"]["generation"].as_i64().unwrap();
                generation + i64::from(before["spec"] != object["spec"])
            }
        };
        object["metadata"]["generation"] = json!(generation);
    }
}

pub(super) type Objects = Store<Stored, Revision>;

/// Management cluster and workload cluster.
pub(super) struct World {
    pub(super) management: Objects,
    pub(super) workload: Objects,
    /// State of the management cluster that the cache shows, if it is behind.
    pub(super) cached: Option<Objects>,
    /// Version of the workers.
    pub(super) workers: &'static str,
    /// Steps of upgrades.
    pub(super) plan: Plan,
    pub(super) local: GateLocalState,
    pub(super) clock: Clock,
    /// Effects of the last reconcile.
    pub(super) effects: GateEffects,
    /// Writes of the last reconcile, such as `Create ClusterUpgrade one`.
    pub(super) written: Vec<String>,
    /// Objects read in the last reconcile.
    pub(super) read: Vec<String>,
    /// Kind that is not served.
    pub(super) unserved: Option<&'static str>,
    /// Kind whose objects have no namespace.
    pub(super) cluster_scoped: Option<&'static str>,
    /// Kind whose reads fail.
    pub(super) fails: Option<(&'static str, Failure)>,
    /// Kind whose discovery fails.
    pub(super) undiscovered: Option<(&'static str, Failure)>,
    /// Whether the workload API server does not respond.
    pub(super) is_silent: bool,
    /// Edits of other clients right before the first confirming read.
    pub(super) meanwhile: Option<fn(&mut World)>,
}

/// Returns the spec of a gate for Clusters with label `cni: cilium`, with these rows and checks.
pub(super) fn gate_with(rows: &Value, checks: &Value) -> Value {
    json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeGate", "metadata": {},
        "spec": {
            "mode": "Enforce", "clusterSelector": {"matchLabels": {"cni": "cilium"}}, "before": "ControlPlane",
            "versions": rows, "checks": checks,
        },
    })
}

/// Returns the check of the agent.
pub(super) fn agent() -> Value {
    json!({
        "name": "agent", "cluster": "Workload", "container": "agent", "versionKey": "image",
        "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "cilium"},
    })
}

/// Returns the check of the operator, in the row of the same image.
pub(super) fn operator() -> Value {
    json!({
        "name": "operator", "cluster": "Workload", "container": "agent", "versionKey": "image",
        "object": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "kube-system", "name": "operator"},
    })
}

/// Returns the check of the chart.
pub(super) fn chart() -> Value {
    json!({
        "name": "chart", "versionKey": "chart",
        "object": {"apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cilium"},
    })
}

/// Returns a row.
pub(super) fn row(minor: &str, chart: &str) -> Value {
    json!({"kubernetes": minor, "values": {"chart": chart, "image": format!("v{chart}")}})
}

/// Returns the rows of both minor versions.
pub(super) fn rows() -> Value {
    json!([row("1.34", "1.17.4"), row("1.35", "1.18.2")])
}

fn workload(kind: &str, spec: &Value, status: &Value) -> Value {
    let containers = json!([{"name": "agent", "image": "example.com/cilium:v1.17.4"}]);
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {}, "spec": spec, "status": status,
    });
    object["spec"]["template"] = json!({"spec": {"containers": containers}});
    object["status"]["observedGeneration"] = json!(1);
    object
}

impl World {
    /// Returns a Cluster at v1.34.4 with a gate, whose checks are proven.
    pub(super) fn new() -> Self {
        let mut world = Self {
            management: Objects::default(),
            workload: Objects::default(),
            cached: None,
            workers: V34,
            plan: Plan::Direct,
            local: GateLocalState::default(),
            clock: Clock {
                now: Timestamp::from_second(1_000_000).unwrap(),
                instant: Instant::now(),
            },
            effects: GateEffects::default(),
            written: Vec::new(),
            read: Vec::new(),
            unserved: None,
            cluster_scoped: None,
            fails: None,
            undiscovered: None,
            is_silent: false,
            meanwhile: None,
        };
        world.put(
            CLUSTER,
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"uid": "cluster", "labels": {"cni": "cilium"}},
                "spec": {"topology": {"classRef": {"name": "class"}, "version": V34}},
            }),
        );
        world.put(
            CONTROL_PLANE,
            json!({"metadata": {}, "spec": {"version": V34}, "status": {"version": V34}}),
        );
        let kubeconfig = encoded(KUBECONFIG);
        world.put(
            ("Secret", "team-a", "one-kubeconfig"),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"value": kubeconfig}}),
        );
        world.put(GATE, gate_with(&rows(), &json!([agent()])));
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"uid": "workload"}});
        world.workload.put(stored(KUBE_SYSTEM), namespace);
        let counts = json!({"desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 3});
        world
            .workload
            .put(stored(AGENT), workload("DaemonSet", &json!({}), &counts));
        let counts = json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        let operator = workload("Deployment", &json!({"replicas": 2}), &counts);
        world.workload.put(stored(OPERATOR), operator);
        world
    }

    /// Returns the same with a chart that CAAPH delivers.
    pub(super) fn with_chart() -> Self {
        let mut world = Self::new();
        world.put(GATE, gate_with(&rows(), &json!([chart(), agent()])));
        world.put(
            CHART,
            json!({
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
                "metadata": {"uid": "chart"}, "spec": {"version": "1.17.4"}, "status": {"observedGeneration": 1},
            }),
        );
        world.put(RELEASE, release());
        world
    }

    /// Returns the world of [`World::new`] with the record of its Cluster at rest.
    pub(super) fn settled() -> Self {
        let mut world = Self::new();
        world.settle();
        world
    }

    /// Reconciles a Cluster at rest.
    pub(super) fn settle(&mut self) {
        self.reconcile().unwrap();
        assert_eq!(self.record().outcome, Some(sluice_crds::run::Outcome::Completed));
    }

    pub(super) fn put(&mut self, place: Place, object: Value) {
        self.management.put(stored(place), object);
    }

    pub(super) fn get(&self, place: Place) -> Option<&Value> {
        self.management.get(&stored(place))
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.management.remove(&stored(place));
    }

    pub(super) fn edit(&mut self, place: Place, edit: impl FnOnce(&mut Value)) {
        self.management.edit(&stored(place), edit);
    }

    pub(super) fn edit_workload(&mut self, place: Place, edit: impl FnOnce(&mut Value)) {
        self.workload.edit(&stored(place), edit);
    }

    /// Sets the target of the Cluster.
    pub(super) fn target(&mut self, version: &str) {
        self.edit(CLUSTER, |cluster| {
            cluster["spec"]["topology"]["version"] = json!(version);
        });
    }

    /// Sets desired and reported version of the control plane.
    pub(super) fn control_plane(&mut self, wanted: &str, reported: &str) {
        self.edit(CONTROL_PLANE, |control_plane| {
            control_plane["spec"]["version"] = json!(wanted);
            control_plane["status"]["version"] = json!(reported);
        });
    }

    /// Rolls a workload out at a version.
    pub(super) fn roll_out(&mut self, place: Place, version: &str) {
        let image = json!(format!("example.com/cilium:{version}"));
        self.edit_workload(place, |object| {
            object["spec"]["template"]["spec"]["containers"][0]["image"] = image;
        });
        self.edit_workload(place, |object| {
            object["status"]["observedGeneration"] = object["metadata"]["generation"].clone();
        });
    }

    /// Delivers a version of the chart.
    pub(super) fn deliver(&mut self, version: &str) {
        for place in [CHART, RELEASE] {
            self.edit(place, |object| object["spec"]["version"] = json!(version));
            self.edit(place, |object| {
                object["status"]["observedGeneration"] = object["metadata"]["generation"].clone();
            });
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, seconds: u32) {
        self.clock.now += SignedDuration::from_secs(seconds.into());
        self.clock.instant += Duration::from_secs(seconds.into());
    }

    /// Lets time pass and reconciles.
    pub(super) fn after(&mut self, seconds: u32) -> Done {
        self.pass(seconds);
        self.reconcile().unwrap()
    }

    /// Lets time pass and reconciles, and again once what the first reconcile has observed has lasted for long enough to be written.
    pub(super) fn lasts(&mut self, seconds: u32) -> Done {
        self.after(seconds);
        self.after(2)
    }

    pub(super) fn status(&self) -> ClusterUpgradeStatus {
        let upgrade = self.get(UPGRADE).expect("there is a ClusterUpgrade");
        serde_json::from_value(upgrade["status"].clone()).unwrap()
    }

    pub(super) fn record(&self) -> GateRecord {
        self.status().upgrade.expect("there is a record")
    }

    /// Whether the record answers a hook for a version with a release.
    pub(super) fn is_open(&self, hook: Hook, version: &str) -> bool {
        let gates = self.record().gates;
        gates
            .iter()
            .any(|gate| gate.open && gate.hook == hook && gate.version == version)
    }

    /// Returns reason and message of a closed gate.
    pub(super) fn closed(&self, hook: Hook, version: &str) -> (String, String) {
        let gates = self.record().gates;
        let mut closed = gates
            .into_iter()
            .filter(|gate| !gate.open && gate.hook == hook && gate.version == version);
        closed
            .next()
            .map(|gate| (gate.reason, gate.message))
            .unwrap_or_default()
    }

    /// Returns gate, check and reason of the wait.
    pub(super) fn waits_for(&self) -> (Option<String>, Option<String>) {
        let status = self.status();
        (status.held_by, status.reason)
    }

    /// Whether condition `Held` is true.
    pub(super) fn is_held(&self) -> bool {
        let status = self.status();
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| condition.type_ == "Held" && condition.status == "True")
    }

    pub(super) fn facts(&self) -> GateFacts {
        let objects = self.cached.as_ref().unwrap_or(&self.management);
        let get = |place| objects.get(&stored(place));
        let cluster: Cluster = serde_json::from_value(get(CLUSTER).unwrap().clone()).unwrap();
        let gates = objects.all().filter(|((kind, ..), _)| kind == "UpgradeGate");
        let gates = gates.map(|((_, namespace, name), gate)| -> CachedGate {
            let decoded: Result<UpgradeGate, _> = serde_json::from_value(gate.clone());
            decoded
                .map(Arc::new)
                .map_err(|_| undecodable("UpgradeGate", Some(namespace), name, &json!({})))
        });
        let (upgrade, upgrade_undecodable) = match get(UPGRADE).map(upgrade_of).transpose() {
            Ok(upgrade) => (upgrade, None),
            Err(undecodable) => (None, Some(undecodable)),
        };
        GateFacts {
            settings: GateSettings {
                system_namespace: "system".to_owned(),
                extension_configs: Vec::new(),
                sync_period: SyncPeriod {
                    length: Duration::from_mins(10),
                    since: self.clock.instant,
                },
            },
            owner: Owner {
                name: "one".to_owned(),
                namespace: "team-a".to_owned(),
                uid: cluster.metadata.uid.clone().unwrap(),
            },
            topology: cluster.spec.topology.clone().unwrap(),
            cluster: Arc::new(cluster),
            class: None,
            control_plane: get(CONTROL_PLANE).map(control_plane_of),
            unknown: None,
            workers: vec![WorkerFacts {
                name: "md".to_owned(),
                pool: "md".to_owned(),
                spec_version: Some(self.workers.to_owned()),
                versions: vec![self.workers.to_owned()],
                ..WorkerFacts::default()
            }],
            plan: self.plan.clone(),
            gates: gates.collect(),
            upgrade,
            upgrade_undecodable,
        }
    }

    /// Reconciles once.
    pub(super) fn reconcile(&mut self) -> Result<Done, Failure> {
        let (facts, local) = (self.facts(), self.local.clone());
        self.reconcile_with(&facts, &local)
    }

    /// Reconciles these facts once.
    pub(super) fn reconcile_with(
        &mut self,
        facts: &GateFacts,
        local: &GateLocalState,
    ) -> Result<Done, Failure> {
        self.written.clear();
        self.read.clear();
        let mut context = Context::new(facts, local, self.clock);
        loop {
            let mut effects = GateEffects::of(local);
            match reconcile(&context, &mut effects) {
                Ok(done) => {
                    self.local = effects.local.clone();
                    self.effects = effects;
                    return Ok(done);
                }
                Err(Interrupt::Failed(failure)) => return Err(failure),
                Err(Interrupt::Held(hold)) => panic!("{hold}"),
                Err(Interrupt::Need(reads)) => {
                    let reads = context.unanswered(reads).unwrap();
                    let confirms = |read: &Read| matches!(read, Read::Object(_, ReadPhase::Confirm));
                    if reads.iter().any(confirms)
                        && let Some(edit) = self.meanwhile.take()
                    {
                        edit(self);
                    }
                    for read in reads {
                        let answer = self.answer(&read);
                        context.record_answer(read, answer);
                    }
                }
                Err(Interrupt::Write(writes)) => {
                    for write in writes {
                        let outcome = self.make(&write);
                        let refused = outcome.is_err();
                        context.record_outcome(write, outcome);
                        if refused {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn objects(&self, server: Server) -> &Objects {
        match server {
            Server::Management => &self.management,
            Server::Workload => &self.workload,
        }
    }

    fn answer(&mut self, ask: &Read) -> ReadResult {
        let server = ask.server();
        if self.is_silent && server == Server::Workload && !matches!(ask, Read::DriftCheckConnection(_)) {
            return ReadResult::Failed(Failure::other(server, "connection refused"));
        }
        match ask {
            Read::DriftCheckConnection(_) => ReadResult::Connected(0),
            Read::Kind { kind, .. } if self.unserved == Some(kind) => ReadResult::Absent,
            Read::Kind { kind, .. } if self.undiscovered.as_ref().is_some_and(|(of, _)| of == kind) => {
                let (_, failure) = self.undiscovered.clone().unwrap();
                ReadResult::Failed(failure)
            }
            Read::Kind {
                api_version, kind, ..
            } => {
                let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
                let resource = Resource {
                    group: group.to_owned().into(),
                    version: version.to_owned().into(),
                    kind: kind.clone().into(),
                    plural: format!("{}s", kind.to_lowercase()).into(),
                };
                if self.cluster_scoped == Some(kind.as_str()) {
                    ReadResult::ServedClusterWide(resource)
                } else {
                    ReadResult::Served(resource)
                }
            }
            Read::Object(key, _) => {
                let kind = key.resource.kind.to_string();
                self.read.push(format!("{kind} {}", key.name));
                if let Some(failure) = self.failure(&kind) {
                    return ReadResult::Failed(failure);
                }
                let found = self.objects(server).get(&place_of(key)).cloned();
                found.map_or(ReadResult::Absent, |found| ReadResult::Found(Object(found)))
            }
            Read::Labelled {
                resource,
                namespace,
                labels,
                ..
            } => {
                self.read.push(format!("list {}", resource.kind));
                if let Some(failure) = self.failure(&resource.kind) {
                    return ReadResult::Failed(failure);
                }
                let has = |object: &Value| {
                    labels.split(',').all(|label| {
                        let (key, value) = label.split_once('=').unwrap();
                        object["metadata"]["labels"][key] == value
                    })
                };
                let found = self.objects(server).all().filter(|((kind, of, _), object)| {
                    *kind == resource.kind && of == namespace && has(object)
                });
                ReadResult::Listed(found.map(|(_, object)| Object(object.clone())).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    fn failure(&self, kind: &str) -> Option<Failure> {
        let (of, failure) = self.fails.as_ref()?;
        (*of == kind).then(|| failure.clone())
    }

    fn make(&mut self, write: &Write) -> Result<Object, Failure> {
        let Write { key, verb, body, .. } = write;
        self.written.push(format!("{write:?}"));
        assert_eq!(key.server, Server::Management, "{write:?}");
        assert_eq!(key.resource.kind, "ClusterUpgrade", "{write:?}");
        let place = place_of(key);
        let made = match verb {
            Verb::Create => {
                let mut object = body.clone();
                // The status is a subresource.
                object.as_object_mut().unwrap().remove("status");
                self.management.create(place, object)
            }
            Verb::ReplaceStatus => {
                assert!(!body["metadata"]["resourceVersion"].is_null(), "{write:?}");
                self.management.replace_status(&place, body)
            }
            Verb::Delete => {
                assert!(body.is_string(), "{write:?}");
                match self.management.delete(&place, &json!({"uid": body})) {
                    Err(Refused::NotFound) => Ok(Value::Null),
                    deleted => deleted,
                }
            }
            _ => panic!("{write:?}"),
        };
        made.map(Object).map_err(|reason| Failure {
            code: Some(reason.code()),
            ..Failure::other(Server::Management, "refused")
        })
    }
}

fn release() -> Value {
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy",
        "metadata": {
            "labels": {
                "cluster.x-k8s.io/cluster-name": "one",
                "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name": "cilium",
            },
            "ownerReferences": [{
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cilium", "uid": "chart",
                "controller": true,
            }],
        },
        "spec": {
            "clusterRef": {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "namespace": "team-a"},
            "version": "1.17.4",
        },
        "status": {
            "observedGeneration": 1, "status": "deployed",
            "conditions": [
                {"type": "ClusterAvailable", "status": "True", "reason": "Available"},
                {"type": "HelmReleaseReady", "status": "True", "reason": "Ready"},
                {"type": "Ready", "status": "True", "reason": "Ready"},
            ],
        },
    })
}

fn encoded(text: &str) -> String {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(text)
}

fn control_plane_of(object: &Value) -> CachedControlPlane {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().map(str::to_owned);
    CachedControlPlane {
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
        uid: text("uid"),
        generation: metadata["generation"].as_i64(),
        resource_version: text("resourceVersion"),
        versions: ControlPlaneFacts::in_object(object),
        rollout: Rollout::default(),
    }
}

fn upgrade_of(object: &Value) -> Result<Arc<ClusterUpgrade>, Arc<Undecodable>> {
    let decoded: Result<ClusterUpgrade, _> = serde_json::from_value(object.clone());
    decoded.map(Arc::new).map_err(|_| {
        let mut found = undecodable("ClusterUpgrade", Some("team-a"), "one", &json!({}));
        Arc::make_mut(&mut found).metadata.uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        found
    })
}

pub(super) fn stored((kind, namespace, name): Place) -> Stored {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

fn place_of(key: &Key) -> Stored {
    let namespace = key.namespace.clone().unwrap_or_default();
    (key.resource.kind.to_string(), namespace, key.name.clone())
}
