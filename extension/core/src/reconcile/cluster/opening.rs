//! Detection of records that release the control plane or workers by an unconfirmed proof.

use sluice_crds::run::{Gate, Hook, PackageRecord, PackageState, UpgradeRecord};

use crate::proof::Judgement;
use crate::reasons::{GateReason, Hold};
use crate::upgrade::course::{self, withhold};
use crate::upgrade::overrides::{Steps, are_workers_at, is_spent, is_used};
use crate::upgrade::record::opens_swap;

use super::local_state::Need;
use super::packages::Packages;
pub(super) use crate::upgrade::course::{is_before_control_plane, releases_step};

/// Whether a gate opens that releases the control plane or workers.
pub(super) fn opens_a_gate(previous: Option<&UpgradeRecord>, next: &UpgradeRecord) -> bool {
    course::opens_step(previous.map(Into::into), &next.gates)
}

/// Whether any gate opens. That of a deletion rests on the uninstallation of packages alone.
pub(super) fn opens_any_gate(previous: Option<&UpgradeRecord>, next: &UpgradeRecord) -> bool {
    let mut open = next.gates.iter().filter(|gate| gate.open);
    open.any(|gate| gate.hook != Hook::BeforeClusterDelete && !was_open(previous, gate))
}

/// Returns the hold of a record in which a proof without complete evidence opens a gate. Versions that the control plane has taken need
/// no proof.
pub(super) fn unconfirmed(
    previous: Option<&UpgradeRecord>,
    next: &UpgradeRecord,
    packages: &Packages,
    steps: Steps<'_>,
) -> Option<Hold> {
    let needs_proof = |gate: &&Gate| {
        let is_ahead = !steps.progress.taken && Some(&gate.version) == next.hop.as_ref();
        is_ahead || !is_before_control_plane(gate.hook)
    };
    let mut opening = opening(previous, next);
    opening.retain(needs_proof);
    if opening.is_empty() && !opens_swap(next) {
        return None;
    }
    let is_needed = |judged: &&Judgement| is_needed(&opening, next, packages, &judged.record.name);
    let mut judged = packages.judged.iter();
    let judged = judged.find(|judged| judged.ready() && !judged.confirmed && is_needed(judged))?;
    let name = &judged.record.name;
    let message = format!("waiting for the API servers to confirm the proof of package {name}");
    Some(Hold::new(GateReason::PackagesUnknown, message))
}

/// Returns the gates that open and release the control plane or workers.
fn opening<'a>(previous: Option<&UpgradeRecord>, next: &'a UpgradeRecord) -> Vec<&'a Gate> {
    let open = next.gates.iter().filter(|gate| releases_step(gate));
    open.filter(|gate| !was_open(previous, gate)).collect()
}

/// Whether one of the opening gates, or the swap, waits for the proof of a package.
fn is_needed(opening: &[&Gate], next: &UpgradeRecord, packages: &Packages, package: &str) -> bool {
    let of_gates = opening.iter().map(|gate| gate.overridden_by.as_ref());
    let of_swap = next.swap.iter().filter(|_| opens_swap(next));
    let mut by = of_gates.chain(of_swap.map(|swap| swap.overridden_by.as_ref()));
    by.any(|by| !packages.overrides.passes(by, package))
}

/// Returns the packages that no opening gate waits for, because overrides pass them; none if no gate opens.
pub(super) fn unneeded(
    previous: Option<&UpgradeRecord>,
    next: &UpgradeRecord,
    packages: &Packages,
) -> Vec<String> {
    let opening = opening(previous, next);
    if opening.is_empty() && !opens_swap(next) {
        return Vec::new();
    }
    let names = packages.judged.iter().map(|judged| &judged.record.name);
    let passed = names.filter(|name| !is_needed(&opening, next, packages, name));
    passed.cloned().collect()
}

/// Returns a record whose gates do not open, nor stay open because of the version of the control plane, because the cache is outdated or
/// a proof is unconfirmed. No upgrade ends on such evidence: the gates of its record would never change again.
pub(super) fn withheld(
    previous: Option<&UpgradeRecord>,
    record: UpgradeRecord,
    hold: &Hold,
) -> UpgradeRecord {
    let ends = record.outcome.is_some() && previous.is_none_or(|previous| previous.outcome.is_none());
    let mut record = match previous {
        Some(previous) if ends => previous.clone(),
        _ if ends => UpgradeRecord {
            outcome: None,
            completed_at: None,
            ..record
        },
        _ => record,
    };
    if opens_swap(&record)
        && let Some(swap) = &mut record.swap
    {
        swap.open = false;
        swap.reason = hold.reason.to_string();
        swap.message.clone_from(&hold.message);
        swap.overridden_by = None;
    }
    let mut spent = record.spent_overrides.take();
    let mut used = spent.clone().unwrap_or_default();
    used.retain(|uid| is_used(&record, uid));
    withhold(&mut record.gates, previous.map(Into::into), hold);
    // The step of a gate that did not open was not made by its override.
    let was_spent = |uid: &str| previous.is_some_and(|previous| is_spent(previous, uid));
    if let Some(spent) = &mut spent {
        spent.retain(|uid| !used.contains(uid) || is_used(&record, uid) || was_spent(uid));
    }
    record.spent_overrides = spent;
    record
}

