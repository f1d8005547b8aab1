//! Calls of the status service.

use std::pin::Pin;

use futures::{Stream, stream};
use prost::Message as _;
use sluice_core::lock::lock;
use sluice_proto::status::v1::{
    Change, Cluster, GetClusterRequest, GetClusterResponse, ListClustersRequest, ListClustersResponse,
    Outcome, WatchClustersRequest, WatchClustersResponse, status_service_server::StatusService,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tonic::{Extensions, Request, Response, metadata::MetadataMap};

use super::{
    ANSWERS, Status, Unusable,
    connection::{Connection, Unread},
    page,
    reauthorization::{GoesOn, Reauthorization, Reauthorizations},
    reviews::User,
    snapshot_store::{Next, Reader, Selection},
    streams::Permit,
};

/// Maximum length of an object name and of a namespace.
const LONGEST_NAME: usize = 253;

/// Service on one listener.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) status: Status,
    /// Shutdown of the listener.
    pub(super) ends: CancellationToken,
}

type Answer<T> = Result<Response<T>, tonic::Status>;

#[tonic::async_trait]
impl StatusService for Service {
    type WatchClustersStream =
        Pin<Box<dyn Stream<Item = Result<WatchClustersResponse, tonic::Status>> + Send>>;

    async fn list_clusters(&self, request: Request<ListClustersRequest>) -> Answer<ListClustersResponse> {
        let (metadata, extensions, asked) = request.into_parts();
        let selection = selection(&asked.namespace, "")?;
        let size = page::size(asked.page_size).map_err(tonic::Status::invalid_argument)?;
        let after = page::behind(&asked.page_token, &selection).map_err(tonic::Status::invalid_argument)?;
        let namespace = selection.namespace();
        let user = self.status.admit(&metadata, &extensions, namespace).await?;
        let unread = self.status.answering(&user)?;
        let (mut clusters, mut last, mut bytes) = (Vec::new(), None, 0);
        let mut more = false;
        let board = lock(&self.status.0.board);
        for (cluster, encoded) in board.list(&selection, after.as_ref()) {
            let message = decoded(encoded)?;
            if asked.only_upgrading && !is_upgrading(&message) {
                continue;
            }
            bytes += encoded.len();
            if clusters.len() >= size || (bytes > page::BYTES && !clusters.is_empty()) {
                more = true;
                break;
            }
            clusters.push(message);
            last = Some(cluster.clone());
        }
        drop(board);
        let next_page_token = last
            .filter(|_| more)
            .as_ref()
            .map(page::token)
            .unwrap_or_default();
        let page = ListClustersResponse {
            clusters,
            next_page_token,
        };
        Ok(counted(page, unread))
    }

    async fn get_cluster(&self, request: Request<GetClusterRequest>) -> Answer<GetClusterResponse> {
        let (metadata, extensions, GetClusterRequest { namespace, name }) = request.into_parts();
        let Selection::One(cluster) = selection(&namespace, &name)? else {
            let line = "namespace and name of a Cluster are required";
            return Err(tonic::Status::invalid_argument(line));
        };
        let user = self.status.admit(&metadata, &extensions, &namespace).await?;
        let unread = self.status.answering(&user)?;
        let found = lock(&self.status.0.board)
            .get(&cluster)
            .map(|encoded| decoded(encoded));
        let missing =
            || tonic::Status::not_found(format!("there is no Cluster {name:?} in namespace {namespace:?}"));
        let found = found.ok_or_else(missing)??;
        Ok(counted(GetClusterResponse { cluster: Some(found) }, unread))
    }

    async fn watch_clusters(
        &self,
        request: Request<WatchClustersRequest>,
    ) -> Answer<Self::WatchClustersStream> {
        let (metadata, extensions, WatchClustersRequest { namespace, name }) = request.into_parts();
        let selection = selection(&namespace, &name)?;
        let user = self.status.admit(&metadata, &extensions, &namespace).await?;
        let permit = self.status.0.streams.take(&user.name);
        let permit = permit.map_err(|full| tonic::Status::resource_exhausted(full.to_string()))?;
        let changes = self.status.0.changes.subscribe();
        let watching = Watching {
            reader: Reader::begin(selection, &lock(&self.status.0.board)),
            service: self.clone(),
            token: bearer(&metadata)?.into(),
            namespace,
            changes,
            leaving: connection(&extensions).leaving,
            reauthorizations: Reauthorizations::default(),
            reauthorize_at: Instant::now() + Reauthorizations::FIRST,
            _permit: permit,
        };
        Ok(Response::new(Box::pin(stream::unfold(
            Some(watching),
            Watching::step,
        ))))
    }
}

