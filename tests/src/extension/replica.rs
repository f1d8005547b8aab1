//! One replica: the release binary, started as a user would start it, with the roles that we ship.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use nix::sys::signal::Signal;
use tokio::sync::Mutex;

use super::image::{CERTIFICATES, Image};
use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::processes::run_directory::{resident, target_directory};
use crate::stack::apiserver::ApiServer;
use crate::stack::kapp_controller::token;
use crate::stack::manifests::Base;
use crate::stack::{SYSTEM_NAMESPACE, Stack, StackCore};

/// Path of the binary; by default `release/sluice` in Cargo's target directory.
pub const BINARY: &str = "SLUICE_BIN";

const READY: Duration = Duration::from_mins(2);

/// Time to end in good order: a leader hands its lease back.
const GRACE: Duration = Duration::from_secs(20);

/// The flags of an election, by default. Its times are shorter than those that we ship, so that the death of a leader costs seconds.
pub const ELECTION: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=12s",
    "--leader-elect-renew-deadline=9s",
    "--leader-elect-retry-period=1s",
];

/// The flags of an election in which a machine that is busy makes no leader give up. Candidates read the lease as often as by default.
pub const PATIENT_ELECTION: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=90s",
    "--leader-elect-renew-deadline=75s",
    "--leader-elect-retry-period=2s",
];

/// How one replica is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of its log, unique in the stack.
    pub name: String,
    /// `--sync-period`.
    pub sync_period: String,
    /// More arguments.
    pub arguments: Vec<String>,
    /// `--v`.
    pub verbosity: u8,
    /// The flags of an election.
    pub election: [&'static str; 4],
    /// Another binary than the one under test. It must know all arguments.
    pub binary: Option<PathBuf>,
    /// Where it reaches the management API server (`https://127.0.0.1:<port>`); without anything between when absent.
    pub api_server: Option<String>,
    /// Whether the status service is served. It is not without packages.
    pub status: bool,
    /// `--packages`: whether Sluice manages packages, and has the roles for that.
    pub packages: bool,
}

impl Settings {
    /// A replica with a sync period of ten minutes, the default, that leads when no other one does.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            sync_period: "10m".to_owned(),
            arguments: Vec::new(),
            verbosity: 4,
            election: ELECTION,
            binary: None,
            api_server: None,
            status: true,
            packages: true,
        }
    }

    /// Applies the manifests of this installation: those of [`Base::read`], or of [`Base::gates_only`]. Returns a token of the ServiceAccount
    /// in them.
    pub(super) async fn granted(&self, client: &Client) -> Result<String> {
        let manifests = if self.packages {
            Base::read()?
        } else {
            Base::gates_only().await?
        };
        apply(client, &manifests).await
    }
}

/// A replica: ports, certificate and ServiceAccount for its whole life, and a process that may be replaced.
pub struct Replica {
    core: Arc<StackCore>,
    name: String,
    /// How its next process is started.
    settings: std::sync::Mutex<Settings>,
    /// The binary under test.
    program: PathBuf,
    directory: PathBuf,
    pub(super) ca_bundle: String,
    pub(super) hook_port: Port,
    admission_port: Port,
    health_port: Port,
    status_port: Port,
    /// The file system that it runs in, where that is not the machine's.
    image: std::sync::Mutex<Option<Image>>,
    process: Mutex<Option<Process>>,
}

impl Replica {
    /// Applies the manifests of the installation, starts the binary with a token of the ServiceAccount in them, and waits
    /// until it is ready.
    pub async fn start(stack: &Stack, settings: Settings) -> Result<Self> {
        Self::start_beside(stack.core(), stack.management(), settings).await
    }

    /// [`Self::start`] beside an API server that is not part of a stack, such as one without the controllers of Cluster API.
    pub async fn start_beside(
        core: &Arc<StackCore>,
        management: &ApiServer,
        settings: Settings,
    ) -> Result<Self> {
        let token = settings.granted(&management.admin_client()).await?;
        let replica = Self::prepare(core, management, settings, &token)?;
        replica.restart().await?;
        Ok(replica)
    }

    /// [`Self::start`] beside an API server without Cluster API.
    pub async fn start_alone(core: &Arc<StackCore>, api: &ApiServer, settings: Settings) -> Result<Self> {
        let token = settings.granted(&api.admin_client()).await?;
        let replica = Self::prepare(core, api, settings, &token)?;
        replica.restart().await?;
        Ok(replica)
    }

