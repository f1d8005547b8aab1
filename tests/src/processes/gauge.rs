//! Memory and processor time of a process, as Linux reports them.

use std::fs;

use anyhow::{Context as _, Result};

/// Ticks of a second in `/proc/<id>/stat`.
const TICKS: f64 = 100.0;

/// A running process.
#[derive(Debug, Clone, Copy)]
pub struct Gauge(u32);

impl Gauge {
    /// The process with this id.
    #[must_use]
    pub const fn of(id: u32) -> Self {
        Self(id)
    }

    /// Resident memory in MB.
    pub fn resident(self) -> Result<f64> {
        self.megabytes("status", "VmRSS:")
    }

    /// The same, pages that it shares with others counted in part.
    pub fn proportional(self) -> Result<f64> {
        self.megabytes("smaps_rollup", "Pss:")
    }

    /// The most that was resident since the last [`Self::forget_peak`], in MB.
    pub fn peak(self) -> Result<f64> {
        self.megabytes("status", "VmHWM:")
    }

    /// Has the peak counted from now on.
    pub fn forget_peak(self) -> Result<()> {
        let path = format!("/proc/{}/clear_refs", self.0);
        fs::write(&path, "5").with_context(|| format!("write {path}"))
    }

    /// Seconds of processors that it has taken so far.
    pub fn seconds(self) -> Result<f64> {
        let stat = self.read("stat")?;
        seconds(&stat).with_context(|| format!("read the times of process {}", self.0))
    }

    fn megabytes(self, file: &str, field: &str) -> Result<f64> {
        let text = self.read(file)?;
        kibibytes(&text, field)
            .map(|kibibytes| kibibytes * 1024.0 / 1e6)
            .with_context(|| format!("find {field} of process {}", self.0))
    }

    fn read(self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.0);
        fs::read_to_string(&path).with_context(|| format!("read {path}"))
    }
}

fn kibibytes(text: &str, field: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn seconds(stat: &str) -> Option<f64> {
    // The name of the program, in parentheses, may hold anything; both times are after 11 more fields.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        assert_eq!(
            kibibytes("Name:\tsluice\nVmRSS:\t   20480 kB\n", "VmRSS:"),
            Some(20480.0)
        );
        assert_eq!(kibibytes("VmRSS:\t20480\n", "VmRSS:"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 0 0 20 0 9 0 100 1 2";
        assert_eq!(seconds(stat), Some(3.0));
    }

    #[test]
    fn this_process_takes_something() {
        let own = Gauge::of(std::process::id());
        assert!(
            own.resident().unwrap() > 1.0 && own.proportional().unwrap() > 1.0 && own.peak().unwrap() > 1.0
        );
        assert!(own.seconds().unwrap() >= 0.0);
    }
}
