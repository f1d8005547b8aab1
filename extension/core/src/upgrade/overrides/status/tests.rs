use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const UID: &str = "cluster";
const VERSION: &str = "v1.36.3";
const RELEASE: &str = "v1.36.3---test.1";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-12-01T12:00:00Z")
}

/// The policy, as old as the override.
fn enforced() -> Policy {
    Policy::Since(at("2026-12-01T11:00:00Z"))
}

/// Returns an override for the control plane that was created an hour ago and expires in an hour.
fn object() -> UpgradeOverride {
    serde_json::from_value(json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeOverride",
        "metadata": {
            "name": "metrics", "namespace": "team-a", "uid": "override", "generation": 1, "resourceVersion": "7",
            "creationTimestamp": "2026-12-01T11:00:00Z",
        },
        "spec": {
            "clusterName": "one", "clusterUID": UID, "gate": "ControlPlane", "packages": ["metrics"],
            "target": {"kubernetesVersion": VERSION, "release": RELEASE},
            "reason": "CHG-4711", "requestedBy": "ada", "expiresAt": "2026-12-01T13:00:00Z",
        },
    }))
    .unwrap()
}

/// Returns the status of a ClusterBootstrap with an open record of the step.
fn status() -> Value {
    json!({
        "upgrade": {
            "schema": 1, "clusterUID": UID, "observedClusterGeneration": 1, "observedBootstrapGeneration": 1, "label": RELEASE,
            "from": "v1.35.4", "to": VERSION, "hop": VERSION, "tkr": RELEASE, "spentOverrides": [],
            "gates": [{"hook": "BeforeClusterUpgrade", "version": VERSION, "open": false, "reason": "PackagesNotReady"}],
            "packages": [
                {"name": "antrea", "version": "1.0.0", "state": "Ready"},
                {"name": "metrics", "version": "1.0.0", "state": "Failed"},
            ],
        },
    })
}

fn by(uid: &str) -> Value {
    json!({"name": "metrics", "uid": uid, "user": "ada", "reason": "CHG-4711", "expiresAt": "2026-12-01T13:00:00Z"})
}

fn used(uid: &str) -> Value {
    json!([{"name": "metrics", "uid": uid, "gate": "ControlPlane", "version": VERSION, "user": "ada", "reason": "CHG-4711"}])
}

fn history(uid: &str) -> Value {
    json!([{"from": "v1.35.4", "to": VERSION, "began": "2026-12-01T11:30:00Z", "overrides": used(uid)}])
}

/// Returns state and written status of an override of a Cluster with this status of its ClusterBootstrap.
fn judged(object: &UpgradeOverride, status: &Value, policy: Policy) -> (OverrideState, Option<Value>) {
    let status: ClusterBootstrapStatus = serde_json::from_value(status.clone()).unwrap();
    let cluster = NamedCluster {
        uid: UID,
        overrides: 1,
        status: Some(&status),
    };
    let state = OverrideState::of(object, Some(cluster), now());
    let written = write(object, &state, Some(policy), now()).map(|write| write.body);
    (state, written)
}

/// Returns status and reason of a written condition.
fn condition<'a>(body: &'a Value, type_: &str) -> (&'a str, &'a str) {
    let mut conditions = body["status"]["conditions"].as_array().unwrap().iter();
    let condition = conditions.find(|condition| condition["type"] == type_).unwrap();
    (
        condition["status"].as_str().unwrap(),
        condition["reason"].as_str().unwrap(),
    )
}

#[test]
fn an_override_is_accepted_and_written_once() {
    let mut object = object();
    let (state, body) = judged(&object, &status(), enforced());
    let body = body.unwrap();
    assert_eq!(condition(&body, "Accepted"), ("True", "Accepted"));
    assert_eq!(condition(&body, "Used"), ("False", "NotUsed"));
    assert_eq!(body["status"]["conditions"][0]["observedGeneration"], 1);
    assert_eq!(
        body["metadata"],
        json!({"uid": "override", "resourceVersion": "7"})
    );
    assert!(state.needs_policy());
    assert_eq!(state.until_expiry(&object, now()), Some(Duration::from_hours(1)));
    object.status = serde_json::from_value(body["status"].clone()).unwrap();
    assert_eq!(judged(&object, &status(), enforced()).1, None);
}