    /// Starts the binary with `token` and waits until it is ready.
    pub(super) async fn start_with(stack: &Stack, settings: Settings, token: &str) -> Result<Self> {
        let replica = Self::prepare(stack.core(), stack.management(), settings, token)?;
        replica.restart().await?;
        Ok(replica)
    }

    /// Starts the binary with another token and does not wait: its holder may have no rights at all yet.
    pub async fn start_unready(stack: &Stack, settings: Settings, token: &str) -> Result<Self> {
        let replica = Self::prepare(stack.core(), stack.management(), settings, token)?;
        let process = Process::start(replica.core.directory(), replica.launch())?;
        *replica.process.lock().await = Some(process);
        Ok(replica)
    }

    /// A replica beside `management`. Nothing runs yet.
    pub(crate) fn prepare(
        core: &Arc<StackCore>,
        management: &ApiServer,
        settings: Settings,
        token: &str,
    ) -> Result<Self> {
        let program = binary()?;
        let pki = management.pki();
        let directory = core.directory().subdirectory(&settings.name)?;
        let certificate = pki.server_certificate()?;
        fs::write(directory.join("tls.crt"), &certificate.certificate)?;
        fs::write(directory.join("tls.key"), &certificate.key)?;
        let api_server = settings.api_server.clone();
        let api_server = api_server.unwrap_or_else(|| management.url());
        fs::write(
            directory.join("kubeconfig"),
            pki.token_kubeconfig(&api_server, token),
        )?;

        Ok(Self {
            core: core.clone(),
            name: settings.name.clone(),
            settings: std::sync::Mutex::new(settings),
            program,
            directory,
            ca_bundle: pki.ca_bundle(),
            hook_port: Port::reserve()?,
            admission_port: Port::reserve()?,
            health_port: Port::reserve()?,
            status_port: Port::reserve()?,
            image: std::sync::Mutex::default(),
            process: Mutex::new(None),
        })
    }

    /// Kills the process if it runs, starts it again with the same arguments and waits until it is ready.
    pub async fn restart(&self) -> Result<()> {
        self.kill().await?;
        let process = Process::start(self.core.directory(), self.launch())?;
        let readyz = Probe::new(&format!("http://{}", self.health_address()), "/readyz")?;
        process.until("to be ready", READY, || readyz.get()).await?;
        *self.process.lock().await = Some(process);
        Ok(())
    }

    /// Stops the process where it stands, until [`Extension::thaw`](super::Extension::thaw).
    pub async fn freeze(&self) -> Result<()> {
        let process = self.process.lock().await;
        process
            .as_ref()
            .context("the replica does not run")?
            .signal(Signal::SIGSTOP)
    }

    /// Resumes a stopped process. A leader that was stopped for too long ends by itself.
    pub(super) async fn thaw(&self) -> Result<()> {
        let process = self.process.lock().await;
        let process = process.as_ref().context("the replica does not run")?;
        process.may_end(true);
        process.signal(Signal::SIGCONT)
    }

    /// How its process ended, where it has.
    pub(super) async fn exited(&self) -> Option<ExitStatus> {
        let process = self.process.lock().await;
        process.as_ref().and_then(Process::exited)
    }

    /// From now on an end is unexpected again. A process that has ended is started again, and how it ended is returned.
    pub(super) async fn ends_no_more(&self) -> Result<Option<ExitStatus>> {
        if let Some(status) = self.exited().await {
            self.restart().await?;
            return Ok(Some(status));
        }
        let process = self.process.lock().await;
        process
            .as_ref()
            .context("the replica does not run")?
            .may_end(false);
        Ok(None)
    }

    /// Whether this process holds a lease.
    pub(super) async fn is(&self, holder: &str) -> bool {
        let process = self.process.lock().await;
        process
            .as_ref()
            .is_some_and(|process| holder.starts_with(&format!("{}_{}_", self.name, process.id())))
    }

    /// Kills the process.
    pub async fn kill(&self) -> Result<()> {
        match self.process.lock().await.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Asks the process to end, as a kubelet does, and returns its exit status; kills it after `grace`.
    pub async fn terminate(&self, grace: Duration) -> Result<ExitStatus> {
        let process = self.process.lock().await.take();
        process
            .context("the replica does not run")?
            .terminate(grace)
            .await
    }

    /// Where hooks are served: `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn hook_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.hook_port.number())
    }

