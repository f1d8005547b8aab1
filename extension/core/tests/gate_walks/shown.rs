//! Cached objects as stores of an installation without packages.

use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_core::{
    cache::{
        stored_kind::StoredKind,
        stores::{Found, FoundGate, GateKinds, Images, Releases, Stored, Stores},
    },
    decode::Undecodable,
    packages::{bootstrap::Catalogue, requirements::ManagementPackages},
};
use sluice_crds::lifecycle::UpgradeOverride;

use crate::servers::{Servers, of};

/// Objects in the caches of a process. All kinds were listed.
pub(crate) struct Shown<'a>(pub(crate) &'a Servers);

fn decoded<K: DeserializeOwned>(object: &Value) -> Arc<K> {
    Arc::new(K::deserialize(object).expect("an object of its kind"))
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned> Stored<K> for Shown<'_> {
    fn found(&self, namespace: Option<&str>, name: &str) -> Found<K> {
        let place = (
            false,
            K::plural(&()).into_owned(),
            namespace.unwrap_or_default().to_owned(),
            name.to_owned(),
        );
        Ok(self.0.get(&place).map(decoded))
    }

    /// Returns all objects of the namespace, which has one Cluster.
    fn of_cluster(&self, namespace: &str, _: &str) -> Vec<Arc<K>> {
        let there = of(self.0, &K::plural(&())).filter(|(place, _)| place.2 == namespace);
        there.map(|(_, object)| decoded(object)).collect()
    }

    fn undecodable(&self, _: Option<&str>, _: &str) -> Option<Arc<Undecodable>> {
        None
    }

    fn undecodable_of(&self, _: &str, _: &str) -> Option<Arc<Undecodable>> {
        None
    }
}

impl Stores for Shown<'_> {
    fn overrides_of(&self, _: &str, _: &str) -> Option<Vec<Arc<UpgradeOverride>>> {
        None
    }

    fn releases(&self) -> Arc<Releases> {
        Arc::default()
    }

    fn images(&self) -> Option<Arc<Images>> {
        None
    }

    fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
        None
    }

    fn catalogue(&self) -> Arc<Catalogue> {
        Arc::default()
    }

    fn management_packages(&self) -> Arc<ManagementPackages> {
        Arc::default()
    }

    fn is_listed(&self, kind: StoredKind) -> bool {
        StoredKind::OF_CLUSTER_API.contains(&kind)
    }

    fn gates_of(&self, namespace: &str) -> Vec<FoundGate> {
        let there = of(self.0, "upgradegates").filter(|(place, _)| place.2 == namespace);
        there.map(|(_, gate)| Ok(decoded(gate))).collect()
    }

    fn gate_kinds(&self) -> GateKinds {
        GateKinds::Listed
    }

    fn packages_enabled(&self) -> bool {
        false
    }
}
