//! Malformed requests are refused with a message, and never released.

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{Method, Request};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_hooks::{Endpoint, Hook, Outcome};

use crate::caller::{DISCOVERY, Received, call, changed, path, post, recorded, releasing, send, with_method};

const HOOK: Hook = Hook::BeforeClusterUpgrade;

async fn refused(body: impl Into<Body>) -> Received {
    let (router, seen) = releasing();
    let answer = call(&router, HOOK, body).await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.body["status"], "Failure", "{answer:?}");
    assert!((1..=400).contains(&answer.message().len()), "{answer:?}");
    assert!(
        matches!(seen.last(), (Endpoint::Hook(HOOK), Outcome::Failed(_))),
        "{:?}",
        seen.last()
    );

    let next = call(&router, HOOK, recorded(HOOK)).await;
    assert!(next.releases(), "the server lives on: {next:?}");
    answer
}

#[rstest]
#[case::empty("", "request body is empty")]
#[case::blank(" \n\t", "request body is empty")]
#[case::null(
    "null",
    "request body is not a valid request: invalid type: null, expected an object at line 1 column 4"
)]
#[case::word(
    "upgrade",
    "request body is not a valid request: expected value at line 1 column 1"
)]
#[case::number(
    "7",
    "request body is not a valid request: invalid type: integer `7`, expected an object at line 1 column 1"
)]
#[case::array(
    "[]",
    "request body is not a valid request: invalid type: sequence, expected an object at line 1 column 0"
)]
#[case::no_fields("{}", r#"kind is "", want "BeforeClusterUpgradeRequest""#)]
#[case::cut_off(&recorded(HOOK)[..900], "request body is not a valid request: EOF while parsing")]
#[case::another_hook(
    recorded(Hook::BeforeControlPlaneUpgrade),
    r#"kind is "BeforeControlPlaneUpgradeRequest", want "BeforeClusterUpgradeRequest""#
)]
#[case::discovery(
    DISCOVERY,
    r#"kind is "DiscoveryRequest", want "BeforeClusterUpgradeRequest""#
)]
#[case::not_text("\u{0}\u{1}", "request body is not a valid request: expected value")]
#[tokio::test]
async fn bodies_that_are_no_request(#[case] body: &'static str, #[case] message: &str) {
    let answer = refused(body).await;
    assert!(answer.message().starts_with(message), "{answer:?}");
}

#[rstest]
#[case::two_requests(format!("{0}{0}", recorded(HOOK)), "trailing characters")]
#[case::another_api_version(recorded(HOOK).replace("io/v1alpha1", "io/v1alpha2"), "apiVersion is \"hooks.runtime.cluster.x-k8s.io/v1alpha2\"")]
#[case::twice_the_same_field(recorded(HOOK).replace("\"settings\"", "\"kind\""), "duplicate field")]
#[case::twice_the_same_label(changed(HOOK, |request| request["cluster"]["metadata"]["labels"] = json!("@")).replace("\"@\"", r#"{"run.tanzu.vmware.com/tkr": "a", "run.tanzu.vmware.com/tkr": "b"}"#), "duplicate field")]
#[case::deep_in_a_label(changed(HOOK, |request| request["cluster"]["metadata"]["labels"] = json!("@")).replace("\"@\"", &format!("{{\"a\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000))), "nested too deep")]
#[case::deep_array("[".repeat(10_000), "nested too deep")]
#[case::deep_in_an_unread_field(changed(HOOK, |request| request["cluster"]["spec"]["x"] = json!("@")).replace("\"@\"", &format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000))), "nested too deep")]
#[case::long_nonsense(format!(r#"{{"kind": "{}"}}"#, "x".repeat(1 << 20)), "kind is \"xxxx")]
#[case::long_wrong_type(format!(r#"{{"cluster": "{}"}}"#, "x".repeat(1 << 20)), "invalid type: string \"xxxx")]
#[case::not_utf8(recorded(HOOK).replace("team-a", "team-\u{0}"), "control character")]
#[tokio::test]
async fn bodies_that_are_odd(#[case] body: String, #[case] message: &str) {
    let answer = refused(body).await;
    assert!(answer.message().contains(message), "{answer:?}");
}

