//! What changes on the management cluster, and whom it concerns.

use std::sync::{Arc, Mutex};

use kube::ResourceExt as _;
use sluice_core::{concern::Shared, index::Uncounted, retrigger::Uncalled};
use sluice_crds::{
    foreign::{Cluster, ClusterClass, Package},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};

use crate::{
    controllers::providers::Dependents,
    lock::lock,
    queue::Feed,
    triggers::{ClusterRef, Triggers},
    watch::Presence,
};

/// Passes on what changes. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Wakes Clusters.
    pub triggers: Triggers,
    /// Wakes configurations.
    pub dependents: Dependents,
    /// Wakes Clusters for what many of them rest on.
    pub sweeps: Feed<Shared>,
    /// Clusters of which hooks may be answered otherwise than at the last count.
    pub uncounted: Arc<Mutex<Uncounted>>,
    /// Clusters of which Cluster API could not call a hook.
    pub uncalled: Arc<Mutex<Uncalled>>,
}

impl News {
    pub(crate) fn cluster(&self, cluster: &Cluster, presence: Presence) {
        let reference = ClusterRef::of(cluster);
        match presence {
            Presence::There => lock(&self.uncalled).saw(&reference, cluster),
            Presence::Gone => lock(&self.uncalled).gone(&reference),
        }
        self.dependents.cluster_changed(&reference);
        lock(&self.uncounted).one(reference.clone());
        self.triggers.wake(reference);
    }

    pub(crate) fn bootstrap(&self, bootstrap: &ClusterBootstrap) {
        lock(&self.uncounted).one(ClusterRef::of(bootstrap));
        self.triggers.wake_of(bootstrap);
    }

    pub(crate) fn release(&self, release: &TanzuKubernetesRelease) {
        lock(&self.uncounted).all();
        self.sweeps.send(Shared::Release(release.name_any()));
    }

    pub(crate) fn template(&self, template: &ClusterBootstrapTemplate) {
        lock(&self.uncounted).all();
        self.sweeps.send(Shared::Template(template.name_any()));
    }

    pub(crate) fn package(&self, package: &Package) {
        self.sweeps.send(Shared::Package(package.name_any()));
    }

    pub(crate) fn class(&self, class: &ClusterClass) {
        self.sweeps.send(Shared::Class(
            class.namespace().unwrap_or_default(),
            class.name_any(),
        ));
    }
}
