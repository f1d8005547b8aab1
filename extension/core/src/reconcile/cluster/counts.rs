//! Counters of an upgrade: release lag, and versions that no gate released.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::run::{Gate, UpgradeRecord};

use super::{
    Context,
    effects::{Count, Effects},
};
use crate::events::Event;
use crate::reasons::GateReason;
use crate::upgrade::{
    course::release_lag,
    record::{Observed, ungated},
};

/// Updates the counters from `record`, which follows `previous`, and from the observed state.
pub(super) fn count(
    context: &Context<'_>,
    effects: &mut Effects,
    previous: Option<&UpgradeRecord>,
    record: &UpgradeRecord,
    seen: &Observed<'_>,
) {
    // A gate that an outdated cache has closed may have been open for the version.
    let is_withheld = |gate: &Gate| gate.reason == GateReason::CacheOutdated.as_str();
    let found = if previous.is_some_and(|previous| previous.gates.iter().any(is_withheld)) {
        Vec::new()
    } else {
        ungated(previous, &effects.local.opened, seen)
    };
    // Each version is counted once, because its gate may stay closed over many reconciles.
    let counted_before = &mut effects.local.ungated;
    counted_before.retain(|counted| record.outcome.is_none() || found.contains(counted));
    for ungated in found {
        if !counted_before.contains(&ungated) {
            counted_before.push(ungated.clone());
            let event = Event::Warned("VersionUngated", ungated.to_string());
            effects.events.push(event);
            effects.counts.push(Count::Ungated(ungated));
        }
    }
    released(context, effects, previous, record);
}

/// Dates the release of `record` to the first reconcile that observed it. Its write may be delayed, because it changes no gate.
pub(super) fn date_release(
    effects: &mut Effects,
    previous: Option<&UpgradeRecord>,
    record: &mut UpgradeRecord,
) {
    let (Some(released), Some(hop)) = (&mut record.released_at, &record.hop) else {
        effects.local.taken = None;
        return;
    };
    let recorded = previous.filter(|previous| previous.hop.as_ref() == Some(hop));
    if recorded.is_some_and(|previous| previous.released_at.is_some()) {
        return;
    }
    let seen = effects.local.taken.take().filter(|(version, _)| version == hop);
    let (_, first): &(String, Time) = effects
        .local
        .taken
        .insert(seen.unwrap_or_else(|| (hop.clone(), released.clone())));
    released.clone_from(first);
}

/// Counts the release lag.
fn released(
    context: &Context<'_>,
    effects: &mut Effects,
    previous: Option<&UpgradeRecord>,
    record: &UpgradeRecord,
) {
    let lag = release_lag(
        &mut effects.local.proven,
        previous.map(Into::into),
        record.into(),
        context.began.instant,
    );
    effects.counts.extend(lag.map(Count::Released));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_crds::run::Hook;

    use super::*;
    use crate::reconcile::cluster::{
        LocalState,
        tests::{clock, facts},
    };
    use jiff::Timestamp;

    const HOP: &str = "v1.36.3";

    /// Returns a record with an open or closed gate, and optionally the second at which the control plane reached the version.
    fn record(open: bool, released: Option<i64>) -> UpgradeRecord {
        let gate = Gate {
            hook: Hook::BeforeControlPlaneUpgrade,
            version: HOP.to_owned(),
            open,
            reason: String::new(),
            message: String::new(),
            overridden_by: None,
        };
        UpgradeRecord {
            hop: Some(HOP.to_owned()),
            gates: vec![gate],
            released_at: released.map(|second| Time(Timestamp::from_second(second).unwrap())),
            ..UpgradeRecord::default()
        }
    }

    #[test]
    fn a_release_is_dated_by_the_reconcile_that_observed_it_first() {
        let mut effects = Effects::of(&LocalState::default());
        let open = record(true, None);
        let dated = |effects: &mut Effects, previous: &UpgradeRecord, second| {
            let mut next = record(true, Some(second));
            date_release(effects, Some(previous), &mut next);
            next.released_at.unwrap().0.as_second()
        };
        assert_eq!(dated(&mut effects, &open, 10), 10);
        assert_eq!(dated(&mut effects, &open, 13), 10, "not written yet");
        assert_eq!(dated(&mut effects, &record(true, Some(10)), 10), 10);
        date_release(&mut effects, Some(&open), &mut record(true, None));
        assert_eq!(dated(&mut effects, &open, 20), 20, "after a withdrawal");
    }

    #[test]
    fn a_release_counts_once_from_the_reconcile_that_observed_the_last_proof() {
        let (facts, mut local, began) = (facts(), LocalState::default(), clock());
        let mut reconcile = |seconds, previous: &UpgradeRecord, next: &UpgradeRecord| {
            let mut clock = began;
            clock.instant += Duration::from_secs(seconds);
            let context = Context::new(&facts, &local, clock);
            let mut effects = Effects::of(&local);
            released(&context, &mut effects, Some(previous), next);
            local = effects.local;
            effects.counts
        };
        let (closed, open) = (record(false, None), record(true, None));
        let taken = record(true, Some(1));
        assert_eq!(reconcile(0, &closed, &closed), []);
        assert_eq!(reconcile(1, &closed, &open), []);
        // The watch does not show the write yet.
        assert_eq!(reconcile(2, &closed, &open), []);
        assert_eq!(reconcile(3, &open, &open), []);
        assert_eq!(
            reconcile(4, &open, &taken),
            [Count::Released(Duration::from_secs(3))]
        );
        assert_eq!(reconcile(5, &open, &taken), []);
        // The gate was closed in between, and the next leader has not observed a proof.
        assert_eq!(reconcile(6, &closed, &open), []);
        assert_eq!(reconcile(7, &open, &closed), []);
        assert_eq!(reconcile(8, &open, &taken), []);
    }
}
