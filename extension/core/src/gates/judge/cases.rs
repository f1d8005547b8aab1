//! Proven objects of each kind, and cases that several tables share.

use serde_json::{Value, json};
use sluice_crds::lifecycle::{CheckRecord, CheckState};

use super::clause::{Clause, Judge, judge_by};
use super::common::EXPRESSION;
use super::{
    Evidence, Expected, Verdict, custom_resource_definition, daemon_set, deployment, helm_chart_proxy,
    helm_release, job, kustomization, other, stateful_set,
};
use crate::gates::expression::Expression;
use crate::protocol::Server;
use crate::reasons::CheckReason;

pub(super) const CLUSTER: &str = "prod-1";

const PROXY_LABEL: &str = "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name";

/// Everything that a judge is given.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) judge: &'static Judge,
    pub(super) server: Server,
    pub(super) namespace: &'static str,
    pub(super) object: Option<Value>,
    pub(super) related: Vec<Value>,
    pub(super) version: Option<&'static str>,
    pub(super) container: Option<&'static str>,
    pub(super) cel: Option<Expression>,
    pub(super) cluster: Option<Value>,
    pub(super) latch: Option<CheckRecord>,
}

/// Edit of a proven case.
pub(super) type Edit = fn(&mut Given);

/// Clause that an edit violates, the edit, its reason, and the verdict of the table without that clause.
pub(super) type Wrong = (&'static str, Edit, CheckReason, Without);

/// Verdict of a table without a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// The judge would be fooled.
    Proven,
    /// Another clause objects, with another reason or state.
    Unlike,
}

impl Given {
    pub(super) fn judged(&self) -> Verdict {
        self.judged_by(self.judge.clauses)
    }

    pub(super) fn judged_without(&self, name: &str) -> Verdict {
        let fewer: Vec<Clause> = self
            .judge
            .clauses
            .iter()
            .copied()
            .filter(|clause| clause.name != name)
            .collect();
        assert_eq!(fewer.len() + 1, self.judge.clauses.len(), "no clause {name}");
        self.judged_by(&fewer)
    }

    fn judged_by(&self, clauses: &[Clause]) -> Verdict {
        judge_by(
            self.judge,
            clauses,
            &self.evidence(),
            &self.expected(),
            self.latch.as_ref(),
        )
    }

    pub(super) fn evidence(&self) -> Evidence<'_> {
        Evidence {
            object: self.object.as_ref(),
            related: &self.related,
            cluster: self.cluster.as_ref(),
        }
    }

    pub(super) fn expected(&self) -> Expected<'_> {
        let kind = self.judge.kind;
        Expected {
            cluster: CLUSTER,
            namespace: self.namespace,
            name: "cilium",
            version: self.version,
            container: self.container,
            kind: if kind.is_empty() { "Backend" } else { kind },
            server: self.server,
            hop: "v1.35.4",
            cel: self.cel.as_ref(),
        }
    }

    pub(super) fn message(&self) -> String {
        match self.judged() {
            Verdict::Proven { .. } => String::new(),
            Verdict::Waiting { message, .. } | Verdict::Failed { message, .. } => message,
        }
    }

    pub(super) fn detail(&self) -> String {
        match self.judged() {
            Verdict::Proven { .. } => String::new(),
            Verdict::Waiting { detail, .. } | Verdict::Failed { detail, .. } => detail,
        }
    }

    /// Sets a field of the object of the check.
    pub(super) fn set(&mut self, parent: &str, key: &str, value: Value) {
        set(self.object.as_mut().unwrap(), parent, key, value);
    }

    /// Removes a field of the object of the check.
    pub(super) fn remove(&mut self, parent: &str, key: &str) {
        let parent = self.object.as_mut().unwrap().pointer_mut(parent).unwrap();
        parent.as_object_mut().unwrap().remove(key).unwrap();
    }

    /// Removes the namespace of the object, or gives one to an object of a cluster-scoped kind.
    fn change_scope(&mut self) {
        if self.namespace.is_empty() {
            self.set("/metadata", "namespace", json!("kube-system"));
        } else {
            self.remove("/metadata", "namespace");
        }
    }

    /// Sets a field of the source of a Kustomization.
    pub(super) fn set_source(&mut self, parent: &str, key: &str, value: Value) {
        set(&mut self.related[0], parent, key, value);
    }

    /// Sets the status of a condition of the object of the check, and its reason.
    pub(super) fn set_condition_of_object(&mut self, type_: &str, status: &str, reason: &str) {
        set_condition(self.object.as_mut().unwrap(), (type_, status, reason), "of Flux");
    }

    /// Sets a field of the HelmReleaseProxy.
    pub(super) fn set_release(&mut self, parent: &str, key: &str, value: Value) {
        set(&mut self.related[0], parent, key, value);
    }

    /// Sets the status of a condition of the HelmReleaseProxy, and its reason.
    pub(super) fn set_condition(&mut self, type_: &str, status: &str, reason: &str) {
        set_condition(&mut self.related[0], (type_, status, reason), "of Helm");
    }

    /// Records the current proof.
    pub(super) fn record(&mut self) {
        let Verdict::Proven { uid, generation } = self.judged() else {
            panic!("not proven: {:?}", self.judged());
        };
        self.latch = Some(CheckRecord {
            gate: "cni".to_owned(),
            name: "chart".to_owned(),
            state: CheckState::Proven,
            version: self.version.unwrap_or_default().to_owned(),
            uid: Some(uid),
            generation: Some(generation),
            ..CheckRecord::default()
        });
    }
}

