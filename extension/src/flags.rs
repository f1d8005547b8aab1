//! Flags of the binary. Names follow those of Cluster API's own managers.

mod listen;
mod value;

use std::{env, ffi::OsString, net::IpAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args as ClapArgs, Parser, ValueEnum};
use sluice_cli::value::{duration, namespace, object};
use sluice_core::{
    installation::retrigger::EXTENSION_CONFIG,
    kubeconfig::{HostPattern, Proxies, Proxy, ProxyProtocol},
};

pub use listen::ListenAddress;
use value::{address, at_least, file, group, identity};

/// Minimum of the sync period and of the lease duration, which the Lease stores in seconds.
const SECOND: Duration = Duration::from_secs(1);

/// Minimum interval between two attempts to acquire or renew the lease.
const SHORTEST_RETRY: Duration = Duration::from_millis(100);

/// Holds a Cluster API rollout until the packages of the new Kubernetes version are proven ready.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, about)]
pub struct Args {
    /// Kubeconfig of the management cluster (default: the files of KUBECONFIG, merged as kubectl does, or the service account of the pod if
    /// they are missing or empty).
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Value of KUBECONFIG. No flag, because a list of files is valid only there.
    #[arg(skip = env::var_os("KUBECONFIG"))]
    pub kubeconfig_files: Option<OsString>,

    /// Install the packages of each Cluster, and hold its upgrades until they are proven. Without packages, Sluice uses no API of Tanzu,
    /// Carvel or vSphere.
    #[arg(
        long,
        env = "SLUICE_PACKAGES",
        default_value_t = true,
        value_name = "BOOL",
        action = clap::ArgAction::Set
    )]
    pub packages: bool,

    /// Hold upgrades until the checks of UpgradeGates are proven. Without their definitions, Sluice holds no upgrade for them.
    #[arg(
        long,
        env = "SLUICE_GATES",
        default_value_t = true,
        value_name = "BOOL",
        action = clap::ArgAction::Set
    )]
    pub gates: bool,

    /// Namespace of templates and Package objects, and of PackageInstalls in workload clusters.
    #[arg(
        long,
        env = "SLUICE_SYSTEM_NAMESPACE",
        default_value = "tkg-system",
        value_name = "NAMESPACE",
        value_parser = namespace
    )]
    pub system_namespace: String,

    /// Namespaces in which Secret metadata is watched, so that changed values take effect immediately (default: all). Elsewhere they take
    /// effect at the next resync.
    #[arg(
        long,
        env = "SLUICE_SECRET_NAMESPACES",
        value_name = "NAMESPACE",
        value_delimiter = ',',
        value_parser = namespace
    )]
    pub secret_namespaces: Vec<String>,

    /// Resync interval of Clusters and configurations in Sluice, and of PackageInstalls in kapp-controller.
    #[arg(long, env = "SLUICE_SYNC_PERIOD", default_value = "10m", value_name = "DURATION", value_parser = at_least(SECOND))]
    pub sync_period: Duration,

    /// Maximum time that the deletion of a Cluster waits until its additional packages are uninstalled.
    #[arg(long, env = "SLUICE_CLUSTER_DELETE_TIMEOUT", default_value = "10m", value_name = "DURATION", value_parser = duration)]
    pub cluster_delete_timeout: Duration,

    /// Maximum number of Clusters that are reconciled concurrently.
    #[arg(
        long,
        env = "SLUICE_CLUSTER_CONCURRENCY",
        default_value_t = 10,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub cluster_concurrency: u16,

    /// Hold Clusters that request a release by annotation, their own or that of their ClusterClass, but have no release label: the API
    /// server did not call the webhook that resolves the release.
    #[arg(
        long,
        env = "SLUICE_HOLD_UNRESOLVED",
        default_value_t = true,
        value_name = "BOOL",
        action = clap::ArgAction::Set
    )]
    pub hold_unresolved: bool,

    /// API group of control plane kinds that Clusters may reference although their CustomResourceDefinitions carry no contract label of
    /// Cluster API; may be repeated.
    #[arg(long = "control-plane-group", value_name = "GROUP", value_parser = group)]
    pub control_plane_groups: Vec<String>,

    /// ExtensionConfig that registers Sluice with Cluster API; may be repeated. When Cluster API fails to call its hooks for a Cluster,
    /// Sluice touches the Cluster so that Cluster API calls again.
    #[arg(
        long = "extension-config",
        env = "SLUICE_EXTENSION_CONFIG",
        default_value = EXTENSION_CONFIG,
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = object
    )]
    pub extension_configs: Vec<String>,

    /// Listener of the hook server.
    #[command(flatten)]
    pub webhook: WebhookArgs,

    /// Listener of the admission webhooks.
    #[command(flatten)]
    pub admission: AdmissionArgs,

    /// Connections to workload clusters.
    #[command(flatten)]
    pub remote: RemoteArgs,

    /// Leader election.
    #[command(flatten)]
    pub leader: LeaderArgs,

    /// Listen address of /healthz, /livez, /readyz and /metrics, served over plain HTTP.
    #[arg(long, env = "SLUICE_HEALTH_ADDR", default_value = ":9440", value_name = "ADDR", value_parser = address)]
    pub health_addr: ListenAddress,

    /// Listen address of the gRPC service `sluice.status.v1` (default: not served). It uses the certificate of the hook server and admits
    /// callers that may get ClusterBootstraps.
    #[arg(long, env = "SLUICE_STATUS_ADDR", value_name = "ADDR", value_parser = address)]
    pub status_addr: Option<ListenAddress>,

    /// Format of the log.
    #[arg(
        long,
        env = "SLUICE_LOGGING_FORMAT",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub logging_format: LogFormat,

    /// Log verbosity from 0 (errors) to 5 (everything); RUST_LOG takes precedence.
    #[arg(short = 'v', long = "v", env = "SLUICE_V", default_value_t = 2, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=5))]
    pub verbosity: u8,
}

