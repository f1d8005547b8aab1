//! Every file that waits, or that can reach another machine, has its place under the table of walls.

use std::collections::{BTreeMap, BTreeSet};

use sluice_tests::sources::{Source, of_product};

use crate::read;

/// What every wait is written with.
const WAITS: [&str; 8] = [
    "async",
    "await",
    "Future",
    "BoxFuture",
    "Stream",
    "BoxStream",
    "block_on",
    "poll_fn",
];

/// Types and functions of dependencies through which another machine is reached.
#[rustfmt::skip]
const REACHES: [&str; 36] = [
    "Api", "AsyncFd", "AuthInfo", "Client", "ClientBuilder", "ClientConfig", "ClientConnection", "Command", "ConfigExt",
    "Controller", "HttpConnector", "HttpsConnector", "HttpsConnectorBuilder", "KubeConfigOptions", "Kubeconfig",
    "Recorder", "Reporter", "SendRequest", "TcpListener", "TcpSocket", "TcpStream", "TimeoutConnector", "TlsAcceptor", "TlsConnector", "ToSocketAddrs",
    "UdpSocket", "UnixDatagram", "UnixListener", "UnixStream", "await_condition", "lookup_host", "metadata_watcher",
    "to_socket_addrs", "trigger_owners", "watch_metadata", "watch_object",
];

/// What makes a way to another machine, or takes one that has no deadline: how often, and in which files.
#[rustfmt::skip]
const MADE: [(&str, &[(&str, usize)]); 28] = [
    ("Client :: new", &[("layer.rs", 1), ("pool.rs", 1)]),
    ("Client :: try_from", &[("pool.rs", 1)]),
    ("pool :: client", &[("remote/client.rs", 1), ("run.rs", 1)]),
    ("Config :: new", &[("remote/client.rs", 1)]),
    ("Config :: incluster", &[("run.rs", 1)]),
    ("Config :: from_custom_kubeconfig", &[("run.rs", 1)]),
    ("Kubeconfig :: read_from", &[("run.rs", 1)]),
    ("default_retry = false", &[("remote/client.rs", 1), ("run.rs", 1)]),
    ("default_retry", &[("remote/client.rs", 1), ("run.rs", 1)]),
    // In two of them a queue of this process.
    ("unbounded", &[("controllers/providers/dependents.rs", 1), ("queue.rs", 2), ("run.rs", 7)]),
    ("Controller :: new", &[]),
    ("Controller :: new_with", &[]),
    ("Recorder :: new", &[("events.rs", 1)]),
    ("watcher (", &[("watch.rs", 1)]),
    ("finalizer (", &[]),
    ("discovery :: group", &[("runner/reads.rs", 1)]),
    ("discovery :: pinned_group", &[]),
    ("discovery :: pinned_kind", &[]),
    ("Discovery :: new", &[]),
    ("TcpListener :: bind", &[("serve/server.rs", 1)]),
    ("TcpStream ::", &[]),
    ("try_default", &[]),
    ("infer", &[]),
    ("incluster_env", &[]),
    ("incluster_dns", &[]),
    ("from_kubeconfig", &[]),
    ("include !", &[]),
    ("# [ path", &[]),
];

/// Constructors of these types are all among [`MADE`].
const CONSTRUCTED: [&str; 6] = [
    "Client",
    "Controller",
    "Kubeconfig",
    "Recorder",
    "TcpListener",
    "TcpStream",
];

/// What the product's crates are built with. Another crate may reach another machine by itself: it belongs into [`REACHES`] then.
#[rustfmt::skip]
const DEPENDENCIES: [&str; 41] = [
    "anyhow", "axum", "backon", "base64", "bytes", "clap", "futures", "http", "http-body", "http-body-util", "hyper", "hyper-timeout", "hyper-util",
    "ipnet", "jiff", "k8s-openapi", "kube", "prometheus-client", "rustls", "schemars", "semver", "serde", "serde-saphyr", "serde_json",
    "sha2", "sluice-core", "sluice-crds", "sluice-hooks", "thiserror", "tikv-jemallocator", "tokio", "tokio-rustls", "tokio-util", "tower", "tracing",
    "tracing-appender", "tracing-subscriber", "x509-cert", "sluice-proto", "hashbrown", "zstd",
];

