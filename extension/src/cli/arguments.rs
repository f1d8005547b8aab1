//! Verbs and their flags.

use std::{path::PathBuf, time::Duration};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::flags::{Args, duration, namespace, object};

/// Holds a Cluster API rollout until the packages of the new Kubernetes version are proven ready.
///
/// Without a command it is the runtime extension itself.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, about, long_about = None, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Asks an extension that runs.
    #[command(subcommand)]
    pub verb: Option<Verb>,

    /// Runs the extension.
    #[command(flatten)]
    pub serve: Args,
}

/// What is done instead of running the extension.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List upgrades of Clusters: packages proven, and the first gate that waits
    #[command(after_help = "Exit codes: 0 listed, 1 not answered or refused, 2 wrong usage")]
    Status(StatusArgs),
    /// Print a line for each change of the gates and packages of Clusters, until their upgrades end
    #[command(
        after_help = "Exit codes: 0 every upgrade is completed, 1 not answered or refused, 2 wrong usage, \
                            3 an upgrade was cancelled or its Cluster deleted, 4 --timeout passed before"
    )]
    Watch(WatchArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Which service is asked, and as whom.
#[derive(Debug, Clone, ClapArgs)]
pub struct ServerArgs {
    /// The status service, `--status-addr` of a replica
    #[arg(long, env = "SLUICE_SERVER", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub server: String,
    /// PEM file with the authorities that its certificate is of
    #[arg(long, env = "SLUICE_CA", value_name = "FILE")]
    pub ca: PathBuf,
    /// Name in its certificate where that is not HOST, as behind a forwarded port
    #[arg(long, env = "SLUICE_SERVER_NAME", value_name = "NAME", value_parser = object)]
    pub server_name: Option<String>,
    /// File with a bearer token of the management cluster, read again for each connection
    #[arg(
        long,
        env = "SLUICE_TOKEN_FILE",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token",
        value_name = "FILE"
    )]
    pub token_file: PathBuf,
}

/// `sluice status`.
#[derive(Debug, ClapArgs)]
pub struct StatusArgs {
    /// Only this Cluster
    #[arg(value_name = "CLUSTER", value_parser = object, conflicts_with = "all_namespaces")]
    pub name: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Namespace of the Clusters
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE", value_parser = namespace)]
    pub namespace: String,
    /// Clusters of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only Clusters whose upgrade is open
    #[arg(long)]
    pub upgrading: bool,
    /// A table, or one JSON document: ListClustersResponse of all pages, with empty fields
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
}

/// `sluice watch`.
#[derive(Debug, ClapArgs)]
pub struct WatchArgs {
    /// The Clusters
    #[arg(required = true, value_name = "CLUSTER", value_parser = object)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Namespace of the Clusters
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE", value_parser = namespace)]
    pub namespace: String,
    /// End with the upgrade to this Kubernetes version, also where it has not begun yet; otherwise with the one that runs, or at
    /// once where the last one has ended
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
    /// How long to wait at most, such as 90m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Lines for people, or one JSON object a line: WatchClustersResponse, with empty fields
    #[arg(short, long, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
}

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For scripts
    Json,
}

/// An address as a URL has it, without its scheme.
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
