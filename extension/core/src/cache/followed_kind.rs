//! State machine of a dynamically watched kind.

use std::time::{Duration, Instant};

use kube::core::ApiResource;

use super::{Failure, Sign};
use crate::limits::{Backoff, backoff::HEALTHY};

/// Timeout of the API discovery of a kind.
pub const FINDING: Duration = Duration::from_secs(10);

/// Time of the first list after which callers get a reason.
pub const LISTING: Duration = Duration::from_secs(10);

/// Time for which a kind stays readable while every request fails.
const FAILING: Duration = Duration::from_secs(45);

/// First delay before the retry of an unreadable kind.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// Longest delay before the retry of an unreadable kind.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// Delay before the next attempt of a kind that is tried once. A request for the kind reopens its watch earlier.
const NOT_AGAIN: Duration = Duration::from_hours(24);

/// Duration after which a watch did not start with an error.
const STEADY: Duration = Duration::from_secs(5);

/// State of a kind since the start of its watch.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct FollowedKind {
    resource: ApiResource,
    /// Whether the kind becomes readable only after a successful watch: in the previous attempt only lists succeeded.
    needs_watch: bool,
    /// Time at which callers get the reason of a late first list; `None` after a list or another reason.
    first_list_due: Option<Instant>,
    /// Whether a list was completed.
    listed: bool,
    /// Time of the last completed list that is not reported to callers.
    list_to_report: Option<Instant>,
    /// Time since which watches succeed.
    watching_since: Option<Instant>,
    /// Time since which every request fails.
    failing_since: Option<Instant>,
    must_end: bool,
    readable: bool,
}

/// Next step while a kind is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Report the objects to callers.
    Readable,
    /// Report this reason to callers: the first list is late, or every watch fails.
    Unreadable(String),
    /// End the watch.
    End(Ended),
    /// Wait for the next event, until this time if there is one.
    Wait(Option<Instant>),
}

/// Outcome of the watch of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The kind never became readable.
    NeverReadable,
    /// The kind is no longer readable.
    Lost,
    /// The watch panicked.
    Panicked,
}

/// Attempts to watch a kind.
#[derive(Debug)]
pub struct Attempts {
    backoff: Backoff,
    needs_watch: bool,
    is_once: bool,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            backoff: FollowedKind::delays(),
            needs_watch: false,
            is_once: false,
        }
    }
}

impl Attempts {
    /// Returns a single attempt, unless it makes the kind readable.
    #[must_use]
    pub fn once() -> Self {
        Self {
            is_once: true,
            ..Self::default()
        }
    }

    /// Starts an attempt to watch the kind as `resource`.
    #[must_use]
    pub fn begin(&self, resource: &ApiResource, now: Instant) -> FollowedKind {
        FollowedKind::new(resource.clone(), self.needs_watch, now)
    }

    /// Records the end of an attempt. Returns the delay before the next one.
    pub fn ended(&mut self, ended: Ended, now: Instant) -> Duration {
        if ended == Ended::Lost {
            self.backoff.reset();
            self.is_once = false;
        }
        self.needs_watch = match ended {
            Ended::Lost | Ended::Panicked => true,
            Ended::NeverReadable => self.needs_watch,
        };
        let delay = self.backoff.failed(now);
        if self.is_once { NOT_AGAIN } else { delay }
    }
}

impl FollowedKind {
    /// Returns the initial state. A kind that needs a watch becomes readable after a list and a successful watch: before, only lists
    /// succeeded.
    fn new(resource: ApiResource, needs_watch: bool, now: Instant) -> Self {
        Self {
            resource,
            needs_watch,
            first_list_due: Some(now + LISTING),
            listed: false,
            list_to_report: None,
            watching_since: None,
            failing_since: None,
            must_end: false,
            readable: false,
        }
    }

    /// Returns the delays between attempts of a kind, and of its list and watch.
    #[must_use]
    pub fn delays() -> Backoff {
        Backoff::new(MIN_DELAY, MAX_DELAY)
    }

