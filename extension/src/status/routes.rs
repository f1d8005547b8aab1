//! The services of the listener: status, health and reflection.

use std::{net::IpAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use futures::channel::mpsc::UnboundedReceiver;
use http_body_util::{BodyExt as _, Limited};
use sluice_hooks::Peer;
use sluice_proto::{
    DESCRIPTORS,
    status::v1::status_service_server::{SERVICE_NAME, StatusServiceServer},
};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tower_http::timeout::TimeoutBody;

use super::{
    Status,
    follow::Follower,
    service::{Answering, Service},
};
use crate::cache::event_handlers::Changed;
use crate::server::{health::Heartbeat, serve::read_within, shares::Shares};

/// The largest request, in bytes: two names and a token of a page.
const REQUEST: usize = 16 * 1024;

/// All that a call of health or reflection may send, in bytes, whatever one message says of its length.
const ANONYMOUS_REQUEST: usize = 64 * 1024;

/// Calls of health and reflection at once, which need no token.
const ANONYMOUS: usize = 64;

/// Within this time the request of a call with a token has arrived: before, nothing is known of its caller. Of one without a token, the next
/// part of it.
const ARRIVES: Duration = Duration::from_secs(10);

/// Requests of calls with a token that arrive at once. An address leaves as many to others as it takes.
const ARRIVING: usize = 2048;

/// Within this time an answer with a page, or with one Cluster, is read, or given up.
const READ: Duration = Duration::from_secs(30);

/// From when to when a service is there.
#[derive(Debug, Clone)]
pub struct Life {
    /// Clients are to ask another replica: the health service says so from then on.
    pub leaves: CancellationToken,
    /// Streams end.
    pub ends: CancellationToken,
    /// Beats while the board is kept up to date.
    pub heart: Heartbeat,
}

impl Status {
    /// The routes, and the future that keeps up to date what they answer from.
    ///
    /// # Errors
    /// The descriptors of the service cannot be read, which is a bug.
    pub fn serve(
        &self,
        changes: UnboundedReceiver<Changed>,
        life: Life,
    ) -> anyhow::Result<(Router, impl Future<Output = ()> + Send + use<>)> {
        let (health, health_service) = tonic_health::server::health_reporter();
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let service = Service {
            status: self.clone(),
            ends: life.ends.clone(),
        };
        let what = "describe the status service";
        let routes = Routes::new(StatusServiceServer::new(service).max_decoding_message_size(REQUEST))
            .add_service(health_service)
            .add_service(reflection().build_v1().context(what)?)
            .add_service(reflection().build_v1alpha().context(what)?);
        let slots = Slots {
            anonymous: Arc::new(Semaphore::new(ANONYMOUS)),
            arriving: Shares::of(ARRIVING),
        };
        let layered = routes
            .prepare()
            .into_axum_router()
            .layer(from_fn_with_state(slots, bounded));
        let follower = Follower {
            status: self.clone(),
            health,
            life,
        };
        Ok((layered, follower.follow(changes)))
    }
}

/// What bounds the memory of calls whose callers are not known.
#[derive(Clone)]
struct Slots {
    anonymous: Arc<Semaphore>,
    arriving: Shares<IpAddr>,
}

/// Bounds what a call sends before its caller is known, and for how long its answer waits to be read. Streams of the status service are
/// counted by themselves.
async fn bounded(State(slots): State<Slots>, request: Request, next: Next) -> Response {
    let busy = || {
        let line = "too many calls at once at this replica; try again";
        tonic::Status::resource_exhausted(line).into_http()
    };
    let path = request.uri().path().trim_start_matches('/');
    if path
        .strip_prefix(SERVICE_NAME)
        .is_some_and(|rest| rest.starts_with('/'))
    {
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        let Some(arriving) = slots.arriving.take(&peer.address()) else {
            return busy();
        };
        let request = match arrived(request).await {
            Ok(request) => request,
            Err(refused) => return refused,
        };
        drop(arriving);
        let mut answer = next.run(request).await;
        return match answer.extensions_mut().remove::<Answering>() {
            Some(share) => read_within(answer, READ, share).await,
            None => answer,
        };
    }
    // Reflection takes many messages, so it is the time between two of them that is bounded.
    let request = request.map(|body| {
        let limited = Limited::new(body, ANONYMOUS_REQUEST);
        Body::new(TimeoutBody::new(ARRIVES, limited))
    });
    let Ok(permit) = slots.anonymous.try_acquire_owned() else {
        return busy();
    };
    let answer = next.run(request).await;
    answer.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _kept_until_the_end = &permit;
            frame
        }))
    })
}

/// The request with its one message, which has arrived whole.
async fn arrived(request: Request) -> Result<Request, Response> {
    let (head, body) = request.into_parts();
    // Five bytes say how long the message is.
    let whole = Limited::new(body, REQUEST + 5).collect();
    match timeout(ARRIVES, whole).await {
        Ok(Ok(whole)) => Ok(Request::from_parts(head, Body::from(whole.to_bytes()))),
        Ok(Err(_)) => {
            let line = "the request is larger than 16 KiB, or did not arrive whole";
            Err(tonic::Status::invalid_argument(line).into_http())
        }
        Err(_elapsed) => {
            let line = "the request did not arrive within 10 s";
            Err(tonic::Status::deadline_exceeded(line).into_http())
        }
    }
}
