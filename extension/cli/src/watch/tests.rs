//! Tests of the end of `sluice watch`.

use clap::Parser;
use rstest::rstest;
use sluice_proto::status::v1::Upgrade;

use super::*;

const PLAIN: Terminal = Terminal::of(None, false);

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    asked: WatchArgs,
}

fn asked(more: &[&str]) -> WatchArgs {
    let words = ["watch", "--server", "s:1", "--ca", "ca", "-n", "ns", "-o", "json"];
    let parsed = CommandLine::try_parse_from(words.iter().chain(more));
    parsed.unwrap().asked
}

fn cluster(name: &str, uid: &str, to: &str, outcome: Outcome) -> Cluster {
    Cluster {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        upgrade: Some(Upgrade {
            to: to.to_owned(),
            outcome: outcome.into(),
            ..Upgrade::default()
        }),
        ..Cluster::default()
    }
}

fn open(name: &str) -> Cluster {
    cluster(name, "uid", "v2", Outcome::Unspecified)
}

fn done(name: &str) -> Cluster {
    cluster(name, "uid", "v2", Outcome::Completed)
}

/// Returns a Cluster with a completed upgrade and a pending one to this version.
fn pending(name: &str, version: &str) -> Cluster {
    Cluster {
        topology_version: version.to_owned(),
        pending: true,
        ..done(name)
    }
}

fn updated(cluster: Cluster) -> WatchClustersResponse {
    WatchClustersResponse {
        change: Change::Updated.into(),
        cluster: Some(cluster),
    }
}

fn removed(cluster: Cluster) -> WatchClustersResponse {
    WatchClustersResponse {
        change: Change::Removed.into(),
        cluster: Some(cluster),
    }
}

fn synced() -> WatchClustersResponse {
    WatchClustersResponse {
        change: Change::Synced.into(),
        cluster: None,
    }
}

/// Returns the exit code after these messages, each list of them in a stream of its own; 0 to 3, 1 for an error, `None` while it waits.
fn after(arguments: &[&str], streams: &[Vec<WatchClustersResponse>]) -> Option<u8> {
    let asked = asked(arguments);
    let mut watched = Watched::of(&asked, &PLAIN);
    for stream in streams {
        for known in watched.clusters.values_mut() {
            known.sent = false;
        }
        for message in stream {
            match watched.take(message) {
                Ok(None) => {}
                Ok(Some(code)) if code == ExitCode::SUCCESS => return Some(0),
                Ok(Some(code)) => {
                    assert_eq!(code, ExitCode::from(NOT_COMPLETED));
                    return Some(NOT_COMPLETED);
                }
                Err(_trouble) => return Some(1),
            }
        }
    }
    None
}

#[rstest]
#[case::goes_on(&["one"], vec![vec![updated(open("one")), synced()]], None)]
#[case::completes(&["one"], vec![vec![updated(open("one")), synced(), updated(done("one"))]], Some(0))]
#[case::was_completed(&["one"], vec![vec![updated(done("one"))]], Some(0))]
#[case::cancelled(&["one"], vec![vec![updated(cluster("one", "uid", "v2", Outcome::Cancelled))]], Some(3))]
#[case::cancelled_with_the_version_before(&["one", "--to", "v2"], vec![vec![updated(open("one")), synced(), updated(cluster("one", "uid", "v1", Outcome::Cancelled))]], Some(3))]
#[case::cancelled_before(&["one", "--to", "v2"], vec![vec![updated(cluster("one", "uid", "v1", Outcome::Cancelled)), synced()]], None)]
#[case::rolls_back(&["one", "--to", "v2"], vec![vec![updated(open("one")), synced(), updated(cluster("one", "uid", "v1", Outcome::Unspecified))]], None)]
#[case::has_rolled_back(&["one", "--to", "v2"], vec![vec![updated(open("one")), synced(), updated(cluster("one", "uid", "v1", Outcome::Unspecified)), updated(cluster("one", "uid", "v1", Outcome::RolledBack))]], Some(3))]
#[case::rolled_back(&["one"], vec![vec![updated(cluster("one", "uid", "v1", Outcome::RolledBack))]], Some(3))]
#[case::rolled_back_with_the_version_before(&["one", "--to", "v2"], vec![vec![updated(open("one")), synced(), updated(cluster("one", "uid", "v1", Outcome::RolledBack))]], Some(3))]
#[case::rolled_back_before(&["one", "--to", "v2"], vec![vec![updated(cluster("one", "uid", "v1", Outcome::RolledBack)), synced()]], None)]
#[case::deleted(&["one"], vec![vec![updated(open("one")), synced(), removed(open("one"))]], Some(3))]
#[case::deleted_meanwhile(&["one"], vec![vec![updated(open("one")), synced()], vec![synced()]], Some(3))]
#[case::created_again(&["one"], vec![vec![updated(open("one")), synced()], vec![updated(cluster("one", "other", "v2", Outcome::Completed))]], Some(3))]
#[case::resumed(&["one"], vec![vec![updated(open("one")), synced()], vec![updated(open("one")), synced(), updated(done("one"))]], Some(0))]
#[case::is_not_there(&["one"], vec![vec![synced()]], Some(1))]
#[case::was_gone_before(&["one"], vec![vec![removed(open("one")), synced()]], Some(1))]
#[case::another_version(&["one", "--to", "v3"], vec![vec![updated(done("one")), synced()]], None)]
#[case::this_version(&["one", "--to", "v2"], vec![vec![updated(done("one")), synced()]], Some(0))]
#[case::another_release_of_the_version(&["one"], vec![vec![updated(pending("one", "v2")), synced(), updated(open("one"))]], None)]
#[case::another_release_is_there(&["one"], vec![vec![updated(pending("one", "v2")), synced(), updated(open("one")), updated(done("one"))]], Some(0))]
#[case::another_release_for_a_version(&["one", "--to", "v2"], vec![vec![updated(pending("one", "v2")), synced()]], None)]
#[case::done_and_goes_on_to_another(&["one", "--to", "v2"], vec![vec![updated(pending("one", "v3")), synced()]], Some(0))]
#[case::goes_on_to_another(&["one"], vec![vec![updated(pending("one", "v3")), synced()]], None)]
#[case::one_of_two(&["one", "two"], vec![vec![updated(done("one")), updated(open("two")), synced()]], None)]
#[case::both(&["one", "two"], vec![vec![updated(done("one")), updated(open("two")), synced(), updated(done("two"))]], Some(0))]
#[case::the_worse_of_two(&["one", "two"], vec![vec![updated(done("one")), updated(open("two")), synced(), removed(open("two"))]], Some(3))]
#[case::a_third_one(&["one"], vec![vec![updated(open("one")), updated(done("three")), synced(), removed(done("three"))]], None)]
fn it_ends_with_the_upgrade(
    #[case] arguments: &[&str],
    #[case] streams: Vec<Vec<WatchClustersResponse>>,
    #[case] code: Option<u8>,
) {
    assert_eq!(after(arguments, &streams), code);
}
