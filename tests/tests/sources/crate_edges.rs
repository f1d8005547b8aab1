//! The allowed imports between crates, and the forbidden dependencies of the pure ones.
#![expect(clippy::expect_used, reason = "a test that cannot read its inputs has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Crates of this repository that a crate may use in its own code. Tests may use more.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("sluice-crds", &[]),
    ("sluice-core", &["sluice-crds"]),
    ("sluice-hooks", &["sluice-core"]),
    ("sluice-proto", &[]),
    ("sluice-status", &["sluice-crds", "sluice-core", "sluice-proto"]),
    // Clients of the status service, and `plan`, which prints what the core decides.
    ("sluice-cli", &["sluice-crds", "sluice-core", "sluice-proto"]),
    (
        "sluice",
        &[
            "sluice-crds",
            "sluice-core",
            "sluice-hooks",
            "sluice-status",
            "sluice-cli",
        ],
    ),
    ("sluice-test-store", &[]),
    // The harness judges the product from outside; its observer shares no code with the product.
    ("sluice-tests", &[]),
    ("sluice-benches", &["sluice-crds", "sluice-core", "sluice-hooks"]),
];

/// What could do I/O, by crate name. hyper-util is a client only with its client features, which need hyper itself.
const NO_IO: [&str; 8] = [
    "kube-client",
    "kube-runtime",
    "hyper",
    "hyper-util",
    "reqwest",
    "tonic",
    "tokio-rustls",
    "rustls",
];

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let output = output.expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo prints text")
}

/// The crates of this repository that each of them uses in its own code and build script.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let metadata: Value = serde_json::from_str(&cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--locked",
    ]))
    .expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let names: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    packages
        .iter()
        .map(|package| {
            let used = package["dependencies"]
                .as_array()
                .expect("a list of dependencies");
            let used = used
                .iter()
                .filter(|used| used["kind"].as_str() != Some("dev"))
                .filter_map(|used| used["name"].as_str())
                .filter(|name| names.contains(name));
            (
                package["name"].as_str().unwrap_or_default().to_owned(),
                used.map(str::to_owned).collect(),
            )
        })
        .collect()
}

#[test]
fn crates_depend_only_in_the_allowed_direction() {
    let edges = edges();
    let known: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = edges.keys().map(String::as_str).collect();
    assert_eq!(found, known, "a crate without a place in the table of this test");
    for (name, allowed) in ALLOWED {
        for used in &edges[name] {
            assert!(
                allowed.contains(&used.as_str()),
                "{name} must not use {used}; see docs/architecture.md"
            );
        }
    }
}

/// Fails if one of `forbidden` is among the direct and indirect dependencies of a crate. It has `known` among them.
fn assert_has_none_of(package: &str, forbidden: &[&str], known: &str) {
    let tree = cargo(&[
        "tree", "--locked", "-p", package, "-e", "normal", "--prefix", "none", "--format", "{p}",
    ]);
    let used: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(
        used.contains(known),
        "{package}: the tree is not what this test takes it for: {tree}"
    );
    for forbidden in forbidden {
        assert!(
            !used.contains(forbidden),
            "{package} has {forbidden} among its dependencies"
        );
    }
}

#[test]
fn the_pure_crates_cannot_do_io() {
    for package in ["sluice-core", "sluice-hooks"] {
        assert_has_none_of(package, &NO_IO, "sluice-crds");
    }
}
