use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use prometheus_client::{encoding::text, registry::Registry};
use serde_json::{Value, json};
use sluice_crds::labels::label;
use tokio::time::sleep;
use tower::{BoxError, service_fn};

use super::*;
use crate::{
    controllers::providers::Dependents, fence::Fence, freshness::tests::Frozen, health::Health,
    triggers::Triggers,
};

/// Two Clusters whose release does not exist.
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
    vec![cluster("bad"), cluster("good")]
}

/// The events that were published: name of the Cluster and reason.
type Events = Arc<Mutex<Vec<(String, String)>>>;

/// An API server of [`items`]. The request panics that says of the Cluster `bad` that its release does not exist.
fn client(events: &Events) -> Client {
    let (events, server) = (Arc::clone(events), Frozen::new().client(items));
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
            assert_ne!((name, reason), ("bad", "TKRNotFound"), "a bug");
            let event = (name.to_owned(), reason.to_owned());
            events.lock().unwrap().push(event);
            let request = Request::from_parts(head, Body::from(body.to_vec()));
            Ok::<_, BoxError>(server.send(request).await?)
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_pass_is_the_matter_of_its_cluster() {
    let (events, triggers) = (Events::default(), Triggers::default());
    let client = client(&events);
    let (stores, following) = Stores::open(&client, "tkg-system", &triggers, &Dependents::default());
    let _following = tokio::spawn(following);
    stores.synced().await;
    let (metrics, mut registry) = (PassMetrics::default(), Registry::default());
    metrics.register(&mut registry);
    let settings = Settings {
        system_namespace: "tkg-system".to_owned(),
        sync_period: Duration::from_mins(10),
        delete_timeout: Duration::from_mins(10),
        concurrency: 2,
    };
    let context = Context::new(
        client.clone(),
        settings,
        stores,
        ControlPlanes::new(client, triggers.clone(), Vec::new()),
        Remotes::new("tkg-system".to_owned(), triggers.clone(), Fence::open()),
        Index::new("tkg-system".to_owned(), Duration::from_mins(10)),
        metrics,
    );
    let heart = Health::default().heartbeat("reconciler", Duration::from_mins(5));
    let running = tokio::spawn(run(
        Arc::new(context),
        triggers.listen(),
        heart,
        CancellationToken::new(),
    ));
    sleep(Duration::from_mins(5)).await;

    assert!(!running.is_finished(), "reconciling goes on");
    let events = events.lock().unwrap().clone();
    let published = |name: &str, reason: &str| events.contains(&(name.to_owned(), reason.to_owned()));
    assert!(published("bad", "PassPanicked"), "{events:?}");
    assert!(published("good", "TKRNotFound"), "{events:?}");
    let mut shown = String::new();
    text::encode(&mut shown, &registry).unwrap();
    let count = shown
        .lines()
        .find_map(|line| line.strip_prefix("sluice_pass_panics_total "));
    let count: u32 = count.and_then(|count| count.parse().ok()).unwrap_or_default();
    assert!(
        (5..100).contains(&count),
        "{count} passes in five minutes, which have growing delays"
    );
}
