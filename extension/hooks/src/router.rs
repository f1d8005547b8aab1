//! The routes of the hooks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use sluice_core::decision::Decision;
use tracing::{error, warn};

use crate::body::{self, Budget, PeerBudget, Unread};
use crate::discovery::DiscoveryResponse;
use crate::gate::{Answer, Endpoint, Gate, Observer, Outcome};
use crate::profile::{Profile, handler};
use crate::reply::{self, Reply};
use crate::request::{self, Request, RequestError};
use crate::{GROUP_VERSION, Hook};

/// Serves discovery and the hooks of every [`Profile`].
///
/// Discovery needs neither gate nor observer to be ready: a Cluster API that cannot discover at its start stops
/// altogether.
///
/// An answer that another replica may give otherwise carries `Connection: close`. HTTP/2 has no such header: a server of HTTP/2
/// has to take it off and to send GOAWAY.
pub fn router<G: Gate, O: Observer>(gate: G, observer: O) -> Router {
    let server = Arc::new(Server {
        gate,
        observer,
        budget: Budget::default(),
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
    router.fallback(move || {
        let server = Arc::clone(&server);
        async move { server.unknown() }
    })
}

type Route = axum::routing::MethodRouter;

fn discovery<G: Gate, O: Observer>(server: &Arc<Server<G, O>>, profile: Profile) -> Route {
    let server = Arc::clone(server);
    let list = Bytes::from(serde_json::to_vec(&DiscoveryResponse::of(profile)).unwrap_or_default());
    any(move |request: HttpRequest| {
        let (server, list) = (Arc::clone(&server), list.clone());
        async move {
            server
                .answer(
                    Endpoint::Discovery,
                    request,
                    |bytes| match request::parse_discovery(bytes) {
                        Ok(()) => (reply::json(list), Outcome::Released),
                        Err(error) => not_understood(Endpoint::Discovery, &error),
                    },
                )
                .await
        }
    })
}

fn lifecycle<G: Gate, O: Observer>(server: &Arc<Server<G, O>>, profile: Profile, hook: Hook) -> Route {
    let server = Arc::clone(server);
    any(move |request: HttpRequest| {
        let server = Arc::clone(&server);
        async move {
            server
                .answer(Endpoint::Hook(hook), request, |bytes| {
                    decide(&server.gate, profile, hook, bytes)
                })
                .await
        }
    })
}

struct Server<G, O> {
    gate: G,
    observer: O,
    budget: Budget,
}

impl<G: Gate, O: Observer> Server<G, O> {
    async fn answer(
        &self,
        endpoint: Endpoint,
        request: HttpRequest,
        compute: impl FnOnce(&[u8]) -> (Response, Outcome),
    ) -> Response {
        let began = Instant::now();
        let (head, body) = request.into_parts();
        let (response, outcome) = if head.method == Method::POST {
            // A panic ends this request only, and the next one finds everything as it was: nothing is changed here.
            let compute = |bytes: &[u8]| catch_unwind(AssertUnwindSafe(|| compute(bytes)));
            let peer = head.extensions.get::<PeerBudget>().cloned().unwrap_or_default();
            match body::with_body(body, &self.budget, &peer, compute).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => {
                    error!(hook = endpoint.as_str(), "Answering a hook panicked");
                    no_answer(
                        endpoint,
                        "InternalError: the answer could not be computed, see the log",
                        Outcome::Panicked,
                    )
                }
                Err(Unread::Late) => no_answer(
                    endpoint,
                    "RequestLate: the request did not arrive in time",
                    Outcome::Late,
                ),
                Err(Unread::TooLarge) => (
                    Reply::refused(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        endpoint,
                        "request body is larger than 20 MiB",
                    )
                    .into_response(),
                    Outcome::TooLarge,
                ),
                Err(Unread::Broken(reason)) => not_understood(endpoint, &RequestError::Malformed(reason)),
            }
        } else {
            let refused = Reply::refused(
                StatusCode::METHOD_NOT_ALLOWED,
                endpoint,
                "hooks are called with POST",
            );
            (refused.into_response(), Outcome::WrongMethod)
        };
        self.observer.answered(&Answer {
            endpoint,
            outcome,
            took: began.elapsed(),
        });
        response
    }

    fn unknown(&self) -> Response {
        let began = Instant::now();
        let endpoint = Endpoint::Unknown;
        let response =
            Reply::refused(StatusCode::NOT_FOUND, endpoint, "no such hook or handler").into_response();
        self.observer.answered(&Answer {
            endpoint,
            outcome: Outcome::NotFound,
            took: began.elapsed(),
        });
        response
    }
}

fn decide(gate: &impl Gate, profile: Profile, hook: Hook, body: &[u8]) -> (Response, Outcome) {
    let request = match Request::parse(hook, body) {
        Ok(request) => request,
        Err(error) => return not_understood(Endpoint::Hook(hook), &error),
    };
    let call = request.call(Timestamp::now());
    let decision = gate.decide(&call);
    let skipped = if profile == Profile::Before1_12 {
        request.skips_minors()
    } else {
        None
    };
    match (&decision, skipped) {
        // A cluster without a label is not ours to hold.
        (Decision::Release, Some((from, to))) if call.label.is_some() => {
            let message =
                format!("{SKIPS_MINORS}: Cluster API before 1.12 would go from {from} to {to} in one step");
            (
                Reply::try_again(hook, &message).into_response(),
                Outcome::Held(SKIPS_MINORS),
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
            (response, Outcome::Held(reason.as_str()))
        }
    }
}

const SKIPS_MINORS: &str = "MinorVersionsSkipped";

fn not_understood(endpoint: Endpoint, error: &RequestError) -> (Response, Outcome) {
    warn!(hook = endpoint.as_str(), reason = error.reason(), %error, "Refusing a request");
    (
        Reply::failure(endpoint, &error.to_string()).into_response(),
        Outcome::Failed(error.reason()),
    )
}

/// This time there is no answer. A hook is held; discovery has no such answer and is asked again after a failure.
fn no_answer(endpoint: Endpoint, message: &str, outcome: Outcome) -> (Response, Outcome) {
    let reply = match endpoint {
        Endpoint::Hook(hook) => Reply::try_again(hook, message),
        Endpoint::Discovery | Endpoint::Unknown => Reply::failure(endpoint, message),
    };
    (reply.into_response(), outcome)
}