fn set(object: &mut Value, parent: &str, key: &str, value: Value) {
    object.pointer_mut(parent).unwrap()[key] = value;
}

fn set_condition(object: &mut Value, (type_, status, reason): (&str, &str, &str), message: &str) {
    let conditions = object.pointer_mut("/status/conditions").unwrap();
    let conditions = conditions.as_array_mut().unwrap();
    conditions.retain(|condition| condition["type"] != type_);
    conditions.push(json!({"type": type_, "status": status, "reason": reason, "message": message}));
}

/// Compiles an expression.
pub(super) fn expression(text: &str) -> Expression {
    Expression::compile(text).unwrap()
}

/// Asserts that each case has its reason, that the table without the clause of the case judges otherwise, and that each clause has a case.
pub(super) fn each_clause_is_needed(proven: fn() -> Given, wrong: &[Wrong]) {
    assert_eq!(proven().judged().reason(), None, "{}", proven().message());
    for (at, (clause, edit, reason, without)) in wrong.iter().enumerate() {
        let mut given = proven();
        edit(&mut given);
        let judged = given.judged();
        assert_eq!(judged.reason(), Some(*reason), "case {at}, {clause}: {judged:?}");
        let fooled = given.judged_without(clause);
        match without {
            Without::Proven => assert_eq!(fooled.reason(), None, "case {at}, {clause}: {fooled:?}"),
            Without::Unlike => assert_ne!(fooled, judged, "case {at}, {clause}"),
        }
    }
    for Clause { name, .. } in proven().judge.clauses {
        assert!(
            wrong.iter().any(|(clause, ..)| clause == name),
            "no case needs clause {name}"
        );
    }
}

/// Cases of each kind.
#[rustfmt::skip]
pub(super) const OBJECT: &[Wrong] = &[
    ("exists", |given| given.object = None, CheckReason::ObjectNotFound, Without::Unlike),
    ("typed", |given| given.set("/metadata", "labels", json!([])), CheckReason::NotObserved, Without::Proven),
    ("typed", |given| given.set("/metadata", "labels", json!({"a": 1})), CheckReason::NotObserved, Without::Proven),
    ("named", |given| given.set("/metadata", "name", json!("calico")), CheckReason::BelongsElsewhere, Without::Proven),
    ("named", |given| given.set("/metadata", "namespace", json!("default")), CheckReason::BelongsElsewhere, Without::Proven),
    ("named", Given::change_scope, CheckReason::BelongsElsewhere, Without::Proven),
    ("belongs", |given| given.set("/metadata", "labels", json!({"cluster.x-k8s.io/cluster-name": "prod-2"})), CheckReason::BelongsElsewhere, Without::Proven),
    ("not deleting", |given| given.set("/metadata", "deletionTimestamp", json!("2026-11-26T10:02:11Z")), CheckReason::ObjectDeleting, Without::Proven),
    (EXPRESSION.name, |given| given.cel = Some(expression("object.metadata.name == 'calico'")), CheckReason::ExpressionFalse, Without::Proven),
];

/// Cases of kinds with containers.
#[rustfmt::skip]
pub(super) const CONTAINER: &[Wrong] = &[
    ("at version", |given| given.version = Some("v1.18.1"), CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.version = Some("v1.18"), CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.version = Some(""), CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.container = Some("operator"), CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.container = None, CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.set("/spec/template/spec", "containers", json!([])), CheckReason::NotAtVersion, Without::Proven),
    ("at version", |given| given.set("/spec/template/spec/containers/0", "image", json!("registry.test:5000/cilium")), CheckReason::NotAtVersion, Without::Proven),
];

