//! Recording of kapp-controller v0.53.1, with every prefix replayed through the proof.
//!
//! `data/kapp-bump-trace.jsonl` holds one watch event per line: installs, version bumps (one at a time and eight at once), a
//! missing version, a failing package, and packages that change by themselves with the API server.

#![expect(
    clippy::expect_used,
    reason = "a test that runs outside of test functions, too"
)]

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde_json::Value;
use sluice_core::proof::{JudgedOn, Judgement, Target, judge};
use sluice_crds::foreign::condition::is_true;
use sluice_crds::foreign::packaging::{
    AppSpec, AppStatus, PackageInstallSpec, PackageInstallStatus, PackageRef, SecretRef, TemplateStep,
    TemplateTool, Values, VersionSelection,
};
use sluice_crds::foreign::{App, Condition, PackageInstall};
use sluice_crds::labels::annotation;
use sluice_crds::run::{PackageRecord, PackageState, Phase, Readiness};

const TRACE: &str = include_str!("data/kapp-bump-trace.jsonl");
const REF_NAME: &str = "pkg.harness.test";
const SECRET: &str = "values";

/// Observed state of one package after a number of events.
#[derive(Clone, Default)]
struct Package {
    install: Option<PackageInstall>,
    app: Option<App>,
    /// Version and generation of the last observed run of the App. They tell a success from a mirrored old one, independently of the
    /// proof.
    worked_on: Option<(String, i64)>,
}

impl Package {
    /// Whether a run of the version at the current generation was observed, and then its success.
    fn really_succeeded(&self, version: &str) -> bool {
        let Some(app) = &self.app else { return false };
        let succeeded = app
            .status
            .as_ref()
            .is_some_and(|status| is_true(&status.conditions, "ReconcileSucceeded"));
        let generation = app.metadata.generation.unwrap_or_default();
        succeeded && self.worked_on.as_ref() == Some(&(version.to_owned(), generation))
    }

    /// Whether the PackageInstall alone reports the version as installed.
    fn looks_done(&self, version: &str) -> bool {
        self.install.as_ref().is_some_and(|install| {
            install.status.as_ref().is_some_and(|status| {
                status.observed_generation == install.metadata.generation
                    && status.version.as_deref() == Some(version)
                    && is_true(&status.conditions, "ReconcileSucceeded")
            })
        })
    }

    fn judge(&self, version: &str, latch: Option<&PackageRecord>) -> Judgement {
        judge(&target(version), self.install.as_ref(), self.app.as_ref(), latch)
    }
}

fn target(version: &str) -> Target<'_> {
    Target {
        name: "pkg",
        ref_name: REF_NAME,
        version,
        digest: "d",
        secret_name: SECRET,
        kept: false,
        sync_period: None,
        judged_on: JudgedOn::Workload,
        readiness: Readiness::Reconciled,
        phase: Phase::BeforeControlPlane,
    }
}

/// Watch event of the recording.
struct Event {
    /// Scenario, cluster, namespace and name of the package.
    package: String,
    kind: String,
    deleted: bool,
    synced: bool,
    value: Value,
}

fn events() -> Vec<Event> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let lines = TRACE
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    lines
        .filter(|value| value["event"].is_string())
        .map(|value| Event {
            package: ["scenario", "where", "ns", "name"]
                .map(|key| text(&value, key))
                .join("/"),
            kind: text(&value, "kind"),
            deleted: value["event"] == "DELETED",
            synced: value["event"] == "SYNC",
            value,
        })
        .collect()
}

fn metadata(event: &Event, uid: String) -> ObjectMeta {
    let deleting = event.value["deleting"] == Value::Bool(true);
    ObjectMeta {
        uid: Some(uid),
        generation: event.value["generation"].as_i64(),
        deletion_timestamp: deleting.then_some(Time(Timestamp::UNIX_EPOCH)),
        ..ObjectMeta::default()
    }
}

fn conditions(event: &Event) -> Vec<Condition> {
    serde_json::from_value(event.value["conditions"].clone()).unwrap_or_default()
}

