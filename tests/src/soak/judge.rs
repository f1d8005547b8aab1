//! Which of the observer's complaints are early releases. Order is decided by revisions alone.

use super::act::Happened;
use crate::observer::{Event, Milestone, Revision, Violation};
use crate::scenario::Records;

/// The last hook before a version is written to the control plane.
const BEFORE_CONTROL_PLANE: &str = "BeforeControlPlaneUpgrade";

/// The last hook before it is written to workers.
const BEFORE_WORKERS: &str = "BeforeWorkersUpgrade";

/// The observer's complaints about one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdict {
    /// Writes that Sluice let through without proof.
    pub(super) early: Vec<Violation>,
    /// Writes whose proof was taken away after Sluice had opened the gate.
    pub(super) overtaken: Vec<Violation>,
}

impl Verdict {
    /// A hook is answered some time before Cluster API writes, and no gate can call an answer back. So a disturbance that takes a
    /// proof away in between makes the observer complain; that is no early release.
    pub(super) fn of(
        violations: Vec<Violation>,
        milestones: &[Milestone],
        records: &Records,
        happened: &[Happened],
    ) -> Self {
        let (overtaken, early) = violations
            .into_iter()
            .partition(|violation| is_overtaken(violation, milestones, records, happened));
        Self { early, overtaken }
    }
}

/// Whether each missing proof had been there, and was taken away
/// - after the last proof that the gate waited for, so that the reads before it was opened could still find everything in order,
/// - before the version was written, and
/// - without a record after that which has the gate open still, because Sluice has reconciled again then, and with one at most that has
///   it closed, because Cluster API writes right after its answer.
fn is_overtaken(
    violation: &Violation,
    milestones: &[Milestone],
    records: &Records,
    happened: &[Happened],
) -> bool {
    let written = violation.revision;
    let mut at_the_write = milestones
        .iter()
        .filter(|milestone| milestone.revision == written);
    let gate = at_the_write.find_map(|milestone| match &milestone.event {
        Event::ControlPlaneWritten { version } => Some((BEFORE_CONTROL_PLANE, version)),
        Event::WorkersWritten { version, .. } => Some((BEFORE_WORKERS, version)),
        _ => None,
    });
    let Some((hook, version)) = gate else {
        return false;
    };
    let Some((opened, closed)) = last_opening(records, hook, version, written) else {
        return false;
    };
    let Some(proven) = last_proof(milestones, opened) else {
        return false;
    };
    let excused = |withdrawn: &Withdrawal, missing: &str| {
        let looked_after = withdrawn.last.min(written).max(opened);
        let looks_later = withdrawn.unwatched || !records.leaves_open(hook, version, (looked_after, written));
        withdrawn.last > proven
            && withdrawn.first < written
            && closed.is_none_or(|closed| closed > withdrawn.first)
            && looks_later
            && was_proven(milestones, missing, withdrawn.last.min(written))
    };
    !violation.missing.is_empty()
        && violation.missing.iter().all(|missing| {
            happened
                .iter()
                .filter(|happened| happened.concerns(missing))
                .flat_map(|happened| &happened.withdrawals)
                .any(|withdrawn| excused(withdrawn, missing))
        })
}

/// Which record opened the gate last, and which closed it, where one did before the version was written.
fn last_opening(
    records: &Records,
    hook: &str,
    version: &str,
    written: Revision,
) -> Option<(Revision, Option<Revision>)> {
    if let Some(opened) = records.opened(hook, version, written) {
        return Some((opened, None));
    }
    let closed = records.latest(written)?;
    let opened = records.opened(hook, version, closed)?;
    Some((opened, Some(closed)))
}

fn last_proof(milestones: &[Milestone], before: Revision) -> Option<Revision> {
    let proofs = milestones.iter().filter(|milestone| {
        milestone.revision < before && matches!(milestone.event, Event::PackageProven { .. })
    });
    proofs.map(|milestone| milestone.revision).max()
}

