use std::{convert::Infallible, future::pending};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::{FutureExt as _, channel::mpsc};
use http::{Request, Response};
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::{kubeconfig, schedule::SyncPeriod};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tower::service_fn;

use super::*;
use crate::{
    cache::event_handlers::EventHandlers,
    controllers::{
        bootstrap::{
            object_server::ObjectServer,
            world::{
                CLUSTER, KUBE_SYSTEM, KUBECONFIG, SYSTEM, VERSION, World, kubeconfig_of, kubeconfig_secret,
            },
        },
        registration::HookScope,
    },
    kube_client::{
        fence::Fence,
        middleware::{Transport, middleware},
        requests::is_watch,
        scripted_server::{Answer, ScriptedServer, event},
    },
    server::health::Health,
    workload::Remotes,
};

const GATES: &str = "/apis/lifecycle.sluice.dev/v1alpha1/namespaces/team-a/upgradegates";
const UPGRADES: &str = "/apis/lifecycle.sluice.dev/v1alpha1/namespaces/team-a/clusterupgrades";
const AGENT: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/agent";

/// Returns a gate that waits for a Job of the hop.
pub(super) fn gate(selector: &Value) -> Value {
    json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeGate", "metadata": {"generation": 1},
        "spec": {
            "mode": "Enforce", "before": "ControlPlane", "clusterSelector": selector, "versions": [],
            "checks": [{
                "name": "job", "object": {"apiVersion": "batch/v1", "kind": "Job", "name": "backup-${hop}"},
            }],
        },
    })
}

/// Returns the world of a Cluster between v1.35.4 and v1.36.3 with such a gate.
fn gated() -> World {
    let world = World::new();
    world.management.put(&format!("{GATES}/backup"), gate(&json!({})));
    let kind = json!({"name": "jobs", "singularName": "", "namespaced": true, "kind": "Job", "verbs": ["get", "list"]});
    world.management.put(
        "/apis/batch/v1",
        json!({"kind": "APIResourceList", "groupVersion": "batch/v1", "resources": [kind]}),
    );
    world
}

/// Returns the world of a Cluster that waits for DaemonSet `agent` of its workload cluster.
fn waiting_for_agent() -> World {
    let world = World::new();
    let mut of_agent = gate(&json!({}));
    of_agent["spec"]["checks"] = json!([{
        "name": "agent", "cluster": "Workload", "healthOnly": true,
        "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "agent"},
    }]);
    world.management.put(&format!("{GATES}/agent"), of_agent);
    let kind = json!({"name": "daemonsets", "singularName": "", "namespaced": true, "kind": "DaemonSet", "verbs": ["get", "list"]});
    world.workload.put(
        "/apis/apps/v1",
        json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [kind]}),
    );
    world
}

fn complete(management: &ObjectServer) {
    let spec =
        json!({"template": {"spec": {"containers": [{"name": "backup", "image": "example.com/backup:v1"}]}}});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"generation": 1}, "spec": spec,
        "status": {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]},
    });
    management.put(
        &format!("/apis/batch/v1/namespaces/team-a/jobs/backup-{VERSION}"),
        job,
    );
}

/// Returns a leader with filled stores. Its watches show no later change.
pub(super) async fn leader(management: &ObjectServer) -> Context {
    let client = management.client();
    let handlers = EventHandlers {
        without_packages: true,
        with_upgrade_gates: true,
        ..EventHandlers::default()
    };
    let (stores, following) = Stores::open(&client, SYSTEM, &handlers);
    tokio::spawn(following);
    stores.synced().await;
    let remotes = Remotes::new(
        SYSTEM.to_owned(),
        handlers.triggers.clone(),
        handlers.dependents.clone(),
        Fence::open(),
    );
    let context = Context {
        client: client.clone(),
        settings: GateSettings {
            system_namespace: "system".to_owned(),
            extension_configs: Vec::new(),
            sync_period: SyncPeriod {
                length: Duration::from_mins(10),
                since: now(),
            },
        },
        stores,
        control_planes: Arc::new(ControlPlanes::new(
            client.clone(),
            handlers.triggers.clone(),
            Vec::new(),
            handlers.rollbacks.clone(),
        )),
        clients: Clients::new(Arc::new(remotes)),
        triggers: handlers.triggers,
        statuses: handlers.gate_statuses,
        rollbacks: handlers.rollbacks,
        events: Notifier::new(client),
        metrics: ReconcileMetrics::default(),
        limiter: Limiter::new(2, CancellationToken::new()),
        local_states: Mutex::default(),
    };
    sleep(Duration::from_secs(1)).await;
    // The first reconcile starts the watch of the control plane kind.
    reconcile_once(&cluster(&context), &context).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    context
}