impl Args {
    /// Checks the flags for contradictions.
    ///
    /// # Errors
    /// One line that names the flags and their values.
    pub fn check(&self) -> Result<(), String> {
        self.check_features()?;
        self.leader.check()?;
        self.remote.check()?;
        let (hooks, reviews) = (self.hook_address(), self.admission_address());
        let WebhookArgs {
            webhook_host,
            webhook_port,
            ..
        } = self.webhook;
        let host = webhook_host.map(|host| format!("--webhook-host {host} "));
        let hooks_flag = format!("{}--webhook-port {webhook_port}", host.unwrap_or_default());
        let reviews_flag = format!("--admission-port {}", self.admission.admission_port);
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
            if one.conflicts_with(other) {
                return Err(format!("{flag} takes the port of {taken}"));
            }
        }
        Ok(())
    }

    fn check_features(&self) -> Result<(), String> {
        if !self.packages && !self.gates {
            return Err(
                "--packages=false and --gates=false leave nothing to hold; set one of them to true"
                    .to_owned(),
            );
        }
        match self.status_addr {
            Some(status) if !self.packages => Err(format!(
                "--status-addr {status} needs --packages=true, because the status service shows packages"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the listen address of the hook server.
    #[must_use]
    pub fn hook_address(&self) -> ListenAddress {
        ListenAddress::new(self.webhook.webhook_host, self.webhook.webhook_port)
    }

    /// Returns the listen address of the admission webhooks.
    #[must_use]
    pub fn admission_address(&self) -> ListenAddress {
        ListenAddress::new(self.webhook.webhook_host, self.admission.admission_port)
    }
}

/// Listener of the hook server.
#[derive(Debug, Clone, ClapArgs)]
pub struct WebhookArgs {
    /// Listen address of the hook server and of the admission webhooks (default: all addresses, or all IPv4 addresses of a host without
    /// IPv6).
    #[arg(long, env = "SLUICE_WEBHOOK_HOST", value_name = "IP")]
    pub webhook_host: Option<IpAddr>,
    /// Listen port of the hook server.
    #[arg(
        long,
        env = "SLUICE_WEBHOOK_PORT",
        default_value_t = 9443,
        value_name = "PORT"
    )]
    pub webhook_port: u16,
    /// Directory of the serving certificate and its private key.
    #[arg(
        long,
        env = "SLUICE_WEBHOOK_CERT_DIR",
        default_value = "/tmp/k8s-webhook-server/serving-certs",
        value_name = "DIR"
    )]
    pub webhook_cert_dir: PathBuf,
    /// File name of the certificate chain (PEM) in --webhook-cert-dir.
    #[arg(
        long,
        env = "SLUICE_WEBHOOK_CERT_NAME",
        default_value = "tls.crt",
        value_name = "FILE",
        value_parser = file
    )]
    pub webhook_cert_name: String,
    /// File name of the private key (PEM) in --webhook-cert-dir.
    #[arg(
        long,
        env = "SLUICE_WEBHOOK_KEY_NAME",
        default_value = "tls.key",
        value_name = "FILE",
        value_parser = file
    )]
    pub webhook_key_name: String,
}

