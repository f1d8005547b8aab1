//! Causes of gates that are held for long.

use sluice_core::{
    held_cause::{Probe, ProbedPackage},
    protocol::Server,
};
use sluice_crds::run::Hook;

use super::*;
use crate::controllers::bootstrap::world::{APPS, BOOTSTRAP, World, cluster};

const DAEMON_SETS: &str = "/apis/apps/v1/daemonsets";
const INSTALL: &str = "/apis/packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packageinstalls/one-antrea";

/// Returns a Cluster whose gate has been held for years, and whose package waits for an image.
async fn held_for_long() -> World {
    let world = World::new();
    world.reconcile().await;
    assert!(world.held(Hook::BeforeClusterUpgrade).is_some());
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["status"]["held"]["since"] = json!("2020-01-01T00:00:00Z");
    });
    let (install, _) = world.workload.only("packageinstalls");
    let name = install.rsplit('/').next().unwrap();
    let label = json!({"label": "kapp.k14s.io/app=1", "namespaces": ["kube-system"]});
    world.workload.put(
        &format!("{APPS}/{name}"),
        json!({
            "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App", "metadata": {}, "spec": {},
            "status": {"deploy": {"kapp": {"associatedResources": label}}},
        }),
    );
    let waiting = json!({"name": "agent", "state": {"waiting": {"reason": "ErrImagePull"}}});
    world.workload.put(
        "/api/v1/namespaces/kube-system/pods/agent-0",
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {}, "status": {"containerStatuses": [waiting]},
        }),
    );
    world
}

fn cause(world: &World) -> Value {
    world.management.get(BOOTSTRAP).unwrap()["status"]["held"]["cause"].clone()
}

#[tokio::test(start_paused = true)]
async fn the_cause_of_a_long_hold_is_read_beside_the_reconcile() {
    let world = Box::pin(held_for_long()).await;
    let leader = Box::pin(world.leader()).await;
    for _ in 0..3 {
        reconcile_once(&cluster(&leader), &leader).await.unwrap();
        // The probe runs meanwhile. A list shows the written status.
        sleep(Duration::from_secs(15)).await;
    }
    let expected = json!({
        "name": "ImagePull", "object": "Pod kube-system/agent-0", "evidence": "container agent waits: ErrImagePull",
    });
    assert_eq!(cause(&world), expected);
    assert_eq!(
        world.workload.times_asked_for(DAEMON_SETS),
        1,
        "once in five minutes"
    );
    assert!(world.held(Hook::BeforeClusterUpgrade).is_some());
}

#[tokio::test(start_paused = true)]
async fn four_probes_run_at_once() {
    let world = World::new();
    let answers = world.workload.wait_at(INSTALL);
    let (management, workload) = (world.management.client(), world.workload.client());
    let probe = |cluster: &str| Probe {
        subject: "antrea 1.9.0".to_owned(),
        package: Some(ProbedPackage {
            server: Server::Workload,
            namespace: "tkg-system".to_owned(),
            name: "one-antrea".to_owned(),
        }),
        is_unreachable: false,
        namespace: "team-a".to_owned(),
        cluster: cluster.to_owned(),
    };
    let probes = Probes::default();
    let start = |uid: &str| {
        let clients = (management.clone(), Some(workload.clone()));
        probes.start(uid, clients, probe(uid))
    };
    assert_eq!(
        ["a", "b", "c", "d", "e"].map(start),
        [true, true, true, true, false]
    );
    assert!(start("a"), "it runs already");
    probes.forget("b");
    sleep(Duration::from_secs(1)).await;
    assert!(start("e"));
    assert!(probes.take("a").is_none());
    // It ends without a response.
    sleep(Duration::from_secs(11)).await;
    assert!(probes.take("a").is_some());
    assert!(probes.take("a").is_none(), "it is taken once");
    drop(answers);
}
