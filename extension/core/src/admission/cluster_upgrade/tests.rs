//! Tables of updates and findings.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    cache::stores::tests::{Given, object},
    protocol::{Key, Server},
    reasons::{GateReason, Hold},
    reconcile::cluster::{CachedControlPlane, Settings},
    schedule::SyncPeriod,
    upgrade::hop::{ControlPlaneFacts, Rollout},
};

/// Release of the stored Cluster.
const RELEASE: &str = "v1.35.4---a.1";

/// Returns a Cluster with these annotations.
fn cluster(version: &str, release: &str, annotations: &Value) -> Cluster {
    let mut cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "one", "namespace": "team-a", "uid": "uid", "annotations": annotations},
        "spec": {"topology": {"classRef": {"name": "class"}, "version": version}},
    });
    cluster["metadata"]["labels"] = json!({label::TKR: release});
    serde_json::from_value(cluster).unwrap()
}

fn settled() -> Cluster {
    cluster("v1.35.4", RELEASE, &json!({}))
}

#[rstest]
#[case::another_version(cluster("v1.36.3", RELEASE, &json!({})), true)]
#[case::another_release(cluster("v1.35.4", "v1.35.4---a.2", &json!({})), true)]
#[case::another_annotation(cluster("v1.35.4", RELEASE, &json!({"a": "b"})), false)]
#[case::paused(cluster("v1.36.3", RELEASE, &json!({annotation::PAUSED: ""})), false)]
#[case::exempt(cluster("v1.36.3", RELEASE, &json!({annotation::SKIP_UPGRADE_CHECKS: "v1.36.3"})), false)]
#[case::exempt_for_an_earlier_version(
    cluster("v1.36.3", RELEASE, &json!({annotation::SKIP_UPGRADE_CHECKS: "v1.35.4"})),
    true
)]
#[case::exempt_for_any_version(cluster("v1.36.3", RELEASE, &json!({annotation::SKIP_UPGRADE_CHECKS: ""})), true)]
#[case::without_topology(Cluster::default(), false)]
fn only_changes_of_version_and_release_are_checked(#[case] new: Cluster, #[case] checked: bool) {
    assert_eq!(is_checked(&settled(), &new), checked);
}

#[test]
fn a_paused_spec_is_not_checked() {
    let mut paused = cluster("v1.36.3", RELEASE, &json!({}));
    paused.spec.paused = true;
    assert!(!is_checked(&settled(), &paused));
    assert!(
        is_checked(&paused, &settled()),
        "the pause ends in the same request"
    );
}

fn finding(reason: FindingReason, at: &str, admission: Admission) -> Finding {
    Finding {
        hop: Some(at.to_owned()),
        effect: match reason {
            FindingReason::Gate(_) => Effect::Blocks,
            FindingReason::Warning(_) => Effect::Warns,
        },
        message: format!("not for {at}"),
        remedy: "change it",
        admission,
        ..Finding::new(None, reason, String::new())
    }
}

const EXCLUDES: FindingReason = FindingReason::Gate(GateReason::PackageExcludesKubernetes);
const NOT_FOUND: FindingReason = FindingReason::Gate(GateReason::TKRNotFound);
const DOWNGRADED: FindingReason = FindingReason::Warning(WarningReason::PackageDowngraded);

