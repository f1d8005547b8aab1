//! Answers of lifecycle hooks, as they go over the wire.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use sluice_core::gate::decision::Decision;

use crate::Hook;
use crate::gate::Endpoint;

/// A message goes into conditions of 10,240 bytes at most, beside messages of others.
const MAX_MESSAGE: usize = 1024;

/// Seconds until the next call when an answer could not be computed.
const TRY_AGAIN: u32 = 5;

/// One answer. `status` and, where the hook has it, `retryAfterSeconds` are always sent: callers refuse an answer
/// without the former and read a missing one of the latter as "go on".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    #[serde(skip)]
    code: StatusCode,
    status: Status,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Status {
    Success,
    Failure,
}

impl Reply {
    /// What a gate decided about `hook`.
    #[must_use]
    pub fn decided(hook: Hook, decision: &Decision) -> Self {
        match decision {
            Decision::Release => Self::release(hook),
            Decision::Hold {
                retry_after, message, ..
            } => Self::hold(hook, retry_after.seconds(), message),
        }
    }

    /// Go on. The message is empty, because those of all handlers are shown together, also of those that pass.
    fn release(hook: Hook) -> Self {
        Self::success(hook, 0, String::new())
    }

    /// Wait. AfterControlPlaneInitialized has no way to say so: it is always a success.
    pub(crate) fn hold(hook: Hook, retry_after: u32, message: &str) -> Self {
        if blocks(hook) {
            Self::success(hook, retry_after.max(1), shortened(message))
        } else {
            Self::release(hook)
        }
    }

    /// Wait a little, because this time there is no answer. Never a failure: a caller backs off from failures for up
    /// to a quarter of an hour, and stops everything else that it does for the cluster.
    pub(crate) fn try_again(hook: Hook, message: &str) -> Self {
        Self::hold(hook, TRY_AGAIN, message)
    }

    /// The request cannot be understood.
    pub(crate) fn failure(endpoint: Endpoint, message: &str) -> Self {
        let retry_after_seconds = match endpoint {
            Endpoint::Hook(hook) if blocks(hook) => Some(0),
            _ => None,
        };
        Self {
            code: StatusCode::OK,
            status: Status::Failure,
            message: shortened(message),
            retry_after_seconds,
        }
    }

    /// The request is refused for what HTTP says about it.
    pub(crate) fn refused(code: StatusCode, endpoint: Endpoint, message: &str) -> Self {
        Self {
            code,
            ..Self::failure(endpoint, message)
        }
    }

    fn success(hook: Hook, retry_after: u32, message: String) -> Self {
        let retry_after_seconds = blocks(hook).then_some(retry_after);
        Self {
            code: StatusCode::OK,
            status: Status::Success,
            message,
            retry_after_seconds,
        }
    }

    /// The body as it is sent.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        // Strings and numbers: there is nothing in it that JSON could not say.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// Whether the answer of a hook has `retryAfterSeconds`.
const fn blocks(hook: Hook) -> bool {
    !matches!(hook, Hook::AfterControlPlaneInitialized)
}

fn shortened(message: &str) -> String {
    let end = message.floor_char_boundary(MAX_MESSAGE);
    message[..end].to_owned()
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = json(self.to_bytes());
        *response.status_mut() = self.code;
        if self.code == StatusCode::METHOD_NOT_ALLOWED {
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
        }
        response
    }
}

/// A JSON answer of known length, so that a connection can be used again after it.
pub(crate) fn json(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
