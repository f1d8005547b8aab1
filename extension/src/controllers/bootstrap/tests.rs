mod clones;
mod confirm;
mod creation;
mod deletion;
mod drift_check;
mod fence;
mod held_cause;
mod kubeconfig;
mod legacy_pause;
mod management;
mod open_gate;
mod provided;
mod relabel;
mod release;
mod requests;
mod requirements;
mod settled;
mod silence;
mod supervisor;
mod takeover;
mod unlisted;
mod unseen;
mod upgrade_warnings;
mod values;
mod waiting;
mod workers;

use std::future::pending;

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use prometheus_client::{encoding::text, registry::Registry};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::{reasons::GateReason, reconcile::cluster::LocalState};
use sluice_crds::labels::label;
use tokio::{task::JoinHandle, time::sleep};
use tower::{BoxError, service_fn};

use super::*;
use world::{CONCURRENCY, World};

use crate::{
    cache::frozen::Frozen, kube_client::fence::Fence, queue::requeues::Requeues, server::health::Health,
};

/// Clusters whose release does not exist.
fn items(path: &str) -> Vec<Value> {
    if !path.ends_with("/clusters") {
        return Vec::new();
    }
    let cluster = |name: &str| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {
                "name": name, "namespace": "team-a", "uid": name, "resourceVersion": "1", "generation": 1,
                "labels": {label::TKR: "missing"},
            },
            "spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.35.4"}},
        })
    };
    ["bad", "good", "worse"].map(cluster).into()
}

/// Published events: name of the Cluster and reason.
type Events = Arc<Mutex<Vec<(String, String)>>>;

/// Outcome of a request that reports the missing release of a Cluster.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Answered,
    Panics,
    Hangs,
}

/// Returns a client of an API server with [`items`].
fn client(frozen: &Frozen, events: &Events, way: fn(&str) -> Way) -> Client {
    let (events, server) = (Arc::clone(events), frozen.client(items));
    let service = service_fn(move |request: Request<Body>| {
        let (events, server) = (Arc::clone(&events), server.clone());
        async move {
            if request.method() != Method::POST {
                return Ok(server.send(request).await?);
            }
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let event: Value = serde_json::from_slice(&body)?;
            let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (name, reason) = (text("/regarding/name"), text("/reason"));
            let way = if reason == "TKRNotFound" {
                way(name)
            } else {
                Way::Answered
            };
            assert!(way != Way::Panics, "a bug");
            let event = (name.to_owned(), reason.to_owned());
            events.lock().unwrap().push(event);
            if way == Way::Hangs {
                pending::<()>().await;
            }
            let request = Request::from_parts(head, Body::from(body.to_vec()));
            Ok::<_, BoxError>(server.send(request).await?)
        }
    });
    Client::new(service, "default")
}

/// Reconciles all Clusters until it is aborted.
fn running(context: Context, triggers: &Requeues) -> JoinHandle<()> {
    let heart = Health::default().heartbeat("reconciler", Duration::from_mins(5));
    tokio::spawn(run(
        Arc::new(context),
        triggers.listen(),
        heart,
        CancellationToken::new(),
    ))
}

/// Reconciles for `time`, two Clusters at once. Returns the events and one of the counters.
async fn reconciled(way: fn(&str) -> Way, time: Duration, counter: &str) -> (Vec<(String, String)>, u32) {
    reconciled_with(CONCURRENCY, way, time, counter).await
}

async fn reconciled_with(
    concurrency: u16,
    way: fn(&str) -> Way,
    time: Duration,
    counter: &str,
) -> (Vec<(String, String)>, u32) {
    let (events, triggers) = (Events::default(), Requeues::default());
    let client = client(&Frozen::new(), &events, way);
    let (mut context, following) = world::context(&client, &Fence::open(), &triggers);
    context.limiter = Limiter::new(concurrency, CancellationToken::new());
    let _following = tokio::spawn(following);
    context.stores.synced().await;
    let mut registry = Registry::default();
    context.metrics.register(&mut registry);
    let running = running(context, &triggers);
    sleep(time).await;

    assert!(!running.is_finished(), "reconciling goes on");
    running.abort();
    let mut shown = String::new();
    text::encode(&mut shown, &registry).unwrap();
    let count = shown
        .lines()
        .find_map(|line| line.strip_prefix(counter)?.strip_prefix(' '));
    let events = events.lock().unwrap().clone();
    (
        events,
        count.and_then(|count| count.parse().ok()).unwrap_or_default(),
    )
}

