//! What each peer address has: connections, and memory for the bodies of its requests.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sluice_hooks::Peer;

/// Peers by address; addresses without a connection take no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Arc<Mutex<HashMap<IpAddr, Open>>>);

#[derive(Debug)]
struct Open {
    connections: usize,
    peer: Peer,
}

/// One connection of an address. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Share {
    of: Shares,
    peer: Peer,
}

impl Share {
    /// The address, with what the bodies of all its connections may take.
    pub(super) const fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Shares {
    /// One more connection of an address; none if it has `limit` already.
    pub(super) fn take(&self, address: IpAddr, limit: usize) -> Option<Share> {
        let address = address.to_canonical();
        let mut all = self.open();
        let open = all.entry(address).or_insert_with(|| Open {
            connections: 0,
            peer: Peer::at(address),
        });
        if open.connections >= limit {
            return None;
        }
        open.connections += 1;
        let peer = open.peer.clone();
        drop(all);
        Some(Share {
            of: self.clone(),
            peer,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let (mut all, address) = (self.of.open(), self.peer.address());
        if let Some(open) = all.get_mut(&address) {
            open.connections -= 1;
            if open.connections == 0 {
                all.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(shares: &Shares, address: &str) -> Option<Share> {
        shares.take(address.parse().unwrap(), 2)
    }

    #[test]
    fn an_address_has_a_share_and_no_more() {
        let shares = Shares::default();
        let first = take(&shares, "192.0.2.1");
        let second = take(&shares, "::ffff:192.0.2.1");
        assert!(first.is_some() && second.is_some());
        assert!(take(&shares, "192.0.2.1").is_none(), "the share is taken");
        let other = take(&shares, "192.0.2.2");
        assert!(other.is_some(), "another address");
        drop(first);
        assert!(take(&shares, "192.0.2.1").is_some(), "one came back");
        drop((second, other));
        assert!(shares.open().is_empty(), "nothing is kept");
    }
}
