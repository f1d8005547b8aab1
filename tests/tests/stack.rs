//! The stack itself: it comes up, its kapp-controller really reconciles, and nothing is left of it.

use std::time::Duration;

use anyhow::Result;
use sluice_tests::stack::{Options, Stack};

#[tokio::test(flavor = "multi_thread")]
async fn comes_up() -> Result<()> {
    let stack = Stack::start(Options::new("comes-up")).await?;
    eprintln!("started in {:?}", stack.started_in());
    for resident in stack.core().directory().memory() {
        eprintln!("{resident:?}");
    }
    stack.check()?;
    assert!(stack.started_in() < Duration::from_mins(2));
    stack.stop().await
}
