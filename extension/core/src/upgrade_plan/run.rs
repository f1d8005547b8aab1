//! Plan from cached objects alone.

use super::{Scope, UpgradePlan, plan};
use crate::{
    cache::stores::{Stored, Stores},
    clock::Clock,
    protocol::{Interrupt, Read, ReadResult},
    reconcile::cluster::{Context, Facts, LocalState},
};
use sluice_crds::{foreign::Package, run::ClusterBootstrapTemplate};

/// Maximum number of rounds of a plan: each asks for the templates of a further step.
pub const MAX_ROUNDS: usize = 64;

/// Reason why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot plan the upgrade: {0}")]
pub struct PlanFailed(pub String);

/// Returns the plan of the upgrade of a Cluster to its `topology.version`, from the same stores as its `facts`.
///
/// # Errors
/// One line that says what is not known.
pub fn plan_of(facts: &Facts, stores: &impl Stores, began: Clock) -> Result<UpgradePlan, PlanFailed> {
    // Schemas are for users who wait: this runs on every change of a version.
    let scope = Scope {
        schemas: false,
        values: false,
    };
    let local = LocalState::default();
    let mut context = Context::new(facts, &local, began);
    for _ in 0..MAX_ROUNDS {
        let reads = match plan(&context, scope) {
            Ok(plan) => return Ok(plan),
            Err(Interrupt::Need(reads)) => reads,
            Err(Interrupt::Held(hold)) => return Err(PlanFailed(hold.to_string())),
            Err(Interrupt::Failed(failure)) => return Err(PlanFailed(failure.to_string())),
            Err(Interrupt::Write(_)) => return Err(PlanFailed("a plan writes nothing".to_owned())),
        };
        let reads = context
            .unanswered(reads)
            .map_err(|error| PlanFailed(error.to_string()))?;
        for read in reads {
            let answer = match &read {
                Read::Template(release) => {
                    let system = Some(facts.settings.system_namespace.as_str());
                    let template = Stored::<ClusterBootstrapTemplate>::get(stores, system, release);
                    template.map_or(ReadResult::Absent, ReadResult::Template)
                }
                Read::Package(name) => {
                    let system = Some(facts.settings.system_namespace.as_str());
                    let package = Stored::<Package>::get(stores, system, name);
                    package.map_or(ReadResult::Absent, ReadResult::Package)
                }
                _ => return Err(PlanFailed("a plan reads only cached objects".to_owned())),
            };
            context.record_answer(read, answer);
        }
    }
    Err(PlanFailed(format!("more than {MAX_ROUNDS} rounds")))
}
