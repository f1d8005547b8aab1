//! Services of the listener: status, health and reflection.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use futures::channel::mpsc::UnboundedReceiver;
use http_body_util::{BodyExt as _, Limited};
use sluice_core::limits::Shares;
use sluice_proto::{
    DESCRIPTORS,
    status::v1::status_service_server::{SERVICE_NAME, StatusServiceServer},
};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_reflection::server::Error;
use tower_http::timeout::TimeoutBody;

use super::{
    Status,
    connection::Connection,
    follow::{Changed, Follower},
    service::Service,
};

/// Maximum size of a request, in bytes: two names and a page token.
const REQUEST: usize = 16 * 1024;

/// Maximum bytes of a health or reflection call, whatever length a message declares.
const ANONYMOUS_REQUEST: usize = 64 * 1024;

/// Concurrent health and reflection calls, which need no token.
const ANONYMOUS: usize = 64;

/// Timeout of receiving the request of a call with a token: until then its caller is unknown. Without a token, timeout of the next part of
/// the request.
const ARRIVES: Duration = Duration::from_secs(10);

/// Concurrently arriving requests with a token. An address gets at most as many as remain for others.
const ARRIVING: usize = 2048;

/// Lifecycle of the service.
#[derive(Clone)]
pub struct Lifecycle {
    /// Start of the shutdown: from then on the health service sends clients to another replica.
    pub leaves: CancellationToken,
    /// End of all streams.
    pub ends: CancellationToken,
    /// Called every five seconds, and after every 64 Clusters, while the snapshot store is kept up to date.
    pub beat: Arc<dyn Fn() + Send + Sync>,
    /// Called after each panic that the service has survived.
    pub panicked: fn(),
}

impl fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lifecycle").finish_non_exhaustive()
    }
}

impl Status {
    /// Returns the routes, and the future that keeps the snapshot store up to date.
    ///
    /// # Errors
    /// The descriptors of the service are invalid, which is a bug.
    pub fn router_and_follower(
        &self,
        changes: UnboundedReceiver<Changed>,
        life: Lifecycle,
    ) -> Result<(Router, impl Future<Output = ()> + Send + use<>), Error> {
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
        let routes = Routes::new(StatusServiceServer::new(service).max_decoding_message_size(REQUEST))
            .add_service(health_service)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?);
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

/// Memory limits of calls with unknown callers.
#[derive(Clone)]
struct Slots {
    anonymous: Arc<Semaphore>,
    arriving: Shares<IpAddr>,
}

/// Limits the data of a call before its caller is known, and the time that its response waits to be read. Streams of the status service
/// have limits of their own.
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
        let connection = request.extensions().get::<Connection>().cloned();
        let Some(arriving) = slots.arriving.take(&connection.unwrap_or_default().peer) else {
            return busy();
        };
        let request = match arrived(request).await {
            Ok(request) => request,
            Err(refused) => return refused,
        };
        drop(arriving);
        return next.run(request).await;
    }
    // Reflection takes many messages, so the limit applies to the time between two of them.
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

/// Receives the single message of a request completely.
async fn arrived(request: Request) -> Result<Request, Response> {
    let (head, body) = request.into_parts();
    // A prefix of five bytes carries the length of the message.
    let whole = Limited::new(body, REQUEST + 5).collect();
    match timeout(ARRIVES, whole).await {
        Ok(Ok(whole)) => Ok(Request::from_parts(head, Body::from(whole.to_bytes()))),
        Ok(Err(_)) => {
            let line = "the request is larger than 16 KiB, or arrived incompletely";
            Err(tonic::Status::invalid_argument(line).into_http())
        }
        Err(_elapsed) => {
            let line = "the request did not arrive within 10 s";
            Err(tonic::Status::deadline_exceeded(line).into_http())
        }
    }
}
