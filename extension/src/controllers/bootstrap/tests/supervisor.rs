//! Whether a Cluster is on a Supervisor: discovery, one list, and the record.

use sluice_crds::labels::name;

use super::*;
use crate::controllers::bootstrap::world::{CLUSTER, RELEASE, VERSION, World};

const GROUP: &str = "vmoperator.vmware.com";
const MACHINES: &str = "/virtualmachines";

/// Returns a Cluster with a VSphereCluster, whose Nodes at the target get the label of the release.
fn on_vsphere() -> World {
    let world = World::new();
    world.management.edit(CLUSTER, |cluster| {
        let spec = &mut cluster["spec"];
        spec["infrastructureRef"] = json!({
            "apiGroup": "vmware.infrastructure.cluster.x-k8s.io", "kind": "VSphereCluster", "name": "one",
        });
        let entry = json!({"osImageRef": {}, "labels": {label::TKR: RELEASE}});
        spec["topology"]["variables"] = json!([{"name": name::TKR_DATA, "value": {VERSION: entry}}]);
    });
    world
}

/// Serves VirtualMachines in the second of these versions of their group; the first one is preferred.
fn serve(world: &World) {
    let version = |version: &str| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version});
    let versions = [version("v1alpha3"), version("v1alpha2")];
    let group = json!({"name": GROUP, "versions": versions, "preferredVersion": versions[0]});
    world.management.edit("/apis", |list| {
        list["groups"].as_array_mut().unwrap().push(group);
    });
    let kind = |kind: &str| {
        json!({
            "name": format!("{}s", kind.to_lowercase()), "singularName": "", "namespaced": true, "kind": kind,
            "verbs": ["get", "list"],
        })
    };
    for (version, kinds) in [
        ("v1alpha3", [kind("VirtualMachineClass")]),
        ("v1alpha2", [kind("VirtualMachine")]),
    ] {
        world.management.put(
            &format!("/apis/{GROUP}/{version}"),
            json!({"kind": "APIResourceList", "groupVersion": format!("{GROUP}/{version}"), "resources": kinds}),
        );
    }
}

fn put_machine(world: &World) {
    let path = format!("/apis/{GROUP}/v1alpha2/namespaces/team-a/virtualmachines/one-node");
    world.management.put(
        &path,
        json!({"metadata": {"labels": {label::CAPV_CLUSTER_NAME: "one"}}}),
    );
}

fn found(world: &World) -> Option<bool> {
    world.record().supervisor.map(|answer| answer.found)
}

/// Returns whether values for a Supervisor were written to the workload.
fn has_values(world: &World) -> Option<bool> {
    let secrets = world.workload.all("secrets");
    let (_, values) = secrets.iter().find(|(path, _)| path.contains("-data-values-"))?;
    Some(values["data"].get(name::TKGS_VALUES_KEY).is_some())
}

#[rstest]
#[case::with_a_machine(true, true)]
#[case::without_a_machine(true, false)]
#[case::without_the_kind(false, false)]
#[tokio::test(start_paused = true)]
async fn a_cluster_is_asked_once(#[case] is_served: bool, #[case] has_machine: bool) {
    let world = on_vsphere();
    if is_served {
        serve(&world);
    }
    if has_machine {
        put_machine(&world);
    }
    world.reconcile().await;
    world.reconcile().await;
    assert_eq!(found(&world), Some(has_machine));
    assert_eq!(has_values(&world), Some(has_machine));
    assert_eq!(
        world.management.times_asked_below(MACHINES),
        usize::from(is_served),
        "the answer is recorded"
    );
}

#[rstest]
#[case::forbidden(MACHINES, 403)]
#[case::discovery_away("/apis/vmoperator.vmware.com/v1alpha2", 503)]
#[case::version_that_is_listed_and_not_served("/apis/vmoperator.vmware.com/v1alpha2", 404)]
#[tokio::test(start_paused = true)]
async fn nothing_is_written_without_a_definite_answer(#[case] path: &'static str, #[case] code: u16) {
    let world = on_vsphere();
    serve(&world);
    put_machine(&world);
    world.management.refuse(path, code);
    world.reconcile().await;
    let later = Done::RequeueAfter(Duration::from_secs(30));
    assert_eq!(world.reconcile().await, later, "each reconcile costs a discovery");
    assert_eq!(found(&world), None);
    assert_eq!(
        world.held(sluice_crds::run::Hook::BeforeClusterUpgrade),
        Some(GateReason::SupervisorUnknown)
    );
    assert_eq!(world.workload.asked_to_write(), Vec::<String>::new());
    world.management.take_everything();
    world.reconcile().await;
    world.reconcile().await;
    assert_eq!((found(&world), has_values(&world)), (Some(true), Some(true)));
}

/// VirtualMachines that are deleted or hidden later change nothing.
#[tokio::test(start_paused = true)]
async fn an_answer_stays() {
    let world = on_vsphere();
    serve(&world);
    put_machine(&world);
    world.reconcile().await;
    let (path, _) = world.management.only("virtualmachines");
    world.management.remove(&path);
    world.management.refuse(MACHINES, 403);
    world.reconcile().await;
    assert_eq!((found(&world), has_values(&world)), (Some(true), Some(true)));
    assert_ne!(
        world.held(sluice_crds::run::Hook::BeforeClusterUpgrade),
        Some(GateReason::SupervisorUnknown)
    );
}

/// Other infrastructure is no reason for a request.
#[tokio::test(start_paused = true)]
async fn other_clusters_ask_nothing() {
    let world = World::new();
    serve(&world);
    put_machine(&world);
    world.reconcile().await;
    assert_eq!(world.management.times_asked_below(MACHINES), 0);
    assert_eq!(
        world
            .management
            .times_asked_for("/apis/vmoperator.vmware.com/v1alpha2"),
        0
    );
    assert_eq!(found(&world), None);
    assert_eq!(has_values(&world), Some(false));
}
