//! Rollback of a cancelled upgrade, from the merge of its packages to the one update that restores those from before it.

use std::sync::Arc;

use kube::ResourceExt as _;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    labels::{annotation, label, name},
    run::{ClusterBootstrap, ClusterBootstrapSpec, Outcome, Rollback, SCHEMA, UpgradeRecord},
};

use super::super::{
    Interrupt, Step, draft,
    validate::{Validated, validate},
};
use crate::{
    packages::bootstrap::{Draft, Snapshot},
    protocol::{Verb, Write},
    reasons::{GateReason, Hold},
    upgrade::{
        hop::ControlPlaneFacts,
        rollback::{Decision, no_snapshot},
    },
    upgrade_plan::tests::world::{
        ANTREA, FROM, KAPP, METRICS, OTHER_RELEASE, RELEASES, TO, VERSIONS, World, typed,
    },
};

type Edit = fn(&mut World);

/// Index of the release that was merged for the first step.
const HOP: usize = 2;
/// Another release of the Kubernetes version of [`HOP`].
const REPAIRED: &str = "v1.35.4---test.2";

fn validated(world: &World) -> Validated {
    let (validated, _) = world.evaluate(validate);
    validated.unwrap()
}

fn problem(world: &World) -> Option<GateReason> {
    validated(world).problem.map(|hold| hold.reason)
}

/// Result of the write of the ClusterBootstrap.
fn changed(world: &World) -> Step<(Option<ClusterBootstrap>, Option<Hold>, Option<Hold>)> {
    let (changed, _) = world.evaluate(|context| draft::changed(context, &validate(context)?));
    changed
}

/// Returns the only write.
fn written(world: &World) -> Write {
    match changed(world) {
        Err(Interrupt::Write(mut writes)) if writes.len() == 1 => writes.remove(0),
        other => panic!("{other:?}"),
    }
}

/// Returns the hold of a ClusterBootstrap that is not written.
fn held(world: &World) -> Hold {
    match changed(world) {
        Ok((Some(_), Some(hold), _)) => hold,
        other => panic!("{other:?}"),
    }
}

fn snapshot_of(draft: &Draft) -> Option<Snapshot> {
    let text = draft.snapshot.as_ref()?;
    Some(serde_json::from_str(text).unwrap())
}

/// Stores a draft as its update does.
fn store(world: &mut World, release: &str, draft: &Draft) {
    world.edit_bootstrap(|bootstrap| {
        bootstrap.spec = draft.spec.clone();
        let annotations = bootstrap.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::RESOLVED_TKR.to_owned(), release.to_owned());
        let snapshot = draft.snapshot.clone();
        annotations.extend(snapshot.map(|snapshot| (annotation::ROLLBACK_TO.to_owned(), snapshot)));
    });
}

/// Merges the packages of the next hop.
fn merge(world: &mut World) -> Draft {
    let validated = validated(world);
    let draft = validated.change.unwrap();
    store(world, &validated.release.unwrap(), &draft);
    draft
}

fn set_record(world: &mut World, record: UpgradeRecord) {
    let record = UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: "uid".to_owned(),
        label: world.facts.label.clone(),
        ..record
    };
    world.edit_bootstrap(|bootstrap| bootstrap.status.get_or_insert_default().upgrade = Some(record));
}

/// Sets the generation of the Cluster that Cluster API has reconciled. The present one is 8.
fn set_observed(world: &mut World, generation: i64) {
    let cluster = Arc::make_mut(&mut world.facts.cluster);
    cluster.metadata.generation = Some(8);
    cluster.status = Some(typed(json!({
        "conditions": [{"type": "TopologyReconciled", "status": "True", "observedGeneration": generation}],
    })));
}

fn closed(hop: usize) -> UpgradeRecord {
    UpgradeRecord {
        from: Some(VERSIONS[FROM].to_owned()),
        to: VERSIONS[FROM].to_owned(),
        hop: Some(VERSIONS[hop].to_owned()),
        tkr: Some(RELEASES[hop].to_owned()),
        outcome: Some(Outcome::Cancelled),
        ..UpgradeRecord::default()
    }
}

fn rollback(hop: usize) -> Rollback {
    Rollback {
        hop: VERSIONS[hop].to_owned(),
        release: RELEASES[FROM].to_owned(),
    }
}

