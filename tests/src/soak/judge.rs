//! Which of the observer's complaints are early releases.

use std::time::Duration;

use jiff::Timestamp;

use super::act::Happened;
use crate::observer::{Milestone, Violation};
use crate::scenario::HookAnswer;

/// Time in which a withdrawn proof need not have been noticed: it travels by two watches and a write.
const REACTION: Duration = Duration::from_millis(500);

/// The last hook before the version is written.
const LAST_HOOK: &str = "BeforeControlPlaneUpgrade";

/// The observer's complaints about one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdict {
    /// Writes that Sluice let through without proof.
    pub(super) early: Vec<Violation>,
    /// Writes whose proof was taken away after Sluice had answered, or in the very moment.
    pub(super) overtaken: Vec<Violation>,
}

impl Verdict {
    /// A hook is answered some time before Cluster API writes, and no gate can call an answer back. So a disturbance that takes a
    /// proof away in between makes the observer complain; that is no early release.
    pub(super) fn of(
        violations: Vec<Violation>,
        milestones: &[Milestone],
        answers: &[HookAnswer],
        happened: &[Happened],
    ) -> Self {
        let (overtaken, early) = violations.into_iter().partition(|violation| {
            let written = milestones
                .iter()
                .find(|milestone| milestone.revision == violation.revision)
                .map(|milestone| milestone.seen);
            written.is_some_and(|written| is_overtaken(violation, written, answers, happened))
        });
        Self { early, overtaken }
    }
}

fn is_overtaken(
    violation: &Violation,
    written: Timestamp,
    answers: &[HookAnswer],
    happened: &[Happened],
) -> bool {
    let released = answers
        .iter()
        .rfind(|answer| answer.hook == LAST_HOOK && !answer.is_held() && answer.timestamp < written);
    let Some(noticed) = released.and_then(|answer| answer.timestamp.checked_sub(REACTION).ok()) else {
        return false;
    };
    violation.missing.iter().all(|missing| {
        happened.iter().any(|happened| {
            happened.withdraws_proof
                && happened.began > noticed
                && happened.began < written
                && happened
                    .package
                    .is_none_or(|package| missing.starts_with(&format!("{package}.")))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Event;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_795_000_000_000 + milliseconds).unwrap()
    }

    fn verdict(pause_began: i64, package: &'static str) -> Verdict {
        let violation = Violation {
            revision: 9,
            namespace: "soak".to_owned(),
            cluster: "r1".to_owned(),
            write: "the control plane was written to v1.36.3".to_owned(),
            missing: vec!["antrea.soak.test.2.0.0 (App paused)".to_owned()],
        };
        let written = Milestone {
            revision: 9,
            seen: at(5_100),
            namespace: "soak".to_owned(),
            cluster: "r1".to_owned(),
            event: Event::ControlPlaneWritten {
                version: "v1.36.3".to_owned(),
            },
        };
        let released = HookAnswer {
            timestamp: at(5_000),
            hook: LAST_HOOK.to_owned(),
            namespace: "soak".to_owned(),
            cluster: "r1".to_owned(),
            answer: "release".to_owned(),
            reason: String::new(),
        };
        let paused = Happened {
            kind: "app-paused",
            package: Some(package),
            withdraws_proof: true,
            began: at(pause_began),
            ended: at(9_000),
        };
        Verdict::of(vec![violation], &[written], &[released], &[paused])
    }

    #[test]
    fn a_pause_after_the_answer_is_no_early_release() {
        assert!(verdict(5_050, "antrea").early.is_empty());
        assert_eq!(verdict(5_050, "antrea").overtaken.len(), 1);
    }

    #[test]
    fn a_pause_well_before_the_answer_or_of_another_package_is_no_excuse() {
        assert_eq!(verdict(4_400, "antrea").early.len(), 1);
        assert_eq!(verdict(5_050, "metrics-server").early.len(), 1);
        assert_eq!(verdict(5_101, "antrea").early.len(), 1);
    }
}
