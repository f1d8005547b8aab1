//! Status of UpgradeOverrides: one reconcile computes that of all overrides of a namespace, at most once a second.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{Api, Client};
use sluice_core::{
    cache::stores::{Found, Stored as _, is_legacy_release},
    cluster::{is_managed, release_of},
    decode::Undecodable,
    error_chain::error_chain,
    limits::{Again, Retries},
    packages::build::FIELD_MANAGER,
    protocol::{Failure, Write},
    upgrade::overrides::{
        POLICY, enforced_since,
        status::{NamedCluster, OverrideState, Policy, write},
    },
};
use sluice_crds::{
    foreign::Cluster,
    lifecycle::UpgradeOverride,
    run::{ClusterBootstrap, TanzuKubernetesRelease},
};
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    cache::stores::Stores,
    clock::{clock, now},
    controllers::executor::{Error, counted, isolated, writes},
    lock::lock,
    queue::work_queue,
    telemetry::metrics::ReconcileMetrics,
};

/// Shortest time between two reconciles of a namespace, and so between two writes of one status.
const INTERVAL: Duration = Duration::from_secs(1);

/// Concurrent reconciles.
const AT_ONCE: u16 = 2;

/// Overrides that are judged before the task yields.
const BATCH: usize = 16;

/// Maximum number of writes of one reconcile.
const MAX_WRITES: usize = 50;

/// Time for which the policy is not read again once it was found. Before a gate opens, a reconcile of the Cluster reads it anyway.
const FOUND_FOR: Duration = Duration::from_mins(5);

/// The same if it was not found.
const MISSED_FOR: Duration = Duration::from_secs(30);

/// State that all reconciles share.
pub struct OverrideStatuses {
    client: Client,
    stores: Stores,
    metrics: ReconcileMetrics,
    /// Last reconcile of each namespace.
    namespaces: Mutex<HashMap<String, Instant>>,
    /// Backoff of namespaces whose last reconcile failed.
    retries: Mutex<Retries<String>>,
    /// The policy, and the time until which it is not read again.
    policy: tokio::sync::Mutex<Option<(Policy, Instant)>>,
}

