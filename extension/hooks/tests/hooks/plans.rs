//! Hook GenerateUpgradePlan: the calls, the answers, and what is refused.

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use proptest::prelude::*;
use proptest::sample::Index;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::cache::stores::Releases;
use sluice_core::upgrade_plan::steps_by;
use sluice_hooks::{Endpoint, Hook, NoPlan, Outcome, PlanCall, Profile, parse_plan, router};
use tower::ServiceExt;

use crate::caller::{
    DISCOVERY, PLAN, PLAN_PATH, Received, Seen, changed_plan, planning, post, recorded, releasing,
    with_method,
};
use crate::calls::v1beta1;
use crate::properties::{odd_values, places};

const TKR: &str = "run.tanzu.vmware.com/tkr";

/// The call of the recorded request.
fn recorded_call() -> PlanCall {
    PlanCall {
        namespace: "team-c".to_owned(),
        name: "three".to_owned(),
        uid: "94548e1f-15cc-42a3-91c3-a0c94aec7aac".to_owned(),
        from: "v1.34.4".to_owned(),
        to: "v1.36.3".to_owned(),
        pinned: Vec::new(),
    }
}

fn owned(versions: &[&str]) -> Vec<String> {
    versions.iter().map(|version| (*version).to_owned()).collect()
}

#[tokio::test]
async fn the_recorded_request_asks() {
    let gate = planning(Ok(Vec::new()));
    let asked = gate.asked.clone();
    post(&router(gate, ()), PLAN_PATH, PLAN).await;
    assert_eq!(*asked.lock().unwrap(), [format!("{:?}", recorded_call())]);
}

/// The Cluster of a request, by version of Cluster API.
#[derive(Clone, Copy, Debug)]
enum Shape {
    V1beta2,
    V1beta1,
    /// As in 1.12.
    V1beta1WithoutType,
}

#[rstest]
#[case::absent(Value::Null, &[])]
#[case::none(json!([]), &[])]
#[case::other_variables(json!([{"name": "cni", "value": {"v1.35.4": {"labels": {TKR: "v1.35.4---a"}}}}]), &[])]
#[case::releases(json!([
    {"name": "cni", "value": 1},
    {"name": "TKR_DATA", "value": {
        "v1.35.4": {"labels": {TKR: "v1.35.4---a", "a": "b"}, "kubernetesSpec": {"version": "v1.35.4"}},
        "v1.36.3": {"labels": {TKR: "v1.36.3---a"}},
    }},
]), &["v1.35.4", "v1.36.3"])]
#[case::no_release(json!([{"name": "TKR_DATA", "value": {"v1.35.4": {"labels": {}}, "v1.36.3": null}}]), &[])]
#[case::another_shape(json!([{"name": "TKR_DATA", "value": ["v1.35.4"]}]), &[])]
fn pinned_versions_are_read(
    #[case] variables: Value,
    #[case] pinned: &[&str],
    #[values(Shape::V1beta2, Shape::V1beta1, Shape::V1beta1WithoutType)] shape: Shape,
) {
    let body = changed_plan(|request| {
        let cluster = &mut request["cluster"];
        match shape {
            Shape::V1beta2 => {}
            Shape::V1beta1 => v1beta1(cluster, true),
            Shape::V1beta1WithoutType => v1beta1(cluster, false),
        }
        cluster["spec"]["topology"]["variables"] = variables;
    });
    let expected = PlanCall {
        pinned: owned(pinned),
        ..recorded_call()
    };
    assert_eq!(parse_plan(body.as_bytes()), Ok(expected));
}

