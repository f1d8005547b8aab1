//! Local state of a Cluster that this process keeps between reconciles. A process that starts without it never opens a gate early; it
//! only takes longer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use sluice_crds::{foreign::App, run::Hook};

use super::{
    CachedControlPlane, Clock, WITH_PROBLEM, held_probe::HeldProbe, plan::Planned, relabel::Relabelling,
    swap::EntriesWrite, takeover::Removals, upgrade_warnings::Warnings, values_cache::CachedValues,
    workload::LastConnection,
};
use crate::{
    proof::last_moved,
    protocol::LastDriftCheck,
    reasons::Hold,
    schedule::{SyncPeriod, spread_back, wait},
    upgrade::record::Ungated,
};

/// Interval between checks of an object that an open gate needs, a little less than the requeue delay of a hot Cluster.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(9);

/// The same for an object that no open gate needs yet: reads before a gate opens find its alterations too.
const PROOF_CHECK_INTERVAL: Duration = Duration::from_secs(19);

/// Time that the last check of an object stays valid while further checks get no response, equal to the validity of proofs of a silent
/// workload.
const TRUSTED_FOR: Duration = Duration::from_mins(1);

/// Time without progress after which a deploying App counts as stalled. kapp writes a line at least every minute while it waits.
const STALLED: Duration = Duration::from_secs(90);

/// Same limit for an App whose own timestamps already show a pause of [`STALLED`]. This process may be new and only confirms that
/// nothing moves.
const STALLED_BEFORE: Duration = Duration::from_secs(10);

/// Time during which unfilled stores of a new connection do not affect recorded proofs. A workload without the kinds of kapp-controller
/// never fills them.
const OPENING: Duration = Duration::from_secs(10);

/// Time after which a cache that reads contradict has lost an event: a silent watch ends earlier.
const LOST: Duration = Duration::from_mins(2);

/// Local state of one Cluster.
#[derive(Debug, Clone, Default)]
pub struct LocalState {
    /// Time of the last status write.
    pub written: Option<Instant>,
    /// Number of writes of progress of the upgrade.
    pub(super) progress_writes: usize,
    /// Connection to the workload.
    pub(super) connection: Option<LastConnection>,
    /// Time of the next drift check of the settled Cluster, once known.
    drift_check_at: Option<Instant>,
    /// Time since which the Cluster waits without a connection for a state that no watch shows.
    waits_since: Option<Instant>,
    /// Time since which drift checks of the settled Cluster do not reach its workload.
    unseen_since: Option<Instant>,
    /// Time since which drift checks of the settled Cluster find a package without its proof.
    unproven_since: Option<Instant>,
    apps: BTreeMap<String, Sighting>,
    checks: Checks,
    /// Values Secrets that the last plan was made from, by name of the Package.
    values: BTreeMap<String, Arc<CachedValues>>,
    rest: Rest,
    /// Time since which stores of the workload are unfilled, across connections.
    unfilled_since: Option<Instant>,
    /// Last hold of refused writes that no package waits for.
    refusal: Option<Hold>,
    /// Number of rollbacks of the API server before the reconcile.
    pub(super) rollbacks: u64,
    /// Time since which reads of the Cluster and its control plane differ from the cache.
    outdated_since: Option<Instant>,
    /// Control plane whose cached state a read has confirmed last.
    pub(super) confirmed: Option<CachedControlPlane>,
    /// Gates that this process may have opened and its watch may not show yet.
    pub(super) opened: Vec<(Hook, String)>,
    /// Version that packages are proven for, and start of the reconcile that observed the last proof.
    pub(super) proven: Option<(String, Instant)>,
    /// Version that the control plane reached, and time of its first observation, until it is recorded.
    pub(super) taken: Option<(String, Time)>,
    /// Counted versions that no open gate released.
    pub(super) ungated: Vec<Ungated>,
    /// Removed leftovers of the addons-manager.
    pub(super) removals: Removals,
    /// Last change of the release label of the Cluster.
    pub(super) relabelling: Option<Relabelling>,
    /// Last write of entries of a release.
    pub(super) entries: Option<Box<EntriesWrite>>,
    /// Version of the last edited entry of machines that an event reported.
    pub(super) edited: Option<String>,
    /// Whether an event has reported that the label of a management cluster has no effect.
    pub(super) label_ignored: bool,
    /// Whether an event has reported that Cluster API still accepts any version after a cancellation.
    pub(super) version_unchecked: bool,
    /// Warnings for the current step of the upgrade, once its workload cluster was read for them.
    pub(super) warnings: Option<Box<Warnings>>,
    /// Probes for the cause of a held gate.
    pub(super) held_probe: HeldProbe,
    /// Names of values Secrets of the addons-manager on the workload that PackageInstalls no longer reference.
    left: BTreeSet<String>,
}

