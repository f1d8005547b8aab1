//! Health of a dynamically watched kind.

use std::time::{Duration, Instant};

use kube::core::ApiResource;

use super::{Failure, Sign};
use crate::limits::{Backoff, backoff::HEALTHY};

/// Timeout of the API discovery of a kind.
pub const FINDING: Duration = Duration::from_secs(10);

/// Time of the first list after which a kind is unreadable.
pub const LISTING: Duration = Duration::from_secs(10);

/// Time for which a listed kind stays readable while every request fails. Then it is listed again.
const FAILING: Duration = Duration::from_secs(45);

/// Duration after which a watch did not start with an error.
const STEADY: Duration = Duration::from_secs(5);

/// First delay before the retry of an unreadable kind.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// Longest delay before the retry of an unreadable kind.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// Longest delay before the retry of a list or watch. A retry must follow a failure before [`FAILING`] ends: a delay of Sluice itself must
/// not make a kind unreadable.
const MAX_WATCH_DELAY: Duration = Duration::from_secs(30);

/// Signs of one attempt to watch a kind.
#[derive(Debug)]
pub struct KindHealth {
    resource: ApiResource,
    /// Whether the kind becomes readable only after a successful watch: in an earlier attempt only lists succeeded.
    needs_watch: bool,
    /// End of the time of the first list; `None` after the list or a failure.
    first_list_due: Option<Instant>,
    is_listed: bool,
    is_readable: bool,
    /// Time since which the API server accepts watches.
    watching_since: Option<Instant>,
    /// Time since which every request fails.
    failing_since: Option<Instant>,
}

/// Change of the health of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All objects are listed.
    Readable,
    /// The kind is unreadable for this reason. The attempt goes on.
    Unreadable(String),
    /// The kind is unreadable for this reason, and the attempt is over.
    Lost(String),
}

impl KindHealth {
    /// Returns the health of a kind before its first list. A kind that `needs_watch` becomes readable after a list and a watch that lasts.
    #[must_use]
    pub fn new(resource: ApiResource, needs_watch: bool, now: Instant) -> Self {
        Self {
            resource,
            needs_watch,
            first_list_due: Some(now + LISTING),
            is_listed: false,
            is_readable: false,
            watching_since: None,
            failing_since: None,
        }
    }

    /// Returns the delays between attempts of a kind.
    #[must_use]
    pub fn delays() -> Backoff {
        Backoff::new(MIN_DELAY, MAX_DELAY)
    }

    /// Returns the delays between the lists and watches of one attempt.
    #[must_use]
    pub fn watch_delays() -> Backoff {
        Backoff::new(MIN_DELAY, MAX_WATCH_DELAY)
    }

    /// Returns whether the kind became readable in this attempt.
    #[must_use]
    pub fn was_readable(&self) -> bool {
        self.is_readable
    }

    /// Observes that the API server has accepted a watch. No event has arrived yet.
    pub fn watching(&mut self, now: Instant) {
        self.watching_since.get_or_insert(now);
    }

    /// Observes a sign of the kind.
    pub fn saw(&mut self, sign: Sign, now: Instant) -> Option<Verdict> {
        match sign {
            Sign::Filled => {
                self.is_listed = true;
                (self.first_list_due, self.failing_since) = (None, None);
                self.readable(now)
            }
            Sign::Changed => {
                self.failing_since = None;
                None
            }
            Sign::Failed(failure) => self.failed(failure, now),
            Sign::Emptied(_) => None,
        }
    }

    fn failed(&mut self, failure: Failure, now: Instant) -> Option<Verdict> {
        let watched = self.watching_since.take();
        if watched.is_some_and(|since| now.duration_since(since) >= HEALTHY) {
            self.failing_since = None;
        }
        if self.is_listed {
            self.failing_since.get_or_insert(now);
        }
        self.first_list_due = None;
        let why = failure.why(&self.resource);
        // An immediate retry does not change a refusal, and a kind that is not found may be served in another version.
        if failure.refusal().is_some() {
            return Some(Verdict::Lost(why));
        }
        (!self.is_readable).then_some(Verdict::Unreadable(why))
    }

