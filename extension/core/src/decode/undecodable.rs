//! The readable part of an undecodable object.

use std::fmt;

use kube::core::ObjectMeta;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use sluice_crds::{
    decode::{Fault, ReadEntries},
    foreign::cluster::ClassRef,
    labels::annotation,
};

use super::text::{why, with_whole_characters};
use crate::{
    cluster::ClusterRef,
    reasons::{GateReason, Hold},
};

/// An object of an API server that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Undecodable {
    /// Its kind, from the object itself.
    pub kind: String,
    /// Name, namespace, UID, generation, resourceVersion and the labels that Sluice reads. Of the annotations only those that name its
    /// Cluster or request the resolution of a release.
    pub metadata: ObjectMeta,
    /// The ClusterClass of a Cluster with a topology, if it is readable.
    pub class: Option<ClassRef>,
    /// The undecodable field and its fault: one line without any value of the object.
    pub why: String,
}

impl Undecodable {
    /// Describes `object`, which does not decode because of this fault. `None` if its name is unreadable: no API server sends such an object.
    pub(crate) fn of(object: &str, fault: &Fault) -> Option<Self> {
        let named = Self::named(object)?;
        Some(Self {
            why: why(fault),
            ..named
        })
    }

    /// Reads all fields except `why`.
    fn named(object: &str) -> Option<Self> {
        // Lone surrogates are the only difference between the JSON readers of Go and serde_json.
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

    /// Its namespace, empty for cluster-scoped kinds, and its name.
    #[must_use]
    pub fn reference(&self) -> ClusterRef {
        ClusterRef::in_meta(&self.metadata)
    }

    /// Returns whether the object is the same as `before`, except for its resourceVersion.
    #[must_use]
    pub fn is_same(&self, before: &Self) -> bool {
        let mut revised = self.clone();
        let revision = &before.metadata.resource_version;
        revised.metadata.resource_version.clone_from(revision);
        revised == *before
    }

    /// The hold of a dependent Cluster.
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
        // No valid name is longer or has other characters.
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

/// Whether a text is a valid kind. The server behind a workload address may not be an API server.
fn is_kind(kind: &str) -> bool {
    (1..=63).contains(&kind.len()) && kind.chars().all(|letter| letter.is_ascii_alphanumeric())
}

/// Fields that are read from any object.
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

/// The undecoded fields of an object. Of two fields with the same name the later one counts, as in Go.
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

            /// Fails with an error that does not repeat the text.
            fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
                Err(E::custom("a string is not an object"))
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

/// Longest kept name or label value, in bytes.
const LONGEST: usize = 1024;

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST));
    text.shrink_to_fit();
    text
}

/// The ClusterClass of a Cluster, independent of the rest of its spec.
fn class(fields: &Fields<'_>) -> Option<ClassRef> {
    let spec: Fields<'_> = field(fields, "spec")?;
    let topology: Fields<'_> = field(&spec, "topology")?;
    // Before v1beta2 name and namespace were next to the version.
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
