//! One invalid field, in the words of the API server.

use std::fmt;

use crate::reasons::Hold;

/// A field, its value and what is wrong with it: `spec.cni: Invalid value: "null": package can't be nil`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field; empty where it is about the whole object.
    pub field: String,
    /// The value that is refused.
    pub value: String,
    /// What is wrong, and the way out.
    pub text: String,
}

impl Fault {
    /// A value that a field may not have.
    #[must_use]
    pub fn new(field: impl Into<String>, value: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            value: value.into(),
            text: text.into(),
        }
    }

    /// What a pass would hold for.
    #[must_use]
    pub fn of<R>(hold: Hold<R>, field: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(field, value, hold.message)
    }

    /// A package that has to be there.
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