/// The files in the last column of the table of files that wait.
fn listed(page: &str) -> BTreeSet<String> {
    let table = page.split("| what these files wait for |").nth(1);
    let table = table.expect("the table of files that wait");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.rsplit(" | ").next())
        .flat_map(|column| column.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

fn waits_or_reaches(source: &Source) -> bool {
    // A refusal of an API server has the name of a client.
    let refusals = source.count("Error :: Api");
    let clients = source.count("Api");
    let mut words = source.tokens.iter().filter(|token| *token != "Api");
    clients > refusals || words.any(|word| WAITS.contains(&word.as_str()) || REACHES.contains(&word.as_str()))
}

/// What is wrong with the product's code, next to the documents.
fn complaints(sources: &[Source], listed: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let found: BTreeSet<String> = sources
        .iter()
        .filter(|source| waits_or_reaches(source))
        .map(|source| source.path.clone())
        .collect();
    for path in found.difference(listed) {
        complaints.push(format!(
            "{path} waits or reaches another machine: add it to docs/architecture.md"
        ));
    }
    for path in listed.difference(&found) {
        complaints.push(format!(
            "{path} does not wait: remove it from docs/architecture.md"
        ));
    }
    for (sequence, expected) in MADE {
        let counts = sources
            .iter()
            .map(|source| (source.path.as_str(), source.count(sequence)));
        let counts: BTreeMap<&str, usize> = counts.filter(|(_, count)| *count > 0).collect();
        if counts != expected.iter().copied().collect() {
            complaints.push(format!(
                "`{sequence}` is in {counts:?}: add the new place to docs/architecture.md, and here"
            ));
        }
    }
    complaints.extend(sources.iter().flat_map(hidden));
    complaints
}

/// What hides a way to another machine from the lists above.
fn hidden(source: &Source) -> Vec<String> {
    let mut hidden = Vec::new();
    let path = &source.path;
    for window in source.tokens.windows(3) {
        let [first, second, third] = window else { continue };
        let renamed = REACHES.contains(&first.as_str()) || first == "Config";
        if renamed && second == "as" && third != "_" {
            hidden.push(format!("{path} calls {first} {third}"));
        }
        if first == "::" && second == "*" && ["}", ";", ","].contains(&third.as_str()) {
            hidden.push(format!("{path} imports everything of a module"));
        }
        let known = |(sequence, _): &(&str, _)| *sequence == format!("{first} :: {third}");
        if CONSTRUCTED.contains(&first.as_str()) && second == "::" && !MADE.iter().any(known) && third != "<"
        {
            hidden.push(format!("{path} makes {first} by {third}"));
        }
    }
    let mut rest = source.tokens.as_slice();
    while let Some(begin) = rest.iter().position(|token| token == "type") {
        rest = &rest[begin + 1..];
        let end = rest.iter().position(|token| token == ";").unwrap_or(rest.len());
        let renamed = rest[..end]
            .iter()
            .find(|token| CONSTRUCTED.contains(&token.as_str()));
        if let Some(renamed) = renamed {
            hidden.push(format!("{path} calls {renamed} {}", rest[0]));
        }
    }
    hidden
}

#[test]
fn every_file_that_waits_has_its_place_under_the_table_of_walls() {
    let complaints = complaints(
        &of_product().expect("the sources"),
        &listed(&read("docs/architecture.md")),
    );
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_new_way_to_another_machine_is_noticed() {
    let page = listed(&read("docs/architecture.md"));
    let product = of_product().expect("the sources");
    let with = |path: &str, text: &str| {
        let mut sources = product.clone();
        let planted = Source::of(path, text);
        match sources.iter_mut().find(|source| source.path == path) {
            Some(source) => source.tokens.extend(planted.tokens),
            None => sources.push(planted),
        }
        complaints(&sources, &page)
    };
    assert_eq!(with("new.rs", "fn pure() {}"), Vec::<String>::new());
    for planted in [
        "use kube::Api;",
        "use kube::Client as Other;",
        "use kube::*;",
        "async fn ask() {}",
        "fn ask(client: &kube::Client) {}",
        "fn ask(context: &Context) -> impl Future<Output = ()> { context.client.get() }",
        "fn ask() { std::net::TcpStream::connect(\"192.0.2.1:80\"); }",
        "fn ask() { tokio::net::lookup_host(\"example.com\"); }",
        "fn ask() { std::process::Command::new(\"curl\"); }",
        "#[path = \"elsewhere.inc\"] mod elsewhere;",
        "include!(\"elsewhere.inc\");",
    ] {
        assert!(!with("new.rs", planted).is_empty(), "{planted}");
    }
    // In a file that has its place already.
    for planted in [
        "fn ask() { Client::try_default(); }",
        "fn ask() { Client::try_from(config); }",
        "fn ask() { Config::infer(); }",
        "use kube::Config as Other;",
        "fn ask(unbounded: &Client) {}",
        "use kube::Client as Other;",
        "type Other = Client;",
        "fn ask() { TcpStream::connect(address); }",
        "fn ask() { Controller::for_stream(stream); }",
    ] {
        assert!(!with("run.rs", planted).is_empty(), "{planted}");
    }
}

#[test]
fn every_dependency_of_the_product_is_known() {
    let known = BTreeSet::from(DEPENDENCIES);
    for manifest in ["crds", "extension/core", "extension/hooks", "extension"] {
        let manifest = read(&format!("{manifest}/Cargo.toml"));
        for section in manifest.split("\n[").filter(|section| {
            let name = section.lines().next().unwrap_or_default();
            name.contains("dependencies]") && !name.starts_with("dev-")
        }) {
            let names = section
                .lines()
                .skip(1)
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            for name in names.filter_map(|line| line.split(['.', ' ', '=']).next()) {
                assert!(
                    known.contains(name),
                    "{name} is not known: may it reach another machine?"
                );
            }
        }
    }
}
