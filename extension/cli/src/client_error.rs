//! Errors of kube as texts without credentials.

use std::{error::Error, iter};

use kube::{client::AuthError, config::KubeconfigError};
use sluice_core::error_chain::error_chain;

/// Renders an error of a client or of a request. Errors about a credential plugin repeat its output, arguments and variables, which may
/// contain a token.
pub(super) fn of_client(error: &kube::Error) -> String {
    let first: &(dyn Error + 'static) = error;
    let mut errors = iter::successors(Some(first), |&error| error.source());
    match errors.find_map(|error| error.downcast_ref::<AuthError>()) {
        Some(AuthError::AuthExecRun { out, .. }) => {
            format!("the credential plugin of the kubeconfig failed: {}", out.status)
        }
        Some(AuthError::AuthExecParse(_)) => {
            "the credential plugin of the kubeconfig printed no ExecCredential".to_owned()
        }
        Some(AuthError::AuthExec(_) | AuthError::ParseTokenKey(_)) => {
            "the credential plugin of the kubeconfig failed".to_owned()
        }
        _ => error_chain(error),
    }
}

/// Renders an error of a kubeconfig. A parser quotes the file.
pub(super) fn of_kubeconfig(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => error.location().map_or_else(
            || "it is not a kubeconfig".to_owned(),
            |location| format!("line {} is not that of a kubeconfig", location.line()),
        ),
        // A field that names a proxy is refused before.
        KubeconfigError::ParseProxyUrl(_) => "variable HTTPS_PROXY is not a URL".to_owned(),
        error => error.to_string(),
    }
}
