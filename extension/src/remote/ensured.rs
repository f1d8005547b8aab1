//! When the things that a package needs were last made sure of.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How often what an unproven package needs is looked at. A little less than the time between two looks at a hot cluster.
const EVERY: Duration = Duration::from_secs(9);

/// When each thing was last made sure of, and with which content.
#[derive(Debug, Default)]
pub(super) struct Ensured(BTreeMap<String, (String, Instant)>);

impl Ensured {
    /// Whether `thing` has to be looked at: it never was with this `content`, or the package that needs it is not `proven`
    /// and the last look is some time ago.
    pub(super) fn is_due(&self, thing: &str, content: &str, proven: bool, now: Instant) -> bool {
        match self.0.get(thing) {
            Some((known, at)) if known == content => !proven && now.duration_since(*at) >= EVERY,
            _ => true,
        }
    }

    /// `thing` had this `content` at `now`.
    pub(super) fn note(&mut self, thing: &str, content: &str, now: Instant) {
        self.0.insert(thing.to_owned(), (content.to_owned(), now));
    }

    /// Everything has to be looked at again.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_unproven_package_needs_is_looked_at_again_and_again() {
        let (mut ensured, began) = (Ensured::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(ensured.is_due("Secret one", "a", true, at(0)), "never looked at");
        ensured.note("Secret one", "a", at(0));
        assert!(
            !ensured.is_due("Secret one", "a", false, at(1)),
            "in the same burst"
        );
        assert!(
            ensured.is_due("Secret one", "a", false, at(10)),
            "at the next look"
        );
        assert!(!ensured.is_due("Secret one", "a", true, at(10)), "proven");
        assert!(ensured.is_due("Secret one", "b", true, at(1)), "of other content");
        assert!(ensured.is_due("Secret two", "a", true, at(1)), "another one");
        ensured.forget();
        assert!(ensured.is_due("Secret one", "a", true, at(1)), "forgotten");
    }
}