/// Returns the purpose of the objects that a package with a recorded proof is deployed from.
pub(super) fn need_of_proven(record: Option<&UpgradeRecord>, steps: Steps<'_>) -> Need {
    match record.filter(|record| record.outcome.is_none()) {
        None => Need::Nothing,
        Some(record) if has_gate_to_pass(record, steps) => Need::OpenGate,
        Some(_) => Need::NextGate,
    }
}

/// Whether an open gate still releases a step. Records keep the open gates of the version that an upgrade has left.
fn has_gate_to_pass(record: &UpgradeRecord, steps: Steps<'_>) -> bool {
    let mut open = record.gates.iter().filter(|gate| gate.open);
    open.any(|gate| !is_passed(gate, steps))
}

/// Whether Cluster API has made the step that a gate releases.
fn is_passed(gate: &Gate, steps: Steps<'_>) -> bool {
    let version = &gate.version;
    steps.has_taken(version) && (is_before_control_plane(gate.hook) || are_workers_at(steps.workers, version))
}

fn was_open(previous: Option<&UpgradeRecord>, gate: &Gate) -> bool {
    course::was_open(previous.map(Into::into), gate)
}

/// Whether a gate or the swap opens, or a gate stays open, by evidence that reads have to confirm.
pub(super) fn needs_confirmation(
    previous: Option<&UpgradeRecord>,
    next: &UpgradeRecord,
    steps: Steps<'_>,
) -> bool {
    opens_swap(next) || opens_a_gate(previous, next) || has_new_proof(previous, next, steps)
}