    /// Returns the time of the next [`Self::wake`], if there is one.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let waits = self.is_listed && !self.is_readable;
        let steady_at = self.watching_since.filter(|_| waits).map(|since| since + STEADY);
        let times = [self.broken_at(), self.first_list_due, steady_at];
        times.into_iter().flatten().min()
    }

    /// Returns the end of the time for which every request may fail.
    fn broken_at(&self) -> Option<Instant> {
        let only_errors = self.failing_since.filter(|_| self.watching_since.is_none());
        only_errors.map(|since| since + FAILING)
    }

    /// Observes that the time of [`Self::wake_at`] has come.
    pub fn wake(&mut self, now: Instant) -> Option<Verdict> {
        if self.broken_at().is_some_and(|at| at <= now) {
            return Some(Verdict::Lost(Failure::WATCH.why(&self.resource)));
        }
        if self.first_list_due.take_if(|due| *due <= now).is_some() {
            let why = format!("nothing was listed within {} s", LISTING.as_secs());
            return Some(Verdict::Unreadable(why));
        }
        self.readable(now)
    }

    fn readable(&mut self, now: Instant) -> Option<Verdict> {
        let lasts = |since: Instant| now.duration_since(since) >= STEADY;
        let is_watched = !self.needs_watch || self.watching_since.is_some_and(lasts);
        let becomes = self.is_listed && !self.is_readable && is_watched;
        self.is_readable |= becomes;
        becomes.then_some(Verdict::Readable)
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

    const BROKEN_WHY: &str = "foos in group example.com cannot be watched; the log of Sluice says why";

    const FORBIDDEN: Failure = Failure {
        code: Some(403),
        ..BROKEN
    };

    fn lost() -> Verdict {
        Verdict::Lost(BROKEN_WHY.to_owned())
    }

    /// Returns the health of a kind, and a function from seconds to instants.
    fn health(needs_watch: bool) -> (KindHealth, impl Fn(u64) -> Instant) {
        let began = Instant::now();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
        let at = move |second| began + Duration::from_secs(second);
        (KindHealth::new(resource, needs_watch, began), at)
    }

    fn listed() -> (KindHealth, impl Fn(u64) -> Instant) {
        let (mut kind, at) = health(false);
        assert_eq!(kind.saw(Sign::Filled, at(0)), Some(Verdict::Readable));
        (kind, at)
    }

    #[test]
    fn a_kind_is_readable_once_it_is_listed() {
        let (mut kind, at) = health(false);
        assert_eq!(kind.wake_at(), Some(at(10)));
        assert_eq!(kind.wake(at(9)), None);
        let late = Verdict::Unreadable("nothing was listed within 10 s".to_owned());
        assert_eq!(kind.wake(at(10)), Some(late));
        assert_eq!(kind.wake_at(), None, "reported once");
        let broken = Some(Verdict::Unreadable(BROKEN_WHY.to_owned()));
        assert_eq!(kind.saw(Sign::Failed(BROKEN), at(11)), broken);
        assert_eq!(kind.saw(Sign::Filled, at(12)), Some(Verdict::Readable));
        assert_eq!(kind.saw(Sign::Filled, at(13)), None, "it was readable");
    }

    #[test]
    fn a_refusal_ends_the_attempt() {
        for (mut kind, now) in [
            (health(false).0, Instant::now()),
            (listed().0, Instant::now()),
            (health(true).0, Instant::now()),
        ] {
            let Some(Verdict::Lost(why)) = kind.saw(Sign::Failed(FORBIDDEN), now) else {
                panic!("the attempt goes on");
            };
            assert!(why.starts_with("Sluice may not read foos"), "{why}");
        }
    }

    #[test]
    fn a_listed_kind_stays_readable_while_requests_fail_for_45_s() {
        let (mut kind, at) = listed();
        for second in [5, 20, 49] {
            assert_eq!(kind.saw(Sign::Failed(BROKEN), at(second)), None);
            assert_eq!(kind.wake_at(), Some(at(50)));
            assert_eq!(kind.wake(at(second)), None);
        }
        assert_eq!(kind.wake(at(50)), Some(lost()));
    }

    /// A proxy may end idle connections.
    #[test]
    fn failures_after_working_watches_do_not_add_up() {
        let (mut kind, at) = listed();
        for second in (0..600).step_by(30) {
            kind.watching(at(second));
            assert_eq!(kind.wake_at(), None);
            assert_eq!(kind.saw(Sign::Failed(BROKEN), at(second + 20)), None);
            assert_eq!(kind.wake_at(), Some(at(second + 65)));
        }
        let (mut kind, at) = listed();
        for second in [10, 30] {
            kind.watching(at(second));
            assert_eq!(kind.saw(Sign::Failed(BROKEN), at(second + 19)), None);
        }
        assert_eq!(kind.wake(at(74)), Some(lost()), "too short");
    }

    #[test]
    fn a_change_between_failures_is_a_success() {
        let (mut kind, at) = listed();
        assert_eq!(kind.saw(Sign::Failed(BROKEN), at(5)), None);
        assert_eq!(kind.saw(Sign::Changed, at(30)), None);
        assert_eq!(kind.wake_at(), None);
        assert_eq!(kind.saw(Sign::Failed(BROKEN), at(60)), None);
    }

    /// For example, each watch expires after a while.
    #[test]
    fn own_delays_make_no_kind_unreadable() {
        let ((mut kind, at), mut delays) = (listed(), KindHealth::watch_delays());
        let mut now = at(0);
        for _ in 0..200 {
            kind.watching(now);
            now += HEALTHY / 2;
            assert_eq!(kind.saw(Sign::Failed(BROKEN), now), None);
            now += delays.failed(now);
            assert!(kind.wake_at().is_some_and(|at| at > now), "the list is in time");
            assert_eq!(kind.saw(Sign::Filled, now), None);
        }
    }

    /// In the previous attempt only lists succeeded.
    #[test]
    fn a_kind_that_needs_a_watch_is_readable_once_one_lasts() {
        let (mut kind, at) = health(true);
        assert_eq!(kind.saw(Sign::Filled, at(1)), None);
        assert_eq!(kind.wake_at(), None);
        kind.watching(at(9));
        assert!(
            kind.saw(Sign::Failed(BROKEN), at(10)).is_some(),
            "it is not readable yet"
        );
        assert_eq!(kind.wake_at(), Some(at(55)), "it started with an error");
        kind.watching(at(20));
        assert_eq!(kind.wake_at(), Some(at(25)));
        assert_eq!(kind.wake(at(24)), None);
        assert_eq!(kind.wake(at(25)), Some(Verdict::Readable));
        assert!(kind.was_readable());
    }
}
