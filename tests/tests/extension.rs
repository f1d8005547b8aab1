//! The release binary, started as a user would start it: Cluster API discovers it, it comes back after a kill, another
//! replica leads when the leader dies or is stopped, and it ends when it is asked to.

use std::time::Duration;

use anyhow::Result;
use sluice_tests::extension::{Extension, Scope, Settings};
use sluice_tests::stack::{Options, Stack};

/// How long the harness's leases last.
const LEASE: Duration = Duration::from_secs(9);

#[tokio::test(flavor = "multi_thread")]
async fn the_release_binary_is_discovered_and_ends_in_good_order() -> Result<()> {
    let stack = Stack::start(Options::new("extension")).await?;
    let extension = Extension::start(&stack, Settings::new("sluice")).await?;
    extension.register("sluice", &Scope::Everywhere).await?;

    extension.kill().await?;
    extension.restart().await?;
    extension.kill_leader(Duration::ZERO).await?;
    extension.freeze_leader(LEASE + Duration::from_secs(3)).await?;
    extension.unregister("sluice").await?;
    extension
        .register("again", &Scope::Namespaces(vec!["default".to_owned()]))
        .await?;
    extension.unregister("again").await?;
    extension.terminate(Duration::from_secs(20)).await?;

    stack.check()?;
    stack.stop().await
}
