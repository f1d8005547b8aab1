use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const V34: &str = "v1.34.4";
const V35: &str = "v1.35.4";
const V36: &str = "v1.36.3";
const OLD: &str = "35-1";
const NEW: &str = "36-1";

/// Inputs, in values that a test can change one by one.
struct Scene {
    cluster: Value,
    to: &'static str,
    label: &'static str,
    control_plane: Option<ControlPlaneFacts>,
    record: Option<UpgradeRecord>,
    merged: Option<&'static str>,
    snapshot: Result<Option<Snapshot>, String>,
    entry: Option<&'static str>,
    policy: Option<Value>,
    completed: Option<&'static str>,
    merged_version: Option<&'static str>,
}

fn versions(spec: &str, status: &str) -> ControlPlaneFacts {
    let version = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ControlPlaneFacts {
        spec_version: version(spec),
        status_version: version(status),
    }
}

fn record(hop: &str, outcome: Option<Outcome>) -> UpgradeRecord {
    UpgradeRecord {
        from: Some(V35.to_owned()),
        to: V35.to_owned(),
        hop: Some(hop.to_owned()),
        outcome,
        ..UpgradeRecord::default()
    }
}

fn to_old(hop: &str) -> Rollback {
    Rollback {
        hop: hop.to_owned(),
        release: OLD.to_owned(),
    }
}

impl Scene {
    /// Cluster whose upgrade from v1.35.4 to v1.36.3 was cancelled and reconciled.
    fn cancelled() -> Self {
        Self {
            cluster: json!({
                "metadata": {"name": "one", "generation": 8}, "spec": {},
                "status": {"conditions": [
                    {"type": "TopologyReconciled", "status": "True", "observedGeneration": 8},
                ]},
            }),
            to: V35,
            label: OLD,
            control_plane: Some(versions(V35, V35)),
            record: Some(record(V36, Some(Outcome::Cancelled))),
            merged: Some(NEW),
            snapshot: Ok(Some(Snapshot {
                version: V35.to_owned(),
                release: OLD.to_owned(),
                ..Snapshot::default()
            })),
            entry: Some(OLD),
            policy: Some(json!({"onCancel": "Rollback"})),
            completed: None,
            merged_version: Some(V36),
        }
    }

    /// The same once its rollback is recorded.
    fn begun() -> Self {
        let record = UpgradeRecord {
            rollback: Some(to_old(V36)),
            ..record(V35, None)
        };
        Self {
            record: Some(record),
            ..Self::cancelled()
        }
    }

    fn record(&mut self) -> &mut UpgradeRecord {
        self.record.as_mut().unwrap()
    }

    fn observed(&mut self) -> &mut Value {
        &mut self.cluster["status"]["conditions"][0]["observedGeneration"]
    }

    fn snapshot(&mut self) -> &mut Snapshot {
        self.snapshot.as_mut().unwrap().as_mut().unwrap()
    }

    fn decide(&self) -> Decision {
        let cluster: Cluster = serde_json::from_value(self.cluster.clone()).unwrap();
        let policy = self.policy.clone();
        let policy: Option<UpgradePolicy> = policy.map(|policy| serde_json::from_value(policy).unwrap());
        decide(RollbackInputs {
            cluster: &cluster,
            to: self.to,
            label: self.label,
            control_plane: self.control_plane.as_ref(),
            record: self.record.as_ref(),
            resolved: ResolvedRelease {
                annotation: self.merged,
                status: None,
            },
            snapshot: self.snapshot.as_ref().map(Option::as_ref).map_err(String::as_str),
            made_of: self.entry,
            policy: policy.as_ref(),
            completed: self.completed,
            merged_version: self.merged_version,
        })
    }
}

type Edit = fn(&mut Scene);

#[rstest]
#[case::closed(|_: &mut Scene| {})]
#[case::not_closed_yet(|s: &mut Scene| s.record().outcome = None)]
#[case::of_one_package(|s: &mut Scene| {
    s.policy = Some(json!({"packages": [{"package": "antrea", "onCancel": "Rollback"}]}));
})]
#[case::without_an_entry(|s: &mut Scene| s.entry = None)]
#[case::record_lost(|s: &mut Scene| s.record = None)]
#[case::record_from_before_the_merge(|s: &mut Scene| {
    s.record = Some(record(V35, Some(Outcome::Completed)));
    s.completed = Some(OLD);
})]
#[case::record_of_another_hop(|s: &mut Scene| s.record().hop = Some(V34.to_owned()))]
#[case::record_without_a_hop(|s: &mut Scene| s.record().hop = None)]
#[case::restored_already(|s: &mut Scene| s.merged = Some(OLD))]
#[case::restored_already_and_kept_since(|s: &mut Scene| {
    s.merged = Some(OLD);
    s.policy = None;
})]
#[case::a_later_generation_observed(|s: &mut Scene| *s.observed() = json!(9))]
#[case::reconciled_with_an_error(|s: &mut Scene| s.cluster["status"]["conditions"][0]["status"] = json!("False"))]
#[case::another_build_reported(|s: &mut Scene| s.control_plane = Some(versions(V35, "v1.35.4+k0s")))]
#[case::a_later_patch_reported(|s: &mut Scene| s.control_plane = Some(versions(V35, "v1.35.9")))]
fn packages_of_a_cancelled_upgrade_go_back(#[case] edit: Edit) {
    let mut scene = Scene::cancelled();
    edit(&mut scene);
    assert_eq!(scene.decide(), Decision::RollsBack(to_old(V36)));
    assert_eq!(scene.decide().under_way(), Some(&to_old(V36)));
}

