//! Leader election with client-go's rules: a PUT carries the resourceVersion that was read, and a lease expires by what
//! this process saw on its own clock, never by a remote wall clock.

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
    kube_client::fence::Fence,
    leader::{leadership::Leadership, metrics::LeaderMetrics},
};

/// How many requests may fail within the renew deadline: each has an equal part of it.
const TRIES: u32 = 3;

/// How many times longer than one's own the duration in a lease may be.
const BELIEVED: u32 = 10;

/// Seconds that a lease says to last which its holder has handed back, as client-go writes it.
const HANDED_BACK: i32 = 1;

/// Name of the lease.
pub const LEASE: &str = "sluice-leader";

/// Who takes part and how patient everybody is.
#[derive(Debug, Clone)]
pub struct Config {
    /// Namespace of the lease.
    pub namespace: String,
    /// Unique name of this process.
    pub identity: String,
    /// How long a holder that stopped renewing is waited for.
    pub lease_duration: Duration,
    /// How long a holder tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// How often the lease is looked at.
    pub retry_period: Duration,
}

/// Why a leader is none any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No renewal got through in time; another replica may lead.
    #[error("leadership lost: lease {namespace}/{LEASE} was not renewed for {deadline:?}")]
    Lost {
        /// Namespace of the lease.
        namespace: String,
        /// The renew deadline.
        deadline: Duration,
    },
}

/// What an attempt at the lease came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// This process holds it.
    Held,
    /// Another one holds it.
    HeldByAnother,
    /// It was changed between reading and writing; the next attempt reads it again.
    Changed,
}

/// Takes part in the election.
#[derive(Debug)]
pub struct Elector {
    config: Config,
    leases: Api<Lease>,
    fence: Fence,
    leadership: Leadership,
    metrics: LeaderMetrics,
    /// The last state of the lease that another process held.
    seen: Option<ObservedLease>,
    /// Whether this process holds it.
    leads: bool,
}

/// A state of the lease.
#[derive(Debug)]
struct ObservedLease {
    version: String,
    /// When it was first seen here.
    since: Instant,
    /// How long its holder may write after that.
    patience: Duration,
}

impl ObservedLease {
    fn expired(&self) -> bool {
        self.since.elapsed() > self.patience
    }
}

impl Elector {
    /// A candidate. `fence` is open for as long as no other one can hold the lease; `client` must not be behind it.
    #[must_use]
    pub fn new(client: Client, config: Config, fence: Fence) -> Self {
        let leases = Api::namespaced(client, &config.namespace);
        Self {
            leadership: Leadership::new(config.lease_duration),
            metrics: LeaderMetrics::default(),
            config,
            leases,
            fence,
            seen: None,
            leads: false,
        }
    }

    /// The same that says in `leadership` what it sees of whichever replica leads.
    #[must_use]
    pub fn showing(self, leadership: Leadership) -> Self {
        Self { leadership, ..self }
    }

    /// The same that shows in `metrics` whether this process leads.
    #[must_use]
    pub fn counted_in(self, metrics: LeaderMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// Returns once this process leads; `None` when `stop` came first.
    pub async fn acquire(&mut self, stop: &CancellationToken) -> Option<()> {
        loop {
            match self.attempt().await {
                Some(Attempt::Held) => {
                    info!(identity = %self.config.identity, lease = LEASE, "Leading");
                    return Some(());
                }
                // The next attempt reads it again.
                Some(Attempt::Changed | Attempt::HeldByAnother) | None => {}
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(self.config.retry_period) => {}
            }
        }
    }

    /// Renews until `stop`, then hands the lease back.
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

    /// Takes or renews the lease; none if the API server did not answer in time. What was changed meanwhile is read again at once.
    async fn attempt(&mut self) -> Option<Attempt> {
        let share = self.config.renew_deadline / TRIES;
        // Others count from when they see the renewal, which is later.
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
                warn!(%error, lease = LEASE, "Asking for the lease");
                None
            }
            Err(_) => {
                warn!(lease = LEASE, "Asking for the lease: no answer within {share:?}");
                None
            }
        }
    }

    async fn take_or_renew(&mut self) -> kube::Result<Attempt> {
        let Some(lease) = self.leases.get_opt(LEASE).await? else {
            // Who deleted it may not have been its holder, which writes for a while yet.
            if self.seen.as_ref().is_some_and(|seen| !seen.expired()) {
                return Ok(Attempt::HeldByAnother);
            }
            let fresh = Lease {
                metadata: self.metadata(None),
                spec: Some(self.spec(None)),
            };
            return held(self.leases.create(&PostParams::default(), &fresh).await);
        };
        let version = lease.resource_version();
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let is_mine = holder == self.config.identity;
        // Without a holder it was handed back, or the holder was removed by hand.
        let is_free = holder.is_empty() && (self.leads || spec.lease_duration_seconds == Some(HANDED_BACK));
        if !is_mine && !is_free && !self.expired(version.as_deref(), &spec) {
            return Ok(Attempt::HeldByAnother);
        }
        let next = Lease {
            metadata: self.metadata(version),
            spec: Some(self.spec(Some(&spec))),
        };
        held(self.leases.replace(LEASE, &PostParams::default(), &next).await)
    }

    /// Whether the lease has not changed for so long that its holder has stopped writing. The holder may have been started with a
    /// longer duration than this process, which is believed up to a limit: the lease may have been edited.
    fn expired(&mut self, version: Option<&str>, spec: &LeaseSpec) -> bool {
        let version = version.unwrap_or_default().to_owned();
        let own = self.config.lease_duration;
        let patience = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(own, |seconds| {
                Duration::from_secs(seconds).clamp(own, own * BELIEVED)
            });
        let same = self.seen.take().filter(|seen| seen.version == version);
        if same.is_none() {
            self.leadership.renewed(patience);
        }
        let since = same.map_or_else(Instant::now, |seen| seen.since);
        let seen = self.seen.insert(ObservedLease {
            version,
            since,
            patience,
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

    /// Lets the next leader start at once.
    async fn hand_back(&self) {
        let held = match self.leases.get_opt(LEASE).await {
            Ok(Some(lease)) => lease,
            Ok(None) => return,
            Err(error) => return debug!(%error, "Handing back the lease"),
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
            debug!(%error, "Handing back the lease");
        }
    }
}

/// A lease is given in seconds, and must not run out for others while its holder may still write.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

fn held(result: kube::Result<Lease>) -> kube::Result<Attempt> {
    match result {
        Ok(_) => Ok(Attempt::Held),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Changed),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
