//! The pause flow of the Tanzu addons-manager, as a program of its own: the same calls in the same order, written for comparisons.
//!
//! A webhook pauses a Cluster in the write that changes its release. The controller merges the packages of the new release into the
//! ClusterBootstrap, writes a PackageInstall for kapp-controller on the management cluster and all other packages on the workload
//! cluster, one after the other, and unpauses the Cluster once it has *written* them. It reads no status of any package.
//!
//! Left out are deletion, values of configuration kinds, TKR_DATA, proxies and vSphere Supervisor; docs/performance.md lists the rest.

mod bootstrap;
mod cache;
mod controller;
mod objects;
mod pace;
mod queue;
mod ready;
mod rest;
mod webhook;
mod workload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use futures::future::try_join;
use kube::config::{KubeConfigOptions, Kubeconfig};

use cache::Cache;
use controller::Controller;
use pace::Pace;
use queue::Queue;
use rest::Rest;

/// Upgrades the packages of Clusters as the Tanzu addons-manager did: it pauses a Cluster and unpauses it once all packages are written.
#[derive(Debug, Parser)]
#[command(name = "pause-flow", about)]
struct Arguments {
    /// Kubeconfig of the management cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Where the webhook listens. `GET /readyz` answers 200 once everything is read.
    #[arg(long, value_name = "ADDRESS")]
    address: SocketAddr,
    /// PEM file of the serving certificate.
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Namespace of templates and Packages, on the management and on workload clusters.
    #[arg(long, default_value = "tkg-system")]
    system_namespace: String,
    /// When a Cluster is unpaused. Only `written` is what the addons-manager does; a judge of releases is tested with the others.
    #[arg(long, value_enum, default_value_t = Unpause::Written)]
    unpause: Unpause,
}

/// When a Cluster is unpaused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Unpause {
    /// Before anything is written.
    AtOnce,
    /// Once all packages are written.
    Written,
    /// Once PackageInstall and App of each say that it is ready at its version.
    Ready,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(arguments)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pause-flow: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let Arguments {
        kubeconfig,
        address,
        cert,
        key,
        system_namespace,
        unpause,
    } = arguments;
    let read =
        Kubeconfig::read_from(&kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    let management = Rest::of(config)?;
    let queue = Arc::new(Queue::default());
    let cache = Arc::new(Cache::start(&management.client(), &queue));
    let controller = Controller {
        management,
        cache: Arc::clone(&cache),
        queue,
        system_namespace,
        unpause,
        pace: Pace::default(),
    };
    try_join(webhook::serve(address, &cert, &key, cache), controller.run()).await?;
    Ok(())
}