#[tokio::test]
async fn text_that_is_not_utf_8() {
    let mut body = recorded(HOOK).as_bytes().to_vec();
    let name = recorded(HOOK).find("team-a").unwrap();
    body[name] = 0xff;
    let answer = refused(body).await;
    assert!(answer.message().contains("invalid unicode"), "{answer:?}");
}

#[rstest]
#[case::no_cluster("/cluster", Value::Null, "cluster is missing")]
#[case::no_metadata("/cluster/metadata", Value::Null, "cluster.metadata is missing")]
#[case::no_name("/cluster/metadata/name", Value::Null, "cluster.metadata.name is missing")]
#[case::empty_name("/cluster/metadata/name", json!(""), "cluster.metadata.name is missing")]
#[case::no_namespace(
    "/cluster/metadata/namespace",
    Value::Null,
    "cluster.metadata.namespace is missing"
)]
#[case::empty_namespace("/cluster/metadata/namespace", json!(""), "cluster.metadata.namespace is missing")]
#[case::no_uid("/cluster/metadata/uid", Value::Null, "cluster.metadata.uid is missing")]
#[case::empty_uid("/cluster/metadata/uid", json!(""), "cluster.metadata.uid is missing")]
#[case::no_generation(
    "/cluster/metadata/generation",
    Value::Null,
    "cluster.metadata.generation is missing"
)]
#[case::generation_zero("/cluster/metadata/generation", json!(0), "cluster.metadata.generation is missing")]
#[case::generation_of_another_type("/cluster/metadata/generation", json!("4"), "request body is not a valid request: invalid type: string \"4\", expected i64")]
#[case::generation_of_another_size("/cluster/metadata/generation", json!(1e30), "request body is not a valid request: invalid type: floating point")]
#[case::long_name("/cluster/metadata/name", json!("n".repeat(254)), "cluster.metadata.name \"nnnn")]
#[case::long_namespace("/cluster/metadata/namespace", json!("n".repeat(254)), "cluster.metadata.namespace \"nnnn")]
#[case::long_uid("/cluster/metadata/uid", json!("n".repeat(254)), "cluster.metadata.uid \"nnnn")]
#[case::long_label("/cluster/metadata/labels", json!({"run.tanzu.vmware.com/tkr": "n".repeat(254)}), "cluster.metadata.labels \"nnnn")]
#[case::long_version("/toKubernetesVersion", json!(format!("v1.36.3+{}", "n".repeat(254))), "toKubernetesVersion \"v1.36.3+nnnn")]
#[case::name_of_another_type("/cluster/metadata/name", json!(1), "request body is not a valid request: invalid type: integer `1`, expected a string")]
#[case::cluster_of_another_type("/cluster", json!([]), "request body is not a valid request: invalid type: sequence, expected an object")]
#[case::metadata_of_another_type("/cluster/metadata", json!(true), "request body is not a valid request: invalid type: boolean `true`, expected an object")]
#[case::labels_of_another_type("/cluster/metadata/labels", json!([]), "request body is not a valid request: invalid type: sequence, expected an object of labels")]
#[case::label_of_another_type("/cluster/metadata/labels", json!({"run.tanzu.vmware.com/tkr": 1}), "request body is not a valid request: invalid type: integer `1`, expected a string")]
#[case::another_kind_of_object("/cluster/kind", json!("Machine"), "cluster.kind is \"Machine\", want \"Cluster\"")]
#[case::another_group("/cluster/apiVersion", json!("v1"), "cluster.apiVersion is \"v1\", want \"cluster.x-k8s.io/v1beta2\"")]
#[case::deletion_at_no_time("/cluster/metadata/deletionTimestamp", json!("soon"), "cluster.metadata.deletionTimestamp \"soon\" is not a time")]
#[case::no_target("/toKubernetesVersion", Value::Null, "toKubernetesVersion is missing")]
#[case::empty_target("/toKubernetesVersion", json!(""), "toKubernetesVersion is missing")]
#[case::target_is_no_version("/toKubernetesVersion", json!("latest"), "toKubernetesVersion \"latest\" is not a semantic version")]
#[case::target_is_no_version_and_long("/toKubernetesVersion", json!("9".repeat(5000)), "toKubernetesVersion \"9999")]
#[case::origin_is_no_version("/fromKubernetesVersion", json!("v1.35"), "fromKubernetesVersion \"v1.35\" is not a semantic version")]
#[case::step_is_no_version("/controlPlaneUpgrades/0/version", json!("x"), "controlPlaneUpgrades[0].version \"x\" is not a semantic version")]
#[case::step_without_version("/workersUpgrades/0", json!({}), "workersUpgrades[0].version is missing")]
#[case::step_of_another_type("/workersUpgrades/0", json!(["v1.36.3"]), "request body is not a valid request: invalid type: sequence, expected an object")]
#[tokio::test]
async fn fields_that_are_missing_or_wrong(#[case] field: &str, #[case] value: Value, #[case] message: &str) {
    let answer = refused(changed(HOOK, |request| {
        let (parent, name) = field.rsplit_once('/').unwrap();
        let parent = request.pointer_mut(parent).unwrap();
        match name.parse::<usize>() {
            Ok(index) => parent[index] = value,
            Err(_) => parent[name] = value,
        }
    }))
    .await;
    assert!(answer.message().starts_with(message), "{answer:?}");
}

