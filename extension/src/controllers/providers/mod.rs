//! The controller of configuration kinds: what a user sets becomes the Secret that a package is installed with.
//!
//! One controller for all kinds of [`sluice_core::providers::kinds`]; a kind is a pure function there and has no code here, and so is the
//! [pass](sluice_core::providers::Configuration) over one configuration.

mod dependents;
mod metrics;
mod watches;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Client, Resource as _, ResourceExt,
    core::DynamicObject,
    runtime::{
        Controller,
        controller::{self, Action, Config},
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use sluice_core::{
    chain::chain,
    providers::{After, Configuration, Kind},
    step::{Answer, Ask, Failure, Server},
};
use sluice_crds::foreign::Cluster;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use dependents::ConfigRef;
pub use dependents::Dependents;
pub use metrics::Configurations;
use watches::Watches;

use crate::{
    backoff::Backoffs,
    contract::Contract,
    events::Notifier,
    lock::lock,
    metrics::PassMetrics,
    runner::{self, Error, PassError, action, isolated},
    triggers::{ClusterRef, Triggers},
};

/// Field manager of everything that this controller writes.
const FIELD_MANAGER: &str = "sluice-providers";

/// The first delay before a pass that failed is repeated.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// The longest one. What changes meanwhile wakes the configuration.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// How soon a pass is repeated that ended in a conflict, at first.
const CONFLICT: Duration = Duration::from_millis(100);

/// What every reconcile shares.
pub struct Context {
    client: Client,
    clusters: Store<Cluster>,
    dependents: Dependents,
    watches: Watches,
    configurations: Configurations,
    /// Wakes the Cluster whose packages have new values.
    triggers: Triggers,
    events: Notifier,
    /// How often a configuration is looked at when nothing happens.
    sync_period: Duration,
    /// Of the configurations of which the last pass failed.
    failures: Backoffs<ConfigRef>,
    /// Of those of which it ended in a conflict.
    conflicts: Backoffs<ConfigRef>,
    passes: PassMetrics,
}

impl Context {
    /// A context without history.
    #[must_use]
    pub fn new(
        client: Client,
        clusters: Store<Cluster>,
        dependents: Dependents,
        configurations: Configurations,
        triggers: Triggers,
        sync_period: Duration,
    ) -> Self {
        Self {
            watches: Watches::new(Contract::new(client.clone(), Vec::new()), dependents.clone()),
            events: Notifier::new(client.clone()),
            client,
            clusters,
            dependents,
            configurations,
            triggers,
            sync_period,
            failures: Backoffs::new(MIN_DELAY, MAX_DELAY),
            conflicts: Backoffs::new(CONFLICT, MAX_DELAY),
            passes: PassMetrics::default(),
        }
    }

    /// A pass over this configuration came to its end, or it is gone.
    fn forget(&self, config: &ConfigRef) {
        self.failures.forget(config);
        self.conflicts.forget(config);
    }

    /// Passes are counted there.
    #[must_use]
    pub fn counting(mut self, passes: PassMetrics) -> Self {
        self.passes = passes;
        self
    }

    /// Kinds of control planes in `groups` are read whatever their definitions say.
    #[must_use]
    pub fn allowing(mut self, groups: Vec<String>) -> Self {
        let contract = Contract::new(self.client.clone(), groups);
        self.watches = Watches::new(contract, self.dependents.clone());
        self
    }
}

/// A kind with what all kinds share.
struct OfKind {
    shared: Arc<Context>,
    kind: Kind,
}

impl OfKind {
    fn reference(&self, config: &DynamicObject) -> ConfigRef {
        ObjectRef::from_obj_with(config, self.kind.resource.clone())
    }
}

/// Reconciles every kind of `kinds` until `stop`.
pub async fn run(context: Arc<Context>, kinds: Vec<Kind>, concurrency: u16, stop: CancellationToken) {
    let controllers = kinds.into_iter().map(|kind| {
        let resource = kind.resource.clone();
        let configs = Api::<DynamicObject>::all_with(context.client.clone(), &resource);
        let controller = Controller::new_with(configs, watcher::Config::default(), resource.clone());
        context.configurations.add(&resource.kind, controller.store());
        let (wakes, shared) = (context.dependents.wakes(&resource), Arc::clone(&context));
        let of_kind = Arc::new(OfKind {
            shared: Arc::clone(&context),
            kind,
        });
        controller
            .with_config(Config::default().concurrency(concurrency))
            .reconcile_on(wakes)
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(reconcile, failed, of_kind)
            .for_each(move |result| {
                match result {
                    Err(controller::Error::ObjectNotFound(gone)) => {
                        let mut config = ObjectRef::new_with(&gone.name, resource.clone());
                        config.namespace = gone.namespace;
                        shared.dependents.set(&config, &[]);
                        shared.forget(&config);
                    }
                    Err(error) => debug!(%error, "Reconciling a configuration"),
                    Ok(_) => {}
                }
                std::future::ready(())
            })
    });
    futures::future::join_all(controllers).await;
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of an error policy")]
fn failed(config: Arc<DynamicObject>, error: &Error, ctx: Arc<OfKind>) -> Action {
    let reference = ctx.reference(&config);
    let delay = if error.is_conflict() {
        // Another one wrote first; what was written is on its way through the watch.
        ctx.shared.conflicts.failed(reference)
    } else {
        ctx.shared.failures.failed(reference)
    };
    if error.is_conflict() && delay < MIN_DELAY {
        return Action::requeue(delay);
    }
    let (kind, name) = (&ctx.kind.resource.kind, config.name_any());
    let namespace = config.namespace().unwrap_or_default();
    warn!(kind, namespace, name, error = %chain(error), "Reconciling a configuration");
    Action::requeue(delay)
}

/// One pass over a configuration. Whatever happens in it, others get their turn.
async fn reconcile(config: Arc<DynamicObject>, ctx: Arc<OfKind>) -> Result<Action, Error> {
    let outcome = isolated(Box::pin(pass(&config, &ctx))).await;
    match &outcome {
        Err(Error::Pass(PassError::Panicked)) => ctx.shared.passes.panicked(),
        Err(_) => {}
        Ok(_) => ctx.shared.forget(&ctx.reference(&config)),
    }
    outcome
}

async fn pass(config: &Arc<DynamicObject>, ctx: &OfKind) -> Result<Action, Error> {
    let (shared, reference) = (&ctx.shared, ctx.reference(config));
    let configuration = Configuration {
        kind: ctx.kind.clone(),
        object: Arc::clone(config),
        sync_period: shared.sync_period,
    };
    let host = Host {
        ctx,
        config,
        reference: &reference,
        wrote_for: Mutex::default(),
    };
    let (outcome, after) = runner::run(&host, &configuration, &()).await;
    shared.dependents.set(&reference, &after.sources);
    publish(ctx, config, after).await;
    outcome.map(action)
}

/// Publishes what is wrong with a configuration.
async fn publish(ctx: &OfKind, config: &DynamicObject, after: After) {
    let events = &ctx.shared.events;
    match after.problem {
        Some(Some(problem)) => {
            let (object, reason) = (config.object_ref(&ctx.kind.resource), problem.reason.as_str());
            events.problem(&object, reason, &problem.message).await;
        }
        Some(None) => events.forget(&config.uid().unwrap_or_default()),
        None => {}
    }
}

/// What one pass over a configuration is carried out with.
struct Host<'a> {
    ctx: &'a OfKind,
    config: &'a DynamicObject,
    reference: &'a ConfigRef,
    /// The Cluster that something was written for, if it was.
    wrote_for: Mutex<Option<ClusterRef>>,
}

/// However the pass ends, the Cluster is looked at: the write may have been made, and an upgrade may wait for nothing else.
impl Drop for Host<'_> {
    fn drop(&mut self) {
        if let Some(cluster) = lock(&self.wrote_for).take() {
            self.ctx.shared.triggers.wake_to_read(cluster);
        }
    }
}