fn reference() -> ClusterRef {
    ClusterRef::new("team-a", "one")
}

pub(super) fn cluster(context: &Context) -> Arc<Cluster> {
    context.stores.clusters.get(Some("team-a"), "one").unwrap()
}

/// Reconciles the Cluster as often as a leader does that waits for nothing.
async fn reconcile_all(management: &ObjectServer) {
    for _ in 0..4 {
        let leader = leader(management).await;
        reconcile_once(&cluster(&leader), &leader).await.unwrap();
    }
}

/// Returns the digest of the kubeconfig of the Cluster.
fn digest_of(management: &ObjectServer) -> String {
    let secret = management.get(KUBECONFIG).unwrap();
    let value = BASE64_STANDARD.decode(secret["data"]["value"].as_str().unwrap());
    kubeconfig::digest(&value.unwrap())
}

/// Returns a client of the workload cluster that gets its watches from `watches`.
fn watched_by(world: &World, watches: &ScriptedServer) -> Client {
    let watches = Transport::from(watches.client());
    let both = middleware(world.workload.client(), move |objects, request| {
        let server = if is_watch(&request) {
            watches.clone()
        } else {
            objects
        };
        async move { server.send(request).await }
    });
    both.into_client()
}

/// Returns a leader that holds the Cluster of [`waiting_for_agent`] and has nothing left to write.
async fn holding(world: &World, watches: &ScriptedServer) -> Context {
    let digest = digest_of(&world.management);
    for _ in 0..4 {
        let leader = leader(&world.management).await;
        leader.clients.adopt("uid", &digest, world.workload.client());
        reconcile_once(&cluster(&leader), &leader).await.unwrap();
    }
    let leader = leader(&world.management).await;
    leader.clients.adopt("uid", &digest, watched_by(world, watches));
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    leader
}

/// Runs the controller.
fn running(context: &Arc<Context>) -> AbortOnDropHandle<()> {
    let requeues = context.triggers.listen_gated();
    let changes = Feed::<GateChange>::default().listen();
    let heart = Health::default().heartbeat("gates", Duration::from_mins(1));
    let stop = CancellationToken::new();
    let controller = run(Arc::clone(context), requeues, changes, heart, stop);
    AbortOnDropHandle::new(tokio::spawn(controller))
}

/// Returns an event with this version of an object.
fn shows(version: u32) -> String {
    event(
        "MODIFIED",
        json!({"metadata": {"resourceVersion": version.to_string()}}),
    )
}

/// Whether the control plane may take its version.
fn is_open(management: &ObjectServer) -> bool {
    let upgrade = management.get(&format!("{UPGRADES}/one")).unwrap();
    let gates = upgrade["status"]["upgrade"]["gates"].as_array().unwrap();
    let mut of_control_plane = gates
        .iter()
        .filter(|gate| gate["hook"] == "BeforeControlPlaneUpgrade" && gate["version"] == VERSION);
    of_control_plane.any(|gate| gate["open"] == true)
}

/// Returns the attempted writes, without events.
fn writes_of(management: &ObjectServer) -> Vec<String> {
    let mut written = management.asked_to_write();
    written.retain(|asked| !asked.contains("/events"));
    written
}

