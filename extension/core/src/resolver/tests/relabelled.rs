//! Labels of another release of the Kubernetes version that machines run.

use super::*;

/// A Cluster with machines of `v1.35.4---a.10`. Of the later releases only the last one fits its pools.
fn world() -> (World, Value) {
    let mut world = World::new();
    let stored = world.made("v1.35", &json!([{"name": "b", "class": "photon"}]));
    world.release("v1.35.4", 12, &["ubuntu"]);
    world.release("v1.35.4", 13, &["ubuntu", "photon"]);
    world.label("v1.35.4---a.13", label::DEACTIVATED);
    world.release("v1.35.4", 14, &["ubuntu", "photon"]);
    world.runs("v1.35.4");
    (world, stored)
}

fn labelled(cluster: &Value, release: &str) -> Value {
    let mut cluster = cluster.clone();
    cluster["metadata"]["labels"][label::TKR] = json!(release);
    cluster
}

#[rstest]
#[case::higher("v1.35.4---a.14", None)]
#[case::same("v1.35.4---a.10", None)]
#[case::lower(
    "v1.35.4---a.9",
    Some(
        "v1.35.4---a.9 is lower than TanzuKubernetesRelease v1.35.4---a.10, which machines of v1.35.4 are made of; machines are not \
         replaced by those of an older release; v1.35.4---a.14 can be taken"
    )
)]
#[case::without_an_image(
    "v1.35.4---a.12",
    Some("v1.35.4---a.12 has no OSImage for machineDeployments[b]; v1.35.4---a.14 can be taken")
)]
#[case::deactivated(
    "v1.35.4---a.13",
    Some("v1.35.4---a.13 is deactivated; v1.35.4---a.14 can be taken")
)]
#[case::missing(
    "v1.35.4---a.15",
    Some("v1.35.4---a.15 does not exist; v1.35.4---a.14 can be taken")
)]
fn only_a_higher_release_with_images_is_taken(#[case] release: &str, #[case] refusal: Option<&str>) {
    let (world, stored) = world();
    let relabelled = labelled(&stored, release);
    let Some(says) = refusal else {
        let (after, _) = world.becomes(Some(&stored), &relabelled);
        assert_eq!(after, relabelled);
        return;
    };
    let refusal = world.refusal(Some(&stored), &relabelled);
    assert!(
        refusal.starts_with("metadata.labels[run.tanzu.vmware.com/tkr]: Invalid value")
            && refusal.ends_with(says),
        "{refusal}"
    );
}

#[test]
fn a_release_with_two_images_for_a_part_is_refused() {
    let (world, stored) = world();
    let mut relabelled = labelled(&stored, "v1.35.4---a.14");
    let any = json!({"annotations": {annotation::RESOLVE_OS_IMAGE: ""}});
    relabelled["spec"]["topology"]["workers"]["machineDeployments"][0]["metadata"] = any;
    let refusal = world.refusal(Some(&stored), &relabelled);
    assert!(
        refusal.contains("v1.35.4---a.14 has 2 OSImages for machineDeployments[b]"),
        "{refusal}"
    );
}

/// A refusal does not offer what it would refuse.
#[test]
fn no_lower_release_is_offered() {
    let (mut world, stored) = world();
    for release in ["v1.35.4---a.10", "v1.35.4---a.12", "v1.35.4---a.14"] {
        world.label(release, label::DEACTIVATED);
    }
    let refusal = world.refusal(Some(&stored), &labelled(&stored, "v1.35.4---a.14"));
    assert!(
        refusal.ends_with("v1.35.4---a.14 is deactivated; no later one can be taken"),
        "{refusal}"
    );
}

/// Machines stay as they are, so their release needs neither to be usable nor to have images.
#[test]
fn the_label_moves_back_to_what_machines_are_made_of() {
    let (mut world, stored) = world();
    let (relabelled, warnings) = world.becomes(Some(&stored), &labelled(&stored, "v1.35.4---a.14"));
    assert_eq!(
        warnings,
        [
            "TKR_DATA: packages are upgraded to TanzuKubernetesRelease v1.35.4---a.14 first; then Sluice replaces the machines of v1.35.4, \
             which are made of v1.35.4---a.10"
        ]
    );
    world.label("v1.35.4---a.10", label::DEACTIVATED);
    world.images.clear();
    let (back, warnings) = world.becomes(Some(&relabelled), &stored);
    assert_eq!((back, warnings), (stored, Vec::<String>::new()));
}

