//! Leftovers that cannot be removed, or come back.

use sluice_core::reconcile::cluster::Done;
use sluice_crds::labels::label::CAPI_CLUSTER_NAME;

use super::*;
use crate::controllers::bootstrap::world::cluster;

fn pause(world: &World) {
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["annotations"] = json!({annotation::LEGACY_PAUSED: RELEASE});
        cluster["spec"]["paused"] = json!(true);
    });
}

fn mark_deleted(world: &World, path: &str) {
    world.management.edit(path, |object| {
        object["metadata"]["deletionTimestamp"] = json!(jiff::Timestamp::now().to_string());
    });
}

/// Returns the reasons of published events.
fn events(world: &World) -> Vec<Value> {
    let events = world.management.all("events").into_iter();
    events.map(|(_, event)| event["reason"].clone()).collect()
}

fn hold_machine(world: &World, name: &str) {
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {
            "labels": {CAPI_CLUSTER_NAME: "one"},
            "annotations": {annotation::LEGACY_PRE_TERMINATE: annotation::LEGACY_PRE_TERMINATE_OWNER},
        },
    });
    world.management.put(&format!("{MACHINES}/{name}"), machine);
}

fn is_held(world: &World, machine: &str) -> bool {
    !annotations(world, machine)[annotation::LEGACY_PRE_TERMINATE].is_null()
}

/// Cluster API does not reconcile a paused Cluster, so no event would follow.
#[tokio::test(start_paused = true)]
async fn a_pause_that_keeps_a_deletion_from_going_on_is_removed_again_after_a_failure() {
    let world = Box::pin(World::released()).await;
    pause(&world);
    mark_deleted(&world, CLUSTER);
    world.management.refuse_writes("/clusters/one", 403);
    // The first leader writes the record, the second one the fault.
    Box::pin(world.leader()).await;
    Box::pin(world.leader()).await;
    let leader = Box::pin(world.leader()).await;
    let done = reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert!(
        matches!(done, Done::RequeueAfter(time) if time <= Duration::from_mins(1)),
        "{done:?}"
    );
    let (reason, message) = condition(&world).expect("it is said");
    assert_eq!(reason, "LeftoversNotRemoved");
    assert!(message.contains("spec.paused"), "{message}");
    world.management.take_everything();
    Box::pin(world.leader()).await;
    let cluster = world.management.get(CLUSTER).unwrap();
    assert!(cluster["spec"]["paused"].is_null(), "{cluster}");
}

/// Its machines have no status yet.
#[tokio::test(start_paused = true)]
async fn a_pool_that_is_added_leaves_what_is_kept() {
    let world = installed_by_the_addons_manager();
    world.reconcile().await;
    world.reconcile().await;
    assert!(world.record().outcome.is_some(), "{:?}", world.record());
    let before = install(&world);
    let pool = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"labels": {CAPI_CLUSTER_NAME: "one", label::TOPOLOGY_OWNED: ""}},
        "spec": {"clusterName": "one", "template": {"spec": {"version": VERSION}}},
    });
    let path = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/machinedeployments/added";
    world.management.put(path, pool);
    world
        .management
        .edit(CLUSTER, |cluster| cluster["metadata"]["generation"] = json!(2));
    world.reconcile().await;
    world.reconcile().await;
    assert_eq!(install(&world), before);
    assert!(world.record().outcome.is_some(), "{:?}", world.record());
}

/// The addons-manager has removed its finalizers, so only the condition shows that Machines may still be held.
#[tokio::test(start_paused = true)]
async fn what_was_not_removed_is_removed_by_a_later_process() {
    let world = World::new();
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["status"] = json!({"resolvedTKR": RELEASE});
    });
    hold_machine(&world, "held");
    world.management.refuse_writes("/machines/", 403);
    world.leader().await;
    world.control_plane_at(VERSION);
    world.reconcile().await;
    world.deployed();
    world.leader().await;
    assert_eq!(
        condition(&world).map(|(reason, _)| reason).as_deref(),
        Some("LeftoversNotRemoved")
    );
    world.management.take_everything();
    world.reconcile().await;
    assert!(!is_held(&world, "held"));
    world.reconcile().await;
    assert_eq!(condition(&world), None);
}

