use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use sluice_core::{
    protocol::{Failure, ReconcileFailure, Server},
    providers::kinds,
    schedule::SyncPeriod,
};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::{
    cache::{contract::Contract, store::Writer},
    controllers::bootstrap::object_server::ObjectServer,
    kube_client::fence::Fence,
    queue::{requeues::Requeue, work_queue},
};

const CONFIG: &str = "/apis/cni.tanzu.vmware.com/v1alpha1/namespaces/team-a/calicoconfigs/one-calico";
const ORACLE: &str = "/apis/cpi.tanzu.vmware.com/v1alpha1/namespaces/team-a/oraclecpiconfigs/one-oracle";
const CREDENTIALS: &str = "/api/v1/namespaces/cluster-api-provider-oci-system/secrets/capoci-auth-config";
const SECRET: &str = "/api/v1/namespaces/team-a/secrets/one-calico-data-values";

fn cluster() -> Cluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "one", "namespace": "team-a", "uid": "uid"},
        "spec": {
            "clusterNetwork": {"pods": {"cidrBlocks": ["100.96.0.0/11"]}},
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OCICluster", "name": "one",
            },
        },
    }))
    .unwrap()
}

/// An API server with a configuration.
fn management() -> ObjectServer {
    let server = ObjectServer::default();
    server.put(
        CONFIG,
        json!({
            "apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": "CalicoConfig",
            "metadata": {"generation": 1, "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": "uid",
            }]},
            "spec": {"calico": {"config": {"vethMTU": 1400}}},
        }),
    );
    server
}

/// Returns the shared state of reconciles of the configuration.
fn of_kind(server: &ObjectServer, triggers: &Requeues) -> KindContext {
    of(server, triggers, "CalicoConfig")
}

/// Returns the shared state of reconciles of one kind.
fn of(server: &ObjectServer, triggers: &Requeues, kind: &str) -> KindContext {
    let mut clusters = Writer::default();
    let cluster = cluster();
    clusters.apply(Event::Apply(Item::Decoded(cluster.clone())));
    let (client, dependents) = (server.client(), Dependents::default());
    let context = Context {
        remotes: Arc::new(Remotes::new(
            String::new(),
            triggers.clone(),
            dependents.clone(),
            Fence::open(),
        )),
        watches: Watches::new(
            Contract::new(client.clone(), Vec::new()),
            dependents.clone(),
            Rollbacks::default(),
        ),
        rollbacks: Rollbacks::default(),
        values_watches: ValuesWatches::default(),
        events: Notifier::new(client.clone()),
        client,
        clusters: clusters.store(),
        dependents,
        configurations: Configurations::default(),
        triggers: triggers.clone(),
        sync_period: SyncPeriod {
            length: Duration::from_mins(10),
            since: now(),
        },
        retries: Mutex::default(),
        metrics: ReconcileMetrics::default(),
    };
    let mut kinds = kinds().into_iter();
    let found = kinds.find(|found| found.resource.kind == kind);
    KindContext {
        shared: Arc::new(context),
        kind: found.unwrap(),
        name: kind.into(),
        uids: Mutex::default(),
    }
}

/// Returns the stored configuration.
fn config(server: &ObjectServer) -> Arc<DynamicObject> {
    Arc::new(serde_json::from_value(server.get(CONFIG).unwrap()).unwrap())
}

/// Reconciles the stored configuration. Returns the code of a refused write.
async fn reconciled(server: &ObjectServer) -> Result<(), u16> {
    match reconcile(&config(server), &of_kind(server, &Requeues::default())).await {
        Ok(_) => Ok(()),
        Err(Error::Refused(failure)) => Err(failure.code.unwrap()),
        Err(error) => panic!("{error}"),
    }
}

/// Returns the Secret with this content, as a later write stores it.
fn values(server: &ObjectServer, content: &str) -> Value {
    let mut secret = server.get(SECRET).unwrap();
    secret["data"] = json!({"values.yaml": content});
    secret
}

#[tokio::test]
async fn values_are_written_once() {
    let server = management();
    reconciled(&server).await.unwrap();
    let written = server.get(SECRET).unwrap();
    assert!(!written["data"]["values.yaml"].is_null(), "{written}");
    reconciled(&server).await.unwrap();
    assert_eq!(server.get(SECRET).unwrap(), written);
}

