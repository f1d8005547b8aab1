//! History of the last upgrades, in about a kibibyte.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::{
    lifecycle::OverriddenGate,
    run::{
        GateOverride, KEPT_UPGRADES, MAX_USED_OVERRIDES, Outcome, PastUpgrade, UpgradeRecord, UsedOverride,
    },
};

use crate::{explanation::Explanation, text::one_line, upgrade::overrides::newly_used};

/// Longest version, in characters.
const LONGEST_VERSION: usize = 32;

/// Longest name of a release, in characters; that of a label.
const LONGEST_RELEASE: usize = 63;

/// Longest name of an override, in characters. The entry has its UID as well.
const LONGEST_NAME: usize = 63;

/// Longest user of an override, in characters. Names of ServiceAccounts begin with that of their namespace.
const LONGEST_USER: usize = 253;

/// Longest reason of an override, in characters. The record has the whole text while the gate is open by it.
const LONGEST_REASON: usize = 128;

/// Updates `history` with the upgrade of `record`, which follows `before`. `ended` is an ended wait.
///
/// The first installation is no upgrade. The entry of a closed upgrade does not change.
pub(super) fn with(
    history: &[PastUpgrade],
    (before, record): (Option<&UpgradeRecord>, &UpgradeRecord),
    ended: Option<&Explanation<'_>>,
    now: Timestamp,
) -> Vec<PastUpgrade> {
    let mut history = history.to_vec();
    let (Some(from), Some(began)) = (&record.from, &record.started_at) else {
        return history;
    };
    // The API server stores whole seconds.
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
    // After a cancellation the target of the record is not the target of the upgrade.
    if record.outcome != Some(Outcome::Cancelled) && record.rollback.is_none() {
        upgrade.to = one_line(&record.to, LONGEST_VERSION);
    }
    if let Some(swap) = &record.swap {
        let release = |name: &str| Some(one_line(name, LONGEST_RELEASE)).filter(|name| !name.is_empty());
        (upgrade.from_release, upgrade.to_release) = (release(&swap.from), release(&swap.to));
    }
    // During a rollback the control plane has had the version of the record all along.
    let released = record.released_at.clone().filter(|_| record.rollback.is_none());
    upgrade.released = upgrade.released.take().or(released);
    // A wait that ended at the beginning is not of this upgrade, and an earlier wait counts from the beginning.
    let ended = ended.filter(|wait| !begins && !wait.is_on_cluster_api());
    if let Some((wait, since)) = ended.and_then(|wait| wait.since.as_ref().map(|since| (wait, since))) {
        let seconds = now.duration_since(since.0.max(began.0)).as_secs().max(0);
        if upgrade
            .longest_wait_seconds
            .is_none_or(|longest| longest < seconds)
        {
            upgrade.longest_wait = Some(wait.subject());
            upgrade.longest_wait_seconds = Some(seconds);
        }
    }
    for (gate, version, by) in newly_used(before, record) {
        add_used(&mut upgrade.overrides, gate, version, by);
    }
    upgrade.ended.clone_from(&record.completed_at);
    upgrade.outcome = record.outcome;
    history
}

fn new(from: &str, record: &UpgradeRecord, began: &Time) -> PastUpgrade {
    PastUpgrade {
        from: one_line(from, LONGEST_VERSION),
        to: one_line(&record.to, LONGEST_VERSION),
        from_release: None,
        to_release: None,
        began: began.clone(),
        released: None,
        ended: None,
        outcome: None,
        longest_wait: None,
        longest_wait_seconds: None,
        overrides: Vec::new(),
    }
}

/// Adds an override, unless it has opened another hook of the same gate.
fn add_used(overrides: &mut Vec<UsedOverride>, gate: OverriddenGate, version: &str, by: &GateOverride) {
    let version = one_line(version, LONGEST_VERSION);
    let is_it = |used: &UsedOverride| used.uid == by.uid && used.gate == gate && used.version == version;
    if overrides.len() < MAX_USED_OVERRIDES && !overrides.iter().any(is_it) {
        overrides.push(UsedOverride {
            name: one_line(&by.name, LONGEST_NAME),
            uid: by.uid.clone(),
            gate,
            version,
            user: one_line(&by.user, LONGEST_USER),
            reason: one_line(&by.reason, LONGEST_REASON),
        });
    }
}
