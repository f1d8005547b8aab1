//! Objects that values are computed from, read one at a time.

use std::collections::BTreeMap;

use serde_json::Value;

use super::problem::Problem;
pub use crate::protocol::{Single, Source};

/// Reason why a computation stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuesError {
    /// The source has to be read first.
    Unread(Source),
    /// A user has to correct the problem.
    Problem(Problem),
}

impl From<Problem> for ValuesError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Objects read for one computation. The caller starts with none, reads the source that the computation stops at, and
/// repeats the computation. In the end `Sources` holds exactly the dependencies of the result.
#[derive(Debug, Default)]
pub struct Sources {
    read: BTreeMap<Source, Vec<Value>>,
}

impl Sources {
    /// Adds the objects found: none, the object, or all objects of the kind.
    pub fn insert(&mut self, source: Source, found: Vec<Value>) {
        self.read.insert(source, found);
    }

    /// Returns the dependencies of the result.
    pub fn read(&self) -> impl Iterator<Item = &Source> {
        self.read.keys()
    }

    /// Returns an object; `None` if it does not exist.
    ///
    /// # Errors
    /// The object was not read yet.
    pub fn find(&self, source: &Source) -> Result<Option<&Value>, ValuesError> {
        Ok(self.every(source)?.first())
    }

    /// Returns all objects of a kind.
    ///
    /// # Errors
    /// The objects were not read yet.
    pub fn every(&self, source: &Source) -> Result<&[Value], ValuesError> {
        self.read
            .get(source)
            .map(Vec::as_slice)
            .ok_or_else(|| ValuesError::Unread(source.clone()))
    }
}

/// Returns a string inside an object; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
