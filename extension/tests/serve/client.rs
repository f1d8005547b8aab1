//! The verbs of the binary, against a scripted status service.

use std::fs;
use std::process::Output;

use rstest::rstest;
use serde_json::Value;
use sluice_proto::status::v1::{Outcome, WatchClustersResponse};
use tonic::Status;

use crate::scripted::{Scripted, cluster, synced, updated, with_token};

/// A verb that does not end by itself ends with code 4.
const WATCH: [&str; 8] = ["watch", "one", "-n", "ns", "-o", "json", "--timeout", "10s"];

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn changes(output: &Output) -> Vec<String> {
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    let change = |line: &str| serde_json::from_str::<Value>(line).unwrap()["change"].take();
    let changes = printed.lines().map(change);
    changes
        .map(|change| change.as_str().unwrap().to_owned())
        .collect()
}

fn refused() -> Status {
    Status::unauthenticated("the API server does not accept the token")
}

/// What a watch of one Cluster begins with.
fn open() -> Vec<WatchClustersResponse> {
    vec![updated(cluster("uid", Outcome::Unspecified)), synced()]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_replaced_meanwhile_is_used() {
    let (files, token) = with_token("first");
    let service = Scripted::start(files, move |_, with| match with {
        "first" => {
            fs::write(&token, "second\n").unwrap();
            (open(), Some(refused()))
        }
        // Each new content is tried, whether a stream was open with the one before or not.
        "second" => {
            fs::write(&token, "third").unwrap();
            (Vec::new(), Some(refused()))
        }
        "third" => (vec![updated(cluster("uid", Outcome::Completed)), synced()], None),
        other => panic!("no token {other:?} was ever in the file"),
    });

    let ended = service.await.sluice(&WATCH, &[]).await;

    assert_eq!(code(&ended), 0, "{ended:?}");
    let said = complaint(&ended);
    assert_eq!(said.lines().count(), 1, "one interruption is one line: {said}");
    assert!(said.contains("watching again"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_refused_and_still_in_the_file_ends_a_watch() {
    let (files, token) = with_token("only");
    let service = Scripted::start(files, move |number, _| {
        assert_eq!(number, 0, "a token that was refused is sent again");
        // Written again, and the same.
        fs::write(&token, "only\n").unwrap();
        (open(), Some(refused()))
    });

    let ended = service.await.sluice(&WATCH, &[]).await;

    assert_eq!(code(&ended), 1, "{ended:?}");
    let said = complaint(&ended);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("does not accept the token") && said.contains("--token-file"),
        "{said}"
    );
}

#[rstest]
#[case::is_gone(vec![synced()])]
#[case::is_another_one(vec![updated(cluster("other", Outcome::Completed)), synced()])]
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_while_no_stream_was_open_is_printed_as_json(#[case] second: Vec<WatchClustersResponse>) {
    let (files, _token) = with_token("any");
    let service = Scripted::start(files, move |number, _| match number {
        0 => (open(), Some(Status::unavailable("this replica is shutting down"))),
        _ => (second.clone(), None),
    });

    let ended = service.await.sluice(&WATCH, &[]).await;

    assert_eq!(code(&ended), 3, "{ended:?}");
    assert_eq!(changes(&ended), ["CHANGE_UPDATED", "CHANGE_REMOVED"], "{ended:?}");
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    let last: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(last["cluster"]["uid"], "uid", "the one that was watched: {last}");
}

#[rstest]
#[case::forced(&[("CLICOLOR_FORCE", "1")], true)]
#[case::refused(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false)]
#[case::empty_says_nothing(&[("NO_COLOR", ""), ("CLICOLOR_FORCE", "1")], true)]
#[case::no_terminal(&[], false)]
#[tokio::test(flavor = "multi_thread")]
async fn colours_are_what_the_environment_says(#[case] variables: &[(&str, &str)], #[case] colours: bool) {
    let (files, _token) = with_token("any");
    let service = Scripted::start(files, |_, _| (Vec::new(), None)).await;

    let listed = service.sluice(&["status", "-n", "ns"], variables).await;

    assert_eq!(code(&listed), 0, "{listed:?}");
    assert_eq!(listed.stdout.contains(&0x1b), colours, "{listed:?}");
}
