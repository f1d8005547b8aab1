//! Responses of API servers: status codes, failures and discovery.

use kube::{Client, api::ApiResource, discovery};
use sluice_core::{
    error_chain::error_chain,
    protocol::{Failure, Server},
};

use crate::kube_client::bounded::is_too_long;

/// The status that a request was refused with; none where it was not answered.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// What became of a request that was refused or not answered.
pub(crate) fn failure(server: Server, error: &kube::Error) -> Failure {
    let text = error_chain(error);
    let (code, message) = match error {
        kube::Error::Api(status) => (Some(status.code), status.message.clone()),
        _ => (None, String::new()),
    };
    Failure {
        server,
        code,
        message,
        too_long: is_too_long(error),
        text,
        ..Failure::other(server, "")
    }
}

/// How a kind is served; `None` when it is not.
pub(crate) async fn served(client: &Client, group: &str, kind: &str) -> kube::Result<Option<ApiResource>> {
    match discovery::group(client, group).await {
        Ok(group) => Ok(group.recommended_kind(kind).map(|(resource, _)| resource)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
