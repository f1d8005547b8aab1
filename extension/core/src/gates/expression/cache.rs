//! Compiled texts of this process. Each reconcile of each Cluster compiles its gates.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::Compiled;

/// Most memory of all compiled texts, in bytes, by their weights.
const LARGEST: usize = 32 * 1024 * 1024;

/// Memory of a node of a syntax tree, in bytes.
const NODE: usize = 256;

/// Compiled texts of this process.
pub(super) static CACHE: Cache = Cache(Mutex::new(None));

/// Result of the compilation of a text.
type Result = std::result::Result<Arc<Compiled>, String>;

/// Compiled texts, up to a limit of memory. Those that were used last stay.
pub(super) struct Cache(Mutex<Option<Texts>>);

#[derive(Default)]
struct Texts {
    results: HashMap<String, Entry>,
    weight: usize,
    uses: u64,
}

struct Entry {
    result: Result,
    weight: usize,
    used: u64,
}

impl Cache {
    /// Returns the result for a text, from `compile` if it is not known.
    pub(super) fn get(&self, text: &str, compile: impl FnOnce() -> Result) -> Result {
        if let Some(result) = self.with(|texts| texts.known(text)) {
            return result;
        }
        let result = compile();
        self.with(|texts| texts.add(text, &result));
        result
    }

    /// Whether the result for a text is known.
    #[cfg(test)]
    pub(super) fn has(&self, text: &str) -> bool {
        self.with(|texts| texts.results.contains_key(text))
    }

    fn with<T>(&self, use_: impl FnOnce(&mut Texts) -> T) -> T {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        use_(texts.get_or_insert_default())
    }
}

impl Texts {
    fn known(&mut self, text: &str) -> Option<Result> {
        self.uses += 1;
        let entry = self.results.get_mut(text)?;
        entry.used = self.uses;
        Some(entry.result.clone())
    }

    fn add(&mut self, text: &str, result: &Result) {
        let weight = weight(text, result);
        if weight > LARGEST || self.results.contains_key(text) {
            return;
        }
        while self.weight + weight > LARGEST {
            let oldest = self.results.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(text, _)| text.clone()) else {
                break;
            };
            if let Some(removed) = self.results.remove(&oldest) {
                self.weight = self.weight.saturating_sub(removed.weight);
            }
        }
        let entry = Entry {
            result: result.clone(),
            weight,
            used: self.uses,
        };
        self.results.insert(text.to_owned(), entry);
        self.weight += weight;
    }
}

fn weight(text: &str, result: &Result) -> usize {
    let compiled = match result {
        Ok(compiled) => {
            let patterns = compiled.checked.patterns.iter();
            let patterns: usize = patterns.map(super::pattern::Pattern::memory).sum();
            compiled.checked.nodes * NODE + patterns
        }
        Err(problem) => problem.len(),
    };
    2 * text.len() + compiled + NODE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(size: usize) -> Result {
        Err("p".repeat(size))
    }

    #[test]
    fn a_text_is_compiled_once() {
        let cache = Cache(Mutex::new(None));
        assert_eq!(cache.get("a", || problem(1)).unwrap_err(), "p");
        assert_eq!(cache.get("a", || unreachable!("it is known")).unwrap_err(), "p");
        assert_eq!(cache.get("b", || problem(2)).unwrap_err(), "pp");
    }

    /// Each of the 50 gates of a namespace has up to 8 patterns, and all Clusters of it are judged in turn.
    #[test]
    fn the_patterns_of_a_namespace_do_not_evict_each_other() {
        let cache = Cache(Mutex::new(None));
        let texts: Vec<String> = (0..50).map(|gate| format!("gate {gate}")).collect();
        let largest_pattern = 32 * 1024;
        for text in &texts {
            let _ = cache.get(text, || problem(8 * largest_pattern + 300 * NODE));
        }
        for text in &texts {
            let _ = cache.get(text, || unreachable!("it is known"));
        }
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_was_used_last() {
        let cache = Cache(Mutex::new(None));
        let third = LARGEST / 3;
        for text in ["a", "b", "a", "c", "a", "d"] {
            let _ = cache.get(text, || problem(third));
            let weight = cache.with(|texts| {
                let sum: usize = texts.results.values().map(|entry| entry.weight).sum();
                assert_eq!(sum, texts.weight);
                sum
            });
            assert!(weight <= LARGEST, "{weight}");
        }
        let mut known = cache.with(|texts| texts.results.keys().cloned().collect::<Vec<_>>());
        known.sort();
        assert_eq!(known, ["a", "d"]);
        let _ = cache.get("huge", || problem(LARGEST));
        assert!(!cache.with(|texts| texts.results.contains_key("huge")));
    }
}