/// One stream. It tracks the position of its reader and keeps no other state of sent or pending items.
struct Watching {
    reader: Reader,
    service: Service,
    token: Box<str>,
    namespace: String,
    changes: watch::Receiver<u64>,
    /// Canceled when its connection is asked to end.
    leaving: CancellationToken,
    reauthorizations: Reauthorizations,
    /// Time of the next re-authorization.
    reauthorize_at: Instant,
    _permit: Permit,
}

impl Watching {
    /// Returns the next item; an error is the last one.
    async fn step(
        this: Option<Self>,
    ) -> Option<(Result<WatchClustersResponse, tonic::Status>, Option<Self>)> {
        let mut this = this?;
        match this.next().await {
            Ok(message) => Some((Ok(message), Some(this))),
            Err(status) => Some((Err(status), None)),
        }
    }

    async fn next(&mut self) -> Result<WatchClustersResponse, tonic::Status> {
        loop {
            if self.service.ends.is_cancelled() {
                return Err(tonic::Status::unavailable(
                    "this replica is shutting down; watch again",
                ));
            }
            if self.leaving.is_cancelled() {
                let line = "the serving certificate was rotated; watch again over a new connection";
                return Err(tonic::Status::unavailable(line));
            }
            if Instant::now() >= self.reauthorize_at {
                // Boxed, so that the stream stays small between re-authorizations.
                Box::pin(self.may_go_on()).await?;
            }
            self.changes.mark_unchanged();
            let next = self.reader.next(&lock(&self.service.status.0.board));
            match next {
                Next::Updated(cluster) => return message(Change::Updated, Some(&cluster)),
                Next::Removed(cluster) => return message(Change::Removed, Some(&cluster)),
                Next::Synced => return message(Change::Synced, None),
                Next::Behind => {
                    let line = "the client is too far behind to receive deletions; watch again";
                    return Err(tonic::Status::aborted(line));
                }
                Next::Nothing => {}
            }
            tokio::select! {
                // The sender is part of the service.
                _ = self.changes.changed() => {}
                () = sleep_until(self.reauthorize_at) => {}
                () = self.service.ends.cancelled() => {}
                () = self.leaving.cancelled() => {}
            }
        }
    }

    /// Ends the stream of a user without permission or without a response of the API server, and of a stale replica.
    async fn may_go_on(&mut self) -> Result<(), tonic::Status> {
        let status = &self.service.status;
        status.current()?;
        let sources = status.0.sources.get().ok_or_else(starting)?;
        let authorized = sources.access.still_may_see(&self.token, &self.namespace).await;
        let outcome = match &authorized {
            Ok(()) => Reauthorization::Allowed,
            Err(refused) => match refused.code() {
                tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => Reauthorization::Refused,
                _ => Reauthorization::Failed,
            },
        };
        if let GoesOn::For(time) = self.reauthorizations.after(outcome) {
            self.reauthorize_at = Instant::now() + time;
            return Ok(());
        }
        authorized
    }
}

impl Status {
    /// Authenticates the caller, who may see a namespace, or all namespaces for an empty one.
    async fn admit(
        &self,
        metadata: &MetadataMap,
        extensions: &Extensions,
        namespace: &str,
    ) -> Result<User, tonic::Status> {
        let token = bearer(metadata)?;
        let sources = self.0.sources.get().ok_or_else(starting)?;
        let peer = connection(extensions).peer;
        let user = sources.access.may_see(token, namespace, peer).await?;
        self.current()?;
        Ok(user)
    }

