//! Resident memory of the process under test, and the highest of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_tests::processes::run_directory::{Resident, resident};
use sluice_tests::stack::Stack;
use tokio::task::AbortHandle;

const PERIOD: Duration = Duration::from_millis(50);

/// Bytes of one MiB.
pub(crate) const MEBIBYTE: u64 = 1024 * 1024;

/// Samples the memory of one process until dropped.
pub(crate) struct Memory {
    id: u32,
    highest: Arc<AtomicU64>,
    looking: AbortHandle,
}

impl Memory {
    /// Of the one process that is Sluice.
    pub(crate) fn of_sluice(stack: &Stack) -> Result<Self> {
        let Resident { id, bytes, .. } = sluice(stack)?;
        let highest = Arc::new(AtomicU64::new(bytes));
        let noted = Arc::clone(&highest);
        let looking = async move {
            let mut tick = tokio::time::interval(PERIOD);
            loop {
                tick.tick().await;
                if let Some(now) = resident(id) {
                    noted.fetch_max(now.bytes, Ordering::Relaxed);
                }
            }
        };
        Ok(Self {
            id,
            highest,
            looking: tokio::spawn(looking).abort_handle(),
        })
    }

    /// Resets the peak, and returns the current value.
    pub(crate) fn begin(&self) -> Result<u64> {
        let Resident { bytes, .. } = resident(self.id).context("Sluice has ended")?;
        self.highest.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// The highest since then.
    pub(crate) fn highest(&self) -> u64 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Fails if the process has ended, also when another one has taken its place.
    pub(crate) fn process_is_the_same(&self, stack: &Stack) -> Result<()> {
        let now = sluice(stack)?.id;
        ensure!(now == self.id, "process {} of Sluice has ended", self.id);
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

/// The one process that is Sluice.
fn sluice(stack: &Stack) -> Result<Resident> {
    let all = stack.core().directory().memory();
    let mut sluice = all.into_iter().filter(|process| process.program == "sluice");
    sluice.next().context("no process of Sluice runs")
}
