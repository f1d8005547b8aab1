//! A scripted status service, and the verbs of the binary that read it.

use std::fs;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::{self, Stream, StreamExt as _};
use sluice::server::serve::{Limits, Metrics, Server};
use sluice_proto::status::v1::status_service_server::{StatusService, StatusServiceServer};
use sluice_proto::status::v1::{
    Change, Cluster, GetClusterRequest, GetClusterResponse, ListClustersRequest, ListClustersResponse,
    Outcome, Upgrade, WatchClustersRequest, WatchClustersResponse,
};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};

use crate::authority::{Authority, Mount};
use crate::peer::{loopback, soon, tls};

/// Messages of a stream, and its end. Without an end it stays open.
pub(crate) type Lines = (Vec<WatchClustersResponse>, Option<Status>);

/// What the stream of this number, from 0 on, says to a caller with this token.
type Script = Arc<dyn Fn(usize, &str) -> Lines + Send + Sync>;

/// A service that runs, and the files that its clients need.
pub(crate) struct Scripted {
    address: String,
    files: TempDir,
    _mount: Mount,
    _runs: DropGuard,
}

impl Scripted {
    pub(crate) async fn start(
        files: TempDir,
        script: impl Fn(usize, &str) -> Lines + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new();
        let mount = Mount::new(&authority.sign());
        fs::write(files.path().join("ca.crt"), authority.pem()).unwrap();
        let listening = loopback(Some(tls(&mount)), Limits::default());
        let server = Server::bind(listening, Metrics::default()).await.unwrap();
        let address = format!("localhost:{}", server.local_addr().port());
        let service = Service {
            script: Arc::new(script),
            streams: Arc::default(),
        };
        let router = tonic::service::Routes::new(StatusServiceServer::new(service)).into_axum_router();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(router, stop.clone()));
        Self {
            address,
            files,
            _mount: mount,
            _runs: stop.drop_guard(),
        }
    }

    /// Runs a verb of the binary to its end.
    pub(crate) async fn sluice(&self, words: &[&str], variables: &[(&str, &str)]) -> Output {
        let file = |name: &str| self.files.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(words).args(["--server", &self.address]);
        command.arg("--ca").arg(file("ca.crt"));
        command.arg("--token-file").arg(file("token"));
        command.env_clear().envs(variables.iter().copied());
        let running = tokio::task::spawn_blocking(move || command.output());
        soon("the verb to end", running).await.unwrap().unwrap()
    }
}

/// A directory with a token, and the file that it is in.
pub(crate) fn with_token(token: &str) -> (TempDir, PathBuf) {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("token");
    fs::write(&file, token).unwrap();
    (files, file)
}

struct Service {
    script: Script,
    streams: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl StatusService for Service {
    type WatchClustersStream = Pin<Box<dyn Stream<Item = Result<WatchClustersResponse, Status>> + Send>>;

    async fn list_clusters(
        &self,
        _: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        Ok(Response::new(ListClustersResponse {
            clusters: vec![cluster("uid", Outcome::Unspecified)],
            next_page_token: String::new(),
        }))
    }

    async fn get_cluster(
        &self,
        _: Request<GetClusterRequest>,
    ) -> Result<Response<GetClusterResponse>, Status> {
        Err(Status::not_found("there is none"))
    }

    async fn watch_clusters(
        &self,
        request: Request<WatchClustersRequest>,
    ) -> Result<Response<Self::WatchClustersStream>, Status> {
        let header = request.metadata().get("authorization");
        let token = header
            .and_then(|header| header.to_str().ok())
            .and_then(|header| header.strip_prefix("Bearer "));
        let number = self.streams.fetch_add(1, Ordering::SeqCst);
        let (said, end) = (self.script)(number, token.unwrap_or_default());
        let said = said.into_iter().map(Ok).chain(end.map(Err));
        Ok(Response::new(Box::pin(
            stream::iter(said).chain(stream::pending()),
        )))
    }
}

/// Cluster `ns/one`, whose upgrade has one gate that waits.
pub(crate) fn cluster(uid: &str, outcome: Outcome) -> Cluster {
    let gate = sluice_proto::status::v1::Gate {
        hook: "BeforeClusterUpgrade".to_owned(),
        version: "v2".to_owned(),
        open: outcome == Outcome::Completed,
        ..Default::default()
    };
    Cluster {
        namespace: "ns".to_owned(),
        name: "one".to_owned(),
        uid: uid.to_owned(),
        managed: true,
        upgrade: Some(Upgrade {
            to: "v2".to_owned(),
            gates: vec![gate],
            outcome: outcome.into(),
            ..Upgrade::default()
        }),
        ..Cluster::default()
    }
}

pub(crate) fn updated(cluster: Cluster) -> WatchClustersResponse {
    WatchClustersResponse {
        change: Change::Updated.into(),
        cluster: Some(cluster),
    }
}

pub(crate) fn synced() -> WatchClustersResponse {
    WatchClustersResponse {
        change: Change::Synced.into(),
        cluster: None,
    }
}
