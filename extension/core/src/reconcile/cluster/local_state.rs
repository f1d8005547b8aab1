//! What is remembered of a Cluster from one pass to the next, by this process alone. A process that begins without it opens no gate for
//! that reason; it only takes longer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use sluice_crds::{foreign::App, run::Hook};

use super::{Clock, WITH_PROBLEM, takeover::Removals};
use crate::{
    proof::last_moved,
    protocol::LastDriftCheck,
    reasons::Hold,
    schedule::{SyncPeriod, spread_back, wait},
    upgrade::record::Ungated,
};

/// How often what is needed is looked at. A little less than the time between two looks at a hot cluster.
const CHECK_INTERVAL: Duration = Duration::from_secs(9);

/// How long a thing is believed to be as it was when it was looked at last, while looks at it are not answered: as long as the proofs
/// of a silent workload are.
const TRUSTED_FOR: Duration = Duration::from_mins(1);

/// How long an App that is being deployed may show nothing. kapp writes a line at least every minute while it waits.
const STALLED: Duration = Duration::from_secs(90);

/// The same where the times in the App show as long a pause already: this process, which may be a new one, only has to see for itself
/// that nothing moves.
const STALLED_BEFORE: Duration = Duration::from_secs(10);

/// For so long stores of new connections that were not filled yet say nothing of what was proven. A workload without the kinds of
/// kapp-controller never fills them.
const OPENING: Duration = Duration::from_secs(10);

/// What is remembered of one Cluster.
#[derive(Debug, Clone, Default)]
pub struct LocalState {
    /// When its status was written last.
    pub written: Option<Instant>,
    /// When the settled Cluster is looked at next, once that is known.
    drift_check_at: Option<Instant>,
    /// Since when the Cluster has waited for what no watch shows, without a connection.
    waits_since: Option<Instant>,
    /// Since when looks at the settled Cluster have not reached its workload.
    unseen_since: Option<Instant>,
    /// Since when looks at the settled Cluster have found a package without its proof.
    unproven_since: Option<Instant>,
    apps: BTreeMap<String, Sighting>,
    looks: Checks,
    rest: Rest,
    /// Since when stores of the workload were not filled, over however many connections.
    unfilled_since: Option<Instant>,
    /// What refused writes of what no package waits for came to last.
    refusal: Option<Hold>,
    /// Gates that this process may have opened. Its watch may not have shown them yet.
    pub(super) opened: Vec<(Hook, String)>,
    /// The version that packages are proven for, and when the pass began that saw the last proof.
    pub(super) proven: Option<(String, Instant)>,
    /// The version that the control plane has taken, and when that was seen first, until it is recorded.
    pub(super) taken: Option<(String, Time)>,
    /// Versions without an open gate that were counted.
    pub(super) ungated: Vec<Ungated>,
    /// What was removed of what the addons-manager has left.
    pub(super) removals: Removals,
    /// Names of values Secrets of the addons-manager on the workload that PackageInstalls name no more.
    left: BTreeSet<String>,
}

/// Whether anything is to be done for a Cluster before its next look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Rest {
    /// This process has not planned it yet. Nothing, where the record says that it is settled: after a start all would be read at once.
    #[default]
    Unknown,
    /// Something may be.
    Awake,
    /// Nothing, while it is planned from this.
    PlannedFrom(PlannedFrom),
}

/// What the packages of a Cluster at rest are planned from, as hashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PlannedFrom {
    /// Its own ClusterBootstrap, and how far its upgrade is.
    pub(super) own: u64,
    /// The Packages that it names.
    pub(super) catalogue: u64,
}

/// In which version an App was seen last, and since when.
#[derive(Debug, Clone)]
struct Sighting {
    version: String,
    since: Instant,
    /// Whether it was found stalled in this version.
    found: bool,
}

/// What a thing is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The proof of a package.
    Proof,
    /// A gate that is open by such a proof.
    OpenGate,
    /// Neither.
    Nothing,
}

impl Need {
    /// How often what is needed so is looked at where the sync period is `period`.
    pub(super) fn check_interval(self, period: Duration) -> Duration {
        match self {
            Self::Proof | Self::OpenGate => CHECK_INTERVAL,
            Self::Nothing => period.max(CHECK_INTERVAL),
        }
    }
}

/// When each thing that a package needs was last made sure of, and with which content.
#[derive(Debug, Clone, Default)]
struct Checks {
    /// Number of the connection to the workload.
    connection: u64,
    things: BTreeMap<String, (String, Instant)>,
}

impl LocalState {
    /// Remembers what refused writes of what no package waits for came to. Says whether that is something else than before.
    pub(super) fn is_new_refusal(&mut self, refusal: Option<&Hold>) -> bool {
        let is_new = self.refusal.as_ref() != refusal;
        if is_new {
            self.refusal = refusal.cloned();
        }
        is_new
    }

    /// How long it is until the settled Cluster with this UID is looked at, which is once in each `period`; `None` once its time has
    /// come. Its time follows from the UID, so that Clusters are looked at one after the other.
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

    /// A look was made `now`, and the next one is made after `next`.
    pub(super) fn drift_check_made(&mut self, next: Duration, now: Instant) {
        self.drift_check_at = Some(now + next);
    }

