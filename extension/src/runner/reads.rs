//! The answers to what passes ask for, as far as any of them may ask for it.

use std::sync::Arc;

use kube::{
    Client, Resource as _,
    api::{ApiResource, DynamicObject, GetParams},
    core::Request,
    discovery,
};
use serde_json::Value;
use sluice_core::{
    chain::chain,
    step::{Answer, Ask, Contact, Failure, Key, Object, Resource, Server, Subject},
};
use tracing::{debug, warn};

use super::Host;
use crate::{bounded::is_too_long, remote::Remote};

/// An answer, and the connection to the workload if it is one.
pub(crate) type Answered = (Answer, Option<Arc<Remote>>);

/// Answers one question.
pub(super) async fn answer<S: Subject>(
    host: &impl Host<S>,
    remote: Option<&Arc<Remote>>,
    ask: &Ask,
) -> Answered {
    let answered = match ask {
        Ask::Object(key, _) => (object(host.client(), remote, key).await, None),
        Ask::Served { group, kind } => match served(host.client(), group, kind).await {
            Ok(Some(resource)) => (Answer::Served(Resource::from(&resource)), None),
            Ok(None) => (Answer::Absent, None),
            Err(error) => (Answer::Failed(failure(Server::Management, &error)), None),
        },
        ask => host.answer(remote, ask).await,
    };
    if let Answer::Failed(failure) | Answer::Contact(Contact::Unread { failure, .. }) = &answered.0 {
        let ((namespace, name), server) = (host.subject(), ask.server());
        // A workload without kapp-controller, or one that is gone with its Cluster, is nothing unusual.
        if matches!(failure.code, Some(404 | 409 | 503)) || *ask == Ask::Installs {
            debug!(namespace, name, %server, error = %failure, "Reading for a pass");
        } else {
            warn!(namespace, name, %server, error = %failure, "Reading for a pass");
        }
    }
    answered
}

/// The client of a server.
///
/// # Errors
/// The pass has no connection to the workload.
pub(super) fn client<'a>(
    management: &'a Client,
    remote: Option<&'a Remote>,
    server: Server,
) -> Result<&'a Client, Failure> {
    match server {
        Server::Management => Ok(management),
        Server::Workload => remote.map(|remote| &remote.client).ok_or_else(unconnected),
    }
}

/// What a pass learns that asks a workload before it has a connection to it.
pub(crate) fn unconnected() -> Failure {
    Failure::other(Server::Workload, "there is no connection to the workload")
}

/// The path of the kind of an object, in its namespace.
pub(super) fn path(key: &Key) -> String {
    let Resource {
        group,
        version,
        kind,
        plural,
    } = &key.resource;
    let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    DynamicObject::url_path(&resource, key.namespace.as_deref())
}

async fn object(management: &Client, remote: Option<&Arc<Remote>>, key: &Key) -> Answer {
    let client = match client(management, remote.map(AsRef::as_ref), key.server) {
        Ok(client) => client,
        Err(failure) => return Answer::Failed(failure),
    };
    let request = match Request::new(path(key)).get(&key.name, &GetParams::default()) {
        Ok(request) => request,
        Err(error) => return Answer::Failed(Failure::other(key.server, &error.to_string())),
    };
    match client.request::<Value>(request).await {
        Ok(found) => Answer::Found(Object(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Answer::Absent,
        Err(error) => Answer::Failed(failure(key.server, &error)),
    }
}

/// What became of a request that was refused or not answered.
pub(crate) fn failure(server: Server, error: &kube::Error) -> Failure {
    let text = chain(error);
    let (code, message) = match error {
        kube::Error::Api(status) => (Some(status.code), status.message.clone()),
        _ => (None, String::new()),
    };
    Failure {
        server,
        code,
        message,
        too_long: is_too_long(error),
        text,
    }
}

/// How a kind is served; `None` when it is not.
pub(crate) async fn served(client: &Client, group: &str, kind: &str) -> kube::Result<Option<ApiResource>> {
    match discovery::group(client, group).await {
        Ok(group) => Ok(group.recommended_kind(kind).map(|(resource, _)| resource)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
