use proptest::prelude::*;
use rstest::rstest;
use sluice_crds::run::Gate;

use super::*;
use crate::version::KubernetesVersion;

const V34: &str = "v1.34.4";
const V35: &str = "v1.35.4";
const V36: &str = "v1.36.3";
const V37: &str = "v1.37.0";
const V38: &str = "v1.38.1";

fn at(spec: &str, status: &str) -> ControlPlaneFacts {
    ControlPlaneFacts {
        spec_version: (!spec.is_empty()).then(|| spec.into()),
        status_version: (!status.is_empty()).then(|| status.into()),
    }
}

fn worker(version: &str, rolling: bool) -> WorkerFacts {
    WorkerFacts {
        name: "md".into(),
        spec_version: Some(version.into()),
        versions: vec![version.into()],
        rolling,
        ..WorkerFacts::default()
    }
}

fn list(versions: &[&str]) -> Plan {
    Plan::Listed(versions.iter().map(|version| (*version).to_owned()).collect())
}

fn record(to: &str, hop: &str, proven_on: &[&str]) -> UpgradeRecord {
    let gates = proven_on
        .iter()
        .flat_map(|version| {
            [Hook::AfterControlPlaneUpgrade, Hook::BeforeWorkersUpgrade].map(|hook| Gate {
                hook,
                version: (*version).into(),
                open: true,
                reason: String::new(),
                message: String::new(),
                overridden_by: None,
            })
        })
        .collect();
    UpgradeRecord {
        to: to.into(),
        hop: Some(hop.into()),
        gates,
        ..UpgradeRecord::default()
    }
}

#[rstest]
#[case::not_there("", "", V35, false)]
#[case::being_created(V35, "", V35, true)]
#[case::created_at_the_version_of_before(V34, "", V34, true)]
#[case::settled_at_the_target(V35, V35, V35, true)]
#[case::next(V34, V34, V35, false)]
#[case::taking_it(V35, V34, V35, true)]
#[case::taking_a_version_that_is_not_the_target(V34, "v1.33.9", V34, true)]
fn the_hop_of_one_minor(#[case] spec: &str, #[case] status: &str, #[case] hop: &str, #[case] taken: bool) {
    let found = progress(Some(&at(spec, status)), &[], V35, &Plan::Direct, None);
    assert_eq!(
        (found.hop.as_str(), found.taken, found.direction),
        (hop, taken, UpgradeDirection::Forward)
    );
}

/// A MachinePool that is scaled looks like one that is upgraded, and so does a MachineDeployment with the status of other replicas. Without the hop, the gates of its version would be missing from the record.
#[rstest]
#[case::upgrade_before(None, V35)]
#[case::hop_of_another_target(Some(record(V37, V36, &[V35])), V35)]
#[case::begun_hop(Some(record(V36, V36, &[V35])), V36)]
#[case::begun_hop_of_a_chain(Some(record(V37, V36, &[V35])), V36)]
#[case::hop_that_is_reached(Some(record(V36, V35, &[V35])), V35)]
fn workers_that_may_be_scaled_delay_no_hop_that_has_begun(
    #[case] previous: Option<UpgradeRecord>,
    #[case] hop: &str,
) {
    let to = match &previous {
        Some(previous) if hop == V36 => previous.to.clone(),
        _ => V36.to_owned(),
    };
    let pool = WorkerFacts {
        is_pool: true,
        ..worker(V35, true)
    };
    let hop_with = |workers: &[WorkerFacts]| {
        let control_plane = at(V35, V35);
        progress(
            Some(&control_plane),
            workers,
            &to,
            &list(&[V36, V37]),
            previous.as_ref(),
        )
        .hop
    };
    let mut just_scaled = worker(V35, true);
    just_scaled.rollout.is_outdated = true;
    let upgraded = worker(V35, true);
    assert_eq!(hop_with(&[pool]), hop);
    let kept = hop_with(std::slice::from_ref(&just_scaled));
    assert_eq!(kept, hop, "a MachineDeployment with an earlier status");
    assert_eq!(
        hop_with(&[just_scaled, upgraded.clone()]),
        V35,
        "another one is upgraded"
    );
    assert_eq!(hop_with(&[upgraded]), V35, "it is upgraded");
}

