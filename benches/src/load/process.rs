//! Resources of a process of this machine, as Linux reports them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use procfs::WithCurrentSystemInfo as _;
use procfs::net::TcpState;
use procfs::process::Process;

/// A sample of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// User and system time so far.
    pub(super) processor: Duration,
    /// Resident memory in bytes.
    pub(super) resident: u64,
}

/// Samples the process with this id.
pub(super) fn look(pid: u32) -> Result<Look> {
    let process = Process::new(i32::try_from(pid)?).with_context(|| format!("process {pid}"))?;
    let stat = process.stat().with_context(|| format!("process {pid}"))?;
    let ticks = stat.utime + stat.stime;
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 ticks")]
    let seconds = ticks as f64 / procfs::ticks_per_second() as f64;
    Ok(Look {
        processor: Duration::from_secs_f64(seconds),
        resident: stat.rss_bytes().get(),
    })
}

/// Connections to a port of this machine that are open now.
pub(super) fn connections(port: u16) -> Result<usize> {
    let both = procfs::net::tcp()?
        .into_iter()
        .chain(procfs::net::tcp6().unwrap_or_default());
    let is_open = |state: &TcpState| *state == TcpState::Established;
    Ok(both
        .filter(|entry| entry.local_address.port() == port && is_open(&entry.state))
        .count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_something() {
        let own = look(std::process::id()).unwrap();
        assert!(own.resident > 1_000_000, "{own:?}");
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(connections(address.port()).unwrap(), 0);
        let _open = std::net::TcpStream::connect(address).unwrap();
        assert_eq!(connections(address.port()).unwrap(), 1);
    }
}
