//! Requests that take version and label back to the release that machines run, whatever became of it.

use super::*;

const RUNNING: &str = "v1.35.4---a.10";

/// A Cluster with machines of [`RUNNING`], and its update to v1.36.3, which is held.
fn world() -> (World, Value, Value) {
    let mut world = World::new();
    let stored = world.made("v1.35", &json!([{"name": "b", "class": "photon"}]));
    world.runs("v1.35.4");
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let (bumped, _) = world.becomes(Some(&stored), &bumped);
    assert_eq!(label_of(&bumped), "v1.36.3---a.11");
    (world, stored, bumped)
}

type Change = fn(&mut World);

#[rstest]
#[case::unchanged(|_: &mut World| {})]
#[case::deactivated(|world: &mut World| world.label(RUNNING, label::DEACTIVATED))]
#[case::incompatible(|world: &mut World| world.label(RUNNING, label::INCOMPATIBLE))]
#[case::invalid(|world: &mut World| world.label(RUNNING, label::INVALID))]
#[case::without_images(|world: &mut World| world.images.retain(|name, _| !name.starts_with(RUNNING)))]
#[case::deleted(|world: &mut World| drop(world.releases.remove(RUNNING)))]
#[case::older_than_another_one(|world: &mut World| world.release("v1.35.4", 12, &["ubuntu", "photon"]))]
fn the_way_back_is_accepted(#[case] change: Change) {
    let (mut world, stored, bumped) = world();
    change(&mut world);
    // The whole manifest of before, and one that leaves the release to Sluice.
    let mut without_label = stored.clone();
    without_label["metadata"]["labels"] = json!({});
    let mut by_version = bumped.clone();
    by_version["spec"]["topology"]["version"] = json!("v1.35");
    for reverted in [&stored, &without_label, &by_version] {
        let (after, _) = world.becomes(Some(&bumped), reverted);
        assert_eq!(label_of(&after), RUNNING, "{reverted}");
        assert_eq!(after["spec"]["topology"]["version"], "v1.35.4");
        assert_eq!(common(&after, "v1.35.4"), format!("{RUNNING}-ubuntu"));
        assert_eq!(override_of(&after, 0, "v1.35.4"), format!("{RUNNING}-photon"));
        // Later updates, as by Cluster API, are accepted too.
        assert_eq!(world.becomes(Some(&after), &after).0, after);
    }
}

/// A deleted release has no images for other machines.
#[test]
fn a_deleted_release_makes_no_machines() {
    let (mut world, stored, bumped) = world();
    world.releases.remove(RUNNING);
    let mut more = stored.clone();
    let pools = more["spec"]["topology"]["workers"]["machineDeployments"].as_array_mut();
    pools.unwrap().push(json!({"name": "c", "class": "photon"}));
    let refusal = world.refusal(Some(&bumped), &more);
    assert!(
        refusal.contains(&format!("{RUNNING} has no OSImage for machineDeployments[c]")),
        "{refusal}"
    );
    // No machine runs the version, so each would be made anew.
    world.runs("v1.34.1");
    let refusal = world.refusal(Some(&bumped), &stored);
    assert!(
        refusal.contains(&format!("TanzuKubernetesRelease {RUNNING} does not exist")),
        "{refusal}"
    );
}

/// An entry proves the release of the machines only for its own Kubernetes version.
#[test]
fn a_release_of_another_version_is_not_the_way_back() {
    let (mut world, stored, bumped) = world();
    let release = Arc::make_mut(world.releases.get_mut(RUNNING).unwrap());
    release.spec.kubernetes.version = "v1.35.5".to_owned();
    world.label(RUNNING, label::DEACTIVATED);
    let refusal = world.refusal(Some(&bumped), &stored);
    assert!(refusal.contains("is deactivated"), "{refusal}");
}

