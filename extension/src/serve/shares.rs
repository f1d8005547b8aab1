//! How many connections each peer address has.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Open connections by address; addresses without any take no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection of an address. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Share {
    of: Shares,
    address: IpAddr,
}

impl Shares {
    /// One more connection of `peer`; none if it has `limit` already, or has left.
    pub(super) fn take(&self, peer: io::Result<SocketAddr>, limit: usize) -> Option<Share> {
        let address = peer.ok()?.ip().to_canonical();
        let mut open = self.open();
        let count = open.entry(address).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        drop(open);
        Some(Share {
            of: self.clone(),
            address,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.of.open();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
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
