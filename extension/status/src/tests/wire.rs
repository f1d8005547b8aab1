//! Errors and shutdown of the service, as its clients see them. TLS and HTTP/2 are tested with the listener.

use axum::{Extension, Router};
use sluice_proto::status::v1::{
    Change, ListClustersRequest, WatchClustersRequest, WatchClustersResponse,
    status_service_client::StatusServiceClient, status_service_server::SERVICE_NAME,
};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::rig::{Rig, Said, soon, with_token};
use crate::Connection;

fn all() -> WatchClustersRequest {
    WatchClustersRequest {
        namespace: "ns".to_owned(),
        name: String::new(),
    }
}

fn list() -> tonic::Request<ListClustersRequest> {
    with_token(
        "good",
        ListClustersRequest {
            namespace: "ns".to_owned(),
            ..ListClustersRequest::default()
        },
    )
}

/// Returns a stream that was read until it is synced.
async fn synced(mut client: StatusServiceClient<Router>) -> Streaming<WatchClustersResponse> {
    let opened = soon("a stream", client.watch_clusters(with_token("good", all())));
    let mut stream = opened.await.unwrap().into_inner();
    loop {
        let message = soon("CHANGE_SYNCED", stream.message()).await.unwrap().unwrap();
        if message.change() == Change::Synced {
            return stream;
        }
    }
}

/// Returns the final status of a stream.
async fn end(mut stream: Streaming<WatchClustersResponse>) -> Status {
    loop {
        match soon("the end of a stream", stream.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a stream has ended without a reason"),
            Err(status) => return status,
        }
    }
}

fn assert_says(status: &Status, code: Code, text: &str) {
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(text), "{status:?}");
    assert_eq!(status.message().lines().count(), 1, "{status:?}");
}

#[tokio::test]
async fn a_replica_that_has_read_nothing_is_unavailable() {
    let (rig, knows) = Rig::new();
    rig.reviews.say("good", Said::Allowed);
    let mut client = rig.client();
    let refused = soon("an answer", client.list_clusters(list())).await.unwrap_err();
    assert_says(&refused, Code::Unavailable, "starting");

    knows();
    soon("the snapshots", rig.status.0.filled.wait()).await;
    assert!(soon("an answer", client.list_clusters(list())).await.is_ok());
}

#[tokio::test]
async fn a_reader_that_is_too_far_behind_is_aborted() {
    let rig = Rig::filled().await;
    let stream = synced(rig.client()).await;
    // No other task runs meanwhile.
    for number in 0..1100 {
        let name = format!("{number}");
        rig.put(&name, true);
        rig.put(&name, false);
    }
    rig.changed();
    assert_says(&end(stream).await, Code::Aborted, "watch again");
}

#[tokio::test]
async fn a_user_with_too_many_streams_is_refused_and_others_are_not() {
    let rig = Rig::filled().await;
    rig.reviews.say("other", Said::Allowed);
    let mut client = rig.client();
    let taken: Vec<_> = (0..)
        .map_while(|_| rig.status.0.streams.take("good").ok())
        .collect();
    let refused = client.watch_clusters(with_token("good", all()));
    let refused = soon("an answer", refused).await.unwrap_err();
    assert_says(&refused, Code::ResourceExhausted, "\"good\"");
    let opened = client.watch_clusters(with_token("other", all()));
    assert!(soon("a stream", opened).await.is_ok());
    drop(taken);
    let opened = client.watch_clusters(with_token("good", all()));
    assert!(soon("a stream", opened).await.is_ok());
}

#[tokio::test]
async fn a_connection_that_is_asked_to_end_ends_streams_in_good_order() {
    let rig = Rig::filled().await;
    let connection = Connection::default();
    let router = rig.router.clone().layer(Extension(connection.clone()));
    let stream = synced(StatusServiceClient::new(router)).await;
    connection.leaving.cancel();
    assert_says(&end(stream).await, Code::Unavailable, "new connection");
}

#[tokio::test]
async fn a_replica_that_ends_says_so() {
    let rig = Rig::filled().await;
    let stream = synced(rig.client()).await;
    rig.life.ends.cancel();
    assert_says(&end(stream).await, Code::Unavailable, "watch again");
}

#[tokio::test]
async fn a_replica_that_is_asked_to_end_is_not_healthy_before_it_ends() {
    let rig = Rig::filled().await;
    let mut health = HealthClient::new(rig.router.clone());
    let mut changes = Vec::new();
    for service in ["", SERVICE_NAME] {
        let service = service.to_owned();
        let watched = soon("health", health.watch(HealthCheckRequest { service })).await;
        let mut stream = watched.unwrap().into_inner();
        let first = soon("health", stream.message()).await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
        changes.push(stream);
    }

    rig.life.leaves.cancel();

    for mut stream in changes {
        let next = soon("another health", stream.message()).await.unwrap().unwrap();
        assert_eq!(next.status(), ServingStatus::NotServing);
    }
    let mut client = rig.client();
    let answered = soon("an answer", client.list_clusters(list())).await;
    assert!(
        answered.is_ok(),
        "calls are answered until the listener closes: {answered:?}"
    );
}