/// Cluster API plans the steps of the workers.
#[rstest]
#[case::steps(&["v1.35.4", "v1.36.3"], json!([{"version": "v1.35.4"}, {"version": "v1.36.3"}]))]
#[case::equal_versions(&[], json!([]))]
#[tokio::test]
async fn steps_are_returned(#[case] steps: &'static [&'static str], #[case] expected: Value) {
    let seen = Seen::default();
    let router = router(planning(Ok(owned(steps))), seen.clone());
    let body = json!({"status": "Success", "message": "", "controlPlaneUpgrades": expected});
    let expected = Received {
        code: http::StatusCode::OK,
        body,
    };
    assert_eq!(post(&router, PLAN_PATH, PLAN).await, expected);
    assert_eq!(seen.last(), (Endpoint::UpgradePlan, Outcome::Released));
}

fn no_release() -> NoPlan {
    let missing = steps_by(&recorded_call(), &Releases::new(), None).unwrap_err();
    NoPlan::NoRelease(missing)
}

/// The hook cannot hold. Another replica may have the releases that this one lacks.
#[rstest]
#[case::no_release(no_release(), "NoReleaseForMinorVersion", false)]
#[case::not_listed(NoPlan::NotListed, "ReleasesNotListed", true)]
#[tokio::test]
async fn an_upgrade_without_a_plan_fails(
    #[case] why: NoPlan,
    #[case] reason: &'static str,
    #[case] closes: bool,
) {
    let seen = Seen::default();
    let router = router(planning(Err(why.clone())), seen.clone());
    let answer = post(&router, PLAN_PATH, PLAN).await;
    assert_eq!(answer.code, 200);
    assert_eq!(
        answer.body,
        json!({"status": "Failure", "message": why.to_string()})
    );
    assert!(answer.message().starts_with(reason), "{answer:?}");
    assert_eq!(seen.last(), (Endpoint::UpgradePlan, Outcome::Failed(reason)));

    let request = Request::post(PLAN_PATH).body(Body::from(PLAN)).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    let connection = answer.headers().get("connection");
    assert_eq!(connection.is_some_and(|value| value == "close"), closes);
}

#[test]
fn a_minor_version_without_a_release_is_named() {
    assert!(no_release().to_string().contains("1.35"), "{}", no_release());
}

#[tokio::test]
async fn only_post_is_answered() {
    let (router, seen) = releasing();
    for method in [Method::GET, Method::PUT, Method::PATCH, Method::DELETE] {
        let answer = with_method(&router, method, PLAN_PATH, PLAN).await;
        assert_eq!((answer.code.as_u16(), answer.status()), (405, "Failure"));
        assert_eq!(seen.last(), (Endpoint::UpgradePlan, Outcome::WrongMethod));
    }
}

#[tokio::test]
async fn a_cluster_api_without_the_hook_is_not_served() {
    let (router, seen) = releasing();
    let path = format!("{}{PLAN_PATH}", Profile::Before1_12.prefix());
    assert_eq!(post(&router, &path, PLAN).await.code, 404);
    assert_eq!(seen.last(), (Endpoint::Unknown, Outcome::NotFound));
}

async fn refused(body: impl Into<Body>) -> Received {
    let gate = planning(Ok(Vec::new()));
    let (asked, seen) = (gate.asked.clone(), Seen::default());
    let router = router(gate, seen.clone());
    let answer = post(&router, PLAN_PATH, body).await;
    assert_eq!((answer.code.as_u16(), answer.status()), (200, "Failure"));
    assert!((1..=400).contains(&answer.message().len()), "{answer:?}");
    assert!(answer.body.get("retryAfterSeconds").is_none(), "{answer:?}");
    assert!(
        matches!(seen.last(), (Endpoint::UpgradePlan, Outcome::Failed(_))),
        "{:?}",
        seen.last()
    );
    assert!(asked.lock().unwrap().is_empty());

    let next = post(&router, PLAN_PATH, PLAN).await;
    assert_eq!(next.status(), "Success", "the server lives on: {next:?}");
    answer
}

