//! Gates on objects of Flux, of definitions and of kinds without a judge: what is read, and when a recorded proof ends.

use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::lifecycle::CheckState;

use super::server::{AGENT, CLUSTER, GATE, Place, V35, World, agent, gate_with, rows, stored};
use super::{AFTER, BEFORE, code, wait};
use crate::protocol::{Failure, Server};

const RELEASE: Place = ("HelmRelease", "team-a", "cilium");
const MANIFESTS: Place = ("Kustomization", "team-a", "addons");
const SOURCE: Place = ("GitRepository", "team-a", "addons");
const DEFINITION: Place = ("CustomResourceDefinition", "", "ciliumnodes.cilium.io");

/// Returns the check of the HelmRelease.
fn release() -> Value {
    json!({
        "name": "release", "versionKey": "chart",
        "object": {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "cilium"},
    })
}

/// Returns the check of the Kustomization. The tags of its source are those of the images.
fn manifests() -> Value {
    json!({
        "name": "manifests", "versionKey": "image",
        "object": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "addons"},
    })
}

fn conditions(reason: &str) -> Value {
    json!([{"type": "Ready", "status": "True", "reason": reason, "message": ""}])
}

/// Returns the objects of Flux at 1.17.4 for this `spec.kubeConfig`.
fn objects(kubeconfig: &Value) -> [(Place, Value); 3] {
    let revision = "v1.17.4@sha1:v1.17.4";
    let release = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {},
        "spec": {"kubeConfig": kubeconfig, "chart": {"spec": {"version": "1.17.4"}}},
        "status": {
            "observedGeneration": 1, "lastAttemptedGeneration": 1, "lastAttemptedRevision": "1.17.4",
            "lastAttemptedConfigDigest": "sha256:a", "conditions": conditions("UpgradeSucceeded"),
            "history": [{"version": 1, "status": "deployed", "chartVersion": "1.17.4", "configDigest": "sha256:a"}],
        },
    });
    let manifests = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {},
        "spec": {"kubeConfig": kubeconfig, "sourceRef": {"kind": "GitRepository", "name": "addons"}},
        "status": {
            "observedGeneration": 1, "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
            "conditions": conditions("ReconciliationSucceeded"),
        },
    });
    let source = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {},
        "spec": {"ref": {"semver": "*"}},
        "status": {
            "observedGeneration": 1, "artifact": {"revision": revision}, "conditions": conditions("Succeeded"),
        },
    });
    [(RELEASE, release), (MANIFESTS, manifests), (SOURCE, source)]
}

/// Returns a Cluster at rest with a gate of these checks, and Flux on the management cluster.
fn with_checks(checks: &[Value]) -> World {
    let mut world = World::new();
    world.put(GATE, gate_with(&rows(), &json!(checks)));
    for (place, object) in objects(&json!({"secretRef": {"name": "one-kubeconfig"}})) {
        world.put(place, object);
    }
    world.settle();
    world
}

/// Returns a Cluster at rest with a gate of both checks, and Flux in the workload cluster.
fn in_workload() -> World {
    let [release, manifests] = [release(), manifests()].map(|mut check| {
        check["cluster"] = json!("Workload");
        check["object"]["namespace"] = json!("team-a");
        check
    });
    let mut world = World::new();
    let checks = json!([release, manifests, agent()]);
    world.put(GATE, gate_with(&rows(), &checks));
    for (place, object) in objects(&Value::Null) {
        world.workload.put(stored(place), object);
    }
    world.settle();
    world
}

/// Edits an object of Flux in the cluster that has it.
fn edit(world: &mut World, place: Place, edit: fn(&mut Value)) {
    world.edit(place, edit);
    world.edit_workload(place, edit);
}

/// Observes the generation of an object of Flux.
fn observe(object: &mut Value) {
    let generation = object["metadata"]["generation"].clone();
    object["status"]["observedGeneration"] = generation.clone();
    object["status"]["lastAttemptedGeneration"] = generation;
}