/// Cases of kinds that observe generations.
#[rustfmt::skip]
pub(super) const OBSERVED: &[Wrong] = &[
    ("observed", |given| given.set("/metadata", "generation", 4.into()), CheckReason::NotObserved, Without::Proven),
    ("observed", |given| given.remove("/status", "observedGeneration"), CheckReason::NotObserved, Without::Proven),
    ("observed", |given| given.set("/status", "observedGeneration", Value::Null), CheckReason::NotObserved, Without::Proven),
];

/// Returns a workload of the add-on with spec and status.
fn workload(judge: &'static Judge, mut spec: Value, status: &Value) -> Given {
    spec["template"] = json!({"spec": {"containers": [
        {"name": "cilium-agent", "image": "registry.test:5000/cilium/cilium:v1.18.2@sha256:aa"},
        {"name": "other", "image": "other:v1.18.1"},
    ]}});
    Given {
        judge,
        server: Server::Workload,
        namespace: "kube-system",
        object: Some(json!({
            "apiVersion": judge.api_version,
            "kind": judge.kind,
            "metadata": {"name": "cilium", "namespace": "kube-system", "uid": "u1", "generation": 3},
            "spec": spec,
            "status": status,
        })),
        related: Vec::new(),
        version: Some("v1.18.2"),
        container: Some("cilium-agent"),
        cel: None,
        cluster: None,
        latch: None,
    }
}

pub(super) fn daemon_set() -> Given {
    let status = json!({
        "observedGeneration": 3, "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "updatedNumberScheduled": 3,
        "numberAvailable": 3, "numberReady": 3, "numberMisscheduled": 0,
    });
    workload(
        &daemon_set::JUDGE,
        json!({"updateStrategy": {"type": "RollingUpdate"}}),
        &status,
    )
}

/// Returns the status of three replicas.
fn replicas() -> Value {
    json!({"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3, "readyReplicas": 3})
}

pub(super) fn deployment() -> Given {
    workload(&deployment::JUDGE, json!({"replicas": 3}), &replicas())
}

pub(super) fn stateful_set() -> Given {
    let spec = json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate"}});
    workload(&stateful_set::JUDGE, spec, &replicas())
}

pub(super) fn job() -> Given {
    let status = json!({"succeeded": 1, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"},
    ]});
    workload(&job::JUDGE, json!({"suspend": false}), &status)
}

/// Returns a HelmReleaseProxy of the HelmChartProxy.
pub(super) fn release(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1",
        "kind": "HelmReleaseProxy",
        "metadata": {
            "name": name, "namespace": "team-a", "uid": "u2", "generation": 5,
            "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER, PROXY_LABEL: "cilium"},
            "ownerReferences": [{
                "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cilium", "uid": "u1", "controller": true,
            }],
        },
        "spec": {
            "clusterRef": {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": CLUSTER, "namespace": "team-a"},
            "version": version, "chartName": "cilium", "values": "",
        },
        "status": {
            "observedGeneration": 5, "status": "deployed", "revision": 2,
            "conditions": [
                {"type": "ClusterAvailable", "status": "True", "reason": "Available"},
                {"type": "HelmReleaseReady", "status": "True", "reason": "Ready"},
                {"type": "Ready", "status": "True", "reason": "Ready"},
            ],
        },
    })
}

pub(super) fn helm_chart_proxy() -> Given {
    Given {
        judge: &helm_chart_proxy::JUDGE,
        server: Server::Management,
        namespace: "team-a",
        object: Some(json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1",
            "kind": "HelmChartProxy",
            "metadata": {"name": "cilium", "namespace": "team-a", "uid": "u1", "generation": 2},
            "spec": {"version": "1.18.2", "chartName": "cilium", "clusterSelector": {}},
            "status": {"observedGeneration": 2, "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ready"},
            ]},
        })),
        related: vec![release("cilium-prod-1-x7k2p", "1.18.2")],
        version: Some("1.18.2"),
        container: None,
        cel: None,
        cluster: None,
        latch: None,
    }
}

