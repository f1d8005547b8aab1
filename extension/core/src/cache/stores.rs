//! What is in memory of the management cluster, as it is looked up: without waiting, and shared.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::{Resource, ResourceExt as _, core::ObjectMeta};
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    labels::{annotation, label},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use crate::{
    cache::stored_kind::StoredKind,
    cluster::is_legacy,
    decode::Undecodable,
    packages::bootstrap::{Catalogue, PackageFacts},
    upgrade::hop::ControlPlane,
};

/// OSImages by name.
pub type Images = BTreeMap<String, Arc<OSImage>>;

/// What there is of one name, at one moment: an object, none, or one that cannot be decoded.
pub type Found<K> = Result<Option<Arc<K>>, Arc<Undecodable>>;

/// Whether a release is marked legacy. Its labels can be read in any case.
#[must_use]
pub fn is_legacy_release(release: &Found<TanzuKubernetesRelease>) -> bool {
    let meta = match release {
        Ok(release) => release.as_deref().map(|release| &release.metadata),
        Err(undecodable) => Some(&undecodable.metadata),
    };
    meta.is_some_and(is_legacy)
}

/// The objects of one kind.
pub trait Stored<K> {
    /// The object of this name; kinds without namespaces have none.
    ///
    /// # Errors
    /// There is one that cannot be decoded.
    fn found(&self, namespace: Option<&str>, name: &str) -> Found<K>;

    /// The same, where it does not matter why there is none.
    fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.found(namespace, name).ok().flatten()
    }

    /// The objects that belong to a Cluster.
    fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<K>;

    /// The object of this name, if there is one that cannot be decoded. No other one is unpacked for it.
    fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>>;

    /// The first object that belongs to a Cluster and cannot be decoded, if there is one.
    fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>>;
}

/// Releases by name.
pub type Releases = BTreeMap<String, Arc<TanzuKubernetesRelease>>;

/// Every kind that decisions rest on.
pub trait Stores:
    Stored<Cluster>
    + Stored<ClusterBootstrap>
    + Stored<ClusterBootstrapTemplate>
    + Stored<TanzuKubernetesRelease>
    + Stored<ClusterClass>
    + Stored<MachineDeployment>
    + Stored<MachinePool>
    + Stored<Package>
{
    /// All releases, by name.
    fn releases(&self) -> Arc<Releases>;

    /// A release that cannot be decoded, if there is one.
    fn undecodable_release(&self) -> Option<Arc<Undecodable>>;

    /// What the Packages of the system namespace say of themselves.
    fn catalogue(&self) -> Arc<Catalogue>;

    /// The time since the store of a kind is known to have missed no change, zero where nothing depends on that; none before it was
    /// filled.
    fn age(&self, kind: StoredKind) -> Option<Duration>;

    /// The first kind that managed Clusters need and that was never listed, if there is one. It is asked for before anything is looked
    /// up, because what is listed afterwards may be missing in what was.
    fn unlisted(&self) -> Option<StoredKind> {
        let mut kinds = StoredKind::ALL.into_iter();
        kinds.find(|kind| self.age(*kind).is_none())
    }
}

/// What is kept whole, because every pass needs all of it. A pass goes on with what it has taken when something changes.
#[derive(Debug, Default)]
pub struct Whole {
    /// All releases.
    pub releases: Arc<Releases>,
    /// What all Packages of the system namespace say of themselves.
    pub catalogue: Arc<Catalogue>,
    /// All OSImages.
    pub images: Arc<Images>,
}

impl Whole {
    /// Takes in a release, which is there or was. Says whether anything has changed that a pass over a Cluster or the answer of a hook
    /// rests on: labels and conditions say what a release is good for, and 5,000 that get them must not wake every Cluster as often.
    pub fn release(&mut self, release: &TanzuKubernetesRelease, is_there: bool) -> bool {
        let (releases, name) = (Arc::make_mut(&mut self.releases), release.name_any());
        let before = if is_there {
            releases.insert(name, Arc::new(release.clone()))
        } else {
            releases.remove(&name)
        };
        !is_there
            || before.is_none_or(|before| {
                before.spec != release.spec
                    || before.metadata.uid != release.metadata.uid
                    || is_legacy(&before.metadata) != is_legacy(&release.metadata)
            })
    }

    /// Takes in an OSImage, which is there or was.
    pub fn image(&mut self, image: &OSImage, is_there: bool) {
        let (images, name) = (Arc::make_mut(&mut self.images), image.name_any());
        if is_there {
            images.insert(name, Arc::new(image.clone()));
        } else {
            images.remove(&name);
        }
    }

    /// Takes in a Package, which is there or was.
    pub fn package(&mut self, package: &Package, is_there: bool) {
        let (catalogue, name) = (Arc::make_mut(&mut self.catalogue), package.name_any());
        if is_there {
            catalogue.insert(name, PackageFacts::of(package));
        } else {
            catalogue.remove(&name);
        }
    }
}

/// A kind whose objects belong to Clusters of their namespace.
pub trait OfCluster: Resource {
    /// The name of the Cluster that an object with this metadata belongs to.
    fn cluster_in(meta: &ObjectMeta) -> Option<String>;

    /// The name of the Cluster that an object belongs to.
    fn cluster_name(&self) -> Option<String> {
        Self::cluster_in(self.meta())
    }
}

impl OfCluster for Cluster {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }
}

