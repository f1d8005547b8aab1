//! Undecodable objects that an API server accepts.

use std::sync::Arc;

use kube::core::{DynamicObject, ObjectMeta, WatchEvent};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_core::{
    cache::{
        stored_kind::StoredKind,
        stores::{Found, FoundGate, GateKinds, Images, Releases, Stored, Stores},
    },
    decode::{Item, Undecodable},
    packages::{bootstrap::Catalogue, requirements::ManagementPackages},
    reconcile::cluster::Server,
};
use sluice_crds::{
    foreign::Cluster,
    lifecycle::UpgradeOverride,
    run::{OSImage, TanzuKubernetesRelease},
};

use crate::{
    leader::facts_of,
    objects::TEAM,
    servers::{Place, Servers, place},
};

/// Marker field of an object that stands for one nested deeper than the decoder allows.
pub(crate) const ODD: &str = "odd";

/// Kinds with undecodable objects, by server.
pub(crate) const KINDS: [(Server, &str); 9] = [
    (Server::Management, "clusters"),
    (Server::Management, "clusterbootstraps"),
    (Server::Management, "clusterbootstraptemplates"),
    (Server::Management, "tanzukubernetesreleases"),
    (Server::Management, "packages"),
    (Server::Management, "machinedeployments"),
    (Server::Management, "packageinstalls"),
    (Server::Workload, "packageinstalls"),
    (Server::Workload, "apps"),
];

/// Returns the place of a ClusterBootstrap of another team.
pub(crate) fn of_others() -> Place {
    place(Server::Management, "clusterbootstraps", "team-b", "two")
}

/// Returns the JSON text of an object as sent by an API server.
pub(crate) fn text(object: &Value) -> String {
    let deep = ["[".repeat(300), "]".repeat(300)].concat();
    let text = object.to_string();
    text.replacen(r#""odd":true"#, &format!(r#""odd":{deep}"#), 1)
}

/// Whether watches deliver every object: an undecodable one must not fail the stream of its kind.
pub(crate) fn are_brought(servers: &Servers) -> bool {
    let mut odd = servers.all().filter(|(_, object)| is_odd(object));
    odd.all(|(_, object)| {
        let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, text(object));
        serde_json::from_str::<WatchEvent<Item<DynamicObject>>>(&event).is_ok()
    })
}

fn is_odd(object: &Value) -> bool {
    object[ODD] == json!(true)
}

/// Returns the metadata of an undecodable object; `None` for any other.
pub(crate) fn undecodable(object: &Value) -> Option<Arc<Undecodable>> {
    if !is_odd(object) {
        return None;
    }
    match Item::<DynamicObject>::of(&text(object)) {
        Some(Item::Undecodable(object)) => Some(object.into()),
        decoded => panic!("it can be decoded: {decoded:?}"),
    }
}

/// Cached objects as stores.
pub(crate) struct Shown<'a>(pub(crate) &'a Servers);

impl Shown<'_> {
    fn of<K: kube::Resource<DynamicType = ()>>(&self) -> impl Iterator<Item = (&Place, &Value)> {
        let plural = K::plural(&()).into_owned();
        let management = self.0.all().filter(|(place, _)| !place.0);
        management.filter(move |(place, _)| place.1 == plural)
    }

    /// Returns the undecodable Cluster, if any.
    pub(crate) fn undecodable_cluster(&self) -> Option<Arc<Undecodable>> {
        Stored::<Cluster>::undecodable(self, Some(TEAM), "one")
    }

    fn at<K: kube::Resource<DynamicType = ()>>(&self, namespace: Option<&str>, name: &str) -> Option<&Value> {
        let at = place(
            Server::Management,
            &K::plural(&()),
            namespace.unwrap_or_default(),
            name,
        );
        self.0.get(&at)
    }
}

fn decoded<K: DeserializeOwned>(object: &Value) -> Option<K> {
    let object = Some(object).filter(|object| !is_odd(object))?;
    Some(serde_json::from_value(object.clone()).expect("an object of its kind"))
}

