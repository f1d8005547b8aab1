//! Responses of the misbehaving server.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use axum::serve::Listener as _;
use axum::{Json, Router};
use futures::stream::{self, Stream};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::fault::Fault;
use crate::processes::tls::Tls;
use crate::stack::SYSTEM_NAMESPACE;
use crate::stack::apiserver::ApiServer;

/// Between two bytes of an answer that drips.
const DRIP: Duration = Duration::from_millis(200);

/// Bytes of one part of an answer that never ends.
const PART: usize = 64 * 1024;

/// Announced length of a list of a billion bytes.
const BILLION: u64 = 1_000_000_000;

/// Small maps in an answer. Up to 24,000 of them a client of Sluice hands on to what decodes the answer, more it refuses by their number.
const SMALL_MAPS: [usize; 5] = [20_000, 24_000, 180_000, 20_000, 1_048_576];

/// What stands for them while the rest is written.
const PLACE: &str = "small maps of the fault server";

/// Objects of one page of a list that never ends, and of one part of a watch that does not.
const PAGE: u64 = 100;

/// Characters of an annotation of each of these objects: real ones have some KiB.
const ANNOTATION: usize = 4 * 1024;

/// The longest request that is passed on to the real server.
const LONGEST_REQUEST: usize = 8 * 1024 * 1024;

/// The lists and watches that a fault may concern, by the end of their path.
const LISTED: [&str; 2] = ["packageinstalls", "apps"];

/// Shakes hands with every peer and answers as `fault` wants it, in place of `server`. Returns the port, and the task to abort.
pub(super) async fn serve(
    server: &ApiServer,
    fault: Fault,
    asked: Arc<AtomicU64>,
) -> Result<(u16, AbortHandle)> {
    let listener = Tls::bind(&server.pki().server_certificate()?, &[]).await?;
    let port = listener.local_addr()?.port();
    let real = Real {
        client: server.admin_client(),
        fault,
        asked,
    };
    let router = Router::new().fallback(answer).with_state(real);
    let serving = async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::warn!("the server with fault {fault:?}: {error}");
        }
    };
    Ok((port, tokio::spawn(serving).abort_handle()))
}

/// The real server, and the fault in front of it.
#[derive(Clone)]
struct Real {
    client: Client,
    fault: Fault,
    asked: Arc<AtomicU64>,
}

type Answer = Response<Body>;

