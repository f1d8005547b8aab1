//! Errors of the start of a listener and of a certificate reload.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Error of the start of a listener or of a certificate reload.
///
/// The text is one line and names the file or address and the reason in full; there is no further source to print.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("read {what} {path}: {reason}", path = path.display())]
    Unreadable {
        /// Expected content of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause.
        reason: io::Error,
    },
    /// A file has other content than expected.
    #[error("parse {what} {path}: {reason}", path = path.display())]
    Invalid {
        /// Expected content of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// Certificate and key are not a pair, or are of a kind that cannot be served.
    #[error("use serving certificate {certificate} with key {key}: {reason}", certificate = certificate.display(), key = key.display())]
    Mismatch {
        /// The chain.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// Cause.
        reason: String,
    },
    /// The certificate has expired.
    #[error("use serving certificate {path}: expired at {not_after}", path = path.display())]
    Expired {
        /// The chain.
        path: PathBuf,
        /// Expiration.
        not_after: jiff::Timestamp,
    },
    /// The socket cannot be bound.
    #[error("listen on {address}: {reason}; change {flags}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Flags that set the address.
        flags: &'static str,
        /// Cause.
        reason: io::Error,
    },
}

impl Error {
    /// Returns the PascalCase name for events and metrics.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "CertificateUnreadable",
            Self::Invalid { .. } => "CertificateInvalid",
            Self::Mismatch { .. } => "CertificateMismatch",
            Self::Expired { .. } => "CertificateExpired",
            Self::Bind { .. } => "BindFailed",
        }
    }
}
