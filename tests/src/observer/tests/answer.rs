//! Changes after the hook response, or too shortly before it.

use serde_json::{Value, json};

use super::story::{NEW, OLD, Story};
use crate::observer::Event;

const ASKED: &str = "/mgmt/secrets/a/one-antrea-package";
const PENDING: &str = "AfterClusterUpgrade,AfterControlPlaneUpgrade";

fn cni(mtu: u32) -> Value {
    json!({"refName": "antrea.a.test.2.0.0", "valuesFrom": {"inline": {"mtu": mtu}}})
}

fn from_secret() -> Value {
    json!({"refName": "antrea.a.test.2.0.0", "valuesFrom": {"secretRef": "one-antrea-package"}})
}

/// Proven, and the record has the gate open.
fn open(cni: &Value) -> Story {
    let mut story = Story::until_bump();
    story.secret(ASKED, "mtu: 1\n");
    story.give("one-antrea-1", "mtu: 1\n");
    story.record(cni, 4, 4, false);
    story.bump();
    story.record(cni, 4, 4, true);
    story.milliseconds_pass(60_000);
    story
}

#[test]
fn an_edit_after_cluster_api_had_its_answer_is_not_the_fault_of_the_gate() {
    let mut story = open(&cni(1));
    story.pending(PENDING);
    story.record(&cni(2), 5, 4, true);
    story.record(&cni(2), 5, 5, false);
    story.milliseconds_pass(5_000);
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_proof_that_is_lost_after_cluster_api_had_its_answer_is_not_the_fault_of_the_gate() {
    let mut story = open(&cni(1));
    story.pending(PENDING);
    story.app("2.0.0", 2, 2, "ReconcileFailed");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_proof_that_is_lost_before_is() {
    let mut story = open(&cni(1));
    story.app("2.0.0", 2, 2, "ReconcileFailed");
    story.pending(PENDING);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "ReconcileFailed");
}

#[test]
fn an_edit_right_before_the_answer_is_noted_may_have_come_after_it() {
    let mut story = open(&cni(1));
    story.record(&cni(2), 5, 4, true);
    story.milliseconds_pass(900);
    story.pending(PENDING);
    story.milliseconds_pass(5_000);
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn an_edit_that_every_replica_had_time_to_see_counts() {
    let mut story = open(&cni(1));
    story.record(&cni(2), 5, 4, true);
    story.milliseconds_pass(1_000);
    story.pending(PENDING);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values");
}

#[test]
fn an_edit_that_the_record_knows_of_counts_at_once() {
    let mut story = open(&cni(1));
    story.record(&cni(2), 5, 4, true);
    story.record(&cni(2), 5, 5, true);
    story.pending(PENDING);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values");
}

#[test]
fn an_edit_that_closed_the_gate_is_excused_no_longer_than_one_that_did_not() {
    for (waited, excused) in [(900, true), (1_000, false)] {
        let mut story = open(&cni(1));
        story.record(&cni(2), 5, 5, false);
        story.milliseconds_pass(waited);
        story.pending(PENDING);
        story.control_plane(NEW, OLD);
        assert_eq!(story.ledger.violations().is_empty(), excused, "after {waited} ms");
    }
}

#[test]
fn an_edit_before_the_gate_was_opened_counts() {
    let mut story = Story::until_bump();
    story.give("one-antrea-1", "mtu: 1\n");
    story.record(&cni(1), 4, 4, false);
    story.bump();
    story.record(&cni(2), 5, 4, false);
    story.record(&cni(2), 5, 5, true);
    story.pending(PENDING);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values");
}

#[test]
fn a_secret_is_read_every_ten_seconds() {
    for (waited, excused) in [(10_900, true), (11_000, false)] {
        let mut story = open(&from_secret());
        story.secret(ASKED, "mtu: 2\n");
        story.milliseconds_pass(waited);
        story.pending(PENDING);
        story.control_plane(NEW, OLD);
        assert_eq!(story.ledger.violations().is_empty(), excused, "after {waited} ms");
    }
}

#[test]
fn a_secret_that_was_edited_before_the_gate_was_opened_counts() {
    let mut story = Story::until_bump();
    story.secret(ASKED, "mtu: 1\n");
    story.give("one-antrea-1", "mtu: 1\n");
    story.record(&from_secret(), 4, 4, false);
    story.bump();
    story.secret(ASKED, "mtu: 2\n");
    story.milliseconds_pass(1_000);
    story.record(&from_secret(), 4, 4, true);
    story.pending(PENDING);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values");
}

#[test]
fn an_answer_that_was_not_used_excuses_nothing() {
    let mut story = open(&cni(1));
    story.pending(PENDING);
    story.pending("AfterClusterUpgrade");
    story.record(&cni(2), 5, 4, true);
    story.milliseconds_pass(2_000);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values");
}

#[test]
fn a_secret_that_was_edited_while_the_record_was_written_may_have_been_read_before() {
    let mut story = Story::until_bump();
    story.secret(ASKED, "mtu: 1\n");
    story.give("one-antrea-1", "mtu: 1\n");
    story.record(&from_secret(), 4, 4, false);
    story.bump();
    story.secret(ASKED, "mtu: 2\n");
    story.milliseconds_pass(900);
    story.record(&from_secret(), 4, 4, true);
    story.pending(PENDING);
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_gate_that_was_never_open_excuses_nothing() {
    let mut story = Story::until_bump();
    story.give("one-antrea-1", "mtu: 1\n");
    story.record(&cni(1), 4, 4, false);
    story.bump();
    story.record(&cni(2), 5, 4, false);
    story.pending(PENDING);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values");
}

#[test]
fn a_note_that_no_write_follows_excuses_nothing() {
    let mut story = open(&cni(1));
    story.pending(PENDING);
    story.record(&cni(2), 5, 4, true);
    story.milliseconds_pass(10_000);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values");
}

#[test]
fn a_note_from_before_the_gate_was_open_is_of_no_answer() {
    let mut story = Story::until_bump();
    story.give("one-antrea-1", "mtu: 1\n");
    story.record(&cni(1), 4, 4, false);
    story.bump();
    story.pending(PENDING);
    story.app("2.0.0", 2, 2, "ReconcileFailed");
    story.record(&cni(1), 4, 4, true);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "ReconcileFailed");
}

#[test]
fn a_proof_missing_when_the_first_record_opens_the_gate_counts() {
    let mut story = Story::until_bump();
    story.record(&cni(1), 4, 4, true);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "1.0.0");
}

#[test]
fn a_gate_that_was_closed_gives_no_more_answers() {
    let mut story = open(&from_secret());
    story.secret(ASKED, "mtu: 2\n");
    story.record(&from_secret(), 4, 4, false);
    story.milliseconds_pass(1_000);
    story.pending(PENDING);
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "other values");
}

#[test]
fn each_opening_of_a_gate_is_noted_once() {
    let mut story = Story::until_bump();
    let opened = Event::GateOpened {
        version: NEW.to_owned(),
    };
    // (generation of the ClusterBootstrap, generation that the record knows, open), and openings so far.
    for (number, ((generation, observed, open), openings)) in [
        ((4, 4, false), 0),
        ((4, 4, true), 1),
        ((4, 4, true), 1),
        ((5, 4, true), 1),
        ((5, 5, true), 1),
        ((5, 5, false), 1),
        ((6, 5, true), 1),
        ((6, 6, true), 2),
    ]
    .into_iter()
    .enumerate()
    {
        story.record(&cni(1), generation, observed, open);
        let milestones = story.ledger.milestones().iter();
        let noted = milestones.filter(|milestone| milestone.event == opened);
        assert_eq!(noted.count(), openings, "write {number}");
    }
}
