//! UpgradeGates that apply to a Cluster, and the reasons for which one of them cannot be judged.

use std::collections::{BTreeMap, HashSet};

use kube::{ResourceExt as _, core::ObjectMeta};
use sluice_crds::{
    lifecycle::{self, Before, GateMode, GateRecord, SelectedGate, UpgradeGate},
    run::{Outcome, Phase},
};

use super::{
    MAX_GATES,
    compiled::{CompiledGate, compile},
    facts::{CachedGate, GateFacts},
    selection::selects,
};
use crate::{
    decode::Undecodable,
    digest::{DIGITS, hash},
    reasons::{GateReason, Hold},
    version::same,
};

/// Maximum number of checks that are judged for one Cluster.
pub(super) const MAX_CHECKS: usize = 64;

/// Whether a gate selects Clusters with these labels, or may do so: one that cannot be decoded may select every Cluster of its namespace.
pub(super) fn may_select(gate: &CachedGate, labels: &BTreeMap<String, String>) -> bool {
    match gate {
        Err(_) => true,
        Ok(gate) => selects(gate, labels),
    }
}

/// Whether an upgrade is in progress. A record of a Cluster that is being created, or that has its version, holds nothing.
pub(super) fn is_upgrade(record: &GateRecord) -> bool {
    record.outcome.is_none() && record.from.as_ref().is_some_and(|from| !same(from, &record.to))
}

/// Whether Cluster API may still call a hook that the record answers. A record of a Cluster that is being created holds nothing, nor does
/// one of a Cluster whose control plane and workers are at the target.
pub(super) fn is_in_progress(record: &GateRecord, is_at_target: bool) -> bool {
    record.from.is_some() && record.outcome != Some(Outcome::Completed) && !is_at_target
}

/// Gate that applies to the Cluster.
#[derive(Debug)]
pub(super) struct Applied {
    /// The gate.
    pub(super) gate: CompiledGate,
    /// Reason for which no check of it can be judged.
    pub(super) hold: Option<Hold>,
}

impl Applied {
    /// Returns the step of the upgrade that the gate holds first.
    pub(super) fn phase(&self) -> Phase {
        match self.gate.before {
            Before::ControlPlane => Phase::BeforeControlPlane,
            Before::Workers => Phase::AfterControlPlane,
        }
    }
}

/// Gate that cannot be judged at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Name of the gate; none if it is about all gates together.
    pub(super) gate: Option<String>,
    /// Mode of the gate.
    pub(super) mode: GateMode,
    /// Reason.
    pub(super) hold: Hold,
}

/// Gates that apply to a Cluster.
#[derive(Debug, Default)]
pub(super) struct Selected {
    /// All of them, or the first [`MAX_GATES`], for the record.
    pub(super) listed: Vec<SelectedGate>,
    /// Digest of their UIDs and generations.
    pub(super) set: String,
    /// Those with known checks, by name.
    pub(super) gates: Vec<Applied>,
    /// Problems of the others, by name.
    pub(super) problems: Vec<Problem>,
}

impl Selected {
    /// Returns the gates that apply to the Cluster of `facts` at a hop. `previous` is its record.
    pub(super) fn of(
        facts: &GateFacts,
        previous: Option<&GateRecord>,
        hop: &str,
        is_at_target: bool,
    ) -> Self {
        let exceeds = facts.gates.len() > MAX_GATES;
        let in_progress = previous.filter(|record| is_in_progress(record, is_at_target));
        let mut applying = applying(facts, in_progress);
        if exceeds {
            keep_first(&mut applying, previous);
        }
        let mut room = if exceeds { Room::None } else { Room::of(&applying) };
        let mut selected = Self::default();
        let mut leaves_out = false;
        for (gate, hold) in applying {
            match gate {
                Err(undecodable) => selected.add_undecodable(undecodable, previous),
                Ok(found) => {
                    selected.list(found);
                    // The compilation of gates that are not judged would be in vain, in each reconcile.
                    if room.takes(found) {
                        selected.add(found, hold, hop);
                    } else {
                        leaves_out = true;
                    }
                }
            }
        }
        selected.set = digest(&selected.listed);
        if exceeds {
            let message = format!(
                "namespace {} has more than {MAX_GATES} UpgradeGates; delete some, or merge gates with the same clusterSelector",
                facts.owner.namespace
            );
            selected.refuse(message);
        } else if room == Room::None {
            selected.refuse(too_many_checks());
        } else if leaves_out {
            selected
                .problems
                .push(too_many(GateMode::Audit, too_many_checks()));
        }
        selected
    }

