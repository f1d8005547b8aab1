//! The variable `TKR_DATA` of a Cluster: what machines of a Kubernetes version are made of.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

const VARIABLE: &str = "TKR_DATA";

/// The value that counts for each part of a topology: its own where it has one, else that of the Cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReleaseData(BTreeMap<String, Value>);

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

    /// Parts whose data for one of `versions` has become another, with that version. A part that is new, or gone, rolls nothing.
    pub(super) fn changed(&self, after: &Self, versions: &BTreeSet<String>) -> Vec<(String, String)> {
        let both = self
            .0
            .iter()
            .filter_map(|(part, before)| Some((part, before, after.0.get(part)?)));
        both.flat_map(|(part, before, after)| {
            versions
                .iter()
                .filter(|version| before.get(version) != after.get(version))
                .map(|version| (part.clone(), version.clone()))
        })
        .collect()
    }
}

fn variable(variables: &Value) -> Option<Value> {
    let found = variables.as_array()?.iter();
    let mut named = found.filter(|variable| variable["name"] == VARIABLE);
    Some(named.next()?["value"].clone())
}