/// Another leader with a newer cache writes at the same time.
#[tokio::test]
async fn values_that_were_written_since_they_were_read_stay() {
    let server = management();
    reconciled(&server).await.unwrap();
    server.put(SECRET, values(&server, "b2xk"));
    let newer = values(&server, "bmV3ZXI=");
    server.put_later(SECRET, newer.clone());
    assert_eq!(reconciled(&server).await, Err(409));
    assert_eq!(server.get(SECRET).unwrap()["data"], newer["data"]);
    // The reconcile reads it again.
    assert_eq!(reconciled(&server).await, Ok(()));
    assert_ne!(server.get(SECRET).unwrap()["data"], newer["data"]);
}

#[tokio::test]
async fn values_that_were_made_again_since_they_were_read_stay() {
    let server = management();
    reconciled(&server).await.unwrap();
    server.put(SECRET, values(&server, "b2xk"));
    let mut other = values(&server, "bmV3ZXI=");
    other["metadata"]["uid"] = json!("another");
    server.put_later(SECRET, other.clone());
    assert_eq!(reconciled(&server).await, Err(409));
    assert_eq!(server.get(SECRET).unwrap()["metadata"]["uid"], "another");
}

#[tokio::test]
async fn values_that_appear_after_they_were_found_missing_stay() {
    let server = management();
    let newer =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"values.yaml": "bmV3ZXI="}});
    server.put_later(SECRET, newer.clone());
    assert_eq!(reconciled(&server).await, Err(409));
    assert_eq!(server.get(SECRET).unwrap()["data"], newer["data"]);
}

fn credentials(region: &str) -> Value {
    let data =
        json!({"region": region, "tenancy": "dA==", "user": "dQ==", "key": "aw==", "fingerprint": "Zg=="});
    let metadata = json!({"annotations": {sluice_crds::labels::annotation::ALLOWED_NAMESPACES: "team-a"}});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
}

/// Configurations with credentials are requeued without events.
#[tokio::test(start_paused = true)]
async fn credentials_are_read_again_every_ten_seconds_while_the_cluster_is_hot_and_else_once_in_a_period() {
    let (server, minute) = (management(), Duration::from_mins(1));
    let mut config = server.get(CONFIG).unwrap();
    config["apiVersion"] = json!("cpi.tanzu.vmware.com/v1alpha1");
    config["kind"] = json!("OracleCPIConfig");
    config["spec"] = json!({"compartment": "c", "vcn": "v"});
    server.put(ORACLE, config);
    server.put(CREDENTIALS, credentials("cg=="));
    let ctx = Arc::new(of(&server, &Requeues::default(), "OracleCPIConfig"));
    let (requeues, shared) = (ctx.shared.dependents.requeues(&ctx.name), Arc::clone(&ctx));
    let management = server.clone();
    let _reconciles = AbortOnDropHandle::new(tokio::spawn(async move {
        let queue = &shared.shared.metrics.controllers.provider.queue;
        work_queue::run(requeues, 1, &CancellationToken::new(), queue, |_| {
            let (ctx, config) = (Arc::clone(&shared), management.get(ORACLE).unwrap());
            let config = Arc::new(serde_json::from_value(config).unwrap());
            async move { again(reconcile(&config, &ctx).await.unwrap()) }
        })
        .await;
    }));
    let (one, oracle) = (
        ClusterRef::new("team-a", "one"),
        ClusterRef::new("team-a", "one-oracle"),
    );
    let written = || {
        server
            .get("/api/v1/namespaces/team-a/secrets/one-oracle-cpi-data-values")
            .unwrap()
    };
    let requests_within = async |time| {
        let before = server.requests();
        sleep(time).await;
        server.requests() - before
    };

    ctx.shared.dependents.enqueue(&ctx.reference(oracle));
    sleep(minute).await;
    let first = written();
    let (second, resync) = (
        Duration::from_secs(1),
        ctx.shared.sync_period.until_resync("uid", now()),
    );
    assert_eq!(
        requests_within(resync.saturating_sub(second)).await,
        0,
        "it is cold"
    );
    assert_ne!(requests_within(2 * second).await, 0, "its period is over");

    let workload = ObjectServer::default().client();
    let _connection = ctx.shared.remotes.adopt("uid", &one, "digest", &workload);
    sleep(minute).await;
    server.put(CREDENTIALS, credentials("b3RoZXI="));
    sleep(Duration::from_secs(11)).await;
    assert_ne!(written()["data"], first["data"], "it is hot");

    ctx.shared.remotes.close("uid");
    sleep(minute).await;
    assert_eq!(requests_within(6 * minute).await, 0, "it is cold again");
}