/// Sluice does not write Machines of a Cluster that a user has paused, and records them.
#[tokio::test(start_paused = true)]
async fn what_a_pause_of_a_user_has_kept_is_removed_by_a_later_process() {
    let world = World::new();
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["status"] = json!({"resolvedTKR": RELEASE});
    });
    hold_machine(&world, "held");
    let paused = |is: bool| {
        world
            .management
            .edit(CLUSTER, |cluster| cluster["spec"]["paused"] = json!(is));
    };
    paused(true);
    world.leader().await;
    world.reconcile().await;
    world.reconcile().await;
    assert!(is_held(&world, "held") && world.record().outcome.is_none());
    assert_eq!(
        condition(&world).map(|(reason, _)| reason).as_deref(),
        Some("ClusterPaused")
    );
    paused(false);
    world.reconcile().await;
    assert!(!is_held(&world, "held"));
    world.reconcile().await;
    assert_eq!(condition(&world), None);
}

/// Without a label and a ClusterBootstrap it is unmanaged, and nothing else removes the finalizer.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_not_managed_any_more_can_be_deleted() {
    let world = World::new();
    leave(&world);
    world.management.remove(BOOTSTRAP);
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"] = json!({});
    });
    world.leader().await;
    let finalizers = |path| world.management.get(path).unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(CLUSTER), json!([OTHER, OLD]), "it lives");
    mark_deleted(&world, CLUSTER);
    world.leader().await;
    for path in [CLUSTER, KUBECONFIG] {
        assert_eq!(finalizers(path), json!([OTHER]), "{path}");
    }
    assert!(!is_held(&world, "held"));
}

/// Without it and without a label, the Cluster is unmanaged.
#[tokio::test(start_paused = true)]
async fn a_bootstrap_that_is_being_deleted_goes_last() {
    let world = World::new();
    leave(&world);
    mark_deleted(&world, BOOTSTRAP);
    world.leader().await;
    assert_eq!(finalizers(&world), vec![json!([OTHER]); 3]);
    let asked = world.management.asked_to_write();
    let patches: Vec<_> = asked.iter().filter(|asked| asked.starts_with("PATCH")).collect();
    assert_eq!(patches.len(), 4, "{patches:?}");
    assert!(
        patches[2].ends_with("/clusters/one") && patches[3].ends_with("/clusterbootstraps/one"),
        "{patches:?}"
    );
}

/// A webhook restores it in the same admission: the API server accepts the patch, and the object stays unchanged.
#[rstest]
#[case::a_pause(true)]
#[case::a_finalizer(false)]
#[tokio::test(start_paused = true)]
async fn what_a_webhook_puts_back_at_once_is_said(#[case] paused: bool) {
    let world = Box::pin(World::released()).await;
    if paused {
        pause(&world);
    } else {
        world.management.edit(CLUSTER, |cluster| {
            cluster["metadata"]["finalizers"] = json!([OTHER, OLD]);
        });
    }
    world.management.keep("/clusters/one");
    let leader = Box::pin(world.leader()).await;
    // The first leader reports it. The watch of the second one does not show the report.
    for _ in 0..2 {
        let _ = reconcile_once(&cluster(&leader), &leader).await;
    }
    let reason = condition(&world).map(|(reason, _)| reason);
    assert_eq!(reason.as_deref(), Some("AddonsManagerRuns"));
    let events = events(&world);
    for reason in ["LegacyPauseRemoved", "LegacyLeftoversRemoved"] {
        assert!(!events.contains(&json!(reason)), "{events:?}");
    }
    let patches = patched(&world).len();
    let _ = reconcile_once(&cluster(&leader), &leader).await;
    assert_eq!(patched(&world).len(), patches, "it is left alone for a while");
}

