//! Edits of users.

use serde_json::{Value, json};
use sluice_crds::labels::annotation::PAUSED;

use crate::{
    addons::{Addons, apply, wanted},
    flux::{KUBECONFIG, REQUESTED_AT},
    objects::{
        CHARTS, System, VERSIONS, a_backend, a_definition, agent, apis, audit_gate, audit_manifest, backend,
        chart, cluster, control_plane, definition, gate, helm_release, kustomization, manifest, put_cluster,
        put_delivery, row, rows, source, target, upgrade, versions_at, workers_gate, workers_manifest,
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
    /// Sets the version that is delivered, or creates the objects of the system for it.
    Chart(usize),
    /// Suspends the delivery and sets the version, in one write. A Kustomization gets another path in that write.
    SuspendAt(usize),
    /// Sets the values, or the path of the Kustomization: `fine`, `broken`, or another one. CAAPH stops at `broken for another Cluster`.
    Values(&'static str),
    InstallOnce(bool),
    /// Suspends the object that names the version, or resumes it.
    PauseChart(bool),
    /// Suspends the object that is applied, or resumes it.
    PauseRelease(bool),
    /// Requests a reconcile of the object that is applied, by the annotation of Flux.
    Request,
    /// Pushes a commit to the repository of the Kustomization.
    Commit,
    /// Delivers to another Cluster, or to this one again.
    Elsewhere(bool),
    /// Deletes all objects of the system.
    NoChart,
    /// Deletes the object that is applied.
    NoRelease,
    /// Applies the CustomResourceDefinition that comes with a version of the chart.
    Definition(usize),
    /// Sets whether the definition is established.
    Established(bool),
    NoDefinition,
    /// Sets the version that the Backend wants, or creates it.
    Backend(usize),
    /// Removes the status of the Backend.
    NoStatus,
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
    /// Creates an Audit gate whose checks are never proven, or deletes it.
    AuditGate(bool),
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
                put_cluster(&mut self.servers, self.setup);
                self.addons = Addons::of(self.setup);
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
            Edit::AuditGate(true) if self.servers.get(&audit_gate()).is_none() => {
                self.servers.put(audit_gate(), audit_manifest(self.setup));
            }
            Edit::Target(_) | Edit::WorkersGate(true) | Edit::AuditGate(true) => {}
            Edit::WorkersGate(false) => self.servers.remove(&workers_gate()),
            Edit::AuditGate(false) => self.servers.remove(&audit_gate()),
            Edit::Image(_) | Edit::NoAgent | Edit::OnDelete(_) | Edit::NoPod(_) => self.edit_agent(edit),
            Edit::Definition(_)
            | Edit::Established(_)
            | Edit::NoDefinition
            | Edit::Backend(_)
            | Edit::NoStatus => {
                if self.setup.has_extras {
                    self.edit_extra(edit);
                }
            }
            edit => self.edit_delivery(edit),
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
                let manifest = manifest(self.setup);
                let spec = manifest["spec"].clone();
                if self.servers.get(&gate()).is_none() {
                    self.servers.put(gate(), manifest);
                }
                ("/spec", spec)
            }
        };
        self.set(&gate(), pointer, value);
    }

    fn edit_delivery(&mut self, edit: Edit) {
        let system = self.setup.system;
        match edit {
            Edit::Chart(version) => self.want(version),
            Edit::SuspendAt(version) => self.suspend_at(version),
            Edit::Values(values) => {
                let (place, pointer) = system.content();
                self.set(&place, pointer, json!(values));
            }
            Edit::InstallOnce(once) => {
                let strategy = if once { "InstallOnce" } else { "Continuous" };
                self.set(&chart(), "/spec/reconcileStrategy", json!(strategy));
            }
            Edit::PauseChart(pauses) => self.suspend(&system.wants().0, pauses),
            Edit::PauseRelease(pauses) => self.suspend(&system.delivered(), pauses),
            Edit::Request if system != System::Caaph => {
                let requested = json!({REQUESTED_AT: "now"});
                self.set(&system.delivered(), "/metadata/annotations", requested);
            }
            Edit::Request => {}
            Edit::Commit => self.addons.commit(),
            Edit::Elsewhere(is_elsewhere) => {
                let secret = if is_elsewhere {
                    "two-kubeconfig"
                } else {
                    KUBECONFIG
                };
                if system != System::Caaph {
                    self.set(
                        &system.delivered(),
                        "/spec/kubeConfig/secretRef/name",
                        json!(secret),
                    );
                }
            }
            Edit::NoChart => {
                self.servers.remove(&system.wants().0);
                self.addons.uninstall(&mut self.servers);
            }
            Edit::NoRelease => self.addons.uninstall(&mut self.servers),
            edit => panic!("{edit:?} is no edit of a delivery"),
        }
    }

    /// Wants a version of the add-on.
    fn want(&mut self, version: usize) {
        let system = self.setup.system;
        put_delivery(&mut self.servers, system, version);
        let (place, pointer) = system.wants();
        if wanted(&self.servers, system) != version {
            // The version comes with a commit. A tag never returns to the revision of an earlier one.
            self.addons.commit();
        }
        self.set(&place, pointer, json!(CHARTS[version]));
    }

    /// Pauses an object of CAAPH, or suspends one of Flux.
    fn suspend(&mut self, place: &Place, pauses: bool) {
        if self.setup.system == System::Caaph {
            let annotations = if pauses {
                json!({PAUSED: "true"})
            } else {
                json!({})
            };
            self.set(place, "/metadata/annotations", annotations);
        } else {
            self.set(place, "/spec/suspend", json!(pauses));
        }
    }

    fn suspend_at(&mut self, version: usize) {
        let wanted = json!(CHARTS[version]);
        match self.setup.system {
            System::Caaph => self.servers.edit(&chart(), |proxy| {
                proxy["metadata"]["annotations"] = json!({PAUSED: "true"});
                proxy["spec"]["version"] = wanted;
            }),
            System::HelmRelease => self.servers.edit(&helm_release(), |release| {
                release["spec"]["suspend"] = json!(true);
                release["spec"]["chart"]["spec"]["version"] = wanted;
            }),
            System::Kustomization => {
                self.servers.edit(&kustomization(), |found| {
                    found["spec"]["suspend"] = json!(true);
                    found["spec"]["path"] = json!("other");
                });
                if self.servers.get(&source()).is_some() {
                    self.want(version);
                }
            }
        }
    }

    fn edit_agent(&mut self, edit: Edit) {
        match edit {
            Edit::Image(version) => apply(&mut self.servers, CHARTS[version]),
            Edit::NoAgent => self.addons.delete_agent(&mut self.servers),
            Edit::OnDelete(on_delete) => {
                let strategy = if on_delete { "OnDelete" } else { "RollingUpdate" };
                self.set(&agent(), "/spec/updateStrategy/type", json!(strategy));
            }
            Edit::NoPod(node) => self.addons.delete_pod(node),
            edit => panic!("{edit:?} is no edit of the DaemonSet"),
        }
    }

    /// Edits an object that only some gates check.
    fn edit_extra(&mut self, edit: Edit) {
        match edit {
            Edit::Definition(version) if self.servers.get(&definition()).is_none() => {
                self.servers.put(definition(), a_definition(version));
            }
            Edit::Definition(version) => self.set(&definition(), "/spec/versions", apis(version)),
            Edit::Established(is_established) => {
                let status = if is_established { "True" } else { "False" };
                let conditions = json!([
                    {"type": "NamesAccepted", "status": "True"},
                    {"type": "Established", "status": status},
                ]);
                self.set(&definition(), "/status/conditions", conditions);
            }
            Edit::NoDefinition => self.servers.remove(&definition()),
            Edit::Backend(version) if self.servers.get(&backend()).is_none() => {
                self.servers.put(backend(), a_backend(version));
            }
            Edit::Backend(version) => self.set(&backend(), "/spec/version", json!(CHARTS[version])),
            Edit::NoStatus => self.servers.edit(&backend(), |backend| {
                if let Some(fields) = backend.as_object_mut() {
                    fields.remove("status");
                }
            }),
            edit => panic!("{edit:?} is no edit of an object beside the add-on"),
        }
    }

    /// Users correct their inputs.
    pub(crate) fn mend(&mut self) {
        let system = self.setup.system;
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
            Edit::Chart(wanted(&self.servers, system)),
            Edit::Values("fine"),
            Edit::InstallOnce(false),
            Edit::PauseChart(false),
            Edit::PauseRelease(false),
            Edit::Elsewhere(false),
            Edit::OnDelete(false),
            Edit::Established(true),
        ] {
            self.edit(edit);
        }
        if self.servers.get(&agent()).is_none() {
            let version = CHARTS[wanted(&self.servers, system)];
            apply(&mut self.servers, version);
        }
    }
}
