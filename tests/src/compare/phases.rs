//! Where the seconds of an upgrade go: its phases, by the writes that the observer has seen.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::demo::facts::Facts;
use crate::demo::report::seconds;
use crate::observer::{Event, Milestone};

/// Short name of the package whose proofs are phases of their own.
const KAPP_CONTROLLER: &str = "kapp-controller";

/// Names of the phases in the file, in their order.
pub(super) const NAMES: [&str; 10] = [
    "kapp_controller_proof_s",
    "package_proofs_s",
    "confirm_s",
    "release_s",
    "control_plane_s",
    "kapp_controller_reproof_s",
    "package_reproofs_s",
    "workers_release_s",
    "workers_s",
    "settle_s",
];

/// Seconds of each phase of an upgrade, in the order of the phases.
///
/// Each phase begins at the end of the one before, so that all of them add up to the whole upgrade. An upgrade by the pause flow has no
/// value for phases that it does not have, and a negative one for a release before the last proof.
#[derive(Debug, Clone, PartialEq)]
pub struct Phases(pub(super) [Option<f64>; NAMES.len()]);

impl Phases {
    /// The phases of an upgrade that is over.
    pub(super) fn of(facts: &Facts) -> Self {
        let mut before = facts.began;
        Self(ends(facts).map(|end| {
            let end = end?;
            let took = seconds(end.duration_since(before));
            before = end;
            Some(took)
        }))
    }

    /// Fails unless these are the phases of an upgrade that waited for all proofs: none is missing, and the gate opened after the last
    /// package was proven.
    pub(super) fn check(&self, facts: &Facts) -> Result<()> {
        if let (Some(opened), Some(proven)) = (gate_opened(facts), facts.last_proof()) {
            // By the order of etcd; the clock has no say in it.
            ensure!(
                proven.revision < opened.revision,
                "early release: the gate was opened at revision {}, and the last package was proven at {}",
                opened.revision,
                proven.revision
            );
        }
        for (name, took) in NAMES.iter().zip(self.0) {
            let took = took.with_context(|| format!("the observer has not seen the end of phase {name}"))?;
            ensure!(took >= 0.0, "phase {name} took {took} s");
        }
        Ok(())
    }
}

impl Serialize for Phases {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(NAMES.iter().zip(&self.0))
    }
}

impl<'de> Deserialize<'de> for Phases {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let phases = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
        Ok(Self(NAMES.map(|name| phases.get(name).copied().flatten())))
    }
}

/// When each phase ended; none for a phase that there was not.
fn ends(facts: &Facts) -> [Option<Timestamp>; NAMES.len()] {
    let kapp_controller = facts
        .packages
        .iter()
        .find(|package| package.short() == KAPP_CONTROLLER);
    let runs =
        facts.find(|event| matches!(event, Event::ControlPlaneRuns { version } if *version == facts.to));
    let workers = facts.workers_written();
    // Workers did not wait for a proof that came after them.
    let again = facts
        .proven_again()
        .filter(|again| workers.is_some_and(|workers| again.revision < workers.revision));
    let kapp_controller_again = again
        .and(runs)
        .zip(kapp_controller)
        .and_then(|(runs, package)| facts.proof(package, runs.revision));
    let done = facts.milestones.iter().rfind(
        |milestone| matches!(&milestone.event, Event::WorkersDone { version, .. } if *version == facts.to),
    );
    let seen = |milestone: Option<&Milestone>| milestone.map(|milestone| milestone.seen);
    [
        seen(kapp_controller.and_then(|package| facts.proof(package, 0))),
        seen(facts.last_proof()),
        seen(gate_opened(facts)),
        seen(facts.control_plane_written()),
        seen(runs),
        seen(kapp_controller_again),
        seen(again),
        seen(workers),
        seen(done),
        Some(facts.ended),
    ]
}

