//! Who depends on what.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use crate::step::Source;

/// Who depends on what, in both directions.
#[derive(Debug)]
pub struct Dependencies<T> {
    dependents: HashMap<Source, HashSet<T>>,
    sources: HashMap<T, Vec<Source>>,
}

impl<T> Default for Dependencies<T> {
    fn default() -> Self {
        Self {
            dependents: HashMap::new(),
            sources: HashMap::new(),
        }
    }
}

impl<T: Clone + Eq + Hash> Dependencies<T> {
    /// Those that depend on `source`.
    pub fn on(&self, source: &Source) -> impl Iterator<Item = &T> {
        self.dependents.get(source).into_iter().flatten()
    }

    /// `dependent` depends on `sources` and nothing else.
    pub fn set(&mut self, dependent: &T, sources: &[Source]) {
        self.remove(dependent);
        for source in sources {
            self.add(dependent, source);
        }
    }

    /// `dependent` depends on `source` too.
    pub fn add(&mut self, dependent: &T, source: &Source) {
        let dependents = self.dependents.entry(source.clone()).or_default();
        if dependents.insert(dependent.clone()) {
            let sources = self.sources.entry(dependent.clone()).or_default();
            sources.push(source.clone());
        }
    }

    fn remove(&mut self, dependent: &T) {
        for source in self.sources.remove(dependent).into_iter().flatten() {
            if let Some(dependents) = self.dependents.get_mut(&source) {
                dependents.remove(dependent);
                if dependents.is_empty() {
                    self.dependents.remove(&source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_depends_on_what_it_was_set_to() {
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
