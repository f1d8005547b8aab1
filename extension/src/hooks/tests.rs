use std::{convert::Infallible, time::Duration};

use futures::future::join_all;
use http::{Request, Response};
use jiff::Timestamp;
use kube::{Client, client::Body};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::{
    gate::{hook_call::Hook, retry::RetryPolicy},
    server_time::ServerTime,
};
use tokio::time::sleep;
use tower::service_fn;

use sluice_core::reasons::{CallReason, GateReason, HoldReason};
use sluice_crds::labels::label;

use super::*;
use crate::{
    cache::{event_handlers::EventHandlers, frozen::Frozen},
    clock::now,
};

const LABEL: &str = "v1.35.4---sluice.1";
const LEGACY: &str = "v1.20.0---tkg.1";

/// Returns a Cluster without workers whose gates are open.
fn items(path: &str) -> Vec<Value> {
    let object = |kind: &str, name: &str, namespace: Value, rest: Value| {
        let mut object = rest;
        object["apiVersion"] = json!(path.trim_start_matches("/apis/").rsplit_once('/').unwrap().0);
        object["kind"] = json!(kind);
        object["metadata"] = json!({
            "name": name, "namespace": namespace, "uid": "uid", "resourceVersion": "1", "generation": 1,
            "labels": {label::TKR: LABEL},
        });
        vec![object]
    };
    match path.rsplit('/').next().unwrap() {
        "clusters" => object("Cluster", "one", json!("team-a"), json!({"spec": {}})),
        "clusterbootstraps" => {
            let gate = json!({"hook": "BeforeClusterUpgrade", "version": "v1.35.4", "open": true});
            let record = json!({
                "schema": sluice_crds::run::SCHEMA, "clusterUID": "uid", "label": LABEL, "to": "v1.35.4",
                "observedClusterGeneration": 1, "observedBootstrapGeneration": 1, "gates": [gate],
            });
            let rest = json!({"spec": {}, "status": {"upgrade": record}});
            object("ClusterBootstrap", "one", json!("team-a"), rest)
        }
        "tanzukubernetesreleases" => {
            let spec = json!({"version": "v1.35.4+sluice.1", "kubernetes": {"version": "v1.35.4"}});
            let release = |name: &str| {
                object("TanzuKubernetesRelease", name, Value::Null, json!({"spec": spec})).remove(0)
            };
            let mut legacy = release(LEGACY);
            legacy["metadata"]["labels"] = json!({label::LEGACY_TKR: ""});
            vec![release(LABEL), legacy]
        }
        _ => Vec::new(),
    }
}

fn call() -> HookCall<'static> {
    HookCall {
        hook: Hook::BeforeClusterUpgrade,
        namespace: "team-a",
        name: "one",
        uid: "uid",
        generation: 1,
        label: Some(LABEL),
        labels: None,
        version: "v1.35.4",
        first_step: Some("v1.35.4"),
        deleted_at: None,
        now: None,
        clock: None,
    }
}

fn reason(index: &Index) -> Option<HoldReason> {
    match index.decide(&call()) {
        Decision::Release => None,
        Decision::Hold { reason, .. } => Some(reason),
    }
}

/// Returns an index that follows a server of [`items`], and its tasks.
async fn followed(frozen: &Frozen) -> (Index, [tokio::task::JoinHandle<()>; 2]) {
    followed_with(frozen, items).await
}

async fn followed_with(
    frozen: &Frozen,
    items: fn(&str) -> Vec<Value>,
) -> (Index, [tokio::task::JoinHandle<()>; 2]) {
    let handlers = EventHandlers::default();
    let index = Index::new(
        "tkg-system".into(),
        Duration::from_mins(10),
        handlers.uncounted.clone(),
    );
    let client = frozen.client(items);
    let (stores, following) = Stores::open(&client, "tkg-system", &handlers);
    let following = tokio::spawn(following);
    let follower = tokio::spawn({
        let index = index.clone();
        async move { index.follow(stores).await }
    });
    sleep(Duration::from_secs(1)).await;
    (index, [following, follower])
}

