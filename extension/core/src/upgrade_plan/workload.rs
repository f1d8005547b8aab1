//! Objects of a workload cluster that stop or suffer from a replacement of Nodes.

mod budget;
mod list;
mod requested_api;

use std::str::FromStr as _;

pub use self::list::List;
pub(crate) use self::list::page;
use self::requested_api::RequestedApi;
use super::{
    Hop,
    finding::{Finding, FindingReason, WarningReason},
};
use crate::{
    text::one_line,
    version::{KubernetesVersion, Ordered},
};

/// Maximum number of findings of one reason. A further one counts the rest.
const OF_REASON: usize = 20;

/// Number of minor versions that a kubelet may be older than its API server.
const SKEW: u64 = 3;

/// Longest name of an object in a message, with its namespace, in characters.
const LONGEST_NAME: usize = 320;

/// Longest [`summary`], in characters. The note of an Event has at most 1 KiB.
const LONGEST_SUMMARY: usize = 1000;

/// Text of a [`summary`] of objects that are [incomplete](WorkloadObjects::incomplete).
const NOT_ALL_CHECKED: &str = "not all objects were checked";

/// Reason of such a summary without a warning.
const OBJECTS_NOT_CHECKED: &str = "ObjectsNotChecked";

/// What was read from a workload cluster. A list that was not read is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadObjects {
    /// What PodDisruptionBudgets say that permit no eviction.
    budgets: Vec<(WarningReason, String)>,
    /// Pods without a controller, `shop/once`.
    pods: Vec<String>,
    /// Name and version of the kubelet of Nodes.
    nodes: Vec<(String, String)>,
    /// Requested APIs that a version no longer serves.
    requested: Vec<RequestedApi>,
    /// Whether a list failed or ended early.
    is_incomplete: bool,
}

impl WorkloadObjects {
    /// Marks that a list failed or ended early.
    #[must_use]
    pub fn incomplete(self) -> Self {
        Self {
            is_incomplete: true,
            ..self
        }
    }

    /// Adds the metrics of an API server, of which only `apiserver_requested_deprecated_apis` is kept.
    pub fn add_metrics(&mut self, text: &str) {
        let mut requested: Vec<RequestedApi> = text.lines().filter_map(RequestedApi::of).collect();
        requested.sort();
        requested.dedup();
        self.requested = requested;
    }

    /// Returns the memory of the texts, in bytes.
    pub(crate) fn size(&self) -> usize {
        const ELEMENT: usize = 2 * size_of::<String>();
        let budgets = self.budgets.iter().map(|(_, text)| ELEMENT + text.len());
        let pods = self.pods.iter().map(|name| ELEMENT + name.len());
        let nodes = self
            .nodes
            .iter()
            .map(|(name, version)| ELEMENT + name.len() + version.len());
        budgets.chain(pods).chain(nodes).sum()
    }
}

/// Warning about one object.
#[derive(Debug)]
struct Warning<'a> {
    hop: Option<&'a str>,
    message: String,
}

/// Returns the warnings for an upgrade over these steps.
#[must_use]
pub fn findings(objects: &WorkloadObjects, hops: &[Hop]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (reason, warnings) in by_reason(objects, hops) {
        let reason = FindingReason::Warning(reason);
        let rest = warnings.len().saturating_sub(OF_REASON);
        let shown = warnings.into_iter().take(OF_REASON);
        findings.extend(shown.map(|warning| Finding::new(warning.hop, reason, warning.message)));
        if rest > 0 {
            findings.push(Finding::new(None, reason, format!("and {rest} more")));
        }
    }
    findings
}

