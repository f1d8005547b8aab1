//! Writes against a fake of an API server that holds one object and knows preconditions, nothing else.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use sluice_core::build::{Install, Owner, Place, install as built, repair_values_secret, values_secret};

use super::*;

/// The one object; `None` when there is none.
type Stored = Arc<Mutex<Option<Value>>>;

/// A client of a server with this object, and what becomes of it.
fn serving(object: Option<Value>) -> (Client, Stored) {
    let stored: Stored = Arc::new(Mutex::new(object));
    let shared = Arc::clone(&stored);
    let service = tower::service_fn(move |request: Request<Body>| {
        let stored = Arc::clone(&shared);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let (code, answer) = answer(&head.method, &sent, &mut stored.lock().unwrap());
            let answer = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
        }
    });
    (Client::new(service, "system"), stored)
}

fn answer(method: &Method, sent: &Value, stored: &mut Option<Value>) -> (u16, Value) {
    let refused = |code: u16| {
        let reason = if code == 404 { "NotFound" } else { "Conflict" };
        let status =
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": ""});
        (code, status)
    };
    let Some(object) = stored else {
        return match *method {
            Method::POST => {
                let mut created = sent.clone();
                created["metadata"]["uid"] = json!("created");
                created["metadata"]["resourceVersion"] = json!("100");
                *stored = Some(created.clone());
                (201, created)
            }
            _ => refused(404),
        };
    };
    let differs = |precondition: &Value, field: &str| {
        !precondition[field].is_null() && precondition[field] != object["metadata"][field]
    };
    let stale =
        |precondition: &Value| differs(precondition, "uid") || differs(precondition, "resourceVersion");
    match *method {
        Method::GET => (200, object.clone()),
        Method::PATCH | Method::PUT if stale(&sent["metadata"]) => refused(409),
        Method::PATCH | Method::PUT => {
            object["written"] = sent.clone();
            (200, object.clone())
        }
        Method::DELETE if stale(&sent["preconditions"]) => refused(409),
        Method::DELETE => {
            let gone = object.clone();
            *stored = None;
            (200, gone)
        }
        _ => refused(409),
    }
}

fn wanted(version: &str) -> PackageInstall {
    let owner = Owner {
        name: "one".to_owned(),
        namespace: "tenant".to_owned(),
        uid: "cluster".to_owned(),
    };
    let antrea = Install {
        name: "one-antrea",
        place: Place::Workload("system"),
        ref_name: "antrea.test",
        version,
        values: "one-antrea-data-values-0a",
        sync_period: "10m0s",
    };
    built(&owner, &antrea)
}

/// `version` as the server has it in its write `resource_version`.
fn stored(version: &str, uid: &str, resource_version: &str) -> PackageInstall {
    let mut install = wanted(version);
    install.metadata.uid = Some(uid.to_owned());
    install.metadata.resource_version = Some(resource_version.to_owned());
    install
}

fn code(result: kube::Result<()>) -> u16 {
    match result {
        Ok(()) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

/// Writes 2.0.0 to a server that has `server`, when `seen` was found in memory.
async fn write(server: Option<PackageInstall>, seen: Option<PackageInstall>) -> (u16, Option<Value>) {
    let (client, stored) = serving(server.map(|server| json!(server)));
    let api = Api::namespaced(client, "system");
    let result = install(&api, &wanted("2.0.0"), seen.as_ref()).await;
    let after = stored.lock().unwrap().take();
    (code(result), after)
}

#[tokio::test]
async fn what_was_written_since_it_was_seen_is_never_overwritten() {
    let newer = Some(stored("3.0.0", "a", "9"));
    let unchanged = (409, newer.as_ref().map(|newer| json!(newer)));
    // A leader that was stopped between looking and writing, while another one brought the package further.
    assert_eq!(
        write(newer.clone(), Some(stored("1.0.0", "a", "7"))).await,
        unchanged
    );
    // It did not exist yet when it was looked for.
    assert_eq!(write(newer.clone(), None).await, unchanged);
    // It was deleted and created again.
    assert_eq!(write(newer, Some(stored("1.0.0", "b", "9"))).await, unchanged);
    // It was deleted: nothing is created in passing.
    assert_eq!(write(None, Some(stored("1.0.0", "a", "7"))).await, (404, None));
}

#[tokio::test]
async fn what_is_still_as_it_was_seen_is_brought_to_what_is_wanted() {
    let (code, after) = write(Some(stored("1.0.0", "a", "7")), Some(stored("1.0.0", "a", "7"))).await;
    let written = &after.unwrap()["written"];
    assert_eq!(code, 200);
    assert_eq!(written["metadata"], json!({"uid": "a", "resourceVersion": "7"}));
    assert_eq!(
        written["spec"],
        json!({"packageRef": {"versionSelection": {"constraints": "2.0.0"}}})
    );
    let (code, after) = write(None, None).await;
    assert_eq!(
        (code, after.unwrap()["metadata"]["uid"].take()),
        (200, json!("created"))
    );
}

#[tokio::test]
async fn what_is_as_wanted_is_not_written() {
    let seen = stored("2.0.0", "a", "7");
    let (code, after) = write(Some(seen.clone()), Some(seen)).await;
    assert_eq!((code, after.unwrap()["written"].take()), (200, Value::Null));
}

fn values(content: &str) -> Secret {
    let owner = Owner {
        name: "one".to_owned(),
        namespace: "tenant".to_owned(),
        uid: "cluster".to_owned(),
    };
    let files = [("values.yaml".to_owned(), content.as_bytes().to_vec())].into();
    values_secret(
        &owner,
        "one-antrea-data-values-0a",
        "system",
        "antrea.test",
        &files,
        false,
    )
}

/// Ensures values on a server that has `server`; UID and content afterwards.
async fn ensured(server: Option<Secret>) -> (Value, Value) {
    let server = server.map(|mut server| {
        server.metadata.uid = Some("theirs".to_owned());
        json!(server)
    });
    let (client, stored) = serving(server);
    let api = Api::namespaced(client, "system");
    ensure(&api, &values("ours"), repair_values_secret).await.unwrap();
    let mut after = stored.lock().unwrap().take().unwrap();
    (after["metadata"]["uid"].take(), after["data"].take())
}

#[tokio::test]
async fn a_values_secret_is_created_kept_or_made_again() {
    let ours = json!(values("ours").data);
    assert_eq!(ensured(None).await, (json!("created"), ours.clone()));
    assert_eq!(
        ensured(Some(values("ours"))).await,
        (json!("theirs"), ours.clone())
    );
    assert_eq!(ensured(Some(values("theirs"))).await, (json!("created"), ours));
}
