//! After each version of the control plane everything is proven again, with workers or without.

use super::story::{NEW, NEXT, OLD, Story};
use crate::observer::Event;

/// Up to the revision at which the control plane runs the new version.
fn upgraded() -> Story {
    let mut story = Story::until_bump();
    story.bump();
    story.pending("AfterClusterUpgrade,AfterControlPlaneUpgrade");
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story
}

#[test]
fn without_workers_the_hook_that_ends_the_hop_waits_for_the_new_proof() {
    let mut story = upgraded();
    story.pending("AfterClusterUpgrade");
    story.is_early("AfterControlPlaneUpgrade was passed at v1.36.3", "older than");
}

#[test]
fn without_that_hook_the_end_of_the_upgrade_waits_for_the_new_proof() {
    let mut story = Story::until_bump();
    story.pending("AfterClusterUpgrade");
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.pending("");
    story.is_early("AfterClusterUpgrade was passed at v1.36.3", "older than");
}

#[test]
fn the_new_proof_and_then_the_hook_is_in_order() {
    let mut story = upgraded();
    story.prove_again();
    story.pending("AfterClusterUpgrade");
    story.pending("");
    story.is_in_order();
}

#[test]
fn the_next_version_waits_for_the_new_proof_of_this_one() {
    let mut story = Story::until_bump();
    story.release("r3", NEXT, "3.0.0");
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.label("r3");
    story.prove("3.0.0", 3);
    story.control_plane(NEXT, NEW);
    story.is_early(
        "the control plane was written to v1.37.1, past v1.36.3,",
        "antrea.a.test.2.0.0",
    );
}

#[test]
fn packages_of_the_next_version_may_follow_the_new_proof_before_the_hook_is_noted() {
    let mut story = upgraded();
    story.release("r3", NEXT, "3.0.0");
    story.prove_again();
    story.label("r3");
    story.prove("3.0.0", 4);
    story.pending("AfterClusterUpgrade");
    story.pending("AfterClusterUpgrade,AfterControlPlaneUpgrade");
    story.control_plane(NEXT, NEW);
    story.is_in_order();
}

#[test]
fn a_recreated_cluster_with_its_old_control_plane_still_needs_the_new_proof() {
    let mut story = upgraded();
    story.delete("/mgmt/cluster.x-k8s.io/clusters/a/one");
    story.label("r2");
    story.pending("AfterClusterUpgrade");
    story.is_early("AfterControlPlaneUpgrade was passed at v1.36.3", "older than");
}

/// Cluster API reads from a cache, which may show the version before right after it has written the next one.
#[test]
fn another_hook_call_for_the_previous_version_ends_nothing() {
    let mut story = Story::until_bump();
    story.bump();
    story.pending("AfterClusterUpgrade,AfterControlPlaneUpgrade");
    story.control_plane(NEW, OLD);
    story.pending("AfterClusterUpgrade");
    story.pending("AfterClusterUpgrade,AfterControlPlaneUpgrade");
    story.control_plane(NEW, NEW);
    story.is_in_order();
    story.pending("AfterClusterUpgrade");
    story.is_early("AfterControlPlaneUpgrade was passed at v1.36.3", "older than");
}

#[test]
fn that_everything_was_proven_again_is_noted_once_and_not_for_runs_of_before() {
    let mut story = upgraded();
    let noted = |story: &Story| -> Vec<Event> {
        let noted = story.ledger.milestones().iter().map(|noted| noted.event.clone());
        noted
            .filter(|event| matches!(event, Event::ProvenAgain { .. }))
            .collect()
    };
    assert_eq!(noted(&story), []);
    story.prove_again();
    story.prove("2.0.0", 4);
    let version = NEW.to_owned();
    assert_eq!(noted(&story), [Event::ProvenAgain { version }]);
}
