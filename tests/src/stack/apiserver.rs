//! A real kube-apiserver, for the management cluster or for one workload cluster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nix::sys::signal::Signal;

use crate::processes::log_search::Secret;
use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::requests::once_more;
use crate::stack::StackCore;
use crate::stack::audit::{self, Audited, Log};
use crate::stack::pki::ClusterPki;

const READY: Duration = Duration::from_mins(3);

/// User agent of the harness.
const NAME: &str = "sluice-harness";

/// One kube-apiserver: a port, a prefix in etcd and an authority for its whole life, and a process that may
/// be replaced.
pub struct ApiServer {
    core: Arc<StackCore>,
    name: String,
    prefix: String,
    port: Port,
    pki: Arc<ClusterPki>,
    client: Client,
    version: Mutex<String>,
    arguments: Mutex<Vec<String>>,
    environment: Mutex<Vec<(&'static str, &'static str)>>,
    is_audited: bool,
    process: tokio::sync::Mutex<Option<Process>>,
}

impl ApiServer {
    /// Starts a server of `version` (`v1.35.4`) on the etcd prefix `/prefix`, with a new authority, and
    /// waits until it is ready.
    ///
    /// `version` is *emulated* by the newest server, see [`crate::components::KUBERNETES_VERSIONS`].
    pub async fn start(core: &Arc<StackCore>, prefix: &str, version: &str) -> Result<Self> {
        Self::start_with(core, prefix, version, Vec::new()).await
    }

    /// [`Self::start`] with more arguments, which hold until [`Self::set_arguments`] gives others.
    pub async fn start_with(
        core: &Arc<StackCore>,
        prefix: &str,
        version: &str,
        arguments: Vec<String>,
    ) -> Result<Self> {
        Self::start_audited(core, prefix, version, arguments, None).await
    }

    /// [`Self::start_with`] of a server that writes down these requests, or those that its stack has written down.
    pub async fn start_audited(
        core: &Arc<StackCore>,
        prefix: &str,
        version: &str,
        arguments: Vec<String>,
        audited: Option<&Audited>,
    ) -> Result<Self> {
        let prefix = prefix.trim_matches('/').to_owned();
        let name = format!("apiserver-{}", prefix.replace('/', "-"));
        let port = Port::reserve()?;
        let pki = ClusterPki::create(core.directory().subdirectory(format!("pki-{name}"))?)?;
        let kubeconfig = pki.admin_kubeconfig(&url(&port));
        core.directory().guard(Secret::of_kubeconfig(&name, &kubeconfig)?);
        let client = client(&kubeconfig).await?;
        let audited = audited.or(core.audited());
        if let Some(audited) = audited {
            audited.write_policy(pki.directory())?;
        }
        let server = Self {
            core: core.clone(),
            name,
            prefix,
            port,
            pki: Arc::new(pki),
            client,
            version: Mutex::new(version.to_owned()),
            arguments: Mutex::new(arguments),
            environment: Mutex::default(),
            is_audited: audited.is_some(),
            process: tokio::sync::Mutex::new(None),
        };
        server.swap(version).await?;
        Ok(server)
    }

    /// Kills the running server, if there is one, and starts one of `version` on the same port, prefix and
    /// authority; returns when it is ready. Nothing is lost: etcd holds the state.
    pub async fn swap(&self, version: &str) -> Result<()> {
        let mut slot = self.process.lock().await;
        self.replace(&mut slot, version).await
    }

