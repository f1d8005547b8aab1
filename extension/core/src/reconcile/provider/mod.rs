//! One pass over one configuration: a pure function of what is known.
//!
//! What the package needs is written first, the Secret with its values last; then the status says what came of it.

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

/// How soon a configuration of a hot Cluster is looked at again whose result depends on what no watch shows: Secrets are read by name.
const UNWATCHED: Duration = Duration::from_secs(10);

/// One configuration.
pub struct Configuration {
    /// Its kind.
    pub kind: Kind,
    /// The configuration itself.
    pub object: Arc<DynamicObject>,
    /// How often it is looked at when nothing happens.
    pub sync_period: SyncPeriod,
    /// Whether its Cluster has a connection with watches to its workload.
    pub is_hot: bool,
}

/// What a pass leaves.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    /// What the configuration depends on.
    pub sources: Vec<Source>,
    /// What is wrong; `Some(None)` is nothing any more.
    pub problem: Option<Option<Problem>>,
    /// Namespace and name of its Cluster, which is to be looked at once something was written: it may wait for nothing else.
    pub cluster: Option<(String, String)>,
}

/// All that is known to one pass over a configuration.
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

    fn reconcile(known: &Context<'_>, effects: &mut Effects) -> Step<Done> {
        reconcile(known, effects)
    }
}

/// The pass, as far as it comes with what is known. `after` is what it leaves, also where it does not come to its end.
///
/// # Errors
/// What has to be read or written before it goes on; or why it cannot.
pub fn reconcile(known: &Context<'_>, effects: &mut Effects) -> Step<Done> {
    let Configuration {
        object,
        sync_period,
        is_hot,
        ..
    } = known.facts;
    let is_template = object.annotations().contains_key(annotation::TEMPLATE_CONFIG);
    if is_template || object.metadata.deletion_timestamp.is_some() {
        return Ok(Done::Forget);
    }
    effects.sources = known.sources().collect();
    let (mut uid, mut unwatched) = (object.uid(), false);
    let outcome = match owner::cluster(known) {
        // It takes its configurations with it.
        Ok(found) if found.metadata.deletion_timestamp.is_some() => return Ok(Done::AwaitChange),
        Ok(found) => {
            if let Some(problem) = owner::paused(known.facts, found) {
                return rest(known, effects, &problem);
            }
            uid = found.uid();
            effects.cluster = Some((found.namespace().unwrap_or_default(), found.name_any()));
            written(known, found, &mut unwatched)
        }
        Err(stop) => Err(stop),
    };
    let (secret, problem) = match outcome {
        Ok(secret) => (Some(secret), None),
        Err(stop) => (None, Some(stop.held()?)),
    };
    effects.problem = Some(problem.clone());
    status::write(known, secret, problem.as_ref())?;
    let uid = uid.unwrap_or_default();
    Ok(Done::RequeueAfter(match problem {
        _ if unwatched && *is_hot => UNWATCHED,
        Some(_) if unwatched => wait(&uid, status::not_ready_for(known)),
        // With its Cluster, whose look finds what this pass has written.
        _ => sync_period.until_resync(&uid, known.began.instant),
    }))
}

/// The Cluster is paused: nothing is written but that this is why there are no values, where they are not there.
fn rest(known: &Context<'_>, effects: &mut Effects, problem: &Problem) -> Step<Done> {
    if !status::is_current(known) {
        effects.problem = Some(Some(problem.clone()));
        status::write(known, None, Some(problem))?;
    }
    Ok(Done::AwaitChange)
}

/// Writes all that follows from a configuration. Says the name of the Secret with the values.
fn written(known: &Context<'_>, cluster: &Cluster, unwatched: &mut bool) -> Step<String> {
    let config = known.facts;
    let (output, sources) = values::values(known, cluster, unwatched)?;
    let secret = secret::wanted(config, cluster, &output)?;
    // One that was found by its name is made one of its Cluster.
    let adopted = iter::once_with(|| objects::adopt(known, cluster, config.key(), &config.object.metadata));
    let extra = output
        .objects
        .iter()
        .map(|wanted| objects::extra(known, wanted, &output.former_owners));
    let removed = output
        .obsolete
        .iter()
        .map(|source| objects::remove(known, source));
    let owned = output
        .owned
        .iter()
        .map(|source| objects::adopt_secret(known, cluster, &sources, source));
    let values = iter::once_with(|| secret::write(known, &secret));
    // All of it is read at once, and written in this order.
    in_order(together(
        adopted.chain(extra).chain(removed).chain(owned).chain(values),
    )?)?;
    Ok(secret.name_any())
}

mod reasons;
#[cfg(test)]
mod tests;
