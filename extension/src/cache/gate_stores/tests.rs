use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use sluice_core::cache::stores::{Found, Stored, Stores as _};
use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{
    cache::stores::Stores,
    kube_client::scripted_server::{Answer, ApiRequest, ScriptedServer, Verb, event},
};

const GATES: &str = "/apis/lifecycle.sluice.dev/v1alpha1/upgradegates";
const UPGRADES: &str = "/apis/lifecycle.sluice.dev/v1alpha1/clusterupgrades";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/upgradegates.lifecycle.sluice.dev";
const NAME: &str = "upgradegates.lifecycle.sluice.dev";

/// Longer than the delay between two lists.
const LATER: Duration = Duration::from_secs(10);

fn gate(namespace: &str, name: &str, generation: i64) -> Value {
    json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeGate",
        "metadata": {
            "namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"), "generation": generation,
            "resourceVersion": "1",
        },
        "spec": {
            "mode": "Enforce", "before": "ControlPlane", "clusterSelector": {}, "versions": [],
            "checks": [{
                "name": "job", "object": {"apiVersion": "batch/v1", "kind": "Job", "name": "backup-${hop}"},
            }],
        },
    })
}

fn list(items: &[Value]) -> Answer {
    Answer::Body(
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}),
    )
}

/// Server whose other kinds are empty. `gates` answers requests of UpgradeGates and of their definition, unless they are watches.
fn server(gates: impl Fn(&ApiRequest) -> Answer + Send + Sync + 'static) -> ScriptedServer {
    ScriptedServer::new(move |request| match request.verb {
        Verb::StreamingList => Answer::Refusal(422),
        Verb::Watch => Answer::OpenWatch(String::new()),
        Verb::Read if request.path == GATES || request.path == DEFINITION => gates(request),
        Verb::Read => list(&[]),
    })
}

fn handlers() -> EventHandlers {
    EventHandlers {
        with_upgrade_gates: true,
        ..EventHandlers::default()
    }
}

/// Returns the stores of a server after some time, and the task that keeps them up to date.
async fn opened(server: &ScriptedServer, handlers: &EventHandlers) -> (Stores, JoinHandle<()>) {
    let (stores, following) = Stores::open(&server.client(), "tkg-system", handlers);
    let following = tokio::spawn(following);
    sleep(LATER).await;
    (stores, following)
}

fn why(stores: &Stores) -> String {
    match stores.gate_kinds() {
        GateKinds::Unlisted(why) => why,
        kinds => panic!("{kinds:?}"),
    }
}

