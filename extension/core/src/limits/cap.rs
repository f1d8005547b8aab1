//! How much a store may hold whose server is not trusted.

use std::{collections::HashMap, fmt, io};

use kube::{Resource, ResourceExt};
use serde::Serialize;

/// What an object takes beside its content, so that many small ones count too.
const OVERHEAD: usize = 1024;

/// What an item with fields takes in memory: a map of JSON with one entry, or half of an App without fields.
const ITEM: usize = 640;

/// What any other element of a list takes.
const ELEMENT: usize = 32;

/// About how many bytes JSON takes when it is read: its own, and what items of lists and maps take beside their content.
#[must_use]
pub fn memory_of(json: &[u8]) -> usize {
    let structure = json.iter().map(|byte| match byte {
        b'{' | b'[' => ITEM,
        b',' => ELEMENT,
        _ => 0,
    });
    json.len() + structure.sum::<usize>()
}

/// Counts what a store holds, and what is listed for it meanwhile.
#[derive(Debug)]
pub struct Cap {
    limit: usize,
    held: Sizes,
    listed: Sizes,
}

/// Sizes of objects, by namespace and name.
#[derive(Debug, Default)]
struct Sizes {
    each: HashMap<(Option<String>, String), usize>,
    total: usize,
}

impl Cap {
    /// Of `limit` bytes. Nothing is held yet.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            held: Sizes::default(),
            listed: Sizes::default(),
        }
    }

    /// A list begins.
    pub fn list(&mut self) {
        self.listed = Sizes::default();
    }

    /// The list has this object.
    pub fn listed<K: Resource + Serialize>(&mut self, object: &K) {
        self.listed.put(object);
    }

    /// The list has ended; it takes the place of what is held.
    pub fn filled(&mut self) {
        self.held = std::mem::take(&mut self.listed);
    }

    /// An object is new or changed.
    pub fn touched<K: Resource + Serialize>(&mut self, object: &K) {
        self.held.put(object);
    }

    /// An object is gone.
    pub fn gone<K: Resource>(&mut self, object: &K) {
        self.held.remove(object);
    }

    /// Why the store has to be given up, if it has to. What is listed lies beside what is held until then.
    #[must_use]
    pub fn exceeded(&self) -> Option<GivenUp> {
        let largest = self.held.total.max(self.listed.total);
        (largest > self.limit).then_some(GivenUp::TooMuch(self.limit))
    }

    /// Nothing is held any more.
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

/// About how many bytes an object takes: as many as in JSON, without what its type does not read, and what the elements of lists and
/// maps take beside their content, which may be empty.
fn measure<K: Serialize>(object: &K) -> usize {
    let mut counted = Counted(0);
    // It was read from JSON, and counting does not fail.
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

/// Why a store was emptied. It is listed again by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// It would have held more than so many bytes.
    TooMuch(usize),
    /// Following it ended in a panic.
    Panicked,
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked => {
                f.write_str("following them ended in a bug of Sluice; the log of Sluice says where")
            }
            Self::TooMuch(limit) => write!(f, "they take more than {} MiB", limit / 1024 / 1024),
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
    fn objects_count_once_and_while_they_are_there() {
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
    fn what_is_listed_takes_the_place_of_what_is_held() {
        let mut cap = Cap::new(12_000);
        for _ in 0..3 {
            cap.list();
            cap.listed(&object("a", 7_000));
            cap.filled();
            assert_eq!(cap.exceeded(), None);
        }
        cap.touched(&object("b", 7_000));
        assert!(cap.exceeded().is_some(), "what was listed is held");
        cap.gone(&object("b", 0));
        cap.list();
        cap.listed(&object("a", 7_000));
        assert_eq!(cap.exceeded(), None);
        cap.listed(&object("b", 7_000));
        assert!(cap.exceeded().is_some());
    }

    #[test]
    fn what_is_empty_takes_memory_too() {
        let mut nothing_much = object("a", 0);
        nothing_much.metadata.finalizers = Some(vec![String::new(); 1000]);
        nothing_much.metadata.owner_references = Some(vec![OwnerReference::default(); 1000]);
        let least = size_of::<[String; 1000]>() + size_of::<[OwnerReference; 1000]>();
        assert!(measure(&nothing_much) > least);
    }

    #[test]
    fn many_empty_objects_count_too() {
        let mut cap = Cap::new(100 * OVERHEAD);
        let refused = (0..1000).find(|number: &u32| {
            cap.touched(&object(&number.to_string(), 0));
            cap.exceeded().is_some()
        });
        assert!(refused.is_some_and(|number| number < 100), "{refused:?}");
    }
}
