//! The story of one upgrade, line by line as things happen.

use std::collections::HashSet;

use jiff::Timestamp;

use super::terminal::{Terminal, Tone};
use crate::observer::{Event, Milestone, Revision};
use crate::scenario::{Cluster, HookAnswer};

/// Tells each thing once.
pub(super) struct Story<'a> {
    terminal: &'a Terminal,
    cluster: &'a Cluster,
    began: Timestamp,
    told: Revision,
    answers: usize,
    skipped_answers: usize,
    held: HashSet<(String, String)>,
    /// When, and of what.
    last_proof: Option<(Timestamp, &'static str)>,
    /// Whether the control plane runs the new version: what is proven from now on is proven again.
    swapped: bool,
}

impl<'a> Story<'a> {
    /// Begins a story after revision `since` and the responses so far.
    pub(super) fn begin(
        terminal: &'a Terminal,
        cluster: &'a Cluster,
        since: Revision,
        skipped_answers: usize,
    ) -> Self {
        Self {
            terminal,
            cluster,
            began: Timestamp::now(),
            told: since,
            answers: 0,
            skipped_answers,
            held: HashSet::new(),
            last_proof: None,
            swapped: false,
        }
    }

    /// When it began.
    pub(super) fn began(&self) -> Timestamp {
        self.began
    }

    /// Prints new events.
    pub(super) fn go_on(&mut self) {
        let answers = self.cluster.hook_answers().unwrap_or_default();
        let new_answers: Vec<HookAnswer> = answers
            .into_iter()
            .skip(self.skipped_answers + self.answers)
            .collect();
        self.answers += new_answers.len();
        let milestones: Vec<Milestone> = self
            .cluster
            .milestones()
            .into_iter()
            .filter(|milestone| milestone.revision > self.told)
            .collect();
        self.told = milestones.last().map_or(self.told, |last| last.revision);
        // Two sources, one clock: told in the order in which it happened.
        let mut events: Vec<(Timestamp, Entry)> = new_answers
            .into_iter()
            .map(|answer| (answer.timestamp, Entry::Answer(answer)))
            .chain(
                milestones
                    .into_iter()
                    .map(|milestone| (milestone.seen, Entry::Milestone(milestone))),
            )
            .collect();
        events.sort_by_key(|(at, _)| *at);
        for (at, entry) in events {
            match entry {
                Entry::Answer(answer) => self.tell_answer(at, &answer),
                Entry::Milestone(milestone) => self.tell_milestone(at, &milestone.event),
            }
        }
    }

    fn tell_answer(&mut self, at: Timestamp, answer: &HookAnswer) {
        let HookAnswer { hook, reason, .. } = answer;
        if !answer.is_held() {
            self.line(at, Tone::Good, hook, "released");
        } else if self.held.insert((hook.clone(), reason.clone())) {
            self.line(at, Tone::Waiting, hook, &format!("held: {reason}"));
        }
    }

    fn tell_milestone(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::PackageWorking { ref_name, version } => {
                self.line(
                    at,
                    Tone::Plain,
                    &package(ref_name),
                    &format!("works on {version}"),
                );
            }
            Event::PackageProven { ref_name, version } => {
                self.last_proof = Some((at, "package"));
                let again = if self.swapped {
                    " again, on the new control plane"
                } else {
                    ""
                };
                self.line(
                    at,
                    Tone::Plain,
                    &package(ref_name),
                    &format!("proven at {version}{again}"),
                );
            }
            Event::PackageFailed { ref_name, version } => {
                self.line(at, Tone::Bad, &package(ref_name), &format!("failed at {version}"));
            }
            Event::ControlPlaneWritten { version } => {
                let text = format!("goes to {version}{}", self.since_last_proof(at));
                self.line(at, Tone::Heading, "control plane", &text);
            }
            Event::ControlPlaneRuns { version } => {
                self.swapped = true;
                self.line(at, Tone::Good, "control plane", &format!("runs {version}"));
            }
            Event::WorkersWritten { version, .. } => {
                let text = format!("go to {version}{}", self.since_last_proof(at));
                self.line(at, Tone::Heading, "workers", &text);
            }
            Event::WorkersDone { version, .. } => {
                self.line(at, Tone::Good, "workers", &format!("run {version}"));
            }
            Event::Topology { message } => {
                for held in held_by(message) {
                    self.terminal.waiting(format!("held by {held}"));
                    self.line(at, Tone::Waiting, "Cluster", &format!("held by {held}"));
                }
            }
            Event::ReleaseDataWritten { release, .. } => {
                let text = format!("names {release}{}", self.since_last_proof(at));
                self.line(at, Tone::Heading, "TKR_DATA", &text);
            }
            Event::CheckProven { gate, check, minor } => {
                self.last_proof = Some((at, "check"));
                let text = format!("proven for Kubernetes {minor}");
                self.line(at, Tone::Plain, &format!("check {gate}/{check}"), &text);
            }
            Event::CheckLost { gate, check, minor } => {
                let text = format!("no longer proven for Kubernetes {minor}");
                self.line(at, Tone::Waiting, &format!("check {gate}/{check}"), &text);
            }
            Event::AuditWouldHold { gate, version } => {
                let text = format!("in mode Audit: no proof for {version}");
                self.line(at, Tone::Waiting, &format!("gate {gate}"), &text);
            }
            Event::Paused { paused: true } => self.line(at, Tone::Bad, "Cluster", "paused"),
            // kapp-controller can report a false success here; it is no proof.
            Event::FalseSuccess { .. }
            | Event::ProvenAgain { .. }
            | Event::RolledBack { .. }
            | Event::Overridden { .. }
            | Event::Paused { paused: false }
            | Event::Labelled { .. }
            | Event::Bootstrapped
            | Event::GateOpened { .. }
            | Event::ControlPlaneCreated { .. } => {}
        }
    }

    fn since_last_proof(&self, at: Timestamp) -> String {
        self.last_proof.map_or_else(String::new, |(proof, of)| {
            let lag = at.duration_since(proof).as_secs_f64();
            format!(", released {lag:.1} s after the last {of} was proven")
        })
    }

    fn line(&self, at: Timestamp, tone: Tone, subject: &str, text: &str) {
        let after = at.duration_since(self.began).as_secs_f64();
        self.terminal
            .say(tone, format!("  {after:6.1} s  {subject:<28} {text}"));
    }
}

enum Entry {
    Answer(HookAnswer),
    Milestone(Milestone),
}

fn package(ref_name: &str) -> String {
    format!("package {}", ref_name.split('.').next().unwrap_or_default())
}

/// Blocking hooks, from the message of condition TopologyReconciled.
fn held_by(message: &str) -> Vec<&str> {
    message
        .lines()
        .filter_map(|line| line.split_once("Following hooks are blocking upgrade: "))
        .map(|(_, hook)| hook)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocking_hook_is_found_in_the_message_of_cluster_api() {
        let message = "Cluster is upgrading to v1.36.3\n  * Following hooks are blocking upgrade: \
                       BeforeClusterUpgrade: waiting for antrea 1.9.0\n  * HarnessControlPlane pending upgrade";
        assert_eq!(
            held_by(message),
            ["BeforeClusterUpgrade: waiting for antrea 1.9.0"]
        );
    }
}
