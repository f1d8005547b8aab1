//! Wire format of responses to lifecycle hooks.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use sluice_core::gate::decision::Decision;

use crate::Hook;
use crate::gate::Endpoint;

/// Longest message, in bytes. Conditions hold 10,240 bytes at most, and contain messages of other extensions too.
const MAX_MESSAGE: usize = 1024;

/// Seconds until the next call if there is no decision.
const TRY_AGAIN: u32 = 5;

/// One response. It always contains `status` and, if the hook has it, `retryAfterSeconds`: callers refuse a response
/// without the former and take a missing latter as a release.
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
    /// Builds the response for a decision about `hook`.
    #[must_use]
    pub fn decided(hook: Hook, decision: &Decision) -> Self {
        match decision {
            Decision::Release => Self::release(hook),
            Decision::Hold {
                retry_after, message, ..
            } => Self::hold(hook, retry_after.seconds(), message),
        }
    }

    /// Builds a release. Its message is empty, because Cluster API shows the messages of all handlers together.
    fn release(hook: Hook) -> Self {
        Self::success(hook, 0, String::new())
    }

    /// Builds a hold. AfterControlPlaneInitialized cannot hold: its response is always a success.
    pub(crate) fn hold(hook: Hook, retry_after: u32, message: &str) -> Self {
        if blocks(hook) {
            Self::success(hook, retry_after.max(1), shortened(message))
        } else {
            Self::release(hook)
        }
    }

    /// Builds a short hold, because there is no decision this time. Never a failure: a caller backs off from failures for up
    /// to a quarter of an hour, and stops all other work on the cluster.
    pub(crate) fn try_again(hook: Hook, message: &str) -> Self {
        Self::hold(hook, TRY_AGAIN, message)
    }

    /// Builds a failure for an invalid request.
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

    /// Builds a refusal with an HTTP status code.
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

    /// Returns the body as JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        // Strings and numbers always serialize.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// Response to GenerateUpgradePlan. Cluster API plans the steps of workers where a response has none: as few as possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanReply {
    status: Status,
    message: &'static str,
    control_plane_upgrades: Vec<PlannedStep>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct PlannedStep {
    version: String,
}

impl PlanReply {
    /// Builds the response with these versions of the control plane.
    pub(crate) fn of(steps: Vec<String>) -> Self {
        Self {
            status: Status::Success,
            message: "",
            control_plane_upgrades: steps.into_iter().map(|version| PlannedStep { version }).collect(),
        }
    }
}

impl IntoResponse for PlanReply {
    fn into_response(self) -> Response {
        // Strings always serialize.
        json(serde_json::to_vec(&self).unwrap_or_default().into())
    }
}

/// Whether the response of a hook has `retryAfterSeconds`.
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

/// Builds a JSON response of known length, so that the connection can be reused.
pub(crate) fn json(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
