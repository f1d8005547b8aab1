//! Defects of a stack, independent of the result of its tests.

use std::fmt;

use anyhow::{Result, ensure};

use crate::processes::log_search::Found;
use crate::processes::run_directory::RunDirectory;

/// Processes that ended, and what its logs should not hold.
#[derive(Debug, Default)]
pub struct Complaints {
    /// Processes that ended unasked, each with the end of its log.
    pub ended: Vec<String>,
    /// How often a kapp-controller ended unasked. That alone is no complaint.
    pub kapp_controller_ends: usize,
    /// Panics, crashes and secrets.
    pub logs: Found,
}

impl Complaints {
    /// Checks a stack that is still up.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn of(directory: &RunDirectory) -> Result<Self> {
        Ok(Self {
            ended: directory.unexpected_exits(),
            kapp_controller_ends: directory.counted_ends(),
            logs: Found::search(&directory.logs(), &directory.secrets())?,
        })
    }

    /// Adds those about another stack.
    pub fn add(&mut self, more: Self) {
        self.ended.extend(more.ended);
        self.kapp_controller_ends += more.kapp_controller_ends;
        self.logs.panics.extend(more.logs.panics);
        self.logs.leaks.extend(more.logs.leaks);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines().next().is_none()
    }

    /// Fails with all of them.
    ///
    /// # Errors
    /// There is one.
    pub fn none(&self) -> Result<()> {
        ensure!(self.is_empty(), "{self}");
        Ok(())
    }

    /// One line for each.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let ended = self
            .ended
            .iter()
            .map(|end| format!("a process of the stack ended: {end}"));
        let panics = self.logs.panics.iter().map(|panic| format!("a panic: {panic}"));
        let leaks = self
            .logs
            .leaks
            .iter()
            .map(|leak| format!("a secret in a log: {leak}"));
        ended.chain(panics).chain(leaks)
    }
}

impl fmt::Display for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.lines().collect();
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::processes::log_search::Secret;

    #[tokio::test]
    async fn forbidden_log_lines_are_complaints() {
        let directory = RunDirectory::create("complaints").unwrap();
        let complaints = || Complaints::of(&directory).unwrap();
        directory.guard([Secret::new("a password", "canary-in-a-coal-mine")]);
        fs::write(directory.log_path("one"), "nothing to see\n").unwrap();
        assert!(complaints().is_empty());
        complaints().none().unwrap();

        fs::write(
            directory.log_path("one"),
            "the password is canary-in-a-coal-mine\n",
        )
        .unwrap();
        let error = complaints().none().unwrap_err().to_string();
        assert_eq!(error, "a secret in a log: one.log tells a password");
        fs::write(
            directory.log_path("one"),
            "thread 'main' panicked at src/app.rs:1:1\n",
        )
        .unwrap();
        let error = complaints().none().unwrap_err().to_string();
        assert!(error.starts_with("a panic: one.log: "), "{error}");
        directory.close().await.unwrap();
    }
}