type Place = (FindingReason, &'static str);

#[rstest]
#[case::a_new_finding(&[], &[(EXCLUDES, "36")], false)]
#[case::one_more(&[(EXCLUDES, "35")], &[(EXCLUDES, "35"), (EXCLUDES, "36")], false)]
#[case::the_same_for_another_version(&[(EXCLUDES, "36")], &[(EXCLUDES, "37")], false)]
#[case::the_same(&[(EXCLUDES, "36")], &[(EXCLUDES, "36")], true)]
#[case::one_less(&[(EXCLUDES, "35"), (EXCLUDES, "36")], &[(EXCLUDES, "35")], true)]
#[case::one_less_for_another_version(&[(EXCLUDES, "35"), (EXCLUDES, "36")], &[(EXCLUDES, "37")], true)]
#[case::removed_before_another(&[(NOT_FOUND, "36")], &[(EXCLUDES, "36"), (EXCLUDES, "37")], true)]
fn an_update_that_removes_a_finding_improves(
    #[case] before: &[Place],
    #[case] after: &[Place],
    #[case] better: bool,
) {
    let findings = |places: &[Place]| -> Vec<Finding> {
        let places = places.iter();
        places
            .map(|(reason, at)| finding(*reason, at, Admission::Refuses))
            .collect()
    };
    let (before, after) = (findings(before), findings(after));
    let (before, after): (Vec<&Finding>, Vec<&Finding>) = (before.iter().collect(), after.iter().collect());
    assert_eq!(improves(&before, &after), better);
}

/// Returns the verdict of an update to v1.36.3 that is refused for all findings that may refuse it.
fn judged(findings: Vec<Finding>, is_refused: bool) -> Verdict {
    let (old, new) = (settled(), cluster("v1.36.3", RELEASE, &json!({})));
    let update = ClusterUpdate {
        stored: &old,
        old: &old,
        new: &new,
        denies: true,
    };
    let plan = UpgradePlan {
        from: String::new(),
        to: String::new(),
        hops: Vec::new(),
        findings,
    };
    let refusing = if is_refused { refusing(&plan) } else { Vec::new() };
    verdict(&update, &plan, &refusing)
}

#[test]
fn a_refusal_names_field_reason_and_ways_out() {
    let findings = vec![
        finding(DOWNGRADED, "v1.36.3", Admission::Warns),
        finding(EXCLUDES, "v1.36.3", Admission::Refuses),
    ];
    let Verdict { faults, warnings } = judged(findings, true);
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "spec.topology.version: Invalid value: \"v1.36.3\": PackageExcludesKubernetes at v1.36.3: not for v1.36.3; change it; \
             to write it all the same, set annotation lifecycle.sluice.dev/skip-upgrade-checks=v1.36.3 on the Cluster, and gates will \
             hold the upgrade"
        ]
    );
    assert_eq!(warnings, ["PackageDowngraded at v1.36.3: not for v1.36.3"]);
}

#[rstest]
#[case::what_says_no(EXCLUDES, Admission::Refuses, true, 1, "")]
#[case::a_way_out(EXCLUDES, Admission::Refuses, false, 0, "will be held: ")]
#[case::what_is_missing(NOT_FOUND, Admission::Warns, true, 0, "will be held: ")]
#[case::of_cluster_api(NOT_FOUND, Admission::LeftToClusterApi, true, 0, "")]
fn a_finding_refuses_or_warns(
    #[case] reason: FindingReason,
    #[case] admission: Admission,
    #[case] is_refused: bool,
    #[case] faults: usize,
    #[case] prefix: &str,
) {
    let verdict = judged(vec![finding(reason, "v1.36.3", admission)], is_refused);
    assert_eq!(verdict.faults.len(), faults);
    let text = format!("{prefix}{} at v1.36.3: not for v1.36.3", reason.as_str());
    let expected = if faults == 0 { vec![text] } else { Vec::new() };
    assert_eq!(verdict.warnings, expected);
}

#[test]
fn a_verdict_is_bounded() {
    let mut one = finding(EXCLUDES, "v1.36.3", Admission::Refuses);
    one.message = "\u{1b}[2J".repeat(1 << 10);
    let Verdict { faults, .. } = judged(vec![one.clone(); 1000], true);
    assert_eq!(faults.len(), MAX_FINDINGS);
    let texts: String = faults.iter().map(ToString::to_string).collect();
    assert!(
        texts.len() < 2 * MAX_FINDINGS * MAX_TEXT && !texts.contains('\u{1b}'),
        "{texts}"
    );
    let last = faults.last().unwrap();
    assert!(
        last.text.contains("990 more findings: sluice plan -n team-a one"),
        "{last}"
    );
    let Verdict { warnings, .. } = judged(vec![one; 1000], false);
    assert_eq!(warnings.len(), MAX_FINDINGS + 1);
}

/// Returns the facts of a Cluster whose control plane is at v1.35.4.
fn facts(cluster: &Arc<Cluster>) -> Option<Facts> {
    facts_in(&Given::default(), cluster)
}

/// Returns the same from stores with these objects.
fn facts_in(given: &Given, cluster: &Arc<Cluster>) -> Option<Facts> {
    let settings = Settings {
        system_namespace: "system".to_owned(),
        extension_configs: Vec::new(),
        sync_period: SyncPeriod {
            length: Duration::from_mins(10),
            since: Instant::now(),
        },
        deletion_limit: Duration::from_mins(10),
    };
    let version = Some("v1.35.4".to_owned());
    let control_plane = CachedControlPlane {
        key: Key::of::<Cluster>(Server::Management, Some("team-a"), "one"),
        uid: None,
        generation: None,
        resource_version: None,
        versions: ControlPlaneFacts {
            spec_version: version.clone(),
            status_version: version,
        },
        rollout: Rollout::default(),
    };
    Facts::of(cluster, given, &settings, |_| Ok(Some(control_plane)))
}

