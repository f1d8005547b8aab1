//! The objects that values are computed from, fetched one question at a time.

use std::collections::BTreeMap;

use serde_json::Value;

use super::problem::Problem;
pub use crate::protocol::{Single, Source};

/// Why a computation stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuesError {
    /// This has to be read first.
    Unread(Source),
    /// A user has to correct this.
    Problem(Problem),
}

impl From<Problem> for ValuesError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// What was read for one computation. Its holder begins with nothing, reads what the computation stops at, and
/// tries again: in the end it holds exactly what the result depends on.
#[derive(Debug, Default)]
pub struct Sources {
    read: BTreeMap<Source, Vec<Value>>,
}

impl Sources {
    /// Adds what was found: nothing, the object, or all objects of the kind.
    pub fn insert(&mut self, source: Source, found: Vec<Value>) {
        self.read.insert(source, found);
    }

    /// What the result depends on.
    pub fn read(&self) -> impl Iterator<Item = &Source> {
        self.read.keys()
    }

    /// An object; `None` when it does not exist.
    ///
    /// # Errors
    /// It was not read yet.
    pub fn find(&self, source: &Source) -> Result<Option<&Value>, ValuesError> {
        Ok(self.every(source)?.first())
    }

    /// All objects of a kind.
    ///
    /// # Errors
    /// They were not read yet.
    pub fn every(&self, source: &Source) -> Result<&[Value], ValuesError> {
        self.read
            .get(source)
            .map(Vec::as_slice)
            .ok_or_else(|| ValuesError::Unread(source.clone()))
    }
}

/// A string inside an object; empty when there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
