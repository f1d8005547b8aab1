//! The services of the listener: status, health and reflection.

use std::sync::Arc;

use anyhow::Context as _;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use futures::channel::mpsc::UnboundedReceiver;
use http_body_util::BodyExt as _;
use sluice_proto::{
    DESCRIPTORS,
    status::v1::status_service_server::{SERVICE_NAME, StatusServiceServer},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::{Changed, Status, service::Service};

/// The largest request, in bytes: two names and a token of a page.
const REQUEST: usize = 16 * 1024;

/// Calls of health and reflection at once, which need no token.
const ANONYMOUS: usize = 256;

impl Status {
    /// The routes, and the future that keeps up to date what they answer from. Streams end when `ends` does.
    ///
    /// # Errors
    /// The descriptors of the service cannot be read, which is a bug.
    pub fn serve(
        &self,
        changes: UnboundedReceiver<Changed>,
        ends: &CancellationToken,
    ) -> anyhow::Result<(Router, impl Future<Output = ()> + Send + use<>)> {
        let (health, health_service) = tonic_health::server::health_reporter();
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let service = Service {
            status: self.clone(),
            ends: ends.clone(),
        };
        let what = "describe the status service";
        let routes = Routes::new(StatusServiceServer::new(service).max_decoding_message_size(REQUEST))
            .add_service(health_service)
            .add_service(reflection().build_v1().context(what)?)
            .add_service(reflection().build_v1alpha().context(what)?);
        let anonymous = Arc::new(Semaphore::new(ANONYMOUS));
        let layered = routes
            .prepare()
            .into_axum_router()
            .layer(from_fn_with_state(anonymous, counted));
        Ok((layered, self.clone().follow(changes, health)))
    }
}

/// Calls that need no token are counted for as long as they are answered, and those beyond [`ANONYMOUS`] are refused.
async fn counted(State(anonymous): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path
        .strip_prefix('/')
        .is_some_and(|path| path.starts_with(SERVICE_NAME))
    {
        return next.run(request).await;
    }
    let Ok(permit) = anonymous.try_acquire_owned() else {
        let line = "too many calls of health and reflection at this replica; try again";
        return tonic::Status::resource_exhausted(line).into_http();
    };
    let answer = next.run(request).await;
    answer.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _kept_until_the_end = &permit;
            frame
        }))
    })
}
