//! Removals of leftovers from one Cluster by this process, so that a returning leftover is not removed endlessly.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use crate::reconcile::cluster::WITH_PROBLEM;

/// Time after its last observation during which a returned leftover is reported.
const RETURNS: Duration = Duration::from_mins(1);

/// Kind of a leftover.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::reconcile::cluster) enum Thing {
    /// `spec.paused` of the Cluster, with its annotation.
    Pause,
    /// The finalizer of the ClusterBootstrap.
    Bootstrap,
    /// The finalizer of the Cluster.
    Cluster,
    /// The reference to a values Secret of the addons-manager in the PackageInstall of this name.
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

/// State of a leftover that an object shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile::cluster) enum LeftoverState {
    /// The leftover is to be removed.
    Left,
    /// The leftover was removed from this version of the object; the watch does not show the next one yet.
    Outdated,
    /// The leftover returned, and is left alone for now.
    Returned,
}

/// Removed and returned leftovers.
#[derive(Debug, Clone, Default)]
pub(in crate::reconcile::cluster) struct Removals {
    /// resourceVersion and time of the last removal of each leftover.
    removed: BTreeMap<Thing, (String, Instant)>,
    /// Last leftover that returned, and time of its observation.
    returned: Option<(Thing, Instant)>,
    /// Time since which removals fail or leftovers return.
    failing_since: Option<Instant>,
    /// Time since which the settled Cluster waits for an operator to fix a problem of all Clusters.
    waits_since: Option<Instant>,
}

impl Removals {
    /// Returns the state of `thing`, observed in `version` of its object. A returned leftover is removed again once in a `period`.
    pub(in crate::reconcile::cluster) fn seen(
        &mut self,
        thing: Thing,
        version: &str,
        period: Duration,
        now: Instant,
    ) -> LeftoverState {
        match self.removed.get(&thing) {
            None => LeftoverState::Left,
            // The API server accepted the removal from this version only, so any other version with the leftover is newer.
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

    /// Notes that `thing` is still in the response to its removal: a webhook restored it before the write.
    pub(super) fn put_back(&mut self, thing: Thing, now: Instant) {
        // Any version that shows the leftover is newer.
        self.removed.insert(thing.clone(), (String::new(), now));
        self.returned = Some((thing, now));
    }

    /// Notes the removal of `thing` from this version of its object.
    pub(in crate::reconcile::cluster) fn removed(&mut self, thing: Thing, version: String, now: Instant) {
        // Only a drift check shows another return, and none runs while a problem is reported.
        if matches!(thing, Thing::ValuesName(_)) {
            self.returned.take_if(|(returned, _)| *returned == thing);
        }
        self.removed.insert(thing, (version, now));
    }

    /// Returns the last returned leftover, if recent. Meanwhile no drift check runs, so one on a workload counts for a `period`.
    pub(super) fn returned(&self, now: Instant, period: Duration) -> Option<&Thing> {
        let (thing, at) = self.returned.as_ref()?;
        let counts_for = match thing {
            Thing::ValuesName(_) => period,
            Thing::Pause | Thing::Bootstrap | Thing::Cluster => RETURNS,
        };
        (now.duration_since(*at) < counts_for).then_some(thing)
    }

    /// Whether the last removal failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failing_since.is_some()
    }

    /// Returns the requeue delay of a Cluster with failed removals or returned leftovers: a tenth of the time that the problem lasts.
    pub(super) fn again(&mut self, failed: bool, now: Instant, period: Duration) -> Option<Duration> {
        ever_later(&mut self.failing_since, failed, now, period)
    }

    /// Returns the same delay for a settled Cluster that `waits` for an operator to fix a problem of all Clusters.
    pub(in crate::reconcile::cluster) fn wait(
        &mut self,
        waits: bool,
        now: Instant,
        period: Duration,
    ) -> Option<Duration> {
        ever_later(&mut self.waits_since, waits, now, period)
    }
}

/// Returns the delay to the next attempt at a problem that exists `since` then, if it `lasts`.
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
    fn a_returned_leftover_is_left_alone_for_a_period() {
        let (mut removals, began) = (Removals::default(), Instant::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        let seen = |removals: &mut Removals, version, at| removals.seen(Thing::Cluster, version, PERIOD, at);
        assert_eq!(seen(&mut removals, "7", began), LeftoverState::Left);
        removals.removed(Thing::Cluster, "7".to_owned(), began);
        assert_eq!(seen(&mut removals, "7", after(1)), LeftoverState::Outdated);
        assert_eq!(
            removals.returned(after(1), PERIOD),
            None,
            "an outdated watch is no return"
        );
        assert_eq!(seen(&mut removals, "9", after(2)), LeftoverState::Returned);
        assert_eq!(removals.returned(after(2), PERIOD), Some(&Thing::Cluster));
        assert_eq!(removals.returned(after(61), PERIOD), Some(&Thing::Cluster));
        assert_eq!(
            removals.returned(after(62), PERIOD),
            None,
            "not observed for a minute"
        );
        assert_eq!(seen(&mut removals, "9", after(599)), LeftoverState::Returned);
        assert_eq!(seen(&mut removals, "9", after(600)), LeftoverState::Left);
        assert_eq!(
            removals.seen(Thing::Pause, "9", PERIOD, after(600)),
            LeftoverState::Left,
            "each leftover on its own"
        );
        removals.put_back(Thing::Cluster, after(600));
        assert_eq!(
            removals.returned(after(600), PERIOD),
            Some(&Thing::Cluster),
            "at once"
        );
        assert_eq!(seen(&mut removals, "9", after(601)), LeftoverState::Returned);
    }

    /// No drift check of a workload runs while the return is reported.
    #[test]
    fn a_returned_values_name_is_reported_until_it_is_removed_again() {
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
        assert_eq!(removals.returned(after(602), PERIOD), None, "it may not return");
    }

    #[test]
    fn the_delay_of_failed_removals_grows() {
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
