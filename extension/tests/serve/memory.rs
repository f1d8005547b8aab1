//! Memory of a replica whose API server has Clusters that take many times their text when decoded.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::replica::{Api, Replica, empty};

/// Clusters, and about how many bytes each has.
const CLUSTERS: usize = 200;
const BYTES: usize = 960_000;

/// What RSS may grow by for as long as the Clusters are there, in KiB.
const KEPT: u64 = 40_000_000 / 1024;

/// What it may grow by while they arrive, in KiB.
const PEAK: u64 = 60_000_000 / 1024;

/// How long all Clusters may take to arrive, with a build that is not optimized on a machine that is busy.
const ARRIVE: Duration = Duration::from_mins(5);

/// How long the allocator may take to give back what it has no use for.
const SETTLED: Duration = Duration::from_mins(1);

/// How an API server lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    /// As the beginning of a watch.
    Streamed,
    /// In pages only.
    InPages,
}

/// They arrive by a watch that is open, and by the first list of a process.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn clusters_take_less_than_their_text(#[values(Lists::Streamed, Lists::InPages)] lists: Lists) {
    let clusters = Clusters::new(lists);
    let replica = Replica::start(Api::Of(clusters.router()), &[]).await;
    replica.until("/livez/reconciler", 200).await;
    let idle = replica.memory().resident;

    replica.forget_peak();
    clusters.there.send_replace(true);
    all_arrive(&replica, idle, &clusters, "watch").await;
    drop(replica);

    clusters.last_is_read.store(false, Ordering::Relaxed);
    let restarted = Replica::start(Api::Of(clusters.router()), &[]).await;
    all_arrive(&restarted, idle, &clusters, "first list").await;
}

/// Waits until the last Cluster has arrived, and until memory is what it may be.
async fn all_arrive(replica: &Replica, idle: u64, clusters: &Clusters, by: &str) {
    let began = Instant::now();
    let limit_peak = || {
        let peak = replica.memory().peak;
        assert!(
            peak <= idle + PEAK,
            "by the {by}, RSS grew from {idle} KiB to {peak} KiB within {:?}; {PEAK} KiB more are allowed",
            began.elapsed()
        );
    };
    while !clusters.last_is_read.load(Ordering::Relaxed) {
        // Each time: a replica that grows on would take the machine with it.
        limit_peak();
        assert!(
            began.elapsed() < ARRIVE,
            "by the {by}, the last Cluster was not reconciled within {ARRIVE:?}"
        );
        sleep(Duration::from_millis(20)).await;
    }
    let arrived = Instant::now();
    while replica.memory().resident > idle + KEPT {
        assert!(
            arrived.elapsed() < SETTLED,
            "by the {by}, RSS was {idle} KiB and is {:?}; {KEPT} KiB more are allowed",
            replica.memory()
        );
        sleep(Duration::from_millis(100)).await;
    }
    limit_peak();
}

/// An API server that has Clusters once they are there, and nothing else.
#[derive(Clone)]
struct Clusters {
    lists: Lists,
    there: watch::Sender<bool>,
    /// The text of those of each shape, without their names.
    shapes: Arc<Vec<Vec<Bytes>>>,
    /// Whether the last Cluster, which is managed, caused any request.
    last_is_read: Arc<AtomicBool>,
}

impl Clusters {
    fn new(lists: Lists) -> Self {
        Self {
            lists,
            there: watch::Sender::new(false),
            shapes: Arc::new(shapes()),
            last_is_read: Arc::default(),
        }
    }

    fn router(&self) -> Router {
        let clusters = self.clone();
        Router::new().fallback(move |request: Request| {
            let answer = clusters.answer(&request);
            async { answer }
        })
    }

