//! A request of a pass that was refused or not answered.

use std::sync::Arc;

use super::read::Server;
use crate::{decode::Undecodable, names::LONGEST_NAME};

/// A request that was refused, or not answered.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// The API server.
    pub server: Server,
    /// What it answered, if it did. 0 is an answer that says no code.
    pub code: Option<u16>,
    /// Its message, if it answered.
    pub message: String,
    /// Whether it answered with more than is read.
    pub too_long: bool,
    /// The object that it has and that cannot be decoded, if that is what went wrong.
    pub undecodable: Option<Arc<Undecodable>>,
    /// The whole story, for the log.
    pub text: String,
}

impl Failure {
    /// No answer of an API server.
    #[must_use]
    pub fn other(server: Server, text: &str) -> Self {
        Self {
            server,
            code: None,
            message: String::new(),
            too_long: false,
            undecodable: None,
            text: text.to_owned(),
        }
    }

    /// What was read is not what it was read for: another client wrote in between.
    #[must_use]
    pub fn overtaken(server: Server, text: &str) -> Self {
        Self {
            code: Some(409),
            ..Self::other(server, text)
        }
    }

    /// An object that cannot be decoded.
    #[must_use]
    pub fn undecodable(server: Server, object: Arc<Undecodable>) -> Self {
        let text = object.to_string();
        Self {
            undecodable: Some(object),
            ..Self::other(server, &text)
        }
    }

    pub(crate) fn unreadable(server: Server, error: &serde_json::Error) -> Self {
        Self::other(server, &format!("an object cannot be read: {error}"))
    }

    /// Whether another one has written the object first.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code == Some(409)
    }

    /// Whether it is nothing unusual: another one wrote first, an object is gone, or kapp-controller does not serve its API yet.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        matches!(self.code, Some(404 | 409 | 503))
    }

    /// Whether a server that answers so may answer otherwise in a moment.
    pub(crate) fn says_nothing(&self) -> bool {
        !self.too_long
            && self.undecodable.is_none()
            && self.code.is_none_or(|code| code == 429 || code >= 500)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code == Some(404)
    }

    /// The admission webhook because of which a write was refused: it could not be called, and its configuration forbids to go on without.
    #[must_use]
    pub fn uncalled_webhook(&self) -> Option<&str> {
        // As `apiserver/pkg/admission/plugin/webhook/errors` says it: `failed calling webhook "<name>": …`.
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
    fn the_webhook_that_could_not_be_called_is_named(#[case] message: &str, #[case] expected: Option<&str>) {
        let failure = Failure {
            code: Some(500),
            message: message.to_owned(),
            ..Failure::other(Server::Management, "")
        };
        assert_eq!(failure.uncalled_webhook(), expected);
    }
}