/// Returns the first reason, and the warnings for one step on one line, with one object for each reason.
pub(crate) fn summary(objects: &WorkloadObjects, hop: &str) -> Option<(&'static str, String)> {
    let hops = [Hop {
        version: hop.to_owned(),
        release: None,
        workers: false,
        packages: Vec::new(),
    }];
    let warnings = by_reason(objects, &hops);
    let reason = match warnings.first() {
        Some((first, _)) => first.as_str(),
        None if objects.is_incomplete => OBJECTS_NOT_CHECKED,
        None => return None,
    };
    let of_reason = warnings.iter().filter_map(|(_, warnings)| {
        let message = &warnings.first()?.message;
        Some(match warnings.len() - 1 {
            0 => message.clone(),
            rest => format!("{message} (and {rest} more)"),
        })
    });
    // First, so that it is never cut off.
    let not_all = objects.is_incomplete.then(|| NOT_ALL_CHECKED.to_owned());
    let texts: Vec<String> = not_all.into_iter().chain(of_reason).collect();
    let text = format!("{hop}: {}", texts.join("; "));
    Some((reason, one_line(&text, LONGEST_SUMMARY)))
}

/// Returns the warnings by reason, without reasons that have none.
fn by_reason<'a>(objects: &WorkloadObjects, hops: &'a [Hop]) -> Vec<(WarningReason, Vec<Warning<'a>>)> {
    use WarningReason::{
        EvictionNeverAllowed, EvictionNotAllowedNow, NodeTooOld, PodWithoutController, RemovedAPIRequested,
    };
    if hops.is_empty() {
        return Vec::new();
    }
    // Most Pods run on workers.
    let drained = hops.iter().find(|hop| hop.workers);
    let drained = drained.map(|hop| hop.version.as_str());
    let budgets = |reason: WarningReason| {
        let of_reason = objects.budgets.iter().filter(|(of, _)| *of == reason);
        let warnings = of_reason.map(|(_, message)| Warning {
            hop: drained,
            message: message.clone(),
        });
        (reason, warnings.collect::<Vec<Warning<'a>>>())
    };
    let pods = objects.pods.iter().map(|name| Warning {
        hop: drained,
        message: format!("Pod {name} has no controller: a drain deletes it for good"),
    });
    let nodes = objects.nodes.iter().filter_map(|node| too_old(node, hops));
    let requested = objects.requested.iter().filter_map(|api| removed(api, hops));
    let mut by_reason: Vec<(WarningReason, Vec<Warning<'a>>)> = vec![
        budgets(EvictionNeverAllowed),
        budgets(EvictionNotAllowedNow),
        (PodWithoutController, pods.collect()),
        (NodeTooOld, nodes.collect()),
        (RemovedAPIRequested, requested.collect()),
    ];
    by_reason.retain(|(_, warnings)| !warnings.is_empty());
    by_reason
}

/// Returns the warning about a Node that is too old for a step. Once the workers have followed a step, they are as new as it.
fn too_old<'a>((name, kubelet): &(String, String), hops: &'a [Hop]) -> Option<Warning<'a>> {
    let version = KubernetesVersion::from_str(kubelet).ok()?;
    let followed = hops.iter().position(|hop| hop.workers);
    let mut as_they_are = hops.iter().take(followed.map_or(hops.len(), |at| at + 1));
    let (hop, behind) = as_they_are.find_map(|hop| {
        let control_plane = KubernetesVersion::from_str(&hop.version).ok()?;
        let behind = control_plane.minors_ahead_of(&version);
        (behind > SKEW).then_some((hop.version.as_str(), behind))
    })?;
    Some(Warning {
        hop: Some(hop),
        message: format!("Node {name}: kubelet {kubelet} is {behind} minor versions older than {hop}"),
    })
}

/// Returns the warning about an API that a step no longer serves.
fn removed<'a>(api: &RequestedApi, hops: &'a [Hop]) -> Option<Warning<'a>> {
    let is_removed = |hop: &&Hop| Ordered::of(&hop.version).is_some_and(|at| at.minor() >= api.removed);
    let hop = hops.iter().find(is_removed)?;
    let (major, minor) = api.removed;
    Some(Warning {
        hop: Some(&hop.version),
        message: format!(
            "a client has requested {}, which Kubernetes {major}.{minor} no longer serves",
            api.name
        ),
    })
}

/// Returns namespace and name of an object, for messages.
fn place(namespace: &str, name: &str) -> String {
    one_line(&format!("{namespace}/{name}"), LONGEST_NAME)
}

#[cfg(test)]
mod tests;
