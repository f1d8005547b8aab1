//! Dependents of sources.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash, RandomState},
};

use crate::protocol::Source;

/// Index of dependents and their sources, in both directions. Sources are stored as hashes. A hash collision only causes a needless
/// requeue.
#[derive(Debug)]
pub struct Dependencies<T> {
    dependents: HashMap<u64, Vec<T>>,
    sources: HashMap<T, Vec<u64>>,
    hasher: RandomState,
}

impl<T> Default for Dependencies<T> {
    fn default() -> Self {
        Self {
            dependents: HashMap::new(),
            sources: HashMap::new(),
            hasher: RandomState::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Dependencies<T> {
    /// Returns the dependents of `source`.
    pub fn on(&self, source: &Source) -> impl Iterator<Item = &T> {
        let source = self.hasher.hash_one(source);
        self.dependents.get(&source).into_iter().flatten()
    }

    /// Replaces the sources of `dependent`.
    pub fn set(&mut self, dependent: &T, sources: &[Source]) {
        let next: Vec<u64> = sources
            .iter()
            .map(|source| self.hasher.hash_one(source))
            .collect();
        let mut before = self.sources.remove(dependent).unwrap_or_default();
        before.retain(|source| {
            let stays = next.contains(source);
            if !stays {
                self.remove(dependent, *source);
            }
            stays
        });
        if !before.is_empty() {
            self.sources.insert(dependent.clone(), before);
        }
        for source in next {
            self.add_hash(dependent, source);
        }
    }

    /// Adds `source` to the sources of `dependent`.
    pub fn add(&mut self, dependent: &T, source: &Source) {
        self.add_hash(dependent, self.hasher.hash_one(source));
    }

    fn add_hash(&mut self, dependent: &T, source: u64) {
        let sources = self.sources.entry(dependent.clone()).or_default();
        // A dependent has few sources, but one source may have thousands of dependents.
        if !sources.contains(&source) {
            sources.push(source);
            self.dependents.entry(source).or_default().push(dependent.clone());
        }
    }

    fn remove(&mut self, dependent: &T, source: u64) {
        if let Some(dependents) = self.dependents.get_mut(&source) {
            dependents.retain(|other| other != dependent);
            if dependents.is_empty() {
                self.dependents.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_depends_on_its_latest_sources() {
        let (one, two) = (Source::cluster("ns", "one"), Source::cluster("ns", "two"));
        let mut dependencies = Dependencies::default();
        let on = |dependencies: &Dependencies<&'static str>, source: &Source| {
            let mut on: Vec<_> = dependencies.on(source).copied().collect();
            on.sort_unstable();
            on
        };
        dependencies.set(&"a", std::slice::from_ref(&one));
        dependencies.set(&"b", std::slice::from_ref(&one));
        dependencies.add(&"b", &two);
        assert_eq!(on(&dependencies, &one), ["a", "b"]);
        assert_eq!(on(&dependencies, &two), ["b"]);

        dependencies.set(&"b", std::slice::from_ref(&two));
        assert_eq!(on(&dependencies, &one), ["a"]);

        dependencies.set(&"a", &[]);
        dependencies.set(&"b", &[]);
        assert!(dependencies.dependents.is_empty(), "nothing is left behind");
        assert!(dependencies.sources.is_empty(), "nothing is left behind");
    }
}
