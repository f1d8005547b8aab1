//! The runtimes of listeners: hooks and probes are answered however busy the rest is, and whatever is sent to the admission webhooks.

use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use sluice_core::error_chain::error_chain;
use tokio::{runtime::Runtime, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::server::serve::{Config, Drained, Error, Metrics, Server};

/// How soon a listener is bound again that could not be.
const BIND_AGAIN: Duration = Duration::from_secs(5);

/// A runtime that does nothing else. Its listeners are bound and run on it only.
pub(super) struct Serving(Runtime);

impl Serving {
    /// The runtime of hooks and probes.
    pub(super) fn start() -> anyhow::Result<Self> {
        Self::with(2, "serving").context("start the runtime of hooks")
    }

    /// The runtime of the admission webhooks.
    pub(super) fn of_admission() -> anyhow::Result<Self> {
        Self::with(1, "admission").context("start the runtime of the admission webhooks")
    }

    /// The runtime of the status service.
    pub(super) fn of_status() -> anyhow::Result<Self> {
        Self::with(1, "status").context("start the runtime of the status service")
    }

    /// Does something else for a listener.
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

    /// Answers until `drained`.
    pub(super) fn run(
        &self,
        server: Server,
        router: Router,
        drained: &CancellationToken,
    ) -> JoinHandle<Drained> {
        self.0.spawn(server.run(router, drained.clone()))
    }

    /// Binds a listener, tries again for as long as its address is taken, and answers until `drained`. Hooks are answered whether it can
    /// be bound or not.
    ///
    /// # Errors
    /// Its files cannot be used.
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
                            "Cannot listen"
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

    /// Ends it without waiting for anything.
    pub(super) fn end(self) {
        self.0.shutdown_background();
    }
}