    /// Whether no gate applies to the Cluster.
    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Returns the hold of all gates of the record, if there is one.
    pub(super) fn problem(&self) -> Option<&Problem> {
        let mut problems = self.problems.iter();
        problems.find(|problem| problem.mode == GateMode::Enforce)
    }

    /// Adds a gate that cannot be decoded. Its mode is unknown, so it counts as one that holds.
    fn add_undecodable(&mut self, undecodable: &Undecodable, previous: Option<&GateRecord>) {
        let metadata = &undecodable.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        self.listed.push(SelectedGate {
            name: name.clone(),
            uid: uid_if_listed(previous, metadata.uid.clone()),
            generation: metadata.generation.unwrap_or_default(),
            mode: GateMode::Enforce,
        });
        self.problems.push(Problem {
            gate: Some(name),
            mode: GateMode::Enforce,
            hold: Hold::new(GateReason::GateInvalid, undecodable.to_string()),
        });
    }

    /// Lists a gate for the record.
    fn list(&mut self, gate: &UpgradeGate) {
        self.listed.push(SelectedGate {
            name: gate.name_any(),
            uid: gate.uid().unwrap_or_default(),
            generation: gate.metadata.generation.unwrap_or_default(),
            mode: gate.spec.mode,
        });
    }

    /// Adds a gate, with the reason for which it is not judged, if there is one.
    fn add(&mut self, gate: &UpgradeGate, hold: Option<Hold>, hop: &str) {
        let (name, mode) = (gate.name_any(), gate.spec.mode);
        match compile(gate) {
            Ok(gate) => {
                let hold = hold.or_else(|| without_row(&gate, hop));
                self.gates.push(Applied { gate, hold });
            }
            Err(invalid) => self.problems.push(Problem {
                gate: Some(name),
                mode,
                hold: hold.unwrap_or(invalid),
            }),
        }
    }

    /// Judges no check at all.
    fn refuse(&mut self, message: String) {
        self.gates.clear();
        self.problems.insert(0, too_many(GateMode::Enforce, message));
    }
}

/// Number of checks that may still be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// No gate is judged.
    None,
    /// All gates that hold Clusters are judged, and Audit gates with so many checks: they never keep those from being judged that hold.
    Audits(usize),
}

impl Room {
    /// Returns the room of these gates within [`MAX_CHECKS`].
    fn of(applying: &[Applying<'_>]) -> Self {
        let gates = applying.iter().filter_map(|&(gate, _)| gate.as_ref().ok());
        let enforced = gates.filter(|gate| gate.spec.mode == GateMode::Enforce);
        let count: usize = enforced.map(|gate| checks_of(gate)).sum();
        MAX_CHECKS.checked_sub(count).map_or(Self::None, Self::Audits)
    }

    /// Whether a gate is judged. Reduces the room for Audit gates.
    fn takes(&mut self, gate: &UpgradeGate) -> bool {
        match (&mut *self, gate.spec.mode) {
            (Self::None, _) => false,
            (Self::Audits(_), GateMode::Enforce) => true,
            (Self::Audits(left), GateMode::Audit) => match left.checked_sub(checks_of(gate)) {
                Some(rest) => {
                    *left = rest;
                    true
                }
                None => false,
            },
        }
    }
}

/// Returns the number of checks of a gate. One with more than a gate may have is not valid, and none of its checks is judged.
fn checks_of(gate: &UpgradeGate) -> usize {
    let count = gate.spec.checks.len();
    if count > lifecycle::MAX_CHECKS { 0 } else { count }
}

/// Gate that applies to the Cluster, with the reason for which no check of it is judged, if there is one.
type Applying<'a> = (&'a CachedGate, Option<Hold>);

/// Returns all gates that apply to the Cluster, by name. `previous` is the record of an upgrade in progress.
fn applying<'a>(facts: &'a GateFacts, previous: Option<&GateRecord>) -> Vec<Applying<'a>> {
    let labels = facts.labels();
    let mut applying = Vec::new();
    for gate in &facts.gates {
        match gate {
            _ if may_select(gate, labels) => applying.push((gate, None)),
            Ok(found) if was_enforced(previous, found) => {
                applying.push((gate, Some(deselected(found, &facts.owner.name))));
            }
            _ => {}
        }
    }
    applying
}

