//! Tests of the service through its clients.

mod bounds;
mod panics;
mod reauthorization;
mod rig;
mod wire;

use std::time::Duration;

use tokio::time::sleep;

use super::{Status, StatusMetrics, Unusable};
use crate::{
    cache::{event_handlers::EventHandlers, frozen::Frozen, stores::Stores},
    kube_client::last_response::LastResponse,
};

#[tokio::test(start_paused = true)]
async fn caches_are_unusable_once_the_api_server_has_sent_nothing_for_90_s() {
    let status = Status::new(StatusMetrics::default());
    assert_eq!(status.unusable(), Some(Unusable::Unlisted));
    let client = Frozen::new().client(|_| Vec::new());
    let (stores, _following) = Stores::open(&client, "tkg-system", &EventHandlers::default());
    status.set_caches(stores, client, LastResponse::default());
    status.0.filled.set(()).unwrap();
    for (wait, expected) in [
        (Duration::ZERO, None),
        (Duration::from_secs(90), None),
        (Duration::from_millis(1), Some(Unusable::Silent)),
    ] {
        sleep(wait).await;
        assert_eq!(status.unusable(), expected);
    }
}
