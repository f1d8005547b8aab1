//! What this process has removed of one Cluster, so that what comes back is not removed again and again.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use crate::reconcile::cluster::WITH_PROBLEM;

/// For so long it is said that something has come back after it was seen last.
const RETURNS: Duration = Duration::from_mins(1);

/// What is removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::reconcile::cluster) enum Thing {
    /// `spec.paused` of the Cluster, with its annotation.
    Pause,
    /// The finalizer of the ClusterBootstrap.
    Bootstrap,
    /// The finalizer of the Cluster.
    Cluster,
    /// The name that the addons-manager gives values Secrets, in the PackageInstall of this name.
    ValuesName(String),
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pause => "the pause of the addons-manager (spec.paused of the Cluster)",
            Self::Bootstrap => "finalizer tkg.tanzu.vmware.com/addon of the ClusterBootstrap",
            Self::Cluster => "finalizer tkg.tanzu.vmware.com/addon of the Cluster",
            Self::ValuesName(install) => {
                return write!(
                    f,
                    "the values Secret of the addons-manager in PackageInstall {install}"
                );
            }
        })
    }
}

/// What a thing is that is seen in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile::cluster) enum LeftoverState {
    /// It is to be removed.
    Left,
    /// It was removed from this very version of the object: the watch has not shown the next one yet.
    Outdated,
    /// It was put back, and is left alone for now.
    Returned,
}

/// What was removed.
#[derive(Debug, Clone, Default)]
pub(in crate::reconcile::cluster) struct Removals {
    /// From which resourceVersion each thing was removed last, and when.
    removed: BTreeMap<Thing, (String, Instant)>,
    /// What was seen to have come back last, and when.
    returned: Option<(Thing, Instant)>,
    /// Since when something could not be removed, or has come back.
    failing_since: Option<Instant>,
    /// Since when the settled Cluster waits for what an operator has to do once for all.
    waits_since: Option<Instant>,
}

impl Removals {
    /// What `thing` is, seen in `version` of its object. What was put back is removed again once in a `period`.
    pub(in crate::reconcile::cluster) fn seen(
        &mut self,
        thing: Thing,
        version: &str,
        period: Duration,
        now: Instant,
    ) -> LeftoverState {
        match self.removed.get(&thing) {
            None => LeftoverState::Left,
            // The API server took the removal from this version only, so a later one that has the thing was written since.
            Some((from, _)) if from == version => LeftoverState::Outdated,
            Some((_, at)) => {
                self.returned = Some((thing, now));
                if now.duration_since(*at) < period {
                    LeftoverState::Returned
                } else {
                    LeftoverState::Left
                }
            }
        }
    }

    /// `thing` was removed, and is in the answer still: a webhook has put it back before anything was written.
    pub(super) fn put_back(&mut self, thing: Thing, now: Instant) {
        // Whatever version shows it, it is not an earlier one.
        self.removed.insert(thing.clone(), (String::new(), now));
        self.returned = Some((thing, now));
    }

    /// `thing` was removed from this version of its object.
    pub(in crate::reconcile::cluster) fn removed(&mut self, thing: Thing, version: String, now: Instant) {
        // Whether it comes back again only a look shows, and there is none while something is said.
        if matches!(thing, Thing::ValuesName(_)) {
            self.returned.take_if(|(returned, _)| *returned == thing);
        }
        self.removed.insert(thing, (version, now));
    }

    /// What has come back, if that was seen lately. Workloads are not looked at meanwhile, so what was seen there counts for a `period`.
    pub(super) fn returned(&self, now: Instant, period: Duration) -> Option<&Thing> {
        let (thing, at) = self.returned.as_ref()?;
        let counts_for = match thing {
            Thing::ValuesName(_) => period,
            Thing::Pause | Thing::Bootstrap | Thing::Cluster => RETURNS,
        };
        (now.duration_since(*at) < counts_for).then_some(thing)
    }

    /// Whether something could not be removed at the last try.
    pub(super) fn has_failed(&self) -> bool {
        self.failing_since.is_some()
    }

