//! Reload of a rotated certificate.
//!
//! The files are compared by content every few seconds. A watch of the path would break at the first rotation, when the kubelet replaces
//! the `..data` link in the path.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::certificate::{self, Identity};
use super::{Error, Metrics, TlsConfig};

/// Publishes a new identity after each valid change of the files, until `stop`.
pub(super) async fn run(
    config: Arc<TlsConfig>,
    serving: watch::Sender<Identity>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut ticks = interval(config.reload_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complaint = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        metrics.certificate_reads.inc();
        match read(Arc::clone(&config), &serving).await {
            Ok(None) => complaint = None,
            Ok(Some(identity)) => {
                info!(
                    not_after = identity.not_after.map(tracing::field::display),
                    "Reloaded rotated serving certificate"
                );
                metrics.serving_until(identity.not_after);
                serving.send_replace(identity);
                complaint = None;
            }
            Err(error) => {
                metrics.certificate_errors.inc();
                let text = error.to_string();
                if complaint.as_ref() != Some(&text) {
                    warn!(reason = error.reason(), %error, "Failed to reload serving certificate, keeping the old one");
                    complaint = Some(text);
                }
            }
        }
    }
}

/// Returns the identity in the files, if it differs from the served one and is no worse.
async fn read(config: Arc<TlsConfig>, serving: &watch::Sender<Identity>) -> Result<Option<Identity>, Error> {
    let path = config.files.certificate();
    let found = match task::spawn_blocking(move || certificate::load(&config)).await {
        Ok(found) => found?,
        // This happens only when the runtime stops.
        Err(_) => return Ok(None),
    };
    let served = serving.borrow();
    if found.digest == served.digest {
        return Ok(None);
    }
    let now = Timestamp::now();
    match found.not_after {
        Some(end) if end <= now && served.not_after.is_none_or(|served| served > now) => {
            Err(Error::Expired { path, not_after: end })
        }
        _ => Ok(Some(found)),
    }
}
