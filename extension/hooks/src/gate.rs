//! What the server asks, and what it tells.

use std::time::Duration;

use sluice_core::gate::decision::Decision;
use sluice_core::gate::hook_call::HookCall;
use sluice_core::reasons::HoldReason;

use crate::Hook;

/// Decides hook calls.
///
/// The answer comes from memory, at once: there is no way to wait here, and a gate that blocks its thread blocks every
/// hook of every cluster.
pub trait Gate: Send + Sync + 'static {
    /// Decides one call. A call is a hint to look sooner and never evidence: it may be repeated, and the next one may
    /// arrive at another replica.
    ///
    /// Also asked for AfterControlPlaneInitialized, whose answer is Success whatever is decided.
    fn decide(&self, call: &HookCall<'_>) -> Decision;
}

impl<G: Gate + ?Sized> Gate for std::sync::Arc<G> {
    fn decide(&self, call: &HookCall<'_>) -> Decision {
        (**self).decide(call)
    }
}

/// Hears of every request after it was answered.
pub trait Observer: Send + Sync + 'static {
    /// One request.
    fn answered(&self, answer: &Answer);
}

/// Ignores every request.
impl Observer for () {
    fn answered(&self, _: &Answer) {}
}

/// How one request was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// What was asked.
    pub endpoint: Endpoint,
    /// What was answered.
    pub outcome: Outcome,
    /// From the request's head to the answer.
    pub took: Duration,
}

/// What a request is addressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// The list of hooks.
    Discovery,
    /// One hook.
    Hook(Hook),
    /// No path that is served.
    Unknown,
}

impl Endpoint {
    /// The name for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "Discovery",
            Self::Hook(hook) => hook.as_str(),
            Self::Unknown => "Unknown",
        }
    }
}

/// What a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Go on; also the answer of discovery.
    Released,
    /// Wait, with the reason.
    Held(HoldReason),
    /// Could not be understood, with the reason.
    Failed(&'static str),
    /// Larger than any request is.
    TooLarge,
    /// Not sent with POST.
    WrongMethod,
    /// No such path.
    NotFound,
    /// Held, because the body did not arrive in time.
    Late,
    /// Held, because other requests had all the memory for bodies.
    Busy,
    /// Held, because the answer could not be computed; a defect.
    Panicked,
}

impl Outcome {
    /// The name for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "Released",
            Self::Held(_) => "Held",
            Self::Failed(_) => "Failed",
            Self::TooLarge => "TooLarge",
            Self::WrongMethod => "WrongMethod",
            Self::NotFound => "NotFound",
            Self::Late => "Late",
            Self::Busy => "Busy",
            Self::Panicked => "Panicked",
        }
    }
}
