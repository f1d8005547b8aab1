//! The runtime of hooks and probes: they are answered however busy the rest is.

use anyhow::Context as _;
use axum::Router;
use tokio::{runtime::Runtime, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::serve::{Config, Drained, Metrics, Server};

/// Threads that answer hooks and probes.
const THREADS: usize = 2;

/// A runtime that does nothing else. Listeners are bound and run on it only.
pub(super) struct Serving(Runtime);

impl Serving {
    pub(super) fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("serving")
            .enable_all()
            .build();
        Ok(Self(runtime.context("start the runtime of hooks")?))
    }

    pub(super) async fn bind(&self, config: Config, metrics: Metrics) -> anyhow::Result<Server> {
        let bound = self.0.spawn(Server::bind(config, metrics)).await;
        Ok(bound.context("bind on the runtime of hooks")??)
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

    /// Ends it without waiting for anything.
    pub(super) fn end(self) {
        self.0.shutdown_background();
    }
}