    /// Observes a sign of the kind. Returns the reason to report to callers, if there is one.
    pub fn saw(&mut self, sign: Sign, now: Instant) -> Option<String> {
        match sign {
            Sign::Filled => {
                (self.listed, self.list_to_report) = (true, Some(now));
                (self.failing_since, self.first_list_due) = (None, None);
                self.readable |= !self.needs_watch;
            }
            Sign::Changed => self.failing_since = None,
            Sign::Failed(failure) => {
                self.failed(failure, now);
                return self.tells(failure).then(|| failure.why(&self.resource));
            }
            Sign::Emptied(_) => {}
        }
        None
    }

    /// Records that the API server has accepted a watch. No event has arrived yet.
    pub fn watching(&mut self, now: Instant) {
        self.watching_since.get_or_insert(now);
    }

    fn failed(&mut self, failure: Failure, now: Instant) {
        let watched = self.watching_since.take();
        if watched.is_some_and(|since| now.duration_since(since) >= HEALTHY) {
            self.failing_since = None;
        }
        if self.listed {
            self.failing_since.get_or_insert(now);
        }
        self.first_list_due = None;
        self.must_end |= failure.refusal().is_some();
    }

    /// Returns whether callers get the reason of a failure. For a readable kind, an error other than a refusal is no reason yet: the listed
    /// objects are recent, and the request is retried.
    fn tells(&self, failure: Failure) -> bool {
        !self.readable || failure.refusal().is_some()
    }

    /// Returns the next step.
    pub fn next(&mut self, now: Instant) -> Next {
        let only_errors = self.failing_since.filter(|_| self.watching_since.is_none());
        let broken_at = only_errors.map(|since| since + FAILING);
        let steady_at = self.watching_since.map(|since| since + STEADY);
        let readable_at = if self.needs_watch {
            self.list_to_report.and(steady_at)
        } else {
            self.list_to_report
        };

        let has_come = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        // After a refused watch, kube-runtime does not list again once a later watch succeeds, so no event would report the kind as
        // readable again. And a kind that is not found may be served in another version.
        if self.must_end {
            Next::End(self.ended())
        } else if has_come(broken_at) {
            // The attempt ends like a refusal, independent of later responses.
            self.must_end = true;
            Next::Unreadable(Failure::WATCH.why(&self.resource))
        } else if has_come(self.first_list_due) {
            self.first_list_due = None;
            Next::Unreadable(format!("nothing was listed within {} s", LISTING.as_secs()))
        } else if has_come(readable_at) {
            (self.readable, self.list_to_report) = (true, None);
            Next::Readable
        } else {
            Next::Wait(
                [broken_at, self.first_list_due, readable_at]
                    .into_iter()
                    .flatten()
                    .min(),
            )
        }
    }

