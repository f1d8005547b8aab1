//! Early writes in `make compare`: the observer judges a pause flow that waits for its packages, and one that waits for nothing.

use anyhow::{Result, ensure};
use sluice_tests::compare::{Side, Unpause};

/// Seconds that packages take.
const DELAY: u64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn only_a_pause_flow_that_does_not_wait_is_early() -> Result<()> {
    let side = Side::pause_flow(Unpause::Ready).await?;
    let cluster = side.create("one").await?;

    let waits = side.upgrade(&cluster, 0, DELAY).await?;
    ensure!(
        !waits.early && waits.lag_s > 0.0 && waits.paused_s > 4.0,
        "it unpauses once all packages are ready, and is: {waits:#?}"
    );
    let phases = serde_json::to_value(&waits.phases)?;
    let all = phases.as_object().into_iter().flatten();
    let sum: f64 = all.filter_map(|(_, took)| took.as_f64()).sum();
    ensure!(
        phases["confirm_s"].is_null() && (sum - waits.total_s).abs() < 0.01,
        "it has no gate, and its phases take {sum} s: {waits:#?}"
    );

    side.unpauses(Unpause::AtOnce).await?;
    let hurries = side.upgrade(&cluster, 1, DELAY).await?;
    ensure!(
        // kapp-controller, which replaces nothing that runs, may be ready by then.
        hurries.early && hurries.lag_s < 0.0 && hurries.not_ready >= 3,
        "it unpauses before it has written anything, and is: {hurries:#?}"
    );

    side.check()?;
    side.stop().await
}
