//! The webhook that pauses a Cluster in the very write that changes its release.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use sluice_benches::listen;

use crate::cache::Cache;
use crate::objects::{PAUSED, release_of, text};

/// A release with this label is none of the flow's business.
const LEGACY: &str = "run.tanzu.vmware.com/legacy-tkr";

/// Serves the webhook until the process ends.
pub(crate) async fn serve(address: SocketAddr, cert: &Path, key: &Path, cache: Arc<Cache>) -> Result<()> {
    cache.is_filled().await?;
    listen::serve(address, cert, key, move |request| {
        answer(request, Arc::clone(&cache))
    })
    .await
}

async fn answer(request: Request<Incoming>, cache: Arc<Cache>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET {
        return Ok(Response::new(Full::default()));
    }
    let response = match review(request, &cache).await {
        Ok(review) => Response::new(Full::new(Bytes::from(review.to_string()))),
        Err(error) => {
            let mut response = Response::new(Full::new(Bytes::from(format!("{error:#}"))));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    };
    Ok(response)
}

async fn review(request: Request<Incoming>, cache: &Cache) -> Result<Value> {
    let body = request.into_body().collect().await.context("read the body")?;
    let review: Value = serde_json::from_slice(&body.to_bytes()).context("read the AdmissionReview")?;
    let new = &review["request"]["object"];
    let (namespace, name) = (text(new, "/metadata/namespace"), text(new, "/metadata/name"));
    let stored = cache.cluster(&namespace, &name);
    let changes = match stored {
        Some(stored) if is_to_be_paused(new, &stored, |release| cache.release(release)) => pause(new),
        _ => Vec::new(),
    };
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if !changes.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64_STANDARD.encode(Value::Array(changes).to_string()));
    }
    Ok(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// Whether this write changes the release, or the Kubernetes version, of a Cluster whose release is known.
fn is_to_be_paused(new: &Value, stored: &Value, release: impl Fn(&str) -> Option<Value>) -> bool {
    let (wanted, before) = (release_of(new), release_of(stored));
    let version = "/spec/topology/version";
    if wanted.is_empty() || (wanted == before && text(new, version) == text(stored, version)) {
        return false;
    }
    // A Cluster that gets its first release is paused as well.
    before.is_empty()
        || release(&before).is_some_and(|release| release["metadata"]["labels"][LEGACY].is_null())
}

fn pause(new: &Value) -> Vec<Value> {
    let mut changes = vec![json!({"op": "add", "path": "/spec/paused", "value": true})];
    let mut annotations = new["metadata"]["annotations"].clone();
    if annotations.is_null() {
        annotations = json!({});
    }
    annotations[PAUSED] = json!(release_of(new));
    changes.push(json!({"op": "add", "path": "/metadata/annotations", "value": annotations}));
    changes
}

#[cfg(test)]
mod tests {
    use crate::objects::TKR;

    use super::*;

    fn cluster(release: &str, version: &str) -> Value {
        json!({
            "metadata": {"name": "one", "labels": {TKR: release}},
            "spec": {"topology": {"version": version}},
        })
    }

    #[test]
    fn a_change_of_release_or_version_pauses() {
        let known = |labels: Value| move |_: &str| Some(json!({"metadata": {"labels": labels.clone()}}));
        let (old, new) = (cluster("a", "v1.35.4"), cluster("b", "v1.36.3"));
        assert!(is_to_be_paused(&new, &old, known(json!({}))));
        assert!(is_to_be_paused(&cluster("a", "v1.36.3"), &old, known(json!({}))));
        assert!(!is_to_be_paused(&old, &old, known(json!({}))));
        assert!(!is_to_be_paused(&new, &old, known(json!({LEGACY: ""}))));
        assert!(!is_to_be_paused(&new, &old, |_| None));
        assert!(is_to_be_paused(&new, &cluster("", "v1.35.4"), |_| None));
        assert!(!is_to_be_paused(&cluster("", "v1.36.3"), &old, known(json!({}))));
    }

    #[test]
    fn the_pause_names_the_release_and_keeps_other_annotations() {
        let mut new = cluster("b", "v1.36.3");
        new["metadata"]["annotations"] = json!({"a": "1"});
        let changes = pause(&new);
        assert_eq!(changes[0]["path"], "/spec/paused");
        assert_eq!(changes[1]["value"], json!({"a": "1", PAUSED: "b"}));
    }
}
