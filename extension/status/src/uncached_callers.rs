//! Rate limit for reviews of tokens that are not in the cache.
//!
//! Sluice knows only the address of an uncached caller, and each token costs the API server a review. So each address has a rate, and a
//! share of the waiting reviews. A caller with random tokens can neither overload the API server nor block other callers.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use sluice_core::limits::TokenBucket;

/// Interval after which an address may start one more review.
const EVERY: Duration = Duration::from_millis(100);

/// Burst of an address.
const AT_ONCE: u32 = 50;

/// Maximum number of running and waiting reviews of all addresses. One address has at most as many as it leaves to others.
const WAITING: usize = 128;

/// Number of addresses with their own rate. All further addresses count as one.
const ADDRESSES: usize = 1024;

/// Reason to refuse a review now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMany {
    /// The address exceeds its rate.
    #[error("too many uncached tokens and namespaces from {0}; the limit is 10 per second; try again")]
    Rate(IpAddr),
    /// The address has used its share of waiting reviews.
    #[error("too many callers at {0} wait for authentication; try again")]
    Share(IpAddr),
}

/// Reviews of uncached callers, by address.
#[derive(Debug, Default)]
pub(crate) struct UncachedCallers {
    waiting: usize,
    by_address: HashMap<IpAddr, AddressRate>,
}

/// Reviews of one address.
#[derive(Debug)]
struct AddressRate {
    waiting: usize,
    rate: TokenBucket,
}

impl UncachedCallers {
    /// Starts a review for an address. Returns the address to pass to [`Self::end`] after the review.
    ///
    /// # Errors
    /// The address exceeds its rate or its share.
    pub(crate) fn begin(&mut self, address: IpAddr, now: Instant) -> Result<IpAddr, TooMany> {
        let address = self.counted_as(address.to_canonical(), now);
        let left = WAITING.saturating_sub(self.waiting);
        let own = self.by_address.entry(address).or_insert(AddressRate {
            waiting: 0,
            rate: TokenBucket::full(EVERY * AT_ONCE, now),
        });
        if own.rate.available_at(EVERY) > now {
            return Err(TooMany::Rate(address));
        }
        if left == 0 || (own.waiting > 0 && own.waiting >= left) {
            return Err(TooMany::Share(address));
        }
        own.rate.take(EVERY, now);
        own.waiting += 1;
        self.waiting += 1;
        Ok(address)
    }

    /// Ends a review of an address.
    pub(crate) fn end(&mut self, address: IpAddr) {
        if let Some(own) = self.by_address.get_mut(&address) {
            own.waiting -= 1;
            self.waiting -= 1;
        }
    }

    /// Returns the address itself, or the common one if there are too many addresses.
    fn counted_as(&mut self, address: IpAddr, now: Instant) -> IpAddr {
        if self.by_address.len() < ADDRESSES || self.by_address.contains_key(&address) {
            return address;
        }
        self.by_address
            .retain(|_, own| own.waiting > 0 || own.rate.full_at() > now);
        if self.by_address.len() < ADDRESSES {
            return address;
        }
        Ipv4Addr::UNSPECIFIED.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    /// Returns how many of `asked` consecutive reviews an address gets at this time.
    fn made(callers: &mut UncachedCallers, address: IpAddr, now: Instant, asked: usize) -> usize {
        let one = |_: &usize| match callers.begin(address, now) {
            Ok(counted) => {
                callers.end(counted);
                true
            }
            Err(_) => false,
        };
        (0..asked).filter(one).count()
    }

    #[test]
    fn an_address_has_a_rate_of_its_own() {
        let (mut callers, begin) = (UncachedCallers::default(), Instant::now());
        assert_eq!(made(&mut callers, address(1), begin, 1000), 50);
        assert_eq!(made(&mut callers, address(2), begin, 1000), 50, "another one");
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(made(&mut callers, mapped, begin, 1000), 0, "the same one");
        let later = begin + Duration::from_secs(2);
        assert_eq!(made(&mut callers, address(1), later, 1000), 20);
        let much_later = begin + Duration::from_mins(1);
        assert_eq!(made(&mut callers, address(1), much_later, 1000), 50);
    }

    #[test]
    fn an_address_leaves_as_many_that_wait_as_it_takes() {
        let (mut callers, mut now) = (UncachedCallers::default(), Instant::now());
        let mut waits = |number: u32| {
            let mut taken = Vec::new();
            loop {
                // Keeps the rate out of this test.
                now += Duration::from_secs(1);
                match callers.begin(address(number), now) {
                    Ok(counted) => taken.push(counted),
                    Err(TooMany::Share(_)) => return taken.len(),
                    Err(other) => panic!("{other}"),
                }
            }
        };
        assert_eq!([1, 2, 3].map(&mut waits), [64, 32, 16]);
        callers.end(address(1));
        assert_eq!(callers.waiting, 64 + 32 + 16 - 1);
    }

    #[test]
    fn however_many_addresses_ask_so_many_are_kept_apart() {
        let (mut callers, now) = (UncachedCallers::default(), Instant::now());
        for number in 0..5000 {
            made(&mut callers, address(number), now, 1);
        }
        assert_eq!(callers.by_address.len(), ADDRESSES + 1);
        assert_eq!(made(&mut callers, address(9000), now, 1000), 0, "as one");
        let later = now + Duration::from_mins(1);
        assert_eq!(made(&mut callers, address(9000), later, 1000), 50);
        assert!(
            callers.by_address.len() <= 2,
            "nothing is kept of those with a full bucket"
        );
    }
}
