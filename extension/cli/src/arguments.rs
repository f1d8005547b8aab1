//! Verbs and their flags.

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use jiff::Timestamp;
use sluice_crds::lifecycle::OverriddenGate;

use crate::value::{duration, namespace, object, package, reason, timestamp};

/// Commands other than running the extension.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List upgrades of Clusters with their proven packages and the first closed gate
    #[command(after_help = "Exit codes: 0 listed, 1 unavailable or refused, 2 wrong usage")]
    Status(StatusArgs),
    /// Print a line for each change of gates and packages until the upgrades end
    #[command(
        after_help = "Exit codes: 0 every upgrade is completed, 1 unavailable or refused, 2 wrong usage, \
                            3 an upgrade was cancelled or its Cluster deleted, 4 --timeout exceeded"
    )]
    Watch(WatchArgs),
    /// Show the steps of an upgrade, and what will hold it
    #[command(after_help = "Exit codes: 0 ready, 1 not answered, 2 wrong usage, 3 blocked")]
    Plan(PlanArgs),
    /// Let a gate pass without the proof of packages: create, list and revoke overrides
    #[command(subcommand, arg_required_else_help = false)]
    Override(OverrideVerb),
    /// Print shell completions
    Completions {
        /// Shell to generate completions for
        shell: clap_complete::Shell,
    },
}

/// Connection to a status service.
#[derive(Debug, Clone, ClapArgs)]
pub struct ServerArgs {
    /// Address of the status service: `--status-addr` of a replica
    #[arg(long, env = "SLUICE_SERVER", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub server: String,
    /// CA bundle used to verify the server certificate (PEM)
    #[arg(long, env = "SLUICE_CA", value_name = "FILE")]
    pub ca: PathBuf,
    /// Server name to verify in the certificate, for example behind a forwarded port (default: HOST of `--server`)
    #[arg(long, env = "SLUICE_SERVER_NAME", value_name = "NAME", value_parser = object)]
    pub server_name: Option<String>,
    /// File with a bearer token for the management cluster, re-read for each connection
    #[arg(
        long,
        env = "SLUICE_TOKEN_FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token",
        value_name = "FILE"
    )]
    pub token_file: PathBuf,
}

/// Arguments of `sluice status`.
#[derive(Debug, ClapArgs)]
pub struct StatusArgs {
    /// Name of a single Cluster (default: all Clusters of the namespace)
    #[arg(value_name = "CLUSTER", value_parser = object, conflicts_with = "all_namespaces")]
    pub name: Option<String>,
    /// Address of the status service, and credentials.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Namespace of the Clusters
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE", value_parser = namespace)]
    pub namespace: String,
    /// List Clusters of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// List only Clusters with an upgrade in progress
    #[arg(long)]
    pub upgrading: bool,
    /// Output format: a table, or one JSON document (ListClustersResponse of all pages, including empty fields)
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
}

/// Arguments of `sluice watch`.
#[derive(Debug, ClapArgs)]
pub struct WatchArgs {
    /// Names of the Clusters
    #[arg(required = true, value_name = "CLUSTER", value_parser = object)]
    pub names: Vec<String>,
    /// Address of the status service, and credentials.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Namespace of the Clusters
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE", value_parser = namespace)]
    pub namespace: String,
    /// Exit when the upgrade to VERSION completes; wait for it to start if necessary. By default, exit when the current upgrade ends, or at
    /// once after the last upgrade has ended
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
    /// Maximum time to wait, such as 90m (default: no limit)
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Output format: text lines, or one JSON object per line (WatchClustersResponse, including empty fields)
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
}

/// Arguments of `sluice plan`.
#[derive(Debug, ClapArgs)]
pub struct PlanArgs {
    /// Name of the Cluster
    #[arg(value_name = "CLUSTER", value_parser = object)]
    pub name: String,
    /// Target of the upgrade: a TanzuKubernetesRelease, a Kubernetes version, or a prefix of one, such as v1.36 (default: the upgrade that
    /// `topology.version` requests)
    #[arg(long, value_name = "TARGET")]
    pub to: Option<String>,
    /// Namespace of the Cluster (default: that of the context)
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace)]
    pub namespace: Option<String>,
    /// Compare also the values in Secrets and configurations with the schemas of their packages
    #[arg(long)]
    pub values: bool,
    /// Check also the workload cluster, by the Secret with its kubeconfig
    #[arg(long)]
    pub workload: bool,
    /// Kubeconfig and context.
    #[command(flatten)]
    pub management: ManagementArgs,
    /// Namespace of templates and Package objects: `--system-namespace` of Sluice
    #[arg(
        long,
        env = "SLUICE_SYSTEM_NAMESPACE",
        default_value = "tkg-system",
        value_name = "NAMESPACE",
        value_parser = namespace
    )]
    pub system_namespace: String,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub output: OutputFormat,
}

