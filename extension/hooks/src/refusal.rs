//! Refused requests.

use http::StatusCode;
use sluice_core::gate::plan_call::NoPlan;

use crate::body::Unread;
use crate::gate::{Endpoint, Outcome};
use crate::reply::Reply;
use crate::request::RequestError;

/// Reason to refuse a request without a decision.
#[derive(Debug)]
pub(crate) enum Refusal {
    NotUnderstood(RequestError),
    NotPlanned(NoPlan),
    TooLarge,
    WrongMethod,
    NotFound,
    Late,
    Busy,
    Panicked,
}

impl Refusal {
    pub(crate) const fn outcome(&self) -> Outcome {
        match self {
            Self::NotUnderstood(error) => Outcome::Failed(error.reason()),
            Self::NotPlanned(why) => Outcome::Failed(why.as_str()),
            Self::TooLarge => Outcome::TooLarge,
            Self::WrongMethod => Outcome::WrongMethod,
            Self::NotFound => Outcome::NotFound,
            Self::Late => Outcome::Late,
            Self::Busy => Outcome::Busy,
            Self::Panicked => Outcome::Panicked,
        }
    }

    /// Returns the PascalCase name for logs.
    pub(crate) const fn reason(&self) -> &'static str {
        match self.outcome() {
            Outcome::Failed(reason) => reason,
            outcome => outcome.as_str(),
        }
    }

    pub(crate) fn message(&self) -> String {
        let message = match self {
            Self::NotUnderstood(error) => return error.to_string(),
            Self::NotPlanned(why) => return why.to_string(),
            Self::TooLarge => "request body is larger than 20 MiB",
            Self::WrongMethod => "hooks are called with POST",
            Self::NotFound => "no such hook or handler",
            Self::Late => "RequestLate: the request did not arrive in time",
            Self::Busy => "RequestsTooMany: other requests have all the memory for request bodies",
            Self::Panicked => "InternalError: the answer could not be computed, see the log",
        };
        message.to_owned()
    }

    pub(crate) fn reply(&self, endpoint: Endpoint) -> Reply {
        let message = self.message();
        match (self, endpoint) {
            (Self::TooLarge, _) => Reply::refused(StatusCode::PAYLOAD_TOO_LARGE, endpoint, &message),
            (Self::WrongMethod, _) => Reply::refused(StatusCode::METHOD_NOT_ALLOWED, endpoint, &message),
            (Self::NotFound, _) => Reply::refused(StatusCode::NOT_FOUND, endpoint, &message),
            // The memory budget recovers within a moment.
            (Self::Busy, Endpoint::Hook(hook)) => Reply::hold(hook, 1, &message),
            // There is no decision this time. A hook is held; discovery and plans have no such response, and Cluster API repeats them after
            // a failure.
            (Self::Late | Self::Panicked, Endpoint::Hook(hook)) => Reply::try_again(hook, &message),
            (Self::NotUnderstood(_) | Self::NotPlanned(_) | Self::Late | Self::Busy | Self::Panicked, _) => {
                Reply::failure(endpoint, &message)
            }
        }
    }
}

impl From<Unread> for Refusal {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge => Self::TooLarge,
            Unread::Late => Self::Late,
            Unread::Busy => Self::Busy,
            Unread::Broken(reason) => Self::NotUnderstood(RequestError::Malformed(reason)),
        }
    }
}