/// Returns [`items`] with a spec of the ClusterBootstrap that was edited after its record was computed, with or without that record.
fn edited(path: &str) -> Vec<Value> {
    let mut items = items(path);
    if path.ends_with("/clusterbootstraps") {
        items[0]["metadata"]["generation"] = json!(2);
    }
    items
}

fn edited_without_record(path: &str) -> Vec<Value> {
    let mut items = edited(path);
    if path.ends_with("/clusterbootstraps") {
        items[0]["status"] = json!({});
    }
    items
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_the_record_has_not_seen_holds() {
    let (index, _tasks) = followed_with(&Frozen::new(), edited).await;
    assert_eq!(
        reason(&index),
        Some(HoldReason::Call(CallReason::BootstrapNotObserved))
    );
    let (index, _tasks) = followed_with(&Frozen::new(), edited_without_record).await;
    let unlabelled = HookCall {
        label: None,
        ..call()
    };
    for call in [call(), unlabelled] {
        assert_ne!(
            index.decide(&call),
            Decision::Release,
            "the ClusterBootstrap is there"
        );
    }
}

/// Only a leader closes the gates of a record.
#[tokio::test(start_paused = true)]
async fn a_record_releases_nothing_while_no_replica_leads() {
    let (index, _tasks) = followed(&Frozen::new()).await;
    let lease = Duration::from_secs(15);
    let leadership = Leadership::new(lease);
    index.require_leader(leadership.clone());
    for _ in 0..20 {
        sleep(Duration::from_secs(10)).await;
        leadership.renewed(lease);
    }
    sleep(lease + Duration::from_secs(45)).await;
    assert_eq!(reason(&index), None);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(reason(&index), Some(HoldReason::Call(CallReason::NoLeader)));
    leadership.renewed(lease);
    assert_eq!(reason(&index), None);
}

/// The replica may have started after the last renewal.
#[tokio::test(start_paused = true)]
async fn a_replica_that_has_never_seen_a_leader_releases_nothing_in_the_end() {
    let (index, _tasks) = followed(&Frozen::new()).await;
    index.require_leader(Leadership::new(Duration::from_secs(15)));
    assert_eq!(reason(&index), None);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(reason(&index), Some(HoldReason::Call(CallReason::NoLeader)));
}

/// An API server for the reads of releases.
#[derive(Clone, Default)]
struct Confirming(Arc<Mutex<Option<Value>>>);

impl Confirming {
    /// Returns a server of this ClusterBootstrap.
    fn with(edit: impl FnOnce(&mut Value)) -> Self {
        let mut bootstrap = items("/apis/run.tanzu.vmware.com/v1alpha3/clusterbootstraps").remove(0);
        edit(&mut bootstrap);
        Self(Arc::new(Mutex::new(Some(bootstrap))))
    }

    /// Lets `index` confirm its releases here. The server does not respond without an object.
    fn confirm(&self, index: &Index) -> Rollbacks {
        let object = Arc::clone(&self.0);
        let service = service_fn(move |request: Request<Body>| {
            let object = Arc::clone(&object);
            async move {
                let path = "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/team-a/clusterbootstraps/one";
                assert_eq!(request.uri().path(), path);
                let found = lock(&object).clone();
                match found {
                    Some(object) => {
                        Ok::<_, Infallible>(Response::new(Body::from(object.to_string().into_bytes())))
                    }
                    None => std::future::pending().await,
                }
            }
        });
        let rollbacks = Rollbacks::default();
        index.confirm_by(Confirmer::new(Client::new(service, "default")), rollbacks.clone());
        rollbacks
    }
}

/// Returns the reason of the final decision.
async fn confirmed(index: &Index) -> Option<HoldReason> {
    assert_eq!(reason(index), None, "the cache would release the call");
    let peer = std::net::Ipv4Addr::LOCALHOST.into();
    match index.confirm((&call()).into(), peer).await {
        Decision::Release => None,
        Decision::Hold {
            reason,
            message,
            retry_after,
        } => {
            assert_eq!(retry_after.seconds(), 1, "{message}");
            Some(reason)
        }
    }
}

#[rstest]
#[case::open(|_: &mut Value| (), None)]
#[case::closed(|bootstrap: &mut Value| bootstrap["status"]["upgrade"]["gates"][0]["open"] = json!(false), Some(HoldReason::Call(CallReason::GateClosed)))]
#[case::edited(|bootstrap: &mut Value| bootstrap["metadata"]["generation"] = json!(2), Some(HoldReason::Call(CallReason::BootstrapNotObserved)))]
#[tokio::test(start_paused = true)]
async fn a_release_is_decided_on_what_the_api_server_returns(
    #[case] edit: fn(&mut Value),
    #[case] expected: Option<HoldReason>,
) {
    let (index, _tasks) = followed(&Frozen::new()).await;
    let not_confirmed = Some(HoldReason::Call(CallReason::ReleaseNotConfirmed));
    assert_eq!(confirmed(&index).await, not_confirmed, "nothing can be read yet");
    let rollbacks = Confirming::with(edit).confirm(&index);
    assert_eq!(confirmed(&index).await, expected);
    assert_eq!(rollbacks.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_cannot_be_confirmed_is_held_after_half_a_second() {
    let frozen = Frozen::new();
    let (index, _tasks) = followed(&frozen).await;
    Confirming::default().confirm(&index);
    // Watches deliver nothing either, however long.
    frozen.set(true);
    sleep(Duration::from_hours(1)).await;
    let began = Instant::now();
    let not_confirmed = Some(HoldReason::Call(CallReason::ReleaseNotConfirmed));
    assert_eq!(confirmed(&index).await, not_confirmed);
    assert_eq!(began.elapsed().as_millis(), 500);
    assert!(index.was_filled(), "the replica stays ready");
}

/// The record is from before the cached one.
#[tokio::test(start_paused = true)]
async fn an_object_at_an_earlier_version_shows_a_rollback() {
    let (index, _tasks) = followed(&Frozen::new()).await;
    let rollbacks =
        Confirming::with(|bootstrap| bootstrap["metadata"]["resourceVersion"] = json!("0")).confirm(&index);
    assert_eq!(confirmed(&index).await, None);
    assert_eq!(rollbacks.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_release_leaves_only_clusters_without_bootstrap_alone() {
    let (index, tasks) = followed(&Frozen::new()).await;
    let of = |name| HookCall {
        name,
        label: Some(LEGACY),
        ..call()
    };
    assert_eq!(index.decide(&of("another")), Decision::Release);
    let Decision::Hold { reason, .. } = index.decide(&of("one")) else {
        panic!("released")
    };
    assert_eq!(reason, HoldReason::Gate(GateReason::TKRLegacy));
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Returns Cluster `one`, held by a package, and Cluster `two`, held by its release, which does not exist.
fn held_items(path: &str) -> Vec<Value> {
    let mut items = items(path);
    match path.rsplit('/').next().unwrap() {
        "clusters" => {
            let mut two = items[0].clone();
            two["metadata"]["name"] = json!("two");
            two["metadata"]["uid"] = json!("uid of two");
            two["metadata"]["labels"] = json!({label::TKR: "missing"});
            items.push(two);
        }
        "clusterbootstraps" => {
            let gate = &mut items[0]["status"]["upgrade"]["gates"][0];
            gate["open"] = json!(false);
            gate["reason"] = json!("PackagesNotReady");
        }
        _ => {}
    }
    items
}

/// Returns the retry delay of a held call.
fn wait(index: &Index, call: &HookCall<'_>) -> u32 {
    match index.decide(call) {
        Decision::Hold { retry_after, .. } => retry_after.seconds(),
        Decision::Release => panic!("released"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_stands_still_is_asked_rarely() {
    let (index, tasks) = followed_with(&Frozen::new(), held_items).await;
    let (one, two) = (
        call(),
        HookCall {
            name: "two",
            uid: "uid of two",
            label: Some("missing"),
            ..call()
        },
    );
    sleep(Duration::from_mins(9)).await;
    assert_eq!((wait(&index, &one), wait(&index, &two)), (1, 1));

    sleep(Duration::from_hours(2)).await;
    for still in [&one, &two] {
        let seconds = wait(&index, still);
        assert!((225..=300).contains(&seconds), "{}: {seconds} s", still.name);
    }
    let edited = HookCall { generation: 2, ..one };
    assert_eq!(wait(&index, &edited), 1, "the edit is about to be seen");
    let another = HookCall {
        uid: "uid of a third",
        ..two
    };
    assert_eq!(
        wait(&index, &another),
        1,
        "nothing is known of how long it stands still"
    );
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Returns as many Clusters as Cluster API calls about within half a minute, each held by a package.
fn many_items(path: &str) -> Vec<Value> {
    let items = held_items(path);
    if !path.ends_with("/clusters") && !path.ends_with("/clusterbootstraps") {
        return items;
    }
    let each = (0..RetryPolicy::FEW).map(|number| {
        let mut item = items[0].clone();
        let uid = format!("uid of {number}");
        item["metadata"]["name"] = json!(format!("c{number}"));
        if let Some(record) = item.pointer_mut("/status/upgrade") {
            record["clusterUID"] = json!(uid);
        }
        item["metadata"]["uid"] = json!(uid);
        item
    });
    each.collect()
}

#[tokio::test(start_paused = true)]
async fn the_more_clusters_are_held_the_later_each_is_asked() {
    let (index, tasks) = followed_with(&Frozen::new(), many_items).await;
    let one = HookCall {
        name: "c1",
        uid: "uid of 1",
        ..call()
    };
    assert_eq!(wait(&index, &one), RetryPolicy::PROMISED);

    sleep(Duration::from_mins(11)).await;
    let seconds = wait(&index, &one);
    assert!(
        (90..=120).contains(&seconds),
        "among as many stuck ones: {seconds} s"
    );
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Returns [`items`] with a Cluster that has neither a label nor a ClusterBootstrap.
fn with_unmanaged(path: &str) -> Vec<Value> {
    let mut items = items(path);
    if path.ends_with("/clusters") {
        let mut free = items[0].clone();
        free["metadata"]["name"] = json!("free");
        free["metadata"]["labels"] = json!({});
        items.push(free);
    }
    items
}

fn message(index: &Index, call: &HookCall<'_>) -> Option<String> {
    match index.decide(call) {
        Decision::Release => None,
        Decision::Hold { message, .. } => Some(message),
    }
}

/// For example, kapp-controller is not installed.
#[rstest]
#[case("clusterbootstraptemplates", "clusterbootstraptemplates.run.tanzu.vmware.com")]
#[case("machinedeployments", "machinedeployments.cluster.x-k8s.io")]
#[case("machinepools", "machinepools.cluster.x-k8s.io")]
#[case("packages", "packages.data.packaging.carvel.dev")]
#[case("packageinstalls", "packageinstalls.packaging.carvel.dev")]
#[case("apps", "apps.kappctrl.k14s.io")]
#[tokio::test(start_paused = true)]
async fn an_api_that_only_managed_clusters_need_holds_no_other_one(
    #[case] plural: &'static str,
    #[case] api: &str,
) {
    let frozen = Frozen::of(plural);
    frozen.set(true);
    let (index, tasks) = followed_with(&frozen, with_unmanaged).await;
    for hook in Hook::ALL {
        let of = |name, label| HookCall {
            hook,
            name,
            label,
            ..call()
        };
        for call in [of("free", None), of("another", Some(LEGACY))] {
            assert_eq!(message(&index, &call), None, "{hook} of {}", call.name);
        }
    }
    let held = format!("APIUnavailable: waiting for {api} to be listed");
    assert_eq!(message(&index, &call()), Some(held.clone()));
    let legacy = HookCall {
        label: Some(LEGACY),
        ..call()
    };
    let legacy = message(&index, &legacy).unwrap_or_default();
    assert!(
        legacy.starts_with("TKRLegacy"),
        "it has a ClusterBootstrap: {legacy}"
    );
    sleep(Duration::from_hours(1)).await;
    assert_eq!(message(&index, &call()), Some(held), "the message is constant");

    frozen.set(false);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(message(&index, &call()), None, "without a restart");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Without one of these stores it is unknown whether a Cluster is managed, or whether it requests a release.
#[rstest]
#[case::without_bootstraps("clusterbootstraps", "clusterbootstraps.run.tanzu.vmware.com", |_, _| true)]
#[case::without_releases("tanzukubernetesreleases", "tanzukubernetesreleases.run.tanzu.vmware.com", |_, labelled| labelled)]
#[case::without_clusters("clusters", "clusters.cluster.x-k8s.io", |asks: bool, labelled: bool| asks && !labelled)]
#[case::without_classes("clusterclasses", "clusterclasses.cluster.x-k8s.io", |asks: bool, labelled: bool| asks && !labelled)]
#[tokio::test(start_paused = true)]
async fn a_cluster_is_held_while_it_may_be_managed(
    #[case] plural: &'static str,
    #[case] api: &str,
    #[case] held: fn(bool, bool) -> bool,
) {
    let frozen = Frozen::of(plural);
    frozen.set(true);
    let (index, tasks) = followed_with(&frozen, with_unmanaged).await;
    let starting = format!("Starting: waiting for {api} to be listed");
    for hook in Hook::ALL {
        let asks = matches!(hook, Hook::BeforeClusterCreate | Hook::BeforeClusterUpgrade);
        for (name, label) in [("free", None), ("another", Some(LEGACY))] {
            let call = HookCall {
                hook,
                name,
                label,
                ..call()
            };
            // A deletion without a ClusterBootstrap and an immediate release wait for no TanzuKubernetesRelease.
            let waits = hook != Hook::AfterControlPlaneInitialized
                && held(asks, label.is_some())
                && (hook != Hook::BeforeClusterDelete || plural == "clusterbootstraps");
            let expected = waits.then(|| starting.clone());
            assert_eq!(message(&index, &call), expected, "{hook} of {name}");
        }
    }
    assert_ne!(message(&index, &call()), None, "a managed one");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The clock of a replica may differ from that of the API server.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_ends_the_wait_of_no_deletion() {
    let (index, _tasks) = followed(&Frozen::new()).await;
    let deleted_at = "Thu, 26 Nov 2026 14:00:00 GMT";
    let deleted = HookCall {
        hook: Hook::BeforeClusterDelete,
        deleted_at: ServerTime::parse(deleted_at, now()).map(|time| time.at(now())),
        // The caller's time has no effect.
        now: Timestamp::MAX.into(),
        ..call()
    };
    assert_ne!(
        index.decide(&deleted),
        Decision::Release,
        "nothing says what time it is"
    );

    let server = service_fn(move |_: Request<Body>| {
        let answer = Response::builder().header("Date", deleted_at).body(Body::empty());
        async move { answer }
    });
    let client = index.server_clock().noting(Client::new(server, "default"));
    client.send(Request::new(Body::empty())).await.unwrap();
    sleep(Duration::from_secs(599)).await;
    assert_ne!(index.decide(&deleted), Decision::Release);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(index.decide(&deleted), Decision::Release);
}

const LIST: &str = "/apis/run.tanzu.vmware.com/v1alpha3/tanzukubernetesreleases";
const BOOTSTRAP: &str = "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/team-a/clusterbootstraps/one";
const CLUSTER: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters/one";
const CLASS: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusterclasses/class";

/// An API server for the reads of plans.
#[derive(Clone)]
struct Planning {
    /// Status and body of the list of releases.
    list: (u16, Value),
    /// Time until the list comes, in milliseconds.
    takes: u64,
    /// Status and body of the ClusterBootstrap.
    bootstrap: (u16, Value),
    /// Cluster and ClusterClass.
    cluster: Value,
    class: Value,
    /// Paths of the requests.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Planning {
    /// Returns a server of two releases of 1.35, without the ClusterBootstrap.
    fn new() -> Self {
        let release = |version: &str| {
            let spec = json!({"version": format!("{version}+sluice.1"), "kubernetes": {"version": version}});
            json!({
                "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease",
                "metadata": {"name": format!("{version}---sluice.1")}, "spec": spec,
            })
        };
        let absent = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
            "message": "", "metadata": {},
            "details": {"group": "run.tanzu.vmware.com", "kind": "clusterbootstraps", "name": "one"},
        });
        let list = json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesReleaseList",
            "metadata": {"resourceVersion": "1"},
            "items": [release("v1.35.1"), release("v1.35.4"), release("v1.36.3")],
        });
        Self {
            list: (200, list),
            takes: 0,
            bootstrap: (404, absent),
            cluster: json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": "one", "namespace": "team-a", "uid": "uid"},
                "spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.36.3"}},
            }),
            class: json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass",
                "metadata": {"name": "class", "namespace": "team-a"}, "spec": {},
            }),
            requests: Arc::default(),
        }
    }

    /// Adds a later release with this change.
    fn add(&mut self, edit: impl FnOnce(&mut Value)) {
        let mut odd = self.list.1["items"][1].clone();
        odd["metadata"]["name"] = json!("v1.35.9---sluice.1");
        odd["spec"]["kubernetes"]["version"] = json!("v1.35.9");
        edit(&mut odd);
        let items = self.list.1["items"].as_array_mut().unwrap();
        items.push(odd);
    }

    /// Requests a resolution.
    fn resolve(object: &mut Value) {
        object["metadata"]["annotations"] = json!({"run.tanzu.vmware.com/resolve-tkr": "stable"});
    }

    /// Adds the ClusterBootstrap with a record of a hop to 1.35.1.
    fn record(&mut self, to: &str, uid: &str) {
        let mut bootstrap = items("/apis/run.tanzu.vmware.com/v1alpha3/clusterbootstraps").remove(0);
        let record = &mut bootstrap["status"]["upgrade"];
        record["to"] = json!(to);
        record["clusterUID"] = json!(uid);
        record["hop"] = json!("v1.35.1");
        self.bootstrap = (200, bootstrap);
    }

    fn confirmer(&self) -> Confirmer {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let path = request.uri().path().to_owned();
                lock(&server.requests).push(path.clone());
                let (code, body) = if path == LIST {
                    assert_eq!(
                        request.uri().query().unwrap_or_default(),
                        "",
                        "no resourceVersion"
                    );
                    sleep(Duration::from_millis(server.takes)).await;
                    server.list
                } else {
                    match path.as_str() {
                        CLUSTER => (200, server.cluster),
                        CLASS => (200, server.class),
                        _ => server.bootstrap,
                    }
                };
                let response = Response::builder().status(code);
                response.body(Body::from(body.to_string().into_bytes()))
            }
        });
        Confirmer::new(Client::new(service, "default"))
    }

    /// Returns an index without stores that reads from this server.
    fn index(&self) -> Index {
        let index = without_stores();
        index.confirm_by(self.confirmer(), Rollbacks::default());
        index
    }

    fn count(&self, path: &str) -> usize {
        lock(&self.requests)
            .iter()
            .filter(|request| *request == path)
            .count()
    }
}

