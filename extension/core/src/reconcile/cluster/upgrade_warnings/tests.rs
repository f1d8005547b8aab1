use std::sync::Arc;

use rstest::rstest;
use serde_json::json;
use sluice_crds::run::{
    ClusterBootstrap, ClusterBootstrapSpec, ClusterBootstrapStatus, Gate, Outcome, SCHEMA,
};

use super::*;
use crate::{
    reconcile::cluster::{
        Facts, Failure, LocalState, Server,
        tests::{clock, facts},
        workload::Reach,
    },
    upgrade_plan::workload::List,
};

const HOP: &str = "v1.36.3";
const POD: (&str, &str) = (
    "PodWithoutController",
    "v1.36.3: Pod shop/once has no controller: a drain deletes it for good",
);
const NOT_ALL: (&str, &str) = ("ObjectsNotChecked", "v1.36.3: not all objects were checked");

fn record(hop: &str, open: bool) -> UpgradeRecord {
    UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: "uid".to_owned(),
        from: Some("v1.34.4".to_owned()),
        to: HOP.to_owned(),
        hop: Some(hop.to_owned()),
        gates: vec![Gate {
            hook: Hook::BeforeClusterUpgrade,
            version: hop.to_owned(),
            open,
            reason: String::new(),
            message: String::new(),
            overridden_by: None,
        }],
        ..UpgradeRecord::default()
    }
}

/// Returns the facts of a Cluster with this record.
fn recorded(record: Option<UpgradeRecord>) -> Facts {
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    bootstrap.status = Some(ClusterBootstrapStatus {
        upgrade: record,
        ..ClusterBootstrapStatus::default()
    });
    Facts {
        bootstrap: Some(Arc::new(bootstrap)),
        ..facts()
    }
}

fn reached(is_reached: bool) -> Packages {
    let mut packages = Packages::of(Vec::new(), None);
    packages.connected = true;
    if is_reached {
        packages.reach = Reach::Reached {
            uid: "workload".to_owned(),
        };
    }
    packages
}

/// Returns what a workload cluster with a Pod without a controller answers.
fn one_pod() -> WorkloadObjects {
    let mut objects = WorkloadObjects::default();
    let pod = json!({"metadata": {"name": "once", "namespace": "shop"}});
    let text = json!({"kind": "PodList", "items": [pod]}).to_string();
    objects.add(List::Pods, &text).unwrap();
    objects
}

fn listed(objects: WorkloadObjects) -> ReadResult {
    ReadResult::WorkloadObjects(Box::new(objects))
}

/// Returns the texts of the conditions.
fn texts(conditions: &[Condition]) -> Vec<String> {
    let text = |it: &Condition| format!("{} {} {}", it.type_, it.reason, it.message);
    conditions.iter().map(text).collect()
}

#[rstest]
#[case::held(Some(record(HOP, false)), record(HOP, false), false, true, true)]
#[case::not_recorded_yet(None, record(HOP, false), false, true, false)]
#[case::recorded_for_the_step_before(Some(record("v1.35.4", false)), record(HOP, false), false, true, false)]
#[case::opens(Some(record(HOP, false)), record(HOP, true), false, true, false)]
#[case::open(Some(record(HOP, true)), record(HOP, true), false, true, false)]
#[case::paused(Some(record(HOP, false)), record(HOP, false), true, true, false)]
#[case::unreached(Some(record(HOP, false)), record(HOP, false), false, false, false)]
#[case::over(
    Some(record(HOP, false)),
    UpgradeRecord { outcome: Some(Outcome::Cancelled), ..record(HOP, false) },
    false,
    true,
    false
)]
fn the_workload_is_read_while_the_first_gate_is_held(
    #[case] before: Option<UpgradeRecord>,
    #[case] next: UpgradeRecord,
    #[case] is_paused: bool,
    #[case] is_reached: bool,
    #[case] reads: bool,
) {
    let (facts, local) = (recorded(before), LocalState::default());
    let context = Context::new(&facts, &local, clock());
    let outcome = check(
        &context,
        &mut Effects::of(&local),
        is_paused,
        &next,
        &reached(is_reached),
    );
    let asks = match outcome {
        Ok(()) => Vec::new(),
        Err(Interrupt::Need(asks)) => asks,
        Err(other) => panic!("{other:?}"),
    };
    assert_eq!(asks, Vec::from_iter(reads.then_some(Read::WorkloadObjects)));
}

#[rstest]
#[case::warnings(listed(one_pod()), Some(POD))]
#[case::none(listed(WorkloadObjects::default()), None)]
#[case::incomplete(listed(WorkloadObjects::default().incomplete()), Some(NOT_ALL))]
#[case::refused(
    ReadResult::Failed(Failure::other(Server::Workload, "refused")),
    Some(NOT_ALL)
)]
fn each_step_is_checked_once(#[case] answer: ReadResult, #[case] warning: Option<(&str, &str)>) {
    let (facts, local) = (recorded(Some(record(HOP, false))), LocalState::default());
    let mut context = Context::new(&facts, &local, clock());
    context.record_answer(Read::WorkloadObjects, answer);
    let mut effects = Effects::of(&local);
    let next = record(HOP, false);
    check(&context, &mut effects, false, &next, &reached(true)).unwrap();
    let warned = warning.map(|(_, text)| Event::Warned(UPGRADE_WARNINGS, text.to_owned()));
    assert_eq!(effects.events, Vec::from_iter(warned));

    // The next reconcile neither reads nor warns again, and keeps what was found.
    let local = effects.local;
    let context = Context::new(&facts, &local, clock());
    let mut effects = Effects::of(&local);
    check(&context, &mut effects, false, &next, &reached(true)).unwrap();
    assert_eq!(effects.events, []);
    let warnings = effects.local.warnings.as_deref();
    let conditions = shown(Vec::new(), warnings, (facts.record(), &next), clock().now);
    let expected = warning.map(|(reason, text)| format!("UpgradeWarnings {reason} {text}"));
    assert_eq!(texts(&conditions), Vec::from_iter(expected));
}

#[rstest]
#[case::same_step(Some(record(HOP, false)), record(HOP, true), true)]
#[case::next_step(Some(record("v1.35.4", true)), record(HOP, false), false)]
#[case::of_an_earlier_cluster(None, record(HOP, false), false)]
#[case::ended(Some(record(HOP, true)), UpgradeRecord { outcome: Some(Outcome::Completed), ..record(HOP, true) }, false)]
fn the_condition_of_an_earlier_process_stays_for_its_step(
    #[case] before: Option<UpgradeRecord>,
    #[case] next: UpgradeRecord,
    #[case] stays: bool,
) {
    let now = clock().now;
    let conditions = with_upgrade_warnings(Vec::new(), Some(("NodeTooOld", "text")), now);
    let shown = shown(conditions.clone(), None, (before.as_ref(), &next), now);
    assert_eq!(shown, if stays { conditions } else { Vec::new() });
}

#[test]
fn warnings_of_a_step_are_dropped_after_it() {
    let warnings = Warnings {
        hop: "v1.35.4".to_owned(),
        said: Some(("NodeTooOld", "text".to_owned())),
    };
    let (before, next) = (record("v1.35.4", true), record(HOP, false));
    let now = clock().now;
    let during = shown(Vec::new(), Some(&warnings), (Some(&before), &before), now);
    assert_eq!(during.len(), 1);
    assert_eq!(shown(during, Some(&warnings), (Some(&before), &next), now), []);
}