    async fn replace(&self, slot: &mut Option<Process>, version: &str) -> Result<()> {
        let program = self.core.binaries().kube_apiserver_for(version).await?;
        if let Some(mut old) = slot.take() {
            old.kill().await?;
        }
        let process = Process::start(self.core.directory(), self.launch(program))?;
        let readyz = Probe::new(&self.url(), "/readyz")?;
        process.until("to be ready", READY, || readyz.get()).await?;
        *slot = Some(process);
        version.clone_into(&mut self.version.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// More arguments for the next process, in place of those given before.
    pub fn set_arguments(&self, arguments: Vec<String>) {
        *self.arguments.lock().unwrap_or_else(PoisonError::into_inner) = arguments;
    }

    /// Environment variables of the next process, beside those that every one has; a variable of the same name wins.
    pub fn set_environment(&self, environment: Vec<(&'static str, &'static str)>) {
        *self.environment.lock().unwrap_or_else(PoisonError::into_inner) = environment;
    }

    /// Kills the server. Not SIGTERM: with clients connected that takes 45 s.
    pub async fn kill(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Stops the server where it stands: its connections stay open, and nothing is answered.
    pub async fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP).await
    }

    /// Resumes a stopped server.
    pub async fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT).await
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        let slot = self.process.lock().await;
        running(slot.as_ref())?.signal(signal)
    }

    /// The id of its process.
    pub async fn id(&self) -> Result<u32> {
        Ok(running(self.process.lock().await.as_ref())?.id())
    }

    /// Starts the server again after [`Self::kill`], in the version that it had.
    pub async fn restart(&self) -> Result<()> {
        // The version is read behind the lock: a swap that is under way must not be taken back.
        let mut slot = self.process.lock().await;
        let version = self.version();
        self.replace(&mut slot, &version).await
    }

    /// Kills the server, deletes all its data and starts it again: another cluster answers at the same address, with the same
    /// authority and the same credentials.
    pub async fn lose_data(&self) -> Result<()> {
        let mut slot = self.process.lock().await;
        if let Some(mut old) = slot.take() {
            old.kill().await?;
        }
        self.core.etcd().delete_below(&self.prefix).await?;
        let version = self.version();
        self.replace(&mut slot, &version).await
    }

    /// Name of its log: `apiserver-<prefix>`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Requests that it has answered, where they are written down.
    #[must_use]
    pub fn audit(&self) -> Log {
        Log::of(self.core.directory().log_path(&audit_log(&self.name)))
    }

    /// `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.port)
    }

    /// Version that it was last started with.
    #[must_use]
    pub fn version(&self) -> String {
        self.version
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Its authority and certificates.
    #[must_use]
    pub fn pki(&self) -> &Arc<ClusterPki> {
        &self.pki
    }

    /// A client with all rights.
    #[must_use]
    pub fn admin_client(&self) -> Client {
        self.client.clone()
    }

    /// A kubeconfig with all rights, with inline certificates.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> String {
        self.pki.admin_kubeconfig(&self.url())
    }

    fn launch(&self, program: std::path::PathBuf) -> Launch {
        let file = |name: &str| self.pki.file(name).display().to_string();
        let more = self
            .arguments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let launch = Launch::new(&self.name, program).args([
            format!("--etcd-servers={}", self.core.etcd().url()),
            format!("--etcd-prefix=/{}", self.prefix),
            format!("--secure-port={}", self.port()),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--profiling=false".to_owned(),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("sa.pub")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            // Front proxy, so that kapp-controller can serve an aggregated API.
            format!("--requestheader-client-ca-file={}", file("front.crt")),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--proxy-client-cert-file={}", file("proxy.crt")),
            format!("--proxy-client-key-file={}", file("proxy.key")),
        ]);
        let environment = self.environment.lock().unwrap_or_else(PoisonError::into_inner);
        let variables = environment.iter();
        let audit = self.is_audited.then(|| {
            let log = self.core.directory().log_path(&audit_log(&self.name));
            audit::arguments(self.pki.directory(), &log)
        });
        let json = self.core.stores_json();
        let json = json.then(|| "--storage-media-type=application/json".to_owned());
        let launch = launch.args(audit.into_iter().flatten()).args(json);
        variables.fold(launch.args(more), |launch, (name, value)| {
            launch.env(*name, *value)
        })
    }
}

/// A client from the text of a kubeconfig.
pub async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("read a kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // Everything is on loopback, regardless of proxy variables in the environment.
    config.proxy_url = None;
    // Told apart from the extension under test, which has the same credentials on workload clusters.
    config.headers.push((USER_AGENT, HeaderValue::from_static(NAME)));
    once_more::client(config).context("make a client")
}

fn audit_log(server: &str) -> String {
    format!("audit-{server}")
}

fn running(process: Option<&Process>) -> Result<&Process> {
    process.context("the API server does not run")
}

fn url(port: &Port) -> String {
    format!("https://127.0.0.1:{}", port.number())
}