#[rstest]
#[case(
    Hook::BeforeClusterCreate,
    "/cluster/spec/topology/version",
    "cluster.spec.topology.version"
)]
#[case(
    Hook::BeforeControlPlaneUpgrade,
    "/toKubernetesVersion",
    "toKubernetesVersion"
)]
#[case(Hook::AfterControlPlaneUpgrade, "/kubernetesVersion", "kubernetesVersion")]
#[case(Hook::BeforeWorkersUpgrade, "/toKubernetesVersion", "toKubernetesVersion")]
#[case(Hook::AfterWorkersUpgrade, "/kubernetesVersion", "kubernetesVersion")]
#[case(Hook::AfterClusterUpgrade, "/kubernetesVersion", "kubernetesVersion")]
#[tokio::test]
async fn the_version_that_a_hook_is_about(#[case] hook: Hook, #[case] pointer: &str, #[case] field: &str) {
    for (version, text) in [
        (json!("x"), format!("{field} \"x\" is not a semantic version")),
        (Value::Null, format!("{field} is missing")),
    ] {
        let (router, _) = releasing();
        let body = changed(hook, |request| *request.pointer_mut(pointer).unwrap() = version);
        let answer = call(&router, hook, body).await;
        assert_eq!(
            (answer.code.as_u16(), &answer.body["status"], answer.message()),
            (200, &json!("Failure"), &*text)
        );
    }
}

#[rstest]
#[tokio::test]
async fn only_post_is_answered(
    #[values(
        Method::GET,
        Method::HEAD,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS
    )]
    method: Method,
) {
    let (router, seen) = releasing();
    if method == Method::HEAD {
        let request = Request::head(path("", HOOK))
            .body(Body::from(recorded(HOOK)))
            .unwrap();
        let answer = tower::ServiceExt::oneshot(router, request).await.unwrap();
        assert_eq!(answer.status(), 405);
    } else {
        let answer = with_method(&router, method, &path("", HOOK), recorded(HOOK)).await;
        assert_eq!(
            (answer.code.as_u16(), &answer.body["status"]),
            (405, &json!("Failure")),
            "{answer:?}"
        );
    }
    assert_eq!(seen.last(), (Endpoint::Hook(HOOK), Outcome::WrongMethod));
}

