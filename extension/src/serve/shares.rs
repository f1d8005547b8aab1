//! What each peer address has: connections, and memory for the bodies of its requests.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sluice_hooks::PeerBudget;

/// Peers by address; addresses without a connection take no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Arc<Mutex<HashMap<IpAddr, Peer>>>);

#[derive(Debug, Default)]
struct Peer {
    connections: usize,
    bodies: PeerBudget,
}

/// One connection of an address. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Share {
    of: Shares,
    address: IpAddr,
    bodies: PeerBudget,
}

impl Share {
    /// What the bodies of all connections of the address may take.
    pub(super) const fn bodies(&self) -> &PeerBudget {
        &self.bodies
    }
}

impl Shares {
    /// One more connection of `peer`; none if it has `limit` already, or has left.
    pub(super) fn take(&self, peer: io::Result<SocketAddr>, limit: usize) -> Option<Share> {
        let address = peer.ok()?.ip().to_canonical();
        let mut open = self.open();
        let peer = open.entry(address).or_default();
        if peer.connections >= limit {
            return None;
        }
        peer.connections += 1;
        let bodies = peer.bodies.clone();
        drop(open);
        Some(Share {
            of: self.clone(),
            address,
            bodies,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, Peer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.of.open();
        if let Some(peer) = open.get_mut(&self.address) {
            peer.connections -= 1;
            if peer.connections == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(shares: &Shares, address: &str) -> Option<Share> {
        shares.take(Ok(SocketAddr::new(address.parse().unwrap(), 4711)), 2)
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
