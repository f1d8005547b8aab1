//! Which answers of the API server make a kind readable that an object names, and which end that.

use std::time::{Duration, Instant};

use kube::core::ApiResource;

use super::{Age, Backoff, Failure, Sign, WatchAnswer, backoff::HEALTHY};
use crate::unsynced::CURRENT_FOR;

/// How long the API server may take to say how a kind is served.
pub const FINDING: Duration = Duration::from_secs(10);

/// How long the first list of a kind may take until those that ask are given a reason.
pub const LISTING: Duration = Duration::from_secs(10);

/// A kind of which nothing has shown for so long that no change of it was missed is listed again. Longer than two watches last: one
/// that brings nothing shows at its end what was not missed until it began.
const UNPROVEN: Duration = Duration::from_secs(75);

/// The first delay before a kind that cannot be read is tried again.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// The longest one.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// A watch that has lasted for so long did not begin with an error.
const NO_ERROR: Duration = Duration::from_secs(5);

/// What the API server has answered since a kind is followed.
#[derive(Debug)]
pub struct FollowedKind {
    resource: ApiResource,
    /// Lists alone were answered before.
    doubted: bool,
    /// When those that ask are given the reason that nothing was listed in time; none once there is a list or another reason.
    late: Option<Instant>,
    /// When all objects were listed last.
    listed: Option<Instant>,
    /// The same, until that is said.
    unsaid: Option<Instant>,
    /// Since when watches are answered.
    watched: Option<Instant>,
    /// Since when there are only errors.
    failing: Option<Instant>,
    /// What watches that were delivered to their end prove.
    complete: Age,
    refused: bool,
    readable: bool,
}

/// What comes next while a kind is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Those that ask are given its objects.
    Readable,
    /// Those that ask are given this reason: nothing was listed in time, but may still be; or watches bring only errors.
    Unreadable(String),
    /// Following ends.
    End(Ended),
    /// Nothing, until the next answer or, where there is one, this moment.
    Wait(Option<Instant>),
}

/// How following a kind has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was not readable.
    Unread,
    /// It was readable, and is not any more.
    Refused,
    /// It is readable, but may have missed changes.
    Unproven,
    /// It ended in a panic.
    Panicked,
}

/// How often a kind is tried.
#[derive(Debug)]
pub struct Attempts {
    backoff: Backoff,
    doubted: bool,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            backoff: FollowedKind::delays(),
            doubted: false,
        }
    }
}

impl Attempts {
    /// The kind is followed, from now on, as it is served.
    #[must_use]
    pub fn begin(&self, resource: &ApiResource, now: Instant) -> FollowedKind {
        FollowedKind::new(resource.clone(), self.doubted, now)
    }

    /// An attempt has ended so. Returns how long to wait before the next one.
    pub fn ended(&mut self, ended: Ended, now: Instant) -> Duration {
        if matches!(ended, Ended::Refused | Ended::Unproven) {
            self.backoff.reset();
        }
        self.doubted = match ended {
            Ended::Refused | Ended::Panicked => true,
            Ended::Unproven => false,
            Ended::Unread => self.doubted,
        };
        self.backoff.failed(now)
    }
}

impl FollowedKind {
    /// Nothing was answered yet. A kind that is `doubted` is readable once it was listed and a watch of it is answered: lists alone
    /// were answered before.
    fn new(resource: ApiResource, doubted: bool, now: Instant) -> Self {
        Self {
            resource,
            doubted,
            late: Some(now + LISTING),
            listed: None,
            unsaid: None,
            watched: None,
            failing: None,
            complete: Age::default(),
            refused: false,
            readable: false,
        }
    }

    /// The delays between tries of a kind, and of its list and watch.
    #[must_use]
    pub fn delays() -> Backoff {
        Backoff::new(MIN_DELAY, MAX_DELAY)
    }

    /// Takes in what was seen of the kind. Returns the reason that those that ask are given now, if there is one.
    pub fn saw(&mut self, sign: Sign, now: Instant) -> Option<String> {
        match sign {
            Sign::Filled => {
                (self.listed, self.unsaid) = (Some(now), Some(now));
                (self.failing, self.late) = (None, None);
                self.readable |= !self.doubted;
            }
            Sign::Changed => self.failing = None,
            Sign::Failed(failure) => {
                self.failed(failure, now);
                return self.tells(failure).then(|| failure.why(&self.resource));
            }
            Sign::Emptied(_) => {}
        }
        None
    }

    /// What became of a watch.
    pub fn watch(&mut self, answer: WatchAnswer, now: Instant) {
        match answer {
            // Nothing was seen of it yet.
            WatchAnswer::Begun => {
                self.watched.get_or_insert(now);
            }
            WatchAnswer::Ended { asked } => self.complete.watch_ended(asked, now),
        }
    }

