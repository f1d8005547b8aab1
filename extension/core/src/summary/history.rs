//! How the last upgrades went, in about a kibibyte.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::run::{KEPT_UPGRADES, Outcome, PastUpgrade, UpgradeRecord};

use super::Wait;
use crate::text::one_line;

/// The longest version, in characters.
const LONGEST_VERSION: usize = 32;

/// `history` with what `record` says of its upgrade. `ended` is a wait that is over, and since when it lasted.
///
/// The first installation is no upgrade. What was said of an upgrade that is closed stays.
pub(super) fn with(
    history: &[PastUpgrade],
    record: &UpgradeRecord,
    ended: Option<(&Wait, &Time)>,
    now: Timestamp,
) -> Vec<PastUpgrade> {
    let mut history = history.to_vec();
    let (Some(from), Some(began)) = (&record.from, &record.started_at) else {
        return history;
    };
    // An API server keeps whole seconds.
    let is_its = |past: &PastUpgrade| past.began.0.as_second() == began.0.as_second();
    let begins = !history.first().is_some_and(is_its);
    if begins {
        history.insert(0, new(from, record, began));
        history.truncate(KEPT_UPGRADES);
    }
    let upgrade = &mut history[0];
    if upgrade.ended.is_some() && record.outcome.is_some() {
        return history;
    }
    // A target that was moved back is not what the upgrade was to.
    if record.outcome != Some(Outcome::Cancelled) {
        upgrade.to = one_line(&record.to, LONGEST_VERSION);
    }
    upgrade.released = upgrade.released.take().or_else(|| record.released_at.clone());
    // What was waited for when it began is no wait of this upgrade, and what was waited for before it counts from its beginning.
    let ended = ended.filter(|(wait, _)| !begins && !wait.on_cluster_api);
    if let Some((wait, since)) = ended {
        let seconds = now.duration_since(since.0.max(began.0)).as_secs().max(0);
        if upgrade
            .longest_wait_seconds
            .is_none_or(|longest| longest < seconds)
        {
            upgrade.longest_wait = Some(wait.subject.clone());
            upgrade.longest_wait_seconds = Some(seconds);
        }
    }
    upgrade.ended.clone_from(&record.completed_at);
    upgrade.outcome = record.outcome;
    history
}

fn new(from: &str, record: &UpgradeRecord, began: &Time) -> PastUpgrade {
    PastUpgrade {
        from: one_line(from, LONGEST_VERSION),
        to: one_line(&record.to, LONGEST_VERSION),
        began: began.clone(),
        released: None,
        ended: None,
        outcome: None,
        longest_wait: None,
        longest_wait_seconds: None,
    }
}
