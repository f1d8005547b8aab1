//! Fair shares of a limited resource.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex},
};

use sluice_core::limits::may_have_more;

use crate::lock::lock;

/// Shares in use, by holder; a holder without shares takes no memory. Clones share the state.
#[derive(Debug)]
pub(crate) struct Shares<K>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    limit: usize,
    taken: Mutex<Taken<K>>,
}

#[derive(Debug)]
struct Taken<K> {
    all: usize,
    by_holder: HashMap<K, usize>,
}

/// One share. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash> {
    of: Arc<Inner<K>>,
    holder: K,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Creates a resource with this many shares.
    pub(crate) fn of(limit: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            taken: Mutex::new(Taken {
                all: 0,
                by_holder: HashMap::new(),
            }),
        }))
    }

    /// Takes one more share for a holder; `None` if the holder has its limit already.
    pub(crate) fn take(&self, holder: &K) -> Option<Share<K>> {
        let mut taken = lock(&self.0.taken);
        let own = taken.by_holder.get(holder).copied().unwrap_or_default();
        if !may_have_more(own, taken.all, self.0.limit) {
            return None;
        }
        taken.all += 1;
        taken.by_holder.insert(holder.clone(), own + 1);
        drop(taken);
        Some(Share {
            of: Arc::clone(&self.0),
            holder: holder.clone(),
        })
    }
}

impl<K> Clone for Shares<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = lock(&self.of.taken);
        let Taken { all, by_holder } = &mut *taken;
        if let Some(own) = by_holder.get_mut(&self.holder) {
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
}
