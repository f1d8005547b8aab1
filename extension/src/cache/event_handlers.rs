//! Event handlers of the management cluster: they requeue the dependents of changed objects.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use kube::core::ObjectMeta;
use sluice_core::{
    cache::stores::GateKinds,
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
use tracing::{info, warn};

use crate::{
    cache::{rollbacks::Rollbacks, values_watch::ValuesWatches, watch::Presence},
    lock::lock,
    queue::{
        dependents::Dependents,
        requeues::{ClusterRef, Requeues},
        work_queue::Feed,
    },
};

/// Change of UpgradeGates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateChange {
    /// An UpgradeGate was created, changed or deleted. It affects the Clusters that it selects, and those that list it.
    One(ClusterRef),
    /// An UpgradeGate of this namespace cannot be decoded, or could not be. It affects all Clusters there.
    Namespace(String),
    /// All Clusters: the stores have become complete.
    All,
}

/// Forwards changes to the controllers. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct EventHandlers {
    /// Whether this installation has no packages, so that no store of their kinds opens.
    pub without_packages: bool,
    /// Whether the stores of UpgradeGates and ClusterUpgrades open.
    pub with_upgrade_gates: bool,
    /// Requeues Clusters.
    pub triggers: Requeues,
    /// Requeues the Clusters of UpgradeGates.
    pub gate_changes: Feed<GateChange>,
    /// Namespaces whose UpgradeGates may need another status.
    pub gate_statuses: Feed<String>,
    /// Namespaces whose UpgradeOverrides may need another status.
    pub override_statuses: Feed<String>,
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
        if !self.without_packages {
            self.values_watches.cluster(cluster, presence);
        }
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
        self.gate_statuses.send(reference.namespace().to_owned());
        self.override_statuses.send(reference.namespace().to_owned());
        self.triggers.enqueue_for_all(reference);
    }

    /// Handles a change of an UpgradeGate other than one of its status.
    pub(crate) fn gate(&self, change: GateChange) {
        match &change {
            GateChange::One(gate) => self.gate_statuses.send(gate.namespace().to_owned()),
            GateChange::Namespace(namespace) => self.gate_statuses.send(namespace.clone()),
            // Holds are counted from ClusterUpgrades, which only now may count. One that changes marks its own Cluster.
            GateChange::All => lock(&self.uncounted).all(),
        }
        self.gate_changes.send(change);
    }

    /// Handles a change of what the stores of UpgradeGates and ClusterUpgrades show.
    pub(crate) fn gate_kinds(&self, kinds: &GateKinds) {
        match kinds {
            GateKinds::Off => info!("No UpgradeGates: their CustomResourceDefinition does not exist"),
            GateKinds::Unlisted(why) => warn!("Holding upgrades, because UpgradeGates are unknown: {why}"),
            GateKinds::Listed => info!("Listed UpgradeGates and ClusterUpgrades"),
        }
        self.gate(GateChange::All);
    }

    pub(crate) fn cluster_upgrade(&self, upgrade: &ObjectMeta) {
        let reference = ClusterRef::in_meta(upgrade);
        lock(&self.uncounted).one(reference.clone());
        self.gate_statuses.send(reference.namespace().to_owned());
        self.triggers.enqueue_gated(reference);
    }

    /// Handles a change of an UpgradeOverride of a Cluster, other than one of its status.
    pub(crate) fn overridden(&self, cluster: ClusterRef) {
        lock(&self.uncounted).one(cluster.clone());
        self.triggers.enqueue(cluster);
    }

    pub(crate) fn bootstrap(&self, bootstrap: &ObjectMeta) {
        let reference = ClusterRef::in_meta(bootstrap);
        lock(&self.uncounted).one(reference.clone());
        self.override_statuses.send(reference.namespace().to_owned());
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
        let class = SharedDependency::Class(namespace, name(class));
        if self.with_upgrade_gates {
            let changed = BTreeSet::from([class.clone()]);
            let dependents = lock(&self.classes).dependents_of(&changed);
            for cluster in dependents.into_iter().flatten() {
                self.triggers.enqueue_gated(cluster);
            }
        }
        self.fan_outs.send(class);
        self.releases.send(ReleaseEvent::Classes);
    }
}

fn name(meta: &ObjectMeta) -> String {
    meta.name.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_core::gate::index::Counting;

    use super::*;

    /// A burst of changes would count all Clusters each second.
    #[tokio::test]
    async fn a_changed_gate_recounts_no_cluster() {
        let handlers = EventHandlers::default();
        let recounts_all = |change: GateChange| {
            handlers.gate(change);
            let uncounted = std::mem::take(&mut *lock(&handlers.uncounted));
            let mut recounts = false;
            let all = || {
                recounts = true;
                Vec::new()
            };
            Counting::default().count(Duration::ZERO, uncounted, all, |_| None);
            recounts
        };
        assert!(!recounts_all(GateChange::One(ClusterRef::new("team-a", "cni"))));
        assert!(!recounts_all(GateChange::Namespace("team-a".to_owned())));
        assert!(recounts_all(GateChange::All));
    }
}
