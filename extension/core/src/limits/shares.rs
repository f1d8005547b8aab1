//! Fair shares of a limited resource, counted by holder.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex},
};

use super::may_have_more;
use crate::lock::lock;

/// Shares in use, by holder, and a value of each holder; a holder without shares takes no memory. Clones share the state.
#[derive(Debug)]
pub struct Shares<K, V = ()>(Arc<Inner<K, V>>);

#[derive(Debug)]
struct Inner<K, V> {
    limit: usize,
    taken: Mutex<Taken<K, V>>,
}

#[derive(Debug)]
struct Taken<K, V> {
    all: usize,
    by_holder: HashMap<K, (usize, V)>,
}

/// One share. Dropping it returns it.
#[derive(Debug)]
pub struct Share<K: Eq + Hash, V = ()> {
    of: Arc<Inner<K, V>>,
    holder: K,
    value: V,
}

impl<K: Clone + Eq + Hash, V: Clone> Shares<K, V> {
    /// Creates a resource with this many shares.
    #[must_use]
    pub fn of(limit: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            taken: Mutex::new(Taken {
                all: 0,
                by_holder: HashMap::new(),
            }),
        }))
    }

    /// Takes one more share for a holder, whose value is created with its first share; `None` if the holder has its limit already.
    #[must_use]
    pub fn take_with(&self, holder: &K, create: impl FnOnce() -> V) -> Option<Share<K, V>> {
        let mut taken = lock(&self.0.taken);
        let own = taken.by_holder.get(holder).map_or(0, |(own, _)| *own);
        if !may_have_more(own, taken.all, self.0.limit) {
            return None;
        }
        taken.all += 1;
        let (own, value) = taken
            .by_holder
            .entry(holder.clone())
            .or_insert_with(|| (0, create()));
        *own += 1;
        let value = value.clone();
        drop(taken);
        Some(Share {
            of: Arc::clone(&self.0),
            holder: holder.clone(),
            value,
        })
    }
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Takes one more share for a holder; `None` if the holder has its limit already.
    #[must_use]
    pub fn take(&self, holder: &K) -> Option<Share<K>> {
        self.take_with(holder, || ())
    }
}

impl<K: Eq + Hash, V> Share<K, V> {
    /// Returns the value of the holder.
    #[must_use]
    pub const fn value(&self) -> &V {
        &self.value
    }
}

impl<K, V> Clone for Shares<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Eq + Hash, V> Drop for Share<K, V> {
    fn drop(&mut self) {
        let mut taken = lock(&self.of.taken);
        let Taken { all, by_holder } = &mut *taken;
        if let Some((own, _)) = by_holder.get_mut(&self.holder) {
            *own -= 1;
            *all -= 1;
            if *own == 0 {
                by_holder.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_leaves_as_much_as_it_takes() {
        let shares = Shares::of(16);
        let take = |holder: &'static str| (0..).map_while(|_| shares.take(&holder)).collect::<Vec<_>>();
        let mut ada = take("ada");
        let others = ["bob", "eve", "dan"].map(take);
        assert_eq!((ada.len(), others.each_ref().map(Vec::len)), (8, [4, 2, 1]));
        drop(others);
        ada.pop();
        assert_eq!(take("ada").len(), 1, "one came back");
        drop(ada);
        let taken = lock(&shares.0.taken);
        assert_eq!((taken.all, taken.by_holder.len()), (0, 0), "nothing is kept");
    }

    #[test]
    fn the_shares_of_a_holder_have_one_value() {
        let shares = Shares::of(16);
        let take = |holder: &'static str, value| shares.take_with(&holder, || value).unwrap();
        let (first, second, other) = (take("ada", 1), take("ada", 2), take("bob", 3));
        assert_eq!([first.value(), second.value(), other.value()], [&1, &1, &3]);
        drop((first, second));
        assert_eq!(take("ada", 4).value(), &4, "the first share of a new series");
    }
}
