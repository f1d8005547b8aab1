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
use http::header::CONNECTION;
use http::{HeaderValue, Method};
use sluice_core::gate::decision::Decision;
use sluice_core::reasons::CallReason;
use tracing::{debug, error, warn};

use crate::body::{self, Budget, Peer};
use crate::discovery::DiscoveryResponse;
use crate::gate::{Answer, Endpoint, Gate, Observer, Outcome};
use crate::handler;
use crate::profile::Profile;
use crate::refusal::Refusal;
use crate::repeats::Repeats;
use crate::reply::{self, Reply};
use crate::request::{self, Request, RequestError};
use crate::{GROUP_VERSION, Hook};

/// Serves discovery and the hooks of every [`Profile`].
///
/// Discovery needs neither gate nor observer to be ready: a Cluster API that cannot discover at its start stops
/// altogether.
///
/// A hold that concerns this replica only carries `Connection: close`, because another one may answer differently. HTTP/2 has no
/// such header: a server of HTTP/2 has to take it off and to send GOAWAY.
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
                // The list depends on nothing that others can take away: a Cluster API that cannot discover stops altogether.
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
            let decided = |bytes: &[u8]| decide(&server.gate, profile, hook, bytes);
            let answered = server.read(request, &call, decided).await;
            server.end(Endpoint::Hook(hook), &call, answered)
        }
    })
}

struct Server<G, O> {
    gate: G,
    observer: O,
    budget: Budget,
    refused: Repeats<(&'static str, &'static str)>,
}

/// One request: who sent it, and when.
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
    /// Reads the body of a request that was sent with POST, and makes of it what it is for.
    async fn read<T>(
        &self,
        request: HttpRequest,
        call: &Call,
        compute: impl FnOnce(&[u8]) -> Result<T, RequestError>,
    ) -> Result<T, Refusal> {
        let (head, body) = request.into_parts();
        let (is_call, version) = (head.method == Method::POST, head.version);
        // Headers in memory may take many times their size on the wire, and must not be kept while the body is read.
        drop(head);
        if !is_call {
            return Err(Refusal::WrongMethod);
        }
        // A panic ends this request only, and the next one finds everything as it was: nothing is changed here.
        let compute = |bytes: &[u8]| catch_unwind(AssertUnwindSafe(|| compute(bytes)));
        match body::with_body(body, version, &self.budget, &call.peer, compute).await {
            Ok(Ok(computed)) => computed.map_err(Refusal::NotUnderstood),
            Ok(Err(_)) => Err(Refusal::Panicked),
            Err(unread) => Err(unread.into()),
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
            (refusal.reply(endpoint).into_response(), refusal.outcome())
        });
        self.observer.answered(&Answer {
            endpoint,
            outcome,
            took: call.began.elapsed(),
        });
        response
    }

    /// A peer may send as many of these as it likes, so only the first of a series is a warning.
    fn log(&self, endpoint: Endpoint, peer: IpAddr, refusal: &Refusal) {
        let (hook, reason, error) = (endpoint.as_str(), refusal.reason(), refusal.message());
        match self.refused.begins(peer, (hook, reason), Instant::now()) {
            Some(left_out) if matches!(refusal, Refusal::Panicked) => {
                error!(%peer, hook, left_out, "Answering a hook panicked");
            }
            Some(left_out) => warn!(%peer, hook, reason, error, left_out, "Refusing a request"),
            None => debug!(%peer, hook, reason, error, "Refusing a request"),
        }
    }
}

/// What was decided upon a request that was understood.
type Answered = Result<(Response, Outcome), RequestError>;

fn decide(gate: &impl Gate, profile: Profile, hook: Hook, body: &[u8]) -> Answered {
    let request = Request::parse(hook, body)?;
    let call = request.call();
    let decision = gate.decide(&call);
    let skipped = if profile == Profile::Before1_12 {
        request.skips_minors()
    } else {
        None
    };
    Ok(match (&decision, skipped) {
        // A cluster without a label is not ours to hold.
        (Decision::Release, Some((from, to))) if call.label.is_some() => {
            let message =
                format!("{SKIPS_MINORS}: Cluster API before 1.12 would go from {from} to {to} in one step");
            (
                Reply::try_again(hook, &message).into_response(),
                Outcome::Held(SKIPS_MINORS.into()),
            )
        }
        (Decision::Release, _) => (Reply::decided(hook, &decision).into_response(), Outcome::Released),
        (Decision::Hold { reason, .. }, _) => {
            let mut response = Reply::decided(hook, &decision).into_response();
            if reason.is_of_the_replica() {
                // The next call may reach a replica that knows more.
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            (response, Outcome::Held(*reason))
        }
    })
}

const SKIPS_MINORS: CallReason = CallReason::MinorVersionsSkipped;