    /// Takes one more unread response of a user.
    fn answering(&self, user: &User) -> Result<Unread, tonic::Status> {
        let full = || {
            tonic::Status::resource_exhausted(format!(
                "user {:?} has its share of the {ANSWERS} unread responses of this replica; read them, or try again",
                user.name
            ))
        };
        let share = self.0.answers.take(&user.name);
        share.map(Unread::with).ok_or_else(full)
    }

    /// Checks whether the caches may be used.
    fn current(&self) -> Result<(), tonic::Status> {
        match self.unusable() {
            None => Ok(()),
            Some(Unusable::Unlisted) => Err(tonic::Status::unavailable(
                "this replica has not listed all Clusters yet; try again",
            )),
            Some(Unusable::Silent) => Err(tonic::Status::unavailable(
                "the management API server has sent nothing to this replica for 90 s; try another replica",
            )),
        }
    }
}

fn counted<T>(message: T, unread: Unread) -> Response<T> {
    let mut response = Response::new(message);
    response.extensions_mut().insert(unread);
    response
}

fn connection(extensions: &Extensions) -> Connection {
    extensions.get::<Connection>().cloned().unwrap_or_default()
}

fn starting() -> tonic::Status {
    tonic::Status::unavailable("this replica is starting; try again")
}

fn bearer(metadata: &MetadataMap) -> Result<&str, tonic::Status> {
    let header = metadata
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    let (scheme, token) = header.unwrap_or_default().split_once(' ').unwrap_or_default();
    if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() {
        return Ok(token.trim());
    }
    Err(tonic::Status::unauthenticated(
        "the call has no bearer token; send metadata \"authorization: Bearer <token>\" with one of the management cluster",
    ))
}

fn selection(namespace: &str, name: &str) -> Result<Selection, tonic::Status> {
    for (field, value) in [("namespace", namespace), ("name", name)] {
        if value.len() > LONGEST_NAME || value.contains('/') {
            let line = format!("{field} is not an object name: at most {LONGEST_NAME} characters without /");
            return Err(tonic::Status::invalid_argument(line));
        }
    }
    let needs =
        || tonic::Status::invalid_argument(format!("name {name:?} requires the namespace of the Cluster"));
    Selection::of(namespace, name).ok_or_else(needs)
}

fn message(change: Change, cluster: Option<&[u8]>) -> Result<WatchClustersResponse, tonic::Status> {
    Ok(WatchClustersResponse {
        change: change.into(),
        cluster: cluster.map(decoded).transpose()?,
    })
}

/// Decodes a snapshot that this process encoded.
fn decoded(encoded: &[u8]) -> Result<Cluster, tonic::Status> {
    let wrong = |error: prost::DecodeError| tonic::Status::internal(error.to_string());
    Cluster::decode(encoded).map_err(wrong)
}

fn is_upgrading(cluster: &Cluster) -> bool {
    let upgrade = cluster.upgrade.as_ref();
    upgrade.is_some_and(|upgrade| upgrade.outcome() == Outcome::Unspecified)
}

#[cfg(test)]
mod tests {
    use sluice_core::cluster::ClusterRef;

    use super::*;

    #[test]
    fn only_a_bearer_token_counts() {
        let with = |value: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("authorization", value.parse().unwrap());
            bearer(&metadata)
                .map(str::to_owned)
                .map_err(|status| status.code())
        };
        assert_eq!(with("Bearer abc"), Ok("abc".to_owned()));
        assert_eq!(with("bearer abc"), Ok("abc".to_owned()));
        for wrong in ["", "abc", "Bearer", "Bearer ", "Basic abc"] {
            assert_eq!(with(wrong), Err(tonic::Code::Unauthenticated), "{wrong}");
        }
        assert!(bearer(&MetadataMap::new()).is_err());
    }

    #[test]
    fn a_selection_is_made_of_names() {
        let code = |namespace: &str, name: &str| selection(namespace, name).map_err(|status| status.code());
        assert_eq!(
            code("ns", "one"),
            Ok(Selection::One(ClusterRef::new("ns", "one")))
        );
        for (namespace, name) in [("", "one"), ("a/b", ""), ("a", "b/c"), (&*"a".repeat(254), "")] {
            assert_eq!(
                code(namespace, name),
                Err(tonic::Code::InvalidArgument),
                "{namespace} {name}"
            );
        }
    }
}