/// Counts the requeues of the Cluster that read its values.
fn requeues_with_reads(triggers: &mut (impl Stream<Item = Requeue> + Unpin)) -> usize {
    let requeues_with_reads = std::iter::from_fn(|| triggers.next().now_or_never().flatten());
    requeues_with_reads
        .filter(|trigger| trigger.needs_read && trigger.cluster.name() == "one")
        .count()
}

#[tokio::test]
async fn a_cluster_reads_its_values_after_they_were_written() {
    let (server, triggers) = (management(), Requeues::default());
    let mut requeues = Box::pin(triggers.listen());
    let ctx = of_kind(&server, &triggers);
    reconcile(&config(&server), &ctx).await.unwrap();
    assert_eq!(requeues_with_reads(&mut requeues), 1);
    reconcile(&config(&server), &ctx).await.unwrap();
    assert_eq!(requeues_with_reads(&mut requeues), 0, "nothing was written");
}

/// The write may have succeeded, and then the next reconcile has nothing to write.
#[tokio::test(start_paused = true)]
async fn a_cluster_reads_its_values_after_a_canceled_reconcile() {
    let (server, triggers) = (management(), Requeues::default());
    let mut requeues = Box::pin(triggers.listen());
    let ctx = Arc::new(of_kind(&server, &triggers));
    let _answers = server.wait_at("/api/v1/namespaces/team-a/secrets");
    let ended = reconcile(&config(&server), &ctx).await;
    assert!(
        matches!(ended, Err(Error::Failed(ReconcileFailure::TimedOut))),
        "{ended:?}"
    );
    assert_eq!(requeues_with_reads(&mut requeues), 1);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_always_conflicts_is_tried_ever_later() {
    let server = management();
    let ctx = Arc::new(of_kind(&server, &Requeues::default()));
    let conflict = Error::Refused(Failure {
        code: Some(409),
        ..Failure::other(Server::Management, "")
    });
    for _ in 0..40 {
        failed(&config(&server), &conflict, &ctx);
    }
    let again =
        || lock(&ctx.shared.retries).failed(ctx.reference(ClusterRef::of(&*config(&server))), true, now());
    assert!(matches!(again(), Again::Later(_)));
    reconcile(&config(&server), &ctx).await.unwrap();
    assert!(matches!(again(), Again::Soon(_)), "begins again");
}

/// A faulty configuration is reconciled, deleted and created again.
#[tokio::test]
async fn deletion_drops_the_event_state_of_a_configuration() {
    let server = management();
    server.edit(CONFIG, |config| {
        config["metadata"]["ownerReferences"] = json!([]);
    });
    let ctx = of_kind(&server, &Requeues::default());
    let mut writer = Writer::default();
    let store = writer.store();
    let name = ClusterRef::new("team-a", "one-calico");
    let mut there = |uid: &str| {
        server.edit(CONFIG, |config| config["metadata"]["uid"] = json!(uid));
        let config = DynamicObject::clone(&config(&server));
        writer.apply(Event::Apply(Item::Decoded(config.clone())));
        config
    };
    let has_turn = async || {
        turn(&ctx, &store, name.clone()).await;
        ctx.shared.events.len()
    };
    there("first");
    assert_eq!(has_turn().await, 1);
    let second = there("second");
    assert_eq!(has_turn().await, 1, "that of the first one is forgotten");
    writer.apply(Event::Delete(Item::Decoded(second)));
    assert_eq!(has_turn().await, 0);
}

/// Returns an API server after the reconcile of a configuration without a Cluster.
async fn found_a_problem() -> ObjectServer {
    let server = management();
    server.edit(CONFIG, |config| {
        config["metadata"]["ownerReferences"] = json!([]);
    });
    reconciled(&server).await.unwrap();
    server
}

/// The event exists before the condition is visible.
#[tokio::test]
async fn a_problem_is_published_before_the_condition_is_written() {
    let server = found_a_problem().await;
    let written = server.asked_to_write();
    let [event, status] = written.as_slice() else {
        panic!("{written:?}");
    };
    assert!(event.starts_with("POST /apis/events.k8s.io/"), "{written:?}");
    assert_eq!(*status, format!("PATCH {CONFIG}/status"));
}

/// The reporting instance is not a Pod name, so that events of all leaders are found alike.
#[tokio::test]
async fn events_are_reported_by_sluice_whichever_replica_leads() {
    let server = found_a_problem().await;
    let (_, event) = server.only("events");
    assert_eq!(event["reportingController"], "sluice");
    assert_eq!(event["reportingInstance"], "sluice");
}