/// Cluster with the packages of the first step, whose version and label were moved back.
fn cancelled() -> World {
    let mut world = World::new();
    merge(&mut world);
    world.set_target(FROM);
    set_observed(&mut world, 8);
    world.edit_bootstrap(|bootstrap| {
        bootstrap.spec.upgrade_policy = Some(typed(json!({"onCancel": "Rollback"})));
    });
    set_record(&mut world, closed(HOP));
    world
}

/// The same once its rollback is recorded.
fn recorded() -> World {
    let mut world = cancelled();
    let record = UpgradeRecord {
        hop: Some(VERSIONS[FROM].to_owned()),
        tkr: Some(RELEASES[FROM].to_owned()),
        outcome: None,
        rollback: Some(rollback(HOP)),
        ..closed(HOP)
    };
    set_record(&mut world, record);
    world
}

fn annotate(world: &mut World, snapshot: &str) {
    world.edit_bootstrap(|bootstrap| {
        let annotations = bootstrap.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::ROLLBACK_TO.to_owned(), snapshot.to_owned());
    });
}

/// Edits the snapshot of the ClusterBootstrap.
fn edit_snapshot(world: &mut World, edit: impl FnOnce(&mut Value)) {
    let bootstrap = world.facts.bootstrap.as_deref().unwrap();
    let text = &bootstrap.metadata.annotations.as_ref().unwrap()[annotation::ROLLBACK_TO];
    let mut snapshot: Value = serde_json::from_str(text).unwrap();
    edit(&mut snapshot);
    annotate(world, &snapshot.to_string());
}

fn names(spec: &ClusterBootstrapSpec) -> Vec<String> {
    let packages = crate::packages::bootstrap::packages(spec);
    packages
        .into_iter()
        .map(|(_, package)| package.ref_name.clone())
        .collect()
}

fn named(packages: &[(&str, &str)]) -> Vec<String> {
    let name = |(ref_name, version): &(&str, &str)| format!("{ref_name}.{version}");
    packages.iter().map(name).collect()
}

#[test]
fn the_update_that_merges_a_release_writes_the_snapshot() {
    let world = World::new();
    let draft = validated(&world).change.unwrap();
    let snapshot = snapshot_of(&draft).unwrap();
    assert_eq!(
        (snapshot.version.as_str(), snapshot.release.as_str()),
        (VERSIONS[FROM], RELEASES[FROM])
    );
    let known: Vec<&str> = snapshot
        .packages
        .values()
        .map(|package| package.name.as_str())
        .collect();
    assert_eq!(known, [format!("{ANTREA}.1.8.0"), format!("{KAPP}.0.52.0")]);
    let write = written(&world);
    assert_eq!(
        (write.verb, &*write.key.resource.kind),
        (Verb::Replace, "ClusterBootstrap")
    );
    let annotations = &write.body["metadata"]["annotations"];
    assert_eq!(annotations[annotation::RESOLVED_TKR], RELEASES[HOP]);
    assert_eq!(
        annotations[annotation::ROLLBACK_TO].as_str(),
        draft.snapshot.as_deref()
    );
    assert_eq!(write.body["spec"]["cni"]["refName"], format!("{ANTREA}.1.9.0"));
}

#[rstest]
#[case::of_the_same_hop(|_: &mut World| {})]
#[case::after_an_earlier_upgrade(|world: &mut World| complete(world, None))]
fn a_repaired_release_keeps_the_snapshot(#[case] edit: Edit) {
    let mut world = World::new();
    world.set_target(HOP);
    let first = merge(&mut world);
    assert!(first.snapshot.is_some());
    world.add_release(REPAIRED, 3);
    REPAIRED.clone_into(&mut world.facts.label);
    edit(&mut world);
    let second = validated(&world).change.unwrap();
    assert_ne!(second.spec, first.spec);
    assert_eq!(second.snapshot, None, "the present one stays");
    let body = written(&world).body;
    assert_eq!(
        body["metadata"]["annotations"][annotation::ROLLBACK_TO].as_str(),
        first.snapshot.as_deref()
    );
}