/// Each Machine is released on its own. The finalizers stay, because Sluice finds Machines by them.
#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_written_holds_no_other_one() {
    let world = World::new();
    leave(&world);
    for name in ["a-first", "z-last"] {
        hold_machine(&world, name);
    }
    world.management.refuse_writes("/machines/held", 403);
    world.leader().await;
    let held = ["a-first", "held", "z-last"].map(|machine| is_held(&world, machine));
    assert_eq!(held, [false, true, false]);
    assert_eq!(finalizers(&world), vec![json!([OTHER, OLD]); 3]);
    let (_, message) = condition(&world).expect("it is said");
    assert!(message.contains("Machine team-a/held"), "{message}");
    assert!(
        events(&world).contains(&json!("LegacyLeftoversRemoved")),
        "{:?}",
        events(&world)
    );
}

/// Returns a process with the local state of `leader` and current stores.
async fn reread(world: &World, leader: &Context) -> Context {
    let local_state = leader.local_states().get("uid");
    let next = Box::pin(world.leader()).await;
    next.local_states().keep("uid", local_state);
    next
}

/// It writes the same PackageInstalls, so each package would be deployed repeatedly.
#[tokio::test(start_paused = true)]
async fn a_name_of_the_addons_manager_that_comes_back_is_said() {
    let world = installed_by_the_addons_manager();
    let before = install(&world)["spec"].clone();
    world.management.put(VALUES, values(2));
    let leader = Box::pin(world.leader()).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert!(
        named(&world).starts_with("one-antrea-data-values-"),
        "{}",
        named(&world)
    );
    world
        .workload
        .edit(INSTALL, |install| install["spec"] = before.clone());
    let leader = reread(&world, &leader).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(install(&world)["spec"], before, "it is left alone for a while");
    let leader = reread(&world, &leader).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let (reason, message) = condition(&world).expect("it is said");
    assert_eq!(reason, "AddonsManagerRuns");
    assert!(message.contains("PackageInstall one-antrea"), "{message}");
    let leader = reread(&world, &leader).await;
    sleep(Duration::from_mins(5)).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(install(&world)["spec"], before);
    assert_eq!(
        condition(&world).map(|(reason, _)| reason).as_deref(),
        Some("AddonsManagerRuns"),
        "nothing reads it meanwhile"
    );
}

/// The whole fleet waits for one action of an operator.
#[rstest]
#[case::the_addons_manager_runs(true)]
#[case::a_webhook_is_not_answered_for(false)]
#[tokio::test(start_paused = true)]
async fn settled_clusters_with_a_trouble_that_all_have_are_left_alone(#[case] runs: bool) {
    let world = Box::pin(World::completed()).await;
    if runs {
        world.management.edit(CLUSTER, |cluster| {
            cluster["metadata"]["finalizers"] = json!([OTHER, OLD]);
        });
        world.management.keep("/clusters/one");
    } else {
        world.management.edit(BOOTSTRAP, |bootstrap| {
            bootstrap["metadata"]["annotations"] = json!({});
        });
        world.management.ask_webhook("/clusterbootstraps");
    }
    let leader = Box::pin(world.leader()).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let leader = reread(&world, &leader).await;
    let asked = world.workload.requests();
    let again = async || {
        let Done::RequeueAfter(time) = reconcile_once(&cluster(&leader), &leader).await.unwrap() else {
            panic!("it is not tried again");
        };
        time.as_secs()
    };
    let first = again().await;
    assert!((20..=30).contains(&first), "{first}");
    sleep(Duration::from_secs(500)).await;
    let later = again().await;
    assert!((35..=60).contains(&later), "{later}");
    assert_eq!(world.workload.requests(), asked);
    assert!(leader.remotes.is_empty());
    assert!(world.record().outcome.is_some());
}
