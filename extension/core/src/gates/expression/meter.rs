//! Cost of all expressions of one reconcile of a Cluster.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    cost::{Cost, MAX_BYTES, MAX_STEPS},
    failure::{ExpressionError, exhausted},
};

/// Most that all expressions of one reconcile of a Cluster cost together.
const LIMIT: Cost = Cost {
    steps: 10 * MAX_STEPS,
    bytes: 2 * MAX_BYTES,
};

/// Result of an evaluation.
type Evaluated = Result<bool, ExpressionError>;

/// Counts the cost of the expressions of one reconcile.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<Cost>>);

impl Meter {
    /// Adds the cost of an evaluation.
    ///
    /// # Errors
    /// All together cost too much.
    fn spend(&self, cost: Cost) -> Result<(), ExpressionError> {
        let mut spent = locked(&self.0);
        let sum = spent.plus(cost);
        if !sum.is_within(LIMIT) {
            return Err(exhausted());
        }
        *spent = sum;
        Ok(())
    }
}

/// Results of one expression in one reconcile, by version. Its object, hop and Cluster are the same.
#[derive(Debug)]
pub(super) struct Metered {
    meter: Meter,
    results: Mutex<Vec<(String, Evaluated)>>,
}

impl Metered {
    pub(super) fn of(meter: &Meter) -> Self {
        Self {
            meter: meter.clone(),
            results: Mutex::default(),
        }
    }

    /// Returns the result for a version, evaluated once.
    pub(super) fn once(
        &self,
        version: &str,
        evaluate: impl FnOnce(&mut dyn FnMut(Cost) -> Result<(), ExpressionError>) -> Evaluated,
    ) -> Evaluated {
        let known = locked(&self.results)
            .iter()
            .find(|(before, _)| before == version)
            .map(|(_, result)| result.clone());
        if let Some(result) = known {
            return result;
        }
        let result = evaluate(&mut |cost| self.meter.spend(cost));
        locked(&self.results).push((version.to_owned(), result.clone()));
        result
    }
}

/// Nothing panics while it has the lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
