//! Operations of RFC 6902 that change a Cluster.

use serde_json::{Value, json};
use sluice_crds::{
    foreign::cluster::{Topology, Variable, VariableOverrides, Variables, WorkerTopology},
    labels::name,
};

use super::{data::Entries, part::pools};

/// Returns the variable overrides of a part.
pub(super) fn overrides(variables: Option<&VariableOverrides>) -> &Variables {
    static NONE: Variables = Variables::NONE;
    variables.map_or(&NONE, |variables| &variables.overrides)
}

/// Returns the variable overrides of the control plane.
pub(super) fn control_plane_overrides(topology: &Topology) -> &Variables {
    let part = topology.control_plane.as_ref();
    overrides(part.and_then(|part| part.variables.as_ref()))
}

/// Returns the lists of variables that may have entries, each with its field: of the Cluster first, then of the control plane and of each
/// pool.
pub(super) fn variable_lists(topology: &Topology) -> impl Iterator<Item = (String, &Variables)> {
    let own = ("spec.topology.variables".to_owned(), &topology.variables);
    let of_control_plane = (
        "spec.topology.controlPlane.variables.overrides".to_owned(),
        control_plane_overrides(topology),
    );
    let of_pools = pools(topology).map(|(list, _, pool)| {
        let field = format!("spec.topology.workers.{list}[{}].variables.overrides", pool.name);
        (field, overrides(pool.variables.as_ref()))
    });
    [own, of_control_plane].into_iter().chain(of_pools)
}

/// Sets an entry of `variables`, which exist if `present`.
pub(super) fn put(
    variables: &Variables,
    present: bool,
    path: &str,
    entries: &Entries,
    steps: &mut Vec<Value>,
) {
    let value = Value::Object(entries.clone());
    match variables.get(name::TKR_DATA) {
        Some(variable) if variable.value() == value => {}
        Some(Variable { at, .. }) => steps.push(replace(&format!("{path}/{at}/value"), value)),
        None if entries.is_empty() => {}
        None => {
            let variable = json!({"name": name::TKR_DATA, "value": value});
            steps.push(if present {
                json!({"op": "add", "path": format!("{path}/-"), "value": variable})
            } else {
                json!({"op": "add", "path": path, "value": [variable]})
            });
        }
    }
}

/// Sets the override of a part; removes it if there are no entries.
pub(super) fn put_override(
    overrides: &Variables,
    present: bool,
    path: &str,
    entries: Option<&Entries>,
    steps: &mut Vec<Value>,
) {
    let at = overrides.get(name::TKR_DATA).map(|variable| variable.at);
    match (at, entries) {
        (None, None) => {}
        // Removes the list with its last override.
        (Some(_), None) if overrides.len() == 1 => steps.push(json!({"op": "remove", "path": path})),
        (Some(at), None) => steps.push(json!({"op": "remove", "path": format!("{path}/overrides/{at}")})),
        (_, Some(entries)) if present => {
            put(
                overrides,
                !overrides.is_empty(),
                &format!("{path}/overrides"),
                entries,
                steps,
            );
        }
        (_, Some(entries)) => {
            let variable = json!({"name": name::TKR_DATA, "value": entries});
            steps.push(json!({"op": "add", "path": path, "value": {"overrides": [variable]}}));
        }
    }
}

/// Sets the override of the control plane, whose field may be missing in the topology.
pub(super) fn put_control_plane(topology: &Topology, entries: Option<&Entries>, steps: &mut Vec<Value>) {
    const PATH: &str = "/spec/topology/controlPlane";
    match (&topology.control_plane, entries) {
        (Some(part), _) => put_override(
            control_plane_overrides(topology),
            part.variables.is_some(),
            &format!("{PATH}/variables"),
            entries,
            steps,
        ),
        (None, Some(entries)) => {
            let variable = json!({"name": name::TKR_DATA, "value": entries});
            steps.push(json!({"op": "add", "path": PATH, "value": {"variables": {"overrides": [variable]}}}));
        }
        (None, None) => {}
    }
}

/// Sets the override of a pool.
pub(super) fn put_pool(
    list: &str,
    index: usize,
    pool: &WorkerTopology,
    entries: Option<&Entries>,
    steps: &mut Vec<Value>,
) {
    let path = format!("/spec/topology/workers/{list}/{index}/variables");
    let present = pool.variables.is_some();
    put_override(overrides(pool.variables.as_ref()), present, &path, entries, steps);
}

pub(super) fn replace(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "replace", "path": path, "value": value.into()})
}