fn values() -> Values {
    Values {
        secret_ref: Some(SecretRef {
            name: SECRET.into(),
            key: None,
        }),
    }
}

fn install(event: &Event, asks_for: &str) -> PackageInstall {
    PackageInstall {
        metadata: metadata(event, format!("install of {}", event.package)),
        spec: PackageInstallSpec {
            package_ref: Some(PackageRef {
                ref_name: REF_NAME.into(),
                version_selection: Some(VersionSelection {
                    constraints: Some(asks_for.into()),
                    prereleases: None,
                }),
            }),
            values: vec![values()],
            ..PackageInstallSpec::default()
        },
        status: Some(PackageInstallStatus {
            observed_generation: event.value["observedGeneration"].as_i64(),
            version: event.value["status.version"].as_str().map(str::to_owned),
            conditions: conditions(event),
            useful_error_message: event.value["usefulErrorMessage"].as_str().map(str::to_owned),
            ..PackageInstallStatus::default()
        }),
    }
}

fn app(event: &Event) -> App {
    let version = event.value["annotation.package-version"]
        .as_str()
        .unwrap_or_default();
    let owner = OwnerReference {
        uid: format!("install of {}", event.package),
        ..OwnerReference::default()
    };
    let tool = TemplateTool {
        values_from: vec![values()],
        inline: None,
    };
    App {
        metadata: ObjectMeta {
            annotations: Some(BTreeMap::from([(
                annotation::PACKAGE_VERSION.into(),
                version.into(),
            )])),
            owner_references: Some(vec![owner]),
            ..metadata(event, format!("app of {}", event.package))
        },
        spec: AppSpec {
            template: vec![TemplateStep {
                ytt: Some(tool),
                helm_template: None,
            }],
            ..AppSpec::default()
        },
        status: Some(AppStatus {
            observed_generation: event.value["observedGeneration"].as_i64(),
            conditions: conditions(event),
            useful_error_message: event.value["usefulErrorMessage"].as_str().map(str::to_owned),
            ..AppStatus::default()
        }),
    }
}

impl Package {
    /// Observes an event. With `exactly`, the PackageInstall requests only that version.
    fn take(&mut self, event: &Event, exactly: Option<&str>) {
        if event.kind == "PackageInstall" {
            let constraints = event.value["wantConstraints"].as_str().unwrap_or_default();
            self.install = (!event.deleted).then(|| install(event, exactly.unwrap_or(constraints)));
            return;
        }
        let seen = app(event);
        let version = event.value["annotation.package-version"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let at_work = is_true(&conditions(event), "Reconciling");
        // Objects of the first list succeeded before the watch started.
        if (at_work && event.value["observedGeneration"] == event.value["generation"]) || event.synced {
            self.worked_on = Some((version, seen.metadata.generation.unwrap_or_default()));
        }
        self.app = (!event.deleted).then_some(seen);
    }
}

fn versions(events: &[Event]) -> BTreeSet<String> {
    let of = |key: &'static str| events.iter().filter_map(move |event| event.value[key].as_str());
    of("wantConstraints")
        .chain(of("annotation.package-version"))
        .map(str::to_owned)
        .collect()
}

/// Asserts, after each event and for each package and version, that a proof implies a real success. Returns how often the
/// PackageInstall alone reported one that was not real.
fn replay(events: &[Event], exactly: bool) -> usize {
    let mut false_ready = 0;
    for version in versions(events) {
        let mut packages: BTreeMap<&str, Package> = BTreeMap::new();
        let mut latches: BTreeMap<&str, PackageRecord> = BTreeMap::new();
        for (line, event) in events.iter().enumerate() {
            let package = packages.entry(&event.package).or_default();
            package.take(event, exactly.then_some(version.as_str()));
            let latch = latches.get(event.package.as_str());
            let without_latch = package.judge(&version, None);
            let judged = package.judge(&version, latch);
            for judged in [&without_latch, &judged] {
                let truth = package.really_succeeded(&version);
                assert!(
                    !judged.ready() || truth,
                    "event {line}: {} {version} is no proof",
                    event.package
                );
            }
            false_ready += usize::from(package.looks_done(&version) && !package.really_succeeded(&version));
            latches.insert(&event.package, judged.record);
        }
    }
    false_ready
}

#[test]
fn no_prefix_is_ready_before_the_app_really_succeeded() {
    let events = events();
    assert_eq!(events.len(), 216, "the recording is complete");
    // Each of twelve version bumps has a window in which a wrong proof would fail.
    assert!(replay(&events, false) >= 12);
}

#[test]
fn packages_that_change_by_themselves_are_not_ready_before_their_app() {
    assert!(replay(&events(), true) >= 13);
}

/// PackageInstalls and Apps have separate watches, and either may lag by any number of events.
#[test]
fn no_pair_of_observations_is_ready_before_the_app_really_succeeded() {
    let events = events();
    for version in versions(&events) {
        let names: BTreeSet<&str> = events.iter().map(|event| event.package.as_str()).collect();
        for name in names {
            let of = |kind: &'static str| {
                events
                    .iter()
                    .filter(move |event| event.package == name && event.kind == kind)
            };
            let installs: Vec<Option<PackageInstall>> = of("PackageInstall")
                .map(|event| {
                    let mut package = Package::default();
                    package.take(event, None);
                    package.install
                })
                .collect();
            let mut seen = Package::default();
            for event in of("App") {
                seen.take(event, None);
                for install in &installs {
                    let pair = Package {
                        install: install.clone(),
                        ..seen.clone()
                    };
                    let ready = pair.judge(&version, None).ready();
                    assert!(!ready || pair.really_succeeded(&version), "{name} {version}");
                }
            }
        }
    }
}

