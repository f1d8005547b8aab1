//! An API server of a workload cluster that misbehaves. It stands in for nothing else: Cluster API, kapp-controller and every
//! healthy API server are the real ones.
//!
//! It stands in front of a real API server. While nothing is wrong, connections go through to it; from [`FaultServer::strike`]
//! to [`FaultServer::heal`] its fault is served instead.

mod answer;
mod fault;
mod front;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::stack::apiserver::ApiServer;
use crate::stack::pki::ClusterPki;

pub use fault::Fault;

use front::State;

/// One server with one fault, until it is dropped.
pub struct FaultServer {
    fault: Fault,
    url: String,
    pki: Arc<ClusterPki>,
    state: watch::Sender<State>,
    asked: Arc<AtomicU64>,
    tasks: Vec<AbortHandle>,
}

impl FaultServer {
    /// Stands in front of `server`, on a port of its own; nothing is wrong yet.
    pub async fn start(server: &ApiServer, fault: Fault) -> Result<Self> {
        let asked: Arc<AtomicU64> = Arc::default();
        let (misbehaving, answers) = answer::serve(server, fault, Arc::clone(&asked)).await?;
        let (state, watched) = watch::channel(State::Well);
        let (address, front) =
            front::serve(server.port(), misbehaving, fault, watched, Arc::clone(&asked)).await?;
        Ok(Self {
            fault,
            url: format!("https://{address}"),
            pki: Arc::clone(server.pki()),
            state,
            asked,
            tasks: vec![answers, front],
        })
    }

    /// Fault while the server is struck.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// A kubeconfig with all rights that leads here.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.pki.admin_kubeconfig(&self.url)
    }

    /// From now on it misbehaves.
    pub fn strike(&self) {
        self.state.send_replace(State::Struck);
    }

    /// From now on nothing is wrong any more. Connections of before are closed.
    pub fn heal(&self) {
        self.state.send_replace(State::Well);
    }

    /// How many connections it got, and requests on them, while it misbehaved.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