/// The write of the record that opened the gate of the control plane first.
fn gate_opened(facts: &Facts) -> Option<&Milestone> {
    facts.find(|event| matches!(event, Event::GateOpened { version } if *version == facts.to))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;
    use crate::demo::facts::PackageChange;

    const OLD: &str = "v1.35.4";
    const NEW: &str = "v1.36.3";

    /// What the observer has seen, in the order of etcd, each with its milliseconds since the change of the version.
    type Seen = &'static [(&'static str, i64)];

    /// An upgrade by Sluice.
    const SLUICE: Seen = &[
        ("kapp-controller", 1_000),
        ("antrea", 4_000),
        ("gate", 4_300),
        ("control plane", 4_750),
        ("runs", 6_000),
        ("kapp-controller", 8_000),
        ("antrea", 9_000),
        ("again", 9_000),
        ("workers", 9_500),
        ("done", 15_000),
    ];

    fn event(name: &str) -> Event {
        let version = NEW.to_owned();
        let machine_deployment = "md".to_owned();
        match name {
            "gate" => Event::GateOpened { version },
            "gate of before" => Event::GateOpened {
                version: OLD.to_owned(),
            },
            "control plane" => Event::ControlPlaneWritten { version },
            "runs" => Event::ControlPlaneRuns { version },
            "again" => Event::ProvenAgain { version },
            "workers" => Event::WorkersWritten {
                machine_deployment,
                version,
            },
            "done" => Event::WorkersDone {
                machine_deployment,
                version,
            },
            package => Event::PackageProven {
                ref_name: format!("{package}.a.test"),
                version: "2.0.0".to_owned(),
            },
        }
    }

    /// An upgrade that is over after 20 s.
    fn facts(seen: Seen) -> Facts {
        let at = |milliseconds| Timestamp::UNIX_EPOCH + SignedDuration::from_millis(milliseconds);
        let change = |package: &str| PackageChange {
            ref_name: format!("{package}.a.test"),
            from: "1.0.0".to_owned(),
            to: "2.0.0".to_owned(),
        };
        let milestones = (1..).zip(seen).map(|(revision, (name, milliseconds))| Milestone {
            revision,
            seen: at(*milliseconds),
            namespace: "a".to_owned(),
            cluster: "one".to_owned(),
            event: event(name),
        });
        Facts {
            from: OLD.to_owned(),
            to: NEW.to_owned(),
            packages: ["kapp-controller", "antrea"].map(change).into(),
            milestones: milestones.collect(),
            violations: Vec::new(),
            answers: Vec::new(),
            began: at(0),
            ended: at(20_000),
        }
    }

    #[rstest]
    #[case::of_sluice(SLUICE, "[1.0,3.0,0.3,0.45,1.25,2.0,1.0,0.5,5.5,5.0]")]
    #[case::kapp_controller_last(
        &[("antrea", 1_000), ("kapp-controller", 4_000), ("gate", 4_300), ("control plane", 4_750), ("runs", 6_000),
          ("antrea", 7_000), ("kapp-controller", 8_000), ("again", 8_000), ("workers", 9_500), ("done", 15_000)],
        "[4.0,0.0,0.3,0.45,1.25,2.0,0.0,1.5,5.5,5.0]"
    )]
    #[case::all_at_once(
        &[("kapp-controller", 4_000), ("antrea", 4_000), ("gate", 4_000), ("control plane", 4_000), ("runs", 4_000),
          ("kapp-controller", 4_000), ("again", 4_000), ("workers", 4_000), ("done", 4_000)],
        "[4.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,16.0]"
    )]
    #[case::further_proofs_and_openings_move_nothing(
        &[("gate of before", 500), ("kapp-controller", 1_000), ("kapp-controller", 3_000), ("antrea", 4_000), ("gate", 4_300),
          ("antrea", 4_400), ("gate", 4_500), ("control plane", 4_750), ("runs", 6_000), ("kapp-controller", 8_000),
          ("kapp-controller", 8_500), ("again", 9_000), ("workers", 9_500), ("workers", 9_900), ("done", 12_000),
          ("done", 15_000)],
        "[1.0,3.0,0.3,0.45,1.25,2.0,1.0,0.5,5.5,5.0]"
    )]
    #[case::pause_flow_that_is_early(
        &[("kapp-controller", 1_000), ("control plane", 2_000), ("runs", 3_000), ("workers", 4_000), ("antrea", 6_000),
          ("done", 8_000)],
        "[1.0,5.0,null,-4.0,1.0,null,null,1.0,4.0,12.0]"
    )]
    #[case::new_proof_after_the_workers(
        &[("kapp-controller", 1_000), ("antrea", 1_500), ("control plane", 2_000), ("runs", 3_000), ("workers", 4_000),
          ("kapp-controller", 5_000), ("antrea", 6_000), ("again", 6_000), ("done", 8_000)],
        "[1.0,0.5,null,0.5,1.0,null,null,1.0,4.0,12.0]"
    )]
    #[case::no_proof_of_one_package(
        &[("kapp-controller", 1_000), ("gate", 4_300), ("control plane", 4_750), ("runs", 6_000)],
        "[1.0,null,3.3,0.45,1.25,null,null,null,null,14.0]"
    )]
    #[case::nothing(&[], "[null,null,null,null,null,null,null,null,null,20.0]")]
    fn phases_follow_each_other_and_add_up(#[case] seen: Seen, #[case] wanted: &str) {
        let phases = Phases::of(&facts(seen));
        assert_eq!(serde_json::to_string(&phases.0).unwrap(), wanted);
        let sum: f64 = phases.0.iter().flatten().sum();
        assert!((sum - 20.0).abs() < 0.01, "{sum}");
    }

    #[rstest]
    #[case::in_order(SLUICE, "")]
    #[case::gate_before_the_last_proof(
        &[("kapp-controller", 1_000), ("gate", 3_000), ("antrea", 4_000)],
        "early release: the gate was opened at revision 2, and the last package was proven at 3"
    )]
    #[case::gate_seen_with_the_last_proof(
        &[("kapp-controller", 1_000), ("gate", 4_000), ("antrea", 4_000)],
        "early release: the gate was opened at revision 2, and the last package was proven at 3"
    )]
    #[case::gate_that_opened_again_after_the_last_proof(
        &[("kapp-controller", 1_000), ("gate", 3_000), ("antrea", 4_000), ("gate", 4_300)],
        "early release: the gate was opened at revision 2, and the last package was proven at 3"
    )]
    #[case::gate_that_was_never_open(
        &[("kapp-controller", 1_000), ("antrea", 4_000), ("control plane", 4_750)],
        "the observer has not seen the end of phase confirm_s"
    )]
    #[case::clock_that_was_set_back(
        &[("kapp-controller", 1_000), ("antrea", 500)],
        "phase package_proofs_s took -0.5 s"
    )]
    fn an_upgrade_by_sluice_has_all_phases_in_order(#[case] seen: Seen, #[case] wanted: &str) {
        let facts = facts(seen);
        let error = Phases::of(&facts).check(&facts).err();
        assert_eq!(error.map_or_else(String::new, |error| error.to_string()), wanted);
    }

    #[test]
    fn phases_are_written_by_name_and_read_again() {
        let phases = Phases(std::array::from_fn(|phase| {
            (phase != 2).then(|| f64::from(u8::try_from(phase).unwrap()))
        }));
        let text = serde_json::to_string(&phases).unwrap();
        assert!(
            text.starts_with(r#"{"kapp_controller_proof_s":0.0,"package_proofs_s":1.0,"confirm_s":null,"#),
            "{text}"
        );
        assert!(text.ends_with(r#""workers_s":8.0,"settle_s":9.0}"#), "{text}");
        assert_eq!(serde_json::from_str::<Phases>(&text).unwrap(), phases);
    }
}