impl runner::Host<Configuration> for Host<'_> {
    const MANAGER: &'static str = FIELD_MANAGER;

    fn subject(&self) -> (&str, &str) {
        let namespace = self.reference.namespace.as_deref();
        (namespace.unwrap_or_default(), &self.reference.name)
    }

    fn client(&self, server: Server) -> Result<&Client, Failure> {
        match server {
            Server::Management => Ok(&self.ctx.shared.client),
            Server::Workload => Err(Failure::other(server, "a configuration asks no workload")),
        }
    }

    async fn answer(&self, ask: &Ask) -> Result<Answer, Failure> {
        let shared = &self.ctx.shared;
        if let Some(source) = ask.source() {
            // Before it is read, so that no change falls between.
            shared.dependents.add(self.reference, &source);
        }
        Ok(match ask {
            Ask::Cluster(namespace, name) => {
                let found = shared.clusters.get(&ObjectRef::new(name).within(namespace));
                found.map_or(Answer::Absent, Answer::Cluster)
            }
            Ask::Source(source) => shared.watches.read(source).await,
            _ => Answer::Absent,
        })
    }

    /// The event is there where the condition is seen.
    async fn writing(&self, after: After) {
        let cluster = after.cluster.as_ref();
        *lock(&self.wrote_for) = cluster.map(|(namespace, name)| ObjectRef::new(name).within(namespace));
        publish(self.ctx, self.config, after).await;
    }
}

#[cfg(test)]
mod tests;
