//! The routes of the hooks.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use futures::FutureExt as _;
use http::header::CONNECTION;
use http::{HeaderValue, Method};
use sluice_core::gate::decision::Decision;
use sluice_core::gate::hook_call::{GENERATE_UPGRADE_PLAN, GENERATE_UPGRADE_PLAN_HANDLER, OwnedHookCall};
use sluice_core::gate::plan_call::{NoPlan, PlanCall};
use sluice_core::reasons::{CallReason, Class};
use tracing::{debug, error, warn};

use crate::body::{self, Budget, Peer};
use crate::discovery::DiscoveryResponse;
use crate::gate::{Answer, Endpoint, Gate, Observer, Outcome};
use crate::handler;
use crate::profile::Profile;
use crate::refusal::Refusal;
use crate::repeats::Repeats;
use crate::reply::{self, PlanReply, Reply};
use crate::request::{self, Request, RequestError};
use crate::{GROUP_VERSION, Hook};

/// Serves discovery and the hooks of every [`Profile`].
///
/// Discovery needs neither a ready gate nor a ready observer: Cluster API exits if discovery fails at its
/// start.
///
/// A hold for a reason of this replica alone carries `Connection: close`, because another replica may decide differently; so does the failure
/// of a plan for which this replica has no releases. HTTP/2 has no such header: an HTTP/2 server must remove it and send GOAWAY.
pub fn router<G: Gate, O: Observer>(gate: G, observer: O) -> Router {
    let server = Arc::new(Server {
        gate,
        observer,
        budget: Budget::default(),
        refused: Repeats::default(),
    });
    let mut router = Router::new();
    for profile in Profile::ALL {
        let base = format!("{}/{GROUP_VERSION}", profile.prefix());
        router = router.route(&format!("{base}/discovery"), discovery(&server, profile));
        for hook in profile.hooks() {
            let path = format!("{base}/{}/{}", hook.as_str().to_ascii_lowercase(), handler(hook));
            router = router.route(&path, lifecycle(&server, profile, hook));
        }
        if profile.plans_upgrades() {
            let hook = GENERATE_UPGRADE_PLAN.to_ascii_lowercase();
            let path = format!("{base}/{hook}/{GENERATE_UPGRADE_PLAN_HANDLER}");
            router = router.route(&path, upgrade_plan(&server));
        }
    }
    router.fallback(move |request: HttpRequest| {
        let server = Arc::clone(&server);
        async move { server.unknown(&request) }
    })
}

type Route = axum::routing::MethodRouter;

fn discovery<G: Gate, O: Observer>(server: &Arc<Server<G, O>>, profile: Profile) -> Route {
    let server = Arc::clone(server);
    let list = Bytes::from(serde_json::to_vec(&DiscoveryResponse::of(profile)).unwrap_or_default());
    any(move |request: HttpRequest| {
        let (server, list) = (Arc::clone(&server), list.clone());
        async move {
            let call = Call::of(&request);
            let listed = || (reply::json(list), Outcome::Released);
            let understood = |bytes: &[u8]| request::parse_discovery(bytes);
            let answered = match server.read(request, &call, understood).await {
                // The list needs no shared resource: Cluster API exits if discovery fails at its start.
                Ok(()) | Err(Refusal::Busy) => Ok(listed()),
                Err(refusal) => Err(refusal),
            };
            server.end(Endpoint::Discovery, &call, answered)
        }
    })
}

fn lifecycle<G: Gate, O: Observer>(server: &Arc<Server<G, O>>, profile: Profile, hook: Hook) -> Route {
    let server = Arc::clone(server);
    any(move |request: HttpRequest| {
        let server = Arc::clone(&server);
        async move {
            let call = Call::of(&request);
            let proposed = |bytes: &[u8]| decide(&server.gate, profile, hook, bytes);
            // The body and its share of the budget are dropped before the confirmation.
            let decided = match server.read(request, &call, proposed).await {
                Ok(Proposal::Answer(answer)) => Ok(answer),
                Ok(Proposal::Release(released)) => server.confirm(hook, &call, released).await,
                Err(refusal) => Err(refusal),
            };
            server.end(Endpoint::Hook(hook), &call, decided)
        }
    })
}

fn upgrade_plan<G: Gate, O: Observer>(server: &Arc<Server<G, O>>) -> Route {
    let server = Arc::clone(server);
    any(move |request: HttpRequest| {
        let server = Arc::clone(&server);
        async move {
            let call = Call::of(&request);
            // The body and its share of the budget are dropped before the read.
            let planned = match server.read(request, &call, request::parse_plan).await {
                Ok(asked) => server.plan(&call, asked).await,
                Err(refusal) => Err(refusal),
            };
            server.end(Endpoint::UpgradePlan, &call, planned)
        }
    })
}

struct Server<G, O> {
    gate: G,
    observer: O,
    budget: Budget,
    refused: Repeats<(&'static str, &'static str)>,
}

/// One request: its sender and its time.
struct Call {
    peer: Peer,
    began: Instant,
}

impl Call {
    fn of(request: &HttpRequest) -> Self {
        Self {
            peer: request.extensions().get::<Peer>().cloned().unwrap_or_default(),
            began: Instant::now(),
        }
    }
}

