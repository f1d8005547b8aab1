//! Limits of calls before and after their caller is known.

use std::{convert::Infallible, net::Ipv4Addr, time::Duration};

use axum::{Router, body::Body};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use tonic::{Code, Status};
use tower::ServiceExt as _;

use super::rig::{Rig, Said};
use crate::Connection;

const LIST: &str = "/sluice.status.v1.StatusService/ListClusters";
const WATCH: &str = "/sluice.status.v1.StatusService/WatchClusters";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// Returns a message with its prefix, which carries its length.
fn message(length: usize) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(u32::try_from(length).unwrap().to_be_bytes());
    // Field 15, which no request has, so that the decoder skips its bytes.
    message.extend(std::iter::repeat_n([0x7a, 0], length / 2).flatten());
    message
}

async fn call(router: &Router, path: &str, body: Body) -> Response<Body> {
    call_as("good", router, path, body).await
}

/// Calls as the user of this token.
async fn call_as(token: &str, router: &Router, path: &str, body: Body) -> Response<Body> {
    let request = Request::post(format!("https://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {token}"))
        .body(body)
        .unwrap();
    router.clone().oneshot(request).await.unwrap()
}

/// Returns a body with this beginning and no end.
fn endless(first: Vec<u8>) -> Body {
    let first = stream::iter([Ok::<_, Infallible>(Bytes::from(first))]);
    Body::from_stream(first.chain(stream::pending()))
}

/// Returns the status code of a response without a message.
fn code(answer: &Response<Body>) -> Option<Code> {
    Status::from_header_map(answer.headers()).map(|status| status.code())
}

#[tokio::test(start_paused = true)]
async fn a_request_arrives_within_ten_seconds() {
    let rig = Rig::filled().await;
    for path in [LIST, WATCH] {
        let since = Instant::now();
        let answer = call(&rig.router, path, endless(message(100)[..20].to_vec())).await;
        assert_eq!(code(&answer), Some(Code::DeadlineExceeded), "{path}");
        assert_eq!(since.elapsed().as_secs(), 10, "{path}");
    }
    assert_eq!(rig.reviews.asked(""), 0, "nothing was asked about its caller");
}

/// Otherwise sixty-four calls that never arrive would block others for as long as their connections live.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_token_arrives_without_a_pause_of_ten_seconds() {
    let rig = Rig::filled().await;
    let since = Instant::now();
    let answer = call(&rig.router, HEALTH, endless(message(100)[..20].to_vec())).await;
    assert!(code(&answer).is_some_and(|code| code != Code::Ok), "{answer:?}");
    assert_eq!(since.elapsed().as_secs(), 10);
    let slow = stream::iter(message(0)).then(|byte| async move {
        tokio::time::sleep(Duration::from_secs(9)).await;
        Ok::<_, Infallible>(Bytes::from(vec![byte]))
    });
    let answer = call(&rig.router, HEALTH, Body::from_stream(slow)).await;
    assert_eq!(code(&answer), None, "it has arrived");
}

#[tokio::test]
async fn a_request_has_16_kib() {
    let rig = Rig::filled().await;
    for path in [LIST, WATCH] {
        let whole = call(&rig.router, path, Body::from(message(16 * 1024))).await;
        assert_eq!(code(&whole), None, "{path} is answered with a message");
        let longer = call(&rig.router, path, Body::from(message(16 * 1024 + 2))).await;
        assert_eq!(code(&longer), Some(Code::InvalidArgument), "{path}");
        // Whatever length it declares, and however much is still to come.
        let longer = call(&rig.router, path, endless(message(17 * 1024))).await;
        assert_eq!(code(&longer), Some(Code::InvalidArgument), "{path}");
    }
}