    fn failed(&mut self, failure: Failure, now: Instant) {
        let watched = self.watched.take();
        if watched.is_some_and(|since| now.duration_since(since) >= HEALTHY) {
            self.failing = None;
        }
        if self.listed.is_some() {
            self.failing.get_or_insert(now);
        }
        self.late = None;
        self.refused |= failure.refusal().is_some();
    }

    /// Whether those that ask are given the reason of a failure. An error that is no refusal is no reason yet for a kind that is
    /// readable: what was listed is what was there a moment ago, and it is tried again.
    fn tells(&self, failure: Failure) -> bool {
        !self.readable || failure.refusal().is_some()
    }

    /// What comes next.
    pub fn next(&mut self, now: Instant) -> Next {
        let only_errors = self.failing.filter(|_| self.watched.is_none());
        let broken = only_errors.map(|since| since + CURRENT_FOR);
        let proven = self
            .listed
            .max(self.complete.proven())
            .filter(|_| only_errors.is_none());
        let unproven = proven.map(|proven| proven + UNPROVEN);
        let answered = self.watched.map(|since| since + NO_ERROR);
        let readable = if self.doubted {
            self.unsaid.and(answered)
        } else {
            self.unsaid
        };

        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        // After a refused watch kube-runtime lists no more once a later one succeeds, so that nothing would say that the kind is
        // readable again. And a kind that is not found may be served in another version.
        if self.refused {
            Next::End(self.ended())
        } else if is_over(broken) {
            // It ends as one that was refused, whatever is answered meanwhile.
            self.refused = true;
            Next::Unreadable(Failure::WATCH.why(&self.resource))
        } else if is_over(unproven) && self.readable {
            Next::End(Ended::Unproven)
        } else if is_over(unproven) {
            Next::End(Ended::Unread)
        } else if is_over(self.late) {
            self.late = None;
            Next::Unreadable(format!("nothing was listed within {} s", LISTING.as_secs()))
        } else if is_over(readable) {
            (self.readable, self.unsaid) = (true, None);
            Next::Readable
        } else {
            Next::Wait(
                [broken, unproven, self.late, readable]
                    .into_iter()
                    .flatten()
                    .min(),
            )
        }
    }