/// Work that a Cluster may need before its next drift check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Rest {
    /// This process has not planned the Cluster yet. A Cluster settled by its record rests: otherwise a start would read all at once.
    #[default]
    Unknown,
    /// Work may be due.
    Ended,
    /// No work is due while the plan has these inputs.
    PlannedFrom(PlannedFrom),
}

/// Hashes of the inputs that the packages of a Cluster at rest are planned from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PlannedFrom {
    /// Its own ClusterBootstrap and the stage of its upgrade.
    pub(super) own: u64,
    /// The Packages that the ClusterBootstrap names.
    pub(super) catalogue: u64,
}

/// Last observed resourceVersion of an App, and the time since which it is unchanged.
#[derive(Debug, Clone)]
struct Sighting {
    version: String,
    since: Instant,
    /// Whether the App was found stalled in this version.
    found: bool,
}

/// Purpose of an object that a package needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The proof of a package.
    Proof,
    /// A gate that such a proof keeps open, until Cluster API has made its step.
    OpenGate,
    /// A later gate of the upgrade, or its end.
    NextGate,
    /// No upgrade.
    Nothing,
}

impl Need {
    /// Whether an upgrade in progress rests on the recorded proof of the package.
    pub(super) const fn is_of_gate(self) -> bool {
        matches!(self, Self::OpenGate | Self::NextGate)
    }

    /// Returns the check interval for the sync period `period`.
    pub(super) fn check_interval(self, period: Duration) -> Duration {
        match self {
            Self::OpenGate => CHECK_INTERVAL,
            Self::Proof | Self::NextGate => PROOF_CHECK_INTERVAL,
            Self::Nothing => period.max(PROOF_CHECK_INTERVAL),
        }
    }
}

/// Time and content of the last successful check of each object that a package needs.
#[derive(Debug, Clone, Default)]
struct Checks {
    /// Number of the connection to the workload.
    connection: u64,
    things: BTreeMap<String, (String, Instant)>,
}

impl LocalState {
    /// Whether the reconcile of this state began after this number of restarts of the watches.
    #[must_use]
    pub fn is_after(&self, restarts: u64) -> bool {
        self.rollbacks == restarts
    }

    /// Notes whether reads differ from the cache. Returns the difference once it has lasted for so long that its event is lost.
    pub(super) fn outdated_for_long(&mut self, outdated: Option<&Hold>, now: Instant) -> Option<String> {
        let Some(hold) = outdated else {
            self.outdated_since = None;
            return None;
        };
        let since = *self.outdated_since.get_or_insert(now);
        (now.saturating_duration_since(since) >= LOST).then(|| hold.message.clone())
    }

    /// Stores the hold of refused writes that no package waits for. Returns whether it differs from the last one.
    pub(super) fn is_new_refusal(&mut self, refusal: Option<&Hold>) -> bool {
        let is_new = self.refusal.as_ref() != refusal;
        if is_new {
            self.refusal = refusal.cloned();
        }
        is_new
    }