fn ends(scenario: &str, version: &str) -> BTreeMap<String, PackageState> {
    let mut packages: BTreeMap<String, Package> = BTreeMap::new();
    for event in events()
        .iter()
        .filter(|event| event.package.starts_with(scenario))
    {
        packages
            .entry(event.package.clone())
            .or_default()
            .take(event, None);
    }
    packages
        .into_iter()
        .map(|(name, package)| {
            let short = name.rsplit('/').next().unwrap_or_default().to_owned();
            (short, package.judge(version, None).record.state)
        })
        .collect()
}

#[test]
fn every_bump_ends_in_a_proof() {
    let single = ends("single/", "2.0.0");
    assert_eq!(single.len(), 4);
    assert!(
        single.values().all(|state| *state == PackageState::Ready),
        "{single:?}"
    );
    let parallel = ends("eight-parallel/", "2.0.0");
    assert_eq!(parallel.len(), 8);
    assert!(
        parallel.values().all(|state| *state == PackageState::Ready),
        "{parallel:?}"
    );
}

#[test]
fn a_failing_package_becomes_failed_and_never_ready() {
    let mut package = Package::default();
    let mut states = Vec::new();
    for event in events().iter().filter(|event| event.package.ends_with("/lbad")) {
        package.take(event, None);
        let judged = package.judge("0.9.0", None).record;
        if states.last().map(|(state, _)| state) != Some(&judged.state) {
            states.push((judged.state, judged.message));
        }
    }
    let seen: Vec<PackageState> = states.iter().map(|(state, _)| *state).collect();
    assert_eq!(
        seen,
        [
            PackageState::Applied,
            PackageState::Reconciling,
            PackageState::Failed,
            PackageState::Pending
        ],
        "the package is deleted last"
    );
    assert!(
        states[2].1.starts_with("kapp: Error: Expected to find kind"),
        "{}",
        states[2].1
    );
}

#[test]
fn a_missing_version_fails_with_the_message_of_kapp_controller() {
    let mut package = Package::default();
    let failed = events()
        .iter()
        .filter(|event| event.package.ends_with("/lsel"))
        .map(|event| {
            package.take(event, None);
            package.judge("9.9.9", None).record
        })
        .find(|record| record.state == PackageState::Failed)
        .expect("the requested version 9.9.9 does not exist");
    assert_eq!(failed.reason, "PackageInstallFailed");
    assert!(
        failed
            .message
            .starts_with("Expected to find at least one version"),
        "{}",
        failed.message
    );
}
