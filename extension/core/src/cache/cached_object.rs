//! Compressed text of a cached object.

use std::{fmt, io, marker::PhantomData, sync::Arc};

use lz4_flex::block::{compress_prepend_size_with_dict, decompress_size_prepended_with_dict};

use sluice_crds::decode::Limit;

use super::Cached;

/// Largest dictionary, in bytes. Each compression reads all of it, and lz4 looks back 64 KiB.
const LARGEST_DICTIONARY: usize = 16 * 1024;

/// Text that objects of one kind are compressed with: the JSON of one of them, because most objects of a kind differ little.
#[derive(Clone, Default)]
pub struct Dictionary(Arc<[u8]>);

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({} bytes)", self.0.len())
    }
}

impl Dictionary {
    /// Compresses the JSON of an object. An object of at least twice the size that has little in common with the dictionary is the
    /// dictionary of later objects. A store therefore holds few dictionaries, which together are less than twice as large as the last one.
    fn pack(&mut self, json: Vec<u8>) -> (Self, Box<[u8]>) {
        let used = self.clone();
        let packed = compress_prepend_size_with_dict(&json, &used.0).into_boxed_slice();
        let is_larger = 2 * self.0.len() <= json.len() && json.len() <= LARGEST_DICTIONARY;
        if is_larger && json.len() < 4 * packed.len() {
            self.0 = json.into();
        }
        (used, packed)
    }
}

/// A cached object: the compressed JSON of the fields that its kind reads. Values take several times as much as the JSON, mostly in maps of
/// metadata.
pub struct CachedObject<K> {
    namespace: Option<Box<str>>,
    name: Box<str>,
    /// The resourceVersion, which may change alone.
    revision: Option<Box<str>>,
    uid: Option<Box<str>>,
    /// Cluster in the same namespace that the object belongs to, for kinds that are indexed by Cluster.
    cluster: Option<Box<str>>,
    /// JSON without the resourceVersion, compressed by lz4 with `dictionary`.
    packed: Box<[u8]>,
    dictionary: Dictionary,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for CachedObject<K> {
    fn clone(&self) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision: self.revision.clone(),
            uid: self.uid.clone(),
            cluster: self.cluster.clone(),
            packed: self.packed.clone(),
            dictionary: self.dictionary.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for CachedObject<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        write!(
            f,
            "CachedObject({namespace}/{}, {} bytes)",
            self.name,
            self.packed.len()
        )
    }
}

impl<K: Cached> CachedObject<K> {
    /// Drops the unused fields of an object and keeps the text of the others.
    #[must_use]
    pub fn of(mut object: K, dictionary: &mut Dictionary) -> Self {
        object.prune();
        let meta = object.meta_mut();
        let revision = meta.resource_version.take().map(String::into_boxed_str);
        let namespace = meta.namespace.as_deref().map(Box::from);
        let name = meta.name.as_deref().unwrap_or_default().into();
        let uid = meta.uid.as_deref().map(Box::from);
        let cluster = K::cluster_of(meta).map(String::into_boxed_str);
        let (dictionary, packed) = match serde_json::to_vec(&object) {
            Ok(json) => dictionary.pack(json),
            Err(error) => unreachable!("{name:?} is no JSON: {error}"),
        };
        Self {
            namespace,
            name,
            revision,
            uid,
            cluster,
            packed,
            dictionary,
            kind: PhantomData,
        }
    }

    /// Parses the object.
    #[must_use]
    pub fn parse(&self) -> K {
        match self.unpacked() {
            Ok(mut object) => {
                object.meta_mut().resource_version = self.revision.as_deref().map(str::to_owned);
                object
            }
            // To treat the object as absent could open a gate.
            Err(error) => unreachable!("{self:?} was packed by this process: {error}"),
        }
    }

    fn unpacked(&self) -> io::Result<K> {
        // A text, because types borrow parts of it.
        let json = String::from_utf8(self.json()?).map_err(io::Error::other)?;
        let unlimited = Limit::whole(usize::MAX);
        let (object, _) = K::decode(&json, unlimited).map_err(io::Error::other)?;
        Ok(object)
    }

    fn json(&self) -> io::Result<Vec<u8>> {
        decompress_size_prepended_with_dict(&self.packed, &self.dictionary.0).map_err(io::Error::other)
    }

    /// Returns whether the object is the same as `before`, except for its resourceVersion.
    #[must_use]
    pub fn is_same(&self, before: &Self) -> bool {
        if Arc::ptr_eq(&self.dictionary.0, &before.dictionary.0) {
            return self.packed == before.packed;
        }
        matches!((self.json(), before.json()), (Ok(now), Ok(before)) if now == before)
    }

