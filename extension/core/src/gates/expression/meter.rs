//! Cost of the expressions of one judgement of a Cluster.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

use super::{
    MAX_OBJECT,
    cost::{Cost, MAX_BYTES, MAX_STEPS},
    failure::{ExpressionError, exhausted},
};

/// Most that the expressions of one judgement cost together. A reconcile that opens a gate judges up to seven times.
const LIMIT: Cost = Cost {
    steps: 2 * MAX_STEPS,
    bytes: 2 * MAX_BYTES,
};

/// Bytes of JSON that cost a step with each evaluation: the cost is computed by a walk through them.
const BYTES_OF_A_STEP: usize = 16;

/// Result of an evaluation.
type Evaluated = Result<bool, ExpressionError>;

/// Counts the cost of the expressions of one judgement.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    spent: Cost,
    /// Bytes of JSON of each object by its address; `None` beyond [`MAX_OBJECT`]. All objects outlive the judgement.
    sizes: HashMap<usize, Option<usize>>,
}

impl Meter {
    /// Adds a cost.
    ///
    /// # Errors
    /// All together cost too much.
    pub(super) fn spend(&self, cost: Cost) -> Result<(), ExpressionError> {
        let mut state = locked(&self.0);
        let sum = state.spent.plus(cost);
        if !sum.is_within(LIMIT) {
            return Err(exhausted());
        }
        state.spent = sum;
        Ok(())
    }

    /// Adds the cost of an evaluation for values with so many bytes of JSON.
    ///
    /// # Errors
    /// All together cost too much.
    pub(super) fn spend_size(&self, bytes: usize) -> Result<(), ExpressionError> {
        self.spend(Cost {
            steps: u64::try_from(bytes / BYTES_OF_A_STEP).unwrap_or(u64::MAX),
            bytes: 0,
        })
    }

    /// Returns the bytes of JSON of an object, measured once; `None` beyond [`MAX_OBJECT`].
    pub(super) fn size(&self, json: &Value) -> Option<usize> {
        let address = std::ptr::from_ref(json).addr();
        let mut state = locked(&self.0);
        *state.sizes.entry(address).or_insert_with(|| size(json))
    }
}

/// Results of one expression in one judgement, by version. Its object, hop and Cluster are the same.
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
    pub(super) fn once(&self, version: &str, evaluate: impl FnOnce(&Meter) -> Evaluated) -> Evaluated {
        let known = locked(&self.results)
            .iter()
            .find(|(before, _)| before == version)
            .map(|(_, result)| result.clone());
        if let Some(result) = known {
            return result;
        }
        let result = evaluate(&self.meter);
        locked(&self.results).push((version.to_owned(), result.clone()));
        result
    }
}

/// Returns the bytes of JSON of a value; `None` beyond [`MAX_OBJECT`].
pub(super) fn size(json: &Value) -> Option<usize> {
    struct Left(usize);
    impl std::io::Write for Left {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let left = self.0.checked_sub(bytes.len());
            self.0 = left.ok_or(std::io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut left = Left(MAX_OBJECT);
    serde_json::to_writer(&mut left, json).ok()?;
    Some(MAX_OBJECT - left.0)
}

/// Nothing panics while it has the lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
