//! Recording of a kapp-controller v0.53.1 that is killed while it waits, with every prefix replayed through the proof.
//!
//! `data/kapp-interrupted-trace.jsonl` holds one watch event per line of one package, PackageInstall and App: settled at 1.0.0; at 2.0.0
//! its DaemonSet (OnDelete) never finishes; kapp-controller is killed and restarted; new values follow with a slow fetch, and their run
//! waits as well. Recorded by `RECORD=FILE make scenario NAME=applied-interrupted`.

#![expect(
    clippy::expect_used,
    reason = "a test that runs outside of test functions, too"
)]

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_core::proof::{JudgedOn, Judgement, Target, judge};
use sluice_crds::foreign::{App, PackageInstall};
use sluice_crds::run::{FirstSeenRun, PackageRecord, PackageState, Phase, Readiness};

const TRACE: &str = include_str!("data/kapp-interrupted-trace.jsonl");

/// Observed state after a number of events, and at the first observation of the App's current generation.
#[derive(Clone, Default)]
struct Seen {
    install: Option<PackageInstall>,
    app: Option<App>,
    /// Observed generation, and the deploy block before its observation.
    began: Option<(i64, Value)>,
    deploy: Value,
}

impl Seen {
    fn take(&mut self, event: &Value) {
        let object = event["object"].clone();
        if event["kind"] == "PackageInstall" {
            self.install = Some(serde_json::from_value(object).expect("a PackageInstall"));
            return;
        }
        let observed = object["status"]["observedGeneration"].as_i64();
        if let Some(observed) =
            observed.filter(|now| self.began.as_ref().is_none_or(|(known, _)| known != now))
        {
            self.began = Some((observed, self.deploy.clone()));
        }
        self.deploy = object["status"]["deploy"].clone();
        self.app = Some(serde_json::from_value(object).expect("an App"));
    }

    /// Whether the deploy block belongs to a run of the App's current generation, and kapp reports that it waits.
    fn really_applied(&self, secret: &str) -> bool {
        let generation = self.app.as_ref().and_then(|app| app.metadata.generation);
        let own = self
            .began
            .as_ref()
            .is_some_and(|(observed, before)| Some(*observed) == generation && *before != self.deploy);
        let output = self.deploy["stdout"].as_str().unwrap_or_default();
        own && self.uses(secret) && output.contains("waiting on 1 changes")
    }

    fn really_succeeded(&self) -> bool {
        self.deploy["finished"] == true && self.deploy["exitCode"] == 0
    }

    fn uses(&self, secret: &str) -> bool {
        self.app.as_ref().is_some_and(|app| {
            app.spec
                .template_tools()
                .any(|tool| tool.secrets().any(|name| name == secret))
        })
    }

    fn judge(&self, target: &Target<'_>, latch: Option<&PackageRecord>) -> Judgement {
        judge(target, self.install.as_ref(), self.app.as_ref(), latch)
    }

    /// Returns a wrong record: it claims that the App of this generation has not run before.
    fn mistaken(&self, target: &Target<'_>) -> PackageRecord {
        let mut record = self.judge(target, None).record;
        let app = self.app.as_ref().expect("an App");
        record.first_seen_run = Some(FirstSeenRun {
            app_uid: app.metadata.uid.clone().expect("a uid"),
            app_generation: app.metadata.generation.expect("a generation"),
            fetch_started_at: None,
            deploy_started_at: None,
        });
        record
    }
}

fn events() -> Vec<Value> {
    TRACE
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect()
}

/// Returns the requested values Secrets, in their order.
fn secrets(events: &[Value]) -> Vec<String> {
    let mut known = BTreeSet::new();
    events
        .iter()
        .filter_map(|event| event["object"]["spec"]["values"][0]["secretRef"]["name"].as_str())
        .filter(|name| known.insert((*name).to_owned()))
        .map(str::to_owned)
        .collect()
}

fn target<'a>(version: &'a str, secret: &'a str, ref_name: &'a str) -> Target<'a> {
    Target {
        name: "agent",
        ref_name,
        version,
        digest: secret,
        secret_name: secret,
        kept: false,
        sync_period: None,
        judged_on: JudgedOn::Workload,
        readiness: Readiness::Applied,
        phase: Phase::BeforeControlPlane,
    }
}

fn ref_name(events: &[Value]) -> String {
    events
        .iter()
        .find_map(|event| event["object"]["spec"]["packageRef"]["refName"].as_str())
        .expect("a PackageInstall")
        .to_owned()
}

/// Judges and records after each event from `from` on, without an earlier record. Returns the events after which the package is
/// proven.
fn replay(events: &[Value], from: usize, secret: &str, ref_name: &str) -> Vec<usize> {
    let target = target("2.0.0", secret, ref_name);
    let (mut seen, mut latch) = (Seen::default(), None);
    let mut ready = Vec::new();
    for (line, event) in events.iter().enumerate() {
        seen.take(event);
        if line < from {
            continue;
        }
        let judged = seen.judge(&target, latch.as_ref());
        if judged.ready() {
            let truth = seen.really_applied(secret) || seen.really_succeeded();
            assert!(truth, "event {line}, judged from {from} on: {secret} is no proof");
            ready.push(line);
        }
        latch = Some(judged.record);
    }
    ready
}

#[test]
fn no_prefix_is_ready_before_its_own_run_has_applied() {
    let events = events();
    let (secrets, ref_name) = (secrets(&events), ref_name(&events));
    for secret in &secrets {
        for from in 0..events.len() {
            replay(&events, from, secret, &ref_name);
        }
    }
}

#[test]
fn each_run_with_an_observed_start_is_a_proof() {
    let events = events();
    let (secrets, ref_name) = (secrets(&events), ref_name(&events));
    let [.., killed, green] = secrets.as_slice() else {
        panic!("too few Secrets: {secrets:?}")
    };
    assert!(!replay(&events, 0, killed, &ref_name).is_empty());
    let ready = replay(&events, 0, green, &ref_name);
    assert_eq!(
        ready.last(),
        Some(&(events.len() - 1)),
        "ready after the last event"
    );
}

/// The recording detects a wrong proof: with a wrong first observation, the package is ready too early.
#[test]
fn without_the_first_observation_the_killed_run_would_count() {
    let events = events();
    let (secrets, ref_name) = (secrets(&events), ref_name(&events));
    let green = secrets.last().expect("a Secret");
    let target = target("2.0.0", green, &ref_name);
    let mut seen = Seen::default();
    let mut early = 0;
    for event in &events {
        seen.take(event);
        if seen.app.is_some() {
            let judged = seen.judge(&target, Some(&seen.mistaken(&target)));
            early += usize::from(judged.record.state == PackageState::Ready && !seen.really_applied(green));
        }
    }
    assert!(early > 0, "the recording shows no step of a killed run");
}