/// It has the name of its Cluster.
impl OfCluster for ClusterBootstrap {
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

/// The App of a cluster's kapp-controller is named as its PackageInstall: `<cluster>-kapp-controller`.
impl OfCluster for App {
    fn cluster_in(meta: &ObjectMeta) -> Option<String> {
        let name = meta.name.as_deref()?;
        name.strip_suffix("-kapp-controller").map(str::to_owned)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use serde_json::{Value, json};

    use super::*;
    use crate::cache::compact::Kept;

    /// Stores that hold what they are given.
    #[derive(Debug, Default)]
    pub(crate) struct Given {
        pub(crate) clusters: Vec<Arc<Cluster>>,
        pub(crate) bootstraps: Vec<Arc<ClusterBootstrap>>,
        pub(crate) templates: Vec<Arc<ClusterBootstrapTemplate>>,
        pub(crate) releases: Vec<Arc<TanzuKubernetesRelease>>,
        pub(crate) classes: Vec<Arc<ClusterClass>>,
        pub(crate) machine_deployments: Vec<Arc<MachineDeployment>>,
        pub(crate) machine_pools: Vec<Arc<MachinePool>>,
        pub(crate) packages: Vec<Arc<Package>>,
        /// Objects of any kind that cannot be decoded.
        pub(crate) undecodable: Vec<Arc<Undecodable>>,
        /// Kinds whose stores were never filled, or are of this age.
        pub(crate) ages: Vec<(StoredKind, Option<Duration>)>,
    }

    impl Given {
        fn undecodable<K: Resource<DynamicType = ()>>(
            &self,
            is_it: impl Fn(&ObjectMeta) -> bool,
        ) -> Option<Arc<Undecodable>> {
            let mut of_kind = self
                .undecodable
                .iter()
                .filter(|object| object.kind == K::kind(&()));
            of_kind.find(|object| is_it(&object.metadata)).cloned()
        }
    }

    macro_rules! stored {
        ($($Kind:ident: $store:ident),+) => {
            $(impl Stored<$Kind> for Given {
                fn found(&self, namespace: Option<&str>, name: &str) -> Found<$Kind> {
                    let is_it = |object: &&Arc<$Kind>| object.namespace().as_deref() == namespace && object.name_any() == name;
                    match Stored::<$Kind>::undecodable(self, namespace, name) {
                        Some(object) => Err(object),
                        None => Ok(self.$store.iter().find(is_it).cloned()),
                    }
                }

                fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<$Kind> {
                    let belongs = |object: &&Arc<$Kind>| {
                        object.namespace().as_deref() == Some(namespace) && Kept::cluster(object.as_ref()).as_deref() == Some(cluster)
                    };
                    self.$store.iter().filter(belongs).map(|object| $Kind::clone(object)).collect()
                }

                fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
                    Given::undecodable::<$Kind>(self, |meta| {
                        meta.namespace.as_deref() == namespace && meta.name.as_deref() == Some(name)
                    })
                }

                fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
                    Given::undecodable::<$Kind>(self, |meta| {
                        meta.namespace.as_deref() == Some(namespace) && $Kind::cluster_of(meta).as_deref() == Some(cluster)
                    })
                }
            })+
        };
    }
    stored!(
        Cluster: clusters, ClusterBootstrap: bootstraps, ClusterBootstrapTemplate: templates, TanzuKubernetesRelease: releases,
        ClusterClass: classes, MachineDeployment: machine_deployments, MachinePool: machine_pools, Package: packages
    );

    impl Stores for Given {
        fn releases(&self) -> Arc<Releases> {
            let named = self
                .releases
                .iter()
                .map(|release| (release.name_any(), Arc::clone(release)));
            Arc::new(named.collect())
        }

        fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
            Given::undecodable::<TanzuKubernetesRelease>(self, |_| true)
        }

        fn catalogue(&self) -> Arc<Catalogue> {
            Arc::default()
        }

        fn age(&self, kind: StoredKind) -> Option<Duration> {
            let mut known = self.ages.iter();
            let known = known.find(|(known, _)| *known == kind);
            known.map_or(Some(Duration::ZERO), |(_, age)| *age)
        }
    }

    /// Stores that are empty, and filled with what they are given right after something was looked up first.
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

        fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<K> {
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
        fn releases(&self) -> Arc<Releases> {
            self.given.releases()
        }

        fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
            self.given.undecodable_release()
        }

        fn catalogue(&self) -> Arc<Catalogue> {
            self.given.catalogue()
        }

        fn age(&self, _: StoredKind) -> Option<Duration> {
            self.is_filled.get().then_some(Duration::ZERO)
        }
    }

    /// An object of this name in namespace `namespace`, with these labels and with `rest` beside its metadata.
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

    /// An object that cannot be decoded.
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

    /// A release gets labels and conditions, is corrected, is marked legacy, and goes.
    #[test]
    fn only_what_clusters_rest_on_is_a_change_of_a_release() {
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
        assert!(takes("v1.35.5", &json!({}), true), "made again");
        let mut again: Arc<TanzuKubernetesRelease> = object(
            None,
            "one",
            &json!({}),
            &json!({"spec": {"version": "v1.35.5", "kubernetes": {"version": "v1.35.5"}}}),
        );
        Arc::make_mut(&mut again).metadata.uid = Some("another".to_owned());
        assert!(whole.release(&again, true), "it is another one");
    }

    #[test]
    fn objects_belong_to_the_cluster_that_they_name() {
        assert_eq!(belongs::<Cluster>("one").as_deref(), Some("one"));
        assert_eq!(belongs::<ClusterBootstrap>("one").as_deref(), Some("one"));
        assert_eq!(belongs::<MachineDeployment>("md").as_deref(), Some("labelled"));
        assert_eq!(belongs::<MachinePool>("mp").as_deref(), Some("labelled"));
        assert_eq!(belongs::<PackageInstall>("one").as_deref(), Some("annotated"));
        assert_eq!(belongs::<App>("one-kapp-controller").as_deref(), Some("one"));
        assert_eq!(belongs::<App>("one-antrea"), None);
    }
}
