//! The controller of configuration kinds: what a user sets becomes the Secret that a package is installed with.
//!
//! One controller for all kinds of [`sluice_core::providers::kinds`]; a kind is a pure function there and has no code here.

mod apply;
mod dependents;
mod dereference;
mod evaluate;
mod failures;
mod metrics;
mod update_status;
mod watches;

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    core::DynamicObject,
    runtime::{
        Controller,
        controller::{self, Action, Config},
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use sluice_core::providers::{Kind, Source};
use sluice_crds::foreign::Cluster;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

pub use dependents::Dependents;
use failures::Failures;
pub use metrics::Configurations;
use watches::Watches;

use super::{
    chain,
    isolate::{PassError, isolated},
};
use crate::{events::Notifier, metrics::PassMetrics, triggers::Triggers};

/// How soon a configuration is looked at again whose result depends on what no watch shows: Secrets are read by name.
const UNWATCHED: Duration = Duration::from_secs(10);

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
    failures: Failures,
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
            watches: Watches::new(client.clone(), dependents.clone()),
            events: Notifier::new(client.clone()),
            client,
            clusters,
            dependents,
            configurations,
            triggers,
            sync_period,
            failures: Failures::default(),
            passes: PassMetrics::default(),
        }
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
        self.watches.allow(groups);
        self
    }
}

/// A kind with what all kinds share.
struct OfKind {
    shared: Arc<Context>,
    kind: Kind,
}

impl OfKind {
    fn reference(&self, config: &DynamicObject) -> ObjectRef<DynamicObject> {
        ObjectRef::from_obj_with(config, self.kind.resource.clone())
    }

    fn api(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.shared.client.clone(), namespace, &self.kind.resource)
    }
}

/// Why a reconcile ended early. It is tried again by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The management API server refused a request or did not answer.
    #[error("talk to the management API server")]
    Management(#[from] kube::Error),
    /// A kind that values are computed from cannot be watched, and why.
    #[error("watch {0}: {1}")]
    Unreadable(Source, String),
    /// The pass was cut off or panicked.
    #[error(transparent)]
    Pass(#[from] PassError),
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
                        shared.dependents.forget(&config);
                        shared.failures.forget(&config);
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
    if let Error::Management(kube::Error::Api(status)) = error
        && status.code == 409
    {
        // Somebody else wrote first; what they wrote is on its way through the watch.
        return Action::requeue(Duration::from_millis(100));
    }
    let (kind, name) = (&ctx.kind.resource.kind, config.name_any());
    let namespace = config.namespace().unwrap_or_default();
    warn!(kind, namespace, name, error = %chain(error), "Reconciling a configuration");
    Action::requeue(ctx.shared.failures.failed(ctx.reference(&config)))
}

/// One pass over a configuration. Whatever happens in it, others get their turn.
async fn reconcile(config: Arc<DynamicObject>, ctx: Arc<OfKind>) -> Result<Action, Error> {
    let outcome = isolated(pass(&config, &ctx)).await;
    match &outcome {
        Err(PassError::Panicked) => ctx.shared.passes.panicked(),
        Ok(Ok(_)) => ctx.shared.failures.forget(&ctx.reference(&config)),
        Err(PassError::TimedOut) | Ok(Err(_)) => {}
    }
    outcome?
}

async fn pass(config: &Arc<DynamicObject>, ctx: &OfKind) -> Result<Action, Error> {
    let Some(found) = dereference::run(config, ctx) else {
        return Ok(Action::await_change());
    };
    let evaluated = evaluate::run(ctx, &found).await?;
    let applied = apply::run(ctx, &found, &evaluated).await?;
    update_status::run(ctx, &found, &applied).await?;
    Ok(Action::requeue(if evaluated.unwatched {
        UNWATCHED
    } else {
        ctx.shared.sync_period
    }))
}

#[cfg(test)]
mod tests;
