//! Sends requests to the routes, and the real bodies to send.

use std::future::{Future, ready};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use sluice_core::gate::decision::Decision;
use sluice_core::gate::hook_call::{HookCall, OwnedHookCall};
use sluice_core::gate::retry::RetryAfter;
use sluice_core::reasons::HoldReason;
use sluice_hooks::{
    Answer, Endpoint, Gate, Hook, NoPlan, Observer, Outcome, Peer, PlanCall, handler, router,
};
use tower::ServiceExt;

/// What Cluster API 1.14 sent for `hook`, recorded on a running stack.
pub(crate) fn recorded(hook: Hook) -> &'static str {
    match hook {
        Hook::BeforeClusterCreate => include_str!("requests/BeforeClusterCreate.json"),
        Hook::AfterControlPlaneInitialized => include_str!("requests/AfterControlPlaneInitialized.json"),
        Hook::BeforeClusterUpgrade => include_str!("requests/BeforeClusterUpgrade.json"),
        Hook::BeforeControlPlaneUpgrade => include_str!("requests/BeforeControlPlaneUpgrade.json"),
        Hook::AfterControlPlaneUpgrade => include_str!("requests/AfterControlPlaneUpgrade.json"),
        Hook::BeforeWorkersUpgrade => include_str!("requests/BeforeWorkersUpgrade.json"),
        Hook::AfterWorkersUpgrade => include_str!("requests/AfterWorkersUpgrade.json"),
        Hook::AfterClusterUpgrade => include_str!("requests/AfterClusterUpgrade.json"),
        Hook::BeforeClusterDelete => include_str!("requests/BeforeClusterDelete.json"),
    }
}

pub(crate) const DISCOVERY: &str = include_str!("requests/Discovery.json");

/// What Cluster API 1.14 sent for an upgrade by two minor versions, recorded on a running stack.
pub(crate) const PLAN: &str = include_str!("requests/GenerateUpgradePlan.json");

/// The path of GenerateUpgradePlan, without a prefix.
pub(crate) const PLAN_PATH: &str =
    "/hooks.runtime.cluster.x-k8s.io/v1alpha1/generateupgradeplan/generate-upgrade-plan";

/// The recorded request, changed.
pub(crate) fn changed(hook: Hook, change: impl FnOnce(&mut Value)) -> String {
    edited(recorded(hook), change)
}

/// The recorded request of GenerateUpgradePlan, changed.
pub(crate) fn changed_plan(change: impl FnOnce(&mut Value)) -> String {
    edited(PLAN, change)
}

fn edited(recorded: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut request = serde_json::from_str(recorded).unwrap();
    change(&mut request);
    request.to_string()
}

/// The path that Cluster API builds from what discovery said.
pub(crate) fn path(prefix: &str, hook: Hook) -> String {
    let hook_name = hook.as_str().to_lowercase();
    format!(
        "{prefix}/hooks.runtime.cluster.x-k8s.io/v1alpha1/{hook_name}/{}?timeout=3s",
        handler(hook)
    )
}

pub(crate) fn held(reason: HoldReason, message: &str) -> Decision {
    Decision::Hold {
        retry_after: RetryAfter::SHORTEST,
        reason,
        message: format!("{reason}: {message}"),
    }
}

/// Gate with fixed responses that records the calls.
#[derive(Clone)]
pub(crate) struct Always {
    decision: Decision,
    confirmed: Decision,
    planned: Result<Vec<String>, NoPlan>,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

pub(crate) fn always(decision: Decision) -> Always {
    Always {
        confirmed: decision.clone(),
        decision,
        planned: Ok(Vec::new()),
        asked: Arc::default(),
    }
}

/// A release by the cache that a read turns into this decision.
pub(crate) fn confirming(confirmed: Decision) -> Always {
    Always {
        confirmed,
        ..always(Decision::Release)
    }
}

/// Gate with this plan.
pub(crate) fn planning(planned: Result<Vec<String>, NoPlan>) -> Always {
    Always {
        planned,
        ..always(Decision::Release)
    }
}

impl Gate for Always {
    fn decide(&self, call: &HookCall<'_>) -> Decision {
        let HookCall {
            hook,
            namespace,
            name,
            uid,
            generation,
            label,
            labels: _,
            version,
            first_step,
            deleted_at,
            now: _,
            clock: _,
        } = call;
        self.asked.lock().unwrap().push(format!(
            "{hook} {namespace}/{name} uid={uid} generation={generation} label={label:?} version={version} \
             first_step={first_step:?} deleted_at={deleted_at:?}"
        ));
        self.decision.clone()
    }

