//! Leader election with client-go's rules: a PUT carries the resourceVersion that was read. A lease expires by the local clock of the
//! observer, never by a remote wall clock.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    cache::rollbacks::Rollbacks,
    kube_client::fence::Fence,
    leader::{leadership::Leadership, metrics::LeaderMetrics},
};

/// Requests that may fail within the renew deadline: each has an equal part of it.
const TRIES: u32 = 3;

/// Maximum ratio of the duration in a lease to the configured one.
const BELIEVED: u32 = 10;

/// Lease duration in seconds that a released lease carries, as client-go writes it.
const HANDED_BACK: i32 = 1;

/// Name of the lease.
pub const LEASE: &str = "sluice-leader";

/// Configuration of a candidate.
#[derive(Debug, Clone)]
pub struct Config {
    /// Namespace of the lease.
    pub namespace: String,
    /// Unique name of this process.
    pub identity: String,
    /// Time that candidates wait after the last observed renewal before they acquire the lease.
    pub lease_duration: Duration,
    /// Time that the leader retries a renewal before it gives up.
    pub renew_deadline: Duration,
    /// Interval between two attempts to acquire or renew the lease.
    pub retry_period: Duration,
}

/// Cause of a lost leadership.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No renewal succeeded in time; another replica may lead.
    #[error("leadership lost: lease {namespace}/{LEASE} was not renewed for {deadline:?}")]
    Lost {
        /// Namespace of the lease.
        namespace: String,
        /// The renew deadline.
        deadline: Duration,
    },
}

/// Result of an attempt to acquire or renew the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// This process holds it.
    Held,
    /// Another process holds it.
    HeldByAnother,
    /// The lease changed between the read and the write; the next attempt re-reads it.
    Changed,
}

/// Candidate in the election.
#[derive(Debug)]
pub struct Elector {
    config: Config,
    leases: Api<Lease>,
    fence: Fence,
    leadership: Leadership,
    metrics: LeaderMetrics,
    rollbacks: Rollbacks,
    /// The last state of the lease that another process held.
    seen: Option<ObservedLease>,
    /// Whether this process holds the lease.
    leads: bool,
}

/// Observed state of the lease.
#[derive(Debug)]
struct ObservedLease {
    version: String,
    /// Time of the first observation of this state.
    since: Instant,
    /// Time after that for which its holder may write.
    lease_duration: Duration,
}

impl ObservedLease {
    fn expired(&self) -> bool {
        self.since.elapsed() > self.lease_duration
    }
}

impl Elector {
    /// Creates a candidate. `fence` is open for as long as no other process can hold the lease; `client` must not be behind it.
    #[must_use]
    pub fn new(client: Client, config: Config, fence: Fence) -> Self {
        let leases = Api::namespaced(client, &config.namespace);
        Self {
            leadership: Leadership::new(config.lease_duration),
            metrics: LeaderMetrics::default(),
            rollbacks: Rollbacks::default(),
            config,
            leases,
            fence,
            seen: None,
            leads: false,
        }
    }

    /// Reports each observation of any leader in `leadership`.
    #[must_use]
    pub fn showing(self, leadership: Leadership) -> Self {
        Self { leadership, ..self }
    }

    /// Reports each resourceVersion of the lease to `rollbacks`.
    #[must_use]
    pub fn noting(self, rollbacks: Rollbacks) -> Self {
        Self { rollbacks, ..self }
    }