/// Flux deploys chart 1.18.2.
fn deploy(world: &mut World) {
    edit(world, RELEASE, |release| {
        release["spec"]["chart"]["spec"]["version"] = json!("1.18.2");
    });
    edit(world, RELEASE, |release| {
        observe(release);
        release["status"]["lastAttemptedRevision"] = json!("1.18.2");
        let history = release["status"]["history"].as_array_mut().unwrap();
        history[0]["status"] = json!("superseded");
        history.insert(
            0,
            json!({"version": 2, "status": "deployed", "chartVersion": "1.18.2", "configDigest": "sha256:a"}),
        );
    });
}

/// The source has tag v1.18.2, and its Kustomization is not reconciled yet.
fn tag(world: &mut World) {
    edit(world, SOURCE, |source| {
        source["status"]["artifact"]["revision"] = json!("v1.18.2@sha1:v1.18.2");
    });
}

/// Flux applies tag v1.18.2.
fn apply(world: &mut World) {
    tag(world);
    edit(world, MANIFESTS, |manifests| {
        let revision = json!("v1.18.2@sha1:v1.18.2");
        manifests["status"]["lastAttemptedRevision"] = revision.clone();
        manifests["status"]["lastAppliedRevision"] = revision;
    });
}

/// Flux has delivered both, and the agent runs.
fn deliver(world: &mut World) {
    deploy(world);
    apply(world);
    world.roll_out(AGENT, "v1.18.2");
}

/// Returns a Cluster whose upgrade is held.
fn held() -> World {
    let mut world = with_checks(&[release(), manifests(), agent()]);
    world.target(V35);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/release", "NotAtVersion"));
    world
}

/// Returns a Cluster whose upgrade is released.
fn released() -> World {
    let mut world = held();
    deliver(&mut world);
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    world
}