#[rstest]
#[case::an_earlier_generation_observed(|s: &mut Scene| *s.observed() = json!(7))]
#[case::no_generation_observed(|s: &mut Scene| *s.observed() = Value::Null)]
#[case::another_condition(|s: &mut Scene| s.cluster["status"]["conditions"][0]["type"] = json!("Available"))]
#[case::no_conditions(|s: &mut Scene| s.cluster["status"] = json!({}))]
#[case::no_status(|s: &mut Scene| s.cluster["status"] = Value::Null)]
fn nothing_goes_back_before_cluster_api_has_observed_the_cancellation(#[case] edit: Edit) {
    let mut scene = Scene::cancelled();
    edit(&mut scene);
    assert_eq!(scene.decide(), Decision::Waits(to_old(V36)));
    assert_eq!(scene.decide().under_way(), None);
}

#[rstest]
#[case::no_policy(|s: &mut Scene| s.policy = None)]
#[case::kept(|s: &mut Scene| s.policy = Some(json!({"onCancel": "Keep"})))]
#[case::nothing_merged(|s: &mut Scene| s.merged = None)]
#[case::never_merged(|s: &mut Scene| {
    s.merged = Some(OLD);
    s.snapshot().version = V34.to_owned();
})]
#[case::label_of_the_upgrade(|s: &mut Scene| s.label = NEW)]
#[case::no_label(|s: &mut Scene| s.label = "")]
#[case::target_of_the_upgrade(|s: &mut Scene| s.to = V36)]
#[case::completed(|s: &mut Scene| {
    s.record = Some(record(V35, Some(Outcome::Completed)));
    s.completed = Some(NEW);
})]
#[case::completed_before_a_lost_record(|s: &mut Scene| {
    s.record = None;
    s.completed = Some(NEW);
})]
#[case::rolled_back(|s: &mut Scene| {
    let rollback = Some(to_old(V36));
    s.record = Some(UpgradeRecord { rollback, ..record(V35, Some(Outcome::RolledBack)) });
    s.merged = Some(OLD);
})]
#[case::proven_and_never_merged(|s: &mut Scene| {
    s.record().tkr = Some(OLD.to_owned());
    s.merged = Some(OLD);
})]
#[case::another_release_of_the_version_before_its_merge(|s: &mut Scene| {
    s.record = Some(record(V35, None));
    (s.merged, s.label) = (Some(OLD), "35-2");
})]
#[case::control_plane_unknown(|s: &mut Scene| s.control_plane = None)]
#[case::control_plane_takes_the_hop(|s: &mut Scene| s.control_plane = Some(versions(V36, V35)))]
#[case::control_plane_took_the_hop(|s: &mut Scene| s.control_plane = Some(versions(V36, V36)))]
#[case::control_plane_reports_the_hop(|s: &mut Scene| s.control_plane = Some(versions(V35, V36)))]
#[case::control_plane_reports_nothing(|s: &mut Scene| s.control_plane = Some(versions(V35, "")))]
#[case::control_plane_arrives(|s: &mut Scene| s.control_plane = Some(versions(V35, V34)))]
fn nothing_goes_back_without_a_cancelled_upgrade(#[case] edit: Edit) {
    let mut scene = Scene::cancelled();
    edit(&mut scene);
    assert_eq!(scene.decide(), Decision::None);
}

/// Its machines are those of the earlier release, and the hop is the version that they run.
#[test]
fn a_cancelled_swap_goes_back() {
    let mut scene = Scene::cancelled();
    scene.record = Some(record(V35, Some(Outcome::Cancelled)));
    scene.merged = Some("35-2");
    assert_eq!(scene.decide(), Decision::RollsBack(to_old(V35)));
    scene.entry = Some("35-2");
    assert!(matches!(scene.decide(), Decision::Refused(why) if why.contains("35-2")));
    scene.record().outcome = None;
    assert_eq!(
        scene.decide(),
        Decision::None,
        "its label moved back and no reconcile has closed it"
    );
}

