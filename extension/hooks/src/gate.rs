//! Interfaces of the server: the gate that decides calls, and the observer of responses.

use std::net::IpAddr;
use std::time::Duration;

use sluice_core::gate::decision::Decision;
use sluice_core::gate::hook_call::{GENERATE_UPGRADE_PLAN, HookCall, OwnedHookCall};
use sluice_core::gate::plan_call::{NoPlan, PlanCall};
use sluice_core::reasons::HoldReason;

use crate::Hook;

/// Decides hook calls: holds from the cache, releases after a read.
pub trait Gate: Send + Sync + 'static {
    /// Decides one call at once, from the cache: a blocked thread blocks every hook of every cluster. A release is a proposal only,
    /// see [`confirm`](Gate::confirm). A call is a hint to reconcile sooner and never evidence: it may be repeated, and the next one may
    /// arrive at another replica.
    ///
    /// Also called for AfterControlPlaneInitialized, whose response is Success for any decision.
    fn decide(&self, call: &HookCall<'_>) -> Decision;

    /// Decides a call of this peer again that [`decide`](Gate::decide) has released, on objects read from the API server after the call
    /// arrived. The body of the call is dropped by then. The future ends within half a second: Cluster API waits.
    fn confirm(&self, call: OwnedHookCall, peer: IpAddr) -> impl Future<Output = Decision> + Send;

    /// Returns the steps of the control plane for a call of GenerateUpgradePlan of this peer: from the cache, or within half a second from
    /// a read. They release nothing.
    fn plan(&self, call: PlanCall, peer: IpAddr) -> impl Future<Output = Result<Vec<String>, NoPlan>> + Send;
}

impl<G: Gate> Gate for std::sync::Arc<G> {
    fn decide(&self, call: &HookCall<'_>) -> Decision {
        (**self).decide(call)
    }

    fn confirm(&self, call: OwnedHookCall, peer: IpAddr) -> impl Future<Output = Decision> + Send {
        (**self).confirm(call, peer)
    }

    fn plan(&self, call: PlanCall, peer: IpAddr) -> impl Future<Output = Result<Vec<String>, NoPlan>> + Send {
        (**self).plan(call, peer)
    }
}

/// Observes every request after its response.
pub trait Observer: Send + Sync + 'static {
    /// One request.
    fn answered(&self, answer: &Answer);
}

/// Ignores every request.
impl Observer for () {
    fn answered(&self, _: &Answer) {}
}

/// Outcome of one request.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The requested endpoint.
    pub endpoint: Endpoint,
    /// The outcome.
    pub outcome: Outcome,
    /// Time from the request's head to the response.
    pub took: Duration,
}

/// Endpoint of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// The list of hooks.
    Discovery,
    /// One hook with gates.
    Hook(Hook),
    /// Hook GenerateUpgradePlan.
    UpgradePlan,
    /// Unknown path.
    Unknown,
}

impl Endpoint {
    /// Returns the name for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "Discovery",
            Self::Hook(hook) => hook.as_str(),
            Self::UpgradePlan => GENERATE_UPGRADE_PLAN,
            Self::Unknown => "Unknown",
        }
    }
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Released; also the outcome of discovery and of a plan.
    Released,
    /// Held, with the reason.
    Held(HoldReason),
    /// Invalid request, or an upgrade that cannot be planned, with the reason.
    Failed(&'static str),
    /// The body exceeds the size limit.
    TooLarge,
    /// Not sent with POST.
    WrongMethod,
    /// No such path.
    NotFound,
    /// Held, because the body did not arrive before the deadline.
    Late,
    /// Held, because other requests have used up the memory budget for bodies.
    Busy,
    /// Held, because the decision or its confirmation panicked; a defect.
    Panicked,
}

impl Outcome {
    /// Returns the name for metrics.
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