#[test]
fn flux_and_the_agent_release_together() {
    let mut world = held();
    deploy(&mut world);
    world.lasts(16);
    assert_eq!(world.waits_for(), wait("cni/manifests", "NotAtVersion"));
    tag(&mut world);
    world.lasts(16);
    assert_eq!(world.waits_for(), wait("cni/manifests", "DeliveryInProgress"));
    apply(&mut world);
    world.lasts(16);
    assert_eq!(world.waits_for(), wait("cni/agent", "NotAtVersion"));
    assert!(!world.is_open(BEFORE, V35));
    assert_eq!(world.status().checks.as_deref(), Some("2/3"));
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

#[test]
fn a_drift_check_of_flux_reads_the_source_and_writes_nothing() {
    let mut world = with_checks(&[release(), manifests(), agent()]);
    world.after(601);
    assert_eq!(world.written, Vec::<String>::new());
    for read in [
        "HelmRelease cilium",
        "Kustomization addons",
        "GitRepository addons",
    ] {
        assert_eq!(
            world.read.iter().filter(|object| *object == read).count(),
            1,
            "{:?}",
            world.read
        );
    }
}

fn suspend_release(world: &mut World) {
    world.edit(RELEASE, |release| release["spec"]["suspend"] = json!(true));
}

/// Flux observes the generation of a suspended object.
fn suspend_and_edit_release(world: &mut World) {
    world.edit(RELEASE, |release| {
        release["spec"]["suspend"] = json!(true);
        release["spec"]["chart"]["spec"]["version"] = json!("1.18.3");
    });
    world.edit(RELEASE, |release| {
        release["status"]["observedGeneration"] = release["metadata"]["generation"].clone();
    });
}

fn roll_back_release(world: &mut World) {
    world.edit(RELEASE, |release| {
        let entry =
            json!({"version": 3, "status": "deployed", "chartVersion": "1.17.4", "configDigest": "sha256:a"});
        release["status"]["history"].as_array_mut().unwrap().push(entry);
    });
}

fn change_values(world: &mut World) {
    world.edit(RELEASE, |release| {
        release["status"]["lastAttemptedConfigDigest"] = json!("sha256:b");
    });
}

fn move_release(world: &mut World) {
    world.edit(RELEASE, |release| {
        release["spec"]["kubeConfig"]["secretRef"]["name"] = json!("two-kubeconfig");
    });
    world.edit(RELEASE, observe);
}

fn delete_release(world: &mut World) {
    world.remove(RELEASE);
}

fn suspend_manifests(world: &mut World) {
    world.edit(MANIFESTS, |manifests| manifests["spec"]["suspend"] = json!(true));
    world.edit(MANIFESTS, observe);
}

fn reconcile_manifests(world: &mut World) {
    world.edit(MANIFESTS, at_work);
}

fn move_tag(world: &mut World) {
    world.edit(SOURCE, |source| {
        source["status"]["artifact"]["revision"] = json!("v1.18.2@sha1:moved");
    });
}

fn edit_source(world: &mut World) {
    world.edit(SOURCE, |source| source["spec"]["ref"]["semver"] = json!("1.18.x"));
}

fn delete_source(world: &mut World) {
    world.remove(SOURCE);
}

/// Objects and sources are read again before a gate opens.
#[rstest]
#[case::suspended_release(suspend_release)]
#[case::suspended_and_edited_release(suspend_and_edit_release)]
#[case::rolled_back_release(roll_back_release)]
#[case::values_of_the_release(change_values)]
#[case::cluster_of_the_release(move_release)]
#[case::existence_of_the_release(delete_release)]
#[case::suspended_manifests(suspend_manifests)]
#[case::reconciled_manifests(reconcile_manifests)]
#[case::moved_tag(move_tag)]
#[case::edited_source(edit_source)]
#[case::existence_of_the_source(delete_source)]
fn no_gate_opens_after_a_change_of_flux_between_the_reads(#[case] change: fn(&mut World)) {
    let mut world = held();
    deliver(&mut world);
    world.meanwhile = Some(change);
    world.after(2);
    assert!(world.meanwhile.is_none(), "the gate would have opened");
    assert!(!world.is_open(BEFORE, V35), "{:?}", world.record().gates);
}

/// Marks an object of Flux as reconciled at its interval.
fn at_work(object: &mut Value) {
    object["status"]["conditions"] = json!([
        {"type": "Reconciling", "status": "True", "reason": "Progressing", "message": ""},
        {"type": "Ready", "status": "Unknown", "reason": "Progressing", "message": ""},
    ]);
}

/// Both controllers reconcile at each interval, before they look at a source.
#[test]
fn a_recorded_proof_outlives_a_reconcile_at_the_interval_of_flux() {
    let mut world = held();
    deliver(&mut world);
    for place in [RELEASE, MANIFESTS] {
        world.edit(place, at_work);
    }
    world.lasts(16);
    assert_eq!(
        world.waits_for(),
        wait("cni/release", "DeliveryInProgress"),
        "it is not recorded yet"
    );

    let mut world = released();
    for place in [RELEASE, MANIFESTS] {
        world.edit(place, at_work);
    }
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    assert_eq!(world.written, Vec::<String>::new());
}

#[rstest]
#[case::suspension(suspend_release, "cni/release", "DeliverySuspended")]
#[case::rollback(roll_back_release, "cni/release", "DeliveryInProgress")]
#[case::other_cluster(move_release, "cni/release", "BelongsElsewhere")]
#[case::deletion(delete_release, "cni/release", "ObjectNotFound")]
#[case::suspended_manifests(suspend_manifests, "cni/manifests", "DeliverySuspended")]
#[case::moved_tag(move_tag, "cni/manifests", "DeliveryInProgress")]
#[case::edited_source(edit_source, "cni/manifests", "NotObserved")]
#[case::deleted_source(delete_source, "cni/manifests", "ObjectNotFound")]
fn anything_else_closes_an_open_gate(
    #[case] change: fn(&mut World),
    #[case] check: &str,
    #[case] reason: &str,
) {
    let mut world = released();
    for place in [RELEASE, MANIFESTS] {
        world.edit(place, at_work);
    }
    change(&mut world);
    world.after(5);
    assert!(!world.is_open(BEFORE, V35), "{:?}", world.record());
    assert_eq!(world.waits_for(), wait(check, reason));
}

fn forbidden(world: &mut World) {
    world.fails = Some(("GitRepository", code(403)));
}

fn unserved(world: &mut World) {
    world.unserved = Some("GitRepository");
}

fn too_large(world: &mut World) {
    let failure = Failure {
        too_long: true,
        ..Failure::other(Server::Management, "too large")
    };
    world.fails = Some(("GitRepository", failure));
}

fn of_another_namespace(world: &mut World) {
    world.put(
        ("GitRepository", "team-b", "addons"),
        objects(&json!({}))[2].1.clone(),
    );
    world.edit(MANIFESTS, |manifests| {
        manifests["spec"]["sourceRef"]["namespace"] = json!("team-b");
    });
    world.edit(MANIFESTS, observe);
}

fn of_another_kind(world: &mut World) {
    world.edit(MANIFESTS, |manifests| {
        manifests["spec"]["sourceRef"]["kind"] = json!("Secret");
    });
    world.edit(MANIFESTS, observe);
}

/// Failures of a source are reasons of the check, and recover without a restart.
#[rstest]
#[case::forbidden(
    forbidden,
    "KindForbidden",
    "allows to get gitrepositorys in group source.toolkit.fluxcd.io",
    true
)]
#[case::not_served(
    unserved,
    "KindNotServed",
    "does not serve GitRepository in source.toolkit.fluxcd.io/v1",
    false
)]
#[case::too_large(too_large, "ObjectTooLarge", "GitRepository team-a/addons", true)]
#[case::absent(
    delete_source,
    "ObjectNotFound",
    "GitRepository addons of Kustomization addons",
    true
)]
#[case::of_another_namespace(
    of_another_namespace,
    "BelongsElsewhere",
    "source of another namespace",
    false
)]
#[case::of_another_kind(of_another_kind, "ObjectNotFound", "does not name a source", false)]
fn a_source_that_cannot_be_read_holds_with_a_reason_and_recovers(
    #[case] breaks: fn(&mut World),
    #[case] reason: &str,
    #[case] says: &str,
    #[case] is_read: bool,
) {
    let mut world = with_checks(&[manifests(), agent()]);
    let whole = world.management.clone();
    world.target(V35);
    breaks(&mut world);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/manifests", reason));
    let message = world.status().message.unwrap();
    assert!(message.contains(says), "{message}");
    let reads = |object: &String| object == "GitRepository addons" || object == "Secret addons";
    assert_eq!(world.read.iter().any(reads), is_read, "{:?}", world.read);

    (world.unserved, world.fails) = (None, None);
    for place in [MANIFESTS, SOURCE] {
        let object = whole.get(&stored(place)).unwrap().clone();
        world.management.set(stored(place), object);
    }
    apply(&mut world);
    world.roll_out(AGENT, "v1.18.2");
    world.after(40);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

/// Flux may run in the workload cluster. It does not apply its manifests again for the new API server.
#[test]
fn flux_of_the_workload_cluster_is_read_there() {
    let mut world = in_workload();
    world.target(V35);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/release", "NotAtVersion"));
    deliver(&mut world);
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());

    for place in [RELEASE, MANIFESTS] {
        world.edit_workload(place, at_work);
    }
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    for place in [RELEASE, MANIFESTS] {
        world.edit_workload(place, |object| {
            object["status"]["conditions"] = conditions("Succeeded");
        });
    }
    world.control_plane(V35, V35);
    world.after(5);
    assert!(world.is_open(AFTER, V35), "{:?}", world.record());
    let reproven: Vec<bool> = world.record().checks.iter().map(|check| check.reproven).collect();
    assert_eq!(reproven, [false, false, true]);

    world.edit_workload(RELEASE, |release| {
        release["spec"]["kubeConfig"] = json!({"secretRef": {"name": "two-kubeconfig"}});
    });
    world.edit_workload(RELEASE, observe);
    world.after(5);
    let check = world.record().checks[0].clone();
    assert_eq!(
        (check.state, check.reason.as_str()),
        (CheckState::Waiting, "BelongsElsewhere")
    );
}

