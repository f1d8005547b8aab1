use std::{collections::BTreeMap, mem};

use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::decode::Item;

use super::*;
use crate::{
    cache::store::Writer,
    controllers::bootstrap::{
        reconcile_once,
        world::{BOOTSTRAP, World, cluster, values},
    },
    kube_client::{
        bounded::{REQUEST, bounded},
        scripted_server::{Answer, ApiRequest, ScriptedServer, Verb, event},
    },
    queue::requeues::Requeue,
};

const SECRETS: &str = "/api/v1/secrets";
const FLEETS: &str = "/apis/fleet.test/v1/fleetconfigs";
const BADS: &str = "/apis/fleet.test/v1/bads";
const WIDES: &str = "/apis/fleet.test/v1/wides";
const SECOND: Duration = Duration::from_secs(1);

/// An API server that has Secrets, FleetConfigs and Bads, and whose watches show what happens to them.
struct Server {
    state: Arc<Mutex<State>>,
    api: ScriptedServer,
}

#[derive(Default)]
struct State {
    revision: u32,
    /// By the path of all of a kind, and by name.
    objects: BTreeMap<(&'static str, String), Value>,
    /// Status with which a kind is refused; 0 is a bug of Sluice.
    refused: BTreeMap<&'static str, u16>,
    /// Whether the next watch gets 410 Gone.
    expired: bool,
}

impl Default for Server {
    fn default() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let script = Arc::clone(&state);
        Self {
            state,
            api: ScriptedServer::new(move |request| lock(&script).answer(request)),
        }
    }
}

impl Server {
    /// Writes another version of an object of Cluster `of`.
    fn put(&self, kind: &'static str, name: &str, of: &str) {
        self.put_meta(kind, name, json!({"labels": {LABEL: of}}));
    }

    fn put_meta(&self, kind: &'static str, name: &str, mut meta: Value) {
        let mut state = lock(&self.state);
        state.revision += 1;
        meta["name"] = json!(name);
        meta["namespace"] = json!("team-a");
        meta["uid"] = json!(name);
        meta["resourceVersion"] = json!(state.revision.to_string());
        let object =
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta});
        let before = state.objects.insert((kind, name.to_owned()), object.clone());
        self.show(kind, before.map_or("ADDED", |_| "MODIFIED"), &object);
    }

    fn delete(&self, kind: &'static str, name: &str) {
        let object = lock(&self.state).objects.remove(&(kind, name.to_owned()));
        self.show(kind, "DELETED", &object.unwrap());
    }

    fn show(&self, kind: &str, change: &str, object: &Value) {
        self.api.send(|path| all_of(path) == kind, &event(change, object));
    }

    /// Ends every watch, and expires their resource versions.
    fn breaks(&self) {
        self.api.end_watches();
        lock(&self.state).expired = true;
    }

    fn refuse(&self, kind: &'static str, code: Option<u16>) {
        self.api.end_watches();
        let mut state = lock(&self.state);
        match code {
            Some(code) => state.refused.insert(kind, code),
            None => state.refused.remove(kind),
        };
    }

    /// Returns the number of requests for a kind.
    fn asked(&self, kind: &str) -> usize {
        self.api.count(|request| request.path == kind)
    }

    /// Returns the requests without metadata-only, or without the label.
    fn whole(&self) -> Vec<String> {
        let is_whole = |request: &&ApiRequest| {
            let mut types = request.accept.split(',');
            let is_metadata = types.all(|one| one.contains("as=PartialObjectMetadata"));
            let is_labelled = request.parameter("labelSelector") == Some(LABEL);
            let kinds = ["/secrets", "/fleetconfigs", "/bads"];
            kinds.iter().any(|end| request.path.ends_with(end)) && !(is_metadata && is_labelled)
        };
        let requests = self.api.requests();
        let whole = requests.iter().filter(is_whole);
        whole.map(|request| format!("{request:?}")).collect()
    }

    fn client(&self) -> Client {
        bounded(self.api.client(), REQUEST).into_client()
    }
}

