//! Cache of review results with a short lifetime, and of accepted keys.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex},
    time::Duration,
};

use sluice_core::lock::lock;
use tokio::{sync::OnceCell, time::Instant};

/// Lifetime of a result.
const KEPT: Duration = Duration::from_secs(10);

/// Lifetime of an accepted key: within it, its callers do not count as uncached.
const ACCEPTED: Duration = Duration::from_mins(10);

/// Maximum number of results, and of accepted keys.
const ANSWERS: usize = 4096;

/// Results by key. Concurrent callers with the same key share one request.
pub(super) struct Answers<K, V>(Mutex<Kept<K, V>>);

struct Kept<K, V> {
    asked: HashMap<K, Asked<V>>,
    accepted: HashMap<K, Instant>,
}

/// Time of the request, and its result once it arrives.
type Asked<V> = (Instant, Arc<OnceCell<V>>);

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self(Mutex::new(Kept {
            asked: HashMap::new(),
            accepted: HashMap::new(),
        }))
    }
}

impl<K: Eq + Hash, V> Answers<K, V> {
    /// Returns the place of the valid or pending result of a key, or else an empty one.
    pub(super) fn place(&self, asked: K) -> Arc<OnceCell<V>> {
        let mut kept = lock(&self.0);
        let Kept {
            asked: answers,
            accepted,
        } = &mut *kept;
        if let Some((at, answer)) = answers.get(&asked)
            && at.elapsed() < KEPT
        {
            return Arc::clone(answer);
        }
        if answers.len() >= ANSWERS {
            answers.retain(|_, (at, _)| at.elapsed() < KEPT);
        }
        if answers.len() >= ANSWERS {
            answers.retain(|asked, _| accepted.contains_key(asked));
        }
        if answers.len() >= ANSWERS {
            answers.clear();
        }
        let answer = Arc::<OnceCell<V>>::default();
        answers.insert(asked, (Instant::now(), Arc::clone(&answer)));
        answer
    }

    /// Records that a key was accepted.
    pub(super) fn accepted(&self, asked: K) {
        let accepted = &mut lock(&self.0).accepted;
        if accepted.len() >= ANSWERS && !accepted.contains_key(&asked) {
            accepted.retain(|_, at| at.elapsed() < ACCEPTED);
            if accepted.len() >= ANSWERS {
                accepted.clear();
            }
        }
        accepted.insert(asked, Instant::now());
    }

    /// Removes an accepted key.
    pub(super) fn refused(&self, asked: &K) {
        lock(&self.0).accepted.remove(asked);
    }

    /// Returns whether a key was accepted recently.
    pub(super) fn was_accepted(&self, asked: &K) -> bool {
        let kept = lock(&self.0);
        let at = kept.accepted.get(asked);
        at.is_some_and(|at| at.elapsed() < ACCEPTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_ten_seconds() {
        let answers = Answers::<&str, u8>::default();
        assert_eq!(answers.place("a").set(1), Ok(()));
        assert_eq!(answers.place("b").get(), None);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(answers.place("a").get(), Some(&1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(answers.place("a").get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_so_many_answers_are_kept_and_first_those_of_who_was_accepted() {
        let answers = Answers::<usize, u8>::default();
        assert_eq!(answers.place(0).set(1), Ok(()));
        answers.accepted(0);
        for number in 1..3 * ANSWERS {
            answers.place(number);
        }
        assert!(lock(&answers.0).asked.len() <= ANSWERS);
        assert_eq!(answers.place(0).get(), Some(&1));
        for number in 1..3 * ANSWERS {
            answers.accepted(number);
        }
        assert!(lock(&answers.0).accepted.len() <= ANSWERS);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_accepted_is_remembered_for_ten_minutes() {
        let answers = Answers::<&str, u8>::default();
        answers.accepted("a");
        assert!(answers.was_accepted(&"a") && !answers.was_accepted(&"b"));
        tokio::time::advance(ACCEPTED).await;
        assert!(!answers.was_accepted(&"a"));
        answers.accepted("a");
        answers.refused(&"a");
        assert!(!answers.was_accepted(&"a"), "or until it is refused");
    }
}