#[rstest]
#[case::incomplete(|of: &mut UpgradeOverride| of.spec.requested_by = None, "Incomplete")]
#[case::of_an_earlier_cluster(
    |of: &mut UpgradeOverride| of.spec.cluster_uid = Some("earlier".to_owned()), "OtherCluster"
)]
#[case::deleted(|of: &mut UpgradeOverride| of.metadata.deletion_timestamp = Some(Time(now())), "Deleted")]
#[case::expired(|of: &mut UpgradeOverride| of.spec.expires_at = Time(now()), "Expired")]
#[case::for_eight_days(
    |of: &mut UpgradeOverride| of.spec.expires_at = Time(at("2026-12-09T11:00:00Z")), "ExpiresTooLate"
)]
#[case::with_escape_sequences(|of: &mut UpgradeOverride| of.spec.reason = "\u{1b}[2J".to_owned(), "Malformed")]
#[case::of_an_unknown_package(
    |of: &mut UpgradeOverride| of.spec.packages = vec!["metric\u{1b}".to_owned()], "PackageUnknown"
)]
fn an_override_is_refused(#[case] edit: fn(&mut UpgradeOverride), #[case] reason: &str) {
    let mut object = object();
    edit(&mut object);
    let (state, body) = judged(&object, &status(), Policy::Missing);
    let body = body.unwrap();
    assert_eq!(condition(&body, "Accepted"), ("False", reason));
    assert!(!state.needs_policy(), "no read is needed");
    assert_eq!(state.until_expiry(&object, now()), None);
    let message = body["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(!message.is_empty() && !message.contains('\u{1b}'), "{message}");
}

#[test]
fn an_override_of_no_cluster_or_of_many_is_refused() {
    let object = object();
    let status: ClusterBootstrapStatus = serde_json::from_value(status()).unwrap();
    let of = |overrides: usize| NamedCluster {
        uid: UID,
        overrides,
        status: Some(&status),
    };
    let reason = |cluster: Option<NamedCluster<'_>>| {
        let state = OverrideState::of(&object, cluster, now());
        let body = write(&object, &state, Some(enforced()), now()).unwrap().body;
        condition(&body, "Accepted").1.to_owned()
    };
    assert_eq!(reason(None), "ClusterNotFound");
    assert_eq!(reason(Some(of(MAX_OVERRIDES))), "Accepted");
    assert_eq!(reason(Some(of(MAX_OVERRIDES + 1))), "TooMany");
}

#[rstest]
#[case(enforced(), ("True", "Accepted"))]
#[case(Policy::Since(at("2026-12-01T11:00:01Z")), ("False", "PolicyMissing"))]
#[case(Policy::Missing, ("False", "PolicyMissing"))]
#[case(Policy::Unreadable, ("Unknown", "PolicyUnreadable"))]
fn without_the_policy_no_override_is_accepted(#[case] policy: Policy, #[case] expected: (&str, &str)) {
    let body = judged(&object(), &status(), policy).1.unwrap();
    assert_eq!(condition(&body, "Accepted"), expected);
}