    fn answer(&self, request: &Request) -> Response {
        let query = request.uri().query().unwrap_or_default();
        let value = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(found, _)| *found == key).map(|(_, value)| value)
        };
        let path = request.uri().path();
        if path.contains(&format!("/namespaces/{LAST}/")) {
            self.last_is_read.store(true, Ordering::Relaxed);
        }
        if !path.ends_with("/clusters") {
            return empty(request.uri());
        }
        let number = |key: &str| value(key).and_then(|number| number.parse::<usize>().ok());
        let there = if *self.there.borrow() { CLUSTERS + 1 } else { 0 };
        // How many there are, and one more: 0 would have a meaning of its own.
        let version = there + 1;
        if value("sendInitialEvents") == Some("true") {
            return match self.lists {
                Lists::InPages => empty(request.uri()),
                Lists::Streamed => streamed(self.events(0..there).chain(one(bookmark(version))).boxed()),
            };
        }
        if value("watch") == Some("true") {
            let (clusters, mut appear) = (self.clone(), self.there.subscribe());
            let known = number("resourceVersion").unwrap_or(1) - 1;
            let appearing = stream::once(async move {
                let _appeared = appear.wait_for(|there| *there).await;
                clusters.events(known..CLUSTERS + 1)
            });
            return streamed(appearing.flatten().chain(stream::pending()).boxed());
        }
        let from = number("continue").unwrap_or(0);
        let to = there.min(from + number("limit").unwrap_or(there));
        let next = if to < there { to.to_string() } else { String::new() };
        let mut list = json!({
            "apiVersion": API_VERSION, "kind": "ClusterList", "items": [],
            "metadata": {"resourceVersion": version.to_string(), "continue": next},
        })
        .to_string();
        let end = list.split_off(list.find("[]").unwrap() + 1);
        let clusters = self.clone();
        let items = stream::iter(from..to).flat_map(move |number| {
            let comma = if number == from { "" } else { "," };
            one(comma).chain(clusters.one(number))
        });
        streamed(one(list).chain(items).chain(one(end)).boxed())
    }

    fn events(&self, numbers: Range<usize>) -> BoxStream<'static, Bytes> {
        let clusters = self.clone();
        let event = move |number| {
            let before = one(r#"{"type":"ADDED","object":"#);
            before.chain(clusters.one(number)).chain(one("}\n"))
        };
        stream::iter(numbers).flat_map(event).boxed()
    }

    fn one(&self, number: usize) -> BoxStream<'static, Bytes> {
        if number == CLUSTERS {
            let mut last = cluster();
            last["metadata"]["namespace"] = json!(LAST);
            last["metadata"]["labels"] = json!({"run.tanzu.vmware.com/tkr": "none"});
            return one(last.to_string());
        }
        let parts = self.shapes[number % self.shapes.len()].clone();
        let name = Bytes::from(format!("cluster-{number}"));
        let parts = parts.into_iter().flat_map(move |part| [part, name.clone()]);
        // There is a name between two parts, and none behind the last one.
        let mut parts: Vec<_> = parts.collect();
        parts.pop();
        stream::iter(parts).boxed()
    }
}

/// Namespace of the Cluster that comes last.
const LAST: &str = "the-last";

const API_VERSION: &str = "cluster.x-k8s.io/v1beta2";

/// The end of a list that is streamed. Sluice tells it by its first field.
fn bookmark(version: usize) -> String {
    let object = json!({
        "apiVersion": API_VERSION, "kind": "Cluster",
        "metadata": {
            "resourceVersion": version.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        },
    });
    format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n")
}

fn one(text: impl Into<Bytes>) -> BoxStream<'static, Bytes> {
    stream::iter([text.into()]).boxed()
}

fn streamed(parts: BoxStream<'static, Bytes>) -> Response {
    Response::new(Body::from_stream(parts.map(Ok::<_, std::convert::Infallible>)))
}

/// What stands for the name of a Cluster, for the large part of it, and for 300 lists in each other.
const NAME: &str = "the name";
const LARGE: &str = "the large part";
const NESTED: &str = "the nested part";

/// A Cluster of a class that does not exist.
fn cluster() -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "Cluster",
        "metadata": {"name": NAME, "namespace": "tenant", "uid": NAME, "resourceVersion": "1", "generation": 1},
        "spec": {"topology": {"classRef": {"name": "none"}, "version": "v1.34.4"}},
    })
}

/// Clusters that are large in one way each, as the texts between their names.
fn shapes() -> Vec<Vec<Bytes>> {
    let dense = format!("[{}]", vec![r#"{"a":0}"#; BYTES / 8].join(","));
    let text = json!("x".repeat(BYTES)).to_string();
    let nested = format!("{}{text}{}", "[".repeat(300), "]".repeat(300));
    let many = (0..BYTES / 40).map(|number| (format!("label-{number:06}"), json!("a-text-of-some-length")));
    let many = many.collect::<Value>().to_string();
    let variables = |name: &str| json!([{"name": name, "value": LARGE}]);
    let overrides =
        |name: &str| json!({"class": "a", "name": "a", "variables": {"overrides": variables(name)}});
    let topology = |field: &str, content: Value| {
        let mut cluster = cluster();
        cluster["spec"]["topology"][field] = content;
        cluster
    };
    let metadata = |field: &str| {
        let mut cluster = topology("variables", json!([{"name": "TKR_DATA", "value": NESTED}]));
        cluster["metadata"][field] = json!(LARGE);
        cluster
    };
    let shapes = [
        (topology("variables", variables("any")), &dense),
        // Sluice reads this one.
        (topology("variables", variables("TKR_DATA")), &dense),
        (topology("controlPlane", overrides("TKR_DATA")), &dense),
        (
            topology("workers", json!({"machineDeployments": [overrides("TKR_DATA")]})),
            &dense,
        ),
        (
            topology("controlPlane", json!({"metadata": {"labels": LARGE}})),
            &many,
        ),
        (topology("variables", variables("any")), &text),
        (topology("variables", variables("TKR_DATA")), &nested),
        // As far as they cannot be decoded, all that is known of them is this.
        (metadata("labels"), &many),
        (metadata("annotations"), &many),
    ];
    let written = |(cluster, large): (Value, &String)| {
        let text = cluster.to_string();
        let text = text.replace(&json!(LARGE).to_string(), large);
        let text = text.replace(&json!(NESTED).to_string(), &("[".repeat(300) + &"]".repeat(300)));
        text.split(NAME)
            .map(|part| Bytes::from(part.to_owned()))
            .collect()
    };
    shapes.into_iter().map(written).collect()
}
