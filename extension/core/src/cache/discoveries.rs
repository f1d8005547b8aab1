//! Rate limit of API discovery that callers of the webhook cause.

use std::time::{Duration, Instant};

use crate::cache::named::NamedKind;
use crate::limits::may_have_more;

/// Time within which a kind is discovered at most once.
pub const PERIOD: Duration = Duration::from_mins(1);

/// Number of kinds that are discovered within [`PERIOD`]. One namespace gets at most as many as it leaves to others.
const MOST: usize = 6;

/// Kinds discovered within the last minute, with their results. They are few, so no map is needed.
#[derive(Debug)]
pub struct Discoveries<T>(Vec<Discovery<T>>);

#[derive(Debug)]
struct Discovery<T> {
    kind: NamedKind,
    namespace: String,
    began: Instant,
    found: T,
}

/// Decision about the discovery of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn<T> {
    /// Discover the kind now; the caller stores the result here.
    Now(T),
    /// The kind was discovered within the last minute, with this result.
    Before(T),
    /// Do not discover the kind: the rate limit is reached.
    Later,
}

impl<T> Default for Discoveries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone + Default> Discoveries<T> {
    /// Decides about the discovery of a kind that an object in this namespace names.
    pub fn turn(&mut self, kind: &NamedKind, namespace: &str, now: Instant) -> Turn<T> {
        self.0.retain(|before| now.duration_since(before.began) < PERIOD);
        if let Some(before) = self.0.iter().find(|before| before.kind == *kind) {
            return Turn::Before(before.found.clone());
        }
        let of_namespace = self.0.iter().filter(|before| before.namespace == namespace);
        if !may_have_more(of_namespace.count(), self.0.len(), MOST) {
            return Turn::Later;
        }
        let found = T::default();
        self.0.push(Discovery {
            kind: kind.clone(),
            namespace: namespace.to_owned(),
            began: now,
            found: found.clone(),
        });
        Turn::Now(found)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Returns the decisions about kinds `(namespace, kind, second)`, in order.
    fn turns(asked: &[(&str, &str, u64)]) -> String {
        let (mut discoveries, began) = (Discoveries::<()>::default(), Instant::now());
        let turn = |(namespace, kind, second): &(&str, &str, u64)| {
            let named = NamedKind::given("a.example.com", kind);
            match discoveries.turn(&named, namespace, began + Duration::from_secs(*second)) {
                Turn::Now(()) => 'N',
                Turn::Before(()) => 'b',
                Turn::Later => 'L',
            }
        };
        asked.iter().map(turn).collect()
    }

    #[rstest]
    #[case::once_in_a_minute(&[("a", "A", 0), ("a", "A", 1), ("b", "A", 59), ("a", "A", 60), ("a", "A", 61)], "NbbNb")]
    #[case::three_of_one_namespace(&[("a", "A", 0), ("a", "B", 0), ("a", "C", 0), ("a", "D", 0), ("a", "A", 1)], "NNNLb")]
    #[case::the_rest_is_left(&[("a", "A", 0), ("a", "B", 0), ("a", "C", 0), ("b", "D", 0), ("b", "E", 0), ("b", "F", 0)], "NNNNNL")]
    #[case::six_in_all(&[("a", "A", 0), ("b", "B", 0), ("c", "C", 0), ("d", "D", 0), ("e", "E", 0), ("f", "F", 0), ("g", "G", 0)], "NNNNNNL")]
    #[case::again_after_a_minute(&[("a", "A", 0), ("a", "B", 0), ("a", "C", 30), ("a", "D", 59), ("a", "D", 60), ("a", "E", 60), ("a", "F", 60)], "NNNLNNL")]
    fn a_few_kinds_are_discovered_in_a_minute(#[case] asked: &[(&str, &str, u64)], #[case] turns_are: &str) {
        assert_eq!(turns(asked), turns_are);
    }

    #[test]
    fn callers_of_one_kind_share_the_result() {
        let (mut discoveries, now) = (Discoveries::<std::sync::Arc<u8>>::default(), Instant::now());
        let kind = NamedKind::given("a.example.com", "A");
        let Turn::Now(first) = discoveries.turn(&kind, "a", now) else {
            panic!("unexpected earlier discovery")
        };
        let Turn::Before(second) = discoveries.turn(&kind, "b", now) else {
            panic!("repeated discovery")
        };
        assert!(std::sync::Arc::ptr_eq(&first, &second));
    }
}
