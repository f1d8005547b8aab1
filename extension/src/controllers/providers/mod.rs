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
    events::Notice,
    providers::{Configuration, Effects, Kind},
    step::{Answer, Ask, Failure, Server},
    walls::{Again, Retries},
};
use sluice_crds::foreign::Cluster;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use dependents::ConfigRef;
pub use dependents::Dependents;
pub use metrics::Configurations;
pub use watches::Watches;

use crate::{
    clock::now,
    events::Notifier,
    lock::lock,
    metrics::PassMetrics,
    runner::{self, Error, PassError, action, isolated},
    triggers::{ClusterRef, Triggers},
};

/// Field manager of everything that this controller writes.
const FIELD_MANAGER: &str = "sluice-providers";

/// What every reconcile shares.
pub struct Context {
    /// Client of the management cluster.
    pub client: Client,
    /// All Clusters.
    pub clusters: Store<Cluster>,
    /// Which configurations depend on what.
    pub dependents: Dependents,
    /// What configurations depend on.
    pub watches: Watches,
    /// Configurations by the reason of their condition.
    pub configurations: Configurations,
    /// Wakes the Cluster whose packages have new values.
    pub triggers: Triggers,
    /// Events for people.
    pub events: Notifier,
    /// How often a configuration is looked at when nothing happens.
    pub sync_period: Duration,
    /// Of the configurations of which the last pass failed.
    pub retries: Mutex<Retries<ConfigRef>>,
    /// What is counted.
    pub metrics: PassMetrics,
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
        let (resource, shared) = (kind.resource.clone(), Arc::clone(&context));
        let wakes = context.dependents.wakes(&resource);
        let configs = Api::<DynamicObject>::all_with(context.client.clone(), &resource);
        let controller = Controller::new_with(configs, watcher::Config::default(), resource);
        context
            .configurations
            .add(&kind.resource.kind, controller.store());
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
                        shared.dependents.set(&gone, &[]);
                        lock(&shared.retries).forget(&gone);
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
    let again = lock(&ctx.shared.retries).failed(ctx.reference(&config), error.is_conflict(), now());
    if let Again::Later(_) = again {
        let (kind, name) = (&ctx.kind.resource.kind, config.name_any());
        let namespace = config.namespace().unwrap_or_default();
        warn!(kind, namespace, name, error = %chain(error), "Reconciling a configuration");
    }
    Action::requeue(again.wait())
}

/// One pass over a configuration. Whatever happens in it, others get their turn.
async fn reconcile(config: Arc<DynamicObject>, ctx: Arc<OfKind>) -> Result<Action, Error> {
    let outcome = isolated(Box::pin(pass(&config, &ctx))).await;
    match &outcome {
        Err(Error::Pass(PassError::Panicked)) => ctx.shared.metrics.panicked(),
        Err(_) => {}
        Ok(_) => lock(&ctx.shared.retries).forget(&ctx.reference(&config)),
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
    let (outcome, effects) = runner::run(&host, &configuration, &()).await;
    shared.dependents.set(&reference, &effects.sources);
    publish(ctx, config, effects).await;
    outcome.map(action)
}

/// Publishes what is wrong with a configuration.
async fn publish(ctx: &OfKind, config: &DynamicObject, effects: Effects) {
    let events = &ctx.shared.events;
    match effects.problem {
        Some(Some(problem)) => {
            let object = config.object_ref(&ctx.kind.resource);
            events.publish(&object, Some(Notice::of_problem(&problem))).await;
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
    async fn writing(&self, effects: Effects) {
        let cluster = effects.cluster.as_ref();
        *lock(&self.wrote_for) = cluster.map(|(namespace, name)| ObjectRef::new(name).within(namespace));
        publish(self.ctx, self.config, effects).await;
    }
}

#[cfg(test)]
mod tests;