/// Verbs of `sluice override`.
#[derive(Debug, Subcommand)]
pub enum OverrideVerb {
    /// Create an UpgradeOverride for the gate that holds a Cluster
    #[command(after_help = "Exit codes: 0 created, 1 not held at the gate, or not answered, 2 wrong usage")]
    Create(CreateOverrideArgs),
    /// List UpgradeOverrides
    #[command(after_help = "Exit codes: 0 listed, 1 not answered, 2 wrong usage")]
    List(ListOverridesArgs),
    /// Delete an UpgradeOverride: its gate closes again, unless Cluster API has made the step
    #[command(after_help = "Exit codes: 0 deleted, 1 not found, or not answered, 2 wrong usage")]
    Revoke(RevokeOverrideArgs),
}

/// Arguments of `sluice override create`.
#[derive(Debug, ClapArgs)]
pub struct CreateOverrideArgs {
    /// Name of the Cluster
    #[arg(value_name = "CLUSTER", value_parser = object)]
    pub cluster: String,
    /// Gate to pass
    #[arg(long, value_name = "GATE")]
    pub gate: GateArg,
    /// Short name of a package that the gate does not wait for, such as metrics-server; may be repeated, or several separated by commas
    #[arg(
        long = "package",
        value_name = "PACKAGE",
        value_parser = package,
        value_delimiter = ',',
        required_unless_present = "all_packages",
        conflicts_with = "all_packages"
    )]
    pub packages: Vec<String>,
    /// Wait for no package, and pass holds about values and the workload cluster
    #[arg(long)]
    pub all_packages: bool,
    /// Reason for the override, for those who read about it later
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub reason: String,
    /// Time until the override expires, such as 4h; at most 168h
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration,
        required_unless_present = "expires_at",
        conflicts_with = "expires_at"
    )]
    pub expires_in: Option<Duration>,
    /// Time at which the override expires, such as 2026-12-01T18:00:00Z; at most seven days ahead
    #[arg(long, value_name = "TIME", value_parser = timestamp)]
    pub expires_at: Option<Timestamp>,
    /// Kubernetes version of a step that need not be held yet (default: that of the step that is held)
    #[arg(long, value_name = "VERSION", requires = "release")]
    pub to_version: Option<String>,
    /// TanzuKubernetesRelease of that step
    #[arg(long, value_name = "NAME", value_parser = object, requires = "to_version")]
    pub release: Option<String>,
    /// Name of the UpgradeOverride (default: Cluster, gate and current time)
    #[arg(long = "name", value_name = "NAME", value_parser = object)]
    pub named: Option<String>,
    /// Print the manifest, and create nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Namespace of the Cluster (default: that of the context)
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace)]
    pub namespace: Option<String>,
    /// Kubeconfig and context.
    #[command(flatten)]
    pub management: ManagementArgs,
}

/// Arguments of `sluice override list`.
#[derive(Debug, ClapArgs)]
pub struct ListOverridesArgs {
    /// Name of a Cluster (default: all Clusters of the namespace)
    #[arg(value_name = "CLUSTER", value_parser = object, conflicts_with = "all_namespaces")]
    pub cluster: Option<String>,
    /// Namespace of the UpgradeOverrides (default: that of the context)
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace)]
    pub namespace: Option<String>,
    /// List UpgradeOverrides of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Kubeconfig and context.
    #[command(flatten)]
    pub management: ManagementArgs,
    /// Output format
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub output: OutputFormat,
}

/// Arguments of `sluice override revoke`.
#[derive(Debug, ClapArgs)]
pub struct RevokeOverrideArgs {
    /// Name of the UpgradeOverride
    #[arg(value_name = "NAME", value_parser = object)]
    pub name: String,
    /// Namespace of the UpgradeOverride (default: that of the context)
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace)]
    pub namespace: Option<String>,
    /// Kubeconfig and context.
    #[command(flatten)]
    pub management: ManagementArgs,
}

/// Connection to the management cluster.
#[derive(Debug, Clone, ClapArgs)]
pub struct ManagementArgs {
    /// Kubeconfig of the management cluster (default: the files of KUBECONFIG, ~/.kube/config, or the service account of the pod)
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig (default: its current context)
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Gate that an override passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GateArg {
    /// The control plane takes the version
    ControlPlane,
    /// The workers take the version
    Workers,
    /// Machines are replaced by those of another release
    Machines,
}

impl GateArg {
    /// Returns the gate of the API.
    #[must_use]
    pub const fn gate(self) -> OverriddenGate {
        match self {
            Self::ControlPlane => OverriddenGate::ControlPlane,
            Self::Workers => OverriddenGate::Workers,
            Self::Machines => OverriddenGate::Machines,
        }
    }

    /// Returns the spelling on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Workers => "workers",
            Self::Machines => "machines",
        }
    }
}

/// Output format of a verb that reads the management cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable text
    Table,
    /// Machine-readable JSON
    Json,
    /// Machine-readable YAML
    Yaml,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Human-readable text
    Table,
    /// Machine-readable JSON
    Json,
}

/// Parses an address as in a URL, without its scheme.
fn host_and_port(text: &str) -> Result<String, String> {
    let wrong = || format!("{text} is not HOST:PORT");
    let authority: http::uri::Authority = text.parse().map_err(|_| wrong())?;
    let plain = !authority.as_str().contains('@') && !authority.host().is_empty();
    authority
        .port_u16()
        .filter(|port| plain && *port != 0)
        .ok_or_else(wrong)?;
    Ok(text.to_owned())
}
