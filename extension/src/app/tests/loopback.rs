//! A process between two fake API servers that listen on sockets.

use std::path::Path;

use axum::Router;
use kube::client::Body;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tempfile::{NamedTempFile, TempDir};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::DropGuard;

use super::*;
use crate::cache::rollbacks::Rollbacks;
use crate::controllers::bootstrap::{
    object_server::ObjectServer,
    world::{KUBE_SYSTEM, KUBECONFIG, World, kubeconfig_of, kubeconfig_secret},
};
use crate::server::serve::{CertificateFiles, Server, TlsConfig};

/// Serves the objects on a port of this host until the guard is dropped.
async fn served(objects: &ObjectServer, tls: Option<TlsConfig>) -> (SocketAddr, DropGuard) {
    let config = serve::Config {
        tls,
        ..plain(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    };
    let server = Server::bind(config, serve::Metrics::default()).await.unwrap();
    let address = server.local_addr();
    let client = objects.client();
    let answer = move |request: axum::extract::Request| {
        let client = client.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let asked = http::Request::from_parts(head, Body::from(body.to_vec()));
            client.send(asked).await.unwrap().map(axum::body::Body::new)
        }
    };
    let drained = CancellationToken::new();
    tokio::spawn(server.run(Router::new().fallback(answer), drained.clone()));
    (address, drained.drop_guard())
}

/// Returns a serving certificate for this host in a directory, and its CA.
fn certificate() -> (TempDir, TlsConfig, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![Ipv4Addr::LOCALHOST.to_string()]).unwrap();
    let signed = params.signed_by(&key, &authority).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let files = CertificateFiles::in_dir(dir.path());
    std::fs::write(files.certificate(), signed.pem()).unwrap();
    std::fs::write(files.key(), key.serialize_pem()).unwrap();
    (dir, TlsConfig::new(files), authority.as_ref().pem())
}

/// Waits until `is_so`; a failure names `what`.
pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = timeout(Duration::from_secs(20), async {
        while !is_so() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "not within 20 s: {what}");
}

/// API servers of a world, which serve until this is dropped.
pub(super) struct Loopback {
    kubeconfig: NamedTempFile,
    _kept: (TempDir, DropGuard, DropGuard),
}

impl Loopback {
    pub(super) async fn of(world: &World) -> Self {
        let (dir, tls, authority) = certificate();
        let (workload, serves_workload) = served(&world.workload, Some(tls)).await;
        let kubeconfig = kubeconfig_of(&format!("https://{workload}"), &authority);
        world.management.put(KUBECONFIG, kubeconfig_secret(&kubeconfig));
        world
            .management
            .put(KUBE_SYSTEM, json!({"metadata": {"uid": "management"}}));
        let (management, serves_management) = served(&world.management, None).await;
        let file = NamedTempFile::new().unwrap();
        let kubeconfig = kubeconfig_of(&format!("http://{management}"), &authority);
        std::fs::write(file.path(), kubeconfig).unwrap();
        Self {
            kubeconfig: file,
            _kept: (dir, serves_workload, serves_management),
        }
    }

    /// Returns the kubeconfig of the management API server.
    pub(super) fn kubeconfig(&self) -> &Path {
        self.kubeconfig.path()
    }

    /// Returns the arguments of a process of these servers with these flags.
    pub(super) fn args(&self, flags: &[&str]) -> Args {
        let kubeconfig = self.kubeconfig().to_str().unwrap();
        let own = ["sluice", "--kubeconfig", kubeconfig];
        Args::parse_from(own.iter().chain(flags))
    }

    /// Runs stores and controllers of a process with these flags until `stop`.
    pub(super) fn run(&self, flags: &[&str], stop: &CancellationToken) -> JoinHandle<anyhow::Result<()>> {
        self.run_shown(flags, stop).0
    }

    /// The same, with the metrics of the process.
    pub(super) fn run_shown(
        &self,
        flags: &[&str],
        stop: &CancellationToken,
    ) -> (JoinHandle<anyhow::Result<()>>, Registry) {
        let args = self.args(flags);
        let event_handlers = event_handlers(&args);
        let index = Index::new(
            args.system_namespace.clone(),
            args.cluster_delete_timeout,
            event_handlers.uncounted.clone(),
        );
        let mut registry = Registry::default();
        let metrics = Metrics::registered(
            &Log::to(std::io::sink()),
            &index,
            &Rollbacks::default(),
            &mut registry,
        );
        let parts = Parts {
            index,
            admission: Admission::new(
                args.system_namespace.clone(),
                Checks::of(&args.admission),
                metrics.admission,
            ),
            configurations: metrics.configurations,
            releases: metrics.releases,
            reconciles: metrics.reconciles,
            health: Health::default(),
            event_handlers,
            registration: metrics.registration,
            leader: metrics.leader,
            rest_client: metrics.rest_client,
            status: None,
        };
        let stop = stop.clone();
        let running = tokio::spawn(async move { Box::pin(control(&args, parts, &stop)).await });
        (running, registry)
    }
}
