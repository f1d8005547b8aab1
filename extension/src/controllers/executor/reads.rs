//! Reads that every reconciler may request.

use crate::kube_client::responses::{failure, scoped};
use http::Request;
use kube::{Client, discovery::Scope};
use sluice_core::protocol::{Contact, Failure, Read, ReadResult, Reconciler, Resource, Server};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::Host;

/// Executes one read.
pub(super) async fn answer<S: Reconciler>(host: &impl Host<S>, ask: &Read) -> ReadResult {
    let read = read(host, ask);
    let answer = match host.read_timeout(ask) {
        None => read.await,
        Some(limit) => timeout(limit, read).await.unwrap_or_else(|_elapsed| {
            let text = format!("no answer within {} s", limit.as_secs());
            Err(Failure::other(ask.server(), &text))
        }),
    };
    let answer = answer.unwrap_or_else(ReadResult::Failed);
    host.answered(ask, &answer);
    if let ReadResult::Failed(failure) | ReadResult::Contact(Contact::Unread { failure, .. }) = &answer {
        let ((namespace, name), server) = (host.subject(), ask.server());
        // The lists of a workload cluster that is deleted with its Cluster fail as a matter of course.
        if failure.is_expected() || *ask == Read::Installs {
            debug!(namespace, name, %server, error = %failure, "Failed to read object");
        } else {
            warn!(namespace, name, %server, error = %failure, "Failed to read object");
        }
    }
    answer
}

async fn read<S: Reconciler>(host: &impl Host<S>, ask: &Read) -> Result<ReadResult, Failure> {
    match ask {
        Read::Object(key, _) => match request(host.client(key.server)?, key.server, key.request()?).await {
            Ok(text) => Ok(ReadResult::of_object(key, &text)),
            Err(failure) if failure.code == Some(404) => Ok(ReadResult::Absent),
            Err(failure) => Err(failure),
        },
        Read::Served { group, kind } => match scoped(host.client(Server::Management)?, group, kind).await {
            Ok(Some((resource, Scope::Namespaced))) => Ok(ReadResult::Served(Resource::from(&resource))),
            Ok(Some((resource, Scope::Cluster))) => {
                Ok(ReadResult::ServedClusterWide(Resource::from(&resource)))
            }
            Ok(None) => Ok(ReadResult::Absent),
            Err(error) => Err(failure(Server::Management, &error)),
        },
        Read::Labelled { server, .. } => {
            // The read names its namespace and its labels.
            let Some(list) = ask.list("", "") else {
                return Ok(ReadResult::Absent);
            };
            let text = request(host.client(*server)?, *server, list?).await?;
            Ok(ReadResult::of_list(*server, &text))
        }
        ask => host.answer(ask).await,
    }
}

/// Returns the response body of a request.
pub(super) async fn request(
    client: &Client,
    server: Server,
    request: Request<Vec<u8>>,
) -> Result<String, Failure> {
    let answer = client.request_text(request).await;
    answer.map_err(|error| failure(server, &error))
}