#[test]
fn the_stage_is_the_version_of_the_api_server() {
    assert_eq!(progress(None, &[], V35, &Plan::Direct, None).stage(), None);
    assert_eq!(
        progress(Some(&at(V35, "")), &[], V35, &Plan::Direct, None).stage(),
        None
    );
    assert_eq!(
        progress(Some(&at(V35, V34)), &[], V35, &Plan::Direct, None).stage(),
        Some(V34)
    );
    assert_eq!(
        progress(Some(&at(V35, V35)), &[], V35, &Plan::Direct, None).stage(),
        Some(V35)
    );
}

/// A reverted version, an image of a later patch, or a build of the version; Cluster API treats none of them as an upgrade.
#[rstest]
#[case::later_patch("v1.35.4", "v1.35.5", true)]
#[case::release_after_its_candidate("v1.36.0-rc.1", "v1.36.0", true)]
#[case::earlier_patch("v1.35.4", "v1.35.3", false)]
#[case::later_minor("v1.35.4", "v1.36.4", true)]
#[case::earlier_minor("v1.35.4", "v1.34.9", false)]
#[case::suffix("v1.35.4", "v1.35.4+k0s", true)]
#[case::pre_release("v1.35.4", "v1.35.4-eks-abc", false)]
#[case::later_build("v1.35.4+vmware.1", "v1.35.4+vmware.2", true)]
#[case::earlier_build("v1.35.4+vmware.2", "v1.35.4+vmware.1", false)]
#[case::unreadable("v1.35.4", "latest", false)]
fn a_control_plane_that_runs_a_later_version_is_settled(
    #[case] spec: &str,
    #[case] status: &str,
    #[case] settled: bool,
) {
    let found = progress(Some(&at(spec, status)), &[], spec, &Plan::Direct, None);
    assert_eq!(found.settled_at(), settled.then_some(spec));
    assert_eq!(found.settled_at_hop(), settled);
    assert_eq!(found.stage(), Some(if settled { spec } else { status }));
}

/// Providers report builds of a version. Packages were proven on the version itself, and are not deployed again while it is left.
#[rstest]
#[case::recorded("v1.35.4+k0s", Some(V35), "v1.34.4", "v1.35.4")]
#[case::of_workers("v1.35.4+k0s", None, V35, "v1.35.4")]
#[case::a_later_build("v1.35.4+vmware.2", Some("v1.35.4+vmware.1"), V34, "v1.35.4+vmware.1")]
#[case::the_reported_one("v1.35.4+k0s", Some("v1.35.4+k0s"), V35, "v1.35.4+k0s")]
#[case::an_earlier_build("v1.35.4", Some("v1.35.4+vmware.1"), V34, "v1.35.4")]
#[case::another_patch("v1.35.5", Some(V35), V35, "v1.35.5")]
#[case::unknown("v1.35.4+k0s", None, V34, "v1.35.4+k0s")]
fn the_stage_stays_while_the_control_plane_leaves_it(
    #[case] status: &str,
    #[case] from: Option<&str>,
    #[case] workers_at: &str,
    #[case] stage: &str,
) {
    let previous = UpgradeRecord {
        from: from.map(str::to_owned),
        ..record(V36, V36, &[])
    };
    let workers = [worker(workers_at, false)];
    let found = progress(
        Some(&at(V36, status)),
        &workers,
        V36,
        &Plan::Direct,
        Some(&previous),
    );
    assert_eq!(found.stage(), Some(stage));
    let passed = record(V36, V36, &[stage]);
    let found = progress(Some(&at(V36, status)), &[], V36, &Plan::Direct, Some(&passed));
    assert_eq!(found.stage(), Some(stage), "of a hop");
}

#[rstest]
#[case::one_per_minor(&[V34, V35, V36], V34, V36, V35)]
#[case::last_of_the_minor(&[V34, "v1.35.1", V35, V36], V34, V36, V35)]
#[case::patches_of_the_old_minor_are_skipped(&[V34, "v1.34.9", V35, V36], V34, V36, V35)]
#[case::within_one_minor(&["v1.36.1", "v1.36.2", V36], "v1.36.1", V36, V36)]
#[case::nothing_beyond_the_target(&[V35, V36, V37], V35, V36, V36)]
#[case::later_patch_of_the_target_minor(&[V35, "v1.36.1", V36], V35, "v1.36.1", "v1.36.1")]
#[case::empty(&[], V35, V36, V36)]
#[case::unreadable(&["latest"], V35, V36, V36)]
#[case::other_build_of_the_same_release(&["v1.35.4+a", "v1.35.4+b"], "v1.35.4+a", "v1.35.4+b", "v1.35.4+b")]
fn the_first_step_is_the_one_that_cluster_api_takes(
    #[case] plan: &[&str],
    #[case] from: &str,
    #[case] to: &str,
    #[case] hop: &str,
) {
    let plan = list(plan);
    assert_eq!(progress(Some(&at(from, from)), &[], to, &plan, None).hop, hop);
}

