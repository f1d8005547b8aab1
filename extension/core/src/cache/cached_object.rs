//! Compressed text of a cached object.

use std::{fmt, io, marker::PhantomData};

use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};

use super::Cached;

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
    /// JSON without the resourceVersion, compressed by lz4.
    packed: Box<[u8]>,
    kind: PhantomData<fn() -> K>,
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
    pub fn of(mut object: K) -> Self {
        object.prune();
        let meta = object.meta_mut();
        let revision = meta.resource_version.take().map(String::into_boxed_str);
        let namespace = meta.namespace.as_deref().map(Box::from);
        let name = meta.name.as_deref().unwrap_or_default().into();
        let uid = meta.uid.as_deref().map(Box::from);
        let cluster = K::cluster_of(meta).map(String::into_boxed_str);
        let packed = match serde_json::to_vec(&object) {
            Ok(json) => compress_prepend_size(&json).into_boxed_slice(),
            Err(error) => unreachable!("{name:?} is no JSON: {error}"),
        };
        Self {
            namespace,
            name,
            revision,
            uid,
            cluster,
            packed,
            kind: PhantomData,
        }
    }

    /// Parses the object.
    #[must_use]
    pub fn parse(&self) -> K {
        match self.unpacked() {
            Ok(object) => {
                let mut object: K = object.into();
                object.meta_mut().resource_version = self.revision.as_deref().map(str::to_owned);
                object
            }
            // To treat the object as absent could open a gate.
            Err(error) => unreachable!("{self:?} was packed by this process: {error}"),
        }
    }

    fn unpacked(&self) -> io::Result<K::Read> {
        let json = decompress_size_prepended(&self.packed).map_err(io::Error::other)?;
        // A text, because types borrow parts of it.
        let json = std::str::from_utf8(&json).map_err(io::Error::other)?;
        Ok(serde_json::from_str(json)?)
    }

    /// Returns whether the object is the same as `before`, except for its resourceVersion.
    #[must_use]
    pub fn is_same(&self, before: &Self) -> bool {
        self.packed == before.packed
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
    use serde_json::{Value, json};

    use kube::core::DynamicObject;
    use sluice_crds::{
        foreign::{
            App, Cluster, ClusterClass, ControlPlane, MachineDeployment, MachinePool, Package, PackageInstall,
        },
        run::{ClusterBootstrapTemplate, TanzuKubernetesRelease},
    };

    use super::*;
    use crate::decode::Item;

    /// Annotation in which kubectl stores a whole object.
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

    /// Returns the cached form of `object`.
    fn left<K: Cached + Clone + PartialEq + fmt::Debug>(object: &Value) -> Value {
        let object: K = serde_json::from_value(object.clone()).unwrap();
        let cached = CachedObject::of(object.clone()).parse();
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

    /// Each of its fields is as deep as serde_json parses.
    #[test]
    fn a_deep_object_is_parsed_again() {
        let deep = format!("{}{}", "[".repeat(126), "]".repeat(126));
        let text = format!(r#"{{"metadata":{{"name":"one"}},"spec":{{"a":{deep}}}}}"#);
        let Some(Item::Decoded(object)) = Item::<DynamicObject>::of(&text) else {
            panic!("it cannot be decoded");
        };
        assert_eq!(CachedObject::of(object.clone()).parse(), object);
    }

    #[test]
    fn a_resource_version_alone_is_no_change() {
        let cluster = |paused: bool, revision: &str| {
            let metadata = json!({"name": "one", "resourceVersion": revision});
            let cluster = json!({"metadata": metadata, "spec": {"paused": paused}});
            CachedObject::of(serde_json::from_value::<Cluster>(cluster).unwrap())
        };
        let before = cluster(false, "7");
        assert!(cluster(false, "8").is_same(&before));
        // A restored etcd counts revisions as it did before.
        assert!(!cluster(true, "7").is_same(&before));
        let revision = before.parse().metadata.resource_version;
        assert_eq!(revision.as_deref(), Some("7"), "writes name it");
    }
}