/// An earlier version of Sluice has merged the first release of the hop.
#[test]
fn packages_of_the_hop_are_no_snapshot() {
    let mut world = World::new();
    world.set_target(HOP);
    merge(&mut world);
    world.edit_bootstrap(|bootstrap| {
        bootstrap.annotations_mut().remove(annotation::ROLLBACK_TO);
    });
    world.add_release(REPAIRED, 3);
    REPAIRED.clone_into(&mut world.facts.label);
    assert_eq!(validated(&world).change.unwrap().snapshot, None);
    let body = written(&world).body;
    assert!(body["metadata"]["annotations"][annotation::ROLLBACK_TO].is_null());
}

/// Adds a completed upgrade to the history.
fn complete(world: &mut World, release: Option<&str>) {
    let past = json!({
        "from": VERSIONS[0], "to": VERSIONS[FROM], "toRelease": release, "began": "2026-01-01T00:00:00Z",
        "ended": "2026-01-01T01:00:00Z", "outcome": "Completed",
    });
    world.edit_bootstrap(|bootstrap| {
        bootstrap.status.get_or_insert_default().history = vec![typed(past)];
    });
}

/// Another release of the version has become the one from before the upgrade.
#[rstest]
#[case::by_history(|world: &mut World| complete(world, Some(OTHER_RELEASE)))]
#[case::by_its_record(|world: &mut World| {
    let record = UpgradeRecord {
        tkr: Some(OTHER_RELEASE.to_owned()),
        outcome: Some(Outcome::Completed),
        ..closed(FROM)
    };
    set_record(world, record);
})]
fn a_completed_swap_replaces_the_snapshot(#[case] edit: Edit) {
    let mut world = World::new();
    world.swap();
    world.set_machines(RELEASES[FROM]);
    let swap = merge(&mut world);
    assert_eq!(snapshot_of(&swap).unwrap().release, RELEASES[FROM]);
    world.facts.topology.variables = typed(json!([]));
    edit(&mut world);
    world.set_target(HOP);
    let snapshot = snapshot_of(&validated(&world).change.unwrap()).unwrap();
    assert_eq!(snapshot.release, OTHER_RELEASE);
    assert!(snapshot.packages.contains_key(METRICS));
}

#[test]
fn the_snapshot_of_an_earlier_step_is_replaced() {
    let mut world = World::new();
    merge(&mut world);
    world.set_control_plane(HOP, HOP);
    world.set_workers(HOP);
    let second = validated(&world);
    assert_eq!(second.progress.hop, VERSIONS[3]);
    let snapshot = snapshot_of(&second.change.unwrap()).unwrap();
    assert_eq!(
        (snapshot.version.as_str(), snapshot.release.as_str()),
        (VERSIONS[HOP], RELEASES[HOP])
    );
}

#[test]
fn nothing_is_written_before_the_rollback_is_recorded() {
    let world = cancelled();
    let found = validated(&world);
    assert_eq!(found.rollback, Decision::RollsBack(rollback(HOP)));
    assert_eq!(found.release.as_deref(), Ok(RELEASES[FROM]));
    assert!(found.progress.settled_at_hop());
    assert_eq!(held(&world).reason, GateReason::RollbackInProgress);
}

#[test]
fn one_update_restores_the_packages() {
    let mut world = recorded();
    let write = written(&world);
    assert_eq!(
        (write.verb, &*write.key.resource.kind),
        (Verb::Replace, "ClusterBootstrap")
    );
    let annotations = &write.body["metadata"]["annotations"];
    assert_eq!(annotations[annotation::RESOLVED_TKR], RELEASES[FROM]);
    let spec: ClusterBootstrapSpec = typed(write.body["spec"].clone());
    // The release added the last one.
    assert_eq!(
        names(&spec),
        named(&[(KAPP, "0.52.0"), (ANTREA, "1.8.0"), (METRICS, "1.0.0")])
    );

    let draft = validated(&world).change.unwrap();
    assert_eq!(
        (&draft.spec, &draft.snapshot, draft.clones.len()),
        (&spec, &None, 0)
    );
    store(&mut world, RELEASES[FROM], &draft);
    let after = validated(&world);
    assert_eq!(after.rollback, Decision::RollsBack(rollback(HOP)));
    assert_eq!((after.change, after.problem), (None, None), "once");
}