    /// Reports in `metrics` whether this process leads.
    #[must_use]
    pub fn counted_in(self, metrics: LeaderMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// Returns once this process leads; `None` when `stop` came first.
    pub async fn acquire(&mut self, stop: &CancellationToken) -> Option<()> {
        loop {
            match self.attempt().await {
                Some(Attempt::Held) => {
                    info!(identity = %self.config.identity, lease = LEASE, "Acquired leader lease");
                    return Some(());
                }
                // The next attempt re-reads the lease.
                Some(Attempt::Changed | Attempt::HeldByAnother) | None => {}
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(self.config.retry_period) => {}
            }
        }
    }

    /// Renews until `stop`, then releases the lease.
    ///
    /// # Errors
    /// The leader must end its process: another replica may lead already.
    pub async fn renew(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    self.fence.close();
                    self.metrics.set(false);
                    // Best effort: the lease expires anyway.
                    let _late = timeout(self.config.renew_deadline / TRIES, self.hand_back()).await;
                    return Ok(());
                }
                () = tokio::time::sleep(self.config.retry_period) => {}
            }
            match self.attempt().await {
                Some(Attempt::Held) => renewed = Instant::now(),
                Some(Attempt::HeldByAnother) => return Err(self.lost()),
                Some(Attempt::Changed) | None => {}
            }
            if renewed.elapsed() >= self.config.renew_deadline {
                return Err(self.lost());
            }
        }
    }

    fn lost(&self) -> Error {
        self.fence.close();
        self.metrics.set(false);
        Error::Lost {
            namespace: self.config.namespace.clone(),
            deadline: self.config.renew_deadline,
        }
    }

    /// Acquires or renews the lease; `None` if the API server did not respond in time. A changed lease is re-read at once.
    async fn attempt(&mut self) -> Option<Attempt> {
        let share = self.config.renew_deadline / TRIES;
        // Other replicas count from their observation of the renewal, which is later.
        let began = Instant::now();
        let twice = async {
            match self.take_or_renew().await? {
                Attempt::Changed => self.take_or_renew().await,
                attempt => Ok(attempt),
            }
        };
        match timeout(share, twice).await {
            Ok(Ok(attempt)) => {
                if attempt == Attempt::Held {
                    self.fence.open_until(began + self.config.renew_deadline);
                    (self.seen, self.leads) = (None, true);
                    self.metrics.set(true);
                    self.leadership.renewed(self.config.lease_duration);
                }
                Some(attempt)
            }
            Ok(Err(error)) => {
                warn!(%error, lease = LEASE, "Failed to acquire or renew lease");
                None
            }
            Err(_) => {
                warn!(
                    lease = LEASE,
                    "Failed to acquire or renew lease: no response within {share:?}"
                );
                None
            }
        }
    }

    async fn take_or_renew(&mut self) -> kube::Result<Attempt> {
        let Some(lease) = self.leases.get_opt(LEASE).await? else {
            self.rollbacks.saw_lease(None);
            // The lease may have been deleted by another client, and its holder still writes for a while.
            if self.seen.as_ref().is_some_and(|seen| !seen.expired()) {
                return Ok(Attempt::HeldByAnother);
            }
            let fresh = Lease {
                metadata: self.metadata(None),
                spec: Some(self.spec(None)),
            };
            return self.held(self.leases.create(&PostParams::default(), &fresh).await);
        };
        let version = lease.resource_version();
        self.rollbacks.saw_lease(version.as_deref());
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let is_mine = holder == self.config.identity;
        // A lease without a holder was released, or the holder was removed manually.
        let is_free = holder.is_empty() && (self.leads || spec.lease_duration_seconds == Some(HANDED_BACK));
        if !is_mine && !is_free && !self.expired(version.as_deref(), &spec) {
            return Ok(Attempt::HeldByAnother);
        }
        let next = Lease {
            metadata: self.metadata(version),
            spec: Some(self.spec(Some(&spec))),
        };
        self.held(self.leases.replace(LEASE, &PostParams::default(), &next).await)
    }

    /// Returns the outcome of a write.
    fn held(&self, result: kube::Result<Lease>) -> kube::Result<Attempt> {
        match result {
            Ok(lease) => {
                self.rollbacks
                    .saw_lease(lease.metadata.resource_version.as_deref());
                Ok(Attempt::Held)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Changed),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the lease has expired, so that its holder has stopped writing. The holder may use a longer duration than this
    /// process. That duration counts up to a limit, because the lease may have been edited.
    fn expired(&mut self, version: Option<&str>, spec: &LeaseSpec) -> bool {
        let version = version.unwrap_or_default().to_owned();
        let own = self.config.lease_duration;
        let lease_duration = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(own, |seconds| {
                Duration::from_secs(seconds).clamp(own, own * BELIEVED)
            });
        let same = self.seen.take().filter(|seen| seen.version == version);
        if same.is_none() {
            self.leadership.renewed(lease_duration);
        }
        let since = same.map_or_else(Instant::now, |seen| seen.since);
        let seen = self.seen.insert(ObservedLease {
            version,
            since,
            lease_duration,
        });
        seen.expired()
    }

    fn metadata(&self, version: Option<String>) -> ObjectMeta {
        ObjectMeta {
            name: Some(LEASE.to_owned()),
            namespace: Some(self.config.namespace.clone()),
            resource_version: version,
            ..ObjectMeta::default()
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mine = before.is_some_and(|b| b.holder_identity.as_deref() == Some(&self.config.identity));
        let transitions = before.and_then(|b| b.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: i32::try_from(whole_seconds(self.config.lease_duration)).ok(),
            acquire_time: before
                .filter(|_| mine)
                .and_then(|b| b.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if mine {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..LeaseSpec::default()
        }
    }

    /// Releases the lease, so that the next leader starts at once.
    async fn hand_back(&self) {
        let held = match self.leases.get_opt(LEASE).await {
            Ok(Some(lease)) => lease,
            Ok(None) => return,
            Err(error) => return debug!(%error, "Failed to release lease"),
        };
        if held
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref())
            != Some(&self.config.identity)
        {
            return;
        }
        let metadata = self.metadata(held.resource_version());
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(HANDED_BACK),
            ..held.spec.unwrap_or_default()
        };
        let empty = Lease {
            metadata,
            spec: Some(spec),
        };
        if let Err(error) = self.leases.replace(LEASE, &PostParams::default(), &empty).await {
            debug!(%error, "Failed to release lease");
        }
    }
}

/// Rounds up to whole seconds: a lease must not expire for others while its holder may still write.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests;
