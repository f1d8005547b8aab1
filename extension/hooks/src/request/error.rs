//! Why a request cannot be understood.

/// Why a request cannot be understood.
///
/// The text goes to the caller, who puts it into conditions: it is short, says no more than the caller sent, and is the
/// same for the same request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Nothing was sent.
    #[error("request body is empty")]
    Empty,
    /// Not JSON, or a field of another type than the API says.
    #[error("request body is not a valid request: {}", excerpt(.0))]
    Malformed(String),
    /// Arrays or objects nested deeper than in any request.
    #[error("request body is nested too deep")]
    TooDeep,
    /// `apiVersion` or `kind` belong to something else.
    #[error("{field} is {:?}, want {want:?}", excerpt(.found))]
    WrongType {
        /// Path of the field.
        field: &'static str,
        /// What was sent.
        found: String,
        /// What belongs there.
        want: String,
    },
    /// A field that identifies the cluster or the version is absent, null or empty.
    #[error("{0} is missing")]
    Missing(String),
    /// A field has the right type and an impossible value.
    #[error("{field} {:?} is not {want}", excerpt(.found))]
    Invalid {
        /// Path of the field.
        field: String,
        /// What was sent.
        found: String,
        /// What belongs there.
        want: &'static str,
    },
}

impl RequestError {
    /// The PascalCase name for metrics and logs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Empty => "EmptyBody",
            Self::Malformed(_) => "MalformedBody",
            Self::TooDeep => "BodyTooDeep",
            Self::WrongType { .. } => "WrongType",
            Self::Missing(_) => "MissingField",
            Self::Invalid { .. } => "InvalidField",
        }
    }
}

/// The beginning of a text that a peer chose, at most 120 characters.
fn excerpt(text: &str) -> &str {
    text.char_indices().nth(120).map_or(text, |(end, _)| &text[..end])
}
