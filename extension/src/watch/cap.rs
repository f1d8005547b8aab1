//! How much a store may hold whose server is not trusted.

use std::{collections::HashMap, fmt, io};

use kube::{Resource, ResourceExt, runtime::watcher::Event};
use serde::Serialize;

use crate::bounded::memory_of;

/// What an object takes beside its content, so that many small ones count too.
const OVERHEAD: usize = 1024;

/// Counts what a store holds, and what is listed for it meanwhile.
pub(super) struct Cap<K> {
    limit: usize,
    measure: fn(&K) -> usize,
    held: Sizes,
    listed: Sizes,
}

/// Sizes of objects, by namespace and name.
#[derive(Default)]
struct Sizes {
    each: HashMap<(Option<String>, String), usize>,
    total: usize,
}

impl<K: Resource + Serialize> Cap<K> {
    /// Of `limit` bytes. Nothing is held yet.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            measure,
            held: Sizes::default(),
            listed: Sizes::default(),
        }
    }
}

impl<K: Resource> Cap<K> {
    /// Whether the store may take `event`. To be asked once for each.
    pub(super) fn lets_in(&mut self, event: &Event<K>) -> bool {
        match event {
            Event::Init => self.listed = Sizes::default(),
            Event::InitApply(object) => self.listed.put(object, (self.measure)(object)),
            Event::InitDone => self.held = std::mem::take(&mut self.listed),
            Event::Apply(object) => self.held.put(object, (self.measure)(object)),
            Event::Delete(object) => self.held.remove(object),
        }
        // One beside the other: what is listed takes the place of what is held.
        self.held.total.max(self.listed.total) <= self.limit
    }

    /// Nothing is held any more.
    pub(super) fn clear(&mut self) {
        (self.held, self.listed) = (Sizes::default(), Sizes::default());
    }

    /// The largest size, in bytes.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }
}

impl Sizes {
    fn put<K: Resource>(&mut self, object: &K, size: usize) {
        let size = size + OVERHEAD;
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
        let mut cap = Cap::<ConfigMap>::new(10_000);
        for _ in 0..10 {
            assert!(cap.lets_in(&Event::Apply(object("a", 7_000))), "the same one");
        }
        assert!(!cap.lets_in(&Event::Apply(object("b", 7_000))));
        assert!(cap.lets_in(&Event::Delete(object("a", 0))));
        assert!(cap.lets_in(&Event::Delete(object("never there", 0))));
        assert!(
            !cap.lets_in(&Event::Apply(object("b", 10_000))),
            "larger than before"
        );
        cap.clear();
        assert!(cap.lets_in(&Event::Apply(object("c", 7_000))));
    }

    #[test]
    fn what_is_listed_takes_the_place_of_what_is_held() {
        let mut cap = Cap::<ConfigMap>::new(10_000);
        for _ in 0..3 {
            assert!(cap.lets_in(&Event::Init));
            assert!(cap.lets_in(&Event::InitApply(object("a", 7_000))));
            assert!(cap.lets_in(&Event::InitDone));
        }
        assert!(cap.lets_in(&Event::Init));
        assert!(cap.lets_in(&Event::InitApply(object("a", 7_000))));
        assert!(!cap.lets_in(&Event::InitApply(object("b", 7_000))));
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
        let mut cap = Cap::<ConfigMap>::new(100 * OVERHEAD);
        let refused = (0..1000).find(|number| !cap.lets_in(&Event::Apply(object(&number.to_string(), 0))));
        assert!(refused.is_some_and(|number| number < 100), "{refused:?}");
    }
}