/// Whether exactly the package that is missing had its proof some time before.
fn was_proven(milestones: &[Milestone], missing: &str, before: Revision) -> bool {
    let name = missing.split(' ').next().unwrap_or_default();
    milestones.iter().any(|milestone| match &milestone.event {
        Event::PackageProven { ref_name, version } => {
            milestone.revision < before && name == format!("{ref_name}.{version}")
        }
        _ => false,
    })
}

/// When a disturbance took a proof away: at one write, or somewhere between two revisions where nothing was written that tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(super) struct Withdrawal {
    /// The earliest revision.
    pub(super) first: Revision,
    /// The latest.
    pub(super) last: Revision,
    /// Whether no watch shows it, so that Sluice sees it some seconds later, whatever it writes meanwhile.
    pub(super) unwatched: bool,
}

impl Withdrawal {
    /// At exactly this write.
    pub(super) fn at(revision: Revision) -> Self {
        Self {
            first: revision,
            last: revision,
            unwatched: false,
        }
    }

    /// Somewhere from one revision to another.
    pub(super) fn between(first: Revision, last: Revision) -> Self {
        Self {
            first,
            last,
            unwatched: false,
        }
    }
}

impl Happened {
    /// Whether it can have removed the proof that the observer misses.
    fn concerns(&self, missing: &str) -> bool {
        self.package
            .is_none_or(|package| missing.starts_with(&format!("{package}.")))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::disturbance::Kind;
    use super::*;
    use crate::scenario::{gates_of, history_of};

    const WRITTEN: Revision = 90;
    const PROVEN: Revision = 40;
    const OPENED: Revision = 50;

    fn milestone(revision: Revision, event: Event) -> Milestone {
        Milestone {
            revision,
            seen: Timestamp::UNIX_EPOCH,
            namespace: "soak".to_owned(),
            cluster: "r1".to_owned(),
            event,
        }
    }

    /// The verdict on a write at revision 90, when the proof was complete at 40 and the gate was opened at 50. Antrea was proven at 35.
    fn judged(withdrawal: Withdrawal, package: &'static str, records: &[(Revision, bool)]) -> Verdict {
        judged_when(Some(35), withdrawal, package, records)
    }

    fn judged_when(
        antrea_proven: Option<Revision>,
        withdrawal: Withdrawal,
        package: &'static str,
        records: &[(Revision, bool)],
    ) -> Verdict {
        let written = Event::ControlPlaneWritten {
            version: "v1.36.3".to_owned(),
        };
        judged_at(written, antrea_proven, withdrawal, package, &history_of(records))
    }

    fn judged_at(
        written: Event,
        antrea_proven: Option<Revision>,
        withdrawal: Withdrawal,
        package: &'static str,
        records: &Records,
    ) -> Verdict {
        let violation = Violation {
            rule: crate::observer::Rule::ReleasedBeforePackages,
            revision: WRITTEN,
            namespace: "soak".to_owned(),
            cluster: "r1".to_owned(),
            write: format!("{written:?}"),
            missing: vec!["antrea.soak.test.2.0.0 (App paused)".to_owned()],
        };
        let proof = |revision, package: &str| {
            let ref_name = format!("{package}.soak.test");
            let version = "2.0.0".to_owned();
            milestone(revision, Event::PackageProven { ref_name, version })
        };
        let mut milestones = vec![proof(PROVEN, "metrics-server"), milestone(WRITTEN, written)];
        milestones.extend(antrea_proven.map(|revision| proof(revision, "antrea")));
        let happened = Happened {
            kind: Kind::AppPaused,
            package: Some(package),
            absent: false,
            withdrawals: vec![withdrawal],
            began: Timestamp::UNIX_EPOCH,
            ended: Timestamp::UNIX_EPOCH,
            ended_at: 95,
        };
        Verdict::of(vec![violation], &milestones, records, &[happened])
    }

    fn is_early(withdrawn: Revision, package: &'static str, records: &[(Revision, bool)]) -> bool {
        let verdict = judged(Withdrawal::at(withdrawn), package, records);
        assert_eq!(verdict.early.len() + verdict.overtaken.len(), 1);
        verdict.overtaken.is_empty()
    }

    #[test]
    fn a_proof_taken_away_after_the_gate_was_opened_is_no_early_release() {
        assert!(!is_early(60, "antrea", &[(30, false), (OPENED, true)]));
        // Sluice has noticed, but Cluster API had its answer.
        assert!(!is_early(
            60,
            "antrea",
            &[(30, false), (OPENED, true), (70, false)]
        ));
        // Between the reads for the gate and its record.
        assert!(!is_early(45, "antrea", &[(30, false), (OPENED, true)]));
    }

    #[test]
    fn a_proof_taken_away_before_the_last_one_was_complete_is_no_excuse() {
        assert!(is_early(39, "antrea", &[(30, false), (OPENED, true)]));
        assert!(is_early(PROVEN, "antrea", &[(30, false), (OPENED, true)]));
    }

    #[test]
    fn later_disturbances_and_those_of_other_packages_are_no_excuse() {
        assert!(is_early(WRITTEN, "antrea", &[(30, false), (OPENED, true)]));
        assert!(is_early(60, "metrics-server", &[(30, false), (OPENED, true)]));
    }

    #[test]
    fn a_gate_that_was_never_recorded_open_or_left_open_afterwards_is_early() {
        assert!(is_early(60, "antrea", &[(30, false)]));
        assert!(is_early(60, "antrea", &[(30, false), (OPENED, true), (70, true)]));
        assert!(is_early(45, "antrea", &[(30, false), (OPENED, true), (70, true)]));
    }

    #[test]
    fn a_gate_that_was_closed_for_long_or_before_the_proof_went_away_is_early() {
        let closed = [(30, false), (OPENED, true), (70, false), (80, false)];
        assert!(is_early(60, "antrea", &closed));
        assert!(is_early(75, "antrea", &closed[..3]));
    }

    #[test]
    fn a_killed_process_may_take_a_proof_away_until_it_is_back() {
        let killed = Withdrawal::between(20, 60);
        let records = [(30, false), (OPENED, true)];
        assert!(judged(killed, "antrea", &records).early.is_empty());
        let back = Withdrawal::between(20, 30);
        assert_eq!(judged(back, "antrea", &records).early.len(), 1);
    }

    #[test]
    fn a_package_that_was_never_proven_is_no_package_whose_proof_was_taken_away() {
        let records = [(30, false), (OPENED, true)];
        for withdrawal in [
            Withdrawal::at(45),
            Withdrawal::at(60),
            Withdrawal::between(20, 70),
        ] {
            let never = judged_when(None, withdrawal, "antrea", &records);
            assert_eq!(never.early.len(), 1, "{withdrawal:?}");
            let later = judged_when(Some(95), withdrawal, "antrea", &records);
            assert_eq!(later.early.len(), 1, "{withdrawal:?}");
        }
    }

    #[test]
    fn unwatched_changes_are_seen_later_but_before_the_gate_opens() {
        let edited = |revision| Withdrawal {
            unwatched: true,
            ..Withdrawal::at(revision)
        };
        let records = [(30, false), (OPENED, true), (70, true)];
        assert!(judged(edited(60), "antrea", &records).early.is_empty());
        assert_eq!(judged(edited(38), "antrea", &records).early.len(), 1);
    }

    #[test]
    fn workers_have_a_gate_of_their_own() {
        let written = || Event::WorkersWritten {
            machine_deployment: "md".to_owned(),
            version: "v1.36.3".to_owned(),
        };
        let is_early = |hook: &str| {
            let records = gates_of(hook, &[(30, false), (OPENED, true)]);
            let verdict = judged_at(written(), Some(35), Withdrawal::at(60), "antrea", &records);
            !verdict.early.is_empty()
        };
        assert!(!is_early(BEFORE_WORKERS));
        assert!(is_early(BEFORE_CONTROL_PLANE));
    }
}
