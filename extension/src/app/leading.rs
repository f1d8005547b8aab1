//! Controllers of the leader: they run while this replica holds the lease.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::OptionFuture;
use kube::Client;
use sluice_core::{
    cache::stores::Stores as _, gates::facts::GateSettings, providers::kinds, reconcile::cluster::Settings,
    schedule::SyncPeriod,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Parts;
use crate::{
    cache::{
        contract::Contract, control_plane::ControlPlanes, management_uid::ManagementUid, stores::Stores,
    },
    clock::clock,
    controllers::{
        bootstrap,
        concurrency::Limiter,
        events::Notifier,
        fan_out,
        gate_in_force::GatesInForce,
        gates, overrides, providers,
        registration::{self, HookScope},
        releases, retrigger,
    },
    flags::Args,
    kube_client::{
        bounded::{Bounds, REQUEST, bounded},
        fence::Fence,
    },
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

/// Limits of the answers to the reads of UpgradeGates on the management cluster. An object of etcd has at most 1.5 MiB.
const CHECKED: Bounds = Bounds {
    answer: 4 * 1024 * 1024,
    memory: 16 * 1024 * 1024,
    ..REQUEST
};

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
    if !leads(elector.as_mut(), &management.stores, stop).await {
        return Ok(());
    }
    // A replica without an elector leads, too.
    parts.leader.set(true);

    let remotes = Remotes::new(
        args.system_namespace.clone(),
        parts.event_handlers.triggers.clone(),
        parts.event_handlers.dependents.clone(),
        management.fence.clone(),
    );
    let leader = Leader {
        args,
        parts: &parts,
        management: &management,
        remotes: Arc::new(remotes.through(args.remote.proxies())),
        hook_scope: HookScope::default(),
        gates_in_force: GatesInForce::new(
            management.client.clone(),
            management.stores.clone(),
            Arc::clone(&parts.event_handlers.classes),
            parts.event_handlers.triggers.clone(),
        ),
        stop,
    };
    info!("Starting controllers");
    let packages = OptionFuture::from(args.packages.then(|| leader.packages()));
    let gates = OptionFuture::from(args.gates.then(|| leader.gates()));
    let registration = leader.registration();
    let reconciling = async {
        let controllers = async { tokio::join!(packages, gates) };
        tokio::select! {
            _ = controllers => {}
            () = registration => {}
            () = shutdown_grace(stop) => {}
        }
    };
    Box::pin(while_leading(elector, reconciling)).await
}

/// Everything that the controllers of a leader share.
struct Leader<'a> {
    args: &'a Args,
    parts: &'a Parts,
    management: &'a Management,
    /// Connections to workload clusters.
    remotes: Arc<Remotes>,
    /// Namespaces for which Cluster API calls the hooks.
    hook_scope: HookScope,
    /// Reports of gates that are not in force.
    gates_in_force: GatesInForce,
    stop: &'a CancellationToken,
}

