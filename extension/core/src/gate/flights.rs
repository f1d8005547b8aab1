//! Reads that calls share: a call shares only a read that was sent after the call arrived.

use std::{collections::HashMap, hash::Hash};

/// Reads in flight by object, and the calls that wait for them.
#[derive(Debug)]
pub struct Flights<K, W>(HashMap<K, Flight<W>>);

/// A read in flight.
#[derive(Debug)]
struct Flight<W> {
    /// Calls that arrived before it was sent.
    served: Vec<W>,
    /// Calls that have arrived since. They share the next read.
    next: Vec<W>,
}

impl<K, W> Default for Flights<K, W> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, W> Flights<K, W> {
    /// Returns whether a read of the object is in flight.
    #[must_use]
    pub fn has(&self, object: &K) -> bool {
        self.0.contains_key(object)
    }

    /// Returns the calls that the read in flight serves; after [`end`](Self::end) those of the next read, oldest first.
    pub fn served(&self, object: &K) -> impl Iterator<Item = &W> {
        self.0.get(object).into_iter().flat_map(|flight| &flight.served)
    }

    /// Adds a call that needs the object. Returns whether a read must be sent now; otherwise the call waits for the next one.
    pub fn join(&mut self, object: K, call: W) -> bool {
        if let Some(flight) = self.0.get_mut(&object) {
            flight.next.push(call);
            return false;
        }
        let flight = Flight {
            served: vec![call],
            next: Vec::new(),
        };
        self.0.insert(object, flight);
        true
    }

    /// Ends the read in flight. Returns the calls that it serves, and whether the next read must be sent now.
    pub fn end(&mut self, object: &K) -> (Vec<W>, bool) {
        let Some(flight) = self.0.get_mut(object) else {
            return (Vec::new(), false);
        };
        let next = std::mem::take(&mut flight.next);
        let goes_on = !next.is_empty();
        let served = std::mem::replace(&mut flight.served, next);
        if !goes_on {
            self.0.remove(object);
        }
        (served, goes_on)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A call arrives for an object, or the read of an object ends.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Arrives(u8),
        Ends(u8),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            (0..3_u8).prop_map(Event::Arrives),
            (0..3_u8).prop_map(Event::Ends)
        ];
        prop::collection::vec(event, 0..60)
    }

    proptest! {
        /// Times are indexes of events.
        #[test]
        fn each_call_is_served_by_a_read_that_was_sent_after_it_arrived(events in events()) {
            let mut flights = Flights::<u8, usize>::default();
            let mut sent = HashMap::new();
            let (mut arrived, mut served) = (0_usize, 0_usize);
            for (now, event) in events.iter().enumerate() {
                match *event {
                    Event::Arrives(object) => {
                        arrived += 1;
                        let sends = flights.join(object, now);
                        prop_assert_eq!(sends, !sent.contains_key(&object), "one read at a time");
                        if sends {
                            sent.insert(object, now);
                        }
                    }
                    Event::Ends(object) => {
                        let at = sent.remove(&object);
                        let (calls, goes_on) = flights.end(&object);
                        prop_assert_eq!(at.is_some(), !calls.is_empty());
                        for call in &calls {
                            prop_assert!(*call <= at.unwrap_or_default(), "call of {call}, read of {at:?}");
                        }
                        served += calls.len();
                        if goes_on {
                            sent.insert(object, now);
                        }
                    }
                }
            }
            while let Some(object) = sent.keys().next().copied() {
                let (calls, goes_on) = flights.end(&object);
                served += calls.len();
                if !goes_on {
                    sent.remove(&object);
                }
            }
            prop_assert_eq!(served, arrived);
            prop_assert!((0..3).all(|object| !flights.has(&object)), "nothing is kept");
        }
    }
}
