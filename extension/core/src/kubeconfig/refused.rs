use super::MAX_BYTES;

/// Why a kubeconfig is not used.
///
/// Names fields by the names of the format and by position. It never holds text of the file: not a value, not the name
/// of an entry, not an unknown key, because this message ends in conditions that others than the owner read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Larger than any kubeconfig needs to be.
    #[error("the file has more than {MAX_BYTES} bytes")]
    TooLarge,
    /// Bytes that are no text.
    #[error("the file is not UTF-8")]
    NotText,
    /// No YAML, or more than one document, or nested deeper than a kubeconfig is.
    #[error("line {line} is not the YAML of a kubeconfig")]
    Malformed {
        /// Counted from 1; 0 where the reader does not know.
        line: u64,
    },
    /// Anchors, aliases and merge keys let a short file become a long one, and one entry change another.
    #[error("line {line} has a YAML anchor, alias or merge key, which are not used here")]
    Alias {
        /// Counted from 1; 0 where the reader does not know.
        line: u64,
    },
    /// Readers differ in which of two equal keys they take.
    #[error("line {line} repeats a key")]
    DuplicateKey {
        /// Counted from 1; 0 where the reader does not know.
        line: u64,
    },
    /// A field of kubeconfigs that starts a program, reads a file, leads elsewhere or weakens the check of the server.
    #[error("{field} is not used here; {instead}")]
    NotUsed {
        /// Path of the field.
        field: String,
        /// What to do about it.
        instead: &'static str,
    },
    /// A field that kubeconfigs do not have.
    #[error("{section} has an unknown field; known here: {known}")]
    Unknown {
        /// Path of what has it.
        section: String,
        /// The fields that it may have.
        known: String,
    },
    /// A value of another type.
    #[error("{field} is not {expected}")]
    Type {
        /// Path of the field.
        field: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// A field without which there is no connection.
    #[error("{field} is missing")]
    Missing {
        /// Path of the field.
        field: String,
    },
    /// Two entries of one list with the same name.
    #[error("{field} is also the name of an earlier entry")]
    DuplicateName {
        /// Path of the later name.
        field: String,
    },
    /// No current context, and not exactly one to take instead.
    #[error("current-context is missing, and contexts has not exactly one entry")]
    NoContext,
    /// A reference to an entry that does not exist.
    #[error("{field} names no entry of this file")]
    Dangling {
        /// Path of the reference.
        field: String,
    },
    /// An address that is not plain HTTPS.
    #[error("{field} is not an https URL of host, port and path alone")]
    Server {
        /// Path of the field.
        field: String,
    },
    /// A token that cannot be sent in a header.
    #[error("{field} has characters that no token has")]
    Token {
        /// Path of the field.
        field: String,
    },
    /// Data that cannot be decoded, or nothing.
    #[error("{field} is not base64 of anything")]
    NotBase64 {
        /// Path of the field.
        field: String,
    },
    /// A user without a way to prove who it is.
    #[error("{section} has neither token nor client-certificate-data")]
    NoCredentials {
        /// Path of the user.
        section: String,
    },
    /// Clients differ in which of two identities wins.
    #[error("{section} has both token and client-certificate-data; keep one")]
    TwoCredentials {
        /// Path of the user.
        section: String,
    },
}

impl Refused {
    /// The kind of refusal in one word, for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge => "TooLarge",
            Self::NotText | Self::Malformed { .. } => "Malformed",
            Self::Alias { .. } => "Alias",
            Self::DuplicateKey { .. } | Self::DuplicateName { .. } => "Duplicate",
            Self::NotUsed { .. } => "FieldRefused",
            Self::Unknown { .. } => "FieldUnknown",
            Self::Type { .. } | Self::Server { .. } | Self::Token { .. } | Self::NotBase64 { .. } => {
                "FieldInvalid"
            }
            Self::Missing { .. } => "FieldMissing",
            Self::NoContext | Self::Dangling { .. } => "ContextUnclear",
            Self::NoCredentials { .. } | Self::TwoCredentials { .. } => "CredentialsUnclear",
        }
    }
}