    /// Returns the time until the drift check of the settled Cluster with this UID, which runs once in each `period`; `None` once it is
    /// due. The time follows from the UID, which spreads the drift checks of all Clusters over the period.
    pub(super) fn until_drift_check(
        &mut self,
        uid: &str,
        period: SyncPeriod,
        now: Instant,
    ) -> Option<Duration> {
        let at = *self
            .drift_check_at
            .get_or_insert_with(|| now + period.until_resync(uid, now));
        let left = at.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Schedules the next drift check `next` after `now`.
    pub(super) fn drift_check_made(&mut self, next: Duration, now: Instant) {
        self.drift_check_at = Some(now + next);
    }

    /// Makes a drift check due that waited for a permit.
    pub fn drift_check_is_due(&mut self, now: Instant) {
        if let Some(at) = &mut self.drift_check_at {
            *at = now.min(*at);
        }
    }

    /// Returns the delay to the next drift check after one at `now`, which found all packages `proven` or not. The delay grows with the
    /// time that packages are unproven. The UID spreads Clusters whose packages fail for the same reason.
    pub(super) fn next_drift_check(
        &mut self,
        uid: &str,
        proven: bool,
        period: SyncPeriod,
        now: Instant,
    ) -> Duration {
        if proven {
            self.unproven_since = None;
            return period.until_resync(uid, now);
        }
        let lasted = now.duration_since(*self.unproven_since.get_or_insert(now));
        spread_back(
            uid,
            (lasted / 10).clamp(WITH_PROBLEM, period.length.max(WITH_PROBLEM)),
        )
    }

    /// Discards the schedule of a Cluster that is not settled.
    pub(super) fn forget_drift_check(&mut self) {
        self.drift_check_at = None;
    }

    /// Returns the requeue delay of the Cluster with this UID, which waits for a state that no watch shows.
    pub(super) fn wait(&mut self, uid: &str, now: Instant) -> Duration {
        let waited = now.duration_since(*self.waits_since.get_or_insert(now));
        wait(uid, waited)
    }

    /// Ends the wait of the Cluster.
    pub(super) fn waited(&mut self) {
        self.waits_since = None;
    }

    /// Returns the result of the last drift check.
    pub(super) fn last_drift_check(&self) -> LastDriftCheck {
        self.unseen_since
            .map_or(LastDriftCheck::Answered, |_| LastDriftCheck::Unanswered)
    }

    /// Notes an unreachable workload at `now`. Returns the time that has passed since the first such drift check.
    pub(super) fn unseen(&mut self, now: Instant) -> Duration {
        now.duration_since(*self.unseen_since.get_or_insert(now))
    }

    /// Notes that a drift check reached the workload of the settled Cluster.
    pub(super) fn seen(&mut self) {
        self.unseen_since = None;
    }

    /// Returns the delay to the next drift check of a settled Cluster that none has reached for the time `unseen`. The delay is short after
    /// the first failure. Later checks run at most twice in a period, regardless of requeues. Each one occupies a permit until it times out,
    /// and after an outage of many workloads other Clusters would wait for these permits.
    pub(super) fn requeue_drift_check(
        &mut self,
        uid: &str,
        unseen: Duration,
        period: Duration,
        now: Instant,
    ) -> Duration {
        let longest = (unseen / 10).clamp(period / 2, period).max(WITH_PROBLEM);
        let next = if unseen.is_zero() {
            WITH_PROBLEM
        } else {
            spread_back(uid, longest)
        };
        self.drift_check_made(next, now);
        next
    }

    /// Whether a Cluster with the inputs `planned_from` needs no work before its next drift check. A Cluster settled by its record ignores
    /// Packages edited in place until then.
    pub(super) fn rests(&mut self, planned_from: PlannedFrom, is_settled: bool) -> bool {
        if self.rest == Rest::Unknown && is_settled {
            self.rest = Rest::PlannedFrom(planned_from);
        }
        let Rest::PlannedFrom(before) = self.rest else {
            return false;
        };
        before.own == planned_from.own && (is_settled || before.catalogue == planned_from.catalogue)
    }

    /// Notes that the Cluster, whose values were read, needs no work before its next drift check.
    pub(super) fn rest(&mut self, planned_from: Option<PlannedFrom>) {
        self.rest = planned_from.map_or(Rest::Ended, Rest::PlannedFrom);
    }

    /// Ends the rest of the Cluster, because its values may have changed.
    pub fn end_rest(&mut self) {
        self.rest = Rest::Ended;
    }

    /// Whether `app` is stalled: its version is unchanged since its first observation, or since the last app resync.
    pub(super) fn app_resync_is_due(&mut self, app: &App, clock: Clock) -> bool {
        let version = app.resource_version().unwrap_or_default();
        let by_its_account = last_moved(app).is_some_and(|moved| {
            clock.now.duration_since(moved) >= SignedDuration::from_secs(STALLED.as_secs().cast_signed())
        });
        let first = || Sighting {
            version: String::new(),
            since: clock.instant,
            found: false,
        };
        let seen = self.apps.entry(app.name_any()).or_insert_with(first);
        if seen.version != version {
            *seen = Sighting { version, ..first() };
            return false;
        }
        let long = if by_its_account && !seen.found {
            STALLED_BEFORE
        } else {
            STALLED
        };
        let stalled = clock.instant.duration_since(seen.since) >= long;
        if stalled {
            (seen.since, seen.found) = (clock.instant, true);
        }
        stalled
    }

    /// Whether the last reconcile had a connection with watches.
    pub(super) fn is_hot(&self) -> bool {
        self.checks.connection != 0
    }

    /// Switches to `connection` and discards checks made over another one.
    pub(super) fn use_connection(&mut self, connection: u64) {
        self.unproven_since = None;
        if self.checks.connection != connection {
            self.checks = Checks {
                connection,
                ..Checks::default()
            };
        }
    }

    /// Whether unfilled stores still wait for their first lists and must not be used.
    pub(super) fn awaits_first_lists(&mut self, unfilled: bool, now: Instant) -> bool {
        if !unfilled {
            self.unfilled_since = None;
            return false;
        }
        let since = *self.unfilled_since.get_or_insert(now);
        now.duration_since(since) < OPENING
    }

    /// Whether `thing` is due for a check: this `content` was never checked, or not within `every`.
    pub(super) fn is_due(&self, thing: &str, content: &str, every: Duration, now: Instant) -> bool {
        self.age(thing, content, now).is_none_or(|age| age >= every)
    }

    /// Whether the last check of `thing` with this `content` is still valid without a response. For an object that a proof needs it never
    /// is.
    pub(super) fn is_believed(&self, thing: &str, content: &str, need: Need, now: Instant) -> bool {
        need.is_of_gate() && self.age(thing, content, now).is_some_and(|age| age < TRUSTED_FOR)
    }

    fn age(&self, thing: &str, content: &str, now: Instant) -> Option<Duration> {
        let (known, at) = self.checks.things.get(thing)?;
        (known == content).then(|| now.duration_since(*at))
    }

    /// Notes that `thing` had this `content` at `now`.
    pub(super) fn checked(&mut self, thing: &str, content: &str, now: Instant) {
        self.checks
            .things
            .insert(thing.to_owned(), (content.to_owned(), now));
    }

    /// Returns what is cached of the values Secret of a package.
    pub(super) fn cached_values(&self, package: &str) -> Option<&CachedValues> {
        self.values.get(package).map(Arc::as_ref)
    }

    /// Caches the values Secrets of the packages of a plan, and no others.
    pub(super) fn cache_values(&mut self, planned: &[Planned]) {
        let cached = planned.iter().filter_map(|planned| {
            let cached = planned.cached_values.clone()?;
            Some((planned.package_name.clone(), Arc::new(cached)))
        });
        self.values = cached.collect();
    }

    /// Notes a values Secret of the addons-manager that a PackageInstall no longer references.
    pub(super) fn leave(&mut self, secret: String) {
        self.left.insert(secret);
    }

    /// Returns the values Secrets of the addons-manager that are no longer referenced.
    pub(super) fn left(&self) -> impl Iterator<Item = &String> {
        self.left.iter()
    }

    /// Discards all observations of a Cluster that has settled.
    pub(super) fn forget_observations(&mut self) {
        self.connection = None;
        self.apps.clear();
        self.values.clear();
        self.checks = Checks::default();
    }

    /// Discards all checks and cached values Secrets, so that every object is read again.
    pub(super) fn forget_checks(&mut self) {
        self.values.clear();
        self.checks.things.clear();
    }
}

#[cfg(test)]
mod tests;