#[rstest]
#[case::missing(|s: &mut Scene| s.snapshot = Ok(None), "rollback-to")]
#[case::unreadable(|s: &mut Scene| s.snapshot = Err("expected value".to_owned()), "expected value")]
#[case::another_version(|s: &mut Scene| s.snapshot().version = V34.to_owned(), V34)]
#[case::another_release(|s: &mut Scene| s.snapshot().release = "35-9".to_owned(), "35-9")]
#[case::another_entry(|s: &mut Scene| s.entry = Some("35-2"), "35-2")]
#[case::control_characters(|s: &mut Scene| s.snapshot().release = "\u{1b}[2J".repeat(1_000), "u{1b}")]
fn without_a_matching_snapshot_packages_stay(
    #[case] edit: Edit,
    #[case] named: &str,
    #[values(8, 7)] observed: i64,
) {
    let mut scene = Scene::cancelled();
    *scene.observed() = json!(observed);
    edit(&mut scene);
    let Decision::Refused(why) = scene.decide() else {
        panic!("{:?}", scene.decide());
    };
    assert!(why.contains(named), "{why}");
    assert!(why.chars().count() <= LONGEST && !why.contains('\u{1b}'), "{why}");
}

/// Packages follow a label without machines, and no reconcile closes the record when the label moves back.
#[rstest]
#[case::known(Some(V35))]
#[case::deleted(None)]
fn packages_without_machines_go_back(#[case] merged_version: Option<&'static str>) {
    let scene = Scene {
        record: Some(record(V35, None)),
        merged: Some("35-2"),
        entry: None,
        merged_version,
        ..Scene::cancelled()
    };
    assert_eq!(scene.decide(), Decision::RollsBack(to_old(V35)));
}

/// Only one direction at a time: the gates of the version are closed, and the ClusterBootstrap may have changed.
#[rstest]
#[case::as_it_began(|_: &mut Scene| {})]
#[case::restored(|s: &mut Scene| s.merged = Some(OLD))]
#[case::policy_removed(|s: &mut Scene| s.policy = None)]
#[case::snapshot_removed(|s: &mut Scene| s.snapshot = Ok(None))]
#[case::an_edit_not_observed_yet(|s: &mut Scene| *s.observed() = json!(7))]
fn a_rollback_that_has_begun_goes_on(#[case] edit: Edit) {
    let mut scene = Scene::begun();
    edit(&mut scene);
    assert_eq!(scene.decide(), Decision::RollsBack(to_old(V36)));
}

#[rstest]
#[case::no_control_plane(None)]
#[case::no_versions(Some(versions("", "")))]
#[case::no_status(Some(versions(V35, "")))]
#[case::status_of_the_hop(Some(versions(V35, V36)))]
fn a_rollback_waits_for_the_version_of_the_control_plane(#[case] control_plane: Option<ControlPlaneFacts>) {
    let scene = Scene {
        control_plane,
        ..Scene::begun()
    };
    let decision = scene.decide();
    assert_eq!(decision, Decision::Waits(to_old(V36)));
    assert!(decision.holds(OLD) && !decision.holds(NEW));
}

#[rstest]
#[case::bumped_again(|s: &mut Scene| (s.to, s.label) = (V36, NEW))]
#[case::another_label(|s: &mut Scene| s.label = "35-2")]
#[case::no_label(|s: &mut Scene| s.label = "")]
#[case::hop_taken_all_the_same(|s: &mut Scene| s.control_plane = Some(versions(V36, V35)))]
#[case::hop_reached(|s: &mut Scene| s.control_plane = Some(versions(V36, V36)))]
#[case::over(|s: &mut Scene| {
    s.record().outcome = Some(Outcome::RolledBack);
    s.merged = Some(OLD);
})]
fn a_rollback_ends_without_its_request(#[case] edit: Edit) {
    let mut scene = Scene::begun();
    edit(&mut scene);
    let decision = scene.decide();
    assert_eq!(decision.under_way(), None, "{decision:?}");
    assert!(!matches!(decision, Decision::Waits(_)), "{decision:?}");
}

/// It is that of a control plane settled at its version, so every gate of the version is one of the rollback.
#[test]
fn the_progress_of_a_rollback_is_settled_at_the_version() {
    let progress = progress(V35);
    assert!(progress.settled_at_hop());
    assert_eq!((progress.hop.as_str(), progress.stage()), (V35, Some(V35)));
    assert_eq!(progress.direction, UpgradeDirection::Forward);
}
