//! Requests of one upgrade, by the audit logs of both API servers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::side::Flow;
use super::stand_in;
use crate::scenario::Cluster;
use crate::stack::audit::{ADMIN, Audited, Log, Request, SLUICE, What};
use crate::wait;

/// Time without a request after which a flow is done with an upgrade.
const REST: SignedDuration = SignedDuration::from_secs(2);

/// Timeout of a flow after the upgrade.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Users whose requests are written down.
pub(crate) fn audited() -> Audited {
    Audited::users(&[SLUICE, stand_in::NAME, ADMIN])
}

/// Requests to one API server. Leases are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Reads of objects, and watches that were begun.
    pub reads: usize,
    /// Requests for served resources.
    pub discovery: usize,
    /// Changes.
    pub writes: usize,
    /// Number of requests by verb and resource, such as `patch secrets`.
    pub by_kind: BTreeMap<String, usize>,
}

/// The logs of both servers of a Cluster.
pub(crate) struct Logs {
    flow: Flow,
    management: Log,
    workload: Log,
}

impl Logs {
    pub(crate) fn of(flow: Flow, cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            flow,
            management: cluster.scene().world().stack().management().audit(),
            workload: cluster.workload()?.api.audit(),
        })
    }

    /// Waits until the flow sends no more requests to either server.
    pub(crate) async fn are_at_rest(&mut self) -> Result<()> {
        let logs = tokio::sync::Mutex::new(self);
        wait::until("the flow to be done with an upgrade", TIMEOUT, || async {
            let mut logs = logs.lock().await;
            match logs.last()? {
                Some((at, uri)) if Timestamp::now().duration_since(at) < REST => wait::not_yet(uri),
                _ => Ok(()),
            }
        })
        .await?;
        Ok(())
    }

    fn last(&mut self) -> Result<Option<(Timestamp, String)>> {
        let flow = self.flow;
        let last = |log: &mut Log, is_own: fn(Flow, &Request) -> bool| -> Result<_> {
            let own = log.requests()?.iter().rev().find(|asked| is_own(flow, asked));
            Ok(own.map(|asked| (asked.at, asked.uri.clone())))
        };
        let management = last(&mut self.management, on_management)?;
        Ok(management.max(last(&mut self.workload, on_workload)?))
    }

    /// Requests of the flow to the management API server and to that of the workload, from `began` on.
    pub(crate) fn since(&mut self, began: Timestamp) -> Result<[Counts; 2]> {
        let flow = self.flow;
        let count = |log: &mut Log, is_own: fn(Flow, &Request) -> bool| -> Result<Counts> {
            let own = log.requests()?.iter();
            Ok(Counts::of(
                own.filter(|asked| asked.at >= began && is_own(flow, asked)),
            ))
        };
        Ok([
            count(&mut self.management, on_management)?,
            count(&mut self.workload, on_workload)?,
        ])
    }
}

impl Counts {
    fn of<'a>(requests: impl Iterator<Item = &'a Request>) -> Self {
        let mut counts = Self::default();
        for Request {
            what, verb, resource, ..
        } in requests
        {
            match what {
                What::Discovery => counts.discovery += 1,
                What::Read => counts.reads += 1,
                What::Write => counts.writes += 1,
                What::Lease => {}
            }
            if matches!(what, What::Read | What::Write) {
                *counts.by_kind.entry(format!("{verb} {resource}")).or_default() += 1;
            }
        }
        counts
    }
}

fn on_management(flow: Flow, request: &Request) -> bool {
    let user = match flow {
        Flow::Sluice => SLUICE,
        Flow::Pause => stand_in::NAME,
    };
    request.user == user && request.what != What::Lease
}

/// The harness has a user agent, and so has Cluster API; Sluice sends none.
fn on_workload(flow: Flow, request: &Request) -> bool {
    let agent = match flow {
        Flow::Sluice => "",
        Flow::Pause => stand_in::NAME,
    };
    request.user == ADMIN && request.agent == agent
}