impl State {
    fn answer(&mut self, request: &ApiRequest) -> Answer {
        let refused = self.refused.get(all_of(&request.path).as_str()).copied();
        match (refused, request.verb) {
            (Some(0), _) => Answer::Panic,
            (Some(code), _) => Answer::Refusal(code),
            (None, Verb::StreamingList) => Answer::Refusal(422),
            (None, Verb::Watch) if mem::take(&mut self.expired) => Answer::Refusal(410),
            (None, Verb::Watch) => Answer::idle_watch(Duration::from_secs(30)),
            (None, Verb::Read) => Answer::Body(self.read(&request.path)),
        }
    }

    fn read(&self, path: &str) -> Value {
        let version = json!({"groupVersion": "fleet.test/v1", "version": "v1"});
        let kind = |plural: &str, kind: &str| json!({"name": plural, "singularName": "", "namespaced": kind != "Wide", "kind": kind, "verbs": ["get", "list", "watch"]});
        match path {
            "/apis" => json!({"kind": "APIGroupList", "groups": [
                {"name": "fleet.test", "versions": [version], "preferredVersion": version},
            ]}),
            "/apis/fleet.test/v1" => json!({
                "kind": "APIResourceList", "groupVersion": "fleet.test/v1",
                "resources": [kind("fleetconfigs", "FleetConfig"), kind("bads", "Bad"), kind("wides", "Wide")],
            }),
            _ => {
                let all = all_of(path);
                let items = self.objects.iter().filter(|((kind, _), _)| *kind == all);
                let items: Vec<&Value> = items.map(|(_, object)| object).collect();
                json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"resourceVersion": self.revision.to_string()}, "items": items,
                })
            }
        }
    }
}

/// Returns the path of all objects of the kind.
fn all_of(path: &str) -> String {
    path.replace("/namespaces/team-a", "")
}

/// Values watches on a server by a leader.
struct Watching {
    values_watches: ValuesWatches,
    requeues: Box<dyn Stream<Item = Requeue> + Send + Unpin>,
    _running: AbortOnDropHandle<()>,
}

impl Watching {
    async fn of(server: &Server) -> Self {
        Self::with(server, ValuesWatches::default()).await
    }

    async fn with(server: &Server, values_watches: ValuesWatches) -> Self {
        let watching = Self::standby(server, values_watches).await;
        watching.values_watches.lead();
        watching
    }