    /// When a Cluster is looked at again of which something could not be removed, or has come back: after a tenth of the time that this
    /// has lasted.
    pub(super) fn again(&mut self, failed: bool, now: Instant, period: Duration) -> Option<Duration> {
        ever_later(&mut self.failing_since, failed, now, period)
    }

    /// When a settled Cluster is looked at again that `waits` for what an operator has to do once for all: the same.
    pub(in crate::reconcile::cluster) fn wait(
        &mut self,
        waits: bool,
        now: Instant,
        period: Duration,
    ) -> Option<Duration> {
        ever_later(&mut self.waits_since, waits, now, period)
    }
}

/// The time until the next try of what goes wrong `since` then, if it `lasts`.
fn ever_later(since: &mut Option<Instant>, lasts: bool, now: Instant, period: Duration) -> Option<Duration> {
    if !lasts {
        *since = None;
        return None;
    }
    let lasted = now.duration_since(*since.get_or_insert(now));
    Some((lasted / 10).clamp(WITH_PROBLEM, period.max(WITH_PROBLEM)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_mins(10);

    #[test]
    fn what_comes_back_is_left_alone_for_a_period() {
        let (mut removals, began) = (Removals::default(), Instant::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        let seen = |removals: &mut Removals, version, at| removals.seen(Thing::Cluster, version, PERIOD, at);
        assert_eq!(seen(&mut removals, "7", began), LeftoverState::Left);
        removals.removed(Thing::Cluster, "7".to_owned(), began);
        assert_eq!(seen(&mut removals, "7", after(1)), LeftoverState::Outdated);
        assert_eq!(
            removals.returned(after(1), PERIOD),
            None,
            "a watch that is behind shows nothing"
        );
        assert_eq!(seen(&mut removals, "9", after(2)), LeftoverState::Returned);
        assert_eq!(removals.returned(after(2), PERIOD), Some(&Thing::Cluster));
        assert_eq!(removals.returned(after(61), PERIOD), Some(&Thing::Cluster));
        assert_eq!(
            removals.returned(after(62), PERIOD),
            None,
            "it was not seen for a minute"
        );
        assert_eq!(seen(&mut removals, "9", after(599)), LeftoverState::Returned);
        assert_eq!(seen(&mut removals, "9", after(600)), LeftoverState::Left);
        assert_eq!(
            removals.seen(Thing::Pause, "9", PERIOD, after(600)),
            LeftoverState::Left,
            "each for itself"
        );
        removals.put_back(Thing::Cluster, after(600));
        assert_eq!(
            removals.returned(after(600), PERIOD),
            Some(&Thing::Cluster),
            "at once"
        );
        assert_eq!(seen(&mut removals, "9", after(601)), LeftoverState::Returned);
    }

    /// Nothing looks at a workload while it is said of it.
    #[test]
    fn a_name_that_comes_back_is_said_until_it_is_moved_again() {
        let (mut removals, began) = (Removals::default(), Instant::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        let thing = Thing::ValuesName("one-antrea".to_owned());
        removals.removed(thing.clone(), "7".to_owned(), began);
        let seen = removals.seen(thing.clone(), "9", PERIOD, after(1));
        assert_eq!(seen, LeftoverState::Returned);
        assert_eq!(removals.returned(after(600), PERIOD), Some(&thing));
        assert_eq!(removals.returned(after(601), PERIOD), None);
        let seen = removals.seen(thing.clone(), "9", PERIOD, after(601));
        assert_eq!(seen, LeftoverState::Left);
        removals.removed(thing, "9".to_owned(), after(601));
        assert_eq!(
            removals.returned(after(602), PERIOD),
            None,
            "it may be gone for good"
        );
    }

    #[test]
    fn what_fails_is_tried_ever_later() {
        let (mut removals, began) = (Removals::default(), Instant::now());
        let mut again =
            |failed, minutes| removals.again(failed, began + Duration::from_mins(minutes), PERIOD);
        assert_eq!(again(true, 0), Some(WITH_PROBLEM));
        assert_eq!(again(true, 20), Some(Duration::from_mins(2)));
        assert_eq!(again(true, 1000), Some(PERIOD));
        assert_eq!(again(false, 1001), None);
        assert_eq!(again(true, 1002), Some(WITH_PROBLEM), "from the beginning");
    }
}