/// A silent workload API server withdraws the proof of a delivery object in it after a minute.
#[test]
fn a_proof_of_flux_in_a_silent_workload_cluster_ends() {
    let mut world = in_workload();
    world.target(V35);
    deliver(&mut world);
    world.after(2);
    assert!(world.is_open(BEFORE, V35));
    world.is_silent = true;
    world.after(5);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
    world.after(70);
    assert_eq!(world.closed(BEFORE, V35).0, "WorkloadUnreachable");
    assert_eq!(world.record().checks[0].state, CheckState::Waiting);
}

/// Definitions have no namespace.
#[test]
fn a_definition_is_read_in_the_workload_cluster() {
    let mut world = World::new();
    world.cluster_scoped = Some("CustomResourceDefinition");
    let check = json!({
        "name": "kinds", "cluster": "Workload", "versionKey": "kinds",
        "object": {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": "ciliumnodes.cilium.io",
        },
    });
    let rows = [("1.34", "v1"), ("1.35", "v2")]
        .map(|(minor, kinds)| json!({"kubernetes": minor, "values": {"kinds": kinds}}));
    world.put(GATE, gate_with(&json!(rows), &json!([check])));
    let established = json!([
        {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"},
    ]);
    world.workload.put(
        stored(DEFINITION),
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {},
            "spec": {"versions": [{"name": "v1", "served": true}]}, "status": {"conditions": established},
        }),
    );
    world.settle();
    assert_eq!(world.status().checks.as_deref(), Some("1/1"));
    world.target(V35);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/kinds", "NotServed"));
    world.edit_workload(DEFINITION, |definition| {
        definition["spec"]["versions"] =
            json!([{"name": "v1", "served": true}, {"name": "v2", "served": true}]);
    });
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

