use super::MAX_BYTES;

/// Reason to refuse a kubeconfig.
///
/// It names fields by the names of the format and by position. It never repeats text of the file: no value, no entry
/// name, no unknown key. The message appears in conditions, which not only the owner can read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The file exceeds the size limit.
    #[error("the file has more than {MAX_BYTES} bytes")]
    TooLarge,
    /// The file is not text.
    #[error("the file is not UTF-8")]
    NotText,
    /// Not YAML, more than one document, or nested too deep.
    #[error("line {line} is not the YAML of a kubeconfig")]
    Malformed {
        /// Counted from 1; 0 if the reader does not report it.
        line: u64,
    },
    /// Anchors, aliases and merge keys expand a short file, and let one entry change another.
    #[error("line {line} has a YAML anchor, alias or merge key, which are not used here")]
    Alias {
        /// Counted from 1; 0 if the reader does not report it.
        line: u64,
    },
    /// A repeated key. Readers differ in their choice.
    #[error("line {line} repeats a key")]
    DuplicateKey {
        /// Counted from 1; 0 if the reader does not report it.
        line: u64,
    },
    /// A field that starts a program, reads a file, impersonates a user or skips the verification of the server.
    #[error("{field} is not used here; {instead}")]
    NotUsed {
        /// Path of the field.
        field: String,
        /// The remedy.
        instead: &'static str,
    },
    /// A value of another type.
    #[error("{field} is not {expected}")]
    Type {
        /// Path of the field.
        field: String,
        /// The expected type.
        expected: &'static str,
    },
    /// A required field is missing.
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
    /// No current context, and not exactly one context to use instead.
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
    /// Not the URL of a proxy. client-go accepts more: zones of IPv6, names beyond ASCII and port 0.
    #[error("{field} is not an http, https or socks5 URL of a proxy")]
    Proxy {
        /// Path of the field.
        field: String,
    },
    /// A token that cannot be sent in a header.
    #[error("{field} has characters that no token has")]
    Token {
        /// Path of the field.
        field: String,
    },
    /// Data that is empty or not base64.
    #[error("{field} is not base64 of anything")]
    NotBase64 {
        /// Path of the field.
        field: String,
    },
    /// A user without credentials.
    #[error("{section} has neither token nor client-certificate-data nor username")]
    NoCredentials {
        /// Path of the user.
        section: String,
    },
    /// A user with two contents for the same header.
    #[error("{section} has both token and username or password; keep one")]
    TwoCredentials {
        /// Path of the user.
        section: String,
    },
}

impl Refused {
    /// Returns the reason in one word, for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge => "TooLarge",
            Self::NotText | Self::Malformed { .. } => "Malformed",
            Self::Alias { .. } => "Alias",
            Self::DuplicateKey { .. } | Self::DuplicateName { .. } => "Duplicate",
            Self::NotUsed { .. } => "FieldRefused",
            Self::Type { .. }
            | Self::Server { .. }
            | Self::Proxy { .. }
            | Self::Token { .. }
            | Self::NotBase64 { .. } => "FieldInvalid",
            Self::Missing { .. } => "FieldMissing",
            Self::NoContext | Self::Dangling { .. } => "ContextUnclear",
            Self::NoCredentials { .. } | Self::TwoCredentials { .. } => "CredentialsUnclear",
        }
    }
}
