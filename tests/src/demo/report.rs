//! `target/demo/report.json`. Its fields are a contract: others read them.

use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

use super::facts::Facts;
use crate::components::{CLUSTER_API_VERSION, KAPP_CONTROLLER_VERSION, ProgramReport};
use crate::observer::{Event, Milestone};

/// One upgrade in figures. Times are RFC 3339 with milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Version of Cluster API.
    pub capi_version: String,
    /// Version of kapp-controller.
    pub kapp_controller_version: String,
    /// The programs of the stack and where they are from.
    pub programs: Vec<ProgramReport>,
    /// Kubernetes version before.
    pub from: String,
    /// Kubernetes version after.
    pub to: String,
    /// Hooks in the order of their first calls.
    pub hooks: Vec<HookReport>,
    /// Packages in the order in which they are waited for.
    pub packages: Vec<PackageReport>,
    /// When the last package had its proof for the control plane.
    #[serde(serialize_with = "milliseconds")]
    pub last_package_ready_at: Option<Timestamp>,
    /// When Cluster API wrote the version to the control plane.
    #[serde(serialize_with = "milliseconds")]
    pub control_plane_version_written_at: Option<Timestamp>,
    /// Seconds between these two.
    pub release_lag_seconds: Option<f64>,
    /// When the last package was proven again by the new API server.
    #[serde(serialize_with = "milliseconds")]
    pub proven_again_at: Option<Timestamp>,
    /// When Cluster API wrote the version to the first workers.
    #[serde(serialize_with = "milliseconds")]
    pub workers_version_written_at: Option<Timestamp>,
    /// Seconds between these two.
    pub workers_release_lag_seconds: Option<f64>,
    /// Whether any version was written before its packages had proof, decided by resourceVersion.
    pub early_release: bool,
    /// Seconds that `spec.paused` of the Cluster was true.
    pub cluster_paused_seconds: f64,
    /// When the last worker was up to date.
    #[serde(serialize_with = "milliseconds")]
    pub workers_done_at: Option<Timestamp>,
    /// Seconds from the change of `topology.version` to the end of the upgrade.
    pub total_seconds: f64,
}

/// One hook in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HookReport {
    /// Its name.
    pub hook: String,
    /// How often it was called.
    pub handler_calls: usize,
    /// When it was called first.
    #[serde(serialize_with = "millisecond")]
    pub first_call: Timestamp,
    /// When it was released.
    #[serde(serialize_with = "milliseconds")]
    pub released_at: Option<Timestamp>,
    /// Seconds from the first call to the release.
    pub held_seconds: f64,
}

/// One package in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackageReport {
    /// Short name.
    pub name: String,
    /// Package version before.
    pub from: String,
    /// Package version after.
    pub to: String,
    /// When it had its proof for the control plane.
    #[serde(serialize_with = "milliseconds")]
    pub ready_at: Option<Timestamp>,
}

impl Report {
    /// The figures of an upgrade that is over.
    #[must_use]
    pub(crate) fn of(facts: &Facts) -> Self {
        let last = facts.last_proof();
        let written = facts.control_plane_written();
        // Both are positions in the one order of etcd; the clock has no say in it.
        let in_order =
            matches!((last, written), (Some(last), Some(written)) if last.revision < written.revision);
        let again = facts.proven_again();
        let workers = facts.workers_written();
        Self {
            capi_version: CLUSTER_API_VERSION.to_owned(),
            kapp_controller_version: KAPP_CONTROLLER_VERSION.to_owned(),
            programs: Vec::new(),
            from: facts.from.clone(),
            to: facts.to.clone(),
            hooks: hooks(facts),
            packages: packages(facts),
            last_package_ready_at: last.map(|last| last.seen),
            control_plane_version_written_at: written.map(|written| written.seen),
            release_lag_seconds: lag(last, written),
            proven_again_at: again.map(|again| again.seen),
            workers_version_written_at: workers.map(|written| written.seen),
            workers_release_lag_seconds: lag(again, workers),
            early_release: !in_order || !facts.violations.is_empty(),
            cluster_paused_seconds: paused(facts),
            workers_done_at: facts
                .milestones
                .iter()
                .rev()
                .find(|milestone| matches!(milestone.event, Event::WorkersDone { .. }))
                .map(|done| done.seen),
            total_seconds: seconds(facts.ended.duration_since(facts.began)),
        }
    }
}

/// Seconds from a proof to the write that waited for it.
fn lag(proof: Option<&Milestone>, written: Option<&Milestone>) -> Option<f64> {
    let (proof, written) = proof.zip(written)?;
    Some(seconds(written.seen.duration_since(proof.seen)))
}

fn packages(facts: &Facts) -> Vec<PackageReport> {
    facts
        .packages
        .iter()
        .map(|package| PackageReport {
            name: package.short().to_owned(),
            from: package.from.clone(),
            to: package.to.clone(),
            ready_at: facts.proof(package, 0).map(|proof| proof.seen),
        })
        .collect()
}

fn hooks(facts: &Facts) -> Vec<HookReport> {
    let mut names: Vec<&str> = Vec::new();
    for answer in &facts.answers {
        if !names.contains(&answer.hook.as_str()) {
            names.push(&answer.hook);
        }
    }
    names
        .into_iter()
        .filter_map(|name| {
            let calls: Vec<_> = facts
                .answers
                .iter()
                .filter(|answer| answer.hook == name)
                .collect();
            let first_call = calls.first()?.timestamp;
            let released_at = calls
                .iter()
                .find(|answer| !answer.is_held())
                .map(|answer| answer.timestamp);
            let held = released_at.unwrap_or(facts.ended).duration_since(first_call);
            Some(HookReport {
                hook: name.to_owned(),
                handler_calls: calls.len(),
                first_call,
                released_at,
                held_seconds: seconds(held),
            })
        })
        .collect()
}

