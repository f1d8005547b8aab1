//! Reconcile of one configuration: a pure function of its context.
//!
//! It writes the objects that the package needs first, then the values Secret, and the status last.

mod objects;
mod owner;
mod secret;
mod status;
mod values;

use std::{fmt, iter, sync::Arc, time::Duration};

use kube::{ResourceExt, core::DynamicObject};
use sluice_crds::{foreign::Cluster, labels::annotation};

pub use reasons::Reasons;
use status::reason;

use crate::providers::{Kind, Problem, Source};
use crate::{
    protocol::{
        self, Done, Key, Reconciler, Server,
        interrupt::{in_order, together},
    },
    schedule::{SyncPeriod, wait},
};

/// Requeue interval for a configuration of a hot Cluster that depends on unwatched objects: Secrets are read by name.
const UNWATCHED: Duration = Duration::from_secs(10);

/// Configuration with the inputs of its reconcile.
pub struct Configuration {
    /// Kind of the configuration.
    pub kind: Kind,
    /// Configuration object.
    pub object: Arc<DynamicObject>,
    /// Resync interval.
    pub sync_period: SyncPeriod,
    /// Whether the Cluster has a connection with watches to its workload cluster.
    pub is_hot: bool,
}

/// Effects of a reconcile.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    /// Sources that the configuration depends on.
    pub sources: Vec<Source>,
    /// Problem of the configuration; `Some(None)` if an earlier one is resolved.
    pub problem: Option<Option<Problem>>,
    /// Namespace and name of its Cluster, to be requeued after a write: the Cluster may wait for only that.
    pub cluster: Option<(String, String)>,
}

/// Context of the reconcile of a configuration.
pub type Context<'a> = protocol::Context<'a, Configuration>;

type Interrupt = protocol::Interrupt<Problem>;
type Step<T> = protocol::Step<T, Problem>;

impl From<Problem> for Interrupt {
    fn from(problem: Problem) -> Self {
        Self::Held(problem)
    }
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named())
    }
}

impl Configuration {
    /// `AntreaConfig ns1/c1-antrea-package`.
    fn named(&self) -> String {
        let (kind, namespace) = (&self.kind.resource.kind, self.namespace());
        format!("{kind} {namespace}/{}", self.object.name_any())
    }

    fn namespace(&self) -> String {
        self.object.namespace().unwrap_or_default()
    }

    fn key(&self) -> Key {
        Key {
            server: Server::Management,
            resource: (&self.kind.resource).into(),
            namespace: self.object.namespace(),
            name: self.object.name_any(),
        }
    }
}

impl Reconciler for Configuration {
    type LocalState = ();
    type Effects = Effects;
    type Hold = Problem;

    fn effects((): &()) -> Effects {
        Effects::default()
    }

    fn reconcile(context: &Context<'_>, effects: &mut Effects) -> Step<Done> {
        reconcile(context, effects)
    }
}

/// Reconciles a configuration as far as the known results allow. Fills `effects` even if the reconcile is incomplete.
///
/// # Errors
/// The missing reads or writes, or the reason why the reconcile cannot continue.
pub fn reconcile(context: &Context<'_>, effects: &mut Effects) -> Step<Done> {
    let Configuration {
        object,
        sync_period,
        is_hot,
        ..
    } = context.facts;
    let is_template = object.annotations().contains_key(annotation::TEMPLATE_CONFIG);
    if is_template || object.metadata.deletion_timestamp.is_some() {
        return Ok(Done::Forget);
    }
    effects.sources = context.sources().collect();
    let (mut uid, mut unwatched) = (object.uid(), false);
    let outcome = match owner::cluster(context) {
        // Garbage collection deletes the configurations of a deleted Cluster.
        Ok(found) if found.metadata.deletion_timestamp.is_some() => return Ok(Done::AwaitChange),
        Ok(found) => {
            if let Some(problem) = owner::paused(context.facts, found) {
                return rest(context, effects, &problem);
            }
            uid = found.uid();
            effects.cluster = Some((found.namespace().unwrap_or_default(), found.name_any()));
            written(context, found, &mut unwatched)
        }
        Err(stop) => Err(stop),
    };
    let (secret, problem) = match outcome {
        Ok(secret) => (Some(secret), None),
        Err(stop) => (None, Some(stop.held()?)),
    };
    effects.problem = Some(problem.clone());
    status::write(context, secret, problem.as_ref())?;
    let uid = uid.unwrap_or_default();
    Ok(Done::RequeueAfter(match problem {
        _ if unwatched && *is_hot => UNWATCHED,
        Some(_) if unwatched => wait(&uid, status::not_ready_for(context)),
        // Resync together with the Cluster, whose reconcile then observes these writes.
        _ => sync_period.until_resync(&uid, context.began.instant),
    }))
}

/// Handles a paused Cluster: writes only the pause as the reason for missing or outdated values.
fn rest(context: &Context<'_>, effects: &mut Effects, problem: &Problem) -> Step<Done> {
    if !status::is_current(context) {
        effects.problem = Some(Some(problem.clone()));
        status::write(context, None, Some(problem))?;
    }
    Ok(Done::AwaitChange)
}

/// Writes all objects of a configuration and returns the name of the values Secret.
fn written(context: &Context<'_>, cluster: &Cluster, unwatched: &mut bool) -> Step<String> {
    let config = context.facts;
    let (output, sources) = values::values(context, cluster, unwatched)?;
    let secret = secret::wanted(config, cluster, &output)?;
    // A configuration that was found by its name gets the Cluster as an owner.
    let adopted = iter::once_with(|| objects::adopt(context, cluster, config.key(), &config.object.metadata));
    let extra = output
        .objects
        .iter()
        .map(|wanted| objects::extra(context, wanted, &output.former_owners));
    let removed = output
        .obsolete
        .iter()
        .map(|source| objects::remove(context, source));
    let owned = output
        .owned
        .iter()
        .map(|source| objects::adopt_secret(context, cluster, &sources, source));
    let values = iter::once_with(|| secret::write(context, &secret, output.addon));
    // The parts are read together and written in this order.
    in_order(together(
        adopted.chain(extra).chain(removed).chain(owned).chain(values),
    )?)?;
    Ok(secret.name_any())
}

mod reasons;
#[cfg(test)]
mod tests;