    async fn standby(server: &Server, values_watches: ValuesWatches) -> Self {
        let (triggers, mut clusters) = (Requeues::default(), Writer::default());
        for name in ["one", "two"] {
            let cluster: Cluster = serde_json::from_value(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": name, "namespace": "team-a", "uid": name},
                "spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.35.4"}},
            }))
            .unwrap();
            values_watches.cluster(&cluster, Presence::There);
            clusters.apply(Event::Apply(Item::Decoded(cluster)));
        }
        let requeues = Box::new(triggers.listen());
        let running =
            values_watches
                .clone()
                .run(server.client(), triggers, clusters.store(), Rollbacks::default());
        let watching = Self {
            values_watches,
            requeues,
            _running: AbortOnDropHandle::new(tokio::spawn(running)),
        };
        sleep(SECOND).await;
        watching
    }

    /// Makes Cluster `of` take values from objects of these kinds.
    async fn names(&self, of: &str, kinds: &[&str]) {
        let package = |kind: &&str| {
            let provider = json!({"apiGroup": "fleet.test", "kind": kind, "name": of});
            json!({"refName": "foo.example.com.1.0.0", "valuesFrom": {"providerRef": provider}})
        };
        let packages: Vec<Value> = kinds.iter().map(package).collect();
        let bootstrap = serde_json::from_value(json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
            "metadata": {"name": of, "namespace": "team-a"},
            "spec": {"additionalPackages": packages},
        }));
        self.values_watches
            .bootstrap(&bootstrap.unwrap(), Presence::There);
        sleep(SECOND).await;
    }

    /// Returns the Clusters that are requeued within a second.
    async fn requeued(&mut self) -> Vec<String> {
        sleep(SECOND).await;
        let mut names = Vec::new();
        while let Some(Some(trigger)) = self.requeues.next().now_or_never() {
            assert!(trigger.needs_read);
            names.push(trigger.cluster.name().to_owned());
        }
        names.sort();
        names
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_a_secret_requeues_its_cluster() {
    let server = Server::default();
    server.put(SECRETS, "a", "one");
    let mut watching = Watching::of(&server).await;
    assert_eq!(watching.requeued().await, [""; 0], "it was there before");
    server.put(SECRETS, "a", "one");
    assert_eq!(watching.requeued().await, ["one"]);
    server.put(SECRETS, "new", "two");
    assert_eq!(watching.requeued().await, ["two"]);
    server.delete(SECRETS, "a");
    assert_eq!(watching.requeued().await, ["one"]);
    assert_eq!(server.whole(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_cluster_is_requeued_without_an_edit() {
    let server = Server::default();
    server.put(SECRETS, "a", "one");
    let mut watching = Watching::of(&server).await;
    let asked = server.asked(SECRETS);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(watching.requeued().await, [""; 0]);
    let asked = server.asked(SECRETS) - asked;
    assert!(asked <= 125, "two watches in a minute, and no list: {asked}");
}

#[tokio::test(start_paused = true)]
async fn a_list_after_a_break_requeues_only_those_whose_secret_was_edited() {
    let server = Server::default();
    for (name, of) in [("a", "one"), ("b", "two"), ("c", "two")] {
        server.put(SECRETS, name, of);
    }
    let mut watching = Watching::of(&server).await;
    server.breaks();
    server.put(SECRETS, "b", "two");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(watching.requeued().await, ["two"]);
    server.breaks();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(watching.requeued().await, [""; 0]);
    server.breaks();
    server.delete(SECRETS, "a");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(watching.requeued().await, ["one"], "it is gone");
}

#[rstest]
#[case::at_the_start(true)]
#[case::later(false)]
#[tokio::test(start_paused = true)]
async fn what_was_refused_is_watched_once_it_is_granted(#[case] at_the_start: bool) {
    let server = Server::default();
    server.put(SECRETS, "a", "one");
    if at_the_start {
        server.refuse(SECRETS, Some(403));
    }
    let mut watching = Watching::of(&server).await;
    server.refuse(SECRETS, Some(403));
    sleep(Duration::from_mins(30)).await;
    let asked = server.asked(SECRETS);
    sleep(Duration::from_hours(1)).await;
    let asked = server.asked(SECRETS) - asked;
    assert!(
        (12..=50).contains(&asked),
        "every 2.5 to 5 minutes, streamed and not: {asked}"
    );
    assert_eq!(watching.requeued().await, [""; 0]);

    server.put(SECRETS, "a", "one");
    server.refuse(SECRETS, None);
    sleep(Duration::from_mins(6)).await;
    let missed = watching.requeued().await;
    let expected: &[&str] = if at_the_start { &[] } else { &["one"] };
    assert_eq!(missed, expected, "what was known before tells");
    server.put(SECRETS, "a", "one");
    assert_eq!(watching.requeued().await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn other_errors_are_tried_again_soon() {
    let server = Server::default();
    server.put(SECRETS, "a", "one");
    let mut watching = Watching::of(&server).await;
    server.refuse(SECRETS, Some(503));
    sleep(Duration::from_mins(1)).await;
    server.put(SECRETS, "a", "one");
    server.refuse(SECRETS, None);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(watching.requeued().await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_kind_that_a_cluster_names_requeues_its_cluster() {
    let server = Server::default();
    server.put(FLEETS, "a", "one");
    let mut watching = Watching::of(&server).await;
    assert_eq!(server.asked(FLEETS), 0, "nothing names it");
    watching.names("one", &["FleetConfig"]).await;
    assert_eq!(watching.requeued().await, [""; 0]);
    server.put(FLEETS, "a", "one");
    assert_eq!(watching.requeued().await, ["one"]);
    assert_eq!(server.whole(), [""; 0]);

    watching.names("one", &[]).await;
    let asked = server.asked(FLEETS);
    server.put(FLEETS, "a", "one");
    sleep(Duration::from_mins(5)).await;
    assert_eq!(watching.requeued().await, [""; 0]);
    assert_eq!(server.asked(FLEETS), asked, "it is not watched any more");
}

#[rstest]
#[case::refused(403)]
#[case::not_served(404)]
#[case::without_metadata(406)]
#[case::broken(500)]
#[case::a_bug(0)]
#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_watched_is_a_matter_of_its_own(#[case] code: u16) {
    let server = Server::default();
    server.put(BADS, "b", "two");
    server.refuse(BADS, Some(code));
    let mut watching = Watching::of(&server).await;
    watching.names("one", &["FleetConfig", "Bad", "Missing"]).await;
    sleep(Duration::from_mins(10)).await;
    server.put(FLEETS, "a", "one");
    assert_eq!(watching.requeued().await, ["one"]);
    server.put(SECRETS, "c", "two");
    assert_eq!(watching.requeued().await, ["two"]);

    server.refuse(BADS, None);
    sleep(Duration::from_mins(6)).await;
    server.put(BADS, "b", "two");
    assert_eq!(watching.requeued().await, ["two"], "it recovers");
}

/// It provides no values.
#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_kind_is_not_watched() {
    let server = Server::default();
    let watching = Watching::of(&server).await;
    watching.names("one", &["Wide", "FleetConfig"]).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(server.asked(WIDES), 0);
    assert!(server.asked(FLEETS) > 0, "other kinds are watched");
}

/// No type decodes its content.
#[rstest]
#[case::listed(true)]
#[case::watched(false)]
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_requeues_its_cluster_and_stops_nothing(#[case] listed: bool) {
    let server = Server::default();
    let odd = json!({"labels": {LABEL: "one"}, "creationTimestamp": 7, "annotations": [7]});
    if listed {
        server.put_meta(SECRETS, "odd", odd.clone());
    }
    let mut watching = Watching::of(&server).await;
    assert_eq!(watching.requeued().await, [""; 0]);
    server.put_meta(SECRETS, "odd", odd);
    assert_eq!(watching.requeued().await, ["one"]);
    server.put(SECRETS, "a", "two");
    assert_eq!(watching.requeued().await, ["two"]);
}

#[tokio::test(start_paused = true)]
async fn secrets_are_watched_only_in_namespaces_that_are_named() {
    let server = Server::default();
    let values_watches = ValuesWatches::of(&["team-a".to_owned()]);
    let mut watching = Watching::with(&server, values_watches).await;
    server.put(SECRETS, "a", "one");
    assert_eq!(watching.requeued().await, ["one"]);
    assert_eq!(server.asked(SECRETS), 0);
    assert!(server.asked("/api/v1/namespaces/team-a/secrets") > 0);
}

#[tokio::test(start_paused = true)]
async fn a_replica_requeues_once_it_leads_for_what_was_edited_a_moment_before() {
    let server = Server::default();
    server.put(SECRETS, "a", "one");
    let mut watching = Watching::standby(&server, ValuesWatches::default()).await;
    server.put(SECRETS, "b", "two");
    sleep(Duration::from_mins(5)).await;
    server.put(SECRETS, "a", "one");
    assert_eq!(watching.requeued().await, [""; 0]);
    watching.values_watches.lead();
    assert_eq!(watching.requeued().await, ["one"]);
}

/// A reconcile continues with its own write.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_reconcile_requeues_no_cluster() {
    const CLONE: &str = "/api/v1/namespaces/team-a/secrets/one-antrea-package";
    let world = World::new();
    world.management.remove(BOOTSTRAP);
    world
        .management
        .put("/api/v1/namespaces/tkg-system/secrets/antrea-values", values(3));
    let leader = world.leader().await;
    let values_watches = leader.values_watches.clone();
    values_watches.lead();
    let take = |secret: &str| {
        let made: PartialObjectMeta<DynamicObject> =
            serde_json::from_value(world.management.get(secret).unwrap()).unwrap();
        values_watches.note(|values_watches, now| {
            values_watches.took(&Watched::Secrets(None), &Brought::Touched(&made), now)
        });
        let requeued = lock(&values_watches.0.values_watches)
            .next(now() + SECOND)
            .requeued;
        requeued.len()
    };
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(take(CLONE), 0);
    world.management.edit(CLONE, |secret| secret["data"] = json!({}));
    assert_eq!(take(CLONE), 1, "a user has edited it");
}
