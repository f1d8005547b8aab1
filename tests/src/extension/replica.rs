//! The extension under test: the release binary, started as a user would start it, with the roles that we
//! ship.

mod ask;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use nix::sys::signal::Signal;
use tokio::sync::Mutex;

use crate::kapp_controller::token;
use crate::manifests::Base;
use crate::ports::Port;
use crate::probe::Probe;
use crate::process::{Launch, Process};
use crate::registration;
pub use crate::registration::Scope;
use crate::run_directory::target_directory;
use crate::stack::{SYSTEM_NAMESPACE, Stack, StackCore};
use crate::wait;

pub use ask::HookReply;

/// Path of the binary; by default `release/sluice` in Cargo's target directory.
pub const BINARY: &str = "SLUICE_BIN";

const READY: Duration = Duration::from_secs(30);

/// How one extension is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of its log, unique in the stack.
    pub name: String,
    /// `--sync-period`.
    pub sync_period: String,
    /// More arguments.
    pub arguments: Vec<String>,
    /// Where it reaches the management API server (`https://127.0.0.1:<port>`); without anything between when absent.
    pub api_server: Option<String>,
}

impl Settings {
    /// An extension that looks again every ten minutes, as shipped.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            sync_period: "10m".to_owned(),
            arguments: Vec::new(),
            api_server: None,
        }
    }

    /// Reaches the management API server at another URL.
    #[must_use]
    pub fn api_server(mut self, url: impl Into<String>) -> Self {
        self.api_server = Some(url.into());
        self
    }

    /// A standby: answers hooks, and waits for a lease that another replica has.
    #[must_use]
    pub fn standby(mut self) -> Self {
        self.arguments.push("--leader-elect".to_owned());
        self
    }
}

/// A running extension: ports, certificate and identity for its whole life, and a process that may be
/// replaced.
pub struct Extension {
    core: Arc<StackCore>,
    client: Client,
    settings: Settings,
    arguments: std::sync::Mutex<Vec<String>>,
    program: PathBuf,
    directory: PathBuf,
    ca_bundle: String,
    hook_port: Port,
    health_port: Port,
    process: Mutex<Option<Process>>,
}

impl Extension {
    /// Applies `manifests/base`, starts the binary with a token of the ServiceAccount in it, and waits
    /// until it is ready.
    pub async fn start(stack: &Stack, settings: Settings) -> Result<Self> {
        let base = Base::read()?;
        base.apply(&stack.client()).await?;
        let identity = base.identity()?;
        let token = token(&stack.client(), &identity.namespace, &identity.service_account).await?;
        let extension = Self::prepare(stack, settings, &token)?;
        extension.restart().await?;
        Ok(extension)
    }

    /// Starts the binary with another token and does not wait: its holder may have no rights at all yet.
    pub async fn start_unready(stack: &Stack, settings: Settings, token: &str) -> Result<Self> {
        let extension = Self::prepare(stack, settings, token)?;
        let process = Process::start(extension.core.directory(), extension.launch())?;
        *extension.process.lock().await = Some(process);
        Ok(extension)
    }

    fn prepare(stack: &Stack, settings: Settings, token: &str) -> Result<Self> {
        let program = binary()?;
        let pki = stack.management().pki();
        let directory = stack.core().directory().subdirectory(&settings.name)?;
        let certificate = pki.server_certificate()?;
        fs::write(directory.join("tls.crt"), &certificate.certificate)?;
        fs::write(directory.join("tls.key"), &certificate.key)?;
        let api_server = settings.api_server.clone();
        let api_server = api_server.unwrap_or_else(|| stack.management().url());
        fs::write(
            directory.join("kubeconfig"),
            pki.token_kubeconfig(&api_server, token),
        )?;

        Ok(Self {
            core: stack.core().clone(),
            client: stack.client(),
            arguments: std::sync::Mutex::new(settings.arguments.clone()),
            settings,
            program,
            directory,
            ca_bundle: pki.ca_bundle(),
            hook_port: Port::reserve()?,
            health_port: Port::reserve()?,
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

    /// More arguments for the next process, in place of those given before.
    pub fn set_arguments(&self, arguments: Vec<String>) {
        *self.arguments.lock().unwrap_or_else(PoisonError::into_inner) = arguments;
    }

    /// Stops the process where it stands, until [`Self::thaw`].
    pub async fn freeze(&self) -> Result<()> {
        let process = self.process.lock().await;
        process
            .as_ref()
            .context("the extension does not run")?
            .signal(Signal::SIGSTOP)
    }

    /// Lets a stopped process go on and waits until it ends by itself, as a leader must that was stopped for too long.
    pub async fn thaw(&self, deadline: Duration) -> Result<ExitStatus> {
        let process = self.process.lock().await;
        let process = process.as_ref().context("the extension does not run")?;
        process.may_end(true);
        process.signal(Signal::SIGCONT)?;
        let ended = wait::until("the thawed extension to end by itself", deadline, || async {
            match process.exited() {
                Some(status) => Ok(status),
                None => wait::not_yet("it runs"),
            }
        });
        Ok(ended.await?)
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
            .context("the extension does not run")?
            .terminate(grace)
            .await
    }

    /// Registers it with Cluster API under `name` and waits until its hooks are discovered.
    pub async fn register(&self, name: &str, scope: &Scope) -> Result<()> {
        registration::register(&self.client, name, &self.hook_url(), &self.ca_bundle, scope).await
    }

    /// Takes the registration back. To be done before the process is stopped for good while Cluster API may
    /// be restarted.
    pub async fn unregister(&self, name: &str) -> Result<()> {
        registration::unregister(&self.client, name).await
    }

    /// Where hooks are served: `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn hook_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.hook_port.number())
    }

    /// Where health and metrics are served: `127.0.0.1:<port>`.
    #[must_use]
    pub fn health_address(&self) -> String {
        format!("127.0.0.1:{}", self.health_port.number())
    }

    /// Fails while it is not ready.
    pub async fn readyz(&self) -> Result<()> {
        let probe = Probe::new(&format!("http://{}", self.health_address()), "/readyz")?;
        probe.text().await.map(drop)
    }

    /// What `/metrics` says.
    pub async fn metrics(&self) -> Result<String> {
        Probe::new(&format!("http://{}", self.health_address()), "/metrics")?
            .text()
            .await
    }

    /// Its log file.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.core.directory().log_path(&self.settings.name)
    }

    fn launch(&self) -> Launch {
        Launch::new(&self.settings.name, &self.program)
            .arg("--kubeconfig")
            .arg(self.directory.join("kubeconfig"))
            .args(["--webhook-host", "127.0.0.1"])
            .args(["--webhook-port", &self.hook_port.number().to_string()])
            .arg("--webhook-cert-dir")
            .arg(&self.directory)
            .args(["--health-addr", &self.health_address()])
            .args(["--system-namespace", SYSTEM_NAMESPACE])
            .args(["--sync-period", &self.settings.sync_period])
            .args(["--logging-format", "json", "--v", "4"])
            .args(
                self.arguments
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone(),
            )
    }
}

fn binary() -> Result<PathBuf> {
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
