//! The run that proves a package began after its values matched the ClusterBootstrap.

use serde_json::{Value, json};

use super::story::{NEW, OLD, Story};

/// The Secret that the ClusterBootstrap names.
const ASKED: &str = "/mgmt/secrets/a/one-antrea-package";

/// The object that provides values, and the Secret that it names.
const PROVIDER: &str = "/mgmt/cni.tanzu.vmware.com/antreaconfigs/a/one-antrea-package";
const PROVIDED: &str = "/mgmt/secrets/a/one-antrea-data-values";

fn cni(values: &Value) -> Value {
    json!({"refName": "antrea.a.test.2.0.0", "valuesFrom": values})
}

fn provider(secret: &str) -> Value {
    json!({
        "apiVersion": "cni.tanzu.vmware.com/v1alpha1",
        "kind": "AntreaConfig",
        "metadata": {"name": "one-antrea-package", "namespace": "a"},
        "status": {"secretRef": secret},
    })
}

fn provider_ref() -> Value {
    json!({"providerRef": {"apiGroup": "cni.tanzu.vmware.com", "kind": "AntreaConfig", "name": "one-antrea-package"}})
}

/// Proven with a document in a Secret of its own.
fn proven_with(values: &Value, document: &str) -> Story {
    let mut story = Story::until_bump();
    story.secret(ASKED, "mtu: 1\n");
    story.secret(PROVIDED, "mtu: 1\n");
    story.write(PROVIDER, provider("one-antrea-data-values"));
    story.bootstrap(&cni(values));
    story.give("one-antrea-1", document);
    story.bump();
    story
}

#[test]
fn values_from_every_source_are_in_order() {
    for values in [
        json!({"inline": {"mtu": 1}}),
        json!({"secretRef": "one-antrea-package"}),
        provider_ref(),
    ] {
        let mut story = proven_with(&values, "mtu: 1\n");
        story.control_plane(NEW, OLD);
        story.is_in_order();
    }
}

#[test]
fn inline_values_that_were_edited_after_the_run_are_missing() {
    let mut story = proven_with(&json!({"inline": {"mtu": 1}}), "{\"mtu\":1}");
    story.bootstrap(&cni(&json!({"inline": {"mtu": 2}})));
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values than the ClusterBootstrap asks for");
}

#[test]
fn a_secret_that_was_edited_after_the_run_is_missing() {
    let mut story = proven_with(&json!({"secretRef": "one-antrea-package"}), "mtu: 1\n");
    story.secret(ASKED, "mtu: 2\n");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values than the ClusterBootstrap asks for");
}

#[test]
fn provided_values_that_changed_after_the_run_are_missing() {
    let mut story = proven_with(&provider_ref(), "mtu: 1\n");
    story.secret(PROVIDED, "mtu: 2\n");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values than the ClusterBootstrap asks for");
}

#[test]
fn a_provider_that_names_another_secret_after_the_run_gives_other_values() {
    let mut story = proven_with(&provider_ref(), "mtu: 1\n");
    story.secret("/mgmt/secrets/a/another", "mtu: 2\n");
    story.write(PROVIDER, provider("another"));
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values than the ClusterBootstrap asks for");
}

#[test]
fn a_source_that_is_gone_is_missing() {
    let mut story = proven_with(&json!({"secretRef": "one-antrea-package"}), "mtu: 1\n");
    story.delete(ASKED);
    story.control_plane(NEW, OLD);
    story.is_early(
        "control plane",
        "its values are nowhere: no Secret a/one-antrea-package",
    );
    let mut story = proven_with(&provider_ref(), "mtu: 1\n");
    story.delete(PROVIDER);
    story.control_plane(NEW, OLD);
    story.is_early(
        "control plane",
        "AntreaConfig a/one-antrea-package names no Secret",
    );
}

#[test]
fn values_that_are_taken_away_are_other_values() {
    let mut story = proven_with(&json!({"inline": {"mtu": 1}}), "mtu: 1\n");
    story.bootstrap(&cni(&Value::Null));
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values than the ClusterBootstrap asks for");
}