/// Counts the events of a Cluster with this reason.
fn published(events: &[(String, String)], name: &str, reason: &str) -> usize {
    let is_it = |event: &&(String, String)| event.0 == name && event.1 == reason;
    events.iter().filter(is_it).count()
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_reconcile_affects_only_its_cluster() {
    let bad_panics = |name: &str| if name == "bad" { Way::Panics } else { Way::Answered };
    let (events, count) = reconciled(
        bad_panics,
        Duration::from_mins(5),
        r#"controller_runtime_reconcile_panics_total{controller="cluster"}"#,
    )
    .await;
    assert!(published(&events, "bad", "ReconcilePanicked") > 0, "{events:?}");
    assert!(published(&events, "good", "TKRNotFound") > 0, "{events:?}");
    assert!(
        (5..100).contains(&count),
        "{count} reconciles in five minutes, which have growing delays"
    );
}

/// There are three Clusters.
#[rstest]
#[tokio::test(start_paused = true)]
async fn as_many_reconciles_start_at_once_as_the_flag_says(#[values(1, 2)] concurrency: u16) {
    let (events, _) = reconciled_with(concurrency, |_| Way::Hangs, SLOW / 2, "").await;
    assert_eq!(events.len(), usize::from(concurrency), "{events:?}");
}

fn all_but_good_hang(name: &str) -> Way {
    if name == "good" { Way::Answered } else { Way::Hangs }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reconcile_leaves_the_only_regular_one_to_others() {
    let (events, _) = reconciled_with(1, all_but_good_hang, SLOW * 3, "").await;
    assert!(published(&events, "good", "TKRNotFound") > 0, "{events:?}");
}

/// One of two concurrent reconciles may be slow.
#[tokio::test(start_paused = true)]
async fn a_slow_reconcile_without_a_permit_is_canceled_reported_and_retried() {
    let counter = "sluice_slow_reconciles_canceled_total";
    let (events, count) = reconciled(all_but_good_hang, Duration::from_secs(10), counter).await;
    assert_eq!(count, 1, "{events:?}");
    let is_said = |name: &&str| published(&events, name, "ReconcileTimedOut") > 0;
    let said: Vec<&str> = ["bad", "good", "worse"].into_iter().filter(is_said).collect();
    assert_eq!(said.len(), 1, "{events:?}");

    // The reconcile with the permit times out after two minutes.
    let (events, count) = reconciled(all_but_good_hang, Duration::from_mins(3), counter).await;
    assert_eq!(
        count, 1,
        "the reconcile of a slow Cluster has a permit: {events:?}"
    );
    let repeated = ["bad", "worse"].into_iter().any(|name| {
        published(&events, name, "ReconcileTimedOut") > 0 && published(&events, name, "TKRNotFound") > 1
    });
    assert!(repeated, "{events:?}");
}

/// The last reconcile started before the deletion ended.
#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_is_forgotten_without_another_reconcile() {
    let world = World::new();
    let leader = world.leader().await;
    let context = Arc::new(leader);
    let gone = ClusterRef::new("team-a", "gone");
    context.remotes.adopt("gone", &gone, "", &world.workload.client());
    context.local_states().keep("gone", LocalState::default());
    let heart = Health::default().heartbeat("reconciler", Duration::from_mins(5));
    let running = tokio::spawn(run(
        Arc::clone(&context),
        Requeues::default().listen(),
        heart,
        CancellationToken::new(),
    ));
    sleep(PROBE_PERIOD).await;
    running.abort();
    assert_eq!(context.remotes.len(), 1, "that of the Cluster which is there");
    assert!(!context.forget("gone"), "it is managed no more");
}
