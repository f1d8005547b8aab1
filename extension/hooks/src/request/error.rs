//! Errors of invalid requests.

/// Error of an invalid request.
///
/// Cluster API copies the text into conditions: it is short, contains only data of the request, and is the same for the
/// same request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The body is empty.
    #[error("request body is empty")]
    Empty,
    /// Not JSON, or a field of a wrong type.
    #[error("request body is not a valid request: {}", excerpt(.0))]
    Malformed(String),
    /// Arrays or objects beyond the nesting limit.
    #[error("request body is nested too deep")]
    TooDeep,
    /// `apiVersion` or `kind` of another object.
    #[error("{field} is {:?}, want {want:?}", excerpt(.found))]
    WrongType {
        /// Path of the field.
        field: &'static str,
        /// The value in the request.
        found: String,
        /// The expected value.
        want: String,
    },
    /// A field that identifies the cluster or the version is absent, null or empty.
    #[error("{0} is missing")]
    Missing(String),
    /// A field has the right type and an invalid value.
    #[error("{field} {:?} is not {want}", excerpt(.found))]
    Invalid {
        /// Path of the field.
        field: String,
        /// The value in the request.
        found: String,
        /// The expected value.
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