/// A package that kapp-controller does not template takes no notice of new values: its App stays at its generation.
#[test]
fn new_values_without_a_new_run_are_no_proof() {
    let mut story = proven_with(&json!({"inline": {"mtu": 1}}), "mtu: 1\n");
    story.bootstrap(&cni(&json!({"inline": {"mtu": 2}})));
    story.give("one-antrea-2", "mtu: 2\n");
    story.install("2.0.0", 3, 3, "ReconcileSucceeded");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "its values are from");
}

#[test]
fn values_that_were_there_before_the_run_but_not_named_are_no_proof() {
    let mut story = Story::until_bump();
    story.give("one-antrea-2", "mtu: 2\n");
    story.give("one-antrea-1", "mtu: 1\n");
    story.bootstrap(&cni(&json!({"inline": {"mtu": 1}})));
    story.bump();
    story.bootstrap(&cni(&json!({"inline": {"mtu": 2}})));
    story.give("one-antrea-2", "mtu: 2\n");
    story.install("2.0.0", 3, 3, "ReconcileSucceeded");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "its values are from");
}

/// kapp-controller has not reconciled the PackageInstall while it referenced others, so its App never changed.
#[test]
fn values_that_were_named_for_a_moment_and_not_taken_up_need_no_new_run() {
    let mut story = proven_with(&json!({"inline": {"mtu": 1}}), "mtu: 1\n");
    story.give("one-antrea-2", "mtu: 2\n");
    story.install("2.0.0", 3, 2, "ReconcileSucceeded");
    story.give("one-antrea-1", "mtu: 1\n");
    story.install("2.0.0", 4, 4, "ReconcileSucceeded");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

/// The same, but the App has run with the others, and not again since.
#[test]
fn values_that_were_taken_up_in_between_need_a_new_run() {
    let mut story = proven_with(&json!({"inline": {"mtu": 1}}), "mtu: 1\n");
    story.give("one-antrea-2", "mtu: 2\n");
    story.prove_again();
    story.give("one-antrea-1", "mtu: 1\n");
    story.install("2.0.0", 4, 4, "ReconcileSucceeded");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "its values are from");
}

#[test]
fn a_secret_that_is_overwritten_in_place_needs_a_new_run() {
    let mut story = proven_with(&json!({"inline": {"mtu": 1}}), "mtu: 1\n");
    story.bootstrap(&cni(&json!({"inline": {"mtu": 2}})));
    story.give("one-antrea-1", "mtu: 2\n");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "its values are from");
}

#[test]
fn new_values_and_their_own_run_are_in_order() {
    let mut story = proven_with(&json!({"inline": {"mtu": 1}}), "mtu: 1\n");
    story.bootstrap(&cni(&json!({"inline": {"mtu": 2}})));
    story.give("one-antrea-2", "mtu: 2\n");
    story.prove_again();
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_secret_that_is_touched_or_made_again_with_the_same_content_is_no_change() {
    let mut story = proven_with(&json!({"inline": {"mtu": 1}}), "mtu: 1\n");
    let given = "/wl/u/secrets/tkg-system/one-antrea-1";
    story.secret(given, "mtu: 1\n");
    story.delete(given);
    story.secret(given, "mtu: 1\n");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_proof_that_values_have_overtaken_is_no_new_proof() {
    let mut story = proven_with(&json!({"inline": {"mtu": 1}}), "mtu: 1\n");
    story.pending("AfterClusterUpgrade,AfterControlPlaneUpgrade");
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.bootstrap(&cni(&json!({"inline": {"mtu": 2}})));
    story.give("one-antrea-again", "mtu: 1\n");
    story.prove_again();
    story.pending("AfterClusterUpgrade");
    story.is_early(
        "AfterControlPlaneUpgrade",
        "other values than the ClusterBootstrap asks for",
    );
}
