//! Ports for servers that are given their port before they bind it.
//!
//! A port that the kernel hands out for `:0` is free only until it is released for the server; any outgoing
//! connection of the machine may take it in between, or while an API server is being swapped. So ports come
//! from below the range of outgoing connections, and each is guarded by a locked file for as long as its
//! [`Port`] lives: stacks side by side never meet.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use tokio::net::TcpSocket;

use super::lock_file;

const LOWEST: u16 = 10_240;

/// Number of ports that are tried at most.
const SPAN: u16 = 16_384;

/// A free TCP port on 127.0.0.1, reserved among all stacks of this user until dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: File,
}

impl Port {
    /// Reserves a port that nothing listens on.
    pub fn reserve() -> Result<Self> {
        let directory = PathBuf::from(format!("/tmp/sluice-ports-{}", Uid::effective()));
        fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        let (lowest, span) = range();
        let first = next_candidate();
        for offset in 0..span {
            let number = lowest + (first + offset) % span;
            let path = directory.join(number.to_string());
            let file = lock_file(&path)?;
            if file.try_lock().is_ok() && can_be_bound(number) {
                return Ok(Self {
                    number,
                    _reservation: file,
                });
            }
        }
        bail!("no free port on 127.0.0.1 between {lowest} and {}", lowest + span)
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Whether nothing listens on a port.
///
/// The probe binds and never listens: a child that another thread starts at the same time keeps a copy of the
/// socket until its `exec`, and a copy that listens would keep the port from its server.
fn can_be_bound(number: u16) -> bool {
    let bind = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, number)))
    };
    bind().is_ok()
}

/// First port and number of ports, below the range that outgoing connections use where that leaves room.
fn range() -> (u16, u16) {
    let first_outgoing = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse::<u16>().ok())
        .unwrap_or(32_768);
    match first_outgoing.checked_sub(LOWEST) {
        Some(room) if room >= 1_000 => (LOWEST, room.min(SPAN)),
        _ => (LOWEST, SPAN),
    }
}

/// Where the search starts: spread over processes, moving on within one, so that a port is not reused while
/// it still lingers.
fn next_candidate() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let spread = (std::process::id().wrapping_mul(2_654_435_761) >> 16) as u16;
    spread.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % SPAN
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn ports_are_distinct_while_they_are_held_and_can_be_bound() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve().unwrap()).collect();
        let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        for port in &ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap();
        }
    }

    #[test]
    fn a_port_with_a_listener_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!can_be_bound(listener.local_addr().unwrap().port()));
    }

    #[test]
    fn ports_can_be_bound_while_other_threads_start_children() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..100 {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
            for _ in 0..500 {
                let port = Port::reserve().unwrap();
                TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap();
            }
        });
    }

    #[test]
    fn a_reservation_is_seen_by_other_processes() {
        let port = Port::reserve().unwrap();
        let path = format!("/tmp/sluice-ports-{}/{}", Uid::effective(), port.number());
        let busy = Command::new("flock")
            .args(["--nonblock", &path, "true"])
            .status()
            .unwrap();
        assert!(!busy.success());
        drop(port);
        // A child that another test starts at the same time keeps the lock until its exec.
        let free = Command::new("flock")
            .args(["--timeout", "10", &path, "true"])
            .status()
            .unwrap();
        assert!(free.success());
    }
}
