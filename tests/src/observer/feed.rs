//! Every write to etcd, in order, through etcd's JSON gateway.

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::io::AsyncBufRead;
use futures::{AsyncBufReadExt as _, Stream, StreamExt as _};
use jiff::Timestamp;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::{Value, json};

use super::stored;

/// Revision of etcd; the resourceVersion of an object is the revision of its last write.
pub type Revision = i64;

/// One write.
#[derive(Debug, Clone)]
pub struct Change {
    /// Position in the order of all writes.
    pub revision: Revision,
    /// Time of the observation. No order depends on it.
    pub seen: Timestamp,
    /// etcd key.
    pub key: String,
    /// The object, if the observer reads its kind; none for a deletion.
    pub object: Option<Value>,
}

#[derive(Deserialize)]
struct Line {
    result: Option<Batch>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Batch {
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    events: Vec<WatchEvent>,
}

#[derive(Deserialize)]
struct WatchEvent {
    #[serde(rename = "type", default)]
    kind: String,
    kv: KeyValue,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    mod_revision: String,
    #[serde(default)]
    value: String,
}

/// Answer to a read.
#[derive(Deserialize)]
struct State {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

/// A client of etcd's gateway.
#[derive(Clone)]
pub(super) struct Gateway {
    client: Client,
}

impl Gateway {
    pub(super) fn new(url: &str) -> Result<Self> {
        let config = Config::new(url.parse().context("read the address of etcd")?);
        let client = Client::try_from(config).context("make a client of etcd")?;
        Ok(Self { client })
    }

    /// The latest revision.
    pub(super) async fn revision(&self) -> Result<Revision> {
        let request = post(
            "/v3/kv/range",
            &json!({"key": BASE64_STANDARD.encode("/"), "count_only": true}),
        )?;
        let answer: Value = self
            .client
            .request(request)
            .await
            .context("ask etcd for its revision")?;
        answer["header"]["revision"]
            .as_str()
            .and_then(|revision| revision.parse().ok())
            .with_context(|| format!("etcd answered without a revision: {answer}"))
    }

    /// All that is there, each object as the write that left it so, in order, with the revision of this state.
    pub(super) async fn state(&self) -> Result<(Revision, Vec<Change>)> {
        let request = post("/v3/kv/range", &everything())?;
        let state: State = self
            .client
            .request(request)
            .await
            .context("read the state of etcd")?;
        state.read(Timestamp::now())
    }

    /// Everything written after a revision, or from now on. The stream ends with an error, never silently.
    pub(super) async fn changes(
        &self,
        after: Option<Revision>,
    ) -> Result<impl Stream<Item = Result<Vec<Change>>> + use<>> {
        let mut watch = everything();
        if let Some(after) = after {
            watch["start_revision"] = json!(after + 1);
        }
        let lines = self
            .client
            .request_stream(post("/v3/watch", &json!({"create_request": watch}))?)
            .await
            .context("watch etcd")?;
        let mut lines = batches(lines).boxed();
        // The first line confirms the watch, which shows all later writes.
        lines.next().await.context("etcd ended a watch at once")??;
        Ok(lines)
    }
}

/// The range of all keys.
fn everything() -> Value {
    let nothing = BASE64_STANDARD.encode([0]);
    json!({"key": nothing, "range_end": nothing})
}

fn post(path: &str, body: &Value) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())?)
}

fn batches(lines: impl AsyncBufRead + Send + 'static) -> impl Stream<Item = Result<Vec<Change>>> + Send {
    let lines = Box::pin(lines).lines();
    lines
        .map(|line| parse(&line.context("read from etcd")?))
        .chain(futures::stream::once(async { bail!("etcd ended the watch") }))
}

fn parse(line: &str) -> Result<Vec<Change>> {
    let line: Line = serde_json::from_str(line).context("read a line from etcd")?;
    if let Some(error) = line.error {
        bail!("etcd says: {error}");
    }
    let batch = line.result.context("a line from etcd without a result")?;
    if batch.canceled {
        bail!("etcd has cancelled the watch");
    }
    let seen = Timestamp::now();
    batch.events.into_iter().map(|event| event.change(seen)).collect()
}

impl State {
    fn read(self, seen: Timestamp) -> Result<(Revision, Vec<Change>)> {
        let revision: Revision = self.header.revision.parse().context("read a revision")?;
        let written = |kv| {
            let kind = String::new();
            WatchEvent { kind, kv }.change(seen)
        };
        let changes: Result<Vec<Change>> = self.kvs.into_iter().map(written).collect();
        let mut changes = changes?;
        changes.sort_by_key(|change| change.revision);
        Ok((revision, changes))
    }
}

impl WatchEvent {
    fn change(self, seen: Timestamp) -> Result<Change> {
        let Self { kind, kv } = self;
        let key = BASE64_STANDARD.decode(kv.key).context("decode a key")?;
        let key = String::from_utf8_lossy(&key).into_owned();
        let object = match super::key::parse(&key) {
            Some(read) if kind != "DELETE" => {
                let value = BASE64_STANDARD.decode(kv.value).context("decode a value")?;
                stored::decode(read.kind, &value).with_context(|| format!("read {key}"))?
            }
            _ => None,
        };
        Ok(Change {
            revision: kv.mod_revision.parse().context("read a revision")?,
            seen,
            key,
            object,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_its_revision() {
        let key = BASE64_STANDARD.encode("/mgmt/cluster.x-k8s.io/clusters/a/b");
        let value = BASE64_STANDARD.encode(r#"{"spec":{}}"#);
        let line = json!({"result": {"events": [{"kv": {"key": key, "mod_revision": "7", "value": value}}]}});
        let changes = parse(&line.to_string()).unwrap();
        assert_eq!(changes[0].revision, 7);
        assert_eq!(changes[0].object, Some(json!({"spec": {}})));
    }

    #[test]
    fn a_state_is_read_in_the_order_of_its_writes() {
        let kv = |name: &str, revision: &str| {
            let key = BASE64_STANDARD.encode(format!("/mgmt/cluster.x-k8s.io/clusters/a/{name}"));
            json!({"key": key, "mod_revision": revision, "value": BASE64_STANDARD.encode("{}")})
        };
        let state = json!({"header": {"revision": "12"}, "kvs": [kv("a", "9"), kv("b", "7")]});
        let state: State = serde_json::from_value(state).unwrap();
        let (revision, changes) = state.read(Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(revision, 12);
        let revisions: Vec<Revision> = changes.iter().map(|change| change.revision).collect();
        assert_eq!(revisions, [7, 9]);
        assert!(changes.iter().all(|change| change.object == Some(json!({}))));
    }

    #[test]
    fn a_cancelled_watch_is_an_error() {
        assert!(parse(r#"{"result": {"canceled": true}}"#).is_err());
        assert!(parse(r#"{"error": {"message": "no"}}"#).is_err());
    }
}