impl Leader<'_> {
    /// Returns the controllers of packages. Requeues are collected from this call on: the reconciler starts with every Cluster, so earlier
    /// ones do not matter.
    fn packages(&self) -> impl Future<Output = ()> + use<> {
        let handlers = &self.parts.event_handlers;
        let (requeues, changes) = (handlers.triggers.listen(), handlers.fan_outs.listen());
        let Management { client, stores, .. } = self.management;
        let (client, stores, stop) = (client.clone(), stores.clone(), self.stop.clone());
        let releases = releases::Context::of(
            client.clone(),
            self.args.system_namespace.clone(),
            stores.clone(),
            handlers,
            self.parts.reconciles.clone(),
            self.parts.releases.clone(),
        );
        let releases_changed = releases.listen();
        handlers.values_watches.lead();
        let management_uid = ManagementUid::default();
        let (providers, context) = (self.providers(), self.clusters(&management_uid));
        let overridden = handlers.override_statuses.listen();
        let overrides = Arc::new(overrides::OverrideStatuses::new(
            client.clone(),
            stores.clone(),
            self.parts.reconciles.clone(),
        ));
        let heart = self.parts.health.heartbeat("reconciler", SILENT_RECONCILER);
        let concurrency = self.args.cluster_concurrency;
        let (uncalled, classes) = (Arc::clone(&handlers.uncalled), Arc::clone(&handlers.classes));
        let (triggers, restarts) = (handlers.triggers.clone(), handlers.rollbacks.restarts());
        async move {
            let controllers = async {
                tokio::join!(
                    bootstrap::run(context, requeues, heart, stop.clone()),
                    providers::run(providers, kinds(), concurrency, stop.clone()),
                    releases::run(releases, releases_changed, stop.clone()),
                    overrides::run(overrides, overridden, stop.clone()),
                )
            };
            tokio::select! {
                _ = controllers => {}
                () = retrigger::run(client.clone(), stores.clusters.clone(), uncalled) => {}
                () = management_uid.follow(&client, restarts) => {}
                () = fan_out::run(stores, classes, changes, triggers) => {}
            }
        }
    }

    fn providers(&self) -> Arc<providers::Context> {
        let (handlers, client) = (&self.parts.event_handlers, &self.management.client);
        let contract = Contract::new(client.clone(), self.args.control_plane_groups.clone());
        Arc::new(providers::Context {
            client: client.clone(),
            clusters: self.management.stores.clusters.clone(),
            watches: providers::Watches::new(
                contract,
                handlers.dependents.clone(),
                handlers.rollbacks.clone(),
            ),
            dependents: handlers.dependents.clone(),
            remotes: Arc::clone(&self.remotes),
            configurations: self.parts.configurations.clone(),
            triggers: handlers.triggers.clone(),
            values_watches: handlers.values_watches.clone(),
            rollbacks: handlers.rollbacks.clone(),
            events: Notifier::new(client.clone()),
            sync_period: SyncPeriod::of_day(self.args.sync_period, clock()),
            retries: Mutex::default(),
            metrics: self.parts.reconciles.clone(),
        })
    }

    /// Returns the context of the Cluster controller.
    fn clusters(&self, management_uid: &ManagementUid) -> Arc<bootstrap::Context> {
        let (handlers, management) = (&self.parts.event_handlers, self.management);
        Arc::new(bootstrap::Context {
            client: management.client.clone(),
            dependents: handlers.dependents.clone(),
            settings: settings(self.args),
            stores: management.stores.clone(),
            control_planes: Arc::clone(&management.control_planes),
            remotes: Arc::clone(&self.remotes),
            index: self.parts.index.clone(),
            values_watches: handlers.values_watches.clone(),
            rollbacks: handlers.rollbacks.clone(),
            management_uid: management_uid.clone(),
            gates_in_force: self.gates_in_force.clone(),
            events: Notifier::new(management.client.clone()),
            metrics: self.parts.reconciles.clone(),
            limiter: Limiter::new(self.args.cluster_concurrency, self.stop.clone()),
            probes: bootstrap::Probes::default(),
            local_states: Mutex::default(),
        })
    }

    /// Returns the controllers of UpgradeGates. They share no limit with those of packages.
    fn gates(&self) -> impl Future<Output = ()> + use<> {
        let (handlers, management) = (&self.parts.event_handlers, self.management);
        let (requeues, changes) = (handlers.triggers.listen_gated(), handlers.gate_changes.listen());
        let namespaces = handlers.gate_statuses.listen();
        // Tenants name the objects, and aggregated APIs may serve them.
        let client = bounded(management.client.clone(), CHECKED).into_client();
        let context = Arc::new(gates::Context {
            client: client.clone(),
            settings: gate_settings(self.args),
            stores: management.stores.clone(),
            control_planes: Arc::clone(&management.control_planes),
            clients: gates::Clients::new(Arc::clone(&self.remotes)),
            triggers: handlers.triggers.clone(),
            statuses: handlers.gate_statuses.clone(),
            rollbacks: handlers.rollbacks.clone(),
            events: Notifier::new(client.clone()),
            metrics: self.parts.reconciles.clone(),
            limiter: Limiter::new(self.args.cluster_concurrency, self.stop.clone()),
            local_states: Mutex::default(),
        });
        let statuses = Arc::new(gates::GateStatuses::new(
            client,
            management.stores.clone(),
            self.hook_scope.clone(),
            self.parts.reconciles.clone(),
        ));
        let heart = self.parts.health.heartbeat("gates", SILENT_RECONCILER);
        let stop = self.stop.clone();
        async move {
            tokio::join!(
                gates::run(context, requeues, changes, heart, stop.clone()),
                gates::run_statuses(statuses, namespaces, stop.clone()),
            );
        }
    }

    /// Returns the checks of ExtensionConfigs.
    fn registration(&self) -> impl Future<Output = ()> + use<> {
        let (names, stores) = (
            self.args.extension_configs.clone(),
            self.management.stores.clone(),
        );
        let held = move || {
            let mut held = stores.bootstraps.names();
            held.extend(stores.cluster_upgrades());
            held.sort_unstable();
            held.dedup();
            held
        };
        registration::run(
            self.management.client.clone(),
            names,
            held,
            self.parts.registration.clone(),
            (
                self.args.gates.then(|| self.hook_scope.clone()),
                self.args.packages.then(|| self.gates_in_force.clone()),
            ),
        )
    }
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
        extension_configs: args.extension_configs.clone(),
        sync_period: SyncPeriod::of_day(args.sync_period, clock()),
        deletion_limit: args.cluster_delete_timeout,
    }
}

fn gate_settings(args: &Args) -> GateSettings {
    GateSettings {
        system_namespace: args.system_namespace.clone(),
        extension_configs: args.extension_configs.clone(),
        sync_period: SyncPeriod::of_day(args.sync_period, clock()),
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