    /// Returns the outcome of a watch that ends now.
    #[must_use]
    pub fn ended(&self) -> Ended {
        if self.readable {
            Ended::Lost
        } else {
            Ended::NeverReadable
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

    /// Returns a watched kind, and a function from seconds to instants.
    fn followed(needs_watch: bool) -> (FollowedKind, impl Fn(u64) -> Instant) {
        let began = Instant::now();
        let at = move |second| began + Duration::from_secs(second);
        (FollowedKind::new(resource(), needs_watch, began), at)
    }

    /// Returns a kind that was listed after a second and is readable.
    fn readable() -> (FollowedKind, impl Fn(u64) -> Instant) {
        let (mut kind, at) = followed(false);
        kind.saw(Sign::Filled, at(1));
        assert_eq!(kind.next(at(1)), Next::Readable);
        (kind, at)
    }

    #[test]
    fn a_late_first_list_is_reported_once() {
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
        assert_eq!(kind.next(at(11)), Next::Wait(None), "reported once");
        assert_eq!(
            kind.saw(Sign::Failed(BROKEN), at(12)),
            None,
            "the list is still valid"
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
        assert_eq!(kind.next(at(2)), Next::End(Ended::Lost));

        let (mut kind, at) = followed(false);
        kind.saw(Sign::Failed(FORBIDDEN), at(2));
        assert_eq!(kind.next(at(2)), Next::End(Ended::NeverReadable));
    }

    #[test]
    fn a_kind_with_only_errors_stays_readable_for_a_while() {
        let failing = || {
            let (mut kind, at) = readable();
            kind.saw(Sign::Failed(BROKEN), at(5));
            kind.saw(Sign::Failed(BROKEN), at(40));
            assert_eq!(kind.next(at(49)), Next::Wait(Some(at(50))));
            (kind, at)
        };
        let (mut kind, at) = failing();
        kind.watching(at(50));
        assert_eq!(kind.next(at(50)), Next::Wait(None), "watched again");
        let (mut kind, at) = failing();
        assert_eq!(kind.next(at(50)), Next::Unreadable(BROKEN_WHY.to_owned()));
        kind.watching(at(50));
        assert_eq!(kind.next(at(50)), Next::End(Ended::Lost), "reported");
    }

    #[test]
    fn errors_between_responses_do_not_add_up() {
        let answered_until = |second| {
            let (mut kind, at) = readable();
            kind.saw(Sign::Failed(BROKEN), at(5));
            kind.watching(at(10));
            kind.saw(Sign::Failed(BROKEN), at(second));
            (kind, at)
        };
        let (mut kind, at) = answered_until(29);
        let next = kind.next(at(50));
        assert_eq!(next, Next::Unreadable(BROKEN_WHY.to_owned()), "too short");
        let (mut kind, at) = answered_until(30);
        assert_eq!(kind.next(at(74)), Next::Wait(Some(at(75))));
        kind.saw(Sign::Changed, at(74));
        assert_eq!(kind.next(at(75)), Next::Wait(None));
    }

    #[test]
    fn a_kind_that_was_refused_or_panicked_needs_a_watch_until_it_was_readable_again() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let mut needs_watch = |ended| {
            let delay = attempts.ended(ended, now);
            (
                attempts.begin(&resource(), now).needs_watch,
                delay <= MIN_DELAY * 2,
            )
        };
        assert_eq!(needs_watch(Ended::NeverReadable), (false, true));
        assert_eq!(needs_watch(Ended::Lost), (true, true));
        for _ in 0..40 {
            needs_watch(Ended::NeverReadable);
        }
        assert_eq!(
            needs_watch(Ended::NeverReadable),
            (true, false),
            "the delays grow"
        );
        assert_eq!(needs_watch(Ended::Panicked), (true, false));
        assert_eq!(needs_watch(Ended::Lost), (true, true));
    }

    #[test]
    fn a_kind_that_is_tried_once_is_tried_again_once_it_was_readable() {
        let (mut attempts, now) = (Attempts::once(), Instant::now());
        for ended in [Ended::NeverReadable, Ended::Panicked] {
            assert_eq!(attempts.ended(ended, now), NOT_AGAIN);
        }
        for ended in [Ended::Lost, Ended::NeverReadable] {
            assert!(attempts.ended(ended, now) <= MAX_DELAY);
        }
    }

    /// In the previous attempt only lists succeeded.
    #[test]
    fn a_kind_that_needs_a_watch_is_readable_once_one_lasts() {
        let (mut kind, at) = followed(true);
        kind.saw(Sign::Filled, at(1));
        assert_eq!(kind.next(at(9)), Next::Wait(None));
        kind.watching(at(9));
        assert!(
            kind.saw(Sign::Failed(BROKEN), at(10)).is_some(),
            "it is not readable yet"
        );
        assert_eq!(
            kind.next(at(14)),
            Next::Wait(Some(at(55))),
            "it started with an error"
        );
        kind.watching(at(20));
        assert_eq!(kind.next(at(24)), Next::Wait(Some(at(25))));
        assert_eq!(kind.next(at(25)), Next::Readable);
        assert_eq!(kind.ended(), Ended::Lost);
    }
}
