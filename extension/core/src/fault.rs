//! One invalid field, formatted as the API server formats it.

use std::fmt;

use crate::reasons::Hold;

/// Field, value and error, for example `spec.cni: Invalid value: "null": package can't be nil`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field; empty for a fault of the whole object.
    pub field: String,
    /// Rejected value.
    pub value: String,
    /// Error and remedy.
    pub text: String,
}

impl Fault {
    /// Returns the fault of an invalid value.
    #[must_use]
    pub fn new(field: impl Into<String>, value: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            value: value.into(),
            text: text.into(),
        }
    }

    /// Returns the fault for which a reconcile would hold.
    #[must_use]
    pub fn of<R>(hold: Hold<R>, field: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(field, value, hold.message)
    }

    /// Returns the fault of a missing required package.
    pub(crate) fn nil(field: &str) -> Self {
        Self::new(field, "null", "package can't be nil")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, text } = self;
        if field.is_empty() {
            return f.write_str(text);
        }
        write!(f, "{field}: Invalid value: {value:?}: {text}")
    }
}
