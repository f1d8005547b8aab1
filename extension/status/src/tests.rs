//! Tests of the service through its clients.

mod bounds;
mod panics;
mod reauthorization;
mod rig;
mod wire;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::rig::{NoClusters, Reviews};
use super::{Status, StatusMetrics, Unusable};

#[tokio::test(start_paused = true)]
async fn caches_are_unusable_once_the_api_server_has_sent_nothing_for_90_s() {
    let status = Status::new(StatusMetrics::default());
    assert_eq!(status.unusable(), Some(Unusable::Unlisted));
    let last_response = Some(Instant::now());
    status.set_caches(NoClusters { last_response }, Reviews::default().client());
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
