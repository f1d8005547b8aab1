//! The kinds that objects name. Tenants write these names, so those of kinds that cannot be read take a bounded room.

use std::{collections::HashMap, hash::Hash};

use tokio::time::{Duration, Instant};

/// Kinds that cannot be read are not more than this: there are few by mistake.
const MOST_UNREADABLE: usize = 64;

/// With those that are being read for the first time they are not more than this. That takes some seconds, and a kind of which the
/// watch was ended in them would never be read while others name ever more kinds.
const MOST: usize = 4 * MOST_UNREADABLE;

/// How far a kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its objects are in memory.
    Readable,
    /// It is read for the first time.
    Reading,
    /// It cannot be read.
    Unreadable,
}

/// What is known of each kind, by what names it.
#[derive(Debug)]
pub struct NamedKinds<K, V>(HashMap<K, Named<V>>);

#[derive(Debug)]
struct Named<V> {
    kind: V,
    asked_at: Instant,
}

impl<K, V> Default for NamedKinds<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash, V> NamedKinds<K, V> {
    /// What is known of a kind; `open` makes it for one that was not asked for before. Where too many cannot be read, the one that
    /// was asked for longest ago goes, and one that is being read only where very many are.
    pub fn ask(&mut self, key: K, standing: impl Fn(&V) -> Standing, open: impl FnOnce(&K) -> V) -> &V {
        if !self.knows(&key) {
            self.make_room(standing);
        }
        let named = self.0.entry(key).or_insert_with_key(|key| Named {
            kind: open(key),
            asked_at: Instant::now(),
        });
        named.asked_at = Instant::now();
        &named.kind
    }

    /// Whether a kind was asked for before.
    pub fn knows(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Forgets kinds that nothing has asked for in this time.
    pub fn forget_unasked(&mut self, time: Duration) {
        self.0.retain(|_, named| named.asked_at.elapsed() < time);
    }

    fn make_room(&mut self, standing: impl Fn(&V) -> Standing) {
        let standing = &standing;
        let of = |wanted: Standing| {
            let is_wanted = move |named: &Named<V>| standing(&named.kind) == wanted;
            self.0.iter().filter(move |(_, named)| is_wanted(named))
        };
        let unreadable = of(Standing::Unreadable).count();
        let is_full = unreadable + of(Standing::Reading).count() >= MOST;
        let goes = if unreadable >= MOST_UNREADABLE || (is_full && unreadable > 0) {
            of(Standing::Unreadable).min_by_key(|(_, named)| named.asked_at)
        } else if is_full {
            // Those that were asked for first are read first.
            of(Standing::Reading).max_by_key(|(_, named)| named.asked_at)
        } else {
            None
        };
        if let Some(key) = goes.map(|(key, _)| key.clone()) {
            self.0.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn kinds_that_cannot_be_read_take_a_bounded_room() {
        let mut kinds = NamedKinds::default();
        let mut opened = 0;
        let mut ask = async |kinds: &mut NamedKinds<usize, Standing>, name: usize, readable: bool| {
            sleep(Duration::from_millis(1)).await;
            let standing = if readable {
                Standing::Readable
            } else {
                Standing::Unreadable
            };
            kinds.ask(
                name,
                |standing| *standing,
                |_| {
                    opened += 1;
                    standing
                },
            );
            opened
        };
        let first = 0;
        ask(&mut kinds, first, true).await;
        for name in 1..=200 {
            ask(&mut kinds, name, false).await;
        }
        assert_eq!(kinds.0.len(), 1 + MOST_UNREADABLE);
        assert_eq!(
            ask(&mut kinds, first, true).await,
            201,
            "one that can be read stays"
        );
        assert_eq!(
            ask(&mut kinds, 200, false).await,
            201,
            "and so do those asked for last"
        );
        assert_eq!(ask(&mut kinds, 1, false).await, 202, "it was forgotten");

        sleep(Duration::from_secs(10)).await;
        ask(&mut kinds, first, true).await;
        kinds.forget_unasked(Duration::from_secs(5));
        assert_eq!(kinds.0.len(), 1);
    }

    /// Tenants may name one after the other, quicker than any is read.
    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_being_read_does_not_go_for_others() {
        let mut kinds = NamedKinds::default();
        let ask = async |kinds: &mut NamedKinds<usize, Standing>, name: usize, standing: Standing| {
            sleep(Duration::from_millis(1)).await;
            kinds.ask(name, |standing| *standing, |_| standing);
        };
        let first = 0;
        ask(&mut kinds, first, Standing::Reading).await;
        for name in 1..=200 {
            ask(&mut kinds, name, Standing::Unreadable).await;
        }
        assert_eq!(kinds.0.len(), 1 + MOST_UNREADABLE);
        assert!(kinds.knows(&first), "those that cannot be read go");
        for name in 201..=1000 {
            ask(&mut kinds, name, Standing::Reading).await;
        }
        assert_eq!(kinds.0.len(), MOST);
        assert!(
            kinds.knows(&first),
            "it is read before those that were asked for later"
        );
    }
}