/// Listener of the admission webhooks. Its address and its certificate are those of the hook server.
#[derive(Debug, Clone, ClapArgs)]
pub struct AdmissionArgs {
    /// Listen port of the admission webhooks.
    #[arg(
        long,
        env = "SLUICE_ADMISSION_PORT",
        default_value_t = 9444,
        value_name = "PORT"
    )]
    pub admission_port: u16,
    /// CA bundle used to verify the client certificates that API servers present to webhooks (PEM). Recommended: without it, Sluice
    /// answers any caller.
    #[arg(long, env = "SLUICE_ADMISSION_CLIENT_CA", value_name = "FILE")]
    pub admission_client_ca: Option<PathBuf>,
    /// Checks of a change of version or release of a Cluster by the plan of its upgrade. Gates hold whatever the checks say.
    #[arg(
        long,
        env = "SLUICE_UPGRADE_CHECKS",
        default_value = "Deny",
        value_name = "CHECKS"
    )]
    pub upgrade_checks: UpgradeChecks,
    /// Result of a raised version of a Cluster for which Cluster API does not call the hooks, so that its upgrade would not wait. For each
    /// such update, Sluice reads its ExtensionConfigs and the namespace.
    #[arg(
        long,
        env = "SLUICE_GATE_NOT_IN_FORCE",
        default_value = "Deny",
        value_name = "RESULT"
    )]
    pub gate_not_in_force: GateNotInForce,
}

/// Result at admission of an upgrade that would not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum GateNotInForce {
    /// Refuse it. If the ExtensionConfigs cannot be read, warn.
    Deny,
    /// Warn.
    Warn,
    /// Read nothing.
    Off,
}

/// Result of a finding about the upgrade of a Cluster at admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum UpgradeChecks {
    /// Refuse a legacy or unusable release, or a Package that excludes the version.
    Deny,
    /// Warn of all findings.
    Warn,
    /// Check nothing.
    Off,
}

/// Proxies of the connections to workload clusters. kapp-controller has its own settings.
#[derive(Debug, Clone, ClapArgs)]
pub struct RemoteArgs {
    /// Hosts of proxies that the kubeconfig of a workload cluster may name in `proxy-url`, as addresses, CIDRs, names or domains such as
    /// .example.com (default: none). A kubeconfig with another proxy is not accepted.
    #[arg(long, env = "SLUICE_REMOTE_ALLOW_PROXY", value_name = "HOST")]
    pub remote_allow_proxy: Vec<Hosts>,
    /// URL of the proxy, http or socks5, of connections to workload clusters whose kubeconfig has no `proxy-url` (default: no proxy). Set
    /// a URL with a password by the environment variable.
    #[arg(long, env = "SLUICE_REMOTE_PROXY", hide_env_values = true, value_name = "URL")]
    pub remote_proxy: Option<RemoteProxy>,
    /// Hosts of workload API servers that --remote-proxy does not apply to, in the form of --remote-allow-proxy (default: none).
    #[arg(long, env = "SLUICE_REMOTE_NO_PROXY", value_name = "HOST")]
    pub remote_no_proxy: Vec<Hosts>,
}

