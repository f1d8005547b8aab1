//! Reconcilers, and what they share.

pub mod bootstrap;
pub mod providers;

mod isolate;
mod write;

pub use isolate::PassError;

use kube::{Client, core::ApiResource, discovery};
use sluice_core::chain::chain;

/// How a kind is served; `None` when it is not.
pub(crate) async fn served(client: &Client, group: &str, kind: &str) -> kube::Result<Option<ApiResource>> {
    match discovery::group(client, group).await {
        Ok(group) => Ok(group.recommended_kind(kind).map(|(resource, _)| resource)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
