//! An invented kind, added to Sluice by one file, one line and its cases: here on a real API server.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value, json};
use sluice::cache::contract::Contract;
use sluice::cache::event_handlers::EventHandlers;
use sluice::cache::stores::Stores;
use sluice::controllers::events::Notifier;
use sluice::controllers::providers::{self, Configurations, Context, Watches};
use sluice::kube_client::fence::Fence;
use sluice::telemetry::metrics::ReconcileMetrics;
use sluice::workload::Remotes;
use sluice_core::providers::Kind;
use sluice_core::schedule::SyncPeriod;
use sluice_tests::objects::definition;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[path = "../../../extension/core/tests/providers/made_up.rs"]
mod kind;

/// Its definition.
pub(crate) fn definition() -> Value {
    definition::open("made-up.test", "GreetingConfig", "v1", &json!({"status": {}}))
}

/// The controller of Sluice with this kind in its table, until the set is dropped.
pub(crate) fn start(client: &Client) -> JoinSet<()> {
    let handlers = EventHandlers::default();
    let (stores, following) = Stores::open(client, "tkg-system", &handlers);
    let contract = Contract::new(client.clone(), Vec::new());
    let (triggers, dependents) = (handlers.triggers.clone(), handlers.dependents.clone());
    let remotes = Remotes::new("tkg-system".to_owned(), triggers, dependents, Fence::open());
    let context = Arc::new(Context {
        client: client.clone(),
        clusters: stores.clusters.clone(),
        watches: Watches::new(contract, handlers.dependents.clone(), handlers.rollbacks.clone()),
        dependents: handlers.dependents,
        remotes: Arc::new(remotes),
        configurations: Configurations::default(),
        triggers: handlers.triggers,
        values_watches: handlers.values_watches,
        rollbacks: handlers.rollbacks,
        events: Notifier::new(client.clone()),
        sync_period: SyncPeriod {
            length: Duration::from_mins(10),
            since: Instant::now(),
        },
        retries: Mutex::default(),
        metrics: ReconcileMetrics::default(),
    });
    let mut running = JoinSet::new();
    running.spawn(following);
    running.spawn(async move {
        stores.synced().await;
        let table = vec![Kind::of::<kind::Greeting>()];
        providers::run(context, table, 2, CancellationToken::new()).await;
    });
    running
}
