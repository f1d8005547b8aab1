//! Lookups in the cache of the management cluster: synchronous and shared.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::{Resource, ResourceExt as _, core::ObjectMeta};
use sluice_crds::{
    foreign::{
        App, Cluster, ClusterClass, ControlPlane, MachineDeployment, MachinePool, Package, PackageInstall,
    },
    labels::{annotation, label},
    lifecycle::{ClusterUpgrade, UpgradeGate, UpgradeOverride},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use crate::{
    cache::stored_kind::StoredKind,
    cluster::is_legacy,
    decode::Undecodable,
    packages::{
        bootstrap::{Catalogue, PackageFacts},
        requirements::{self, ManagementPackages, required},
    },
};

/// OSImages by name.
pub type Images = BTreeMap<String, Arc<OSImage>>;

/// Result of a lookup by name: an object, none, or an object that cannot be decoded.
pub type Found<K> = Result<Option<Arc<K>>, Arc<Undecodable>>;

/// An UpgradeGate, or one that cannot be decoded.
pub type FoundGate = Result<Arc<UpgradeGate>, Arc<Undecodable>>;

/// Whether the UpgradeGates and ClusterUpgrades of an installation are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateKinds {
    /// No UpgradeGate exists: a flag turns gates off, or the API server has said that it does not serve the kind.
    Off,
    /// UpgradeGates may exist that the stores lack. The message names the missing list or the missing rule of Sluice's role.
    Unlisted(String),
    /// All objects of both kinds are in the stores.
    Listed,
}

/// Returns whether a release has the legacy label. The labels of an undecodable release are readable, too.
#[must_use]
pub fn is_legacy_release(release: &Found<TanzuKubernetesRelease>) -> bool {
    let meta = match release {
        Ok(release) => release.as_deref().map(|release| &release.metadata),
        Err(undecodable) => Some(&undecodable.metadata),
    };
    meta.is_some_and(is_legacy)
}

/// Objects of one kind.
pub trait Stored<K> {
    /// Returns the object of this name; the namespace is `None` for cluster-scoped kinds.
    ///
    /// # Errors
    /// The object cannot be decoded.
    fn found(&self, namespace: Option<&str>, name: &str) -> Found<K>;

    /// Returns the object of this name; `None` also if it cannot be decoded.
    fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.found(namespace, name).ok().flatten()
    }

    /// Returns the objects that belong to a Cluster.
    fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<K>>;

    /// Returns the object of this name, if it cannot be decoded.
    fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>>;

    /// Returns the first object that belongs to a Cluster and cannot be decoded, if there is one.
    fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>>;
}

/// Releases by name.
pub type Releases = BTreeMap<String, Arc<TanzuKubernetesRelease>>;

/// All kinds that decisions depend on.
pub trait Stores:
    Stored<Cluster>
    + Stored<ClusterBootstrap>
    + Stored<ClusterBootstrapTemplate>
    + Stored<TanzuKubernetesRelease>
    + Stored<ClusterClass>
    + Stored<MachineDeployment>
    + Stored<MachinePool>
    + Stored<Package>
    + Stored<UpgradeGate>
    + Stored<ClusterUpgrade>
    + Stored<UpgradeOverride>
{
    /// Returns all releases, by name.
    fn releases(&self) -> Arc<Releases>;

    /// Returns all OSImages, by name; `None` before the first list.
    fn images(&self) -> Option<Arc<Images>>;

    /// Returns a release that cannot be decoded, if there is one.
    fn undecodable_release(&self) -> Option<Arc<Undecodable>>;

    /// Returns the catalogue of the Packages of the system namespace.
    fn catalogue(&self) -> Arc<Catalogue>;

    /// Returns the PackageInstalls and Apps of the system namespace that releases may require.
    fn management_packages(&self) -> Arc<ManagementPackages>;

    /// Returns whether all objects of a kind were listed once.
    fn is_listed(&self, kind: StoredKind) -> bool;

    /// Returns all UpgradeGates of a namespace, by name. Every hook call of the namespace looks them up, so a store keeps them parsed.
    fn gates_of(&self, namespace: &str) -> Vec<FoundGate>;

    /// Returns the UpgradeOverrides of a Cluster that can be decoded; `None` before their first list. Nothing waits for them.
    fn overrides_of(&self, namespace: &str, cluster: &str) -> Option<Vec<Arc<UpgradeOverride>>>;

    /// Returns a ClusterClass of a namespace that lists a Kubernetes version. It is only a suggestion, so not every store looks for one.
    fn class_with(&self, _namespace: &str, _version: &str) -> Option<Arc<ClusterClass>> {
        None
    }

    /// Returns whether the UpgradeGates and ClusterUpgrades are known. Check it before any lookup of them, because a lookup before the list
    /// may miss objects.
    fn gate_kinds(&self) -> GateKinds;

    /// Returns whether this installation manages packages. Without packages no kind of Carvel or Tanzu is listed.
    fn packages_enabled(&self) -> bool;

    /// Returns the first kind that managed Clusters need and that was never listed, if there is one. Check it before any lookup, because a
    /// lookup before the list may miss objects.
    fn unlisted(&self) -> Option<StoredKind> {
        let mut kinds = StoredKind::of_installation(self.packages_enabled()).iter();
        kinds.find(|kind| !self.is_listed(**kind)).copied()
    }
}