    /// When the settled Cluster with this UID is looked at next, after a look `now` that has found all its packages proven, or not: the
    /// longer they are not, the later. Not all whose packages fail for the same reason are looked at at once.
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

    /// The Cluster is not settled.
    pub(super) fn forget_drift_check(&mut self) {
        self.drift_check_at = None;
    }

    /// When the Cluster with this UID is looked at again, which waits for what no watch shows.
    pub(super) fn wait(&mut self, uid: &str, now: Instant) -> Duration {
        let waited = now.duration_since(*self.waits_since.get_or_insert(now));
        wait(uid, waited)
    }

    /// The Cluster waits no more.
    pub(super) fn waited(&mut self) {
        self.waits_since = None;
    }

    /// What the last look came to.
    pub(super) fn last_drift_check(&self) -> LastDriftCheck {
        self.unseen_since
            .map_or(LastDriftCheck::Answered, |_| LastDriftCheck::Unanswered)
    }

    /// How long looks at the settled Cluster have not reached its workload, the one of `now` included.
    pub(super) fn unseen(&mut self, now: Instant) -> Duration {
        now.duration_since(*self.unseen_since.get_or_insert(now))
    }

    /// The workload of the settled Cluster was reached.
    pub(super) fn seen(&mut self) {
        self.unseen_since = None;
    }

    /// When a settled Cluster is looked at again whose workload looks have not reached for so long: soon after the first of them, then at
    /// most twice in a period, whatever wakes it. Each takes a slot for as long as an answer is waited for, and after an outage of many
    /// workloads other Clusters would wait for these.
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

    /// Whether nothing is to be done before its next look for a Cluster that is `planned_from` this, and is settled by its record or
    /// not. A settled one leaves Packages that were edited in place as they were until then.
    pub(super) fn rests(&mut self, planned_from: PlannedFrom, is_settled: bool) -> bool {
        if self.rest == Rest::Unknown && is_settled {
            self.rest = Rest::PlannedFrom(planned_from);
        }
        let Rest::PlannedFrom(before) = self.rest else {
            return false;
        };
        before.own == planned_from.own && (is_settled || before.catalogue == planned_from.catalogue)
    }

    /// Nothing is to be done before its next look for the Cluster, whose values were read.
    pub(super) fn rest(&mut self, planned_from: Option<PlannedFrom>) {
        self.rest = planned_from.map_or(Rest::Awake, Rest::PlannedFrom);
    }

    /// Values may be other ones.
    pub fn wake(&mut self) {
        self.rest = Rest::Awake;
    }

    /// Whether `app` has had this version for long, since it was first seen or since this was last said.
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

    /// Whether the last pass had a connection with watches.
    pub(super) fn is_hot(&self) -> bool {
        self.looks.connection != 0
    }

    /// What was made sure of over another connection counts for nothing.
    pub(super) fn use_connection(&mut self, connection: u64) {
        self.unproven_since = None;
        if self.looks.connection != connection {
            self.looks = Checks {
                connection,
                ..Checks::default()
            };
        }
    }

    /// Whether stores that are still being filled are not believed yet.
    pub(super) fn awaits_first_lists(&mut self, unfilled: bool, now: Instant) -> bool {
        if !unfilled {
            self.unfilled_since = None;
            return false;
        }
        let since = *self.unfilled_since.get_or_insert(now);
        now.duration_since(since) < OPENING
    }

    /// Whether `thing` has to be looked at: it never was with this `content`, or not for as long as `every` says.
    pub(super) fn is_due(&self, thing: &str, content: &str, every: Duration, now: Instant) -> bool {
        self.age(thing, content, now).is_none_or(|age| age >= every)
    }

    /// Whether `thing` is believed to have this `content` although it cannot be looked at. What is still to be proven is not.
    pub(super) fn is_believed(&self, thing: &str, content: &str, need: Need, now: Instant) -> bool {
        need == Need::OpenGate && self.age(thing, content, now).is_some_and(|age| age < TRUSTED_FOR)
    }

    fn age(&self, thing: &str, content: &str, now: Instant) -> Option<Duration> {
        let (known, at) = self.looks.things.get(thing)?;
        (known == content).then(|| now.duration_since(*at))
    }

    /// `thing` had this `content` at `now`.
    pub(super) fn checked(&mut self, thing: &str, content: &str, now: Instant) {
        self.looks
            .things
            .insert(thing.to_owned(), (content.to_owned(), now));
    }

    /// A PackageInstall names this values Secret of the addons-manager no more.
    pub(super) fn leave(&mut self, secret: String) {
        self.left.insert(secret);
    }

    /// The values Secrets of the addons-manager that are named no more.
    pub(super) fn left(&self) -> impl Iterator<Item = &String> {
        self.left.iter()
    }

    /// Nothing is looked at any more: the cluster is settled.
    pub(super) fn forget_observations(&mut self) {
        self.apps.clear();
        self.looks = Checks::default();
    }

    /// Everything has to be looked at again.
    pub(super) fn forget_checks(&mut self) {
        self.looks.things.clear();
    }
}

#[cfg(test)]
mod tests;