impl<K: kube::Resource<DynamicType = ()> + DeserializeOwned> Stored<K> for Shown<'_> {
    fn found(&self, namespace: Option<&str>, name: &str) -> Found<K> {
        let Some(object) = self.at::<K>(namespace, name) else {
            return Ok(None);
        };
        undecodable(object).map_or_else(|| Ok(decoded(object).map(Arc::new)), Err)
    }

    /// Returns all workers of the namespace, which has one Cluster.
    fn of_cluster(&self, namespace: &str, _: &str) -> Vec<Arc<K>> {
        let there = self.of::<K>().filter(|(place, _)| place.2 == namespace);
        there
            .filter_map(|(_, object)| decoded(object).map(Arc::new))
            .collect()
    }

    fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
        undecodable(self.at::<K>(namespace, name)?)
    }

    fn undecodable_of(&self, namespace: &str, _: &str) -> Option<Arc<Undecodable>> {
        let mut there = self.of::<K>().filter(|(place, _)| place.2 == namespace);
        there.find_map(|(_, object)| undecodable(object))
    }
}

impl Stores for Shown<'_> {
    fn overrides_of(&self, namespace: &str, cluster: &str) -> Option<Vec<Arc<UpgradeOverride>>> {
        let there = self
            .of::<UpgradeOverride>()
            .filter(|(place, _)| place.2 == namespace);
        let decoded = there.filter_map(|(_, object)| decoded::<UpgradeOverride>(object).map(Arc::new));
        Some(decoded.filter(|of| of.spec.cluster_name == cluster).collect())
    }

    fn releases(&self) -> Arc<Releases> {
        let there = self.of::<TanzuKubernetesRelease>();
        let there = there.filter_map(|(place, object)| Some((place.3.clone(), Arc::new(decoded(object)?))));
        Arc::new(there.collect())
    }

    fn images(&self) -> Option<Arc<Images>> {
        let there = self.of::<OSImage>();
        let there = there.filter_map(|(place, object)| Some((place.3.clone(), Arc::new(decoded(object)?))));
        Some(Arc::new(there.collect()))
    }

    fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
        let mut there = self.of::<TanzuKubernetesRelease>();
        there.find_map(|(_, object)| undecodable(object))
    }

    fn catalogue(&self) -> Arc<Catalogue> {
        let there = self.0.of(Server::Management, "packages");
        let there = there.filter(|(_, package)| !is_odd(package));
        Arc::new(
            there
                .map(|(place, package)| (place.3.clone(), facts_of(package)))
                .collect(),
        )
    }

    fn management_packages(&self) -> Arc<ManagementPackages> {
        Arc::default()
    }

    fn is_listed(&self, _: StoredKind) -> bool {
        true
    }

    fn gates_of(&self, _: &str) -> Vec<FoundGate> {
        Vec::new()
    }

    fn gate_kinds(&self) -> GateKinds {
        GateKinds::Off
    }

    fn packages_enabled(&self) -> bool {
        true
    }
}

/// Makes an object undecodable.
pub(crate) fn make(servers: &mut Servers, kind: usize, which: u8) {
    let (server, plural) = KINDS[kind % KINDS.len()];
    let there = servers.of(server, plural).map(|(place, _)| place);
    let places: Vec<Place> = there.filter(|place| **place != of_others()).cloned().collect();
    if let Some(index) = usize::from(which).checked_rem(places.len()) {
        servers.edit(&places[index], |object| object[ODD] = json!(true));
    }
}

/// Creates an undecodable ClusterBootstrap of another team. No step repairs it.
pub(crate) fn make_of_others(servers: &mut Servers) {
    let object = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap", "metadata": ObjectMeta::default(), "spec": {}, ODD: true,
    });
    servers.put(of_others(), object);
}

/// Repairs all undecodable objects of the team and the catalogue.
pub(crate) fn mend(servers: &mut Servers) {
    let odd = servers
        .all()
        .filter(|(place, object)| is_odd(object) && place.2 != "team-b");
    let odd: Vec<Place> = odd.map(|(place, _)| place.clone()).collect();
    for place in odd {
        servers.edit(&place, |object| {
            object.as_object_mut().map(|object| object.remove(ODD));
        });
    }
}
