//! The flags of `sluice-bench load`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sluice_hooks::Hook;

/// Connections that are open at once at most, whatever the flags say.
const MOST_CONNECTIONS: u64 = 4_096;

/// Calls that are in flight at once at most.
const MOST_IN_FLIGHT: u64 = 20_000;

/// Calls of one connection that are in flight at most.
const MOST_STREAMS: u64 = 1_000;

/// Calls hooks of a runtime extension as Cluster API does, and says how long their answers take.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("pace").required(true).args(["rate", "closed"]))]
pub struct Arguments {
    /// Where the extension is, as in clientConfig.url of an ExtensionConfig: https://HOST:PORT/PREFIX. Handlers are discovered.
    pub url: String,
    /// PEM file with the authorities that the extension's certificate is verified with.
    #[arg(long, value_name = "FILE")]
    pub ca: PathBuf,
    /// PEM file of a client certificate, as Cluster API sends it with --runtime-extension-client-cert-file.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub client_key: Option<PathBuf>,
    /// The name in the certificate, where it is another one than in the URL, as behind a port-forward.
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Allows a host that is not this machine.
    #[arg(long)]
    pub remote: bool,

    /// Calls a second, each at its own time whether or not those before it were answered.
    #[arg(long, value_name = "CALLS")]
    pub rate: Option<f64>,
    /// As many calls as are answered: each stream calls again as soon as it has its answer. Measures throughput, not latency.
    #[arg(long)]
    pub closed: bool,
    /// For how long calls are made, after the warm-up.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub duration: Duration,
    /// For how long calls are made before any of them counts.
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub warmup: Duration,
    /// Ends after so many calls that count, if that is before the duration ends.
    #[arg(long, value_name = "CALLS")]
    pub requests: Option<u64>,
    /// How long an answer is waited for; as long as the extension says, or ten seconds, by default, as Cluster API does.
    #[arg(long, value_parser = duration)]
    pub timeout: Option<Duration>,

    /// How connections are used.
    #[arg(long, value_enum, default_value_t = Protocol::H2)]
    pub protocol: Protocol,
    /// Open connections: 1 with h2 by default, 50 otherwise, as many as Cluster API has workers.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=MOST_CONNECTIONS))]
    pub connections: Option<u64>,
    /// Calls in flight on each HTTP/2 connection, at most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=MOST_STREAMS))]
    pub streams: u64,
    /// Threads that make calls. With one, the extension has all other processors for itself.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub threads: u64,

    /// Hooks that are called in turn, each with its share: BeforeClusterUpgrade=8,AfterClusterUpgrade=2.
    #[arg(
        long = "hook",
        value_name = "HOOK[=SHARE]",
        value_delimiter = ',',
        default_value = "BeforeClusterUpgrade"
    )]
    pub hooks: Vec<Share>,
    /// Sizes of the bodies, which take turns: 3k,14k,200k. Each is a real Cluster with more machine pools and variables.
    #[arg(long = "size", value_name = "BYTES", value_delimiter = ',', value_parser = bytes, default_value = "3k")]
    pub sizes: Vec<usize>,
    /// A file with a whole request, whose kind says the hook; several take turns.
    #[arg(long = "body", value_name = "FILE", conflicts_with_all = ["hooks", "sizes"])]
    pub bodies: Vec<PathBuf>,

    /// A process of this machine whose processor time, memory and connections are reported: the extension.
    #[arg(long)]
    pub pid: Option<u32>,
    /// Where the figures are written as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where the distribution of latencies is drawn.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Prints nothing while it runs.
    #[arg(long, short)]
    pub quiet: bool,
}

/// How connections are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/2: calls share connections, as those of Cluster API do since 1.10.9, 1.11.4 and 1.12.
    H2,
    /// HTTP/1.1 with keep-alive: one call after the other on each connection.
    H1,
    /// A connection with a handshake for each call, as older ones make it.
    Handshake,
}

/// One hook of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub(super) hook: Hook,
    pub(super) times: u16,
}

impl std::str::FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, times) = match text.split_once('=') {
            None => (text, 1),
            Some((name, times)) => (
                name,
                times.parse().map_err(|error| format!("{times:?}: {error}"))?,
            ),
        };
        let named = |hook: &Hook| hook.as_str().eq_ignore_ascii_case(name);
        match Hook::ALL.into_iter().find(named) {
            Some(hook) if (1..=1_000).contains(&times) => Ok(Self { hook, times }),
            Some(_) => Err(format!("the share {times} is not between 1 and 1000")),
            None => Err(format!(
                "{name:?} is no lifecycle hook: {}",
                Hook::ALL.map(Hook::as_str).join(", ")
            )),
        }
    }
}

impl Arguments {
    /// Connections that are open at once.
    pub(super) fn connections(&self) -> u64 {
        self.connections.unwrap_or(match self.protocol {
            Protocol::H2 => 1,
            Protocol::H1 | Protocol::Handshake => 50,
        })
    }

    /// Calls that are in flight at once.
    pub(super) fn in_flight(&self) -> u64 {
        match self.protocol {
            Protocol::H2 => self.connections() * self.streams,
            Protocol::H1 | Protocol::Handshake => self.connections(),
        }
    }

    /// What clap cannot see.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(rate) = self.rate {
            ensure!(
                rate > 0.0 && rate <= 1e6,
                "--rate {rate} is not between 0 and 1000000 calls a second"
            );
        }
        ensure!(
            self.duration <= Duration::from_hours(24) && !self.duration.is_zero(),
            "--duration {:?} is not between 0 and 24h",
            self.duration
        );
        ensure!(
            self.timeout.is_none_or(|timeout| !timeout.is_zero()),
            "--timeout has to be longer than 0"
        );
        let in_flight = self.in_flight();
        ensure!(
            in_flight <= MOST_IN_FLIGHT,
            "{in_flight} calls in flight (--connections times --streams) are more than {MOST_IN_FLIGHT}"
        );
        if self.protocol != Protocol::H2 && self.threads > self.connections() {
            bail!(
                "--threads {} is more than {} connections",
                self.threads,
                self.connections()
            );
        }
        Ok(())
    }

    /// The file of a flag, or which flag names a file that cannot be read.
    pub(super) fn read(flag: &str, path: &std::path::Path) -> Result<Vec<u8>> {
        std::fs::read(path).with_context(|| format!("read {flag} {}", path.display()))
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from(duration).map_err(|_| "a negative duration".to_owned())
}

fn bytes(text: &str) -> Result<usize, String> {
    const MOST: usize = 20 << 20;
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => (text, 1),
    };
    let bytes = number
        .parse::<usize>()
        .map_err(|error| format!("{text:?}: {error}"))?;
    match bytes.checked_mul(unit) {
        Some(bytes) if (1..=MOST).contains(&bytes) => Ok(bytes),
        _ => Err(format!(
            "{text} is not between 1 byte and the 20 MiB that Cluster API sends at most"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_flags_are_read() {
        assert_eq!(bytes("14k"), Ok(14_000));
        assert!(bytes("0").is_err() && bytes("21000k").is_err() && bytes("k").is_err());
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(duration("-1s").is_err() && duration("soon").is_err());
        let share: Share = "afterclusterupgrade=3".parse().unwrap();
        assert_eq!((share.hook, share.times), (Hook::AfterClusterUpgrade, 3));
        assert!(
            "BeforeLunch"
                .parse::<Share>()
                .unwrap_err()
                .contains("BeforeClusterCreate")
        );
        assert!("BeforeClusterCreate=0".parse::<Share>().is_err());
    }
}