/// Hosts of one use of a flag, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(Vec<HostPattern>);

impl Hosts {
    fn all(uses: &[Self]) -> Vec<HostPattern> {
        uses.iter().flat_map(|Self(hosts)| hosts.clone()).collect()
    }
}

impl FromStr for Hosts {
    type Err = String;

    /// Skips empty entries: a variable without a value counts as unset.
    fn from_str(text: &str) -> Result<Self, String> {
        let hosts = text.split(',').map(str::trim).filter(|host| !host.is_empty());
        hosts
            .map(HostPattern::from_str)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// URL of the proxy of the operator. A usage error of clap would repeat its password, so the check of the flags reports a wrong one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteProxy {
    /// No text, as in an empty variable.
    Unset,
    /// Proxy of a supported protocol.
    Valid(Proxy),
    /// Any other text.
    Invalid,
}

impl From<&str> for RemoteProxy {
    fn from(url: &str) -> Self {
        // The key of a Secret often ends with a line end.
        let url = url.trim();
        if url.is_empty() {
            return Self::Unset;
        }
        // The CA of a tenant must not verify a proxy of the operator, and no flag has another one.
        let proxy = Proxy::parse(url).filter(|proxy| proxy.protocol != ProxyProtocol::Https);
        proxy.map_or(Self::Invalid, Self::Valid)
    }
}

impl RemoteArgs {
    /// Checks the URL of the proxy.
    ///
    /// # Errors
    /// One line that names the flag.
    fn check(&self) -> Result<(), String> {
        match self.remote_proxy {
            Some(RemoteProxy::Invalid) => {
                Err("the value of --remote-proxy is not http://HOST:PORT or socks5://HOST:PORT".to_owned())
            }
            Some(RemoteProxy::Valid(_) | RemoteProxy::Unset) | None => Ok(()),
        }
    }

    /// Returns the proxies of workload connections.
    #[must_use]
    pub fn proxies(&self) -> Proxies {
        let operator = match &self.remote_proxy {
            Some(RemoteProxy::Valid(proxy)) => Some(proxy.clone()),
            Some(RemoteProxy::Invalid | RemoteProxy::Unset) | None => None,
        };
        Proxies {
            allowed: Hosts::all(&self.remote_allow_proxy),
            operator,
            direct: Hosts::all(&self.remote_no_proxy),
        }
    }
}

/// Leader election with the terms of client-go.
#[derive(Debug, Clone, ClapArgs)]
pub struct LeaderArgs {
    /// Enable leader election; required with more than one replica.
    #[arg(long, env = "SLUICE_LEADER_ELECT")]
    pub leader_elect: bool,
    /// Time that candidates wait after the last observed renewal before they acquire the lease.
    #[arg(long, default_value = "15s", value_name = "DURATION", value_parser = at_least(SECOND))]
    pub leader_elect_lease_duration: Duration,
    /// Time that the leader retries a failed renewal before it gives up the lease.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Interval between two attempts to acquire or renew the lease.
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
    /// Name of this replica in the lease (default: the host name).
    #[arg(long, env = "POD_NAME", value_name = "NAME", value_parser = identity)]
    pub leader_elect_identity: Option<String>,
}

impl LeaderArgs {
    /// Checks that a leader stops writing before another replica can acquire the lease.
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
    /// One JSON object per line.
    Json,
    /// Human-readable lines.
    Text,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(flags: &[&str]) -> Args {
        Args::parse_from(["sluice"].iter().chain(flags))
    }

