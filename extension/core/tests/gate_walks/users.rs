//! Edits of users.

use serde_json::{Value, json};
use sluice_crds::labels::annotation::PAUSED;

use crate::{
    addons::{Addons, apply, wanted},
    objects::{
        CHARTS, VERSIONS, a_chart, agent, chart, cluster, control_plane, gate, manifest, put_cluster,
        release, row, rows, target, upgrade, versions_at, workers_gate, workers_manifest,
    },
    servers::Place,
    walk::Walk,
};

/// Rows of the gate before the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// One row for each version.
    All,
    /// Those of an old manifest, before the second version.
    Old,
    /// An alternative for the second version, with the chart of the third.
    Alternative,
}

/// Edit of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Raises the target.
    Target(usize),
    /// Moves the target back to the version of the control plane.
    Back,
    /// Sets the label that gates select, or removes it.
    Label(bool),
    PauseCluster(bool),
    /// Deletes the Cluster and creates it again, at the first version.
    Again,
    /// Deletes the ClusterUpgrade.
    NoRecord,
    /// The workload API server stops to respond, or responds again.
    Silent(bool),
    /// Sets the version of the HelmChartProxy, or creates it.
    Chart(usize),
    /// Sets its values: `fine`, `broken`, or `broken for another Cluster`.
    Values(&'static str),
    InstallOnce(bool),
    PauseChart(bool),
    PauseRelease(bool),
    /// Deletes the HelmChartProxy and its HelmReleaseProxy.
    NoChart,
    /// Deletes the HelmReleaseProxy.
    NoRelease,
    /// Sets the image of the DaemonSet by hand, or creates it.
    Image(usize),
    NoAgent,
    OnDelete(bool),
    NoPod(usize),
    /// Applies the manifest of the gate before the control plane.
    Manifest,
    Rows(Rows),
    Mode(&'static str),
    Before(&'static str),
    /// Sets the label `cni` that the gate selects; an empty value selects every Cluster.
    Selector(&'static str),
    NoGate,
    /// Creates the gate before the workers, or deletes it.
    WorkersGate(bool),
}

impl Walk {
    /// Makes an edit.
    pub(crate) fn edit(&mut self, edit: Edit) {
        match edit {
            Edit::Target(version) if version > target(&self.servers) => self.retarget(version),
            Edit::Back => {
                let [version, _] = versions_at(&self.servers, &control_plane());
                self.retarget(version);
            }
            Edit::Label(is_set) => {
                let labels = if is_set {
                    json!({"cni": "cilium"})
                } else {
                    json!({})
                };
                self.set(&cluster(), "/metadata/labels", labels);
            }
            Edit::PauseCluster(pauses) => self.set(&cluster(), "/spec/paused", json!(pauses)),
            Edit::Again => {
                put_cluster(&mut self.servers);
                self.addons = Addons::default();
                self.oracle.forget();
            }
            Edit::NoRecord => self.servers.remove(&upgrade()),
            Edit::Silent(is_silent) => self.is_silent = is_silent,
            Edit::Manifest | Edit::Rows(_) | Edit::Mode(_) | Edit::Before(_) | Edit::Selector(_) => {
                self.edit_gate(edit);
            }
            Edit::NoGate => self.servers.remove(&gate()),
            Edit::WorkersGate(true) if self.servers.get(&workers_gate()).is_none() => {
                self.servers.put(workers_gate(), workers_manifest());
            }
            Edit::Target(_) | Edit::WorkersGate(true) => {}
            Edit::WorkersGate(false) => self.servers.remove(&workers_gate()),
            edit => self.edit_addon(edit),
        }
    }

    /// Sets a field of an object, if the object exists.
    fn set(&mut self, place: &Place, pointer: &str, value: Value) {
        let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
        self.servers.edit(place, |object| {
            if let Some(parent) = object.pointer_mut(parent) {
                parent[field] = value;
            }
        });
    }

    fn retarget(&mut self, version: usize) {
        self.set(&cluster(), "/spec/topology/version", json!(VERSIONS[version]));
    }

    fn edit_gate(&mut self, edit: Edit) {
        let (pointer, value) = match edit {
            Edit::Rows(Rows::Old) => ("/spec/versions", json!([row(0, 0)])),
            Edit::Rows(Rows::Alternative) => {
                let rows = json!([row(0, 0), row(1, 1), row(1, 2), row(2, 2)]);
                ("/spec/versions", rows)
            }
            Edit::Rows(Rows::All) => ("/spec/versions", rows()),
            Edit::Mode(mode) => ("/spec/mode", json!(mode)),
            Edit::Before(before) => ("/spec/before", json!(before)),
            Edit::Selector("") => ("/spec/clusterSelector", json!({})),
            Edit::Selector(cni) => ("/spec/clusterSelector", json!({"matchLabels": {"cni": cni}})),
            _ => {
                if self.servers.get(&gate()).is_none() {
                    self.servers.put(gate(), manifest());
                }
                ("/spec", manifest()["spec"].clone())
            }
        };
        self.set(&gate(), pointer, value);
    }

    fn edit_addon(&mut self, edit: Edit) {
        let annotated = |pauses| {
            if pauses {
                json!({PAUSED: "true"})
            } else {
                json!({})
            }
        };
        match edit {
            Edit::Chart(version) if self.servers.get(&chart()).is_none() => {
                self.servers.put(chart(), a_chart(version));
            }
            Edit::Chart(version) => self.set(&chart(), "/spec/version", json!(CHARTS[version])),
            Edit::Values(values) => self.set(&chart(), "/spec/valuesTemplate", json!(values)),
            Edit::InstallOnce(once) => {
                let strategy = if once { "InstallOnce" } else { "Continuous" };
                self.set(&chart(), "/spec/reconcileStrategy", json!(strategy));
            }
            Edit::PauseChart(pauses) => self.set(&chart(), "/metadata/annotations", annotated(pauses)),
            Edit::PauseRelease(pauses) => self.set(&release(), "/metadata/annotations", annotated(pauses)),
            Edit::NoChart => {
                self.servers.remove(&chart());
                self.addons.uninstall(&mut self.servers);
            }
            Edit::NoRelease => self.addons.uninstall(&mut self.servers),
            Edit::Image(version) => apply(&mut self.servers, CHARTS[version]),
            Edit::NoAgent => self.addons.delete_agent(&mut self.servers),
            Edit::OnDelete(on_delete) => {
                let strategy = if on_delete { "OnDelete" } else { "RollingUpdate" };
                self.set(&agent(), "/spec/updateStrategy/type", json!(strategy));
            }
            Edit::NoPod(node) => self.addons.delete_pod(node),
            edit => panic!("{edit:?} is no edit of an add-on"),
        }
    }

    /// Users correct their inputs.
    pub(crate) fn mend(&mut self) {
        let [taken, _] = versions_at(&self.servers, &control_plane());
        if target(&self.servers) < taken {
            // The target was moved back while Cluster API took the step.
            self.retarget(taken);
        }
        for edit in [
            Edit::Silent(false),
            Edit::PauseCluster(false),
            Edit::Label(true),
            Edit::Manifest,
            Edit::Chart(wanted(&self.servers)),
            Edit::Values("fine"),
            Edit::InstallOnce(false),
            Edit::PauseChart(false),
            Edit::PauseRelease(false),
            Edit::OnDelete(false),
        ] {
            self.edit(edit);
        }
        if self.servers.get(&agent()).is_none() {
            let version = CHARTS[wanted(&self.servers)];
            apply(&mut self.servers, version);
        }
    }
}
