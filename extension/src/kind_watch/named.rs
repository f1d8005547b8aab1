//! The kinds that objects name. Tenants write these names, so those of kinds that cannot be read take a bounded room.

use std::{collections::HashMap, hash::Hash};

use tokio::time::{Duration, Instant};

/// Kinds that cannot be read are not more than this: there are few by mistake.
const MOST_UNREADABLE: usize = 64;

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
    /// was asked for longest ago goes.
    pub fn ask(&mut self, key: K, is_readable: impl Fn(&V) -> bool, open: impl FnOnce(&K) -> V) -> &V {
        if !self.knows(&key) {
            self.make_room(is_readable);
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

    fn make_room(&mut self, is_readable: impl Fn(&V) -> bool) {
        let unreadable = || self.0.iter().filter(|(_, named)| !is_readable(&named.kind));
        if unreadable().count() < MOST_UNREADABLE {
            return;
        }
        let oldest = unreadable().min_by_key(|(_, named)| named.asked_at);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
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
        let mut ask = async |kinds: &mut NamedKinds<usize, bool>, name: usize, readable: bool| {
            sleep(Duration::from_millis(1)).await;
            kinds.ask(
                name,
                |readable| *readable,
                |_| {
                    opened += 1;
                    readable
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
}
