//! Flags of the binary, named as Cluster API's own managers name them.

mod value;

use std::{net::IpAddr, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, ValueEnum};
use sluice_core::installation::retrigger::EXTENSION_CONFIG;

use value::{address, at_least, file, group, identity};
pub(crate) use value::{duration, namespace, object};

/// The shortest sync period, and the shortest lease: a lease is given in seconds.
const SECOND: Duration = Duration::from_secs(1);

/// The shortest time between two looks at the lease.
const SHORTEST_RETRY: Duration = Duration::from_millis(100);

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
        value_name = "NAMESPACE",
        value_parser = namespace
    )]
    pub system_namespace: String,

    /// Namespaces of Clusters in which Secrets are watched, only their metadata, so that an edit of values acts at once; all namespaces
    /// when absent. In others it acts within a sync period.
    #[arg(
        long,
        env = "SLUICE_SECRET_NAMESPACES",
        value_name = "NAMESPACE",
        value_delimiter = ',',
        value_parser = namespace
    )]
    pub secret_namespaces: Vec<String>,

    /// How often kapp-controller looks at a package again, and Sluice at a cluster.
    #[arg(long, env = "SLUICE_SYNC_PERIOD", default_value = "10m", value_name = "DURATION", value_parser = at_least(SECOND))]
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

    /// Hold Clusters that ask for a release, by annotation of their own or of their ClusterClass, and have no label that names one: the
    /// webhook that resolves them was not asked.
    #[arg(
        long,
        env = "SLUICE_HOLD_UNRESOLVED",
        default_value_t = true,
        value_name = "BOOL",
        action = clap::ArgAction::Set
    )]
    pub hold_unresolved: bool,

    /// API group whose kinds Clusters may name as their control plane although their definitions carry no contract label of
    /// Cluster API; may be repeated.
    #[arg(long = "control-plane-group", value_name = "GROUP", value_parser = group)]
    pub control_plane_groups: Vec<String>,

    /// ExtensionConfig that registers Sluice with Cluster API; may be repeated. Clusters of which its hooks could not be called are
    /// touched, so that Cluster API asks again.
    #[arg(
        long = "extension-config",
        env = "SLUICE_EXTENSION_CONFIG",
        default_value = EXTENSION_CONFIG,
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = object
    )]
    pub extension_configs: Vec<String>,

    /// Where hooks are served.
    #[command(flatten)]
    pub webhook: WebhookArgs,

    /// Where reviews of the admission webhooks are answered.
    #[command(flatten)]
    pub admission: AdmissionArgs,

    /// Leader election.
    #[command(flatten)]
    pub leader: LeaderArgs,

    /// Where /healthz, /livez, /readyz and /metrics are served over plain HTTP.
    #[arg(long, env = "SLUICE_HEALTH_ADDR", default_value = ":9440", value_name = "ADDR", value_parser = address)]
    pub health_addr: SocketAddr,

    /// Where the gRPC service `sluice.status.v1` is served, with the certificate of hooks, to those who may get ClusterBootstraps;
    /// nowhere when absent.
    #[arg(long, env = "SLUICE_STATUS_ADDR", value_name = "ADDR", value_parser = address)]
    pub status_addr: Option<SocketAddr>,

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

impl Args {
    /// Whether the flags go together.
    ///
    /// # Errors
    /// One line that names the flags and their values.
    pub fn check(&self) -> Result<(), String> {
        self.leader.check()?;
        let hooks = SocketAddr::new(self.webhook.webhook_host, self.webhook.webhook_port);
        let reviews = SocketAddr::new(self.webhook.webhook_host, self.admission.admission_port);
        let hooks_flag = format!("--webhook-host {} --webhook-port {}", hooks.ip(), hooks.port());
        let reviews_flag = format!("--admission-port {}", reviews.port());
        let probes_flag = format!("--health-addr {}", self.health_addr);
        let (probes, status_flag) = (
            (self.health_addr, &probes_flag),
            self.status_addr.map(|status| format!("--status-addr {status}")),
        );
        let (hooks, reviews) = ((hooks, &hooks_flag), (reviews, &reviews_flag));
        let mut pairs = vec![(probes, hooks), (reviews, hooks), (probes, reviews)];
        if let (Some(status), Some(flag)) = (self.status_addr, &status_flag) {
            pairs.extend([hooks, reviews, probes].map(|other| ((status, flag), other)));
        }
        for ((one, flag), (other, taken)) in pairs {
            if meet(one, other) {
                return Err(format!("{flag} takes the port of {taken}"));
            }
        }
        Ok(())
    }
}

/// Whether two listeners cannot both be bound. Port 0 is any that is free.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (everywhere || one.ip() == other.ip())
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
        value_name = "FILE",
        value_parser = file
    )]
    pub webhook_cert_name: String,
    /// File of the private key in that directory.
    #[arg(
        long,
        env = "SLUICE_WEBHOOK_KEY_NAME",
        default_value = "tls.key",
        value_name = "FILE",
        value_parser = file
    )]
    pub webhook_key_name: String,
}

/// The listener for admission webhooks. Its address and its certificate are those of hooks.
#[derive(Debug, Clone, ClapArgs)]
pub struct AdmissionArgs {
    /// Port that reviews of the admission webhooks are answered on.
    #[arg(
        long,
        env = "SLUICE_ADMISSION_PORT",
        default_value_t = 9444,
        value_name = "PORT"
    )]
    pub admission_port: u16,
    /// CA bundle (PEM) used to verify the client certificates that API servers present to webhooks. Recommended: any caller is answered
    /// when absent.
    #[arg(long, env = "SLUICE_ADMISSION_CLIENT_CA", value_name = "FILE")]
    pub admission_client_ca: Option<PathBuf>,
}

/// Leader election with client-go's terms.
#[derive(Debug, Clone, ClapArgs)]
pub struct LeaderArgs {
    /// Elect a leader; needed with more than one replica.
    #[arg(long, env = "SLUICE_LEADER_ELECT")]
    pub leader_elect: bool,
    /// How long a leader that stopped renewing is waited for.
    #[arg(long, default_value = "15s", value_name = "DURATION", value_parser = at_least(SECOND))]
    pub leader_elect_lease_duration: Duration,
    /// How long a leader tries to renew before it gives up.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// How often the lease is looked at.
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = at_least(SHORTEST_RETRY))]
    pub leader_elect_retry_period: Duration,
    /// Namespace of the lease.
    #[arg(
        long,
        env = "POD_NAMESPACE",
        default_value = "sluice-system",
        value_name = "NAMESPACE",
        value_parser = namespace
    )]
    pub leader_elect_namespace: String,
    /// Name of this replica in the lease; the host name when absent.
    #[arg(long, env = "POD_NAME", value_name = "NAME", value_parser = identity)]
    pub leader_elect_identity: Option<String>,
}

impl LeaderArgs {
    /// Whether a leader stops writing before another one may start.
    ///
    /// # Errors
    /// One line that names the flag and its value.
    fn check(&self) -> Result<(), String> {
        let Self {
            leader_elect_lease_duration: lease,
            leader_elect_renew_deadline: renew,
            leader_elect_retry_period: retry,
            ..
        } = self;
        if renew >= lease {
            return Err(format!(
                "--leader-elect-renew-deadline {renew:?} is not shorter than --leader-elect-lease-duration {lease:?}"
            ));
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
