//! What is known of an object that cannot be decoded.

use std::fmt;

use kube::core::ObjectMeta;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use sluice_crds::{
    decode::{Limit, ReadEntries},
    foreign::cluster::ClassRef,
    labels::annotation,
};

use super::text::{why, with_whole_characters};
use crate::{
    cluster::ClusterRef,
    reasons::{GateReason, Hold},
};

/// An object that an API server has and that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Undecodable {
    /// Its kind, as it says itself.
    pub kind: String,
    /// Name, namespace, UID, generation, resourceVersion and the labels that Sluice reads; of the annotations those that say which Cluster it
    /// belongs to, and whether a release has to be resolved.
    pub metadata: ObjectMeta,
    /// Of a Cluster with a topology, the ClusterClass, if that can be read.
    pub class: Option<ClassRef>,
    /// The field that cannot be decoded, and why: one line without any value of the object.
    pub why: String,
}

impl Undecodable {
    /// What can be said of `object`, which is none of the kind `K` within this limit. None if not even its name can be read: no API server
    /// sends that.
    pub(crate) fn of<K: DeserializeOwned>(object: &str, limit: Limit) -> Option<Self> {
        let named = Self::named(object)?;
        Some(Self {
            why: why::<K>(object, limit),
            ..named
        })
    }

    /// The same of an object that takes too much to be kept. None if it has no name.
    pub(crate) fn too_large<K: Serialize>(object: &K, why: &str) -> Option<Self> {
        let named = Self::named(&serde_json::to_string(object).ok()?)?;
        Some(Self {
            why: why.to_owned(),
            ..named
        })
    }

    /// All but what is wrong with it.
    fn named(object: &str) -> Option<Self> {
        // In nothing but this differs what Go reads from what serde_json does.
        let whole = with_whole_characters(object);
        let fields: Fields<'_> = serde_json::from_str(&whole).ok()?;
        let meta: Fields<'_> = field(&fields, "metadata")?;
        let text = |name: &str| field::<String>(&meta, name).map(shortened);
        let named = [
            annotation::CLUSTER_NAME,
            annotation::CLUSTER_NAMESPACE,
            annotation::RESOLVE_TKR,
        ];
        let entries = |name: &str| {
            let ReadEntries(entries) = field(&meta, name).unwrap_or_default();
            entries.into_iter().map(|(key, value)| (key, shortened(value)))
        };
        let metadata = ObjectMeta {
            name: Some(text("name")?),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            generation: field(&meta, "generation"),
            labels: Some(entries("labels").collect()),
            annotations: Some(
                entries("annotations")
                    .filter(|(key, _)| named.contains(&key.as_str()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        };
        let kind = field(&fields, "kind").filter(|kind: &String| is_kind(kind));
        Some(Self {
            kind: kind.unwrap_or_else(|| "object".to_owned()),
            metadata,
            class: class(&fields),
            why: String::new(),
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

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// The fields that are looked into of any object.
const NAMES: [&str; 15] = [
    "kind",
    "items",
    "metadata",
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "labels",
    "annotations",
    "spec",
    "topology",
    "classRef",
    "class",
    "classNamespace",
];

/// The fields of an object, of which none has been looked into. Of two of one name the later one counts, as in Go.
pub(super) struct Fields<'a>([Option<&'a RawValue>; NAMES.len()]);

impl<'a> Fields<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let at = NAMES.iter().position(|known| *known == name)?;
        self.0[at]
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            /// Without an error that repeats the text.
            fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
                Err(E::custom("a text is no object"))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Fields([None; NAMES.len()]);
                while let Some(name) = map.next_key::<String>()? {
                    match NAMES.iter().position(|known| *known == name) {
                        Some(at) => fields.0[at] = Some(map.next_value()?),
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_any(Each)
    }
}

/// Bytes of a name, or of the value of a label, that are kept.
const LONGEST: usize = 1024;

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST));
    text.shrink_to_fit();
    text
}

/// The ClusterClass that a Cluster names, whatever else of its spec cannot be decoded.
fn class(fields: &Fields<'_>) -> Option<ClassRef> {
    let spec: Fields<'_> = field(fields, "spec")?;
    let topology: Fields<'_> = field(&spec, "topology")?;
    // Before v1beta2 name and namespace stood beside the version.
    let own = || {
        let name = field(&topology, "class")?;
        let namespace = field(&topology, "classNamespace");
        Some(ClassRef { name, namespace })
    };
    let ClassRef { name, namespace } = field::<ClassRef>(&topology, "classRef").or_else(own)?;
    (!name.is_empty()).then(|| ClassRef {
        name: shortened(name),
        namespace: namespace.map(shortened),
    })
}

fn field<'a, T: Deserialize<'a>>(fields: &Fields<'a>, name: &str) -> Option<T> {
    serde_json::from_str(fields.get(name)?.get()).ok()
}
