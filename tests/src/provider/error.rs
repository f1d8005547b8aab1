//! Errors of a reconcile of the provider.

/// A failed reconcile; it is tried again.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub(super) struct Error(#[from] anyhow::Error);

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self(error.into())
    }
}