#[test]
fn a_hop_is_proven_on_its_own_api_server_before_the_next_begins() {
    let plan = list(&[V34, V35, V36]);
    let settled = at(V35, V35);
    let hop = |previous: &UpgradeRecord| progress(Some(&settled), &[], V36, &plan, Some(previous)).hop;
    assert_eq!(hop(&record(V36, V35, &[])), V35);
    assert_eq!(hop(&record(V36, V35, &[V34])), V35);
    assert_eq!(hop(&record(V36, V35, &[V35])), V36);
}

#[test]
fn a_hop_whose_workers_may_not_go_yet_is_not_left() {
    let plan = list(&[V34, V35, V36]);
    let mut previous = record(V36, V35, &[V35]);
    previous
        .gates
        .retain(|gate| gate.hook != Hook::BeforeWorkersUpgrade);
    assert_eq!(
        progress(Some(&at(V35, V35)), &[], V36, &plan, Some(&previous)).hop,
        V35
    );
}

#[test]
fn a_new_target_does_not_wait_for_the_proof_of_the_old_one() {
    let previous = record(V35, V35, &[]);
    assert_eq!(
        progress(Some(&at(V35, V35)), &[], V36, &Plan::Direct, Some(&previous)).hop,
        V36
    );
}

#[test]
fn a_completed_record_starts_at_the_first_step() {
    let previous = UpgradeRecord {
        outcome: Some(Outcome::Completed),
        ..record(V35, V35, &[])
    };
    assert_eq!(
        progress(Some(&at(V35, V35)), &[], V36, &Plan::Direct, Some(&previous)).hop,
        V36
    );
}

#[rstest]
#[case::three_behind(V35, V38, V38, true)]
#[case::two_behind("v1.36.0", V38, V38, false)]
#[case::three_behind_in_the_last_minor(V34, V37, "v1.37.1", false)]
fn workers_follow_when_the_skew_is_used_up(
    #[case] workers_at: &str,
    #[case] control_plane_at: &str,
    #[case] to: &str,
    #[case] first: bool,
) {
    let to = if to == control_plane_at { "v1.39.0" } else { to };
    let found = progress(
        Some(&at(control_plane_at, control_plane_at)),
        &[worker(workers_at, false)],
        to,
        &Plan::Direct,
        None,
    );
    assert_eq!(found.hop == control_plane_at, first, "{found:?}");
}

#[test]
fn workers_on_their_way_to_the_version_are_waited_for() {
    let settled = at(V35, V35);
    let hop = |workers: &[WorkerFacts]| progress(Some(&settled), workers, V36, &Plan::Direct, None).hop;
    assert_eq!(hop(&[worker(V35, true), worker(V34, false)]), V35);
    assert_eq!(hop(&[worker(V35, false), worker(V34, false)]), V36);
    assert_eq!(hop(&[worker(V34, true)]), V36);
}

#[test]
fn a_target_moved_back_cancels_and_packages_stay() {
    let settled = at(V34, V34);
    let previous = record(V35, V35, &[]);
    let found = progress(Some(&settled), &[], V34, &Plan::Direct, Some(&previous));
    assert_eq!(
        (found.hop.as_str(), found.direction, found.taken),
        (V35, UpgradeDirection::Cancelled, false)
    );

    let cancelled = UpgradeRecord {
        to: V34.into(),
        outcome: Some(Outcome::Cancelled),
        ..previous
    };
    assert_eq!(
        progress(Some(&settled), &[], V34, &Plan::Direct, Some(&cancelled)),
        found
    );
}

#[test]
fn a_target_moved_back_to_a_hop_that_the_control_plane_took_is_a_shorter_upgrade() {
    let previous = record(V36, V35, &[]);
    let found = progress(Some(&at(V35, V35)), &[], V35, &Plan::Direct, Some(&previous));
    assert_eq!(
        (found.hop.as_str(), found.direction),
        (V35, UpgradeDirection::Forward)
    );
}