/// Returns an object of Flux on the management cluster.
fn of_flux(judge: &'static Judge, mut spec: Value, mut status: Value) -> Given {
    spec["suspend"] = json!(false);
    spec["kubeConfig"] = json!({"secretRef": {"name": "prod-1-kubeconfig"}});
    status["observedGeneration"] = json!(3);
    Given {
        judge,
        server: Server::Management,
        namespace: "team-a",
        object: Some(json!({
            "apiVersion": judge.api_version,
            "kind": judge.kind,
            "metadata": {"name": "cilium", "namespace": "team-a", "uid": "u1", "generation": 3},
            "spec": spec,
            "status": status,
        })),
        related: Vec::new(),
        version: None,
        container: None,
        cel: None,
        cluster: None,
        latch: None,
    }
}

/// Returns the same object in the workload cluster, where Flux runs as well.
fn in_workload(mut given: Given) -> Given {
    given.server = Server::Workload;
    given.namespace = "kube-system";
    given.set("/metadata", "namespace", json!("kube-system"));
    given.remove("/spec", "kubeConfig");
    given
}

/// Returns a HelmRelease whose second release has deployed chart 1.18.2. The list of its releases is in no particular order.
pub(super) fn helm_release() -> Given {
    let release = |version: i64, status: &str, chart: &str, config: &str| {
        json!({
            "apiVersion": "v2", "digest": "sha256:release", "name": "cilium", "namespace": "kube-system", "version": version,
            "status": status, "chartName": "cilium", "chartVersion": chart, "configDigest": config,
        })
    };
    let status = json!({
        "lastAttemptedGeneration": 3, "lastAttemptedRevision": "1.18.2", "lastAttemptedConfigDigest": "sha256:new",
        "history": [
            release(1, "superseded", "1.17.4", "sha256:old"), release(2, "deployed", "1.18.2", "sha256:new"),
        ],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "UpgradeSucceeded"},
            {"type": "Released", "status": "True", "reason": "UpgradeSucceeded"},
        ],
    });
    let spec = json!({"upgrade": {}, "chart": {"spec": {"chart": "cilium", "version": "1.18.2"}}});
    Given {
        version: Some("1.18.2"),
        ..of_flux(&helm_release::JUDGE, spec, status)
    }
}

pub(super) fn helm_release_of_workload() -> Given {
    in_workload(helm_release())
}

/// Returns a Kustomization at tag v1.18.2 of its source.
pub(super) fn kustomization() -> Given {
    let revision = "v1.18.2@sha1:0a1b";
    let source = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": "addons", "namespace": "team-a", "uid": "u2", "generation": 7},
        "spec": {"ref": {"tag": "v1.18.2"}},
        "status": {
            "observedGeneration": 7, "artifact": {"revision": revision},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Succeeded"}],
        },
    });
    let spec = json!({"sourceRef": {"kind": "GitRepository", "name": "addons"}, "path": "./cilium"});
    let status = json!({
        "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
        "conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded"}],
    });
    Given {
        related: vec![source],
        version: Some("v1.18.2"),
        ..of_flux(&kustomization::JUDGE, spec, status)
    }
}

/// Returns the same in the workload cluster, with a source in another namespace.
pub(super) fn kustomization_of_workload() -> Given {
    let mut given = in_workload(kustomization());
    given.set("/spec/sourceRef", "namespace", json!("flux-system"));
    given.set_source("/metadata", "namespace", json!("flux-system"));
    given
}

/// Returns an established definition that serves v2.
pub(super) fn custom_resource_definition() -> Given {
    let judge = &custom_resource_definition::JUDGE;
    Given {
        judge,
        namespace: "",
        object: Some(json!({
            "apiVersion": judge.api_version,
            "kind": judge.kind,
            "metadata": {"name": "cilium", "uid": "u1", "generation": 3},
            "spec": {"versions": [
                {"name": "v1", "served": false, "storage": false}, {"name": "v2", "served": true, "storage": true},
            ]},
            "status": {"observedGeneration": 3, "conditions": [
                {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"},
            ]},
        })),
        version: Some("v2"),
        container: None,
        ..daemon_set()
    }
}

/// Returns an object of a kind without a judge.
pub(super) fn other() -> Given {
    Given {
        judge: &other::JUDGE,
        object: Some(json!({
            "apiVersion": "example.com/v1",
            "kind": "Backend",
            "metadata": {"name": "cilium", "namespace": "kube-system", "uid": "u1", "generation": 3},
            "spec": {},
            "status": {"observedGeneration": 3, "version": "1.18.2", "ready": true},
        })),
        version: Some("1.18.2"),
        container: None,
        cel: Some(expression(
            "object.status.version == version && object.status.ready",
        )),
        ..daemon_set()
    }
}