async fn answer(State(real): State<Real>, request: Request<Body>) -> Answer {
    real.asked.fetch_add(1, Ordering::Relaxed);
    let path = request.uri().path().to_owned();
    let listed = LISTED
        .into_iter()
        .find(|plural| path.ends_with(&format!("/{plural}")) && request.method() == "GET");
    let watches = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch="));
    match (real.fault, listed, watches) {
        (Fault::Silent, ..) => pending().await,
        (Fault::Drips, ..) => streamed(stream::unfold((), |()| async {
            sleep(DRIP).await;
            Some((Bytes::from_static(b" "), ()))
        })),
        (Fault::Endless, ..) => streamed(stream::repeat(spaces())),
        (Fault::TooManyRequests, ..) => refusal(StatusCode::TOO_MANY_REQUESTS, Some("86400")),
        (Fault::Unavailable, ..) => refusal(StatusCode::SERVICE_UNAVAILABLE, None),
        // The front resets the connection before anything of this arrives.
        (Fault::Resets, ..) => refusal(StatusCode::INTERNAL_SERVER_ERROR, None),
        (Fault::HalfAnswers, ..) => {
            promised(4096, stream::iter([Bytes::from_static(b"{\"kind\":\"List\",")]))
        }
        (Fault::Dense, _, false) => {
            let answer = match pass_on(&real.client, request).await {
                Ok(answer) => padded(answer, real.asked.load(Ordering::Relaxed)).await,
                Err(error) => Err(error),
            };
            answer.unwrap_or_else(|error| failed(&error))
        }
        (Fault::BillionBytes, Some(plural), false) => promised(
            BILLION,
            stream::unfold(0, move |page| async move {
                let items = objects(plural, page);
                let text = if page == 0 {
                    format!("{{\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":[{items}")
                } else {
                    format!(",{items}")
                };
                Some((Bytes::from(text), page + 1))
            }),
        ),
        (Fault::EndlessPages, Some(plural), false) => {
            let page = real.asked.load(Ordering::Relaxed);
            one_of_many_pages(page, &objects(plural, page))
        }
        (Fault::EmptyPages, Some(_), false) => one_of_many_pages(real.asked.load(Ordering::Relaxed), ""),
        // So that it is listed again.
        (
            Fault::BillionBytes | Fault::EndlessPages | Fault::EmptyPages | Fault::ExpiredWatch,
            Some(_),
            true,
        ) => streamed(stream::iter([expired()])),
        (Fault::MuteWatch, Some(_), true) => streamed(stream::pending()),
        (Fault::ReorderedWatch, Some(plural), true) => match reordered(&real.client, &path, plural).await {
            Ok(events) => streamed(stream::iter([events, expired()])),
            Err(error) => failed(&error),
        },
        (Fault::EndlessWatch, Some(plural), true) => streamed(stream::unfold(0, move |page| async move {
            let events =
                (page * PAGE..(page + 1) * PAGE).map(|number| event("ADDED", &object(plural, number)));
            Some((Bytes::from(events.collect::<String>()), page + 1))
        })),
        _ => pass_on(&real.client, request)
            .await
            .unwrap_or_else(|error| failed(&error)),
    }
}

/// A page with these items and a `continue` token.
fn one_of_many_pages(page: u64, items: &str) -> Answer {
    let list =
        format!("{{\"metadata\":{{\"resourceVersion\":\"1\",\"continue\":\"{page}\"}},\"items\":[{items}]}}");
    streamed(stream::iter([Bytes::from(list)]))
}

/// The answer of the real server.
async fn pass_on(client: &Client, request: Request<Body>) -> Result<Answer> {
    let (mut head, body) = request.into_parts();
    let kept: HeaderMap = [header::ACCEPT, header::CONTENT_TYPE]
        .into_iter()
        .filter_map(|name| Some((name.clone(), head.headers.get(name)?.clone())))
        .collect();
    head.headers = kept;
    let body = to_bytes(body, LONGEST_REQUEST).await?;
    let request = Request::from_parts(head, kube::client::Body::from(body));
    let (mut head, body) = client.send(request).await?.into_parts();
    // This connection frames the answer in its own way.
    head.headers.remove(header::TRANSFER_ENCODING);
    Ok(Response::from_parts(head, Body::new(body)))
}

/// The same answer, with small maps in the object and in its spec; in place of the items, if it is a list.
async fn padded(answer: Answer, number: u64) -> Result<Answer> {
    let (mut head, body) = answer.into_parts();
    let body = to_bytes(body, usize::MAX).await?;
    let Ok(Value::Object(mut object)) = serde_json::from_slice(&body) else {
        return Ok(Response::from_parts(head, Body::from(body)));
    };
    let places = if object.contains_key("items") {
        object.insert("items".to_owned(), json!(PLACE));
        1
    } else {
        object.insert("padding".to_owned(), json!(PLACE));
        match object.get_mut("spec").and_then(Value::as_object_mut) {
            Some(spec) => {
                spec.insert("padding".to_owned(), json!(PLACE));
                2
            }
            None => 1,
        }
    };
    let turn = usize::try_from(number)? % SMALL_MAPS.len();
    let maps = SMALL_MAPS[turn] / places;
    let maps = format!("[{}]", vec![r#"{"a":0}"#; maps].join(","));
    let text = Value::Object(object).to_string();
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(
        head,
        Body::from(text.replace(&json!(PLACE).to_string(), &maps)),
    ))
}

fn streamed(parts: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    let parts = futures::StreamExt::map(parts, Ok::<_, std::convert::Infallible>);
    let mut answer = Response::new(Body::from_stream(parts));
    let json = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// An answer that promises so many bytes. Where there are fewer, the connection is closed after them.
fn promised(length: u64, parts: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    let mut answer = streamed(parts);
    answer.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    answer
}

fn refusal(code: StatusCode, retry_after: Option<&'static str>) -> Answer {
    let mut answer = axum::response::IntoResponse::into_response((code, Json(status(code, "ServerFault"))));
    if let Some(seconds) = retry_after {
        let seconds = header::HeaderValue::from_static(seconds);
        answer.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    answer
}

/// The real server is unreachable, which is not a configured fault.
fn failed(error: &anyhow::Error) -> Answer {
    tracing::warn!("behind the server that misbehaves: {error:#}");
    refusal(StatusCode::BAD_GATEWAY, None)
}

fn status(code: StatusCode, reason: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": "made by the fault server",
        "code": code.as_u16(),
    })
}

/// As kube-apiserver writes it, the type first.
fn event(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn expired() -> Bytes {
    event("ERROR", &status(StatusCode::GONE, "Expired")).into()
}

/// Events of the objects that are there: the last one first, each as if it were gone, new, and as it never was.
async fn reordered(client: &Client, path: &str, plural: &str) -> Result<Bytes> {
    let list: Value = client.request(Request::get(path).body(Vec::new())?).await?;
    let mut events = String::new();
    for item in list["items"]
        .as_array()
        .context("a list without items")?
        .iter()
        .rev()
    {
        let mut item = item.clone();
        item["apiVersion"] = object(plural, 0)["apiVersion"].clone();
        item["kind"] = object(plural, 0)["kind"].clone();
        events += &event("DELETED", &item);
        item["metadata"]["resourceVersion"] = json!("1");
        events += &event("MODIFIED", &item);
        events += &event("ADDED", &item);
    }
    Ok(events.into())
}

/// A page of objects as the items of a list.
fn objects(plural: &str, page: u64) -> String {
    let items: Vec<String> = (page * PAGE..(page + 1) * PAGE)
        .map(|number| object(plural, number).to_string())
        .collect();
    items.join(",")
}

/// An object that the real server does not have.
fn object(plural: &str, number: u64) -> Value {
    let (api_version, kind) = match plural {
        "apps" => ("kappctrl.k14s.io/v1alpha1", "App"),
        _ => ("packaging.carvel.dev/v1alpha1", "PackageInstall"),
    };
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": format!("fault-{number}"),
            "namespace": SYSTEM_NAMESPACE,
            "uid": format!("00000000-0000-0000-0000-{number:012}"),
            "resourceVersion": (number + 2).to_string(),
            "annotations": {"fault": "x".repeat(ANNOTATION)},
        },
        "spec": {},
    })
}

fn spaces() -> Bytes {
    Bytes::from(vec![b' '; PART])
}
