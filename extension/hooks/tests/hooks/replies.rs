//! Every response, byte for byte.

use std::fmt::Write;

use axum::body::Body;
use http::Request;
use rstest::rstest;
use sluice_core::gate::decision::Decision;
use sluice_core::reasons::{CallReason, GateReason, HoldReason};
use sluice_hooks::{Hook, Profile, Reply, router};
use tower::ServiceExt;

use crate::caller::{Received, always, call, changed, confirming, held, path, post, recorded};

#[test]
fn what_a_decision_becomes() {
    let mut table = String::new();
    for hook in Hook::ALL {
        let hold = held(
            HoldReason::Gate(GateReason::PackagesNotReady),
            "waiting for antrea 1.9.0",
        );
        for (name, decision) in [("release", Decision::Release), ("hold", hold)] {
            let bytes = Reply::decided(hook, &decision).to_bytes();
            writeln!(table, "{hook} {name}\n  {}", String::from_utf8_lossy(&bytes)).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[rstest]
#[case::current(Profile::Current)]
#[case::before_1_12(Profile::Before1_12)]
#[tokio::test]
async fn discovery_lists_one_handler_per_hook(#[case] profile: Profile) {
    let gate = always(Decision::Release);
    let asked = gate.asked.clone();
    let path = format!(
        "{}/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery?timeout=10s",
        profile.prefix()
    );

    let Received { code, body } = post(&router(gate, ()), &path, crate::caller::DISCOVERY).await;

    assert_eq!(code, 200);
    assert!(asked.lock().unwrap().is_empty(), "discovery needs no gate");
    let name = format!("discovery{}", profile.prefix().replace('/', "_"));
    insta::assert_json_snapshot!(name, body);
}

#[rstest]
#[tokio::test]
async fn every_hook_is_answered_as_decided(
    #[values("", "/capi-1.11")] prefix: &str,
    #[values(true, false)] releases: bool,
) {
    let decision = if releases {
        Decision::Release
    } else {
        held(
            HoldReason::Gate(GateReason::PackagesNotReady),
            "waiting for antrea 1.9.0",
        )
    };
    let router = router(always(decision), ());
    let profile = Profile::ALL
        .into_iter()
        .find(|profile| profile.prefix() == prefix)
        .unwrap();
    for hook in profile.hooks() {
        let answer = post(&router, &path(prefix, hook), recorded(hook)).await;
        assert_eq!(answer.code, 200, "{hook}");
        let never_blocks = hook == Hook::AfterControlPlaneInitialized;
        assert_eq!(answer.releases(), releases || never_blocks, "{hook}: {answer:?}");
        assert_eq!(
            answer.message().is_empty(),
            releases || never_blocks,
            "{hook}: {answer:?}"
        );
        assert_eq!(
            answer.body.get("retryAfterSeconds").is_none(),
            never_blocks,
            "{hook}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn hooks_that_an_older_cluster_api_does_not_know_are_not_served_to_it() {
    let router = router(always(Decision::Release), ());
    for hook in [
        Hook::BeforeControlPlaneUpgrade,
        Hook::BeforeWorkersUpgrade,
        Hook::AfterWorkersUpgrade,
    ] {
        assert_eq!(
            post(&router, &path("/capi-1.11", hook), recorded(hook))
                .await
                .code,
            404,
            "{hook}"
        );
    }
}

/// A bump as Cluster API before 1.12 announces it: no steps, the Cluster without a type and with an empty status.
fn old_bump(from: &str, to: &str, label: Option<&str>) -> String {
    changed(Hook::BeforeClusterUpgrade, |request| {
        let fields = request.as_object_mut().unwrap();
        fields.remove("controlPlaneUpgrades");
        fields.remove("workersUpgrades");
        fields["fromKubernetesVersion"] = from.into();
        fields["toKubernetesVersion"] = to.into();
        let cluster = fields["cluster"].as_object_mut().unwrap();
        cluster.remove("apiVersion");
        cluster.remove("kind");
        cluster.insert(
            "status".into(),
            serde_json::json!({"infrastructureReady": false, "controlPlaneReady": false}),
        );
        if let Some(label) = label {
            cluster["metadata"]["labels"]["run.tanzu.vmware.com/tkr"] = label.into();
        }
    })
}

#[rstest]
#[case::next_minor("/capi-1.11", "v1.33.1", "v1.34.4", true, true)]
#[case::patch("/capi-1.11", "v1.34.1", "v1.34.4", true, true)]
#[case::two_minors("/capi-1.11", "v1.33.1", "v1.35.4", true, false)]
#[case::two_minors_of_a_cluster_without_label("/capi-1.11", "v1.33.1", "v1.35.4", false, true)]
#[case::two_minors_in_steps("", "v1.33.1", "v1.35.4", true, true)]
#[tokio::test]
async fn an_older_cluster_api_takes_one_minor_at_a_time(
    #[case] prefix: &str,
    #[case] from: &str,
    #[case] to: &str,
    #[case] labelled: bool,
    #[case] released: bool,
) {
    let body = old_bump(from, to, labelled.then_some("v1.35.4---sluice.1"));

    let router = router(always(Decision::Release), ());
    let answer = post(&router, &path(prefix, Hook::BeforeClusterUpgrade), body).await;

    assert_eq!(answer.releases(), released, "{answer:?}");
    if !released {
        assert_eq!(answer.body["status"], "Success");
        assert_eq!(
            answer.message(),
            "MinorVersionsSkipped: Cluster API before 1.12 would go from v1.33.1 to v1.35.4 in one step"
        );
    }
}

#[rstest]
#[case::not_confirmed(HoldReason::Call(CallReason::ReleaseNotConfirmed), true)]
#[case::starting(HoldReason::Call(CallReason::Starting), true)]
#[case::without_an_api(HoldReason::Gate(GateReason::APIUnavailable), true)]
#[case::of_the_cluster(HoldReason::Gate(GateReason::PackagesNotReady), false)]
#[tokio::test]
async fn a_hold_that_is_the_replicas_own_ends_the_connection(
    #[case] reason: HoldReason,
    #[case] closes: bool,
    #[values("", "/capi-1.11")] prefix: &str,
) {
    for gate in [always(held(reason, "")), confirming(held(reason, ""))] {
        let router = router(gate, ());
        let path = path(prefix, Hook::BeforeClusterUpgrade);
        let request = Request::post(path).body(Body::from(recorded(Hook::BeforeClusterUpgrade)));

        let answer = router.oneshot(request.unwrap()).await.unwrap();

        let connection = answer.headers().get("connection");
        assert_eq!(connection.is_some_and(|value| value == "close"), closes);
    }
}

#[tokio::test]
async fn a_release_keeps_the_connection() {
    let router = router(always(Decision::Release), ());
    let path = path("", Hook::BeforeClusterUpgrade);
    let request = Request::post(path).body(Body::from(recorded(Hook::BeforeClusterUpgrade)));
    let answer = router.oneshot(request.unwrap()).await.unwrap();
    assert!(!answer.headers().contains_key("connection"));
}

#[tokio::test]
async fn a_long_message_is_cut_between_characters() {
    let router = router(
        always(held(
            HoldReason::Gate(GateReason::PackagesNotReady),
            &"ä".repeat(4000),
        )),
        (),
    );
    let answer = call(
        &router,
        Hook::BeforeClusterUpgrade,
        recorded(Hook::BeforeClusterUpgrade),
    )
    .await;
    assert!(
        (1000..=1024).contains(&answer.message().len()),
        "{}",
        answer.message().len()
    );
}
