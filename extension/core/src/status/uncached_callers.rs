//! How many tokens are looked at that the API server has never accepted.
//!
//! Nothing is known of who sends one but its address, and each costs the API server a review. So an address has a rate, and a share of the
//! reviews that wait: those who send random tokens take neither the time of the API server nor the turns of others.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

/// An address has one review more in each of these times.
const EVERY: Duration = Duration::from_millis(100);

/// So many at once, after a while without one.
const AT_ONCE: u32 = 50;

/// Reviews that are made or waited for, of all addresses. One address has at most as many as it leaves to others.
const WAITING: usize = 128;

/// Addresses that are kept apart. Those beyond count as one.
const ADDRESSES: usize = 1024;

/// Why a token is not looked at now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMany {
    /// The address has had more than its rate.
    #[error(
        "too many tokens and namespaces that were not allowed before are asked about from {0}, 10 a second are looked at; try again"
    )]
    Rate(IpAddr),
    /// The address has its share of the reviews that wait.
    #[error("too many callers at {0} wait to be authenticated; try again")]
    Share(IpAddr),
}

/// Reviews of what was never accepted, by the address that asks.
#[derive(Debug, Default)]
pub struct UncachedCallers {
    waiting: usize,
    by_address: HashMap<IpAddr, Of>,
}

/// Those of one address.
#[derive(Debug)]
struct Of {
    waiting: usize,
    /// When all that it has had is paid for by its rate.
    even: Instant,
}

impl UncachedCallers {
    /// An address asks for a review. Returns the address that [`Self::end`] is to be called with once that has ended.
    ///
    /// # Errors
    /// It has had too many, or too many of it wait.
    pub fn begin(&mut self, address: IpAddr, now: Instant) -> Result<IpAddr, TooMany> {
        let address = self.counted_as(address.to_canonical(), now);
        let left = WAITING.saturating_sub(self.waiting);
        let own = self.by_address.entry(address).or_insert(Of {
            waiting: 0,
            even: now,
        });
        let even = own.even.max(now) + EVERY;
        if even.duration_since(now) > EVERY * AT_ONCE {
            return Err(TooMany::Rate(address));
        }
        if left == 0 || (own.waiting > 0 && own.waiting >= left) {
            return Err(TooMany::Share(address));
        }
        own.even = even;
        own.waiting += 1;
        self.waiting += 1;
        Ok(address)
    }

    /// A review of an address has ended.
    pub fn end(&mut self, address: IpAddr) {
        if let Some(own) = self.by_address.get_mut(&address) {
            own.waiting -= 1;
            self.waiting -= 1;
        }
    }

    /// The address itself, unless there are too many.
    fn counted_as(&mut self, address: IpAddr, now: Instant) -> IpAddr {
        if self.by_address.len() < ADDRESSES || self.by_address.contains_key(&address) {
            return address;
        }
        self.by_address.retain(|_, own| own.waiting > 0 || own.even > now);
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

    /// How many of so many reviews are made that an address asks for at this time, each after the one before has ended.
    fn made(strangers: &mut UncachedCallers, address: IpAddr, now: Instant, asked: usize) -> usize {
        let one = |_: &usize| match strangers.begin(address, now) {
            Ok(counted) => {
                strangers.end(counted);
                true
            }
            Err(_) => false,
        };
        (0..asked).filter(one).count()
    }

    #[test]
    fn an_address_has_a_rate_of_its_own() {
        let (mut strangers, begin) = (UncachedCallers::default(), Instant::now());
        assert_eq!(made(&mut strangers, address(1), begin, 1000), 50);
        assert_eq!(made(&mut strangers, address(2), begin, 1000), 50, "another one");
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(made(&mut strangers, mapped, begin, 1000), 0, "the same one");
        let later = begin + Duration::from_secs(2);
        assert_eq!(made(&mut strangers, address(1), later, 1000), 20);
        let much_later = begin + Duration::from_mins(1);
        assert_eq!(made(&mut strangers, address(1), much_later, 1000), 50);
    }

    #[test]
    fn an_address_leaves_as_many_that_wait_as_it_takes() {
        let (mut strangers, mut now) = (UncachedCallers::default(), Instant::now());
        let mut waits = |number: u32| {
            let mut taken = Vec::new();
            loop {
                // Rates are no matter here.
                now += Duration::from_secs(1);
                match strangers.begin(address(number), now) {
                    Ok(counted) => taken.push(counted),
                    Err(TooMany::Share(_)) => return taken.len(),
                    Err(other) => panic!("{other}"),
                }
            }
        };
        assert_eq!([1, 2, 3].map(&mut waits), [64, 32, 16]);
        strangers.end(address(1));
        assert_eq!(strangers.waiting, 64 + 32 + 16 - 1);
    }

    #[test]
    fn however_many_addresses_ask_so_many_are_kept_apart() {
        let (mut strangers, now) = (UncachedCallers::default(), Instant::now());
        for number in 0..5000 {
            made(&mut strangers, address(number), now, 1);
        }
        assert_eq!(strangers.by_address.len(), ADDRESSES + 1);
        assert_eq!(made(&mut strangers, address(9000), now, 1000), 0, "as one");
        let later = now + Duration::from_mins(1);
        assert_eq!(made(&mut strangers, address(9000), later, 1000), 50);
        assert!(
            strangers.by_address.len() <= 2,
            "nothing is kept of those that are even"
        );
    }
}