fn without_stores() -> Index {
    Index::new("tkg-system".into(), Duration::from_mins(10), Arc::default())
}

/// Returns the result of a plan: the steps, or the reason why there are none.
async fn planned(index: &Index, from: &str, to: &str) -> Result<Vec<String>, &'static str> {
    let call = PlanCall {
        namespace: "team-a".to_owned(),
        name: "one".to_owned(),
        uid: "uid".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        pinned: Vec::new(),
    };
    let peer = std::net::Ipv4Addr::LOCALHOST.into();
    index.plan(call, peer).await.map_err(|why| why.as_str())
}

/// Returns the steps over this version of 1.35.
fn over(version: &str) -> Vec<String> {
    [version, "v1.36.3"].map(str::to_owned).into()
}

/// Returns more labels than a release may take memory for, and fewer than a list.
fn many_labels() -> Value {
    (0..60_000)
        .map(|number| (format!("label-{number}"), ""))
        .collect()
}

const NOT_LISTED: Result<&str, &str> = Err("ReleasesNotListed");

/// A plan takes one list and three reads. A resolution selects releases by more than their labels.
#[rstest]
#[case::newest(|_: &mut Planning| (), Ok("v1.35.4"))]
#[case::recorded(|server: &mut Planning| server.record("v1.36.3", "uid"), Ok("v1.35.1"))]
#[case::record_of_another_target(|server: &mut Planning| server.record("v1.36.4", "uid"), Ok("v1.35.4"))]
#[case::record_of_another_cluster(|server: &mut Planning| server.record("v1.36.3", "another"), Ok("v1.35.4"))]
#[case::another_release(|server: &mut Planning| server.add(|_| ()), Ok("v1.35.9"))]
#[case::undecodable_release(|server: &mut Planning| server.add(|release| release["spec"]["version"] = json!(1)), Ok("v1.35.4"))]
#[case::oversized_release(|server: &mut Planning| server.add(|release| release["metadata"]["labels"] = many_labels()), Ok("v1.35.4"))]
#[case::no_releases(|server: &mut Planning| server.list.1["items"] = json!([]), Err("NoReleaseForMinorVersion"))]
#[case::no_releases_as_go_writes_them(|server: &mut Planning| server.list.1["items"] = Value::Null, Err("NoReleaseForMinorVersion"))]
#[case::refused(|server: &mut Planning| server.list.0 = 500, NOT_LISTED)]
#[case::not_served(|server: &mut Planning| server.list.0 = 404, NOT_LISTED)]
#[case::another_list(|server: &mut Planning| server.list.1["kind"] = json!("Status"), NOT_LISTED)]
#[case::no_object(|server: &mut Planning| server.list.1 = json!("busy"), NOT_LISTED)]
#[case::too_long(|server: &mut Planning| server.list.1["metadata"]["x"] = json!("x".repeat(5 << 20)), NOT_LISTED)]
#[case::in_time(|server: &mut Planning| server.takes = 499, Ok("v1.35.4"))]
#[case::late(|server: &mut Planning| server.takes = 501, NOT_LISTED)]
#[case::unreadable_bootstrap(|server: &mut Planning| server.bootstrap = (500, json!({})), NOT_LISTED)]
#[case::resolved_cluster(|server: &mut Planning| Planning::resolve(&mut server.cluster), NOT_LISTED)]
#[case::resolved_class(|server: &mut Planning| Planning::resolve(&mut server.class), NOT_LISTED)]
#[case::unreadable_class(|server: &mut Planning| server.class = json!("busy"), NOT_LISTED)]
#[case::without_topology(|server: &mut Planning| server.cluster["spec"] = json!({}), NOT_LISTED)]
#[tokio::test(start_paused = true)]
async fn a_plan_before_the_caches_are_filled_rests_on_reads(
    #[case] edit: fn(&mut Planning),
    #[case] expected: Result<&'static str, &'static str>,
) {
    let mut server = Planning::new();
    edit(&mut server);
    let planned = planned(&server.index(), "v1.34.4", "v1.36.3").await;
    assert_eq!(planned, expected.map(over));
    assert_eq!(server.count(LIST), 1);
    let most = [BOOTSTRAP, CLUSTER, CLASS].map(|path| server.count(path));
    assert!(most.iter().all(|count| *count <= 1), "{most:?}");
}