/// Objects that every reconcile needs as a whole. A running reconcile continues with its snapshot after a change.
#[derive(Debug, Default)]
pub struct Whole {
    /// Releases by name.
    pub releases: Arc<Releases>,
    /// Catalogue of the Packages of the system namespace.
    pub catalogue: Arc<Catalogue>,
    /// OSImages by name.
    pub images: Arc<Images>,
    /// PackageInstalls and Apps of the system namespace that releases may require.
    pub management_packages: Arc<ManagementPackages>,
    /// UpgradeOverrides.
    pub overrides: OverridesByName,
    /// Number of requirements of each package that releases require.
    required: BTreeMap<String, usize>,
}

/// UpgradeOverrides by namespace and name.
#[derive(Debug, Default)]
pub struct OverridesByName(BTreeMap<String, BTreeMap<String, Arc<UpgradeOverride>>>);

impl OverridesByName {
    /// Returns the overrides of a Cluster.
    #[must_use]
    pub fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<UpgradeOverride>> {
        let here = self.0.get(namespace).into_iter().flat_map(BTreeMap::values);
        here.filter(|of| of.spec.cluster_name == cluster)
            .cloned()
            .collect()
    }

    /// Returns the namespaces with overrides.
    #[must_use]
    pub fn namespaces(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Returns the names of the overrides of a namespace.
    #[must_use]
    pub fn names_in(&self, namespace: &str) -> Vec<String> {
        let here = self.0.get(namespace).into_iter().flat_map(BTreeMap::keys);
        here.cloned().collect()
    }

    /// Observes an existing or deleted UpgradeOverride. Returns the names of the Clusters that a change affects. One of its status affects
    /// none: Sluice writes it.
    pub fn saw(&mut self, object: &UpgradeOverride, is_there: bool) -> BTreeSet<String> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let before = if is_there {
            let here = self.0.entry(namespace).or_default();
            here.insert(name, Arc::new(object.clone()))
        } else if let Some(here) = self.0.get_mut(&namespace) {
            let before = here.remove(&name);
            if here.is_empty() {
                self.0.remove(&namespace);
            }
            before
        } else {
            None
        };
        let is_same = is_there && before.as_ref().is_some_and(|before| is_same(before, object));
        let of_both = before.as_deref().into_iter().chain([object]);
        let named = of_both.map(|of| of.spec.cluster_name.clone());
        named.filter(|_| !is_same).collect()
    }
}

/// Whether two states of an override have the same effect.
fn is_same(one: &UpgradeOverride, other: &UpgradeOverride) -> bool {
    one.metadata.uid == other.metadata.uid
        && one.spec == other.spec
        && one.metadata.deletion_timestamp.is_some() == other.metadata.deletion_timestamp.is_some()
}

impl Whole {
    /// Observes an existing or deleted release. Returns whether a change affects the reconcile of a Cluster or the response of a hook.
    /// Labels and conditions, which report the release status, do not: updates of 5,000 releases must not requeue every Cluster as often.
    pub fn release(&mut self, release: &TanzuKubernetesRelease, is_there: bool) -> bool {
        let (releases, name) = (Arc::make_mut(&mut self.releases), release.name_any());
        let before = if is_there {
            releases.insert(name, Arc::new(release.clone()))
        } else {
            releases.remove(&name)
        };
        for package in before.as_deref().map(required).unwrap_or_default() {
            if let Some(count) = self.required.get_mut(&package) {
                *count = count.saturating_sub(1);
            }
        }
        let required = if is_there { required(release) } else { Vec::new() };
        for package in required {
            *self.required.entry(package).or_default() += 1;
        }
        self.required.retain(|_, count| *count > 0);
        !is_there
            || before.is_none_or(|before| {
                before.spec != release.spec
                    || before.metadata.uid != release.metadata.uid
                    || is_legacy(&before.metadata) != is_legacy(&release.metadata)
                    || !requirements::are_same(&before, release)
            })
    }