/// Returns a Cluster whose machines at v1.35.4 are made of [`RELEASE`].
fn written(version: &str, release: &str) -> Cluster {
    let mut cluster = cluster(version, release, &json!({}));
    let entry = json!({"v1.35.4": {"osImageRef": {}, "labels": {label::TKR: RELEASE}}});
    let topology = json!({
        "classRef": {"name": "class"}, "version": version, "variables": [{"name": "TKR_DATA", "value": entry}],
    });
    cluster.spec.topology = serde_json::from_value(topology).unwrap();
    cluster.spec.control_plane_ref =
        serde_json::from_value(json!({"apiGroup": "a", "kind": "B", "name": "one"})).unwrap();
    cluster
}

#[rstest]
#[case::ahead(written("v1.35.4", RELEASE), written("v1.36.3", "36-1"), false)]
#[case::back(written("v1.36.3", "36-1"), written("v1.35.4", "36-1"), true)]
#[case::a_shorter_way(written("v1.37.0", "37-1"), written("v1.36.3", "36-1"), false)]
#[case::another_build(written("v1.36.3", "36-1"), written("v1.35.4+b", "36-1"), false)]
#[case::another_release(written("v1.35.4", RELEASE), written("v1.35.4", "35-2"), false)]
#[case::the_release_of_the_machines(written("v1.35.4", "35-2"), written("v1.35.4", RELEASE), true)]
fn the_way_back_is_that_to_the_machines(#[case] old: Cluster, #[case] new: Cluster, #[case] back: bool) {
    let facts = facts(&Arc::new(new)).unwrap();
    assert_eq!(is_way_back(&old, &facts), back);
}

/// Without an entry, the ClusterBootstrap names the release from before the upgrade.
#[rstest]
#[case::of_the_label("v1.35.4", RELEASE, true)]
#[case::of_another_release("v1.35.4", "35-0", false)]
#[case::of_another_version("v1.34.1", RELEASE, false)]
fn the_release_of_the_snapshot_is_the_way_back(
    #[case] version: &str,
    #[case] release: &str,
    #[case] back: bool,
) {
    let old = written("v1.35.4", "35-2");
    let mut facts = facts(&Arc::new(written("v1.35.4", RELEASE))).unwrap();
    facts.made_of = None;
    assert!(!is_way_back(&old, &facts));
    let snapshot = json!({"version": version, "release": release, "packages": {}});
    let bootstrap = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
        "metadata": {"name": "one", "annotations": {annotation::ROLLBACK_TO: snapshot.to_string()}}, "spec": {},
    });
    facts.bootstrap = Some(Arc::new(serde_json::from_value(bootstrap).unwrap()));
    assert_eq!(is_way_back(&old, &facts), back);
}

/// A caller may name any control plane and any status.
#[test]
fn a_plan_is_of_the_stored_control_plane_and_the_written_topology() {
    let mut stored = written("v1.35.4", RELEASE);
    stored
        .annotations_mut()
        .insert(annotation::PAUSED.to_owned(), String::new());
    stored.annotations_mut().insert("kept".to_owned(), "a".to_owned());
    let mut new = cluster("v1.36.3", "36-1", &json!({annotation::RESOLVE_TKR: ""}));
    new.metadata.uid = Some("other".to_owned());
    let planned = as_written(&stored, &new);
    assert_eq!(planned.spec.control_plane_ref, stored.spec.control_plane_ref);
    assert_eq!(planned.metadata.uid.as_deref(), Some("uid"));
    assert_eq!(version_of(&planned), Some("v1.36.3"));
    assert_eq!(release_of(&planned.metadata), "36-1");
    let annotations: Vec<&str> = planned.annotations().keys().map(String::as_str).collect();
    assert_eq!(annotations, ["kept", annotation::RESOLVE_TKR]);
}

fn now() -> Clock {
    Clock {
        now: Timestamp::UNIX_EPOCH,
        instant: Instant::now(),
    }
}

/// Returns the warnings about an update of the stored Cluster, whose control plane is at v1.35.4, to `new`.
fn warnings(stored: &Cluster, new: &Cluster, given: &Given) -> Vec<String> {
    let update = ClusterUpdate {
        stored,
        old: stored,
        new,
        denies: true,
    };
    let verdict = judge(&update, |cluster| facts_in(given, cluster), given, now()).unwrap();
    assert!(verdict.faults.is_empty(), "{verdict:?}");
    verdict.warnings
}

fn class(namespace: &str, name: &str, spec: &Value) -> Arc<ClusterClass> {
    object(Some(namespace), name, &Value::Null, &json!({"spec": spec}))
}