/// Whether a gate stays open by a proof that the previous record lacks: of a package unproven before, of another App, or of another
/// generation of the App. The inputs of such an App are not confirmed yet.
///
/// During an upgrade, a gate whose step is made holds nothing; a later gate, or the swap, confirms the proof as it opens. Without workers,
/// the gates of workers still release the next MachineDeployment or MachinePool.
pub(super) fn has_new_proof(
    previous: Option<&UpgradeRecord>,
    next: &UpgradeRecord,
    steps: Steps<'_>,
) -> bool {
    let mut open = next.gates.iter().filter(|gate| releases_step(gate));
    let have_workers_passed = next.outcome.is_none() && !steps.workers.is_empty();
    let holds_nothing =
        |gate: &Gate| is_passed(gate, steps) && (is_before_control_plane(gate.hook) || have_workers_passed);
    if !open.any(|gate| Some(&gate.version) == next.hop.as_ref() && !holds_nothing(gate)) {
        return false;
    }
    let proven = |package: &&PackageRecord| package.state == PackageState::Ready;
    let before: Vec<_> = previous
        .into_iter()
        .flat_map(|record| &record.packages)
        .filter(proven)
        .collect();
    next.packages.iter().filter(proven).any(|package| {
        !before.iter().any(|before| {
            before.name == package.name
                && (&before.app_uid, before.app_generation) == (&package.app_uid, package.app_generation)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use sluice_crds::{
        lifecycle::OverriddenGate,
        run::{Gate, Outcome, Phase, Swap},
    };

    use super::*;
    use crate::{
        reconcile::cluster::{
            Context, Facts, LocalState, overrides,
            tests::{clock, facts, to_v36},
        },
        upgrade::{
            hop::WorkerFacts,
            overrides::tests::{by, object},
        },
    };

    const V35: &str = "v1.35.4";
    const V36: &str = "v1.36.3";

    fn record(hook: Hook, open: bool) -> UpgradeRecord {
        let gate = Gate {
            hook,
            version: V36.to_owned(),
            open,
            reason: String::new(),
            message: String::new(),
            overridden_by: None,
        };
        UpgradeRecord {
            gates: vec![gate],
            ..UpgradeRecord::default()
        }
    }

    /// Returns workers at these versions, or without an empty one.
    fn workers_at(versions: &[&str]) -> Vec<WorkerFacts> {
        let workers = versions.iter().map(|version| WorkerFacts {
            spec_version: Some((*version).to_owned()).filter(|version| !version.is_empty()),
            ..WorkerFacts::default()
        });
        workers.collect()
    }

    #[rstest]
    #[case(Hook::BeforeClusterUpgrade, true)]
    #[case(Hook::BeforeControlPlaneUpgrade, true)]
    #[case(Hook::AfterControlPlaneUpgrade, true)]
    #[case(Hook::BeforeWorkersUpgrade, true)]
    #[case(Hook::AfterWorkersUpgrade, false)]
    #[case(Hook::AfterClusterUpgrade, false)]
    fn a_gate_that_releases_machines_is_confirmed_as_it_opens(#[case] hook: Hook, #[case] confirmed: bool) {
        let (closed, open) = (record(hook, false), record(hook, true));
        assert_eq!(opens_a_gate(None, &open), confirmed);
        assert_eq!(opens_a_gate(Some(&closed), &open), confirmed);
        assert!(!opens_a_gate(Some(&open), &open), "it was open");
        assert!(!opens_a_gate(Some(&open), &closed), "it closes");
    }

    /// Evidence of a watch or of a record opens no gate, whatever path leads to it.
    #[rstest]
    #[case::unconfirmed(Hook::BeforeControlPlaneUpgrade, false, false, true)]
    #[case::confirmed(Hook::BeforeControlPlaneUpgrade, true, false, false)]
    #[case::of_a_taken_version(Hook::BeforeControlPlaneUpgrade, false, true, false)]
    #[case::of_workers(Hook::BeforeWorkersUpgrade, false, true, true)]
    #[case::that_releases_nothing(Hook::AfterClusterUpgrade, false, false, false)]
    fn a_gate_opens_by_confirmed_proofs_only(
        #[case] hook: Hook,
        #[case] confirmed: bool,
        #[case] taken: bool,
        #[case] held: bool,
    ) {
        let open = UpgradeRecord {
            hop: Some("v1.36.3".to_owned()),
            ..record(hook, true)
        };
        let judged = Judgement {
            record: proven_at(2),
            phase: Phase::BeforeControlPlane,
            settled: true,
            kept: false,
            confirmed,
        };
        let mut packages = Packages::of(Vec::new(), None);
        packages.judged = vec![judged];
        let closed = record(hook, false);
        let progress = &to_v36(taken);
        let steps = Steps {
            progress,
            workers: &[],
        };
        let hold = |previous| unconfirmed(previous, &open, &packages, steps);
        assert_eq!(hold(None).is_some(), held);
        assert_eq!(hold(Some(&closed)).is_some(), held);
        assert_eq!(hold(Some(&open)), None, "it was open");
        packages.judged.clear();
        let opened = unconfirmed(None, &open, &packages, steps);
        assert_eq!(opened, None, "no proof opens it");
    }

    /// Altered packages are ignored only if no opening gate rests on their proof.
    #[rstest]
    #[case::the_only_gate(|_: &mut UpgradeRecord| {}, true)]
    #[case::by_another_override(|next: &mut UpgradeRecord| next.gates[0].overridden_by = Some(by("another")), false)]
    #[case::by_proofs(|next: &mut UpgradeRecord| next.gates[0].overridden_by = None, false)]
    #[case::beside_a_gate_by_proofs(
        |next: &mut UpgradeRecord| next.gates.extend(record(Hook::BeforeClusterUpgrade, true).gates),
        false
    )]
    #[case::beside_a_gate_that_releases_nothing(
        |next: &mut UpgradeRecord| next.gates.extend(record(Hook::AfterWorkersUpgrade, true).gates),
        true
    )]
    #[case::beside_a_swap_by_proofs(
        |next: &mut UpgradeRecord| next.swap = Some(Swap { open: true, ..Swap::default() }),
        false
    )]
    #[case::nothing_opens(|next: &mut UpgradeRecord| next.gates[0].open = false, false)]
    fn packages_that_overrides_pass_are_unneeded(#[case] edit: fn(&mut UpgradeRecord), #[case] passed: bool) {
        let skip = object(
            "skip",
            OverriddenGate::ControlPlane,
            ("v1.36.3", "36-1"),
            &["metrics"],
        );
        let facts = Facts {
            overrides: Some(vec![Arc::new(skip)]),
            ..facts()
        };
        let local = LocalState::default();
        let mut packages = Packages::of(Vec::new(), None);
        packages.overrides = overrides::Known::of(&Context::new(&facts, &local, clock()));
        packages.judged = ["antrea", "metrics"]
            .map(|name| Judgement {
                record: PackageRecord {
                    name: name.to_owned(),
                    ..proven_at(2)
                },
                phase: Phase::BeforeControlPlane,
                settled: true,
                kept: false,
                confirmed: false,
            })
            .into();
        let mut next = record(Hook::BeforeControlPlaneUpgrade, true);
        next.gates[0].overridden_by = Some(by("skip"));
        edit(&mut next);
        let expected = if passed { vec!["metrics"] } else { Vec::new() };
        assert_eq!(unneeded(None, &next, &packages), expected);
        assert!(unneeded(Some(&next), &next, &packages).is_empty(), "it was open");
    }

    /// A gate is open for a step until Cluster API has made it.
    #[rstest]
    #[case::not_taken(Hook::BeforeControlPlaneUpgrade, false, &[V35], true)]
    #[case::taken(Hook::BeforeControlPlaneUpgrade, true, &[V35], false)]
    #[case::workers_left(Hook::BeforeWorkersUpgrade, true, &[V36, V35], true)]
    #[case::workers_there(Hook::BeforeWorkersUpgrade, true, &[V36, "v1.36.4"], false)]
    #[case::no_workers(Hook::BeforeWorkersUpgrade, true, &[], false)]
    #[case::workers_without_a_version(Hook::BeforeWorkersUpgrade, true, &[""], true)]
    #[case::workers_ahead(Hook::BeforeWorkersUpgrade, false, &[V36], true)]
    fn an_open_gate_releases_a_step_until_it_is_made(
        #[case] hook: Hook,
        #[case] taken: bool,
        #[case] workers: &[&str],
        #[case] expected: bool,
    ) {
        let (progress, workers) = (to_v36(taken), workers_at(workers));
        let (progress, workers) = (&progress, &*workers);
        let need = |record: &UpgradeRecord| need_of_proven(Some(record), Steps { progress, workers });
        let of_gate = |is_to_pass| {
            if is_to_pass {
                Need::OpenGate
            } else {
                Need::NextGate
            }
        };
        let mut open = record(hook, true);
        assert_eq!(need(&open), of_gate(expected));
        assert_eq!(need(&record(hook, false)), Need::NextGate, "it is closed");
        let ended = UpgradeRecord {
            outcome: Some(Outcome::Completed),
            ..open.clone()
        };
        assert_eq!(need(&ended), Need::Nothing);
        let are_workers_there = workers.iter().all(|worker| worker.spec_version.is_some());
        open.gates[0].version = V35.to_owned();
        let left = of_gate(!are_workers_there && !is_before_control_plane(hook));
        assert_eq!(need(&open), left, "of the version that the upgrade leaves");
    }

    fn proven_at(generation: i64) -> PackageRecord {
        PackageRecord {
            name: "antrea".to_owned(),
            version: "1.9.0".to_owned(),
            values_digest: "digest".to_owned(),
            state: PackageState::Ready,
            reason: String::new(),
            message: String::new(),
            app_uid: Some("app".to_owned()),
            app_generation: Some(generation),
            proven_readiness: None,
            first_seen_run: None,
            repairs: 0,
        }
    }

    #[rstest]
    #[case::the_same_proof(Some(proven_at(2)), false)]
    #[case::another_generation(Some(proven_at(1)), true)]
    #[case::one_that_was_not_proven(Some(PackageRecord { state: PackageState::Reconciling, ..proven_at(2) }), true)]
    #[case::one_that_was_not_there(None, true)]
    fn a_gate_that_stays_open_is_confirmed_for_a_new_proof(
        #[case] before: Option<PackageRecord>,
        #[case] confirmed: bool,
        #[values(
            (Hook::BeforeControlPlaneUpgrade, false, &[V35][..], true),
            (Hook::BeforeControlPlaneUpgrade, true, &[V35][..], false),
            (Hook::BeforeWorkersUpgrade, true, &[V35][..], true),
            (Hook::BeforeWorkersUpgrade, true, &[V36, V35][..], true),
            (Hook::BeforeWorkersUpgrade, true, &[V36, ""][..], true),
            (Hook::BeforeWorkersUpgrade, true, &[V36][..], false),
            (Hook::BeforeWorkersUpgrade, true, &[][..], true)
        )]
        (hook, taken, workers, holds): (Hook, bool, &[&str], bool),
    ) {
        let open = UpgradeRecord {
            hop: Some("v1.36.3".to_owned()),
            ..record(hook, true)
        };
        let previous = UpgradeRecord {
            packages: before.into_iter().collect(),
            ..open.clone()
        };
        let next = UpgradeRecord {
            packages: vec![proven_at(2)],
            ..open
        };
        let (progress, workers) = (&to_v36(taken), &*workers_at(workers));
        let steps = Steps { progress, workers };
        let is_new = has_new_proof(Some(&previous), &next, steps);
        assert_eq!(is_new, confirmed && holds);
        let ended = UpgradeRecord {
            outcome: Some(Outcome::Completed),
            ..next
        };
        let is_new = has_new_proof(Some(&previous), &ended, steps);
        let is_of_workers = !is_before_control_plane(hook);
        assert_eq!(
            is_new,
            confirmed && (holds || is_of_workers),
            "the upgrade has ended"
        );
    }
}
