//! Cost of status streams whose client does not read.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_tests::extension::{Replica, Settings};
use sluice_tests::requests::apply;
use sluice_tests::scenario::{Objects, sluice_definitions};
use sluice_tests::stack::{Options, Stack};
use sluice_tests::status::{Caller, GoClient, Rights};
use sluice_tests::wait;

/// Each stream shows so many Clusters.
const CLUSTERS: usize = 50;

/// Streams, and the connections that they share.
const STREAMS: &str = "1000";
const CONNECTIONS: &str = "20";

/// How often each Cluster changes while nothing reads.
const ROUNDS: usize = 4;

/// Memory limit of all streams, in bytes.
const COST: u64 = 20_000_000;

/// Timeout for a replica to observe a write, and for streams to open.
const SEEN: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streams_that_are_not_read_cost_little() -> Result<()> {
    let stack = Stack::start(Options::new("status").crds(sluice_definitions()?)).await?;
    let go = GoClient::built().await?;
    nothing_leads(&stack).await?;
    let replica = Replica::start(&stack, Settings::new("sluice")).await?;
    let caller = Caller::create(&stack, "default", "reader", Rights::OwnNamespace).await?;
    let objects: Vec<Value> = (0..CLUSTERS).flat_map(objects).collect();
    apply::apply_all(&stack.client(), &objects).await?;
    // What grows once grows here: the first records, and answers of every kind.
    change(&stack, "first").await?;
    shows(&go, &caller, &replica, "first").await?;
    let before = replica.memory().await?;

    let words = ["stall", "default", CONNECTIONS, STREAMS];
    let directory = stack.core().directory();
    let mut stalled = go.start(directory, "stalled", &replica, &caller, &words)?;
    wait::until("all streams to be open and stalled", SEEN, || async {
        match std::fs::read_to_string(stalled.log()) {
            Ok(said) if said.contains("\"stalled\"") => Ok(()),
            Ok(said) if said.contains("code") => wait::never(said),
            said => wait::not_yet(format!("{said:?}")),
        }
    })
    .await?;
    let opened = replica.memory().await?;
    ensure!(open_streams(&replica).await? == 1000, "not all streams are open");
    let mut most = opened;
    for round in 0..ROUNDS {
        let text = format!("round-{round}");
        change(&stack, &text).await?;
        shows(&go, &caller, &replica, &text).await?;
        most = most.max(replica.memory().await?);
    }
    let open = open_streams(&replica).await?;
    let (of_opened, cost) = (opened.saturating_sub(before), most.saturating_sub(before));
    println!(
        "{STREAMS} streams over {CONNECTIONS} connections cost {of_opened} bytes when open, {cost} after {ROUNDS} changes of {CLUSTERS} Clusters \
         ({before} before, {open} streams open at the end)"
    );
    ensure!(
        open == 1000,
        "{open} streams are open at the end, so the rest cost nothing"
    );
    ensure!(cost <= COST, "they cost {cost} bytes");
    stalled.terminate(Duration::from_secs(10)).await?;
    wait::until("the streams to be closed", SEEN, || async {
        match open_streams(&replica).await {
            Ok(0) => Ok(()),
            open => wait::not_yet(format!("{open:?}")),
        }
    })
    .await?;
    stack.check()?;
    stack.stop().await
}

/// Holds the lease, so that no replica writes: records are those of this test.
async fn nothing_leads(stack: &Stack) -> Result<()> {
    apply::namespace(&stack.client(), "sluice-system").await?;
    let leases: Api<Lease> = Api::namespaced(stack.client(), "sluice-system");
    let now = jiff::Timestamp::now() + Duration::from_hours(1);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "sluice-leader"},
        "spec": {"holderIdentity": "test", "leaseDurationSeconds": 36_000, "renewTime": format!("{now:.6}"), "acquireTime": format!("{now:.6}")},
    });
    let as_test = PatchParams::apply("status-test").force();
    leases
        .patch("sluice-leader", &as_test, &Patch::Apply(lease))
        .await?;
    Ok(())
}

fn name(number: usize) -> String {
    format!("stalled-{number}")
}

/// A Cluster that nothing reconciles, and its ClusterBootstrap.
fn objects(number: usize) -> [Value; 2] {
    let metadata = json!({"name": name(number), "namespace": "default"});
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata,
        "spec": {
            "paused": true,
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "None", "name": "none"},
        },
    });
    let bootstrap = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap", "metadata": metadata, "spec": {},
    });
    [cluster, bootstrap]
}

/// Writes a record of twenty unready packages with message `text` for each Cluster.
async fn change(stack: &Stack, text: &str) -> Result<()> {
    let objects = Objects::of(stack.client());
    stream::iter(0..CLUSTERS)
        .map(Ok)
        .try_for_each_concurrent(8, |number| {
            let (objects, name) = (&objects, name(number));
            async move {
                let cluster = objects
                    .get(&format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters/{name}"))
                    .await?;
                let packages: Vec<Value> = (0..20).map(|number| package(number, text)).collect();
                let record = json!({
                    "schema": 1, "clusterUID": cluster.unwrap_or_default()["metadata"]["uid"], "observedClusterGeneration": 1,
                    "observedBootstrapGeneration": 1, "label": "v1.36.3", "from": "v1.35.4", "to": "v1.36.3", "hop": "v1.36.3",
                    "packages": packages,
                    "gates": [{"hook": "BeforeClusterUpgrade", "version": "v1.36.3", "open": false, "reason": "PackagesNotReady", "message": text}],
                });
                let path = format!("/apis/run.tanzu.vmware.com/v1alpha3/namespaces/default/clusterbootstraps/{name}/status");
                objects.merge(&path, &json!({"status": {"upgrade": record}})).await
            }
        })
        .await
}

fn package(number: usize, text: &str) -> Value {
    json!({
        "name": format!("package-{number}"), "version": "1.0.0", "state": "Reconciling", "reason": "AppReconciling",
        "message": format!("{text}: waiting for deployment.apps/package-{number} in namespace package-system to have all of its pods"),
    })
}

/// Waits until the service shows `text` for every Cluster.
async fn shows(go: &GoClient, caller: &Caller<'_>, replica: &Replica, text: &str) -> Result<()> {
    let (ca, token) = (caller.ca_file(), caller.token_file());
    let words = ["list", "default", "0", ""];
    wait::until(format!("{text} to be shown"), SEEN, || async {
        match go.call(replica, &ca, Some(&token), &words).await {
            Ok(pages) => {
                let shown = pages[0]["clusters"].as_array().into_iter().flatten();
                let there = shown.filter(|cluster| cluster["upgrade"]["gates"][0]["message"] == text);
                match there.count() {
                    CLUSTERS => Ok(()),
                    count => wait::not_yet(format!("{count} of {CLUSTERS}")),
                }
            }
            Err(error) => wait::not_yet(error),
        }
    })
    .await?;
    Ok(())
}

async fn open_streams(replica: &Replica) -> Result<u64> {
    let metrics = replica.metrics().await?;
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix("sluice_status_streams "));
    Ok(value.unwrap_or("0").parse()?)
}
