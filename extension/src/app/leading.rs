//! Controllers of the leader: they run while this replica holds the lease.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::Client;
use sluice_core::{
    cache::stores::Stores as _, providers::kinds, reconcile::cluster::Settings, schedule::SyncPeriod,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Parts;
use crate::{
    cache::{
        contract::Contract, control_plane::ControlPlanes, event_handlers::EventHandlers,
        management_uid::ManagementUid, stores::Stores,
    },
    clock::clock,
    controllers::{bootstrap, events::Notifier, fan_out, providers, registration, releases, retrigger},
    flags::Args,
    kube_client::fence::Fence,
    leader::{
        elector::{self, Elector},
        leadership::Leadership,
    },
    workload::Remotes,
};

/// Time without a heartbeat after which the reconciler counts as stuck. No reconcile takes as long, including the closing of its gates.
pub(super) const SILENT_RECONCILER: Duration = Duration::from_mins(5);

/// Timeout of the first lists of the stores that only managed Clusters need. Afterwards a replica leads without the missing stores and
/// holds managed Clusters.
const FIRST_LISTS: Duration = Duration::from_secs(30);

/// Time that reconciles in flight have to finish after the process is asked to stop.
const RECONCILE_GRACE: Duration = Duration::from_secs(5);

/// Caches and clients of the management cluster.
pub(super) struct Management {
    /// Client without a request timeout: for lists of stores, which may take long, and for the lease.
    pub(super) unbounded: Client,
    pub(super) client: Client,
    pub(super) fence: Fence,
    pub(super) leadership: Leadership,
    pub(super) stores: Stores,
    pub(super) control_planes: Arc<ControlPlanes>,
}

/// Waits for the lease and runs the controllers while the replica holds it.
pub(super) async fn lead(
    args: &Args,
    parts: Parts,
    management: Management,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut elector = candidate(args, &management, &parts);
    let Management {
        client,
        fence,
        stores,
        control_planes,
        ..
    } = management;
    let releases = releases::Context::of(
        client.clone(),
        args.system_namespace.clone(),
        stores.clone(),
        &parts.event_handlers,
        parts.reconciles.clone(),
        parts.releases,
    );
    let EventHandlers {
        triggers,
        dependents,
        fan_outs,
        uncalled,
        values_watches,
        rollbacks,
        ..
    } = parts.event_handlers;
    if !leads(elector.as_mut(), &stores, stop).await {
        return Ok(());
    }
    // A replica without an elector leads, too.
    parts.leader.set(true);

    let concurrency = args.cluster_concurrency;
    // Requeues are collected from here on: the reconciler starts with every Cluster, so earlier ones do not matter.
    let (requeues, changes) = (triggers.listen(), fan_outs.listen());
    let releases_changed = releases.listen();
    values_watches.lead();
    let contract = Contract::new(client.clone(), args.control_plane_groups.clone());
    let remotes = Remotes::new(
        args.system_namespace.clone(),
        triggers.clone(),
        dependents.clone(),
        fence,
    );
    let remotes = Arc::new(remotes.through(args.remote.proxies()));
    let providers = Arc::new(providers::Context {
        client: client.clone(),
        clusters: stores.clusters.clone(),
        watches: providers::Watches::new(contract, dependents.clone(), rollbacks.clone()),
        dependents: dependents.clone(),
        remotes: Arc::clone(&remotes),
        configurations: parts.configurations,
        triggers: triggers.clone(),
        values_watches: values_watches.clone(),
        rollbacks: rollbacks.clone(),
        events: Notifier::new(client.clone()),
        sync_period: SyncPeriod::of_day(args.sync_period, clock()),
        retries: Mutex::default(),
        metrics: parts.reconciles.clone(),
    });
    let management_uid = ManagementUid::default();
    let context = Arc::new(bootstrap::Context {
        client: client.clone(),
        dependents,
        settings: settings(args),
        stores: stores.clone(),
        control_planes,
        remotes,
        index: parts.index,
        values_watches,
        rollbacks: rollbacks.clone(),
        management_uid: management_uid.clone(),
        events: Notifier::new(client.clone()),
        metrics: parts.reconciles,
        limiter: bootstrap::Limiter::new(concurrency, stop.clone()),
        local_states: Mutex::default(),
    });
    let (names, bootstraps) = (args.extension_configs.clone(), stores.bootstraps.clone());
    let managed = move || bootstraps.names();
    let registration = registration::run(client.clone(), names, managed, parts.registration);
    info!("Starting controllers");
    let heart = parts.health.heartbeat("reconciler", SILENT_RECONCILER);
    let reconciling = async {
        let controllers = async {
            tokio::join!(
                bootstrap::run(context, requeues, heart, stop.clone()),
                providers::run(providers, kinds(), concurrency, stop.clone()),
                releases::run(releases, releases_changed, stop.clone()),
            )
        };
        tokio::select! {
            _ = controllers => {}
            () = retrigger::run(client.clone(), stores.clusters.clone(), uncalled) => {}
            () = registration => {}
            () = management_uid.follow(&client, rollbacks.restarts()) => {}
            () = fan_out::run(stores.clone(), parts.event_handlers.classes, changes, triggers) => {}
            () = shutdown_grace(stop) => {}
        }
    };
    Box::pin(while_leading(elector, reconciling)).await
}

/// Returns the candidate of the leader election, if there is one.
fn candidate(args: &Args, management: &Management, parts: &Parts) -> Option<Elector> {
    let Management {
        unbounded,
        fence,
        leadership,
        ..
    } = management;
    args.leader.leader_elect.then(|| {
        Elector::new(unbounded.clone(), election(args), fence.clone())
            .showing(leadership.clone())
            .counted_in(parts.leader.clone())
            .noting(parts.event_handlers.rollbacks.clone())
    })
}

/// Waits until this replica may reconcile or is asked to stop. Returns whether it may reconcile.
pub(super) async fn leads(elector: Option<&mut Elector>, stores: &Stores, stop: &CancellationToken) -> bool {
    // The caches are filled before the replica acquires the lease, because it renews from that moment on.
    let filled = async {
        stores.filled_for_managed().await;
        let _some_are_not = timeout(FIRST_LISTS, stores.synced()).await;
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => return false,
        () = filled => {}
    }
    if let Some(kind) = stores.unlisted() {
        warn!(
            api = kind.api(),
            "Failed to list kind in time, holding managed Clusters"
        );
    }
    match elector {
        Some(elector) => elector.acquire(stop).await.is_some(),
        None => true,
    }
}

/// Runs `reconciling`, and renews the lease with leader election.
async fn while_leading(
    elector: Option<Elector>,
    reconciling: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    match elector {
        None => reconciling.await,
        Some(mut elector) => {
            // Reconcilers stop before the lease is released, so that two leaders never write. For the same reason a lost lease ends the
            // process at once.
            let reconciled = CancellationToken::new();
            let work = async {
                reconciling.await;
                reconciled.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                renewed = elector.renew(&reconciled) => renewed?,
                () = work => {}
            }
        }
    }
    Ok(())
}

/// Returns [`RECONCILE_GRACE`] after `stop`. A hanging request must not keep the process.
async fn shutdown_grace(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(RECONCILE_GRACE).await;
}

pub(super) fn settings(args: &Args) -> Settings {
    Settings {
        system_namespace: args.system_namespace.clone(),
        sync_period: SyncPeriod::of_day(args.sync_period, clock()),
        deletion_limit: args.cluster_delete_timeout,
    }
}

fn election(args: &Args) -> elector::Config {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    let replica = args
        .leader
        .leader_elect_identity
        .clone()
        .or_else(|| host().ok())
        .unwrap_or_default();
    elector::Config {
        namespace: args.leader.leader_elect_namespace.clone(),
        // The process id distinguishes a restarted container from the previous one.
        identity: format!(
            "{replica}_{}_{}",
            std::process::id(),
            jiff::Timestamp::now().as_nanosecond()
        ),
        lease_duration: args.leader.leader_elect_lease_duration,
        renew_deadline: args.leader.leader_elect_renew_deadline,
        retry_period: args.leader.leader_elect_retry_period,
    }
}
