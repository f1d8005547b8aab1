//! The driver against servers that misbehave.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy knows test functions, not the helpers that they fail in"
)]

mod server;

use std::time::{Duration, Instant};

use clap::{Args as _, FromArgMatches as _};
use rstest::rstest;
use sluice_benches::load::{self, Arguments, Report};

use crate::server::{Behaviour, Server};

fn arguments(line: &[&str]) -> Arguments {
    let command = Arguments::augment_args(clap::Command::new("load"));
    let matches = command.try_get_matches_from(["load"].iter().chain(line)).unwrap();
    Arguments::from_arg_matches(&matches).unwrap()
}

/// Load on a server for a second, with more flags.
fn load(server: &Server, flags: &[&str]) -> anyhow::Result<Report> {
    let ca = server.ca.path().to_str().unwrap();
    let mut usual = vec![server.url.as_str(), "--ca", ca, "--quiet", "--duration", "1s"];
    if !flags.contains(&"--warmup") {
        usual.extend(["--warmup", "0s"]);
    }
    load::run(&arguments(&[&usual[..], flags].concat()))
}

fn failure(server: &Server, flags: &[&str]) -> String {
    let error = load(server, flags).unwrap_err();
    let line = format!("{error:#}");
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn answers_are_counted_in_every_protocol() {
    let server = Server::start(Behaviour::Holds);
    for protocol in ["h2", "h1", "handshake"] {
        let report = load(&server, &["--rate", "200", "--protocol", protocol]).unwrap();
        assert_eq!(
            (report.answered, report.held, report.released),
            (200, 200, 0),
            "{protocol}: {report}"
        );
        assert!(report.errors.is_empty(), "{report}");
        let opened = report.connections_opened;
        match protocol {
            "h2" => assert_eq!(opened, 1),
            "h1" => assert!((1..=50).contains(&opened), "{opened}"),
            _ => assert_eq!(opened, 200),
        }
        assert!(report.latency.p50 > 0.0 && report.latency.max < 500.0, "{report}");
        assert!(
            report
                .latency
                .curve
                .is_sorted_by(|one, next| one.0 <= next.0 && one.1 <= next.1)
        );
    }
}

#[test]
fn hooks_and_sizes_take_turns_and_the_count_is_kept() {
    let server = Server::start(Behaviour::Holds);
    let flags = [
        "--closed",
        "--requests",
        "120",
        "--size",
        "2k,100k",
        "--hook",
        "BeforeClusterUpgrade=2,AfterClusterUpgrade",
        "--threads",
        "2",
        "--connections",
        "3",
        "--streams",
        "4",
        "--pid",
        &std::process::id().to_string(),
    ];
    let report = load(&server, &flags).unwrap();
    assert_eq!((report.answered, report.connections_opened), (120, 3), "{report}");
    assert_eq!(report.load.hooks, ["AfterClusterUpgrade", "BeforeClusterUpgrade"]);
    assert_eq!(
        (report.load.sizes.len(), report.load.in_flight),
        (4, 12),
        "{report}"
    );
    assert!(report.process.unwrap().rss_mb_after > 1.0);
    let seen = server.seen();
    assert_eq!((seen.before, seen.after), (80, 40));
    assert!(seen.at_once <= 12, "{seen:?}");
    assert!(!seen.content_type, "Cluster API sends none");
}

#[test]
fn a_number_of_calls_is_of_those_after_the_warm_up() {
    let server = Server::start(Behaviour::Holds);
    for pace in [&["--rate", "200"][..], &["--closed", "--streams", "3"]] {
        let flags = [pace, &["--warmup", "300ms", "--requests", "40"]].concat();
        let report = load(&server, &flags).unwrap();
        assert_eq!(
            (report.answered, report.load.seconds < 0.5),
            (40, true),
            "{pace:?}: {report}"
        );
        assert_eq!(report.holds, [("wait".to_owned(), 40)].into(), "{report}");
    }
}

#[test]
fn a_stall_is_in_the_latencies_of_all_calls_that_were_due_in_it() {
    let stall = Duration::from_millis(400);
    let server = Server::start(Behaviour::StallsOnce(stall));
    let report = load(&server, &["--rate", "500", "--streams", "2"]).unwrap();
    assert_eq!(report.answered, 500, "{report}");
    let slow = report
        .latency
        .curve
        .iter()
        .find(|(_, milliseconds)| *milliseconds > 100.0)
        .unwrap();
    assert!(
        slow.0 < 0.75,
        "150 of 500 calls at least waited for longer than 100 ms: {report}"
    );
    assert!(report.latency.max >= 390.0, "{report}");
}

#[test]
fn an_extension_that_is_too_slow_is_asked_no_less() {
    let server = Server::start(Behaviour::Slow(Duration::from_millis(100)));
    let report = load(
        &server,
        &[
            "--rate",
            "100",
            "--protocol",
            "h1",
            "--connections",
            "2",
            "--timeout",
            "500ms",
        ],
    )
    .unwrap();
    let unsent = report.errors["Unsent"].count;
    assert_eq!(report.answered + unsent, 100, "{report}");
    assert!(
        (20..=40).contains(&report.answered),
        "two at once, for a second and a half: {report}"
    );
    assert!(report.latency.p50 > 400.0, "{report}");
    assert!(
        (1.0..=1.6).contains(&report.load.seconds),
        "no time without answers is left out: {report}"
    );
}

#[rstest]
#[case::failure(
    r#"{"status":"Failure","message":"no such Cluster\nat all\n"}"#,
    "Failure",
    "no such Cluster at all"
)]
#[case::wrong_type(
    r#"{"status":"Success","retryAfterSeconds":"5"}"#,
    "WrongAnswer",
    "invalid type"
)]
#[case::wrong_kind(r#"{"kind":"Status","status":"Success"}"#, "WrongAnswer", "kind")]
fn what_is_no_answer_is_counted_by_its_kind(
    #[case] answer: &'static str,
    #[case] kind: &str,
    #[case] what: &str,
) {
    assert_counted(Behaviour::Answers(answer), kind, what);
}