fn names(stores: &Stores, namespace: &str) -> Vec<String> {
    let gates = stores.gates_of(namespace);
    gates
        .iter()
        .map(|gate| match gate {
            Ok(gate) => gate.name_any(),
            Err(gate) => format!("undecodable {}", gate.metadata.name.clone().unwrap_or_default()),
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_gates_of_a_namespace_are_listed_by_name() {
    let server = server(|_| {
        let mut odd = gate("team-a", "odd", 1);
        odd["spec"]["mode"] = json!(7);
        list(&[
            gate("team-a", "two", 1),
            odd,
            gate("team-b", "one", 1),
            gate("team-a", "one", 1),
        ])
    });
    let (stores, _following) = opened(&server, &handlers()).await;
    assert_eq!(stores.gate_kinds(), GateKinds::Listed);
    assert_eq!(names(&stores, "team-a"), ["undecodable odd", "one", "two"]);
    assert_eq!(names(&stores, "team-b"), ["one"]);
    assert_eq!(
        stores.gates_of("team-c").capacity(),
        0,
        "most namespaces have none"
    );
    let found: Found<UpgradeGate> = stores.found(Some("team-b"), "one");
    assert!(found.is_ok_and(|found| found.is_some()));
    let found: Found<UpgradeGate> = stores.found(Some("team-b"), "two");
    assert!(found.is_ok_and(|found| found.is_none()));
    assert!(Stored::<UpgradeGate>::undecodable(&stores, Some("team-a"), "odd").is_some());
}

#[tokio::test(start_paused = true)]
async fn stores_without_gates_ask_for_none() {
    let server = server(|_| list(&[]));
    let (stores, _following) = opened(&server, &EventHandlers::default()).await;
    assert_eq!(stores.gate_kinds(), GateKinds::Off);
    let asked = |request: &ApiRequest| request.path == GATES || request.path == UPGRADES;
    assert_eq!(server.count(asked), 0);
}

/// Packages are released meanwhile, and gates count once they are installed.
#[tokio::test(start_paused = true)]
async fn a_missing_definition_turns_gates_off_until_it_is_installed() {
    let is_installed = Arc::<AtomicBool>::default();
    let installed = Arc::clone(&is_installed);
    let server = server(
        move |request| match (installed.load(Ordering::Relaxed), request.path.as_str()) {
            (true, GATES) => list(&[gate("team-a", "one", 1)]),
            (false, DEFINITION) => Answer::Missing(NAME.to_owned()),
            _ => Answer::Refusal(404),
        },
    );
    let (stores, _following) = opened(&server, &handlers()).await;
    assert_eq!(stores.gate_kinds(), GateKinds::Off);
    assert_eq!(stores.unlisted(), None, "nothing waits for gates");
    stores.synced().await;
    is_installed.store(true, Ordering::Relaxed);
    sleep(LATER).await;
    assert_eq!(stores.gate_kinds(), GateKinds::Listed);
    assert_eq!(names(&stores, "team-a"), ["one"]);
}

/// A 404 of an API server that starts, and one of a definition that is not served yet, say nothing about objects.
#[tokio::test(start_paused = true)]
async fn only_the_definition_itself_can_be_missing() {
    for (definition, expected) in [
        (
            Answer::Refusal(404),
            "does not tell whether CustomResourceDefinition",
        ),
        (
            Answer::Missing("other".to_owned()),
            "does not tell whether CustomResourceDefinition",
        ),
        (
            Answer::Refusal(500),
            "does not tell whether CustomResourceDefinition",
        ),
        (Answer::Never, "does not tell whether CustomResourceDefinition"),
        (
            Answer::Refusal(403),
            "Sluice may not get CustomResourceDefinition",
        ),
        (
            Answer::Body(
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": NAME}}),
            ),
            "the API server does not serve it",
        ),
    ] {
        let server = server(move |request| match request.path.as_str() {
            DEFINITION => definition.clone(),
            _ => Answer::Refusal(404),
        });
        let (stores, _following) = opened(&server, &handlers()).await;
        sleep(LATER).await;
        let why = why(&stores);
        assert!(why.contains(expected), "{why}");
        assert_eq!(stores.unlisted(), None, "packages do not wait");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_rule_holds_until_it_is_added() {
    let is_allowed = Arc::<AtomicBool>::default();
    let allowed = Arc::clone(&is_allowed);
    let server = server(move |_| {
        if allowed.load(Ordering::Relaxed) {
            list(&[])
        } else {
            Answer::Refusal(403)
        }
    });
    let handlers = handlers();
    let mut changes = handlers.gate_changes.listen();
    let (stores, _following) = opened(&server, &handlers).await;
    assert!(why(&stores).starts_with("Sluice may not list upgradegates.lifecycle.sluice.dev"));
    is_allowed.store(true, Ordering::Relaxed);
    while changes.next().now_or_never().is_some() {}
    sleep(LATER).await;
    assert_eq!(stores.gate_kinds(), GateKinds::Listed);
    assert_eq!(
        changes.next().now_or_never(),
        Some(Some(GateChange::All)),
        "all Clusters are reconciled"
    );
}

/// An update of the image alone brings neither the definitions nor the role, and the API server authorizes a list before it looks for its kind.
#[tokio::test(start_paused = true)]
async fn a_missing_definition_turns_gates_off_also_without_the_right_to_list() {
    let is_installed = Arc::<AtomicBool>::default();
    let installed = Arc::clone(&is_installed);
    let server = server(move |request| match request.path.as_str() {
        DEFINITION if installed.load(Ordering::Relaxed) => Answer::Body(
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": NAME}}),
        ),
        DEFINITION => Answer::Missing(NAME.to_owned()),
        _ => Answer::Refusal(403),
    });
    let (stores, _following) = opened(&server, &handlers()).await;
    assert_eq!(stores.gate_kinds(), GateKinds::Off);
    is_installed.store(true, Ordering::Relaxed);
    sleep(LATER).await;
    let why = why(&stores);
    assert!(why.contains("apply ClusterRole sluice-gates"), "{why}");
}

/// The writes of the leader to the status must not requeue the Clusters of a gate.
#[tokio::test(start_paused = true)]
async fn only_changes_of_its_spec_requeue_the_clusters_of_a_gate() {
    let server = server(|_| list(&[gate("team-a", "one", 1)]));
    let handlers = handlers();
    let mut changes = handlers.gate_changes.listen();
    let (stores, _following) = opened(&server, &handlers).await;
    let mut sends = async |kind: &str, object: &Value| {
        while changes.next().now_or_never().is_some() {}
        server.send(|path| path == GATES, &event(kind, object));
        sleep(Duration::from_secs(1)).await;
        // The last change of one event counts: a gate that cannot be decoded any more is first reported as gone.
        std::iter::from_fn(|| changes.next().now_or_never().flatten()).last()
    };
    let one = || Some(GateChange::One(ClusterRef::new("team-a", "one")));
    let mut edited = gate("team-a", "one", 1);
    edited["metadata"]["resourceVersion"] = json!("2");
    edited["status"] = json!({"selected": 3});
    assert_eq!(sends("MODIFIED", &edited).await, None);
    edited["metadata"]["resourceVersion"] = json!("3");
    edited["metadata"]["generation"] = json!(2);
    assert_eq!(sends("MODIFIED", &edited).await, one());
    edited["metadata"]["resourceVersion"] = json!("4");
    edited["spec"]["mode"] = json!(7);
    assert_eq!(
        sends("MODIFIED", &edited).await,
        Some(GateChange::Namespace("team-a".to_owned()))
    );
    assert_eq!(names(&stores, "team-a"), ["undecodable one"]);
    edited["metadata"]["resourceVersion"] = json!("5");
    edited["spec"]["mode"] = json!("Audit");
    assert!(sends("MODIFIED", &edited).await.is_some());
    assert_eq!(names(&stores, "team-a"), ["one"], "it is corrected");
    assert_eq!(sends("DELETED", &edited).await, one());
    assert_eq!(names(&stores, "team-a"), Vec::<String>::new());
    assert_eq!(stores.gate_namespaces(), Vec::<String>::new());
}
