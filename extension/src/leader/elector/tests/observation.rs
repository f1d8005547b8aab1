//! Observations of the lease by a replica, leading or not.

use rstest::rstest;
use serde_json::json;
use tokio::time::sleep;

use super::super::*;
use crate::controllers::bootstrap::object_server::ObjectServer;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/sluice/leases/sluice-leader";
const LASTS: Duration = Duration::from_secs(15);

/// Runs a candidate until the task is dropped, and returns its observation.
fn takes_part(server: &ObjectServer) -> (Leadership, tokio::task::JoinHandle<()>) {
    let config = Config {
        namespace: "sluice".to_owned(),
        identity: "this".to_owned(),
        lease_duration: LASTS,
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    let leadership = Leadership::new(LASTS);
    let mut elector = Elector::new(server.client(), config, Fence::closed()).showing(leadership.clone());
    let running = tokio::spawn(async move {
        let stop = CancellationToken::new();
        elector.acquire(&stop).await.unwrap();
        elector.renew(&stop).await.unwrap();
    });
    (leadership, running)
}

/// The clock of the process is paused, so it never acquires the lease of another process.
#[rstest]
#[case::as_long_as_its_own(15, 60)]
#[case::longer_than_its_own(100, 145)]
#[tokio::test(start_paused = true)]
async fn a_replica_sees_whether_another_one_leads(#[case] lasts: u64, #[case] missed_after: u64) {
    let server = ObjectServer::default();
    let spec = json!({"holderIdentity": "another", "leaseDurationSeconds": lasts});
    server.put(PATH, json!({"metadata": {}, "spec": spec}));
    let (leadership, _running) = takes_part(&server);
    for renewal in 0..30 {
        sleep(Duration::from_secs(10)).await;
        assert!(!leadership.is_missing(), "{renewal}");
        server.edit(PATH, |lease| lease["spec"]["leaseTransitions"] = json!(renewal));
    }
    sleep(Duration::from_secs(missed_after)).await;
    assert!(!leadership.is_missing());
    sleep(Duration::from_secs(3)).await;
    assert!(leadership.is_missing());
    server.edit(PATH, |lease| lease["spec"]["leaseTransitions"] = json!(100));
    sleep(Duration::from_secs(3)).await;
    assert!(!leadership.is_missing());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_leads_sees_itself() {
    let server = ObjectServer::default();
    let (leadership, running) = takes_part(&server);
    sleep(Duration::from_secs(200)).await;
    assert!(!running.is_finished());
    assert!(!leadership.is_missing());
}