#[rstest]
#[case::root("/")]
#[case::no_handler("/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade")]
#[case::another_handler("/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade/other")]
#[case::handler_of_another_hook(
    "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade/after-cluster-upgrade"
)]
#[case::name_of_the_registration(
    "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade/before-cluster-upgrade.sluice"
)]
#[case::another_version(
    "/hooks.runtime.cluster.x-k8s.io/v1alpha2/beforeclusterupgrade/before-cluster-upgrade"
)]
#[case::upper_case("/hooks.runtime.cluster.x-k8s.io/v1alpha1/BeforeClusterUpgrade/before-cluster-upgrade")]
#[case::another_profile("/capi-1.10/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery")]
#[case::not_advertised(
    "/capi-1.11/hooks.runtime.cluster.x-k8s.io/v1alpha1/generateupgradeplan/generate-upgrade-plan"
)]
#[case::more("/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade/before-cluster-upgrade/more")]
#[tokio::test]
async fn unknown_paths_are_counted(#[case] path: &str) {
    let (router, seen) = releasing();
    let answer = post(&router, path, recorded(HOOK)).await;
    assert_eq!(
        (answer.code.as_u16(), &answer.body["status"]),
        (404, &json!("Failure")),
        "{answer:?}"
    );
    assert_eq!(seen.last(), (Endpoint::Unknown, Outcome::NotFound));
}

/// A request of exactly `size` bytes that is otherwise good.
fn padded(size: usize) -> Vec<u8> {
    let mut body = recorded(HOOK).as_bytes().to_vec();
    body.resize(size, b' ');
    body
}

const MIB_20: usize = 20 * 1024 * 1024;

#[rstest]
#[case::announced(true)]
#[case::streamed(false)]
#[tokio::test]
async fn twenty_mebibytes_are_read_and_not_one_byte_more(#[case] announced: bool) {
    let (router, seen) = releasing();
    let send = async |size: usize| {
        let bytes = Bytes::from(padded(size));
        let body = if announced {
            Body::from(bytes)
        } else {
            let chunks: Vec<_> = bytes
                .chunks(1 << 16)
                .map(|chunk| Ok::<_, std::io::Error>(Bytes::copy_from_slice(chunk)))
                .collect();
            Body::from_stream(stream::iter(chunks))
        };
        call(&router, HOOK, body).await
    };

    assert!(send(MIB_20).await.releases());
    let answer = send(MIB_20 + 1).await;
    assert_eq!(
        (answer.code.as_u16(), &answer.body["status"]),
        (413, &json!("Failure")),
        "{answer:?}"
    );
    assert_eq!(seen.last(), (Endpoint::Hook(HOOK), Outcome::TooLarge));
    assert!(send(5000).await.releases());
}

#[rstest]
#[case::json("application/json")]
#[case::form("application/x-www-form-urlencoded")]
#[case::garbage("garbage")]
#[tokio::test]
async fn the_content_type_does_not_matter(#[case] content_type: &str) {
    let (router, _) = releasing();
    let request = Request::post(path("", HOOK)).header("content-type", content_type);
    let answer = send(&router, request.body(Body::from(recorded(HOOK))).unwrap()).await;
    assert!(answer.releases(), "{answer:?}");
}

#[rstest]
#[case::empty("")]
#[case::null("null")]
#[case::another_kind(recorded(HOOK))]
#[tokio::test]
async fn discovery_wants_to_be_asked(#[case] body: &'static str) {
    let (router, seen) = releasing();
    let answer = post(
        &router,
        "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery",
        body,
    )
    .await;
    assert_eq!(
        (answer.code.as_u16(), &answer.body["status"]),
        (200, &json!("Failure")),
        "{answer:?}"
    );
    assert!(matches!(seen.last(), (Endpoint::Discovery, Outcome::Failed(_))));
}