const SNAPSHOT: &str = r#"{"version":"v1.35.4","release":"v1.35.4---a.10","packages":{}}"#;
const OF_ANOTHER_RELEASE: &str = r#"{"version":"v1.35.4","release":"v1.35.4---a.9","packages":{}}"#;
const OF_ANOTHER_VERSION: &str = r#"{"version":"v1.34.1","release":"v1.35.4---a.10","packages":{}}"#;

/// Without an entry, the ClusterBootstrap names the release from before the upgrade.
#[rstest]
#[case::of_the_upgrade(Some(SNAPSHOT), "v1.35.4", true)]
#[case::no_machine_runs_it(Some(SNAPSHOT), "v1.34.1", false)]
#[case::of_another_release(Some(OF_ANOTHER_RELEASE), "v1.35.4", false)]
#[case::of_another_version(Some(OF_ANOTHER_VERSION), "v1.35.4", false)]
#[case::malformed(Some("{"), "v1.35.4", false)]
#[case::none(None, "v1.35.4", false)]
fn a_cluster_without_entries_goes_back_to_its_snapshot(
    #[case] snapshot: Option<&'static str>,
    #[case] runs: &str,
    #[case] is_accepted: bool,
) {
    let mut world = World::new();
    let mut class = class(&json!({}));
    class.spec.variables.clear();
    world.class = Some(class);
    let stored = world.made("v1.35", &json!([]));
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let (bumped, _) = world.becomes(Some(&stored), &bumped);
    world.label(RUNNING, label::DEACTIVATED);
    world.runs(runs);
    world.rollback_to = snapshot;
    if is_accepted {
        assert_eq!(world.becomes(Some(&bumped), &stored).0, stored);
    } else {
        let refusal = world.refusal(Some(&bumped), &stored);
        assert!(refusal.contains("is deactivated"), "{refusal}");
    }
}

/// An entry would roll machines that were made without one, and no hook is called for it.
#[test]
fn machines_without_an_entry_get_none_on_the_way_back() {
    let mut world = World::new();
    world.runs("v1.35.4");
    let mut stored = new("v1.35.4", &json!([{"name": "b", "class": "photon"}]));
    stored["metadata"]["labels"] = json!({label::TKR: RUNNING});
    stored["spec"]["controlPlaneRef"] = json!({"kind": "X", "name": "one"});
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let (bumped, _) = world.becomes(Some(&stored), &bumped);
    assert_eq!(common(&bumped, "v1.36.3"), "v1.36.3---a.11-ubuntu");

    world.label(RUNNING, label::DEACTIVATED);
    world.rollback_to = Some(SNAPSHOT);
    let mut reverted = bumped.clone();
    reverted["metadata"]["labels"] = json!({label::TKR: RUNNING});
    reverted["spec"]["topology"]["version"] = json!("v1.35.4");
    let (after, warnings) = world.becomes(Some(&bumped), &reverted);
    assert_eq!(after, reverted);
    assert_eq!(common(&after, "v1.35.4"), Value::Null);
    assert_eq!(override_of(&after, 0, "v1.35.4"), Value::Null);
    assert!(warnings[0].starts_with("TKRDataKept"), "{warnings:?}");
}

/// A Cluster without the annotation names its release itself.
#[rstest]
#[case::deactivated(|world: &mut World| world.label(RUNNING, label::DEACTIVATED))]
#[case::deleted(|world: &mut World| drop(world.releases.remove(RUNNING)))]
fn the_way_back_without_a_request_is_accepted(#[case] change: Change) {
    let (mut world, mut stored, mut bumped) = world();
    change(&mut world);
    for cluster in [&mut stored, &mut bumped] {
        cluster["metadata"]["annotations"] = json!({});
    }
    let (after, _) = world.becomes(Some(&bumped), &stored);
    assert_eq!(label_of(&after), RUNNING);
    assert_eq!(common(&after, "v1.35.4"), format!("{RUNNING}-ubuntu"));
}