/// Keeps as many gates as a record lists: those that hold before Audit gates, so that the record never shows a held Cluster as one without
/// such a gate, and then those that it lists already.
fn keep_first(applying: &mut Vec<Applying<'_>>, previous: Option<&GateRecord>) {
    let listed = previous.into_iter().flat_map(|record| &record.selected);
    let listed: HashSet<&str> = listed.map(|gate| gate.uid.as_str()).collect();
    applying.sort_by_key(|(gate, _)| {
        let uid = metadata(gate).uid.as_deref();
        (!holds(gate), !uid.is_some_and(|uid| listed.contains(uid)))
    });
    applying.truncate(MAX_GATES);
    applying.sort_by(|(one, _), (other, _)| metadata(one).name.cmp(&metadata(other).name));
}

pub(super) fn metadata(gate: &CachedGate) -> &ObjectMeta {
    match gate {
        Ok(gate) => &gate.metadata,
        Err(undecodable) => &undecodable.metadata,
    }
}

/// Whether a gate holds Clusters. The mode of one that cannot be decoded is unknown, so it counts as one that holds.
fn holds(gate: &CachedGate) -> bool {
    match gate {
        Ok(gate) => gate.spec.mode == GateMode::Enforce,
        Err(_) => true,
    }
}

/// Whether each gate of the namespace that holds Clusters selects the Cluster of `facts`, so that a new record lists all gates of the lost
/// one.
pub(super) fn all_select(facts: &GateFacts) -> bool {
    let mut holding = facts.gates.iter().filter(|gate| holds(gate));
    holding.all(|gate| may_select(gate, facts.labels()))
}

fn too_many_checks() -> String {
    format!(
        "the UpgradeGates of the Cluster have more than {MAX_CHECKS} checks; remove checks, or change clusterSelector of a gate"
    )
}

fn too_many(mode: GateMode, message: String) -> Problem {
    Problem {
        gate: None,
        mode,
        hold: Hold::new(GateReason::ChecksTooMany, message),
    }
}

/// Returns the UID of a gate that cannot be decoded, if the record lists it already; otherwise nothing. Once such a gate is corrected, it
/// may turn out that it is for other Clusters, which is no deselection.
fn uid_if_listed(previous: Option<&GateRecord>, uid: Option<String>) -> String {
    let is_listed =
        |uid: &String| previous.is_some_and(|record| record.selected.iter().any(|listed| listed.uid == *uid));
    uid.filter(is_listed).unwrap_or_default()
}

/// Whether the record of an upgrade in progress lists a gate that holds, and that still does.
fn was_enforced(previous: Option<&GateRecord>, gate: &UpgradeGate) -> bool {
    let uid = gate.uid();
    let is_it = |listed: &SelectedGate| Some(&listed.uid) == uid.as_ref() && listed.mode == GateMode::Enforce;
    let lists = |record: &GateRecord| record.selected.iter().any(is_it) && !had_no_meaning(record, gate);
    gate.spec.mode == GateMode::Enforce && previous.is_some_and(lists)
}

/// Whether the record is held by a fault in the selector of the gate. Such a gate selects every Cluster, and its correction is no
/// deselection.
fn had_no_meaning(record: &GateRecord, gate: &UpgradeGate) -> bool {
    let fault = format!("{}: spec.clusterSelector.", gate.name_any());
    record
        .gates
        .iter()
        .any(|held| held.reason == GateReason::GateInvalid.as_str() && held.message.starts_with(&fault))
}

/// Returns the hold of a gate that selects the Cluster no longer. The right to label Clusters is not the right to pass a gate.
fn deselected(gate: &UpgradeGate, cluster: &str) -> Hold {
    let name = gate.name_any();
    let message = format!(
        "{name}: clusterSelector no longer selects Cluster {cluster}, whose upgrade it held; restore the labels of the Cluster, or set \
         mode Audit"
    );
    Hold::new(GateReason::GateDeselected, message)
}

/// Returns the hold of a gate without a row for the minor version of a hop.
fn without_row(gate: &CompiledGate, hop: &str) -> Option<Hold> {
    (gate.needs_row() && gate.rows_for(hop).is_empty()).then(|| gate.no_row(hop))
}

/// Returns the digest of UID and generation of these gates.
fn digest(gates: &[SelectedGate]) -> String {
    let parts: Vec<(&str, [u8; 8])> = gates
        .iter()
        .map(|gate| (gate.uid.as_str(), gate.generation.to_be_bytes()))
        .collect();
    let parts = parts
        .iter()
        .flat_map(|(uid, generation)| [uid.as_bytes(), generation.as_slice()]);
    hash(parts, DIGITS)
}