/// A tenant reads no cluster-scoped object of the management cluster by a gate.
#[test]
fn a_cluster_scoped_object_of_the_management_cluster_is_not_read() {
    let mut world = World::new();
    world.cluster_scoped = Some("Backend");
    let check = json!({
        "name": "backend", "healthOnly": true, "cel": "object.status.ready",
        "object": {"apiVersion": "example.com/v1", "kind": "Backend", "name": "main"},
    });
    world.put(GATE, gate_with(&rows(), &json!([check, agent()])));
    world.target(V35);
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/backend", "BelongsElsewhere"));
    assert!(
        !world.read.contains(&"Backend main".to_owned()),
        "{:?}",
        world.read
    );
}

/// Returns a Cluster at rest in tier dev, whose agent is checked with an expression.
fn with_expression(expression: &str) -> World {
    let mut world = World::new();
    let mut check = agent();
    check["cel"] = json!(expression);
    world.put(GATE, gate_with(&rows(), &json!([check])));
    world.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"]["tier"] = json!("dev");
    });
    world
}

fn promote(world: &mut World) {
    world.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"]["tier"] = json!("prod");
    });
}

fn demote(world: &mut World) {
    world.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"]["tier"] = json!("dev");
    });
}

/// The cache may lack labels.
#[test]
fn the_cluster_is_read_for_an_expression_that_uses_it() {
    let mut world = with_expression("cluster.labels.tier == 'prod'");
    world.target(V35);
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/agent", "ExpressionFalse"));
    assert!(world.read.contains(&"Cluster one".to_owned()), "{:?}", world.read);
    promote(&mut world);
    world.meanwhile = Some(demote);
    world.after(2);
    assert!(world.meanwhile.is_none(), "the gate would have opened");
    assert!(!world.is_open(BEFORE, V35), "{:?}", world.record());
    promote(&mut world);
    world.after(2);
    assert!(world.is_open(BEFORE, V35), "{:?}", world.record());
}

#[test]
fn the_cluster_is_not_read_for_other_expressions() {
    let mut world = with_expression("object.metadata.name == 'calico'");
    world.target(V35);
    world.roll_out(AGENT, "v1.18.2");
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/agent", "ExpressionFalse"));
    assert!(
        !world.read.contains(&"Cluster one".to_owned()),
        "{:?}",
        world.read
    );
}

/// The labels of a Cluster that was created again under the name are not those of the record.
#[test]
fn an_expression_never_sees_another_cluster_of_the_name() {
    let mut world = with_expression("cluster.labels.tier == 'prod'");
    promote(&mut world);
    world.target(V35);
    world.roll_out(AGENT, "v1.18.2");
    world.cached = Some(world.management.clone());
    world.edit(CLUSTER, |cluster| cluster["metadata"]["uid"] = json!("again"));
    world.after(2);
    assert_eq!(world.waits_for(), wait("cni/agent", "NotObserved"));
    let message = world.status().message.unwrap();
    assert!(message.contains("Cluster team-a/one"), "{message}");
}