#[test]
fn a_cancelled_swap_goes_back_as_well() {
    let mut world = World::new();
    world.swap();
    world.set_machines(RELEASES[FROM]);
    merge(&mut world);
    world.set_target(FROM);
    set_observed(&mut world, 8);
    world.edit_bootstrap(|bootstrap| {
        bootstrap.spec.upgrade_policy = Some(typed(json!({"onCancel": "Rollback"})));
    });
    set_record(&mut world, closed(FROM));
    let found = validated(&world);
    assert_eq!(found.rollback, Decision::RollsBack(rollback(FROM)));
    assert_eq!(found.release.as_deref(), Ok(RELEASES[FROM]));
    assert!(!found.swap.is_requested());
    let expected = named(&[(KAPP, "0.52.0"), (ANTREA, "1.8.0"), (METRICS, "1.0.0")]);
    assert_eq!(names(&found.change.unwrap().spec), expected);
}

#[rstest]
#[case::policy(|world: &mut World| {
    world.edit_bootstrap(|bootstrap| bootstrap.spec.upgrade_policy = None);
})]
#[case::not_observed(|world: &mut World| set_observed(world, 7))]
#[case::another_release(|world: &mut World| {
    edit_snapshot(world, |snapshot| snapshot["release"] = json!(RELEASES[0]));
})]
#[case::another_package(|world: &mut World| {
    edit_snapshot(world, |snapshot| snapshot["packages"][ANTREA]["name"] = json!(format!("{METRICS}.1.0.0")));
})]
#[case::malformed(|world: &mut World| annotate(world, "{"))]
#[case::too_large(|world: &mut World| annotate(world, &" ".repeat(100_000)))]
#[case::without_an_image(|world: &mut World| {
    let data = json!([{"name": name::TKR_DATA, "value": {VERSIONS[FROM]: {"labels": {label::TKR: OTHER_RELEASE}}}}]);
    world.facts.topology.variables = typed(data);
})]
fn packages_of_a_cancelled_upgrade_stay(#[case] edit: Edit) {
    let mut world = cancelled();
    edit(&mut world);
    let found = validated(&world);
    assert_eq!(found.rollback.under_way(), None);
    assert_eq!((found.change, found.problem), (None, None));
    assert_eq!(
        found.release.as_deref(),
        Ok(RELEASES[HOP]),
        "as without a rollback"
    );
}

/// Holds of a rollback that has begun. Nothing is written, also not to the other packages.
#[rstest]
#[case::old_package_gone(
    |world: &mut World| world.remove_package(&format!("{ANTREA}.1.8.0")),
    GateReason::PackageNotFound
)]
#[case::old_release_gone(|world: &mut World| world.remove_release(FROM), GateReason::TKRNotFound)]
#[case::old_release_legacy(
    |world: &mut World| world.label_release(RELEASES[FROM], label::LEGACY_TKR),
    GateReason::TKRLegacy
)]
#[case::snapshot_removed(
    |world: &mut World| world.edit_bootstrap(|bootstrap| {
        bootstrap.metadata.annotations.get_or_insert_default().remove(annotation::ROLLBACK_TO);
    }),
    no_snapshot().reason
)]
#[case::snapshot_of_another_release(
    |world: &mut World| edit_snapshot(world, |snapshot| snapshot["release"] = json!(RELEASES[0])),
    no_snapshot().reason
)]
#[case::snapshot_malformed(|world: &mut World| annotate(world, "[]"), no_snapshot().reason)]
#[case::control_plane_without_status(
    |world: &mut World| {
        world.facts.control_plane.as_mut().unwrap().versions.status_version = None;
    },
    GateReason::RollbackInProgress
)]
#[case::control_plane_unknown(|world: &mut World| world.facts.control_plane = None, GateReason::RollbackInProgress)]
fn a_rollback_is_held(#[case] edit: Edit, #[case] reason: GateReason) {
    let mut world = recorded();
    edit(&mut world);
    assert_eq!(problem(&world), Some(reason));
    assert_eq!(validated(&world).change, None);
    assert_eq!(held(&world).reason, reason);
}

