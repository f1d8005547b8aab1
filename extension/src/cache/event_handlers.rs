//! Event handlers of the management cluster: they requeue the dependents of changed objects.

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
use sluice_status::Changed;

use crate::{
    cache::{rollbacks::Rollbacks, values_watch::ValuesWatches, watch::Presence},
    lock::lock,
    queue::{
        dependents::Dependents,
        requeues::{ClusterRef, Requeues},
        work_queue::Feed,
    },
};

/// Forwards changes to the controllers. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct EventHandlers {
    /// Requeues Clusters.
    pub triggers: Requeues,
    /// Requeues provider configurations.
    pub dependents: Dependents,
    /// Requeues Clusters after changes of shared objects.
    pub fan_outs: Feed<SharedDependency>,
    /// Clusters whose hook decisions may have changed since the last count.
    pub uncounted: Arc<Mutex<Uncounted>>,
    /// Clusters for which Cluster API failed to call a hook.
    pub uncalled: Arc<Mutex<Uncalled>>,
    /// Clusters by ClusterClass.
    pub classes: Arc<Mutex<Classes>>,
    /// Watches of values sources.
    pub values_watches: ValuesWatches,
    /// Namespace of the Packages that install releases.
    pub system_namespace: String,
    /// Requeues the release controller.
    pub releases: Feed<ReleaseEvent>,
    /// Versions that management Clusters report.
    pub management: Arc<Mutex<ManagementClusters>>,
    /// Rollbacks of the API server, which restart all watches.
    pub rollbacks: Rollbacks,
    /// Changes for the status service. Without the service nothing is stored.
    pub shown: Feed<Changed>,
}

impl EventHandlers {
    /// Creates handlers without any state for this extension.
    #[must_use]
    pub fn of(handlers: Handlers) -> Self {
        Self {
            uncalled: Arc::new(Mutex::new(Uncalled::of(handlers))),
            ..Self::default()
        }
    }

    /// Records the class and topology of a Cluster, and the hooks that its conditions report as failed.
    pub(crate) fn contents(&self, cluster: &Cluster, presence: Presence) {
        let reference = ClusterRef::of(cluster);
        self.values_watches.cluster(cluster, presence);
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
        self.triggers.enqueue(reference);
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
        self.fan_outs.send(SharedDependency::Release(name(release)));
        self.marked();
    }

    /// Handles a release change that does not affect Clusters.
    pub(crate) fn marked(&self) {
        self.releases.send(ReleaseEvent::All);
    }

    pub(crate) fn template(&self, template: &ObjectMeta) {
        lock(&self.uncounted).all();
        self.fan_outs.send(SharedDependency::Template(name(template)));
    }

    pub(crate) fn package(&self, package: &ObjectMeta) {
        self.fan_outs.send(SharedDependency::Package(name(package)));
        self.releases.send(ReleaseEvent::All);
        self.releases.send(ReleaseEvent::Package(name(package)));
    }

    pub(crate) fn install(&self, install: &ObjectMeta) {
        // PackageInstalls of tenants with the same mark install no releases.
        if install.namespace.as_ref() == Some(&self.system_namespace) {
            self.releases.send(ReleaseEvent::of_install(install));
        }
        self.triggers.enqueue_owner::<PackageInstall>(install);
    }

    pub(crate) fn class(&self, class: &ObjectMeta) {
        let namespace = class.namespace.clone().unwrap_or_default();
        self.fan_outs
            .send(SharedDependency::Class(namespace, name(class)));
        self.releases.send(ReleaseEvent::Classes);
    }
}

fn name(meta: &ObjectMeta) -> String {
    meta.name.clone().unwrap_or_default()
}
