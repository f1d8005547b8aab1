//! Resident memory of the process under test, and the highest of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_tests::stack::Stack;
use tokio::task::AbortHandle;

const PERIOD: Duration = Duration::from_millis(50);

/// Bytes of one MiB.
pub(crate) const MEBIBYTE: u64 = 1024 * 1024;

/// Looks at one process until it is dropped.
pub(crate) struct Memory {
    id: u32,
    highest: Arc<AtomicU64>,
    looking: AbortHandle,
}

impl Memory {
    /// Of the one process that is Sluice.
    pub(crate) fn of_sluice(stack: &Stack) -> Result<Self> {
        let id = process(stack)?;
        let highest = Arc::new(AtomicU64::new(resident(id)?));
        let noted = Arc::clone(&highest);
        let looking = async move {
            let mut tick = tokio::time::interval(PERIOD);
            loop {
                tick.tick().await;
                if let Ok(bytes) = resident(id) {
                    noted.fetch_max(bytes, Ordering::Relaxed);
                }
            }
        };
        Ok(Self {
            id,
            highest,
            looking: tokio::spawn(looking).abort_handle(),
        })
    }

    /// Forgets what was. Returns what it is now.
    pub(crate) fn begin(&self) -> Result<u64> {
        let bytes = resident(self.id)?;
        self.highest.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// The highest since then.
    pub(crate) fn highest(&self) -> u64 {
        self.highest.load(Ordering::Relaxed)
    }

    /// Fails if the process has ended, also when another one has taken its place.
    pub(crate) fn process_is_the_same(&self, stack: &Stack) -> Result<()> {
        let now = process(stack)?;
        ensure!(now == self.id, "process {} of Sluice has ended", self.id);
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

fn process(stack: &Stack) -> Result<u32> {
    let all = stack.core().directory().memory();
    let sluice = all.iter().find(|process| process.program == "sluice");
    Ok(sluice.context("no process of Sluice runs")?.id)
}

fn resident(id: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kibibytes: u64 = kibibytes.context("no VmRSS in its status")?.trim().parse()?;
    Ok(kibibytes * 1024)
}
