//! Re-authorization of streams whose users lose their rights, under load. The clock of these tests is paused.

use std::{net::IpAddr, time::Duration};

use futures::StreamExt as _;
use sluice_proto::status::v1::{
    Change, WatchClustersRequest, WatchClustersResponse, status_service_server::StatusService as _,
};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};

use super::rig::{Rig, Said, with_token};
use crate::{Connection, service::Service};

type Stream =
    <Service as sluice_proto::status::v1::status_service_server::StatusService>::WatchClustersStream;

/// Longer than two re-authorizations take, including all waits.
const TWO_REAUTHORIZATIONS: Duration = Duration::from_secs(70);

fn from(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

/// Opens a stream.
async fn watch(rig: &Rig, token: &str, peer: IpAddr) -> Result<Stream, Status> {
    let service = Service {
        status: rig.status.clone(),
        ends: rig.life.ends.clone(),
    };
    let mut request = with_token(token, WatchClustersRequest::default());
    request.extensions_mut().insert(Connection::of(peer));
    Ok(service.watch_clusters(request).await?.into_inner())
}

/// Returns a synced stream of `good`.
async fn open(rig: &Rig) -> Stream {
    let mut stream = watch(rig, "good", from(1)).await.unwrap();
    let first: WatchClustersResponse = stream.next().await.unwrap().unwrap();
    assert_eq!(first.change(), Change::Synced);
    stream
}

/// Returns the code and the time of the end of an idle stream within this time.
async fn end(stream: &mut Stream, within: Duration) -> Option<(Code, Duration)> {
    let since = Instant::now();
    let next = timeout(within, stream.next()).await.ok()?;
    Some((next.unwrap().unwrap_err().code(), since.elapsed()))
}

/// Sends random tokens from this many addresses for as long as it is polled, each second more than are ever reviewed.
async fn flood(rig: &Rig, addresses: u8) {
    rig.reviews.say("random", Said::Nothing);
    let mut calls = futures::stream::FuturesUnordered::new();
    let mut number = 0;
    loop {
        for address in 0..addresses {
            for _ in 0..100 {
                number += 1;
                let token = format!("random-{number}");
                calls.push(async move { watch(rig, &token, from(100 + address)).await.map(drop) });
            }
        }
        let until = Instant::now() + Duration::from_secs(1);
        while let Ok(Some(_)) = tokio::time::timeout_at(until, calls.next()).await {}
        tokio::time::sleep_until(until).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_failed_reauthorizations_end_a_stream_and_one_does_not() {
    let rig = Rig::filled().await;
    let mut stream = open(&rig).await;
    rig.reviews.say("good", Said::Nothing);
    sleep(Duration::from_secs(31)).await;
    assert!(
        end(&mut stream, Duration::from_secs(6)).await.is_none(),
        "the first re-authorization"
    );
    rig.reviews.say("good", Said::Allowed);
    assert!(
        end(&mut stream, TWO_REAUTHORIZATIONS).await.is_none(),
        "it was allowed again"
    );

    rig.reviews.say("good", Said::Nothing);
    let (code, after) = end(&mut stream, TWO_REAUTHORIZATIONS).await.unwrap();
    assert_eq!(code, Code::Unavailable);
    assert!(
        after >= Duration::from_secs(15),
        "not after the first one: {after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_random_tokens_keeps_no_withdrawn_stream_alive() {
    let rig = Rig::filled().await;
    let mut stream = open(&rig).await;
    rig.reviews.say("good", Said::Unknown);
    let ended = async { end(&mut stream, TWO_REAUTHORIZATIONS).await };
    let (code, after) = tokio::select! {
        ended = ended => ended.unwrap(),
        () = flood(&rig, 8) => unreachable!(),
    };
    assert_eq!(code, Code::Unauthenticated);
    assert!(after <= Duration::from_secs(41), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_random_tokens_delays_no_caller_that_was_known() {
    let rig = Rig::filled().await;
    let known = watch(&rig, "good", from(100)).await;
    assert!(known.is_ok());
    let meanwhile = async {
        for _ in 0..5 {
            // Longer than the lifetime of a result.
            sleep(Duration::from_secs(11)).await;
            let since = Instant::now();
            // From an address of the flood, too.
            let answer = watch(&rig, "good", from(100)).await;
            assert!(answer.is_ok(), "{:?}", answer.err());
            assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        }
    };
    tokio::select! {
        () = meanwhile => {}
        () = flood(&rig, 8) => unreachable!(),
    }
    assert!(rig.reviews.asked("random") > 0, "there was a flood");
}

#[tokio::test(start_paused = true)]
async fn unknown_tokens_of_an_address_have_a_rate() {
    let rig = Rig::filled().await;
    let flood = async |from| {
        let mut refused = 0;
        for number in 0..1000 {
            let refusal = watch(&rig, &format!("wrong-{from}-{number}"), from)
                .await
                .err()
                .unwrap();
            match refusal.code() {
                Code::Unauthenticated => {}
                Code::ResourceExhausted => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        refused
    };
    assert_eq!(flood(from(2)).await, 950);
    assert_eq!(rig.reviews.asked("wrong"), 50);
    assert!(open_from(&rig, from(3)).await, "another address is not affected");
    assert!(
        !open_from(&rig, from(2)).await,
        "a new token from there is not reviewed"
    );
    sleep(Duration::from_secs(1)).await;
    assert!(open_from(&rig, from(2)).await);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_calls_at_once_with_one_new_token_are_one_review() {
    let rig = Rig::filled().await;
    let calls = (0..100).map(|_| watch(&rig, "good", from(2)));
    let opened = futures::future::join_all(calls).await;
    assert!(opened.iter().all(Result::is_ok));
    assert_eq!(rig.reviews.asked("good"), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_given_up_are_counted_too() {
    let rig = Rig::filled().await;
    rig.reviews.say("silent", Said::Nothing);
    for _ in 0..1000 {
        // Yields until only the clock can advance: the review is in progress.
        let given_up = timeout(Duration::from_millis(1), watch(&rig, "silent", from(2))).await;
        assert!(given_up.is_err() || given_up.is_ok_and(|answer| answer.is_err()));
    }
    let asked = rig.reviews.asked("silent");
    assert!((50..=60).contains(&asked), "{asked} reviews within a second");
}

/// Returns whether a new token is accepted.
async fn open_from(rig: &Rig, peer: IpAddr) -> bool {
    let token = format!("good-{:?}", Instant::now());
    watch(rig, &format!("{token}-{peer}"), peer).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn random_namespaces_of_one_who_may_see_none_have_a_rate_too() {
    let rig = Rig::filled().await;
    rig.reviews.say("nosy", Said::Denied);
    let service = Service {
        status: rig.status.clone(),
        ends: rig.life.ends.clone(),
    };
    let mut denied = 0;
    for number in 0..1000 {
        let mut request = with_token(
            "nosy",
            WatchClustersRequest {
                namespace: format!("ns-{number}"),
                name: String::new(),
            },
        );
        request.extensions_mut().insert(Connection::of(from(4)));
        match service.watch_clusters(request).await.err().unwrap().code() {
            Code::PermissionDenied => denied += 1,
            code => assert_eq!(code, Code::ResourceExhausted),
        }
    }
    // The first review was for the token.
    assert_eq!(denied, 49);
}
