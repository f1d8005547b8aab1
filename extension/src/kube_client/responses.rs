//! Responses of API servers: status codes, failures and discovery.

use kube::{Client, api::ApiResource, discovery};
use sluice_core::{
    error_chain::error_chain,
    protocol::{Failure, Server},
};

use crate::kube_client::{bounded::is_too_long, cause::cause};

/// Returns the status code of an error response; `None` without a response.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Maps an error to a failure: a refused request, or one without a response.
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
        cause: cause(error),
        text,
        ..Failure::other(server, "")
    }
}

/// Discovers how a kind is served; `None` when it is not served.
pub(crate) async fn served(client: &Client, group: &str, kind: &str) -> kube::Result<Option<ApiResource>> {
    match discovery::group(client, group).await {
        Ok(group) => Ok(group.recommended_kind(kind).map(|(resource, _)| resource)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
