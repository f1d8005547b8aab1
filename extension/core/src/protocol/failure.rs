//! Failed requests of a reconcile: refused, unanswered or unreadable.

use std::{fmt, sync::Arc};

use super::read::Server;
use crate::{decode::Undecodable, names::LONGEST_NAME};

/// Failed request: refused, unanswered, or answered with unreadable content.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// API server of the request.
    pub server: Server,
    /// HTTP status code of the response, if there was one; 0 if the response names no code.
    pub code: Option<u16>,
    /// Message of the response; empty without a response.
    pub message: String,
    /// Whether the response exceeds a size limit.
    pub too_long: bool,
    /// Cause of a failed connection, if TLS or a proxy reports it. The text is constant as long as the cause is.
    pub cause: Option<String>,
    /// Object that cannot be decoded, if that is the cause.
    pub undecodable: Option<Arc<Undecodable>>,
    /// Full error text, for the log.
    pub text: String,
}

impl Failure {
    /// Returns a failure without a response of the API server.
    #[must_use]
    pub fn other(server: Server, text: &str) -> Self {
        Self {
            server,
            code: None,
            message: String::new(),
            too_long: false,
            cause: None,
            undecodable: None,
            text: text.to_owned(),
        }
    }

    /// Returns the failure of a read that another client's write made obsolete.
    #[must_use]
    pub fn overtaken(server: Server, text: &str) -> Self {
        Self {
            code: Some(409),
            ..Self::other(server, text)
        }
    }

    /// Returns the failure of an object that cannot be decoded.
    #[must_use]
    pub fn undecodable(server: Server, object: Arc<Undecodable>) -> Self {
        let text = object.to_string();
        Self {
            undecodable: Some(object),
            ..Self::other(server, &text)
        }
    }

    pub(crate) fn unreadable(server: Server, error: &impl fmt::Display) -> Self {
        Self::other(server, &format!("an object cannot be read: {error}"))
    }

    /// Returns whether another client wrote the object first.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code == Some(409)
    }

    /// Returns whether an operation of a JSON patch failed, such as the test of a resourceVersion: kube-apiserver states no details then
    /// (`NewGenericServerResponse` of apimachinery).
    #[must_use]
    pub fn is_failed_patch(&self) -> bool {
        self.code == Some(422)
            && self
                .message
                .starts_with("the server rejected our request due to an error in our request")
    }

    /// Returns whether the failure is expected: a conflict, a deleted object, or an API that kapp-controller does not serve yet.
    #[must_use]
    pub fn is_expected(&self) -> bool {
        matches!(self.code, Some(404 | 409 | 503))
    }

    /// Returns whether the failure is transient, so that the next attempt may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        !self.too_long
            && self.undecodable.is_none()
            && self.code.is_none_or(|code| code == 429 || code >= 500)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code == Some(404)
    }

    /// Returns the admission webhook that the API server failed to call, if its failure policy made the API server refuse the write.
    #[must_use]
    pub fn uncalled_webhook(&self) -> Option<&str> {
        // Format of `apiserver/pkg/admission/plugin/webhook/errors`: `failed calling webhook "<name>": …`.
        let (_, named) = self.message.split_once("failed calling webhook \"")?;
        let (name, _) = named.split_once('"')?;
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        (!name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(good)).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_the_addons_manager(
        "Internal error occurred: failed calling webhook \"clusterpause.mutating.vmware.com\": failed to call webhook: Post \
         \"https://tanzu-addons-manager-webhook-service.tkg-system.svc:443/mutate?timeout=30s\": dial tcp: no such host",
        Some("clusterpause.mutating.vmware.com")
    )]
    #[case::that_has_denied(
        "admission webhook \"clusterbootstrap.validating.vmware.com\" denied the request: package downgrade is not allowed",
        None
    )]
    #[case::without_a_name("failed calling webhook \"\": no", None)]
    #[case::with_a_name_that_is_none("failed calling webhook \"a b\": no", None)]
    #[case::of_nothing("", None)]
    fn names_the_uncalled_webhook(#[case] message: &str, #[case] expected: Option<&str>) {
        let failure = Failure {
            code: Some(500),
            message: message.to_owned(),
            ..Failure::other(Server::Management, "")
        };
        assert_eq!(failure.uncalled_webhook(), expected);
    }
}
