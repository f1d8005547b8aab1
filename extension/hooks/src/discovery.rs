//! Discovery: the list of hooks.

use serde::Serialize;
use sluice_core::gate::hook_call::{GENERATE_UPGRADE_PLAN, GENERATE_UPGRADE_PLAN_HANDLER};

use crate::handler;
use crate::profile::Profile;
use crate::{API_VERSION, Hook};

/// Seconds that a caller waits for a response. Meanwhile one of its few workers is blocked, so the caller must notice a stuck
/// server soon.
pub const TIMEOUT_SECONDS: u32 = 3;

/// Response to a discovery request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryResponse {
    api_version: &'static str,
    kind: &'static str,
    status: &'static str,
    message: &'static str,
    handlers: Vec<Handler>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Handler {
    name: &'static str,
    request_hook: RequestHook,
    timeout_seconds: u32,
    /// `Ignore` would let an upgrade continue while no replica responds.
    failure_policy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestHook {
    api_version: &'static str,
    hook: &'static str,
}

impl DiscoveryResponse {
    /// Returns the hooks of `profile`: one handler per hook, because Cluster API calls several in random
    /// order.
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        let planner = profile
            .plans_upgrades()
            .then(|| Handler::named(GENERATE_UPGRADE_PLAN_HANDLER, GENERATE_UPGRADE_PLAN));
        Self {
            api_version: API_VERSION,
            kind: "DiscoveryResponse",
            status: "Success",
            message: "",
            handlers: profile.hooks().map(Handler::of).chain(planner).collect(),
        }
    }
}

impl Handler {
    const fn of(hook: Hook) -> Self {
        Self::named(handler(hook), hook.as_str())
    }

    const fn named(name: &'static str, hook: &'static str) -> Self {
        Self {
            name,
            request_hook: RequestHook {
                api_version: API_VERSION,
                hook,
            },
            timeout_seconds: TIMEOUT_SECONDS,
            failure_policy: "Fail",
        }
    }
}