    /// How following ends that ends now, without more being asked.
    #[must_use]
    pub fn ended(&self) -> Ended {
        if self.readable {
            Ended::Refused
        } else {
            Ended::Unread
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    const BROKEN: Failure = Failure {
        of_list: false,
        answered: true,
        code: Some(500),
    };

    const FORBIDDEN: Failure = Failure {
        code: Some(403),
        ..BROKEN
    };

    fn resource() -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"))
    }

    const BROKEN_WHY: &str = "foos in group example.com cannot be watched; the log of Sluice says why";

    /// A kind that is followed, and the moments since.
    fn followed(doubted: bool) -> (FollowedKind, impl Fn(u64) -> Instant) {
        let began = Instant::now();
        let at = move |second| began + Duration::from_secs(second);
        (FollowedKind::new(resource(), doubted, began), at)
    }

    /// One that was listed after a second and is readable.
    fn readable() -> (FollowedKind, impl Fn(u64) -> Instant) {
        let (mut kind, at) = followed(false);
        kind.saw(Sign::Filled, at(1));
        assert_eq!(kind.next(at(1)), Next::Readable);
        (kind, at)
    }

    #[test]
    fn a_kind_that_is_not_listed_in_time_has_a_reason_once() {
        let (mut kind, at) = followed(false);
        assert_eq!(kind.next(at(9)), Next::Wait(Some(at(10))));
        assert_eq!(
            kind.next(at(10)),
            Next::Unreadable("nothing was listed within 10 s".to_owned())
        );
        assert_eq!(kind.next(at(10)), Next::Wait(None));

        let (mut kind, at) = followed(false);
        assert_eq!(kind.saw(Sign::Failed(BROKEN), at(1)).as_deref(), Some(BROKEN_WHY));
        assert_eq!(kind.next(at(10)), Next::Wait(None), "it has another reason");
        kind.saw(Sign::Filled, at(11));
        assert_eq!(kind.next(at(11)), Next::Readable);
        assert_eq!(kind.next(at(11)), Next::Wait(Some(at(11 + 75))), "it was said");
        assert_eq!(
            kind.saw(Sign::Failed(BROKEN), at(12)),
            None,
            "it is believed for a while"
        );
    }

    #[test]
    fn a_refusal_ends_at_once() {
        let (mut kind, at) = readable();
        kind.saw(Sign::Filled, at(2));
        let why = kind.saw(Sign::Failed(FORBIDDEN), at(2));
        assert!(
            why.as_ref()
                .is_some_and(|why| why.starts_with("Sluice may not read foos")),
            "{why:?}"
        );
        assert_eq!(kind.next(at(2)), Next::End(Ended::Refused));

        let (mut kind, at) = followed(false);
        kind.saw(Sign::Failed(FORBIDDEN), at(2));
        assert_eq!(kind.next(at(2)), Next::End(Ended::Unread));
    }

    #[test]
    fn a_kind_that_brings_only_errors_is_believed_for_a_while() {
        let failing = || {
            let (mut kind, at) = readable();
            kind.saw(Sign::Failed(BROKEN), at(5));
            kind.saw(Sign::Failed(BROKEN), at(40));
            assert_eq!(kind.next(at(49)), Next::Wait(Some(at(50))));
            (kind, at)
        };
        let (mut kind, at) = failing();
        kind.watch(WatchAnswer::Begun, at(50));
        assert_eq!(
            kind.next(at(50)),
            Next::Wait(Some(at(76))),
            "its end is waited for"
        );
        let (mut kind, at) = failing();
        assert_eq!(kind.next(at(50)), Next::Unreadable(BROKEN_WHY.to_owned()));
        kind.watch(WatchAnswer::Begun, at(50));
        assert_eq!(kind.next(at(50)), Next::End(Ended::Refused), "that was said");
    }

    #[test]
    fn errors_with_answers_between_them_do_not_add_up() {
        let answered_until = |second| {
            let (mut kind, at) = readable();
            kind.saw(Sign::Failed(BROKEN), at(5));
            kind.watch(WatchAnswer::Begun, at(10));
            kind.saw(Sign::Failed(BROKEN), at(second));
            (kind, at)
        };
        let (mut kind, at) = answered_until(29);
        let next = kind.next(at(50));
        assert_eq!(next, Next::Unreadable(BROKEN_WHY.to_owned()), "too short");
        let (mut kind, at) = answered_until(30);
        assert_eq!(kind.next(at(74)), Next::Wait(Some(at(75))));
        kind.saw(Sign::Changed, at(74));
        assert_eq!(kind.next(at(75)), Next::Wait(Some(at(76))));
    }

    #[test]
    fn a_kind_that_may_have_missed_changes_is_listed_again() {
        let (mut kind, at) = readable();
        kind.watch(WatchAnswer::Ended { asked: at(20) }, at(50));
        kind.watch(WatchAnswer::Ended { asked: at(60) }, at(65));
        assert_eq!(kind.next(at(94)), Next::Wait(Some(at(95))));
        assert_eq!(kind.next(at(95)), Next::End(Ended::Unproven));
    }

    #[test]
    fn a_kind_that_was_refused_or_panicked_is_doubted_until_it_was_readable_again() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let mut doubted = |ended| {
            let delay = attempts.ended(ended, now);
            (attempts.begin(&resource(), now).doubted, delay <= MIN_DELAY * 2)
        };
        assert_eq!(doubted(Ended::Unread), (false, true));
        assert_eq!(doubted(Ended::Refused), (true, true));
        for _ in 0..40 {
            doubted(Ended::Unread);
        }
        assert_eq!(doubted(Ended::Unread), (true, false), "the delays grow");
        assert_eq!(doubted(Ended::Unproven), (false, true));
        for _ in 0..40 {
            doubted(Ended::Unread);
        }
        assert_eq!(doubted(Ended::Panicked), (true, false));
        assert_eq!(doubted(Ended::Refused), (true, true));
    }

    /// Lists alone were answered before.
    #[test]
    fn a_doubted_kind_is_readable_once_a_watch_lasts() {
        let (mut kind, at) = followed(true);
        kind.saw(Sign::Filled, at(1));
        assert_eq!(kind.next(at(9)), Next::Wait(Some(at(76))));
        kind.watch(WatchAnswer::Begun, at(9));
        assert!(
            kind.saw(Sign::Failed(BROKEN), at(10)).is_some(),
            "it is not readable yet"
        );
        assert_eq!(
            kind.next(at(14)),
            Next::Wait(Some(at(55))),
            "it began with an error"
        );
        kind.watch(WatchAnswer::Begun, at(20));
        assert_eq!(kind.next(at(24)), Next::Wait(Some(at(25))));
        assert_eq!(kind.next(at(25)), Next::Readable);
        assert_eq!(kind.ended(), Ended::Refused);

        let (mut kind, at) = followed(true);
        kind.saw(Sign::Filled, at(1));
        assert_eq!(kind.next(at(76)), Next::End(Ended::Unread));
    }
}