impl<G: Gate, O: Observer> Server<G, O> {
    /// Reads the body of a POST request and computes the response.
    async fn read<T>(
        &self,
        request: HttpRequest,
        call: &Call,
        compute: impl FnOnce(&[u8]) -> Result<T, RequestError>,
    ) -> Result<T, Refusal> {
        let (head, body) = request.into_parts();
        let (is_call, version) = (head.method == Method::POST, head.version);
        // Parsed headers may take many times their size on the wire, so they are dropped before the body is read.
        drop(head);
        if !is_call {
            return Err(Refusal::WrongMethod);
        }
        // A panic ends this request only. There is no state here that it could corrupt.
        let compute = |bytes: &[u8]| catch_unwind(AssertUnwindSafe(|| compute(bytes)));
        match body::with_body(body, version, &self.budget, &call.peer, compute).await {
            Ok(Ok(computed)) => computed.map_err(Refusal::NotUnderstood),
            Ok(Err(_)) => Err(Refusal::Panicked),
            Err(unread) => Err(unread.into()),
        }
    }

    /// Confirms a release.
    async fn confirm(
        &self,
        hook: Hook,
        call: &Call,
        released: OwnedHookCall,
    ) -> Result<(Response, Outcome), Refusal> {
        let confirmed = async { self.gate.confirm(released, call.peer.address()).await };
        // A panic ends this request only.
        let decision = AssertUnwindSafe(confirmed).catch_unwind().await;
        decision
            .map(|decision| answer(hook, &decision))
            .map_err(|_panic| Refusal::Panicked)
    }

    /// Plans an upgrade.
    async fn plan(&self, call: &Call, asked: PlanCall) -> Result<(Response, Outcome), Refusal> {
        let planned = async { self.gate.plan(asked, call.peer.address()).await };
        // A panic ends this request only.
        match AssertUnwindSafe(planned).catch_unwind().await {
            Ok(Ok(steps)) => Ok((PlanReply::of(steps).into_response(), Outcome::Released)),
            Ok(Err(why)) => Err(Refusal::NotPlanned(why)),
            Err(_panic) => Err(Refusal::Panicked),
        }
    }

    fn unknown(&self, request: &HttpRequest) -> Response {
        self.end(Endpoint::Unknown, &Call::of(request), Err(Refusal::NotFound))
    }

    fn end(
        &self,
        endpoint: Endpoint,
        call: &Call,
        answered: Result<(Response, Outcome), Refusal>,
    ) -> Response {
        let (response, outcome) = answered.unwrap_or_else(|refusal| {
            self.log(endpoint, call.peer.address(), &refusal);
            let mut response = refusal.reply(endpoint).into_response();
            if matches!(refusal, Refusal::NotPlanned(NoPlan::NotListed)) {
                end_connection(&mut response);
            }
            (response, refusal.outcome())
        });
        self.observer.answered(&Answer {
            endpoint,
            outcome,
            took: call.began.elapsed(),
        });
        response
    }

    /// A peer may send any number of these, so only the first of a series is a warning.
    fn log(&self, endpoint: Endpoint, peer: IpAddr, refusal: &Refusal) {
        let (hook, reason, error) = (endpoint.as_str(), refusal.reason(), refusal.message());
        match self.refused.begins(peer, (hook, reason), Instant::now()) {
            Some(left_out) if matches!(refusal, Refusal::Panicked) => {
                error!(%peer, hook, left_out, "Hook call panicked");
            }
            Some(left_out) => warn!(%peer, hook, reason, error, left_out, "Refused request"),
            None => debug!(%peer, hook, reason, error, "Refused request"),
        }
    }
}

/// Decision from the cache about a valid request.
enum Proposal {
    /// The response of a hold.
    Answer((Response, Outcome)),
    /// The call is released if the gate confirms it.
    Release(OwnedHookCall),
}

fn decide(gate: &impl Gate, profile: Profile, hook: Hook, body: &[u8]) -> Result<Proposal, RequestError> {
    let request = Request::parse(hook, body)?;
    let call = request.call();
    let decision = gate.decide(&call);
    if decision != Decision::Release {
        return Ok(Proposal::Answer(answer(hook, &decision)));
    }
    let skipped = if profile == Profile::Before1_12 {
        request.skips_minors()
    } else {
        None
    };
    Ok(match skipped {
        // Sluice does not manage a Cluster without a label.
        Some((from, to)) if call.label.is_some() => {
            let message =
                format!("{SKIPS_MINORS}: Cluster API before 1.12 would go from {from} to {to} in one step");
            Proposal::Answer((
                Reply::try_again(hook, &message).into_response(),
                Outcome::Held(SKIPS_MINORS.into()),
            ))
        }
        _ => Proposal::Release((&call).into()),
    })
}

/// Returns the response for a decision.
fn answer(hook: Hook, decision: &Decision) -> (Response, Outcome) {
    let mut response = Reply::decided(hook, decision).into_response();
    let Decision::Hold { reason, .. } = decision else {
        return (response, Outcome::Released);
    };
    if reason.class() == Class::Replica {
        end_connection(&mut response);
    }
    (response, Outcome::Held(*reason))
}

/// Ends the connection after a response: the next call may reach a replica that answers otherwise.
fn end_connection(response: &mut Response) {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
}

const SKIPS_MINORS: CallReason = CallReason::MinorVersionsSkipped;
