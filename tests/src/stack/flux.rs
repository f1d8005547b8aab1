//! Flux: its definitions and three controllers, on the management cluster or on a workload cluster.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::sync::Mutex;

pub use crate::components::FluxController;
use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::requests::apply;
use crate::stack::StackCore;
use crate::stack::apiserver::ApiServer;

/// The namespace that the controllers are told they run in. They store nothing in it.
const NAMESPACE: &str = "flux-system";

const READY: Duration = Duration::from_mins(2);

/// The controllers of one cluster, with all rights on it. They deliver to workload clusters with kubeconfig Secrets.
pub struct Flux {
    core: Arc<StackCore>,
    /// Name of the directory, and the beginning of the names of logs.
    name: String,
    /// The kubeconfig, homes, and artifacts of sources.
    directory: PathBuf,
    helm: Controller,
    kustomize: Controller,
    source: Controller,
    /// Where the others fetch artifacts from.
    artifacts_port: Port,
}

/// One controller.
struct Controller {
    program: PathBuf,
    health_port: Port,
    process: Mutex<Option<Process>>,
}

impl Controller {
    /// One that does not run yet. Its definitions are added to others.
    async fn built(
        core: &StackCore,
        controller: FluxController,
        definitions: &mut Vec<Value>,
    ) -> Result<Self> {
        let files = core.binaries().flux(controller).await?;
        definitions.extend(files.definitions);
        Ok(Self {
            program: files.program,
            health_port: Port::reserve()?,
            process: Mutex::new(None),
        })
    }

    fn health_address(&self) -> String {
        format!("127.0.0.1:{}", self.health_port.number())
    }
}

impl Flux {
    /// Installs it on `api` and waits until all controllers are ready. The first call on a machine builds them.
    pub async fn start(core: &Arc<StackCore>, api: &ApiServer) -> Result<Self> {
        let name = format!("flux-{}", api.name().trim_start_matches("apiserver-"));
        let directory = core.directory().subdirectory(&name)?;
        fs::write(directory.join("kubeconfig"), api.admin_kubeconfig())
            .context("write the kubeconfig of Flux")?;
        let mut definitions = Vec::new();
        let flux = Self {
            core: core.clone(),
            name,
            directory,
            helm: Controller::built(core, FluxController::Helm, &mut definitions).await?,
            kustomize: Controller::built(core, FluxController::Kustomize, &mut definitions).await?,
            source: Controller::built(core, FluxController::Source, &mut definitions).await?,
            artifacts_port: Port::reserve()?,
        };
        // Before the controllers: each watches kinds of another one, and ends where these are not served.
        apply::apply_crds(&api.admin_client(), &definitions).await?;
        try_join_all(FluxController::ALL.map(|controller| flux.restart(controller))).await?;
        Ok(flux)
    }

    /// Kills a controller if it runs, starts it again and waits until it is ready.
    pub async fn restart(&self, controller: FluxController) -> Result<()> {
        self.kill(controller).await?;
        let process = Process::start(self.core.directory(), self.launch(controller)?)?;
        for (address, path) in self.answers(controller) {
            let probe = Probe::new(&format!("http://{address}"), path)?;
            process.until("to be ready", READY, || probe.get()).await?;
        }
        *self.of(controller).process.lock().await = Some(process);
        Ok(())
    }

    /// Kills a controller. Objects of its kinds can still be written.
    pub async fn kill(&self, controller: FluxController) -> Result<()> {
        match self.of(controller).process.lock().await.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Stops a controller where it stands.
    pub async fn freeze(&self, controller: FluxController) -> Result<()> {
        self.signal(controller, Signal::SIGSTOP).await
    }

    /// Resumes a stopped controller.
    pub async fn thaw(&self, controller: FluxController) -> Result<()> {
        self.signal(controller, Signal::SIGCONT).await
    }

    async fn signal(&self, controller: FluxController, signal: Signal) -> Result<()> {
        let process = self.of(controller).process.lock().await;
        process
            .as_ref()
            .with_context(|| format!("{} does not run", controller.name()))?
            .signal(signal)
    }

    fn of(&self, controller: FluxController) -> &Controller {
        match controller {
            FluxController::Helm => &self.helm,
            FluxController::Kustomize => &self.kustomize,
            FluxController::Source => &self.source,
        }
    }

    fn artifacts_address(&self) -> String {
        format!("127.0.0.1:{}", self.artifacts_port.number())
    }

    /// What answers once a controller is ready. source-controller is ready by its own account before it gives out artifacts.
    fn answers(&self, controller: FluxController) -> Vec<(String, &'static str)> {
        let mut answers = vec![(self.of(controller).health_address(), "/readyz")];
        if controller == FluxController::Source {
            answers.push((self.artifacts_address(), "/"));
        }
        answers
    }

    fn launch(&self, controller: FluxController) -> Result<Launch> {
        let directories = self.core.directory();
        let home = directories.subdirectory(self.directory.join(controller.name()))?;
        let launch = Launch::new(
            format!("{}-{}", self.name, controller.name()),
            &self.of(controller).program,
        )
        // There is no flag for it.
        .env("KUBECONFIG", self.directory.join("kubeconfig"))
        .env("HOME", &home)
        .env("TMPDIR", &home)
        .env("RUNTIME_NAMESPACE", NAMESPACE)
        .args([
            format!("--health-addr={}", self.of(controller).health_address()),
            "--metrics-addr=0".to_owned(),
            "--enable-leader-election=false".to_owned(),
            "--watch-all-namespaces=true".to_owned(),
            "--interval-jitter-percentage=0".to_owned(),
            // By default up to 15 min, which no scenario waits.
            "--min-retry-delay=500ms".to_owned(),
            "--max-retry-delay=5s".to_owned(),
            "--requeue-dependency=2s".to_owned(),
        ]);
        let launch = match controller {
            FluxController::Helm | FluxController::Kustomize => launch.args([
                "--no-cross-namespace-refs=true",
                // While source-controller is away. More tries keep a worker busy for minutes.
                "--http-retry=1",
            ]),
            FluxController::Source => {
                let artifacts = directories.subdirectory(self.directory.join("artifacts"))?;
                let address = self.artifacts_address();
                launch.args([
                    format!("--storage-path={}", artifacts.display()),
                    format!("--storage-addr={address}"),
                    format!("--storage-adv-addr={address}"),
                ])
            }
        };
        Ok(launch)
    }
}
