//! The release binary, started as a user would start it: Cluster API discovers it, it comes back after a kill, another
//! replica leads when the leader dies or is stopped, and it ends when it is asked to.

use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_tests::extension::{Extension, Scope, Settings};
use sluice_tests::stack::{Options, Stack};

/// How long the harness's leases last.
const LEASE: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn the_release_binary_is_discovered_and_ends_in_good_order() -> Result<()> {
    let stack = Stack::start(Options::new("extension")).await?;
    let extension = Extension::start(&stack, Settings::new("sluice")).await?;
    extension.register("sluice", &Scope::Everywhere).await?;

    extension.kill().await?;
    extension.restart().await?;
    extension.take_over().await?;
    let ended = extension.freeze_leader(LEASE + Duration::from_secs(3)).await?;
    ensure!(
        ended.is_some_and(|status| !status.success()),
        "a leader that was stopped for longer than its lease ended with {ended:?}"
    );
    extension.unregister("sluice").await?;
    extension
        .register("again", &Scope::Namespaces(vec!["default".to_owned()]))
        .await?;
    extension.unregister("again").await?;
    // Each registration is a call at least, and call by call it is the turn of another one.
    extension.register("once-more", &Scope::Everywhere).await?;
    extension.unregister("once-more").await?;
    for replica in extension.replicas() {
        let metrics = replica.metrics().await?;
        let accepted = metrics
            .lines()
            .find_map(|line| line.strip_prefix("sluice_server_accepted_connections_total "));
        ensure!(
            accepted.is_some_and(|count| count != "0"),
            "it was never its turn:\n{metrics}"
        );
    }
    extension.terminate(Duration::from_secs(20)).await?;

    stack.check()?;
    stack.stop().await
}