#[rstest]
#[case::another_code(Behaviour::Code(500), "Status", "500")]
#[case::closes(Behaviour::Closes, "Closed", "")]
#[case::hangs(Behaviour::Hangs, "Timeout", "200ms")]
fn what_does_not_answer_is_counted_by_its_kind(
    #[case] behaviour: Behaviour,
    #[case] kind: &str,
    #[case] what: &str,
) {
    assert_counted(behaviour, kind, what);
}

/// Every other call is counted as this kind, in each protocol, and a run without any answer says it in one line.
fn assert_counted(behaviour: Behaviour, kind: &str, what: &str) {
    let server = Server::start(behaviour.every_other());
    for protocol in ["h2", "h1", "handshake"] {
        let flags = ["--rate", "50", "--timeout", "200ms", "--protocol", protocol];
        let report = load(&server, &flags).unwrap();
        let failed = report.errors.get(kind);
        let failed = failed.unwrap_or_else(|| panic!("{behaviour:?} {protocol}: {report}"));
        assert!(failed.first.contains(what), "{behaviour:?} {protocol}: {report}");
        let errors: u64 = report.errors.values().map(|failed| failed.count).sum();
        assert_eq!(report.answered + errors, 50, "{behaviour:?} {protocol}: {report}");
        assert!(report.answered > 0, "{behaviour:?} {protocol}: {report}");
    }
    let line = failure(&Server::start(behaviour), &["--rate", "50", "--timeout", "200ms"]);
    let is_said = line.contains("nothing was answered") && line.contains(kind);
    assert!(is_said, "{line}");
}

#[test]
fn what_cannot_be_asked_is_said_in_one_line() {
    let server = Server::start(Behaviour::Holds);
    let ca = server.ca.path().to_str().unwrap();
    let line = |url: &str, ca: &str, flags: &[&str]| {
        let began = Instant::now();
        let arguments = arguments(&[&[url, "--ca", ca, "--quiet", "--rate", "10"], flags].concat());
        let error = load::run(&arguments).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(5));
        format!("{error:#}")
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let other = Server::start(Behaviour::Holds);
    let strange = other.ca.path().to_str().unwrap();
    for (url, ca, flags, part) in [
        (format!("https://{free}"), ca, &[][..], "Unreachable: 127.0.0.1:"),
        (server.url.clone(), strange, &[], "Handshake: 127.0.0.1:"),
        (
            server.url.clone(),
            "/nowhere/ca.crt",
            &[],
            "read --ca /nowhere/ca.crt",
        ),
        (
            server.url.replace("https", "http"),
            ca,
            &[],
            "does not begin with https://",
        ),
        ("https://192.0.2.1:9443".to_owned(), ca, &[], "--remote"),
        (format!("{}/prefix", server.url), ca, &[], "404"),
        (
            server.url.clone(),
            ca,
            &["--hook", "BeforeClusterDelete"],
            "no handler of BeforeClusterDelete",
        ),
        (
            server.url.clone(),
            ca,
            &["--server-name", "elsewhere.test"],
            "Handshake",
        ),
    ] {
        let line = line(&url, ca, flags);
        assert!(
            line.contains(part) && !line.contains('\n'),
            "{url} {flags:?}: {line}"
        );
    }
    // What is no extension: it takes connections and says nothing.
    let silent = Server::start(Behaviour::HangsInDiscovery);
    let url = &silent.url;
    let error = load::run(&arguments(&[
        url,
        "--ca",
        silent.ca.path().to_str().unwrap(),
        "--rate",
        "1",
        "--timeout",
        "1s",
    ]));
    assert!(format!("{:#}", error.unwrap_err()).contains("no answer to the discovery request within 1s"));
}