#[test]
fn a_target_below_the_control_plane_leads_nowhere() {
    let found = progress(Some(&at(V35, V35)), &[], V34, &Plan::Direct, None);
    assert_eq!(
        (found.hop.as_str(), found.direction),
        (V35, UpgradeDirection::Downgrade)
    );
}

#[test]
fn without_a_record_the_next_step_is_taken() {
    let plan = list(&[V34, V35, V36]);
    assert_eq!(
        progress(Some(&at(V35, V35)), &[worker(V34, false)], V36, &plan, None).hop,
        V36
    );
}

#[rstest]
#[case::not_asked_yet(V34, &[], &[], V36, UpgradeDirection::PlanUnknown)]
#[case::of_an_earlier_target(V34, &[V35], &[V35], V36, UpgradeDirection::PlanUnknown)]
#[case::first(V34, &[V35, V36], &[V35, V36], V35, UpgradeDirection::Forward)]
#[case::workers_take_it_too(V35, &[V36], &[V35, V36], V35, UpgradeDirection::Forward)]
#[case::seen_late(V35, &[V35, V36], &[V36], V36, UpgradeDirection::Forward)]
#[case::last(V35, &[V36], &[V36], V36, UpgradeDirection::Forward)]
fn steps_that_an_extension_has_planned(
    #[case] version: &str,
    #[case] control_plane: &[&str],
    #[case] workers: &[&str],
    #[case] hop: &str,
    #[case] direction: UpgradeDirection,
) {
    let owned = |versions: &[&str]| versions.iter().map(|version| (*version).to_owned()).collect();
    let plan = Plan::Given {
        control_plane: owned(control_plane),
        workers: owned(workers),
    };
    let found = progress(
        Some(&at(version, version)),
        &[worker(V34, false)],
        V36,
        &plan,
        None,
    );
    assert_eq!((found.hop.as_str(), found.direction), (hop, direction));
    let found = progress(Some(&at(version, version)), &[], V36, &plan, None);
    assert_ne!(found.hop, version, "without workers none is waited for");
}

/// Cluster API permits a step between two builds of a release, also if they have no order.
#[rstest]
#[case::later_build("v1.36.3+vmware.1", "v1.36.3+vmware.2")]
#[case::builds_without_an_order("v1.36.3+k3s2", "v1.36.3+k3s1")]
fn an_extension_may_plan_another_build(#[case] version: &str, #[case] to: &str) {
    let plan = Plan::Given {
        control_plane: vec![to.to_owned()],
        workers: Vec::new(),
    };
    let found = progress(Some(&at(version, version)), &[], to, &plan, None);
    assert_eq!(
        (found.hop.as_str(), found.direction),
        (to, UpgradeDirection::Forward)
    );
}

proptest! {
    /// From any settled version the plan leads to the target, one minor at a time.
    #[test]
    fn the_steps_lead_to_the_target(
        from in 20_u64..30,
        ahead in 1_u64..8,
        patches in prop::collection::vec(1_u64..4, 12),
    ) {
        let listed: Vec<String> = (0..12)
            .flat_map(|minor| (0..patches[minor]).map(move |patch| format!("v1.{}.{patch}", 20 + minor)))
            .collect();
        let to = format!("v1.{}.0", (from + ahead).min(31));
        let mut version = format!("v1.{from}.0");
        for _ in 0..20 {
            let next = progress(Some(&at(&version, &version)), &[], &to, &Plan::Listed(listed.clone()), None).hop;
            if same(&version, &to) {
                prop_assert_eq!(&next, &to);
                return Ok(());
            }
            let (before, after) = (version.parse::<KubernetesVersion>().unwrap(), next.parse::<KubernetesVersion>().unwrap());
            prop_assert_eq!(after.minors_ahead_of(&before), 1);
            prop_assert!(reached(&to, &next));
            version = next;
        }
        prop_assert!(false, "never reached {}", to);
    }

    #[test]
    fn progress_takes_whatever_it_is_given(spec in ".{0,12}", status in ".{0,12}", to in ".{0,12}", plan in prop::collection::vec(".{0,12}", 0..3)) {
        let found = progress(Some(&at(&spec, &status)), &[worker(&spec, true)], &to, &Plan::Listed(plan), None);
        prop_assert_eq!(found.taken, !spec.is_empty() && same(&spec, &found.hop));
    }
}