/// A newer release would replace machines without a request.
#[rstest]
#[case::prefix("v1.35")]
#[case::version("v1.35.4")]
fn a_cancelled_upgrade_returns_to_what_machines_are_made_of(#[case] version: &str) {
    let (mut world, stored) = world();
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let (bumped, _) = world.becomes(Some(&stored), &bumped);
    assert_eq!(label_of(&bumped), "v1.36.3---a.11");
    let mut cancelled = bumped.clone();
    cancelled["spec"]["topology"]["version"] = json!(version);
    let (after, warnings) = world.becomes(Some(&bumped), &cancelled);
    assert_eq!(label_of(&after), "v1.35.4---a.10");
    assert_eq!(after["spec"]["topology"]["version"], "v1.35.4");
    assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.10-ubuntu");
    assert_eq!(warnings, Vec::<String>::new());
    // Without machines, the newest one is taken as for a new Cluster.
    world.runs("v1.34.1");
    let (after, _) = world.becomes(Some(&bumped), &cancelled);
    assert_eq!(label_of(&after), "v1.35.4---a.14");
}

/// Nothing is replaced, so the release may be lower.
#[test]
fn a_lower_release_is_taken_where_no_machine_runs_the_version() {
    let (mut world, stored) = world();
    world.runs("v1.34.1");
    let (after, warnings) = world.becomes(Some(&stored), &labelled(&stored, "v1.35.4---a.9"));
    assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.9-ubuntu");
    assert_eq!(override_of(&after, 0, "v1.35.4"), "v1.35.4---a.9-photon");
    assert_eq!(warnings, Vec::<String>::new());
}

/// The versions of machines decide, so they are looked up.
#[test]
fn a_lower_release_waits_for_the_versions_of_machines() {
    let (world, stored) = world();
    let asked = |release: &str| Asked {
        old: Some(cluster(&stored)),
        new: cluster(&labelled(&stored, release)),
    };
    let known = ResolverInputs {
        running: None,
        ..world.known()
    };
    assert_eq!(resolve(&asked("v1.35.4---a.9"), known), Err(Unknown::Running));
}

/// Sluice sets this label before the control plane is initialized. No package has been deployed then.
#[test]
fn a_lower_release_that_the_bootstrap_pins_is_taken() {
    let (mut world, stored) = world();
    world.pinned = Some("v1.35.4---a.9");
    let relabelled = labelled(&stored, "v1.35.4---a.9");
    let (after, warnings) = world.becomes(Some(&stored), &relabelled);
    assert_eq!(after, relabelled);
    assert!(
        warnings[0]
            .starts_with("TKRDataKept: machines of v1.35.4 stay as TanzuKubernetesRelease v1.35.4---a.10"),
        "{warnings:?}"
    );
}

#[rstest]
#[case::higher("v1.35.4---a.14", false)]
#[case::lower("v1.35.4---a.9", true)]
#[case::of_another_version("v1.36.3---a.11", false)]
#[case::missing("v1.35.4---a.8", false)]
fn a_cluster_without_a_request_gets_no_lower_release(#[case] release: &str, #[case] is_refused: bool) {
    let (mut world, mut stored) = world();
    stored["metadata"]["annotations"] = json!({});
    // Its own release may be gone.
    for _ in 0..2 {
        let refusal = world.refusal(Some(&stored), &labelled(&stored, release));
        assert_eq!(
            refusal.contains("is lower than TanzuKubernetesRelease v1.35.4---a.10"),
            is_refused,
            "{refusal}"
        );
        assert_eq!(refusal.is_empty(), !is_refused, "{refusal}");
        world.releases.remove("v1.35.4---a.10");
    }
    world.runs("v1.34.1");
    assert_eq!(world.refusal(Some(&stored), &labelled(&stored, release)), "");
}

/// Without the annotation, the leader writes the entry of the label, so a held upgrade follows a corrected label.
#[rstest]
#[case::of_the_label_before("v1.36.3---a.11", "v1.36.3---a.12", "v1.35.4", true)]
#[case::of_a_user("own", "v1.36.3---a.12", "v1.35.4", false)]
#[case::of_another_version("v1.36.3---a.11", "v1.35.4---a.14", "v1.35.4", false)]
#[case::machines_run_it("v1.36.3---a.11", "v1.36.3---a.12", "v1.36.3", false)]
fn the_entry_of_an_earlier_label_is_removed(
    #[case] made_of: &str,
    #[case] label: &str,
    #[case] runs: &str,
    #[case] removed: bool,
) {
    let (mut world, mut stored) = world();
    world.release("v1.36.3", 12, &["ubuntu", "photon"]);
    world.runs(runs);
    stored["metadata"]["annotations"] = json!({});
    stored["metadata"]["labels"][label::TKR] = json!("v1.36.3---a.11");
    let topology = &mut stored["spec"]["topology"];
    topology["version"] = json!("v1.36.3");
    let entry = json!({"osImageRef": {"name": "x"}, "labels": {label::TKR: made_of}});
    for list in ["/variables", "/workers/machineDeployments/0/variables/overrides"] {
        topology.pointer_mut(list).unwrap()[0]["value"]["v1.36.3"] = entry.clone();
    }
    let (after, _) = world.becomes(Some(&stored), &labelled(&stored, label));
    assert_eq!(common(&after, "v1.36.3").is_null(), removed);
    assert_eq!(override_of(&after, 0, "v1.36.3").is_null(), removed);
    assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.10-ubuntu");
}
