//! Requests that panic inside the server, or that never end.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Request;
use rstest::rstest;
use sluice_core::gate::decision::Decision;
use sluice_core::gate::hook_call::{HookCall, OwnedHookCall};
use sluice_hooks::{Endpoint, Gate, Hook, NoPlan, Outcome, Peer, PlanCall, router};
use tokio::sync::{Barrier, Semaphore};

use crate::caller::{
    DISCOVERY, PLAN, PLAN_PATH, Seen, call, call_from, changed, changed_plan, path, post, post_from,
    recorded, releasing, send,
};

/// Fails for one cluster.
struct Fails;

impl Gate for Fails {
    fn decide(&self, call: &HookCall<'_>) -> Decision {
        assert!(call.name != "bad", "a defect that one cluster meets");
        Decision::Release
    }

    async fn confirm(&self, call: OwnedHookCall, _: IpAddr) -> Decision {
        tokio::task::yield_now().await;
        assert!(
            call.as_call().name != "unconfirmed",
            "a defect of its confirmation"
        );
        Decision::Release
    }

    fn plan(&self, call: PlanCall, _: IpAddr) -> impl Future<Output = Result<Vec<String>, NoPlan>> + Send {
        assert!(call.name != "bad", "a defect before the plan");
        async move {
            tokio::task::yield_now().await;
            assert!(call.name != "unconfirmed", "a defect of its plan");
            Ok(vec![call.to])
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_panic_holds_its_own_request_only(#[values("bad", "unconfirmed")] name: &str) {
    let seen = Seen::default();
    let router = router(Arc::new(Fails), seen.clone());
    for hook in Hook::ALL {
        let bad = changed(hook, |request| {
            request["cluster"]["metadata"]["name"] = name.into();
        });
        let answer = call(&router, hook, bad).await;
        assert_eq!(
            (answer.code.as_u16(), answer.body["status"].as_str()),
            (200, Some("Success"))
        );
        if hook == Hook::AfterControlPlaneInitialized {
            assert!(
                answer.releases(),
                "it blocks nothing, but its failure would: {answer:?}"
            );
        } else {
            assert_eq!(answer.body["retryAfterSeconds"], 5);
            assert!(answer.message().starts_with("InternalError: "), "{answer:?}");
        }
        assert_eq!(seen.last(), (Endpoint::Hook(hook), Outcome::Panicked));

        assert!(call(&router, hook, recorded(hook)).await.releases());
    }
}

#[rstest]
#[tokio::test]
async fn a_panic_fails_its_own_plan_only(#[values("bad", "unconfirmed")] name: &str) {
    let seen = Seen::default();
    let router = router(Arc::new(Fails), seen.clone());
    let bad = changed_plan(|request| request["cluster"]["metadata"]["name"] = name.into());
    let answer = post(&router, PLAN_PATH, bad).await;
    assert_eq!((answer.code.as_u16(), answer.status()), (200, "Failure"));
    assert_eq!(seen.last(), (Endpoint::UpgradePlan, Outcome::Panicked));

    assert_eq!(post(&router, PLAN_PATH, PLAN).await.status(), "Success");
}

/// No plan can be held, and Cluster API calls again after a failure.
#[tokio::test(start_paused = true)]
async fn a_plan_whose_body_is_not_read_fails() {
    let (router, seen) = releasing();
    let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let late = post(&router, PLAN_PATH, body).await;
    assert_eq!((late.code.as_u16(), late.status()), (200, "Failure"));
    assert_eq!(seen.last(), (Endpoint::UpgradePlan, Outcome::Late));

    let peer = Peer::default();
    begin(&router, &peer);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let busy = post_from(&router, &peer, PLAN_PATH, PLAN).await;
    assert_eq!((busy.code.as_u16(), busy.status()), (200, "Failure"));
    assert_eq!(seen.last(), (Endpoint::UpgradePlan, Outcome::Busy));
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_end_is_held_before_the_caller_gives_up(#[values(0, 1000)] sent: usize) {
    let (router, seen) = releasing();
    let begun = Bytes::from_static(&recorded(Hook::BeforeClusterUpgrade).as_bytes()[..sent]);
    let body = Body::from_stream(stream::iter([Ok::<_, std::io::Error>(begun)]).chain(stream::pending()));

    let began = tokio::time::Instant::now();
    let answer = call(&router, Hook::BeforeClusterUpgrade, body).await;

    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(
        (answer.code.as_u16(), answer.body["status"].as_str()),
        (200, Some("Success"))
    );
    assert_eq!(answer.body["retryAfterSeconds"], 5);
    assert_eq!(
        seen.last(),
        (Endpoint::Hook(Hook::BeforeClusterUpgrade), Outcome::Late)
    );
}

#[tokio::test]
async fn a_head_is_not_kept_while_its_body_is_waited_for() {
    let (router, _) = releasing();
    let head = Arc::new(());
    let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let request = Request::post(path("", Hook::BeforeClusterUpgrade)).extension(Arc::clone(&head));
    let waiting = tokio::spawn(async move { send(&router, request.body(body).unwrap()).await });
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&head), 1, "a peer chooses how much is in it");
    waiting.abort();
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused() {
    let (router, _) = releasing();
    let parts = [Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("reset"))];
    let answer = call(
        &router,
        Hook::BeforeClusterUpgrade,
        Body::from_stream(stream::iter(parts)),
    )
    .await;
    assert_eq!(answer.body["status"], "Failure", "{answer:?}");
}

/// The usual request of `peer` is answered at once.
async fn assert_no_wait(router: &Router, peer: &Peer) {
    let began = tokio::time::Instant::now();
    let usual = recorded(Hook::BeforeClusterUpgrade);
    let answer = call_from(router, peer, Hook::BeforeClusterUpgrade, usual).await;
    assert!(answer.releases(), "{answer:?}");
    let took = began.elapsed();
    assert!(took < Duration::from_millis(100), "{took:?}");
}

/// Twenty megabytes that arrive and then do not end, many times.
#[tokio::test(start_paused = true)]
async fn large_bodies_share_their_memory_and_small_ones_have_their_own() {
    const LARGE: usize = 19 << 20;
    let (router, _) = releasing();
    let chunk = Bytes::from(vec![b' '; 1 << 16]);
    let large: Vec<_> = (0..40)
        .map(|_| {
            let router = router.clone();
            let chunks = vec![chunk.clone(); LARGE >> 16]
                .into_iter()
                .map(Ok::<_, std::io::Error>);
            let body = Body::from_stream(stream::iter(chunks).chain(stream::pending()));
            tokio::spawn(async move { call(&router, Hook::BeforeClusterUpgrade, body).await })
        })
        .collect();
    tokio::task::yield_now().await;

    assert_no_wait(&router, &Peer::default()).await;

    let mut busy = 0;
    for answer in large {
        let answer = answer.await.unwrap();
        assert!(!answer.releases());
        busy += usize::from(answer.message().starts_with("RequestsTooMany: "));
    }
    assert!(busy >= 38, "{busy} of 40 found no memory");
    let after = [recorded(Hook::BeforeClusterUpgrade), &" ".repeat(LARGE)].concat();
    assert!(
        call(&router, Hook::BeforeClusterUpgrade, after).await.releases(),
        "the memory was given back"
    );
}

/// Many bodies of a peer that do not end.
fn begin(router: &Router, peer: &Peer) {
    let chunk = Bytes::from(vec![b' '; 64 << 10]);
    for _ in 0..400 {
        let (router, peer, chunk) = (router.clone(), peer.clone(), chunk.clone());
        let body = Body::from_stream(stream::iter([Ok::<_, std::io::Error>(chunk)]).chain(stream::pending()));
        tokio::spawn(async move { call_from(&router, &peer, Hook::BeforeClusterUpgrade, body).await });
    }
}

/// More small bodies than the memory limit permits.
#[tokio::test(start_paused = true)]
async fn peers_take_their_shares_and_leave_the_rest_to_another() {
    let (router, seen) = releasing();
    let greedy: [Peer; 3] = std::array::from_fn(|_| Peer::default());
    for peer in &greedy {
        begin(&router, peer);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    assert_no_wait(&router, &Peer::default()).await;

    let usual = recorded(Hook::BeforeClusterUpgrade);
    let began = tokio::time::Instant::now();
    let own = call_from(&router, &greedy[0], Hook::BeforeClusterUpgrade, usual).await;
    assert_eq!(began.elapsed(), Duration::ZERO, "nothing is waited for");
    assert_eq!(
        (own.body["status"].as_str(), &own.body["retryAfterSeconds"]),
        (Some("Success"), &1.into()),
        "{own:?}"
    );
    assert!(own.message().starts_with("RequestsTooMany: "), "{own:?}");
    assert_eq!(
        seen.last(),
        (Endpoint::Hook(Hook::BeforeClusterUpgrade), Outcome::Busy)
    );
    let path = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery";
    let request = Request::post(path).extension(greedy[0].clone());
    let discovery = send(&router, request.body(Body::from(DISCOVERY)).unwrap()).await;
    assert_eq!(
        discovery.body["status"], "Success",
        "discovery needs no memory: {discovery:?}"
    );

    tokio::time::sleep(Duration::from_secs(3)).await;
    let own = call_from(&router, &greedy[0], Hook::BeforeClusterUpgrade, usual).await;
    assert!(own.releases(), "once those before it were given up: {own:?}");
}

/// Heads without a body cost memory, too.
#[tokio::test(start_paused = true)]
async fn requests_at_once_are_bounded_before_any_of_their_bodies_comes() {
    let (router, seen) = releasing();
    let peer = Peer::default();
    for _ in 0..10_000 {
        let (router, peer) = (router.clone(), peer.clone());
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        tokio::spawn(async move { call_from(&router, &peer, Hook::BeforeClusterUpgrade, body).await });
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let seen = seen.0.lock().unwrap();
    let late = seen
        .iter()
        .filter(|(_, outcome)| *outcome == Outcome::Late)
        .count();
    assert_eq!((late, seen.len()), (8 * 1024, 10_000), "all others were refused");
}

/// Gate whose confirmations and plans end together.
struct Together {
    entered: Semaphore,
    all: Barrier,
}

impl Gate for Together {
    fn decide(&self, _: &HookCall<'_>) -> Decision {
        Decision::Release
    }

    async fn confirm(&self, _: OwnedHookCall, _: IpAddr) -> Decision {
        self.reads().await;
        Decision::Release
    }

    async fn plan(&self, call: PlanCall, _: IpAddr) -> Result<Vec<String>, NoPlan> {
        self.reads().await;
        Ok(vec![call.to])
    }
}

impl Together {
    async fn reads(&self) {
        self.entered.add_permits(1);
        self.all.wait().await;
    }
}

/// The budget of one peer has room for one of these bodies.
#[rstest]
#[case::confirmation(path("", Hook::BeforeClusterUpgrade), recorded(Hook::BeforeClusterUpgrade))]
#[case::plan(PLAN_PATH.to_owned(), PLAN)]
#[tokio::test]
async fn a_body_is_dropped_before_the_reads_of_its_call(#[case] url: String, #[case] body: &'static str) {
    let soon = Duration::from_mins(1);
    let gate = Arc::new(Together {
        entered: Semaphore::new(0),
        all: Barrier::new(3),
    });
    let (router, peer) = (router(Arc::clone(&gate), ()), Peer::default());
    let mut answers = Vec::new();
    for _ in 0..3 {
        let body = [body, &" ".repeat(15 * 1024 * 1024)].concat();
        let (router, peer, url) = (router.clone(), peer.clone(), url.clone());
        answers.push(tokio::spawn(async move {
            post_from(&router, &peer, &url, body).await
        }));
        let entered = tokio::time::timeout(soon, gate.entered.acquire()).await;
        entered.expect("the call reads").unwrap().forget();
    }
    for answer in answers {
        let answer = tokio::time::timeout(soon, answer).await.expect("an answer");
        assert!(answer.unwrap().releases());
    }
}
