//! Effects of flags and of a signal on the requests to the API servers.

use crate::kube_client::bounded::REQUEST;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    loopback::{Loopback, until},
    *,
};
use crate::controllers::bootstrap::{
    object_server::ObjectServer,
    world::{CLUSTER, KUBECONFIG, World},
};

const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/goods.controlplane.example.com";
const CONTROL_PLANES: &str = "/apis/controlplane.example.com/v1/goods";

/// Adds a configuration of the Cluster that depends on its control plane.
fn put_configuration(management: &ObjectServer) {
    let group = "infrastructure.cluster.x-k8s.io";
    let version = json!({"groupVersion": format!("{group}/v1beta1"), "version": "v1beta1"});
    let served = json!({"name": group, "versions": [version], "preferredVersion": version});
    management.edit("/apis", |groups| {
        groups["groups"].as_array_mut().unwrap().push(served);
    });
    let kind = json!({
        "name": "vsphereclusters", "singularName": "", "namespaced": true, "kind": "VSphereCluster",
        "verbs": ["list", "watch"],
    });
    management.put(
        &format!("/apis/{group}/v1beta1"),
        json!({"kind": "APIResourceList", "groupVersion": format!("{group}/v1beta1"), "resources": [kind]}),
    );
    management.put(
        &format!("/apis/{group}/v1beta1/namespaces/team-a/vsphereclusters/one"),
        json!({"metadata": {}, "spec": {}}),
    );
    management.edit(CLUSTER, |cluster| {
        let infrastructure = json!({"apiGroup": group, "kind": "VSphereCluster", "name": "one"});
        cluster["spec"]["infrastructureRef"] = infrastructure;
    });
    let owner =
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": "uid"});
    management.put(
        "/apis/csi.tanzu.vmware.com/v1alpha1/namespaces/team-a/vspherecsiconfigs/one",
        json!({
            "apiVersion": "csi.tanzu.vmware.com/v1alpha1", "kind": "VSphereCSIConfig",
            "metadata": {"ownerReferences": [owner]}, "spec": {"vsphereCSI": {"mode": "vsphereCSI"}},
        }),
    );
}

#[tokio::test]
async fn a_group_of_the_operator_is_read_without_a_label() {
    let world = World::new();
    let unlabelled = |definition: &mut Value| definition["metadata"]["labels"] = json!({});
    world.management.edit(DEFINITION, unlabelled);
    put_configuration(&world.management);
    let servers = Loopback::of(&world).await;
    let flags = ["--control-plane-group", "controlplane.example.com"];
    let running = servers.run(&flags, &CancellationToken::new());
    let listed = || world.management.times_asked_for(CONTROL_PLANES) == 2;
    until(
        "the control planes are listed for the Cluster and for its configuration",
        listed,
    )
    .await;
    assert!(!running.is_finished());
    running.abort();
}

/// An installation without packages has no rights on their kinds, and one without gates none on those of gates.
#[tokio::test]
async fn only_what_is_enabled_is_asked_for() {
    const CLUSTERS: &str = "/apis/cluster.x-k8s.io/v1beta2/clusters";
    const OF_PACKAGES: [&str; 6] = [
        "tanzu.vmware.com",
        "/upgradeoverrides",
        "carvel.dev",
        "k14s.io",
        "/secrets",
        "/namespaces/kube-system",
    ];
    const OF_GATES: [&str; 2] = ["/upgradegates", "/clusterupgrades"];
    for (flag, asked, not_asked) in [
        ("--packages=false", &OF_GATES[..], &OF_PACKAGES[..]),
        ("--gates=false", &OF_PACKAGES[..1], &OF_GATES[..]),
    ] {
        let world = World::new();
        let servers = Loopback::of(&world).await;
        let running = servers.run(&[flag], &CancellationToken::new());
        let below = |part: &&str| world.management.times_asked_below(part) > 0;
        until("what is enabled is listed", || {
            world.management.was_asked_for(CLUSTERS) && asked.iter().all(below)
        })
        .await;
        // By then the controllers have started, too.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let other: Vec<_> = not_asked.iter().filter(|part| below(part)).collect();
        assert!(other.is_empty(), "{flag}: {other:?}");
        assert!(!running.is_finished(), "{flag}");
        running.abort();
    }
}

#[tokio::test]
async fn secrets_are_watched_where_the_operator_says() {
    const ALL: &str = "/api/v1/secrets";
    const OF_A_NAMESPACE: &str = "/api/v1/namespaces/team-a/secrets";
    for (flags, listed, other) in [
        (&[][..], ALL, OF_A_NAMESPACE),
        (&["--secret-namespaces", "team-a,team-b"][..], OF_A_NAMESPACE, ALL),
    ] {
        let world = World::new();
        let servers = Loopback::of(&world).await;
        let running = servers.run(flags, &CancellationToken::new());
        let is_listed = || world.management.was_asked_for(listed);
        until("Secrets are listed", is_listed).await;
        assert!(!world.management.was_asked_for(other));
        running.abort();
    }
}

/// An unanswered request would block the shutdown for half a minute.
#[tokio::test]
async fn a_hanging_reconcile_does_not_block_shutdown() {
    let world = World::new();
    let servers = Loopback::of(&world).await;
    let goes_on = world.management.wait_at(KUBECONFIG);
    let stop = CancellationToken::new();
    let running = servers.run(&[], &stop);
    until("a reconcile waits", || goes_on.receiver_count() > 1).await;
    stop.cancel();
    let ended = timeout(REQUEST.time / 2, running).await;
    assert!(ended.is_ok_and(|ended| ended.unwrap().is_ok()), "it still waits");
}

#[tokio::test]
async fn a_request_that_is_refused_is_not_repeated_by_itself() {
    const REFUSED: &str = "/api/v1/namespaces/team-a/secrets/refused";
    let world = World::new();
    world.management.refuse(REFUSED, 503);
    let servers = Loopback::of(&world).await;
    let args = servers.args(&[]);
    let transport = transport(&args, &RestClientMetrics::default(), pool::IDLE)
        .await
        .unwrap();
    let secrets = Api::<Secret>::namespaced(transport.into_client(), "team-a");
    let refused = timeout(Duration::from_mins(1), secrets.get("refused")).await;
    assert!(matches!(refused, Ok(Err(kube::Error::Api(_)))), "{refused:?}");
    assert_eq!(world.management.times_asked_for(REFUSED), 1);
}