/// The release that machines run, whatever became of it.
#[rstest]
#[case::deactivated(|world: &mut World| world.label_release(RELEASES[FROM], label::DEACTIVATED))]
#[case::incompatible(|world: &mut World| world.label_release(RELEASES[FROM], label::INCOMPATIBLE))]
#[case::invalid(|world: &mut World| world.label_release(RELEASES[FROM], label::INVALID))]
#[case::management_package(|world: &mut World| world.require(FROM, "tkg-clusterclass.example.com>=1.0.0"))]
#[case::excluded(|world: &mut World| world.constrain(&format!("{ANTREA}.1.8.0"), "<1.0.0"))]
#[case::template_gone(|world: &mut World| world.remove_template(FROM))]
#[case::cancelled_template_gone(|world: &mut World| world.remove_template(HOP))]
#[case::cancelled_release_gone(|world: &mut World| world.remove_release(HOP))]
fn a_rollback_needs_only_its_packages(#[case] edit: Edit) {
    let mut world = recorded();
    edit(&mut world);
    assert_eq!(problem(&world), None);
    written(&world);
}

/// A write that the cache does not show yet: the control plane is about to take the version.
#[rstest]
#[case::spec(HOP, FROM)]
#[case::taken(HOP, HOP)]
fn the_control_plane_is_read_before_packages_go_back(#[case] desired: usize, #[case] current: usize) {
    let mut world = recorded();
    let version = |index: usize| Some(VERSIONS[index].to_owned());
    world.read_control_plane = Some(ControlPlaneFacts {
        spec_version: version(desired),
        status_version: version(current),
    });
    assert_eq!(held(&world).reason, GateReason::CacheOutdated);
}

/// Its packages go up again, and the gates after the step wait for them.
#[test]
fn a_hop_that_is_taken_all_the_same_gets_its_packages_again() {
    let mut world = recorded();
    let back = validated(&world).change.unwrap();
    store(&mut world, RELEASES[FROM], &back);
    world.set_control_plane(HOP, FROM);
    let found = validated(&world);
    assert!(
        matches!(found.rollback, Decision::Refused(_)),
        "{:?}",
        found.rollback
    );
    assert_eq!(found.release.as_deref(), Ok(RELEASES[HOP]));
    let draft = found.change.unwrap();
    let expected = named(&[(KAPP, "0.52.0"), (ANTREA, "1.9.0"), (METRICS, "1.0.0")]);
    assert_eq!(names(&draft.spec), expected);
}

#[test]
fn an_upgrade_that_begins_again_merges_again() {
    let mut world = recorded();
    world.set_target(TO);
    assert_eq!(validated(&world).change, None, "its packages are still there");
    let mut world = recorded();
    let back = validated(&world).change.unwrap();
    store(&mut world, RELEASES[FROM], &back);
    world.set_target(TO);
    let draft = validated(&world).change.unwrap();
    let snapshot = snapshot_of(&draft).unwrap();
    assert_eq!(snapshot.release, RELEASES[FROM]);
    assert_eq!(snapshot.packages[ANTREA].name, format!("{ANTREA}.1.8.0"));
}

#[test]
fn a_package_that_never_goes_back_stays() {
    let mut world = recorded();
    let catalogue = Arc::make_mut(&mut world.facts.catalogue);
    catalogue.get_mut(&format!("{ANTREA}.1.9.0")).unwrap().stays = true;
    let expected = named(&[(KAPP, "0.52.0"), (ANTREA, "1.9.0"), (METRICS, "1.0.0")]);
    assert_eq!(names(&validated(&world).change.unwrap().spec), expected);
}

/// Users fix packages while an upgrade is held.
#[test]
fn values_that_were_edited_stay() {
    let mut world = recorded();
    edit_snapshot(&mut world, |snapshot| {
        snapshot["packages"][ANTREA]["values"] = json!(true);
    });
    world.edit_bootstrap(|bootstrap| {
        let cni = bootstrap.spec.cni.as_mut().unwrap();
        cni.values_from = Some(typed(json!({"secretRef": "edited"})));
    });
    let cni = validated(&world).change.unwrap().spec.cni.unwrap();
    assert_eq!(cni.ref_name, format!("{ANTREA}.1.8.0"));
    assert_eq!(
        cni.values_from.and_then(|from| from.secret_ref).as_deref(),
        Some("edited")
    );
}
