//! When the things that a package needs were last made sure of.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// How often what is needed is looked at. A little less than the time between two looks at a hot cluster.
const EVERY: Duration = Duration::from_secs(9);

/// How long a thing is believed to be as it was when it was looked at last, while looks at it are not answered: as long as the proofs
/// of a silent workload are.
const BELIEVED: Duration = Duration::from_mins(1);

/// What a thing is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The proof of a package.
    Proof,
    /// A gate that is open by such a proof.
    OpenGate,
    /// Neither.
    Nothing,
}

/// When each thing was last made sure of, and with which content.
#[derive(Debug, Default)]
pub(super) struct Ensured(BTreeMap<String, (String, Instant)>);

impl Ensured {
    /// Whether `thing` has to be looked at: it never was with this `content`, or it is needed and the last look is some time ago.
    pub(super) fn is_due(&self, thing: &str, content: &str, need: Need, now: Instant) -> bool {
        let age = self.age(thing, content, now);
        age.is_none_or(|age| need != Need::Nothing && age >= EVERY)
    }

    /// Whether `thing` is believed to have this `content` although it cannot be looked at. What is still to be proven is not.
    pub(super) fn is_believed(&self, thing: &str, content: &str, need: Need, now: Instant) -> bool {
        need == Need::OpenGate && self.age(thing, content, now).is_some_and(|age| age < BELIEVED)
    }

    fn age(&self, thing: &str, content: &str, now: Instant) -> Option<Duration> {
        let (known, at) = self.0.get(thing)?;
        (known == content).then(|| now.duration_since(*at))
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
    fn what_is_needed_is_looked_at_again_and_again() {
        use Need::{Nothing, OpenGate, Proof};
        let (mut ensured, began) = (Ensured::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(
            ensured.is_due("Secret one", "a", Nothing, at(0)),
            "never looked at"
        );
        ensured.note("Secret one", "a", at(0));
        assert!(
            !ensured.is_due("Secret one", "a", Proof, at(1)),
            "in the same burst"
        );
        assert!(
            ensured.is_due("Secret one", "a", Proof, at(10)),
            "at the next look"
        );
        assert!(
            ensured.is_due("Secret one", "a", OpenGate, at(10)),
            "at the next look"
        );
        assert!(!ensured.is_due("Secret one", "a", Nothing, at(10)), "not needed");
        assert!(
            ensured.is_due("Secret one", "b", Nothing, at(1)),
            "of other content"
        );
        assert!(ensured.is_due("Secret two", "a", Nothing, at(1)), "another one");
        ensured.forget();
        assert!(ensured.is_due("Secret one", "a", Nothing, at(1)), "forgotten");
    }

    #[test]
    fn what_an_open_gate_rests_on_is_believed_for_a_while() {
        use Need::{Nothing, OpenGate, Proof};
        let (mut ensured, began) = (Ensured::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(
            !ensured.is_believed("Secret one", "a", OpenGate, at(0)),
            "never looked at"
        );
        ensured.note("Secret one", "a", at(0));
        assert!(ensured.is_believed("Secret one", "a", OpenGate, at(59)));
        assert!(!ensured.is_believed("Secret one", "a", OpenGate, at(60)));
        assert!(
            !ensured.is_believed("Secret one", "b", OpenGate, at(1)),
            "of other content"
        );
        for need in [Proof, Nothing] {
            assert!(!ensured.is_believed("Secret one", "a", need, at(1)));
        }
    }
}