/// Its packages are those of the step that the override is for, once they are known.
#[rstest]
#[case::all_packages(&["*"], |_: &mut Value| {}, true, "")]
#[case::one_of_two(&["metrics", "metric"], |_: &mut Value| {}, true, "metric")]
#[case::before_the_record(&["metric"], |status: &mut Value| status["upgrade"] = Value::Null, true, "")]
#[case::before_the_packages(&["metric"], |status: &mut Value| status["upgrade"]["packages"] = json!([]), true, "")]
#[case::another_release(&["metric"], |status: &mut Value| status["upgrade"]["tkr"] = json!("r"), true, "")]
#[case::another_version(&["metric"], |status: &mut Value| status["upgrade"]["hop"] = json!("v1.35.4"), true, "")]
#[case::another_cluster(&["metric"], |status: &mut Value| status["upgrade"]["clusterUID"] = json!("other"), true, "")]
#[case::this_step(&["metric"], |_: &mut Value| {}, false, "metric")]
fn unknown_packages_are_named(
    #[case] packages: &[&str],
    #[case] edit: fn(&mut Value),
    #[case] is_accepted: bool,
    #[case] named: &str,
) {
    let mut object = object();
    object.spec.packages = packages.iter().copied().map(str::to_owned).collect();
    let mut status = status();
    edit(&mut status);
    let body = judged(&object, &status, enforced()).1.unwrap();
    assert_eq!(condition(&body, "Accepted").0 == "True", is_accepted);
    let message = body["status"]["conditions"][0]["message"].as_str().unwrap();
    assert_eq!(message.is_empty(), named.is_empty(), "{message}");
    assert!(message.ends_with(named), "{message}");
}

#[test]
fn packages_of_a_swap_are_those_of_its_release() {
    let mut object = object();
    object.spec.gate = OverriddenGate::Machines;
    object.spec.packages = vec!["metric".to_owned()];
    let mut status = status();
    status["upgrade"]["swap"] = json!({"version": VERSION, "to": "another", "open": false});
    let reason = |status: &Value| {
        let body = judged(&object, status, enforced()).1.unwrap();
        condition(&body, "Accepted").1.to_owned()
    };
    assert_eq!(reason(&status), "Accepted");
    status["upgrade"]["swap"]["to"] = json!(RELEASE);
    assert_eq!(reason(&status), "PackageUnknown");
}

/// The record forgets the override of a gate once its step is made, and every later record lists it as spent.
#[rstest]
#[case::a_gate(|status: &mut Value| status["upgrade"]["gates"][0]["overriddenBy"] = by("override"), true)]
#[case::the_machines(
    |status: &mut Value| {
        status["upgrade"]["swap"] = json!({"version": VERSION, "to": RELEASE, "open": true, "overriddenBy": by("override")});
    },
    true
)]
#[case::a_past_gate(|status: &mut Value| status["history"] = history("override"), true)]
#[case::of_the_same_name(|status: &mut Value| status["history"] = history("earlier"), false)]
#[case::of_the_same_name_now(
    |status: &mut Value| status["upgrade"]["gates"][0]["overriddenBy"] = by("earlier"), false
)]
fn a_use_is_kept(#[case] edit: fn(&mut Value), #[case] is_used: bool) {
    let mut object = object();
    let mut seen = status();
    edit(&mut seen);
    let (state, body) = judged(&object, &seen, enforced());
    let body = body.unwrap();
    assert_eq!(condition(&body, "Used").0 == "True", is_used);
    assert_eq!(state.needs_policy(), !is_used);
    object.status = serde_json::from_value(body["status"].clone()).unwrap();
    // The ClusterBootstrap may be created again, without the history.
    let mut later = status();
    later["upgrade"]["spentOverrides"] = json!(["override"]);
    let written = judged(&object, &later, enforced()).1.unwrap();
    assert_eq!(condition(&written, "Accepted"), ("False", "Spent"));
    assert_eq!(condition(&written, "Used").0 == "True", is_used);
}

#[test]
fn times_and_other_conditions_stay() {
    let mut object = object();
    let other = json!({
        "type": "Reviewed", "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": "2026-12-01T11:00:00Z",
    });
    let before = json!({
        "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-12-01T11:00:00Z",
    });
    object.status = serde_json::from_value(json!({"conditions": [other, before]})).unwrap();
    let body = judged(&object, &status(), enforced()).1.unwrap();
    let conditions = body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions[0]["lastTransitionTime"], before["lastTransitionTime"]);
    assert_eq!(conditions[2], other);
    let body = judged(&object, &status(), Policy::Missing).1.unwrap();
    assert_ne!(
        body["status"]["conditions"][0]["lastTransitionTime"],
        before["lastTransitionTime"]
    );
}