    /// Returns its namespace; `None` for cluster-scoped kinds.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its UID.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Returns the Cluster in its namespace that the object belongs to, for kinds that are indexed by Cluster.
    #[must_use]
    pub fn cluster(&self) -> Option<String> {
        self.cluster.as_deref().map(str::to_owned)
    }

    /// Returns the size of the compressed JSON, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.packed.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use kube::core::DynamicObject;
    use sluice_crds::{
        foreign::{
            App, Cluster, ClusterClass, ControlPlane, MachineDeployment, MachinePool, Package, PackageInstall,
        },
        lifecycle::{ClusterUpgrade, UpgradeGate},
        run::{ClusterBootstrapTemplate, TanzuKubernetesRelease},
    };

    use super::*;
    use crate::decode::Item;

    /// Annotation in which kubectl stores a whole object.
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

    /// Returns the cached form of `object`.
    fn left<K: Cached + Clone + PartialEq + fmt::Debug>(object: &Value) -> Value {
        let object: K = serde_json::from_value(object.clone()).unwrap();
        let cached = CachedObject::of(object.clone(), &mut Dictionary::default()).parse();
        let mut pruned = object;
        pruned.prune();
        assert_eq!(cached, pruned);
        serde_json::to_value(&cached).unwrap()
    }

    /// Returns an object as served by an API server, with the fields of `rest`.
    fn served(rest: &Value) -> Value {
        let mut object = rest.clone();
        object["apiVersion"] = json!("example.com/v1");
        object["kind"] = json!("Kind");
        object["metadata"] = json!({
            "name": "one", "namespace": "team-a", "uid": "uid", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": {"label": "value"}, "annotations": {LAST_APPLIED: "{}", "other": "value"},
            "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
        });
        object
    }

    #[test]
    fn unused_fields_are_dropped() {
        let left = left::<Cluster>(&served(&json!({"spec": {"paused": true}})));
        let expected = json!({
            "name": "one", "namespace": "team-a", "uid": "uid", "resourceVersion": "7", "generation": 3,
            "labels": {"label": "value"}, "annotations": {"other": "value"},
        });
        assert_eq!(left["metadata"], expected);
        assert_eq!(left["spec"]["paused"], true);
    }

    #[test]
    fn used_fields_of_each_kind_stay() {
        let workers = json!({
            "spec": {"template": {"spec": {"version": "v1.36.3"}}},
            "status": {"replicas": 3, "upToDateReplicas": 2, "versions": [{"version": "v1.35.4", "replicas": 1}]},
        });
        left::<MachineDeployment>(&served(&workers));
        left::<MachinePool>(&served(&workers));
        let spec = json!({"refName": "a.example.com", "version": "1.0.0", "template": {"spec": {"fetch": [null, {"a": 1.5}]}}});
        let package = left::<Package>(&served(&json!({"spec": spec})));
        assert_eq!(package["spec"], spec, "it is copied to workload clusters");
        let plane = json!({"spec": {"version": "v1.36.3"}, "status": {"version": "v1.36.3", "versions": [{"version": "v1.35.4"}]}});
        let plane = left::<ControlPlane>(&served(&plane));
        assert_eq!(plane["status"]["versions"][0]["version"], "v1.35.4");
        left::<App>(&served(
            &json!({"spec": {"paused": true}, "status": {"observedGeneration": 3}}),
        ));
        left::<PackageInstall>(&served(
            &json!({"spec": {"serviceAccountName": "sa"}, "status": {"observedGeneration": 3}}),
        ));
        left::<ClusterClass>(&served(&json!({"spec": {"kubernetesVersions": ["v1.35.4"]}})));
        left::<ClusterBootstrapTemplate>(&served(&json!({"spec": {"cni": {"refName": "antrea"}}})));
        let release = json!({"spec": {"version": "v1.36.3", "kubernetes": {"version": "v1.36.3"}, "bootstrapPackages": []}});
        left::<TanzuKubernetesRelease>(&served(&release));
    }