    #[test]
    fn packages_and_gates_are_on() {
        let args = parsed(&[]);
        assert!(args.packages && args.gates);
        assert_eq!(args.check(), Ok(()));
    }

    #[test]
    fn upgrades_are_checked_unless_a_flag_says_otherwise() {
        assert_eq!(parsed(&[]).admission.upgrade_checks, UpgradeChecks::Deny);
        for (flag, checks) in [
            ("--upgrade-checks=Deny", UpgradeChecks::Deny),
            ("--upgrade-checks=Warn", UpgradeChecks::Warn),
            ("--upgrade-checks=Off", UpgradeChecks::Off),
        ] {
            assert_eq!(parsed(&[flag]).admission.upgrade_checks, checks);
        }
        assert!(Args::try_parse_from(["sluice", "--upgrade-checks=deny"]).is_err());
    }

    #[test]
    fn one_of_packages_and_gates_may_be_off() {
        let problem = |flags: &[&str]| parsed(flags).check().err();
        for off in ["--packages=false", "--gates=false"] {
            assert_eq!(problem(&[off]), None, "{off}");
        }
        let both = problem(&["--packages=false", "--gates=false"]);
        assert!(
            both.as_deref()
                .is_some_and(|line| line.starts_with("--packages=false and --gates=false")),
            "{both:?}"
        );
    }

    /// The status service shows ClusterBootstraps.
    #[test]
    fn the_status_service_needs_packages() {
        let problem = |packages| parsed(&["--status-addr=:9445", packages]).check().err();
        assert_eq!(problem("--packages=true"), None);
        let without = problem("--packages=false");
        assert!(
            without
                .as_deref()
                .is_some_and(|line| line.contains("--status-addr")),
            "{without:?}"
        );
    }

    #[test]
    fn proxies_of_workload_clusters_are_off() {
        assert_eq!(parsed(&[]).remote.proxies(), Proxies::default());
    }

    /// The flags are logged at the start.
    #[test]
    fn a_proxy_hides_its_password() {
        let args = parsed(&[
            "--remote-proxy=http://user:canary@proxy:3128",
            "--remote-allow-proxy=10.0.0.0/8,.example.com",
            "--remote-no-proxy=api.example.com",
        ]);
        assert!(!format!("{args:?}").contains("canary"), "{args:?}");
        assert_eq!(args.check(), Ok(()));
        let proxies = args.remote.proxies();
        assert_eq!(
            proxies.operator.map(|proxy| proxy.authority()).as_deref(),
            Some("proxy:3128")
        );
        assert_eq!((proxies.allowed.len(), proxies.direct.len()), (2, 1));
    }

    /// Variables come from Secrets and lists of people.
    #[test]
    fn values_of_proxies_may_have_white_space() {
        let args = parsed(&[
            "--remote-proxy= http://user:canary@proxy:3128\n",
            "--remote-allow-proxy=10.0.0.0/8, .example.com,\n",
            "--remote-allow-proxy=other",
            "--remote-no-proxy= api.example.com ",
        ]);
        assert_eq!(args.check(), Ok(()));
        let proxies = args.remote.proxies();
        assert_eq!(
            proxies.operator.map(|proxy| proxy.authority()).as_deref(),
            Some("proxy:3128")
        );
        assert_eq!((proxies.allowed.len(), proxies.direct.len()), (3, 1));
    }

    #[test]
    fn an_empty_value_of_a_proxy_counts_as_unset() {
        for empty in ["", " \n"] {
            let flags = ["allow-proxy", "no-proxy", "proxy"].map(|name| format!("--remote-{name}={empty}"));
            let args = parsed(&flags.each_ref().map(String::as_str));
            assert_eq!(args.check(), Ok(()), "{empty:?}");
            assert_eq!(args.remote.proxies(), Proxies::default(), "{empty:?}");
        }
    }
}