impl OverrideStatuses {
    /// Returns a controller that writes with `client`.
    pub(crate) fn new(client: Client, stores: Stores, metrics: ReconcileMetrics) -> Self {
        Self {
            client,
            stores,
            metrics,
            namespaces: Mutex::default(),
            retries: Mutex::default(),
            policy: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the time until the next reconcile of a namespace may begin.
    fn until_due(&self, namespace: &str, now: Instant) -> Option<Duration> {
        let namespaces = lock(&self.namespaces);
        let since = now.saturating_duration_since(*namespaces.get(namespace)?);
        Some(INTERVAL.saturating_sub(since)).filter(|left| !left.is_zero())
    }

    /// Returns the policy, and the time until it is read again.
    async fn policy(&self) -> (Policy, Duration) {
        let mut known = self.policy.lock().await;
        let now = now();
        if let Some((policy, until)) = *known
            && until > now
        {
            return (policy, until - now);
        }
        let policy = read_policy(&self.client).await;
        let wait = match policy {
            Policy::Since(_) => FOUND_FOR,
            Policy::Missing | Policy::Unreadable => MISSED_FOR,
        };
        *known = Some((policy, now + wait));
        (policy, wait)
    }
}

/// Reads the policy and its binding.
async fn read_policy(client: &Client) -> Policy {
    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    let (policy, binding) = tokio::join!(policies.get_opt(POLICY), bindings.get_opt(POLICY));
    match (policy, binding) {
        (Ok(Some(policy)), Ok(Some(binding))) => {
            enforced_since(&policy, &binding).map_or(Policy::Missing, Policy::Since)
        }
        (Ok(None), _) | (_, Ok(None)) => Policy::Missing,
        (Err(error), _) | (_, Err(error)) => {
            warn!(error = %error_chain(&error), "Failed to read ValidatingAdmissionPolicy {POLICY} or its binding");
            Policy::Unreadable
        }
    }
}

/// Keeps the status of all UpgradeOverrides up to date until `stop`, starting with all of them. `changed` are the namespaces of changed
/// UpgradeOverrides, Clusters and ClusterBootstraps.
pub async fn run(
    statuses: Arc<OverrideStatuses>,
    changed: impl Stream<Item = String>,
    stop: CancellationToken,
) {
    let namespaces = stream::iter(statuses.stores.override_namespaces()).chain(changed);
    let metrics = &statuses.metrics.controllers.upgrade_override;
    metrics.started(AT_ONCE.into());
    work_queue::run(namespaces, AT_ONCE, &stop, &metrics.queue, |namespace| {
        let statuses = Arc::clone(&statuses);
        async move { turn(&statuses, &namespace).await }
    })
    .await;
}

/// Reconciles a queued namespace. Returns the delay until it is requeued without an event.
async fn turn(statuses: &OverrideStatuses, namespace: &str) -> Option<Duration> {
    let overrides = statuses.stores.overrides_in(namespace);
    if overrides.is_empty() {
        lock(&statuses.namespaces).remove(namespace);
        lock(&statuses.retries).forget(&namespace.to_owned());
        return None;
    }
    let now = now();
    if let Some(left) = statuses.until_due(namespace, now) {
        return Some(left);
    }
    lock(&statuses.namespaces).insert(namespace.to_owned(), now);
    let metrics = &statuses.metrics.controllers.upgrade_override;
    let reconcile = isolated(metrics, Box::pin(reconcile(statuses, namespace, &overrides)));
    match counted(metrics, reconcile).await {
        Ok(again) => {
            lock(&statuses.retries).forget(&namespace.to_owned());
            again
        }
        Err(error) => Some(failed(statuses, namespace, &error)),
    }
}

/// Returns the backoff after a failed reconcile.
fn failed(statuses: &OverrideStatuses, namespace: &str, error: &Error) -> Duration {
    let again = lock(&statuses.retries).failed(namespace.to_owned(), error.is_conflict(), now());
    if let Again::Later(_) = again {
        warn!(namespace, error = %error_chain(error), "Failed to write status of UpgradeOverrides");
    }
    again.wait().max(INTERVAL)
}

/// Writes the status of each UpgradeOverride of a namespace that differs. Returns the delay until the first one may change without an event.
async fn reconcile(
    statuses: &OverrideStatuses,
    namespace: &str,
    overrides: &[Arc<UpgradeOverride>],
) -> Result<Option<Duration>, Error> {
    let mut numbers = HashMap::<&str, usize>::new();
    for of in overrides {
        *numbers.entry(&of.spec.cluster_name).or_default() += 1;
    }
    let (mut again, mut failure, mut written) = (None::<Duration>, None, 0);
    let mut sooner = |wait: Option<Duration>| again = again.into_iter().chain(wait).min();
    for (count, of) in overrides.iter().enumerate() {
        let name = of.spec.cluster_name.as_str();
        // The status of an override stays while its Cluster cannot be decoded.
        let Ok(found) = managed(&statuses.stores, namespace, name) else {
            continue;
        };
        let named = found.as_ref().map(|found| NamedCluster {
            uid: &found.uid,
            overrides: numbers.get(name).copied().unwrap_or_default(),
            status: found.bootstrap.as_ref().and_then(|found| found.status.as_ref()),
        });
        let state = OverrideState::of(of, named, clock().now);
        let policy = if state.needs_policy() {
            let (policy, wait) = statuses.policy().await;
            sooner(Some(wait));
            Some(policy)
        } else {
            None
        };
        sooner(state.until_expiry(of, clock().now));
        if let Some(write) = write(of, &state, policy, clock().now) {
            if written == MAX_WRITES {
                sooner(Some(INTERVAL));
                break;
            }
            written += 1;
            if let Err(refused) = made(statuses, &write).await {
                // The others do not wait for it.
                failure = failure.or(Some(refused));
            }
        }
        if count % BATCH == BATCH - 1 {
            yield_now().await;
        }
    }
    failure.map_or(Ok(again), |failure| Err(Error::Refused(failure)))
}

/// A managed Cluster.
struct Managed {
    uid: String,
    bootstrap: Option<Arc<ClusterBootstrap>>,
}

/// Returns a Cluster; `None` if it does not exist or Sluice does not manage it.
///
/// # Errors
/// The Cluster cannot be decoded.
fn managed(stores: &Stores, namespace: &str, name: &str) -> Result<Option<Managed>, Arc<Undecodable>> {
    let found: Found<Cluster> = stores.found(Some(namespace), name);
    let Some(cluster) = found? else {
        return Ok(None);
    };
    let label = release_of(&cluster.metadata);
    let bootstrap: Found<ClusterBootstrap> = stores.found(Some(namespace), name);
    let release: Found<TanzuKubernetesRelease> = stores.found(None, &label);
    let has_bootstrap = !matches!(bootstrap, Ok(None));
    let is_managed = is_managed(Some(&label), is_legacy_release(&release), has_bootstrap);
    Ok(is_managed.then(|| Managed {
        uid: cluster.metadata.uid.clone().unwrap_or_default(),
        bootstrap: bootstrap.ok().flatten(),
    }))
}

/// Makes one write. A status of an override that was deleted meanwhile needs none.
async fn made(statuses: &OverrideStatuses, write: &Write) -> Result<(), Failure> {
    match writes::make(&statuses.client, FIELD_MANAGER, write).await {
        Err(failure) if failure.code != Some(404) => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