    /// Hooks are answered from these objects alone.
    #[test]
    fn gates_and_their_records_are_cached_whole() {
        let check = json!({
            "name": "agent", "cluster": "Workload", "healthOnly": false, "versionKey": "image", "container": "agent",
            "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "agent"},
        });
        let spec = json!({
            "mode": "Enforce", "clusterSelector": {"matchLabels": {"cni": "cilium"}}, "before": "Workers",
            "versions": [{"kubernetes": "1.35", "values": {"image": "v1.18.2"}}], "checks": [check],
        });
        let gate = left::<UpgradeGate>(&served(&json!({"spec": spec, "status": {"holding": 1}})));
        assert_eq!((&gate["spec"], &gate["status"]), (&spec, &json!({"holding": 1})));
        let status = json!({"heldBy": "cni/agent", "upgrade": {
            "schema": 1, "clusterUID": "uid", "observedClusterGeneration": 7, "to": "v1.35.4",
            "selected": [{"name": "cni", "uid": "uid", "generation": 3, "mode": "Enforce"}],
            "gates": [{"hook": "BeforeWorkersUpgrade", "version": "v1.35.4", "open": true}],
            "checks": [{"gate": "cni", "name": "agent", "state": "Proven", "uid": "uid", "generation": 4}],
        }});
        let record = left::<ClusterUpgrade>(&served(&json!({"status": status})));
        assert_eq!(record["status"], status);
    }

    /// Each of its fields is as deep as serde_json parses.
    #[test]
    fn a_deep_object_is_parsed_again() {
        let deep = format!("{}{}", "[".repeat(126), "]".repeat(126));
        let text = format!(r#"{{"metadata":{{"name":"one"}},"spec":{{"a":{deep}}}}}"#);
        let Some(Item::Decoded(object)) = Item::<DynamicObject>::of(&text) else {
            panic!("it cannot be decoded");
        };
        assert_eq!(
            CachedObject::of(object.clone(), &mut Dictionary::default()).parse(),
            object
        );
    }

    /// Returns a Package named `name` with `bytes` of text that hardly compresses.
    fn package(name: &str, bytes: usize, seed: u32) -> Package {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + u8::try_from(state >> 16 & 15).unwrap())
        };
        let text: String = (0..bytes).map(|_| next()).collect();
        let spec =
            json!({"refName": "a.example.com", "version": "1.0.0", "template": {"spec": {"text": text}}});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    /// Each object holds its dictionary.
    #[test]
    fn growing_objects_have_few_dictionaries() {
        let mut dictionary = Dictionary::default();
        let objects: Vec<_> = (1..2000)
            .map(|number| {
                CachedObject::of(
                    package("one", 8 * number, number.try_into().unwrap()),
                    &mut dictionary,
                )
            })
            .collect();
        let dictionaries: BTreeSet<usize> = objects.iter().map(|object| object.dictionary.0.len()).collect();
        assert!(
            dictionaries.iter().sum::<usize>() < 2 * LARGEST_DICTIONARY,
            "{dictionaries:?}"
        );
    }

    #[test]
    fn similar_objects_share_their_text() {
        let mut dictionary = Dictionary::default();
        let [small, large, again] = [("small", 200, 1), ("large", 4000, 2), ("again", 4000, 2)]
            .map(|(name, bytes, seed)| (package(name, bytes, seed), name))
            .map(|(package, name)| (CachedObject::of(package.clone(), &mut dictionary), package, name));
        for (cached, package, name) in [&small, &large, &again] {
            assert_eq!(&cached.parse(), package, "{name}");
        }
        assert!(large.0.bytes() > 2000, "{large:?}");
        assert!(again.0.bytes() < 200, "{again:?}");
        let huge = package("huge", LARGEST_DICTIONARY, 3);
        let _huge = CachedObject::of(huge, &mut dictionary);
        let still = CachedObject::of(package("still", 4000, 2), &mut dictionary);
        assert!(still.bytes() < 200, "{still:?}");
        // A list starts with an empty dictionary.
        let listed = CachedObject::of(again.1.clone(), &mut Dictionary::default());
        assert!(listed.is_same(&again.0) && again.0.is_same(&listed));
        let other = CachedObject::of(package("again", 4000, 4), &mut Dictionary::default());
        assert!(!other.is_same(&again.0));
    }

    #[test]
    fn a_resource_version_alone_is_no_change() {
        let cluster = |paused: bool, revision: &str| {
            let metadata = json!({"name": "one", "resourceVersion": revision});
            let cluster = json!({"metadata": metadata, "spec": {"paused": paused}});
            CachedObject::of(
                serde_json::from_value::<Cluster>(cluster).unwrap(),
                &mut Dictionary::default(),
            )
        };
        let before = cluster(false, "7");
        assert!(cluster(false, "8").is_same(&before));
        // A restored etcd counts revisions as it did before.
        assert!(!cluster(true, "7").is_same(&before));
        let revision = before.parse().metadata.resource_version;
        assert_eq!(revision.as_deref(), Some("7"), "writes name it");
    }
}
