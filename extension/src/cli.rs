//! Flags of the binary, named as Cluster API's own managers name them.

use std::{net::IpAddr, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, ValueEnum};

/// Holds a Cluster API rollout until the packages of the new Kubernetes version are proven ready.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, about)]
pub struct Args {
    /// Kubeconfig of the management cluster; the service account of the pod when absent.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of templates, of Package objects and, in workload clusters, of PackageInstalls.
    #[arg(
        long,
        env = "SLUICE_SYSTEM_NAMESPACE",
        default_value = "tkg-system",
        value_name = "NAMESPACE"
    )]
    pub system_namespace: String,

    /// How often kapp-controller looks at a package again, and Sluice at a cluster.
    #[arg(long, env = "SLUICE_SYNC_PERIOD", default_value = "10m", value_name = "DURATION", value_parser = duration)]
    pub sync_period: Duration,

    /// How long a deletion waits for additional packages to be uninstalled.
    #[arg(long, env = "SLUICE_CLUSTER_DELETE_TIMEOUT", default_value = "10m", value_name = "DURATION", value_parser = duration)]
    pub cluster_delete_timeout: Duration,

    /// How many clusters are reconciled at once.
    #[arg(
        long,
        env = "SLUICE_CLUSTER_CONCURRENCY",
        default_value_t = 10,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub cluster_concurrency: u16,

    /// API group whose kinds Clusters may name as their control plane although their definitions carry no contract label of
    /// Cluster API; may be repeated.
    #[arg(long = "control-plane-group", value_name = "GROUP", value_parser = group)]
    pub control_plane_groups: Vec<String>,

    /// Where hooks are served.
    #[command(flatten)]
    pub webhook: WebhookArgs,

    /// Leader election.
    #[command(flatten)]
    pub leader: LeaderArgs,

    /// Where /healthz, /livez, /readyz and /metrics are served over plain HTTP.
    #[arg(long, env = "SLUICE_HEALTH_ADDR", default_value = ":9440", value_name = "ADDR", value_parser = address)]
    pub health_addr: SocketAddr,

    /// Format of the log.
    #[arg(
        long,
        env = "SLUICE_LOGGING_FORMAT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub logging_format: LogFormat,

    /// Verbosity from 0 (errors) to 5 (everything); RUST_LOG wins.
    #[arg(short = 'v', long = "v", env = "SLUICE_V", default_value_t = 2, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=5))]
    pub verbosity: u8,
}

/// The listener for hooks.
#[derive(Debug, Clone, ClapArgs)]
pub struct WebhookArgs {
    /// Address that hooks are served on.
    #[arg(long, env = "SLUICE_WEBHOOK_HOST", default_value = "::", value_name = "IP")]
    pub webhook_host: IpAddr,
    /// Port that hooks are served on.
    #[arg(
        long,
        env = "SLUICE_WEBHOOK_PORT",
        default_value_t = 9443,
        value_name = "PORT"
    )]
    pub webhook_port: u16,
    /// Directory of the serving certificate.
    #[arg(
        long,
        env = "SLUICE_WEBHOOK_CERT_DIR",
        default_value = "/tmp/k8s-webhook-server/serving-certs",
        value_name = "DIR"
    )]
    pub webhook_cert_dir: PathBuf,
    /// File of the certificate chain in that directory.
    #[arg(
        long,
        env = "SLUICE_WEBHOOK_CERT_NAME",
        default_value = "tls.crt",
        value_name = "FILE"
    )]
    pub webhook_cert_name: String,
    /// File of the private key in that directory.
    #[arg(
        long,
        env = "SLUICE_WEBHOOK_KEY_NAME",
        default_value = "tls.key",
        value_name = "FILE"
    )]
    pub webhook_key_name: String,
}

/// Leader election with client-go's terms.
#[derive(Debug, Clone, ClapArgs)]
pub struct LeaderArgs {
    /// Elect a leader; needed with more than one replica.
    #[arg(long, env = "SLUICE_LEADER_ELECT")]
    pub leader_elect: bool,
    /// How long a leader that stopped renewing is waited for.
    #[arg(long, default_value = "15s", value_name = "DURATION", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// How long a leader tries to renew before it gives up.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// How often the lease is looked at.
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    /// Namespace of the lease.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "sluice-system",
        value_name = "NAMESPACE"
    )]
    pub leader_elect_namespace: String,
    /// Name of this replica in the lease; the host name when absent.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub leader_elect_identity: Option<String>,
}

impl LeaderArgs {
    /// Whether a leader stops writing before another one may start.
    ///
    /// # Errors
    /// One line that names the flag and its value.
    pub fn check(&self) -> Result<(), String> {
        let Self {
            leader_elect_lease_duration: lease,
            leader_elect_renew_deadline: renew,
            leader_elect_retry_period: retry,
            ..
        } = self;
        if *lease < Duration::from_secs(1) {
            return Err(format!(
                "--leader-elect-lease-duration {lease:?} is shorter than 1s"
            ));
        }
        if renew >= lease {
            return Err(format!(
                "--leader-elect-renew-deadline {renew:?} is not shorter than --leader-elect-lease-duration {lease:?}"
            ));
        }
        if retry.is_zero() {
            return Err("--leader-elect-retry-period 0s is not above zero".to_owned());
        }
        if retry >= renew {
            return Err(format!(
                "--leader-elect-retry-period {retry:?} is not shorter than --leader-elect-renew-deadline {renew:?}"
            ));
        }
        Ok(())
    }
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// A Go duration as far as operators use it: `10m`, `90s`, `1h30m`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| format!("{text} is not a duration such as 10m or 90s"))?;
    Duration::try_from(parsed).map_err(|_| format!("{text} is negative"))
}

/// The name of an API group of definitions, such as `controlplane.example.com`.
fn group(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.len() <= 253 && text.contains('.') && text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text} is not an API group such as controlplane.example.com"
        ))
    }
}

/// A Go listen address: `:9440` means every interface.
fn address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') {
        format!("[::]{text}")
    } else {
        text.to_owned()
    };
    full.parse()
        .map_err(|_| format!("{text} is not ADDRESS:PORT or :PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_spellings_are_understood() {
        assert_eq!(duration("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("-1s").is_err());
        assert!(duration("soon").is_err());
        assert_eq!(address(":9440").map(|a| a.port()), Ok(9440));
        assert!(address("9440").is_err());
    }

    #[test]
    fn a_group_is_a_domain() {
        assert_eq!(
            group("controlplane.example.com").as_deref(),
            Ok("controlplane.example.com")
        );
        for wrong in [
            "",
            "apps",
            "Apps.example.com",
            "a..b",
            "-a.b",
            "a.b/v1",
            "*.b",
            &"a.b".repeat(100),
        ] {
            assert!(group(wrong).is_err(), "{wrong}");
        }
    }
}