    /// Observes an existing or deleted PackageInstall of the system namespace. Returns whether the change affects a package that a release
    /// requires.
    pub fn system_install(&mut self, install: &PackageInstall, is_there: bool) -> bool {
        let name = install.name_any();
        let was_required = self.is_required(&name);
        let has_changed = Arc::make_mut(&mut self.management_packages).install(install, is_there);
        has_changed && (was_required || self.is_required(&name))
    }

    /// Observes an existing or deleted App of the system namespace. Returns whether the change affects a package that a release requires.
    pub fn system_app(&mut self, app: &App, is_there: bool) -> bool {
        let has_changed = Arc::make_mut(&mut self.management_packages).app(app, is_there);
        has_changed && self.is_required(&app.name_any())
    }

    /// Whether the PackageInstall of this name installs a package that a release requires.
    fn is_required(&self, install: &str) -> bool {
        let package = self.management_packages.package_of(install);
        package.is_some_and(|package| self.required.contains_key(package))
    }

    /// Observes an existing or deleted OSImage.
    pub fn image(&mut self, image: &OSImage, is_there: bool) {
        let (images, name) = (Arc::make_mut(&mut self.images), image.name_any());
        if is_there {
            images.insert(name, Arc::new(image.clone()));
        } else {
            images.remove(&name);
        }
    }

    /// Observes an existing or deleted Package.
    pub fn package(&mut self, package: &Package, is_there: bool) {
        let (catalogue, name) = (Arc::make_mut(&mut self.catalogue), package.name_any());
        if is_there {
            catalogue.insert(name, PackageFacts::of(package));
        } else {
            catalogue.remove(&name);
        }
    }
}

/// Kind whose objects belong to Clusters of their namespace.
pub trait OfCluster: Resource {
    /// Returns the name of the Cluster that an object with this metadata belongs to.
    fn cluster_in(meta: &ObjectMeta) -> Option<String>;

    /// Returns the name of the Cluster that the object belongs to.
    fn cluster_name(&self) -> Option<String> {
        Self::cluster_in(self.meta())
    }
}

impl OfCluster for Cluster {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }
}

/// A ClusterBootstrap has the name of its Cluster.
impl OfCluster for ClusterBootstrap {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }
}

/// A ClusterUpgrade has the name of its Cluster.
impl OfCluster for ClusterUpgrade {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }
}

impl OfCluster for MachineDeployment {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        labelled(meta)
    }
}

impl OfCluster for MachinePool {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        labelled(meta)
    }
}

impl OfCluster for ControlPlane {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        labelled(meta)
    }
}

fn labelled(meta: &ObjectMeta) -> Option<String> {
    meta.labels.as_ref()?.get(label::CAPI_CLUSTER_NAME).cloned()
}

impl OfCluster for PackageInstall {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        meta.annotations.as_ref()?.get(annotation::CLUSTER_NAME).cloned()
    }
}

/// The App of a workload cluster's kapp-controller has the name of its PackageInstall: `<cluster>-kapp-controller`.
impl OfCluster for App {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        let name = meta.name.as_deref()?;
        name.strip_suffix("-kapp-controller").map(str::to_owned)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;
    pub(crate) use crate::cache::snapshot::Snapshot as Given;

    /// Empty stores that are filled right after the first lookup.
    #[derive(Debug, Default)]
    pub(crate) struct Filling {
        pub(crate) given: Given,
        is_filled: Cell<bool>,
    }

    impl Filling {
        pub(crate) fn with(given: Given) -> Self {
            Self {
                given,
                is_filled: Cell::new(false),
            }
        }
    }

    impl<K> Stored<K> for Filling
    where
        Given: Stored<K>,
    {
        fn found(&self, namespace: Option<&str>, name: &str) -> Found<K> {
            if self.is_filled.replace(true) {
                self.given.found(namespace, name)
            } else {
                Ok(None)
            }
        }

        fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<K>> {
            self.given.of_cluster(namespace, cluster)
        }

        fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
            Stored::<K>::undecodable(&self.given, namespace, name)
        }

        fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
            Stored::<K>::undecodable_of(&self.given, namespace, cluster)
        }
    }

    impl Stores for Filling {
        fn overrides_of(&self, namespace: &str, cluster: &str) -> Option<Vec<Arc<UpgradeOverride>>> {
            self.given.overrides_of(namespace, cluster)
        }

        fn releases(&self) -> Arc<Releases> {
            self.given.releases()
        }

        fn images(&self) -> Option<Arc<Images>> {
            self.given.images()
        }

        fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
            self.given.undecodable_release()
        }

        fn catalogue(&self) -> Arc<Catalogue> {
            self.given.catalogue()
        }

        fn management_packages(&self) -> Arc<ManagementPackages> {
            self.given.management_packages()
        }

        fn is_listed(&self, _: StoredKind) -> bool {
            self.is_filled.get()
        }

        fn gates_of(&self, namespace: &str) -> Vec<FoundGate> {
            if self.is_filled.replace(true) {
                self.given.gates_of(namespace)
            } else {
                Vec::new()
            }
        }

        fn gate_kinds(&self) -> GateKinds {
            match self.given.gate_kinds() {
                GateKinds::Listed if !self.is_filled.get() => GateKinds::Unlisted("not filled".to_owned()),
                kinds => kinds,
            }
        }

        fn packages_enabled(&self) -> bool {
            self.given.packages_enabled()
        }
    }

    /// Returns an object of this name in `namespace`, with these labels and with the fields of `rest`.
    pub(crate) fn object<K>(namespace: Option<&str>, name: &str, labels: &Value, rest: &Value) -> Arc<K>
    where
        K: serde::de::DeserializeOwned + kube::Resource<DynamicType = ()>,
    {
        let mut object = rest.clone();
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        object["metadata"] = json!({
            "name": name, "namespace": namespace, "labels": labels, "uid": "uid", "generation": 1,
            "annotations": {annotation::CLUSTER_NAME: "annotated"},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    /// Returns an object that cannot be decoded.
    pub(crate) fn undecodable(
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        labels: &Value,
    ) -> Arc<Undecodable> {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels, "uid": "uid"});
        Arc::new(Undecodable {
            kind: kind.to_owned(),
            metadata: serde_json::from_value(metadata).unwrap(),
            class: None,
            why: "field spec: it is nested deeper than 127 levels".to_owned(),
        })
    }

    fn belongs<K>(name: &str) -> Option<String>
    where
        K: serde::de::DeserializeOwned + kube::Resource<DynamicType = ()> + OfCluster,
    {
        let labels = json!({label::CAPI_CLUSTER_NAME: "labelled"});
        object::<K>(Some("team-a"), name, &labels, &json!({"spec": {}})).cluster_name()
    }

    /// A release gets labels and conditions, is corrected, is marked legacy, and is deleted.
    #[test]
    fn only_changes_that_clusters_depend_on_count_for_a_release() {
        let mut whole = Whole::default();
        let mut takes = |version: &str, labels: &Value, is_there| {
            let spec = json!({"spec": {"version": version, "kubernetes": {"version": version}}});
            let release: Arc<TanzuKubernetesRelease> = object(None, "one", labels, &spec);
            whole.release(&release, is_there)
        };
        assert!(takes("v1.35.4", &json!({}), true), "it is new");
        assert!(!takes("v1.35.4", &json!({"v1.35": "", "incompatible": ""}), true));
        assert!(takes("v1.35.5", &json!({"v1.35": ""}), true));
        assert!(takes("v1.35.5", &json!({label::LEGACY_TKR: ""}), true));
        assert!(takes("v1.35.5", &json!({label::LEGACY_TKR: ""}), false));
        assert!(takes("v1.35.5", &json!({}), true), "recreated");
        let mut again: Arc<TanzuKubernetesRelease> = object(
            None,
            "one",
            &json!({}),
            &json!({"spec": {"version": "v1.35.5", "kubernetes": {"version": "v1.35.5"}}}),
        );
        Arc::make_mut(&mut again).metadata.uid = Some("another".to_owned());
        assert!(whole.release(&again, true), "it is another object");
    }

    /// Of 5,000 Clusters each one has a PackageInstall, and kapp-controller resyncs all of them.
    #[test]
    fn only_changes_of_required_packages_count() {
        let mut whole = Whole::default();
        let install = |package: &str, is_paused: bool| -> Arc<PackageInstall> {
            let spec = json!({"spec": {"packageRef": {"refName": package}, "paused": is_paused}});
            object(Some("tkg-system"), "tkg", &json!({}), &spec)
        };
        let app = |paused: bool| -> Arc<App> {
            object(
                Some("tkg-system"),
                "tkg",
                &json!({}),
                &json!({"spec": {"paused": paused}}),
            )
        };
        assert!(!whole.system_install(&install("tkg.example.com", false), true));
        assert!(!whole.system_app(&app(false), true), "no release requires it");
        let spec = json!({"spec": {"version": "v1.35.4", "kubernetes": {"version": "v1.35.4"}}});
        let mut release: Arc<TanzuKubernetesRelease> = object(None, "one", &json!({}), &spec);
        let requires = (
            "lifecycle.sluice.dev/requires".to_owned(),
            "tkg.example.com=1.0.0".to_owned(),
        );
        Arc::make_mut(&mut release).metadata.annotations = Some([requires].into());
        assert!(whole.release(&release, true));
        assert!(!whole.release(&release, true), "unchanged");
        assert!(whole.system_install(&install("tkg.example.com", true), true));
        assert!(
            !whole.system_install(&install("tkg.example.com", true), true),
            "unchanged"
        );
        assert!(whole.system_app(&app(true), true));
        assert!(!whole.system_app(&app(true), true), "unchanged");
        assert!(
            whole.system_install(&install("other.example.com", true), true),
            "not any more"
        );
        assert!(!whole.system_install(&install("other.example.com", false), true));
        assert!(whole.system_install(&install("tkg.example.com", false), true));
        assert!(
            whole.system_install(&install("tkg.example.com", false), false),
            "deleted"
        );
        assert!(whole.release(&release, false));
        assert!(
            !whole.system_install(&install("tkg.example.com", false), true),
            "no release requires it"
        );
    }

    #[test]
    fn objects_belong_to_the_cluster_that_they_name() {
        assert_eq!(belongs::<Cluster>("one").as_deref(), Some("one"));
        assert_eq!(belongs::<ClusterBootstrap>("one").as_deref(), Some("one"));
        assert_eq!(belongs::<ClusterUpgrade>("one").as_deref(), Some("one"));
        assert_eq!(belongs::<MachineDeployment>("md").as_deref(), Some("labelled"));
        assert_eq!(belongs::<MachinePool>("mp").as_deref(), Some("labelled"));
        assert_eq!(belongs::<PackageInstall>("one").as_deref(), Some("annotated"));
        assert_eq!(belongs::<App>("one-kapp-controller").as_deref(), Some("one"));
        assert_eq!(belongs::<App>("one-antrea"), None);
    }

    fn override_of(cluster: &str, uid: &str) -> UpgradeOverride {
        let object = json!({
            "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeOverride",
            "metadata": {"name": "metrics", "namespace": "ns", "uid": uid},
            "spec": {
                "clusterName": cluster, "gate": "Workers", "packages": ["metrics"], "reason": "r",
                "target": {"kubernetesVersion": "v1.36.3", "release": "r"}, "expiresAt": "2026-12-01T13:00:00Z",
            },
        });
        serde_json::from_value(object).unwrap()
    }

    /// Sluice writes the status of an override, so that one may affect no Cluster.
    #[test]
    fn a_changed_override_affects_its_clusters_unless_its_status_has_changed() {
        let mut overrides = OverridesByName::default();
        let mut saw = |object: &UpgradeOverride, is_there: bool| {
            let affected = overrides.saw(object, is_there).into_iter().collect::<Vec<_>>();
            let held = ["one", "two"].map(|cluster| overrides.of_cluster("ns", cluster).len());
            (affected.join(" "), held, overrides.names_in("ns").len())
        };
        let mut object = override_of("one", "a");
        assert_eq!(saw(&object, true), ("one".to_owned(), [1, 0], 1));
        object.status = serde_json::from_value(json!({"conditions": []})).ok();
        assert_eq!(saw(&object, true), (String::new(), [1, 0], 1));
        object.metadata.deletion_timestamp = Some(Time("2026-12-01T12:00:00Z".parse().unwrap()));
        assert_eq!(saw(&object, true).0, "one");
        // A list shows an override that was deleted and created again.
        assert_eq!(
            saw(&override_of("two", "b"), true),
            ("one two".to_owned(), [0, 1], 1)
        );
        assert_eq!(saw(&override_of("two", "c"), true).0, "two");
        assert_eq!(
            saw(&override_of("two", "c"), false),
            ("two".to_owned(), [0, 0], 0)
        );
        assert_eq!(overrides.namespaces(), Vec::<String>::new());
    }
}
