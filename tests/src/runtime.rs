//! The runtime of a command.

use std::future::Future;

use anyhow::{Context as _, Result};

/// Runs the work of a command on all processors, to its end.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?
        .block_on(work)
}