/// Nothing else is written, and nothing of packages is read.
#[tokio::test(start_paused = true)]
async fn a_gate_holds_until_its_object_is_proven() {
    let world = gated();
    reconcile_all(&world.management).await;
    assert!(!is_open(&world.management), "there is no Job");
    complete(&world.management);
    reconcile_all(&world.management).await;
    let upgrade = world.management.get(&format!("{UPGRADES}/one"));
    assert!(is_open(&world.management), "{upgrade:?}");

    let written = writes_of(&world.management);
    let is_other = |asked: &&String| !asked.contains("/clusterupgrades");
    assert_eq!(written.iter().find(is_other), None);
    reconcile_all(&world.management).await;
    assert_eq!(writes_of(&world.management), written, "nothing has changed");
    assert_eq!(
        world.management.times_asked_for(KUBECONFIG),
        0,
        "no check needs it"
    );
    assert_eq!(world.workload.requests(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_gates_causes_no_request() {
    let world = World::new();
    let leader = leader(&world.management).await;
    let before = world.management.requests();
    assert_eq!(turn(&reference(), &leader).await, None);
    assert_eq!(world.management.requests(), before);
    assert_eq!(leader.local_states().uids().count(), 0);
}

/// A held Cluster is judged every few seconds, and kinds rarely change.
#[tokio::test(start_paused = true)]
async fn a_kind_is_discovered_once_a_minute() {
    let world = gated();
    reconcile_all(&world.management).await;
    let leader = leader(&world.management).await;
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let job = format!("/apis/batch/v1/namespaces/team-a/jobs/backup-{VERSION}");
    let times = || ["/apis/batch/v1", job.as_str()].map(|path| world.management.times_asked_for(path));
    for (seconds, discovered) in [(2, 0), (2, 0), (60, 1), (2, 0)] {
        sleep(Duration::from_secs(seconds)).await;
        let [kinds, jobs] = times();
        reconcile_once(&cluster(&leader), &leader).await.unwrap();
        assert_eq!(times(), [kinds + discovered, jobs + 1], "after {seconds} s");
    }
}

/// Otherwise a leader without the right to list gates would delete every record.
#[tokio::test(start_paused = true)]
async fn unknown_gates_change_no_record() {
    let world = gated();
    reconcile_all(&world.management).await;
    let written = writes_of(&world.management);
    world.management.refuse("/upgradegates", 403);
    let leader = leader(&world.management).await;
    assert!(matches!(leader.stores.gate_kinds(), GateKinds::Unlisted(_)));
    assert_eq!(turn(&reference(), &leader).await, None);
    assert_eq!(writes_of(&world.management), written);
    assert!(world.management.get(&format!("{UPGRADES}/one")).is_some());
}

/// The API server refuses the object that a gate names: that Cluster is held, and the controller goes on.
#[tokio::test(start_paused = true)]
async fn an_object_that_sluice_may_not_read_holds() {
    let world = gated();
    complete(&world.management);
    world.management.refuse("/jobs/", 403);
    reconcile_all(&world.management).await;
    assert!(!is_open(&world.management));
    world.management.take_everything();
    reconcile_all(&world.management).await;
    assert!(is_open(&world.management), "it recovers by itself");
}

#[tokio::test(start_paused = true)]
async fn a_changed_gate_requeues_the_clusters_that_it_concerns() {
    let world = World::new();
    let put = |namespace: &str, name: &str, labels: &Value| {
        let mut cluster = world.management.get(CLUSTER).unwrap();
        cluster["metadata"] =
            json!({"uid": format!("{namespace}-{name}"), "generation": 1, "labels": labels});
        let path = format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters/{name}");
        world.management.put(&path, cluster);
    };
    put("team-a", "selected", &json!({"cni": "a"}));
    put("team-a", "other", &json!({"cni": "b"}));
    put("team-a", "recorded", &json!({}));
    put("team-b", "elsewhere", &json!({"cni": "a"}));
    let selector = json!({"matchLabels": {"cni": "a"}});
    world.management.put(&format!("{GATES}/backup"), gate(&selector));
    world.management.put(
        &format!("{UPGRADES}/recorded"),
        json!({"apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {}}),
    );
    let leader = leader(&world.management).await;
    let mut requeues = leader.triggers.listen_gated();
    let mut told = async |change: GateChange| {
        let changes = stream::iter([change]);
        let _never_ends = timeout(Duration::from_secs(1), fan_out::run(&leader, changes)).await;
        let listed = std::iter::from_fn(|| requeues.next().now_or_never().flatten());
        let mut names: Vec<_> = listed.map(|cluster| cluster.name().to_owned()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    let one = GateChange::One(ClusterRef::new("team-a", "backup"));
    assert_eq!(told(one).await, "recorded selected");
    let namespace = GateChange::Namespace("team-a".to_owned());
    assert_eq!(told(namespace).await, "one other recorded selected");
    let all = told(GateChange::All).await;
    assert_eq!(all, "elsewhere one other recorded selected");
    let gone = GateChange::One(ClusterRef::new("team-a", "gone"));
    assert_eq!(told(gone).await, "recorded", "its record may list the gate");
}

/// After a network partition, for example.
#[tokio::test(start_paused = true)]
async fn silent_workload_clusters_leave_reconciles_to_others() {
    const STEP: Duration = Duration::from_millis(250);
    let world = waiting_for_agent();
    let (cluster, secret) = (
        world.management.get(CLUSTER).unwrap(),
        world.management.get(KUBECONFIG).unwrap(),
    );
    let silent: Vec<String> = (0..8).map(|number| format!("silent-{number}")).collect();
    for name in &silent {
        let (mut cluster, mut secret) = (cluster.clone(), secret.clone());
        cluster["metadata"] = json!({"uid": name, "generation": 1});
        secret["metadata"] = json!({});
        world
            .management
            .put(&CLUSTER.replace("/one", &format!("/{name}")), cluster);
        world
            .management
            .put(&KUBECONFIG.replace("/one-", &format!("/{name}-")), secret);
    }
    let digest = digest_of(&world.management);
    let adopt = |context: &Context| {
        context.clients.adopt("uid", &digest, world.workload.client());
        for name in &silent {
            let never = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
            context
                .clients
                .adopt(name, &digest, Client::new(never, "default"));
        }
    };
    // Afterwards nothing is left to write.
    for _ in 0..4 {
        let leader = leader(&world.management).await;
        adopt(&leader);
        for cluster in leader.stores.clusters.state() {
            reconcile_once(&cluster, &leader).await.unwrap();
        }
    }
    let mut context = leader(&world.management).await;
    context.limiter = Limiter::new(4, CancellationToken::new());
    adopt(&context);
    let (context, stop) = (Arc::new(context), CancellationToken::new());
    let (requeues, changes) = (
        context.triggers.listen_gated(),
        Feed::<GateChange>::default().listen(),
    );
    let heart = Health::default().heartbeat("gates", Duration::from_mins(1));
    let running = tokio::spawn(run(Arc::clone(&context), requeues, changes, heart, stop.clone()));
    // By then each silent one was contacted once.
    sleep(Duration::from_secs(10)).await;
    let asked = || world.workload.times_asked_for(KUBE_SYSTEM);
    let (mut before, mut waited, mut longest) = (asked(), Duration::ZERO, Duration::ZERO);
    for _ in 0..120 {
        sleep(STEP).await;
        waited += STEP;
        longest = longest.max(waited);
        let now = asked();
        if now > before {
            (before, waited) = (now, Duration::ZERO);
        }
    }
    // The interval of a hold without progress grows to 4 s in this time. Behind silent Clusters it would wait another 4 s.
    assert!(longest <= Duration::from_millis(4_500), "{longest:?}");
    stop.cancel();
    assert!(timeout(Duration::from_mins(1), running).await.is_ok());
}

/// From the start of the controller to its stop.
#[tokio::test(start_paused = true)]
async fn the_controller_reconciles_each_gated_cluster() {
    let world = gated();
    let context = Arc::new(leader(&world.management).await);
    let (requeues, stop) = (context.triggers.listen_gated(), CancellationToken::new());
    let heart = Health::default().heartbeat("gates", Duration::from_mins(1));
    let changes = Feed::<GateChange>::default().listen();
    let running = tokio::spawn(run(Arc::clone(&context), requeues, changes, heart, stop.clone()));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.management.names("clusterupgrades"), ["one"]);
    stop.cancel();
    assert!(timeout(Duration::from_mins(1), running).await.is_ok());
}

/// A client takes a hundred KiB and more, and a new gate may concern a thousand Clusters whose next drift check is soon.
#[rstest]
#[case::at_rest(VERSION, 0)]
#[case::upgrade("v1.35.4", 1)]
#[tokio::test(start_paused = true)]
async fn only_an_upgrade_keeps_a_client(#[case] control_plane: &str, #[case] clients: usize) {
    let world = waiting_for_agent();
    world.control_plane_at(control_plane);
    let leader = leader(&world.management).await;
    let digest = digest_of(&world.management);
    leader.clients.adopt("uid", &digest, world.workload.client());
    // The event of the first write requeues the Cluster.
    for _ in 0..2 {
        reconcile_once(&cluster(&leader), &leader).await.unwrap();
        sleep(Duration::from_secs(15)).await;
    }
    assert_eq!(leader.clients.len(), clients);
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_gate_is_written_only_if_it_differs() {
    let world = gated();
    reconcile_all(&world.management).await;
    let leader = leader(&world.management).await;
    let statuses = Arc::new(GateStatuses::new(
        leader.client.clone(),
        leader.stores.clone(),
        HookScope::default(),
        leader.metrics.clone(),
    ));
    let ((sender, changed), stop) = (mpsc::unbounded(), CancellationToken::new());
    let running = tokio::spawn(run_statuses(statuses, changed, stop.clone()));
    // The watch of the store shows a write within 10 s.
    sleep(Duration::from_secs(30)).await;
    let status = world.management.get(&format!("{GATES}/backup")).unwrap()["status"].clone();
    assert_eq!(
        (&status["selected"], &status["holding"]),
        (&json!(1), &json!(1)),
        "{status}"
    );
    let writes = || {
        let asked = world.management.asked_to_write();
        asked
            .iter()
            .filter(|asked| asked.contains("/upgradegates/"))
            .count()
    };
    assert_eq!(writes(), 1);
    for _ in 0..100 {
        sender.unbounded_send("team-a".to_owned()).unwrap();
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(writes(), 1, "it does not differ");
    stop.cancel();
    assert!(timeout(Duration::from_mins(1), running).await.is_ok());
}

/// Within a second after the last read, the next one waits.
#[tokio::test(start_paused = true)]
async fn a_changed_object_is_read_before_the_next_poll() {
    let world = waiting_for_agent();
    let watches = ScriptedServer::new(|_| Answer::OpenWatch(String::new()));
    let context = Arc::new(holding(&world, &watches).await);
    let _running = running(&context);
    // By then it is polled every five seconds.
    sleep(Duration::from_mins(1)).await;
    let step = Duration::from_millis(100);
    let reads = || world.workload.times_asked_for(AGENT);
    let before = reads();
    for _ in 0..60 {
        sleep(step).await;
        if reads() > before {
            break;
        }
    }
    assert_eq!(reads(), before + 1, "it was polled");
    sleep(20 * step).await;
    watches.send(|_| true, &shows(1));
    sleep(step).await;
    assert_eq!(reads(), before + 2, "it is read at once");
    watches.send(|_| true, &shows(2));
    sleep(5 * step).await;
    assert_eq!(reads(), before + 3, "and a second time in a row");
    assert_eq!(watches.count(|_| true), 1, "one watch");

    sleep(20 * step).await;
    let counts = json!({
        "observedGeneration": 1, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1,
    });
    let agent = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"generation": 1}, "spec": {}, "status": counts,
    });
    world.workload.put(AGENT, agent);
    assert!(!is_open(&world.management));
    watches.send(|_| true, &shows(3));
    sleep(step).await;
    assert!(is_open(&world.management));
    assert_eq!(watches.open_watches(), 0, "it waits for nothing any more");
}

/// Events of a workload API server cost a read per second, and no write.
#[tokio::test(start_paused = true)]
async fn events_without_end_are_followed_by_one_read_a_second() {
    let world = waiting_for_agent();
    let watches = ScriptedServer::new(|_| {
        let events = (0..3000).map(|version| (Duration::from_millis(10), shows(version)));
        Answer::Watch(events.collect())
    });
    let context = Arc::new(holding(&world, &watches).await);
    let _running = running(&context);
    sleep(Duration::from_mins(1)).await;
    let (before, written) = (
        world.workload.times_asked_for(AGENT),
        writes_of(&world.management),
    );
    sleep(Duration::from_secs(20)).await;
    let read = world.workload.times_asked_for(AGENT) - before;
    assert!((17..=21).contains(&read), "{read}");
    assert_eq!(writes_of(&world.management), written);
}

#[tokio::test(start_paused = true)]
async fn objects_are_polled_without_watches() {
    let world = waiting_for_agent();
    let watches = ScriptedServer::new(|_| Answer::Refusal(403));
    let context = Arc::new(holding(&world, &watches).await);
    let _running = running(&context);
    sleep(Duration::from_mins(1)).await;
    let before = world.workload.times_asked_for(AGENT);
    sleep(Duration::from_secs(20)).await;
    let read = world.workload.times_asked_for(AGENT) - before;
    assert!((3..=5).contains(&read), "{read}");
    let tried = watches.count(|_| true);
    assert!((2..=13).contains(&tried), "tried {tried} times");
}

fn forget(leader: &mut Option<Context>) {
    if let Some(leader) = leader {
        leader.forget("uid");
    }
}

fn rest(leader: &mut Option<Context>) {
    if let Some(leader) = leader {
        leader.clients.rests("uid", Some(Duration::from_mins(1)));
    }
}

fn leave_unused(leader: &mut Option<Context>) {
    if let Some(leader) = leader {
        leader.clients.forget_unused(now() + Duration::from_hours(1));
    }
}

fn end(leader: &mut Option<Context>) {
    *leader = None;
}

#[rstest]
#[case::of_a_forgotten_cluster(forget)]
#[case::of_a_cold_cluster(rest)]
#[case::of_an_unused_client(leave_unused)]
#[case::of_a_controller_that_ends(end)]
#[tokio::test(start_paused = true)]
async fn watches_end(#[case] ends: fn(&mut Option<Context>)) {
    let world = waiting_for_agent();
    let watches = ScriptedServer::new(|_| Answer::OpenWatch(String::new()));
    let mut leader = Some(holding(&world, &watches).await);
    assert_eq!(watches.open_watches(), 1);
    ends(&mut leader);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(watches.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_kubeconfig_restarts_the_watches() {
    let world = waiting_for_agent();
    let [before, after] = [(); 2].map(|()| ScriptedServer::new(|_| Answer::OpenWatch(String::new())));
    let leader = holding(&world, &before).await;
    let other = kubeconfig_of(
        "https://127.0.0.1:2",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    world.management.put(KUBECONFIG, kubeconfig_secret(&other));
    let digest = digest_of(&world.management);
    leader.clients.adopt("uid", &digest, watched_by(&world, &after));
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((before.open_watches(), after.open_watches()), (0, 1));
}

/// Its backoff must not depend on events of a workload cluster.
#[tokio::test(start_paused = true)]
async fn a_failed_reconcile_ends_the_watches() {
    let world = waiting_for_agent();
    let watches = ScriptedServer::new(|_| Answer::OpenWatch(String::new()));
    let leader = holding(&world, &watches).await;
    world.management.refuse("/secrets/", 500);
    assert!(turn(&reference(), &leader).await.is_some());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(watches.open_watches(), 0);
    world.management.take_everything();
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(watches.open_watches(), 1);
}