#[tokio::test]
async fn a_plan_without_a_client_fails() {
    let planned = planned(&without_stores(), "v1.34.4", "v1.36.3").await;
    assert_eq!(planned, Err("ReleasesNotListed"));
}

#[rstest]
#[case::one_minor("v1.35.4", &["v1.36.3"])]
#[case::patch("v1.36.1", &["v1.36.3"])]
#[case::equal("v1.36.3", &[])]
#[tokio::test]
async fn a_plan_without_a_minor_version_between_needs_no_read(
    #[case] from: &str,
    #[case] expected: &'static [&'static str],
) {
    let server = Planning::new();
    let planned = planned(&server.index(), from, "v1.36.3").await.unwrap();
    assert_eq!(planned, expected);
    assert!(lock(&server.requests).is_empty());
}

#[tokio::test(start_paused = true)]
async fn plans_share_lists() {
    let server = Planning {
        takes: 200,
        ..Planning::new()
    };
    let index = server.index();
    let all = join_all((0..16).map(|_| planned(&index, "v1.34.4", "v1.36.3"))).await;
    assert!(
        all.iter().all(|planned| *planned == Ok(over("v1.35.4"))),
        "{all:?}"
    );
    // The first one is sent before the other calls arrive.
    assert_eq!((server.count(LIST), server.count(BOOTSTRAP)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_plan_by_filled_caches_needs_no_read() {
    let (index, tasks) = followed(&Frozen::new()).await;
    let server = Planning::new();
    index.confirm_by(server.confirmer(), Rollbacks::default());
    let planned = planned(&index, "v1.34.4", "v1.36.3").await;
    assert_eq!(planned, Ok(over("v1.35.4")));
    assert!(lock(&server.requests).is_empty());
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}
