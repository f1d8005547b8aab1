//! Processes and servers that the harness starts: their ports, directories and logs, and that they end.

pub mod canary;
pub mod gauge;
pub(crate) mod go_crash;
pub mod log_search;
pub(crate) mod out_of_memory;
pub mod ports;
pub(crate) mod probe;
pub mod process;
pub mod relay;
pub mod run_directory;
pub mod slow_file;
pub mod tls;

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Writes one line to standard error, for people: whatever the test runner captures, and whether or not traces are listened to.
pub fn notice(text: impl Display) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "stack: {text}");
}

/// Opens the file at `path` to be locked, and makes it if need be.
pub(crate) fn lock_file(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}