/// Cluster API asks the extension only once the version is stored.
#[rstest]
#[case::another_version("v1.35.4", true)]
#[case::another_release_of_the_version("v1.36.3", false)]
fn an_extension_has_not_planned_the_steps_to_another_version(#[case] stored: &str, #[case] assumed: bool) {
    let extension = json!({"upgrade": {"external": {"generateUpgradePlanExtension": "plan.ext"}}});
    let given = Given {
        classes: vec![class("team-a", "class", &extension)],
        ..Given::default()
    };
    let warnings = warnings(&written(stored, RELEASE), &written("v1.36.3", "36-1"), &given);
    let is_assumed = warnings
        .iter()
        .any(|warning| warning.starts_with("StepsNotPlanned"));
    assert_eq!(is_assumed, assumed, "{warnings:?}");
}

#[rstest]
#[case::every_step(&["v1.36.3", "v1.37.0"], "will be held: TemplateNotFound at v1.36.3: ")]
#[case::without_a_release_between(
    &["v1.37.0"],
    "will be held: NoTKRForHop at v1.37.0: no TanzuKubernetesRelease is for Kubernetes 1.36"
)]
fn steps_that_sluice_plans_are_checked(#[case] versions: &[&str], #[case] expected: &str) {
    let own = json!({"upgrade": {"external": {"generateUpgradePlanExtension": "generate-upgrade-plan.ext"}}});
    let releases = versions.iter().map(|version| {
        let spec = json!({"version": version, "kubernetes": {"version": version}});
        object(None, version, &Value::Null, &json!({"spec": spec}))
    });
    let given = Given {
        classes: vec![class("team-a", "class", &own)],
        releases: releases.collect(),
        ..Given::default()
    };
    let warnings = warnings(
        &written("v1.35.4", RELEASE),
        &written("v1.37.0", "v1.37.0"),
        &given,
    );
    assert!(
        warnings.iter().any(|warning| warning.starts_with(expected)),
        "{warnings:?}"
    );
    let is_assumed = |warning: &String| warning.starts_with("StepsNotPlanned");
    assert!(!warnings.iter().any(is_assumed), "{warnings:?}");
}

/// A caller may write any namespace.
#[rstest]
#[case::beside_the_class(json!({"name": "class"}))]
#[case::of_another_namespace(json!({"name": "class", "namespace": "other"}))]
fn a_class_that_lists_the_version_is_named(#[case] reference: Value) {
    let lists = |versions: &[&str]| json!({"kubernetesVersions": versions});
    let given = Given {
        classes: vec![
            class("other", "hidden", &lists(&["v1.35.4", "v1.36.3"])),
            class("other", "class", &lists(&["v1.35.4"])),
            class("team-a", "class", &lists(&["v1.35.4"])),
            class("team-a", "next", &lists(&["v1.35.4", "v1.36.3"])),
        ],
        ..Given::default()
    };
    let mut new = written("v1.36.3", "36-1");
    let topology = new.spec.topology.as_mut().unwrap();
    topology.class_ref = serde_json::from_value(reference).unwrap();
    let warnings = warnings(&written("v1.35.4", RELEASE), &new, &given);
    let warning = warnings
        .iter()
        .find(|warning| warning.starts_with("VersionNotInClass"))
        .unwrap();
    assert!(
        warning.ends_with("; ClusterClass team-a/next lists it"),
        "{warning}"
    );
}

#[rstest]
#[case::unmanaged(None, Some(Vec::new()))]
#[case::a_control_plane_that_is_not_listed(Some(Unknown::Reading), None)]
#[case::a_control_plane_that_cannot_be_read(
    Some(Unknown::Unreadable(Hold::new(GateReason::ControlPlaneKindUnreadable, "not served"))),
    Some(vec!["the upgrade was not checked: ControlPlaneKindUnreadable: not served"])
)]
fn an_upgrade_without_a_plan_is_admitted(
    #[case] unknown: Option<Unknown>,
    #[case] warnings: Option<Vec<&str>>,
) {
    let (old, new) = (written("v1.35.4", RELEASE), written("v1.36.3", "36-1"));
    let update = ClusterUpdate {
        stored: &old,
        old: &old,
        new: &new,
        denies: true,
    };
    let facts_of = |cluster: &Arc<Cluster>| {
        let mut facts = facts(cluster)?;
        facts.unknown = Some(unknown.clone()?);
        Some(facts)
    };
    let verdict = judge(&update, facts_of, &Given::default(), now());
    let expected = warnings.map(|warnings| Verdict {
        faults: Vec::new(),
        warnings: warnings.into_iter().map(str::to_owned).collect(),
    });
    assert_eq!(verdict, expected);
}
