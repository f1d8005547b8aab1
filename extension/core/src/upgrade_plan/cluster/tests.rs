use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::Cluster,
    labels::label,
    run::{ClusterBootstrap, ClusterBootstrapSpec, ClusterBootstrapStatus, Outcome, SCHEMA, UpgradeRecord},
};

use super::*;
use crate::{
    cache::stores::tests::{Given, object},
    clock::Clock,
    protocol::{Key, Server},
    reconcile::cluster::{CachedControlPlane, LocalState, Settings, next_hop},
    schedule::SyncPeriod,
    upgrade::hop::{ControlPlaneFacts, Rollout, WorkerFacts},
    upgrade_plan::{Admission, Effect},
};

const BEFORE: &str = "v1.33.9";
const FROM: &str = "v1.34.4";
const TO: &str = "v1.35.4";

/// Returns the facts of a Cluster at v1.34.4 with target v1.35.4 and no other objects.
pub(in crate::upgrade_plan) fn facts() -> Facts {
    let topology = json!({"classRef": {"name": "class"}, "version": TO});
    let spec = json!({"topology": topology, "controlPlaneRef": {"kind": "Plane", "name": "one"}});
    let labels = json!({label::TKR: "v1.35.4---a.1"});
    let cluster: Arc<Cluster> = object(Some("team-a"), "one", &labels, &json!({"spec": spec}));
    let settings = Settings {
        system_namespace: "system".to_owned(),
        extension_configs: Vec::new(),
        sync_period: SyncPeriod {
            length: Duration::from_mins(10),
            since: Instant::now(),
        },
        deletion_limit: Duration::from_mins(10),
    };
    let mut facts = Facts::of(&cluster, &Given::default(), &settings, |_| Ok(None)).unwrap();
    control_plane(&mut facts, FROM, FROM);
    facts
}

fn control_plane(facts: &mut Facts, spec: &str, status: &str) {
    facts.control_plane = Some(CachedControlPlane {
        key: Key::of::<Cluster>(Server::Management, Some("team-a"), "one"),
        uid: None,
        generation: None,
        resource_version: None,
        versions: ControlPlaneFacts {
            spec_version: Some(spec.to_owned()),
            status_version: Some(status.to_owned()),
        },
        rollout: Rollout::default(),
    });
}

fn findings_of(facts: &Facts) -> Vec<Finding> {
    let (local, began) = (
        LocalState::default(),
        Clock {
            now: Timestamp::UNIX_EPOCH,
            instant: Instant::now(),
        },
    );
    let context = Context::new(facts, &local, began);
    let first = next_hop(&context).unwrap();
    findings(&context, &first).unwrap()
}

fn aim(facts: &mut Facts, version: &str) {
    version.clone_into(&mut facts.topology.version);
}

fn annotate(facts: &mut Facts, key: &str) {
    let cluster = Arc::make_mut(&mut facts.cluster);
    cluster.annotations_mut().insert(key.to_owned(), String::new());
}

fn list(facts: &mut Facts, versions: &[&str]) {
    let class: Arc<ClusterClass> = object(
        Some("team-a"),
        "class",
        &Value::Null,
        &json!({"spec": {"kubernetesVersions": versions}}),
    );
    facts.plan = Plan::of(Some(&class), None);
    facts.class = Some(class);
}

fn worker(facts: &mut Facts, version: &str, edit: impl FnOnce(&mut WorkerFacts)) {
    let mut worker = WorkerFacts {
        name: "md-0".to_owned(),
        pool: "md".to_owned(),
        spec_version: Some(version.to_owned()),
        ..WorkerFacts::default()
    };
    edit(&mut worker);
    facts.workers.push(worker);
}

fn record(facts: &mut Facts, to: &str, outcome: Option<Outcome>) {
    let failed = json!({"name": "antrea", "version": "1.8.0", "state": "Failed", "reason": "AppFailed", "message": "secret"});
    let record = UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: facts.owner.uid.clone(),
        to: to.to_owned(),
        packages: vec![serde_json::from_value(failed).unwrap()],
        outcome,
        ..UpgradeRecord::default()
    };
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    bootstrap.status = Some(ClusterBootstrapStatus {
        upgrade: Some(record),
        ..ClusterBootstrapStatus::default()
    });
    facts.bootstrap = Some(Arc::new(bootstrap));
}

fn condition(facts: &mut Facts, type_: &str, status: &str) {
    let status = json!({"conditions": [{"type": type_, "status": status}]});
    Arc::make_mut(&mut facts.cluster).status = serde_json::from_value(status).unwrap();
}

