//! Size limit of a store whose server is untrusted.

use std::{collections::HashMap, fmt, io};

use kube::{Resource, ResourceExt};
use serde::Serialize;

/// Overhead of an object in bytes, so that many small objects count too.
const OVERHEAD: usize = 1024;

/// Size of an item with fields in memory, in bytes: a JSON map with one entry, or half of an App without fields.
const ITEM: usize = 640;

/// Size of any other list element, in bytes.
const ELEMENT: usize = 32;

/// Estimates the memory of decoded JSON in bytes: its length, plus the overhead of list items and map entries.
#[must_use]
pub fn memory_of(json: &[u8]) -> usize {
    let structure = json.iter().map(|byte| match byte {
        b'{' | b'[' => ITEM,
        b',' => ELEMENT,
        _ => 0,
    });
    json.len() + structure.sum::<usize>()
}

/// Accounts for the content of a store and of its list in progress.
#[derive(Debug)]
pub struct Cap {
    limit: usize,
    held: Sizes,
    listed: Sizes,
}

/// Object sizes, by namespace and name.
#[derive(Debug, Default)]
struct Sizes {
    each: HashMap<(Option<String>, String), usize>,
    total: usize,
}

impl Cap {
    /// Returns an empty account with a limit of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            held: Sizes::default(),
            listed: Sizes::default(),
        }
    }

    /// Starts a list.
    pub fn list(&mut self) {
        self.listed = Sizes::default();
    }

    /// Adds an object of the list.
    pub fn listed<K: Resource + Serialize>(&mut self, object: &K) {
        self.listed.put(object);
    }

    /// Completes the list, which replaces the content of the store.
    pub fn filled(&mut self) {
        self.held = std::mem::take(&mut self.listed);
    }

    /// Records a new or changed object.
    pub fn touched<K: Resource + Serialize>(&mut self, object: &K) {
        self.held.put(object);
    }

    /// Records a deleted object.
    pub fn gone<K: Resource>(&mut self, object: &K) {
        self.held.remove(object);
    }

    /// Returns the reason to empty the store, if the limit is exceeded. A list in progress has the same limit as the content.
    #[must_use]
    pub fn exceeded(&self) -> Option<GivenUp> {
        let largest = self.held.total.max(self.listed.total);
        (largest > self.limit).then_some(GivenUp::TooMuch(self.limit))
    }

    /// Clears the account.
    pub fn clear(&mut self) {
        *self = Self::new(self.limit);
    }
}

impl Sizes {
    fn put<K: Resource + Serialize>(&mut self, object: &K) {
        let size = measure(object) + OVERHEAD;
        let before = self.each.insert((object.namespace(), object.name_any()), size);
        self.total = self.total + size - before.unwrap_or(0);
    }

    fn remove<K: Resource>(&mut self, object: &K) {
        let before = self.each.remove(&(object.namespace(), object.name_any()));
        self.total -= before.unwrap_or(0);
    }
}

/// Estimates the memory of an object in bytes: its JSON length without unknown fields, plus the overhead of list items and map entries,
/// which may be empty.
fn measure<K: Serialize>(object: &K) -> usize {
    let mut counted = Counted(0);
    // The object was decoded from JSON, and counting cannot fail.
    let _counted = serde_json::to_writer(&mut counted, object);
    counted.0
}

struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += memory_of(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reason to empty a store. Sluice lists it again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// The content would exceed this limit, in bytes.
    TooMuch(usize),
    /// Its watch panicked.
    Panicked,
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked => f.write_str("their watch panicked; see the log of Sluice"),
            Self::TooMuch(limit) => write!(f, "they exceed {} MiB", limit / 1024 / 1024),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::OwnerReference};
    use kube::core::ObjectMeta;

    use super::*;

    fn object(name: &str, size: usize) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some([("text".to_owned(), "x".repeat(size))].into()),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn existing_objects_count_once() {
        let mut cap = Cap::new(12_000);
        let touched = |cap: &mut Cap, name, size| {
            cap.touched(&object(name, size));
            cap.exceeded()
        };
        for _ in 0..10 {
            assert_eq!(touched(&mut cap, "a", 7_000), None, "the same one");
        }
        assert_eq!(touched(&mut cap, "b", 7_000), Some(GivenUp::TooMuch(12_000)));
        cap.gone(&object("a", 0));
        cap.gone(&object("never there", 0));
        assert_eq!(cap.exceeded(), None);
        assert!(touched(&mut cap, "b", 10_000).is_some(), "larger than before");
        cap.clear();
        assert_eq!(touched(&mut cap, "c", 7_000), None);
    }

    #[test]
    fn a_list_replaces_the_content() {
        let mut cap = Cap::new(12_000);
        for _ in 0..3 {
            cap.list();
            cap.listed(&object("a", 7_000));
            cap.filled();
            assert_eq!(cap.exceeded(), None);
        }
        cap.touched(&object("b", 7_000));
        assert!(cap.exceeded().is_some(), "the list is the content");
        cap.gone(&object("b", 0));
        cap.list();
        cap.listed(&object("a", 7_000));
        assert_eq!(cap.exceeded(), None);
        cap.listed(&object("b", 7_000));
        assert!(cap.exceeded().is_some());
    }

    #[test]
    fn empty_items_count() {
        let mut nothing_much = object("a", 0);
        nothing_much.metadata.finalizers = Some(vec![String::new(); 1000]);
        nothing_much.metadata.owner_references = Some(vec![OwnerReference::default(); 1000]);
        let least = size_of::<[String; 1000]>() + size_of::<[OwnerReference; 1000]>();
        assert!(measure(&nothing_much) > least);
    }

    #[test]
    fn empty_objects_count() {
        let mut cap = Cap::new(100 * OVERHEAD);
        let refused = (0..1000).find(|number: &u32| {
            cap.touched(&object(&number.to_string(), 0));
            cap.exceeded().is_some()
        });
        assert!(refused.is_some_and(|number| number < 100), "{refused:?}");
    }
}