    /// URL for reviews: `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn admission_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.admission_port.number())
    }

    /// Where health and metrics are served: `127.0.0.1:<port>`.
    #[must_use]
    pub fn health_address(&self) -> String {
        format!("127.0.0.1:{}", self.health_port.number())
    }

    /// Where the status service is served, if it is: `127.0.0.1:<port>`.
    #[must_use]
    pub fn status_address(&self) -> String {
        format!("127.0.0.1:{}", self.status_port.number())
    }

    /// Fails while it is not ready.
    pub async fn readyz(&self) -> Result<()> {
        let probe = Probe::new(&format!("http://{}", self.health_address()), "/readyz")?;
        probe.text().await.map(drop)
    }

    /// Response of `/metrics`.
    pub async fn metrics(&self) -> Result<String> {
        Probe::new(&format!("http://{}", self.health_address()), "/metrics")?
            .text()
            .await
    }

    /// The sum of a metric over its labels; none while the replica does not show it. `series` is its name, with labels where only
    /// one is meant.
    pub async fn metric(&self, series: &str) -> Result<Option<f64>> {
        Ok(super::sum(&self.metrics().await?, series))
    }

    /// Id of its process.
    pub async fn id(&self) -> Result<u32> {
        let process = self.process.lock().await;
        Ok(process.as_ref().context("the replica does not run")?.id())
    }

    /// Resident memory of its process in bytes.
    pub async fn memory(&self) -> Result<u64> {
        let id = self.id().await?;
        let resident = resident(id).context("the replica has ended")?;
        Ok(resident.bytes)
    }

    /// Its log file.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.core.directory().log_path(&self.name)
    }

    /// Kills the process if it runs, and starts it in `image` from now on, or from the machine's file system.
    pub(super) async fn restart_in(&self, image: Option<Image>) -> Result<()> {
        *self.image.lock().unwrap_or_else(PoisonError::into_inner) = image;
        self.restart().await
    }

    /// Ends the process if it runs, as a kubelet does, and starts it with changed settings from now on. Its name stays.
    pub(super) async fn restart_with(&self, change: impl FnOnce(&mut Settings)) -> Result<()> {
        let running = self.process.lock().await.take();
        if let Some(mut process) = running {
            let ended = process.terminate(GRACE).await?;
            tracing::debug!("{} ended: {ended}", self.name);
        }
        change(&mut self.settings.lock().unwrap_or_else(PoisonError::into_inner));
        self.restart().await
    }

    fn launch(&self) -> Launch {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let status = (settings.status && settings.packages)
            .then(|| format!("--status-addr={}", self.status_address()));
        let packages: &[&str] = if settings.packages {
            &["--system-namespace", SYSTEM_NAMESPACE]
        } else {
            &["--packages=false"]
        };
        let (launch, directory) = match &*self.image.lock().unwrap_or_else(PoisonError::into_inner) {
            None => (
                Launch::new(&self.name, settings.binary.as_ref().unwrap_or(&self.program)),
                self.directory.clone(),
            ),
            Some(image) => (
                image.launch(&self.name, &self.directory),
                PathBuf::from(CERTIFICATES),
            ),
        };
        launch
            .arg("serve")
            .arg("--kubeconfig")
            .arg(directory.join("kubeconfig"))
            .args(["--webhook-host", "127.0.0.1"])
            .args(["--webhook-port", &self.hook_port.number().to_string()])
            .args(["--admission-port", &self.admission_port.number().to_string()])
            .arg("--webhook-cert-dir")
            .arg(&directory)
            .args(["--health-addr", &self.health_address()])
            .args(packages)
            .args(["--sync-period", &settings.sync_period])
            .args(["--logging-format", "json"])
            .args(["--v", &settings.verbosity.to_string()])
            .args(settings.election)
            .args(["--leader-elect-identity", &self.name])
            .args(status)
            .args(&settings.arguments)
    }
}

/// Applies `manifests/base`. Returns a token of the ServiceAccount in it.
pub(crate) async fn granted(client: &Client) -> Result<String> {
    apply(client, &Base::read()?).await
}

/// Applies manifests. Returns a token of the ServiceAccount in them.
async fn apply(client: &Client, manifests: &Base) -> Result<String> {
    manifests.apply(client).await?;
    let identity = manifests.identity()?;
    token(client, &identity.namespace, &identity.service_account).await
}

/// Path of the release binary.
pub fn binary() -> Result<PathBuf> {
    let path = match std::env::var_os(BINARY) {
        Some(chosen) => PathBuf::from(chosen),
        None => target_directory()
            .unwrap_or_else(|| Path::new("target").to_owned())
            .join("release")
            .join("sluice"),
    };
    if path.is_file() {
        return Ok(path);
    }
    bail!(
        "missing: the release binary {}; `cargo build --release -p sluice` makes it, {BINARY} names another",
        path.display()
    )
}
