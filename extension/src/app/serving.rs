//! Runtimes of the listeners. Hooks and probes have their own, so that neither reconciles nor admission requests delay them.

use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use sluice_core::error_chain::error_chain;
use tokio::{runtime::Runtime, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::server::serve::{Config, Drained, Error, Metrics, Server};

/// Time between attempts to bind a listener.
const BIND_AGAIN: Duration = Duration::from_secs(5);

/// Runtime that only binds and runs listeners.
pub(super) struct Serving(Runtime);

impl Serving {
    /// Starts the runtime of hooks and probes.
    pub(super) fn start() -> anyhow::Result<Self> {
        Self::with(2, "serving").context("start the runtime of hooks")
    }

    /// Starts the runtime of the admission webhooks.
    pub(super) fn of_admission() -> anyhow::Result<Self> {
        Self::with(1, "admission").context("start the runtime of the admission webhooks")
    }

    /// Starts the runtime of the status service.
    pub(super) fn of_status() -> anyhow::Result<Self> {
        Self::with(1, "status").context("start the runtime of the status service")
    }

    /// Spawns a background task of a listener.
    pub(super) fn spawn(&self, beside: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.0.spawn(beside)
    }

    fn with(threads: usize, name: &str) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .enable_all()
            .build();
        runtime.map(Self)
    }

    pub(super) async fn bind(&self, config: Config, metrics: Metrics) -> anyhow::Result<Server> {
        let bound = self.0.spawn(Server::bind(config, metrics)).await;
        Ok(bound.context("bind a listener")??)
    }

    /// Serves until `drained`.
    pub(super) fn run(
        &self,
        server: Server,
        router: Router,
        drained: &CancellationToken,
    ) -> JoinHandle<Drained> {
        self.0.spawn(server.run(router, drained.clone()))
    }

    /// Binds a listener and serves until `drained`. Retries while the address is taken; the hook server does not wait for it.
    ///
    /// # Errors
    /// The certificate files are unusable.
    pub(super) async fn run_once_bound(
        &self,
        config: Config,
        router: Router,
        drained: &CancellationToken,
    ) -> anyhow::Result<JoinHandle<Option<Drained>>> {
        let mut bound = self
            .0
            .spawn(Server::bind(config.clone(), Metrics::default()))
            .await?;
        if !matches!(bound, Ok(_) | Err(Error::Bind { .. })) {
            bound = Ok(bound?);
        }
        let drained = drained.clone();
        Ok(self.0.spawn(async move {
            loop {
                match bound {
                    Ok(server) => return Some(server.run(router, drained).await),
                    Err(problem) => {
                        error!(
                            serves = config.serves,
                            error = error_chain(&problem),
                            "Failed to bind listener"
                        );
                    }
                }
                tokio::select! {
                    () = drained.cancelled() => return None,
                    () = sleep(BIND_AGAIN) => {}
                }
                bound = Server::bind(config.clone(), Metrics::default()).await;
            }
        }))
    }

    /// Shuts the runtime down without waiting for its tasks.
    pub(super) fn end(self) {
        self.0.shutdown_background();
    }
}
