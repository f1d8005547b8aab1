//! What is known of an object that cannot be decoded.

use std::collections::HashMap;

use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use sluice_crds::{foreign::cluster::ClassRef, labels::annotation};

use super::text::{why, with_whole_characters};
use crate::{
    cluster::ClusterRef,
    hold::{GateReason, Hold},
};

/// An object that an API server has and that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Undecodable {
    /// Its kind, as it says itself.
    pub kind: String,
    /// Name, namespace, UID, generation, resourceVersion and labels; of the annotations those that say which Cluster it belongs to, and
    /// whether a release has to be resolved.
    pub metadata: ObjectMeta,
    /// Of a Cluster with a topology, the ClusterClass, if that can be read.
    pub class: Option<ClassRef>,
    /// The field that cannot be decoded, and why: one line without any value of the object.
    pub why: String,
}

impl Undecodable {
    /// What can be said of `object`, which is none of the kind `K`. None if not even its name can be read: no API server sends that.
    pub(super) fn of<K: DeserializeOwned>(object: &str) -> Option<Self> {
        // In nothing but this differs what Go reads from what serde_json does.
        let whole = with_whole_characters(object);
        let fields: Fields = serde_json::from_str(&whole).ok()?;
        let meta: Fields = field(&fields, "metadata")?;
        let named = [
            annotation::CLUSTER_NAME,
            annotation::CLUSTER_NAMESPACE,
            annotation::RESOLVE_TKR,
        ];
        let mut annotations: std::collections::BTreeMap<String, String> =
            field(&meta, "annotations").unwrap_or_default();
        annotations.retain(|key, _| named.contains(&key.as_str()));
        let metadata = ObjectMeta {
            name: Some(field::<String>(&meta, "name")?),
            namespace: field(&meta, "namespace"),
            uid: field(&meta, "uid"),
            resource_version: field(&meta, "resourceVersion"),
            generation: field(&meta, "generation"),
            labels: field(&meta, "labels"),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        Some(Self {
            kind: field(&fields, "kind")
                .filter(|kind: &String| is_kind(kind))
                .unwrap_or_else(|| "object".to_owned()),
            metadata,
            class: class(&fields),
            why: why::<K>(object),
        })
    }

    /// Its namespace, which is empty for kinds without namespaces, and its name.
    #[must_use]
    pub fn reference(&self) -> ClusterRef {
        ClusterRef::in_meta(&self.metadata)
    }

    /// Why a Cluster is held that rests on it.
    #[must_use]
    pub fn hold(&self) -> Hold {
        Hold::new(GateReason::ObjectUndecodable, self.to_string())
    }
}

impl std::fmt::Display for Undecodable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kind, metadata, why, ..
        } = self;
        write!(f, "{kind} ")?;
        if let Some(namespace) = &metadata.namespace {
            write!(f, "{namespace}/")?;
        }
        // No name of an API server is longer, or has other letters.
        let name: String = metadata
            .name
            .iter()
            .flat_map(|name| name.chars())
            .take(253)
            .collect();
        let name = name.escape_debug();
        write!(f, "{name} cannot be decoded: {why}; correct it or delete it")
    }
}

/// Whether a text is a kind as API servers name them. What answers for a workload may be none.
fn is_kind(kind: &str) -> bool {
    (1..=63).contains(&kind.len()) && kind.chars().all(|letter| letter.is_ascii_alphanumeric())
}

/// The fields of an object, of which none has been looked into. Of two of one name the later one counts, as in Go.
pub(super) type Fields = HashMap<String, Box<RawValue>>;

/// The ClusterClass that a Cluster names, whatever else of its spec cannot be decoded.
fn class(fields: &Fields) -> Option<ClassRef> {
    let spec: Fields = field(fields, "spec")?;
    let topology: Fields = field(&spec, "topology")?;
    // Before v1beta2 name and namespace stood beside the version.
    let own = || {
        let name = field(&topology, "class")?;
        let namespace = field(&topology, "classNamespace");
        Some(ClassRef { name, namespace })
    };
    let class = field::<ClassRef>(&topology, "classRef").or_else(own)?;
    (!class.name.is_empty()).then_some(class)
}

fn field<T: for<'a> Deserialize<'a>>(fields: &Fields, name: &str) -> Option<T> {
    serde_json::from_str(fields.get(name)?.get()).ok()
}