/// Their callers are still unknown, and each has 16 KiB and ten seconds.
#[tokio::test]
async fn an_address_leaves_as_many_requests_to_others_as_arrive_from_it() {
    let rig = Rig::filled().await;
    let mut arriving = Vec::new();
    for _ in 0..1024 {
        let mut call = Box::pin(call(&rig.router, WATCH, endless(Vec::new())));
        assert!((&mut call).now_or_never().is_none(), "it waits for its request");
        arriving.push(call);
    }
    let more = call(&rig.router, WATCH, endless(Vec::new())).now_or_never();
    let refused = more.as_ref().and_then(code);
    assert_eq!(refused, Some(Code::ResourceExhausted), "{more:?}");
    let request = Request::post(format!("https://localhost{LIST}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", "Bearer good")
        .extension(Connection::of(Ipv4Addr::new(192, 0, 2, 1).into()))
        .body(Body::from(message(0)));
    let other = rig.router.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(code(&other), None, "{other:?}");
}

#[tokio::test]
async fn a_call_without_a_token_has_64_kib_in_all() {
    let rig = Rig::filled().await;
    let short = call(&rig.router, HEALTH, Body::from(message(60 * 1024))).await;
    assert_ne!(code(&short), Some(Code::Internal), "{short:?}");
    // One message that is longer than the limit of all: Sluice never waits for it.
    let answer = call(&rig.router, HEALTH, endless(message(65 * 1024)));
    let answer = answer.now_or_never();
    let refused = answer.expect("it is refused as soon as it is too long");
    assert!(code(&refused).is_some_and(|code| code != Code::Ok), "{refused:?}");
}

#[tokio::test]
async fn sixty_four_calls_without_a_token_are_open_at_once() {
    let rig = Rig::filled().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut call = Box::pin(call(&rig.router, HEALTH, endless(Vec::new())));
        assert!((&mut call).now_or_never().is_none(), "it waits for its request");
        open.push(call);
    }
    let more = call(&rig.router, HEALTH, endless(Vec::new())).now_or_never();
    assert_eq!(
        more.as_ref().and_then(code),
        Some(Code::ResourceExhausted),
        "{more:?}"
    );
    let known = call(&rig.router, LIST, Body::from(message(0))).await;
    assert_eq!(code(&known), None, "those with a token are not affected");
    open.pop();
    let again = call(&rig.router, HEALTH, Body::from(message(0))).await;
    assert_ne!(code(&again), Some(Code::ResourceExhausted), "one has ended");
}

/// Returns unread responses of a user, until one is refused.
async fn unread(rig: &Rig, token: &str) -> Vec<Response<Body>> {
    let mut unread = Vec::new();
    loop {
        let answer = call_as(token, &rig.router, LIST, Body::from(message(0))).await;
        match code(&answer) {
            None => unread.push(answer),
            refused => {
                assert_eq!(refused, Some(Code::ResourceExhausted));
                return unread;
            }
        }
        assert!(unread.len() <= 16, "answers that are not read have no bound");
    }
}

#[tokio::test]
async fn a_user_leaves_as_many_answers_to_others_as_it_does_not_read() {
    let rig = Rig::filled().await;
    let mut of_ada = unread(&rig, "good-ada").await;
    assert_eq!(of_ada.len(), 8);
    let of_bob = unread(&rig, "good-bob").await;
    assert_eq!(of_bob.len(), 4);
    let watched = call_as("good-ada", &rig.router, WATCH, Body::from(message(0))).await;
    assert_eq!(code(&watched), None, "streams are counted by themselves");

    drop(of_bob);
    assert_eq!(
        unread(&rig, "good-eve").await.len(),
        4,
        "those of Bob were given up"
    );
    let read = of_ada.pop().unwrap().into_body().collect().await.unwrap();
    assert_eq!(read.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(unread(&rig, "good-ada").await.len(), 1, "one was read");
}

/// Otherwise callers that guess tokens would block the service for others.
#[tokio::test]
async fn callers_who_are_not_known_yet_take_no_answers() {
    let rig = Rig::filled().await;
    rig.reviews.say("silent", Said::Nothing);
    let list = || call(&rig.router, LIST, Body::from(message(0)));
    assert_eq!(code(&list().await), None);
    let mut waiting = Vec::new();
    for number in 0..16 {
        let token = format!("silent-{number}");
        let (router, body) = (rig.router.clone(), Body::from(message(0)));
        let mut call = Box::pin(async move { call_as(&token, &router, LIST, body).await });
        assert!(
            (&mut call).now_or_never().is_none(),
            "the API server says nothing of it"
        );
        waiting.push(call);
    }
    assert_eq!(code(&list().await), None);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_late_but_in_time_is_answered() {
    let rig = Rig::filled().await;
    let late = stream::once(async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        Ok::<_, Infallible>(Bytes::from(message(0)))
    });
    let answer = call(&rig.router, LIST, Body::from_stream(late)).await;
    assert_eq!(code(&answer), None);
}
