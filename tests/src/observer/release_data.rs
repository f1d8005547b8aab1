//! The variable `TKR_DATA` of a Cluster: what machines of a Kubernetes version are made of.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

const VARIABLE: &str = "TKR_DATA";

/// Label of an entry that names the release that its machines are made of.
const TKR: &str = "run.tanzu.vmware.com/tkr";

/// The value that counts for each part of a topology: its own where it has one, else that of the Cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReleaseData(BTreeMap<String, Value>);

/// The entry of a part for a version, as a write has left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryWritten {
    pub(super) part: String,
    pub(super) version: String,
    /// Release that the entry names, empty if it names none; none if the entry is gone.
    pub(super) release: Option<String>,
}

impl ReleaseData {
    pub(super) fn of(cluster: &Value) -> Self {
        let topology = &cluster["spec"]["topology"];
        let own = |part: &Value| {
            let overrides = &part["variables"]["overrides"];
            variable(overrides).or_else(|| variable(&topology["variables"]))
        };
        let control_plane = ("the control plane".to_owned(), &topology["controlPlane"]);
        let pools = [
            ("MachineDeployment", "machineDeployments"),
            ("MachinePool", "machinePools"),
        ]
        .into_iter()
        .flat_map(|(kind, field)| {
            let pools = topology["workers"][field].as_array().into_iter().flatten();
            pools.map(move |pool| {
                (
                    format!("{kind} {}", pool["name"].as_str().unwrap_or_default()),
                    pool,
                )
            })
        });
        let parts = [control_plane].into_iter().chain(pools);
        Self(
            parts
                .map(|(part, object)| (part, own(object).unwrap_or_default()))
                .collect(),
        )
    }

    /// Entries for one of `versions` that have become others. A part that is new, or gone, rolls nothing.
    pub(super) fn changed(&self, after: &Self, versions: &BTreeSet<String>) -> Vec<EntryWritten> {
        let both = self
            .0
            .iter()
            .filter_map(|(part, before)| Some((part, before, after.0.get(part)?)));
        both.flat_map(|(part, before, after)| {
            versions
                .iter()
                .filter(|version| before.get(version) != after.get(version))
                .map(|version| EntryWritten {
                    part: part.clone(),
                    version: version.clone(),
                    release: after.get(version).map(|entry| release_of(entry).to_owned()),
                })
        })
        .collect()
    }
}

fn release_of(entry: &Value) -> &str {
    entry["labels"][TKR].as_str().unwrap_or_default()
}

fn variable(variables: &Value) -> Option<Value> {
    let found = variables.as_array()?.iter();
    let mut named = found.filter(|variable| variable["name"] == VARIABLE);
    Some(named.next()?["value"].clone())
}
