//! Shares of each peer address: connections, and memory for request bodies.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sluice_core::limits::may_have_more;
use sluice_hooks::Peer;

use super::Limits;

/// Peers by address; an address without a connection takes no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Arc<Mutex<Open>>);

/// Open connections.
#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, (usize, Peer)>,
}

/// Connection of an address. Dropping it returns its share.
#[derive(Debug)]
pub(super) struct Share {
    of: Shares,
    peer: Peer,
}

impl Shares {
    /// Takes one more connection of an address; `None` if the address has its limit already.
    pub(super) fn take(&self, address: IpAddr, limits: &Limits) -> Option<Share> {
        let address = address.to_canonical();
        let mut open = self.open();
        let Open { all, by_address } = &mut *open;
        let own = by_address.get(&address).map_or(0, |(own, _)| *own);
        if !may_have_more(own, *all, limits.connections) {
            return None;
        }
        let (own, peer) = by_address
            .entry(address)
            .or_insert_with(|| (0, Peer::at(address)));
        *own += 1;
        *all += 1;
        let peer = peer.clone();
        drop(open);
        Some(Share {
            of: self.clone(),
            peer,
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Returns the address with the memory share of its request bodies.
    pub(super) const fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let address = self.peer.address();
        let mut open = self.of.open();
        let Open { all, by_address } = &mut *open;
        if let Some((own, _)) = by_address.get_mut(&address) {
            *own -= 1;
            *all -= 1;
            if *own == 0 {
                by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            connections: 8,
            ..Limits::default()
        }
    }

    /// Takes all connections that an address may have.
    fn all_of(shares: &Shares, address: &str) -> Vec<Share> {
        let take = || shares.take(address.parse().unwrap(), &limits());
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn an_address_leaves_as_much_to_others_as_it_takes() {
        let shares = Shares::default();
        let mut first = all_of(&shares, "192.0.2.1");
        assert_eq!(first.len(), 4);
        assert!(all_of(&shares, "::ffff:192.0.2.1").is_empty(), "the same address");
        let others: Vec<_> = ["192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"]
            .into_iter()
            .map(|address| all_of(&shares, address))
            .collect();
        let lengths: Vec<_> = others.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 1, 1, 0]);

        drop(others);
        first.pop();
        assert_eq!(all_of(&shares, "192.0.2.1").len(), 1, "one came back");
        drop(first);
        assert!(shares.open().by_address.is_empty(), "nothing is kept");
        assert_eq!(shares.open().all, 0);
    }
}