#[rstest]
#[case::ready(|_: &mut Facts| {}, &[])]
#[case::listed(|facts: &mut Facts| list(facts, &[FROM, TO]), &[])]
#[case::not_listed(|facts: &mut Facts| list(facts, &[FROM]), &["VersionNotInClass"])]
#[case::of_another_build(|facts: &mut Facts| list(facts, &[FROM, "v1.35.4+a"]), &["VersionNotInClass"])]
#[case::skipped(|facts: &mut Facts| aim(facts, "v1.36.3"), &["MinorVersionSkipped"])]
#[case::planned(|facts: &mut Facts| { aim(facts, "v1.36.3"); list(facts, &[FROM, TO, "v1.36.3"]); }, &[])]
#[case::skipped_and_not_checked(
    |facts: &mut Facts| { aim(facts, "v1.36.3"); annotate(facts, annotation::DISABLE_VERSION_CHECK); },
    &["VersionCheckDisabled"],
)]
#[case::lower(|facts: &mut Facts| aim(facts, BEFORE), &["DowngradeNotSupported"])]
#[case::the_same(|facts: &mut Facts| aim(facts, FROM), &[])]
#[case::paused(|facts: &mut Facts| Arc::make_mut(&mut facts.cluster).spec.paused = true, &["ClusterPaused"])]
#[case::start_held(
    |facts: &mut Facts| annotate(facts, "before-upgrade.hook.cluster.cluster.x-k8s.io/ops"),
    &["StartHeldByAnnotation"],
)]
#[case::creating(|facts: &mut Facts| facts.control_plane = None, &["ControlPlaneCreating", "TKRNotFound"])]
#[case::rolling(|facts: &mut Facts| control_plane(facts, FROM, BEFORE), &["ControlPlaneUpgrading"])]
#[case::rolling_to_the_target(|facts: &mut Facts| control_plane(facts, TO, FROM), &[])]
#[case::unreadable(
    |facts: &mut Facts| facts.unknown = Some(Unknown::Unreadable(Hold::new(GateReason::ControlPlaneKindUnreadable, "why"))),
    &["ControlPlaneKindUnreadable"],
)]
#[case::unread(|facts: &mut Facts| facts.unknown = Some(Unknown::Reading), &["APIUnavailable"])]
#[case::workers_settled(|facts: &mut Facts| worker(facts, FROM, |_| {}), &[])]
#[case::workers_behind(|facts: &mut Facts| worker(facts, BEFORE, |_| {}), &["WorkersUpgrading"])]
#[case::workers_rolling(|facts: &mut Facts| worker(facts, FROM, |worker| worker.rolling = true), &["WorkersUpgrading"])]
#[case::workers_deferred(|facts: &mut Facts| worker(facts, BEFORE, |worker| worker.deferred = true), &["WorkersDeferred"])]
#[case::workers_behind_under_way(
    |facts: &mut Facts| { worker(facts, BEFORE, |_| {}); record(facts, TO, None); },
    &["PackageFailing"],
)]
#[case::another_one_under_way(
    |facts: &mut Facts| record(facts, "v1.34.9", None),
    &["ControlPlaneUpgrading", "PackageFailing"],
)]
#[case::package_failing(|facts: &mut Facts| record(facts, FROM, Some(Outcome::Completed)), &["PackageFailing"])]
#[case::unhealthy(|facts: &mut Facts| condition(facts, "WorkerMachinesReady", "Unknown"), &["ClusterNotHealthy"])]
#[case::another_condition(|facts: &mut Facts| condition(facts, "TopologyReconciled", "False"), &[])]
fn findings_of_a_cluster(#[case] edit: fn(&mut Facts), #[case] expected: &[&str]) {
    let mut facts = facts();
    edit(&mut facts);
    let findings = findings_of(&facts);
    let reasons: Vec<&str> = findings.iter().map(|finding| finding.reason.as_str()).collect();
    assert_eq!(reasons, expected, "{findings:?}");
    for finding in &findings {
        assert!(
            !finding.message.contains("secret") && !finding.remedy.is_empty(),
            "{finding:?}"
        );
        let is_refused = matches!(
            finding.reason.as_str(),
            "VersionNotInClass" | "MinorVersionSkipped" | "DowngradeNotSupported"
        );
        assert_eq!(
            finding.admission == Admission::LeftToClusterApi,
            is_refused,
            "{finding:?}"
        );
        let warns = matches!(finding.reason, FindingReason::Warning(_)) && !is_refused;
        assert_eq!(finding.effect == Effect::Warns, warns, "{finding:?}");
    }
}

#[test]
fn a_class_that_lists_the_target_is_named() {
    let mut facts = facts();
    list(&mut facts, &[FROM]);
    let mut plan = UpgradePlan {
        from: FROM.to_owned(),
        to: TO.to_owned(),
        hops: Vec::new(),
        findings: findings_of(&facts),
    };
    let class = |name: &str, versions: &[&str]| -> Arc<ClusterClass> {
        let spec = json!({"kubernetesVersions": versions});
        object(Some("team-a"), name, &Value::Null, &json!({"spec": spec}))
    };
    let classes = [class("class", &[FROM]), class("next", &[FROM, TO])];
    plan.name_class(classes.iter().map(AsRef::as_ref));
    let message = plan.findings.remove(0).message;
    let expected = format!(
        "ClusterClass team-a/class lists {FROM}, and topology.version is {TO}; ClusterClass team-a/next lists it"
    );
    assert_eq!(message, expected);
}
