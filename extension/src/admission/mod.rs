//! The admission webhooks: what is refused before it is stored, see [`sluice_core::admission`].
//!
//! They have a listener and a thread of their own. What they refuse a gate would hold for anyway, so what cannot be looked up in time is
//! admitted with a warning.

mod answer;
mod kept;
mod lookups;
mod metrics;
mod wire;

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    response::Response,
    routing::post,
};
use futures::FutureExt as _;
use http::StatusCode;
use sluice_core::admission::{Kind, Looked, Verdict, judge};
use sluice_hooks::{Budget, Peer, Repeats, Unread, with_body};
use tokio::sync::Semaphore;
use tracing::{debug, error, info};

use self::{
    answer::{plain, reviewed},
    wire::{Asked, Malformed},
};
pub use self::{
    lookups::World,
    metrics::{AdmissionMetrics, Outcome},
};

/// The largest body of a review: an object of etcd's 1.5 MiB, new and old, and the JSON around them.
const MAX_BODY: u64 = 8 * 1024 * 1024;

/// Reviews for which something is looked up at once. Those beyond are answered without.
const LOOKUPS: usize = 32;

/// Within this time everything is looked up, or not at all.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers reviews. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    system_namespace: String,
    /// Unset until all Clusters are in memory.
    world: OnceLock<World>,
    bodies: Budget,
    lookups: Semaphore,
    refused: Repeats<&'static str>,
    metrics: AdmissionMetrics,
}

impl Admission {
    /// Reviews for which something is looked up are answered with 503 until [`Admission::knows`].
    #[must_use]
    pub fn new(system_namespace: String, metrics: AdmissionMetrics) -> Self {
        Self(Arc::new(Inner {
            system_namespace,
            world: OnceLock::new(),
            bodies: Budget::default(),
            lookups: Semaphore::new(LOOKUPS),
            refused: Repeats::default(),
            metrics,
        }))
    }

    /// From now on reviews are answered by what is in `world`.
    pub fn knows(&self, world: World) {
        self.0.world.get_or_init(|| world);
    }

    /// The routes, which are those of the addons-manager.
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        for kind in [Kind::Bootstrap, Kind::Template] {
            let handler = move |State(this): State<Self>, request: Request| async move {
                this.answer(kind, request).await
            };
            router = router.route(path(kind), post(handler));
        }
        router.with_state(self.clone())
    }

    async fn answer(&self, kind: Kind, request: Request) -> Response {
        let began = Instant::now();
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        let address = peer.address();
        let answered = AssertUnwindSafe(self.review(kind, request, peer))
            .catch_unwind()
            .await;
        let (outcome, response) = answered.unwrap_or_else(|_panic| {
            error!(
                webhook = webhook(kind),
                "A review ended in a bug of Sluice, see the panic above"
            );
            let text = "the review ended in a bug of Sluice; its log says more";
            (Outcome::Failed, plain(StatusCode::INTERNAL_SERVER_ERROR, text))
        });
        if outcome.is_of_the_caller()
            && let Some(left_out) = self.0.refused.begins(address, outcome.as_str(), Instant::now())
        {
            info!(peer = %address, webhook = webhook(kind), outcome = outcome.as_str(), left_out, "Refusing a review");
        }
        self.0.metrics.answered(webhook(kind), outcome, began.elapsed());
        response
    }

    async fn review(&self, kind: Kind, request: Request, peer: Peer) -> (Outcome, Response) {
        let (head, body) = request.into_parts();
        let version = head.version;
        drop(head);
        if hyper::body::Body::size_hint(&body).lower() > MAX_BODY {
            return unread(&Unread::TooLarge);
        }
        let read = with_body(body, version, &self.0.bodies, &peer, |bytes| {
            wire::parse(kind, bytes)
        });
        let Asked { uid, review } = match read.await {
            Ok(Ok(asked)) => asked,
            Ok(Err(Malformed(why))) => {
                let text = format!("the body is no AdmissionReview of a {}: {why}", kind.as_str());
                return (Outcome::Malformed, plain(StatusCode::BAD_REQUEST, &text));
            }
            Err(why) => return unread(&why),
        };
        // No rule is about another operation, a subresource or an object that goes.
        let Some(review) = review else {
            return (Outcome::Admitted, reviewed(&uid, kind, "", &Verdict::default()));
        };
        let system = &self.0.system_namespace;
        let verdict = match (judge(&review, system, &Looked::new()), self.0.world.get()) {
            (Ok(verdict), _) => verdict,
            (Err(_), Some(world)) => world.judge(&review, system, &self.0.lookups, PATIENCE).await,
            (Err(_), None) => {
                let text = "Sluice has just started and does not know all Clusters yet; try again";
                return (Outcome::Starting, plain(StatusCode::SERVICE_UNAVAILABLE, text));
            }
        };
        let outcome = Outcome::of(&verdict);
        debug!(
            webhook = webhook(kind),
            namespace = review.namespace,
            name = review.name,
            outcome = outcome.as_str(),
            faults = verdict.faults.len(),
            warnings = verdict.warnings.len(),
            "Answered a review"
        );
        (outcome, reviewed(&uid, kind, &review.name, &verdict))
    }
}

fn unread(why: &Unread) -> (Outcome, Response) {
    match why {
        Unread::TooLarge => (
            Outcome::TooLarge,
            plain(StatusCode::PAYLOAD_TOO_LARGE, "the body has more than 8 MiB"),
        ),
        Unread::Late => (
            Outcome::Late,
            plain(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 2 s"),
        ),
        Unread::Busy => (
            Outcome::Busy,
            plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many reviews at once; try again",
            ),
        ),
        Unread::Broken(_) => (
            Outcome::Malformed,
            plain(StatusCode::BAD_REQUEST, "the body did not arrive whole"),
        ),
    }
}

/// The path of a webhook.
const fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Bootstrap => "/validate-run-tanzu-vmware-com-v1alpha3-clusterbootstrap",
        Kind::Template => "/validate-run-tanzu-vmware-com-v1alpha3-clusterbootstraptemplate",
    }
}

/// The name of a webhook, as metrics and log spell it.
const fn webhook(kind: Kind) -> &'static str {
    match kind {
        Kind::Bootstrap => "clusterbootstrap",
        Kind::Template => "clusterbootstraptemplate",
    }
}

#[cfg(test)]
mod tests;
