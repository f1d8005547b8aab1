//! Why a listener cannot start, or a new certificate cannot be taken.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a listener cannot start, or a new certificate cannot be taken.
///
/// The text is one line and names the file or address and the reason in full; there is no further source to print.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("read {what} {path}: {reason}", path = path.display())]
    Unreadable {
        /// What the file should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// A file can be read, but holds something else.
    #[error("parse {what} {path}: {reason}", path = path.display())]
    Invalid {
        /// What the file should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Certificate and key are not a pair, or are of a kind that cannot be served.
    #[error("use serving certificate {certificate} with key {key}: {reason}", certificate = certificate.display(), key = key.display())]
    Mismatch {
        /// The chain.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The certificate is past its end.
    #[error("use serving certificate {path}: expired at {not_after}", path = path.display())]
    Expired {
        /// The chain.
        path: PathBuf,
        /// The end.
        not_after: jiff::Timestamp,
    },
    /// The socket cannot be bound.
    #[error("listen on {address}: {reason}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why not.
        reason: io::Error,
    },
}

impl Error {
    /// The PascalCase name for events and metrics.
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