    fn confirm(&self, _: OwnedHookCall, _: IpAddr) -> impl Future<Output = Decision> + Send {
        ready(self.confirmed.clone())
    }

    fn plan(&self, call: PlanCall, _: IpAddr) -> impl Future<Output = Result<Vec<String>, NoPlan>> + Send {
        self.asked.lock().unwrap().push(format!("{call:?}"));
        ready(self.planned.clone())
    }
}

/// Records the responses to requests.
#[derive(Clone, Default)]
pub(crate) struct Seen(pub(crate) Arc<Mutex<Vec<(Endpoint, Outcome)>>>);

impl Observer for Seen {
    fn answered(&self, answer: &Answer) {
        self.0.lock().unwrap().push((answer.endpoint, answer.outcome));
    }
}

impl Seen {
    pub(crate) fn last(&self) -> (Endpoint, Outcome) {
        *self.0.lock().unwrap().last().expect("a request was counted")
    }
}

/// A recorded response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) code: StatusCode,
    pub(crate) body: Value,
}

impl Received {
    /// Whether Cluster API would go on.
    pub(crate) fn releases(&self) -> bool {
        self.code == StatusCode::OK
            && self.body["status"] == "Success"
            && self
                .body
                .get("retryAfterSeconds")
                .is_none_or(|seconds| seconds == 0)
    }

    pub(crate) fn status(&self) -> &str {
        self.body["status"].as_str().expect("every answer has a status")
    }

    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().expect("every answer has a message")
    }
}

pub(crate) async fn post(router: &Router, path: &str, body: impl Into<Body>) -> Received {
    // No Content-Type, as Cluster API sends it.
    send(router, Request::post(path).body(body.into()).unwrap()).await
}

pub(crate) async fn call(router: &Router, hook: Hook, body: impl Into<Body>) -> Received {
    post(router, &path("", hook), body).await
}

/// The call of a peer with others of its own.
pub(crate) async fn call_from(router: &Router, peer: &Peer, hook: Hook, body: impl Into<Body>) -> Received {
    post_from(router, peer, &path("", hook), body).await
}

pub(crate) async fn post_from(router: &Router, peer: &Peer, path: &str, body: impl Into<Body>) -> Received {
    let request = Request::post(path).extension(peer.clone());
    send(router, request.body(body.into()).unwrap()).await
}

pub(crate) async fn with_method(router: &Router, method: Method, path: &str, body: &'static str) -> Received {
    send(
        router,
        Request::builder()
            .method(method)
            .uri(path)
            .body(Body::from(body))
            .unwrap(),
    )
    .await
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Received {
    let answer = router.clone().oneshot(request).await.unwrap();
    let code = answer.status();
    assert_eq!(answer.headers()["content-type"], "application/json");
    let body = answer.into_body();
    let length = http_body::Body::size_hint(&body)
        .exact()
        .expect("a length that is known before");
    let bytes = body.collect().await.unwrap().to_bytes();
    assert_eq!(length, bytes.len() as u64);
    Received {
        code,
        body: serde_json::from_slice(&bytes).unwrap(),
    }
}

/// A server that releases whatever it understands.
pub(crate) fn releasing() -> (Router, Seen) {
    let seen = Seen::default();
    (router(always(Decision::Release), seen.clone()), seen)
}
