//! Bounded parts of a review body: no text is longer than a name, no list longer than a definition allows.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use sluice_core::{
    admission::{ANNOTATIONS, cluster_upgrade::is_exemption, longest},
    names::LONGEST_NAME,
    packages::bootstrap::MOST_ADDITIONAL,
    resolver,
};

/// Text that is cut where it exceeds any name, so that the rest is never a valid name.
#[derive(Debug, Default)]
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self(cut(&text, LONGEST_NAME + 1)))
    }
}

fn cut(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// List with at most one element more than allowed.
pub(super) struct Bounded<T>(pub(super) Vec<T>);

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);
        impl<'de, T: DeserializeOwned> Visitor<'de> for List<T> {
            type Value = Bounded<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Bounded::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut kept = Vec::new();
                while kept.len() <= MOST_ADDITIONAL
                    && let Some(item) = list.next_element()?
                {
                    kept.push(item);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Bounded(kept))
            }
        }
        deserializer.deserialize_any(List(PhantomData))
    }
}

/// Set of map keys to keep.
pub(super) trait Keys {
    /// Whether the key is one of them.
    fn contain(key: &str) -> bool;
}

/// Annotations of ClusterBootstraps with rules.
#[derive(Debug)]
pub(super) struct OfBootstraps;

impl Keys for OfBootstraps {
    fn contain(key: &str) -> bool {
        ANNOTATIONS.contains(&key)
    }
}

/// Labels and annotations of Clusters that resolutions and checks of upgrades use.
#[derive(Debug)]
pub(super) struct OfClusters;

impl Keys for OfClusters {
    fn contain(key: &str) -> bool {
        resolver::KEYS.contains(&key) || is_exemption(key)
    }
}

/// Labels or annotations with selected keys.
#[derive(Debug)]
pub(super) struct Chosen<K>(pub(super) BTreeMap<String, String>, PhantomData<K>);

impl<K> Default for Chosen<K> {
    fn default() -> Self {
        Self(BTreeMap::new(), PhantomData)
    }
}

impl<'de, K: Keys> Deserialize<'de> for Chosen<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All<K>(PhantomData<K>);
        impl<'de, K: Keys> Visitor<'de> for All<K> {
            type Value = Chosen<K>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels or annotations")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Chosen::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut kept = BTreeMap::new();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if K::contain(&key) {
                        let text: Cow<'de, str> = map.next_value()?;
                        let text = cut(&text, longest(&key));
                        kept.insert(key.into_owned(), text);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Chosen(kept, PhantomData))
            }
        }
        deserializer.deserialize_any(All(PhantomData))
    }
}

/// Whether an owner is a Cluster.
#[derive(Debug, Default)]
pub(super) struct Owned(pub(super) bool);

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Owner {
            #[serde(default)]
            kind: Text,
        }
        struct Owners;
        impl<'de> Visitor<'de> for Owners {
            type Value = Owned;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("owners")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Owned(false))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut owned = false;
                while let Some(owner) = list.next_element::<Owner>()? {
                    owned |= owner.kind.0 == "Cluster";
                }
                Ok(Owned(owned))
            }
        }
        deserializer.deserialize_any(Owners)
    }
}
