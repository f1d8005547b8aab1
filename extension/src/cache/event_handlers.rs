//! What changes on the management cluster, and whom it concerns.

use std::sync::{Arc, Mutex};

use kube::core::ObjectMeta;
use sluice_core::{
    gate::index::Uncounted,
    installation::retrigger::{Handlers, Uncalled},
    reconcile::shared_dependency::{Classes, SharedDependency},
    releases::{ManagementClusters, ReleaseEvent},
};
use sluice_crds::{
    foreign::{Cluster, PackageInstall},
    run::ClusterBootstrap,
};

use crate::{
    cache::{values_watch::Edits, watch::Presence},
    lock::lock,
    queue::{
        dependents::Dependents,
        requeues::{ClusterRef, Requeues},
        work_queue::Feed,
    },
};

/// What has changed that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// One Cluster, or its ClusterBootstrap.
    One(ClusterRef),
    /// A release: any Cluster may be concerned.
    All,
}

/// Passes on what changes. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct EventHandlers {
    /// Wakes Clusters.
    pub triggers: Requeues,
    /// Wakes configurations.
    pub dependents: Dependents,
    /// Wakes Clusters for what many of them rest on.
    pub sweeps: Feed<SharedDependency>,
    /// Clusters of which hooks may be answered otherwise than at the last count.
    pub uncounted: Arc<Mutex<Uncounted>>,
    /// Clusters of which Cluster API could not call a hook.
    pub uncalled: Arc<Mutex<Uncalled>>,
    /// Which Clusters are of which ClusterClass.
    pub classes: Arc<Mutex<Classes>>,
    /// What packages take their values from is watched.
    pub edits: Edits,
    /// The namespace of Packages that bring releases.
    pub system_namespace: String,
    /// Wakes the controller of releases.
    pub releases: Feed<ReleaseEvent>,
    /// What the management cluster says of its version.
    pub management: Arc<Mutex<ManagementClusters>>,
    /// What the status service shows. Nothing is kept without it.
    pub shown: Feed<Changed>,
}

impl EventHandlers {
    /// Nothing yet. These handlers are those of this extension.
    #[must_use]
    pub fn of(handlers: Handlers) -> Self {
        Self {
            uncalled: Arc::new(Mutex::new(Uncalled::of(handlers))),
            ..Self::default()
        }
    }

    /// Of what a Cluster says: its class, its topology, and in its conditions which hooks could not be called.
    pub(crate) fn contents(&self, cluster: &Cluster, presence: Presence) {
        let reference = ClusterRef::of(cluster);
        self.edits.cluster(cluster, presence);
        let is_there = presence == Presence::There;
        if lock(&self.management).saw(&reference, cluster, is_there) {
            self.releases.send(ReleaseEvent::All);
        }
        match presence {
            Presence::There => {
                lock(&self.uncalled).saw(&reference, cluster);
                lock(&self.classes).saw(&reference, cluster);
            }
            Presence::Gone => {
                lock(&self.uncalled).gone(&reference);
                lock(&self.classes).gone(&reference);
            }
        }
    }

    pub(crate) fn cluster(&self, cluster: &ObjectMeta) {
        let reference = ClusterRef::in_meta(cluster);
        self.dependents.cluster_changed(&reference);
        lock(&self.uncounted).one(reference.clone());
        self.releases.send(ReleaseEvent::Cluster(reference.clone()));
        self.shown.send(Changed::One(reference.clone()));
        self.triggers.wake(reference);
    }

    pub(crate) fn bootstrap(&self, bootstrap: &ObjectMeta) {
        let reference = ClusterRef::in_meta(bootstrap);
        lock(&self.uncounted).one(reference.clone());
        self.shown.send(Changed::One(reference));
        self.triggers.enqueue_owner::<ClusterBootstrap>(bootstrap);
    }

    pub(crate) fn release(&self, release: &ObjectMeta) {
        lock(&self.uncounted).all();
        self.shown.send(Changed::All);
        self.sweeps.send(SharedDependency::Release(name(release)));
        self.marked();
    }

    /// Nothing of a release has changed that Clusters rest on.
    pub(crate) fn marked(&self) {
        self.releases.send(ReleaseEvent::All);
    }

    pub(crate) fn template(&self, template: &ObjectMeta) {
        lock(&self.uncounted).all();
        self.sweeps.send(SharedDependency::Template(name(template)));
    }

    pub(crate) fn package(&self, package: &ObjectMeta) {
        self.sweeps.send(SharedDependency::Package(name(package)));
        self.releases.send(ReleaseEvent::All);
        self.releases.send(ReleaseEvent::Package(name(package)));
    }

    pub(crate) fn install(&self, install: &ObjectMeta) {
        // What else is marked so is of tenants, and installs no releases.
        if install.namespace.as_ref() == Some(&self.system_namespace) {
            self.releases.send(ReleaseEvent::of_install(install));
        }
        self.triggers.enqueue_owner::<PackageInstall>(install);
    }

    pub(crate) fn class(&self, class: &ObjectMeta) {
        let namespace = class.namespace.clone().unwrap_or_default();
        self.sweeps.send(SharedDependency::Class(namespace, name(class)));
    }
}

fn name(meta: &ObjectMeta) -> String {
    meta.name.clone().unwrap_or_default()
}