/// Arrays of this depth.
fn nested(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

/// The recorded request with this text as the variables.
fn with_variables(variables: &str) -> String {
    changed_plan(|request| request["cluster"]["spec"]["topology"]["variables"] = json!("@"))
        .replace("\"@\"", variables)
}

/// The recorded request with this text as the value of `TKR_DATA`.
fn with_releases(releases: &str) -> String {
    with_variables(&format!(r#"[{{"name":"TKR_DATA","value":{releases}}}]"#))
}

/// Many releases, or those of long versions.
fn pins(count: usize, length: usize) -> String {
    let pin = |number| {
        format!(
            r#""v1.35.{number}+{}":{{"labels":{{"{TKR}":"x"}}}}"#,
            "n".repeat(length)
        )
    };
    let pins: Vec<_> = (0..count).map(pin).collect();
    format!("{{{}}}", pins.join(","))
}

#[rstest]
#[case::empty(String::new(), "request body is empty")]
#[case::null("null".to_owned(), "invalid type: null, expected an object")]
#[case::array("[]".to_owned(), "invalid type: sequence, expected an object")]
#[case::cut_off(PLAN[..900].to_owned(), "EOF while parsing")]
#[case::two_requests(format!("{PLAN}{PLAN}"), "trailing characters")]
#[case::another_hook(recorded(Hook::BeforeClusterUpgrade).to_owned(), r#"want "GenerateUpgradePlanRequest""#)]
#[case::discovery(DISCOVERY.to_owned(), r#"want "GenerateUpgradePlanRequest""#)]
#[case::another_api_version(PLAN.replace("io/v1alpha1", "io/v1alpha2"), "apiVersion is")]
#[case::nested_too_deep(with_variables(&nested(10_000)), "nested too deep")]
#[case::variables_in_an_object(with_variables("{}"), "cluster.spec.topology.variables: ")]
#[case::variables_in_a_text(with_variables(r#""[]""#), "cluster.spec.topology.variables: ")]
#[case::variables_twice(with_variables(r#"[],"variables":[]"#), "duplicate field `variables`")]
#[case::releases_nested_too_deep(with_releases(&nested(200)), "cluster.spec.topology.variables: ")]
#[case::too_many_releases(with_releases(&pins(10_000, 1)), "cluster.spec.topology.variables: ")]
#[case::long_version_of_a_release(with_releases(&pins(1, 254)), "cluster.spec.topology.variables \"v1.35.0+nnn")]
#[tokio::test]
async fn bodies_that_are_no_request(#[case] body: String, #[case] message: &str) {
    let answer = refused(body).await;
    assert!(answer.message().contains(message), "{answer:?}");
}

#[rstest]
#[case::no_cluster("/cluster", Value::Null, "cluster is missing")]
#[case::another_kind_of_object("/cluster/kind", json!("Machine"), "cluster.kind is \"Machine\"")]
#[case::another_group("/cluster/apiVersion", json!("v1"), "cluster.apiVersion is \"v1\"")]
#[case::no_metadata("/cluster/metadata", Value::Null, "cluster.metadata is missing")]
#[case::no_name("/cluster/metadata/name", Value::Null, "cluster.metadata.name is missing")]
#[case::long_name("/cluster/metadata/name", json!("n".repeat(254)), "cluster.metadata.name \"nnnn")]
#[case::no_namespace("/cluster/metadata/namespace", json!(""), "cluster.metadata.namespace is missing")]
#[case::no_uid("/cluster/metadata/uid", Value::Null, "cluster.metadata.uid is missing")]
#[case::no_origin(
    "/fromControlPlaneKubernetesVersion",
    Value::Null,
    "fromControlPlaneKubernetesVersion is missing"
)]
#[case::origin_is_no_version("/fromControlPlaneKubernetesVersion", json!("v1.34"), "fromControlPlaneKubernetesVersion \"v1.34\"")]
#[case::no_target("/toKubernetesVersion", json!(""), "toKubernetesVersion is missing")]
#[case::target_of_another_type("/toKubernetesVersion", json!(1), "request body is not a valid request: invalid type: integer `1`")]
#[case::long_target("/toKubernetesVersion", json!(format!("v1.36.3+{}", "n".repeat(254))), "toKubernetesVersion \"v1.36.3+nnnn")]
#[tokio::test]
async fn fields_that_are_missing_or_wrong(#[case] field: &str, #[case] value: Value, #[case] message: &str) {
    let answer = refused(changed_plan(|request| {
        *request.pointer_mut(field).unwrap() = value;
    }))
    .await;
    assert!(answer.message().starts_with(message), "{answer:?}");
}

/// Sluice does not read them, so they may take any depth up to the limit of a body.
#[test]
fn variables_that_are_not_read_may_be_nested_deep() {
    let body = with_variables(&format!(r#"[{{"name":"other","value":{}}}]"#, nested(400)));
    assert_eq!(parse_plan(body.as_bytes()), Ok(recorded_call()));
}

#[tokio::test]
async fn twenty_mebibytes_are_read_and_not_one_byte_more() {
    const MIB_20: usize = 20 * 1024 * 1024;
    let (router, seen) = releasing();
    let padded = |size: usize| [PLAN, &" ".repeat(size - PLAN.len())].concat();
    let read = post(&router, PLAN_PATH, padded(MIB_20)).await;
    assert_eq!(read.status(), "Success");
    let refused = post(&router, PLAN_PATH, padded(MIB_20 + 1)).await;
    assert_eq!((refused.code.as_u16(), refused.status()), (413, "Failure"));
    assert_eq!(seen.last(), (Endpoint::UpgradePlan, Outcome::TooLarge));
}

/// Whether the answer to a body is steps or a failure, and never a request to call again.
fn is_answered(router: &Router, body: Vec<u8>) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let answer = runtime.block_on(post(router, PLAN_PATH, body));
    answer.code == 200
        && matches!(answer.status(), "Success" | "Failure")
        && answer.body.get("retryAfterSeconds").is_none()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_refused(body in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(parse_plan(&body).is_err());
        prop_assert!(is_answered(&releasing().0, body));
    }

    #[test]
    fn a_request_that_is_cut_short_is_refused(at in any::<Index>()) {
        let body = PLAN.trim_end().as_bytes();
        prop_assert!(parse_plan(&body[..at.index(body.len())]).is_err());
    }

    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..8)) {
        let mut body = with_releases(&pins(3, 1)).into_bytes();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok(call) = parse_plan(&body) {
            prop_assert!(!call.name.is_empty() && !call.namespace.is_empty() && !call.uid.is_empty());
        }
        prop_assert!(is_answered(&releasing().0, body));
    }

    #[test]
    fn a_changed_value_changes_no_other(at in any::<Index>(), value in odd_values()) {
        let original = with_releases(&pins(2, 1));
        let mut request: Value = serde_json::from_str(&original).unwrap();
        let mut found = Vec::new();
        places(&request, "", &mut found);
        let place = at.get(&found);
        *request.pointer_mut(place).unwrap() = value;
        let body = request.to_string().into_bytes();
        let original = parse_plan(original.as_bytes()).unwrap();
        if let Ok(call) = parse_plan(&body) {
            for (pointer, same) in [
                ("/cluster/metadata/name", call.name == original.name),
                ("/cluster/metadata/namespace", call.namespace == original.namespace),
                ("/cluster/metadata/uid", call.uid == original.uid),
                ("/fromControlPlaneKubernetesVersion", call.from == original.from),
                ("/toKubernetesVersion", call.to == original.to),
            ] {
                prop_assert!(same || place == pointer, "{pointer} differs after a change of {place}");
            }
            let of_variables = place.starts_with("/cluster/spec");
            prop_assert!(call.pinned == original.pinned || of_variables, "a change of {place}");
        }
        prop_assert!(is_answered(&releasing().0, body));
    }
}