fn paused(facts: &Facts) -> f64 {
    let mut since = None;
    let mut total = SignedDuration::ZERO;
    for milestone in &facts.milestones {
        match milestone.event {
            Event::Paused { paused: true } => since = Some(milestone.seen),
            Event::Paused { paused: false } => {
                total += since
                    .take()
                    .map_or(SignedDuration::ZERO, |since| milestone.seen.duration_since(since));
            }
            _ => {}
        }
    }
    total += since.map_or(SignedDuration::ZERO, |since| facts.ended.duration_since(since));
    seconds(total)
}

/// Seconds, to the millisecond.
pub(crate) fn seconds(duration: SignedDuration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

fn millisecond<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ"))
}

#[expect(clippy::ref_option, reason = "the signature is serde's")]
pub(super) fn milliseconds<S: Serializer>(
    time: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => millisecond(time, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
impl Report {
    /// An upgrade in order of which nothing else is known.
    pub(super) fn without_figures() -> Self {
        Self {
            early_release: false,
            ..Self::of(&Facts {
                from: String::new(),
                to: String::new(),
                packages: Vec::new(),
                milestones: Vec::new(),
                violations: Vec::new(),
                answers: Vec::new(),
                began: Timestamp::UNIX_EPOCH,
                ended: Timestamp::UNIX_EPOCH,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::PackageChange;
    use super::*;
    use crate::scenario::HookAnswer;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_795_000_000_000 + milliseconds).unwrap()
    }

    fn milestone(revision: i64, seen: i64, event: Event) -> Milestone {
        Milestone {
            revision,
            seen: at(seen),
            namespace: "demo".to_owned(),
            cluster: "demo".to_owned(),
            event,
        }
    }

    fn answer(seen: i64, hook: &str, answer: &str) -> HookAnswer {
        HookAnswer {
            timestamp: at(seen),
            hook: hook.to_owned(),
            namespace: "demo".to_owned(),
            cluster: "demo".to_owned(),
            answer: answer.to_owned(),
            reason: String::new(),
        }
    }

    fn facts() -> Facts {
        let proven = |revision, seen, name: &str| {
            milestone(
                revision,
                seen,
                Event::PackageProven {
                    ref_name: format!("{name}.demo.test"),
                    version: "2.0.0".to_owned(),
                },
            )
        };
        let change = |name: &str| PackageChange {
            ref_name: format!("{name}.demo.test"),
            from: "1.0.0".to_owned(),
            to: "2.0.0".to_owned(),
        };
        Facts {
            from: "v1.35.4".to_owned(),
            to: "v1.36.3".to_owned(),
            packages: vec![change("antrea"), change("metrics")],
            milestones: vec![
                proven(11, 1_000, "antrea"),
                proven(12, 4_000, "metrics"),
                milestone(
                    14,
                    4_750,
                    Event::ControlPlaneWritten {
                        version: "v1.36.3".to_owned(),
                    },
                ),
                // The new proof on the new control plane does not move the figures of the control plane.
                proven(20, 9_000, "metrics"),
                milestone(
                    20,
                    9_000,
                    Event::ProvenAgain {
                        version: "v1.36.3".to_owned(),
                    },
                ),
                milestone(
                    22,
                    9_500,
                    Event::WorkersWritten {
                        machine_deployment: "demo-md".to_owned(),
                        version: "v1.36.3".to_owned(),
                    },
                ),
            ],
            violations: Vec::new(),
            answers: vec![
                answer(500, "BeforeClusterUpgrade", "hold"),
                answer(2_500, "BeforeClusterUpgrade", "hold"),
                answer(4_500, "BeforeClusterUpgrade", "release"),
            ],
            began: at(0),
            ended: at(20_000),
        }
    }

    #[test]
    fn the_lag_is_from_the_last_first_proof_to_the_write() {
        let report = Report::of(&facts());
        assert_eq!(report.release_lag_seconds, Some(0.75));
        assert_eq!(report.workers_release_lag_seconds, Some(0.5));
        assert!(!report.early_release);
        assert_eq!(report.hooks[0].handler_calls, 3);
        assert!((report.hooks[0].held_seconds - 4.0).abs() < 1e-9);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["last_package_ready_at"], "2026-11-18T11:06:44.000Z");
    }

    #[test]
    fn a_write_before_the_last_proof_is_early_regardless_of_the_clock() {
        let mut facts = facts();
        facts.milestones[1].revision = 15;
        assert!(Report::of(&facts).early_release);
    }

    #[test]
    fn a_package_without_proof_makes_it_early() {
        let mut facts = facts();
        facts.milestones.remove(0);
        let report = Report::of(&facts);
        assert!(report.early_release);
        assert_eq!(report.release_lag_seconds, None);
    }

    #[test]
    fn pauses_are_added_up() {
        let mut facts = facts();
        facts
            .milestones
            .push(milestone(23, 10_000, Event::Paused { paused: true }));
        facts
            .milestones
            .push(milestone(24, 11_500, Event::Paused { paused: false }));
        assert!((Report::of(&facts).cluster_paused_seconds - 1.5).abs() < 1e-9);
    }
}
