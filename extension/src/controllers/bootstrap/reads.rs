//! The answers to what a pass asks for.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource as _,
    api::{ApiResource, DynamicObject, GetParams, ListParams},
    core::Request,
    runtime::reflector::{ObjectRef, Store},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use sluice_core::{
    build::Owner,
    pass::{Answer, Ask, Contact, Failure, Key, Object, Resource, Server, Watched},
};
use sluice_crds::{foreign::PackageInstall, labels::label};
use tracing::{debug, warn};

use super::{Context, chain, runner::Runner};
use crate::{
    bounded::is_too_long,
    controllers::served,
    remote::{self, Remote, Served, Unread},
};

/// An answer, and the connection to the workload if it is one.
type Answered = (Answer, Option<Arc<Remote>>);

/// Answers one question.
pub(super) async fn answer(runner: &Runner<'_>, ask: &Ask) -> Answered {
    let answered = answered(runner, ask).await;
    if let Answer::Failed(failure) | Answer::Contact(Contact::Unread { failure, .. }) = &answered.0 {
        let Owner { namespace, name, .. } = &runner.facts.owner;
        let server = ask.server();
        // A workload without kapp-controller, or one that is gone with its Cluster, is nothing unusual.
        if matches!(failure.code, Some(404 | 409 | 503)) || *ask == Ask::Installs {
            debug!(namespace, name, %server, error = %failure, "Reading for a pass");
        } else {
            warn!(namespace, name, %server, error = %failure, "Reading for a pass");
        }
    }
    answered
}

async fn answered(runner: &Runner<'_>, ask: &Ask) -> Answered {
    let ctx = runner.ctx;
    let stored = |found: Option<Answer>| found.unwrap_or(Answer::Absent);
    let answer = match ask {
        Ask::Object(key, _) => object(runner, key).await,
        Ask::Template(release) => {
            let key = ObjectRef::new(release).within(&ctx.settings.pass.system_namespace);
            stored(ctx.stores.templates.get(&key).map(Answer::Template))
        }
        Ask::Package(name) => {
            let key = ObjectRef::new(name).within(&ctx.settings.pass.system_namespace);
            stored(ctx.stores.packages.get(&key).map(Answer::Package))
        }
        Ask::Watched(server, name) => Answer::Watched(Box::new(watched(runner, *server, name))),
        // Passes over configurations ask for these.
        Ask::Cluster(..) | Ask::Source(_) => Answer::Absent,
        Ask::Served { group, kind } => match served(&ctx.client, group, kind).await {
            Ok(Some(resource)) => Answer::Served(Resource::from(&resource)),
            Ok(None) => Answer::Absent,
            Err(error) => Answer::Failed(failure(Server::Management, &error)),
        },
        Ask::Connection(kubeconfig) => {
            let owner = &runner.facts.owner;
            let cluster = ObjectRef::new(&owner.name).within(&owner.namespace);
            let opened = ctx
                .remotes
                .open(&owner.uid, &cluster, &kubeconfig.parsed, &kubeconfig.digest);
            return match opened {
                Ok(remote) => {
                    remote.first_lists().await;
                    (Answer::Connected(remote.number()), Some(remote))
                }
                Err(error) => (Answer::NotConnected(error.to_string()), None),
            };
        }
        Ask::Contact(_) => match &runner.remote {
            Some(remote) => Answer::Contact(contact(remote).await),
            None => unconnected(),
        },
        Ask::Installs => match &runner.remote {
            Some(remote) => installs(remote, &ctx.settings.pass.system_namespace).await,
            None => unconnected(),
        },
        Ask::LabelledSecrets => match &runner.remote {
            Some(remote) => {
                labelled(
                    remote,
                    &ctx.settings.pass.system_namespace,
                    &runner.facts.owner.name,
                )
                .await
            }
            None => unconnected(),
        },
    };
    (answer, None)
}

/// About how many bytes an answer of the workload takes.
pub(super) fn size_on_workload(ask: &Ask, answer: &Answer) -> usize {
    match answer {
        Answer::Found(Object(found)) if ask.server() == Server::Workload => size(found),
        Answer::Listed(objects) => objects.iter().map(|Object(object)| size(object)).sum(),
        _ => 0,
    }
}

fn size(value: &Value) -> usize {
    /// What a value takes beside its content, with its share of the list or the map that it is in.
    const BESIDE: usize = 64;
    let content = match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    BESIDE + content
}

/// What a pass learns of answers that are too large together.
pub(super) fn too_much() -> Failure {
    Failure {
        too_long: true,
        ..Failure::other(Server::Workload, "all answers of a pass together are too large")
    }
}

fn unconnected() -> Answer {
    Answer::Failed(Failure::other(
        Server::Workload,
        "there is no connection to the workload",
    ))
}

/// The client of a server.
pub(super) fn client<'a>(ctx: &'a Context, remote: Option<&'a Remote>, server: Server) -> Option<&'a Client> {
    match server {
        Server::Management => Some(&ctx.client),
        Server::Workload => remote.map(|remote| &remote.client),
    }
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

async fn object(runner: &Runner<'_>, key: &Key) -> Answer {
    let Some(client) = client(runner.ctx, runner.remote.as_deref(), key.server) else {
        return unconnected();
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
pub(super) fn failure(server: Server, error: &kube::Error) -> Failure {
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

/// What the watches show of one name.
fn watched(runner: &Runner<'_>, server: Server, name: &str) -> Watched {
    let ctx = runner.ctx;
    match (server, &runner.remote) {
        (Server::Management, _) => {
            let namespace = &runner.facts.owner.namespace;
            Watched {
                install: get(&ctx.stores.installs, name, namespace),
                app: get(&ctx.stores.apps, name, namespace),
                first_seen: None,
                filled: true,
            }
        }
        (Server::Workload, Some(remote)) => {
            let namespace = &ctx.settings.pass.system_namespace;
            // Asked first: what is listed afterwards may be missing below.
            let filled = remote.is_filled();
            Watched {
                install: get(&remote.installs, name, namespace),
                app: get(&remote.apps, name, namespace),
                first_seen: remote.first_seen_run(name),
                filled,
            }
        }
        (Server::Workload, None) => Watched::default(),
    }
}

fn get<K>(store: &Store<K>, name: &str, namespace: &str) -> Option<Arc<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    store.get(&ObjectRef::new(name).within(namespace))
}

/// How the workload answers; it is asked only where its watches have not found it silent.
async fn contact(remote: &Remote) -> Contact {
    if remote.has_ended() {
        return Contact::Ended;
    }
    if let remote::Contact::Silent(since) = remote.contact() {
        return Contact::Silent {
            since,
            now: Timestamp::now(),
            last_answer: remote.last_answer(),
        };
    }
    if let Some(why) = remote.given_up() {
        return Contact::GivenUp(why.to_string());
    }
    match remote.served().await {
        Ok(Served::Same(uid)) => Contact::Serves { uid },
        Ok(Served::Replaced) => Contact::Replaced,
        Err(Unread { since, source }) => Contact::Unread {
            since,
            failure: failure(Server::Workload, &source),
        },
    }
}

async fn installs(remote: &Remote, namespace: &str) -> Answer {
    let api = Api::<PackageInstall>::namespaced(remote.client.clone(), namespace);
    listed(api.list(&ListParams::default()).await)
}

/// The Secrets that are labelled with a Cluster, without their content.
async fn labelled(remote: &Remote, namespace: &str, cluster: &str) -> Answer {
    let selector = format!("{}={cluster}", label::CLUSTER_NAME);
    let api = Api::<Secret>::namespaced(remote.client.clone(), namespace);
    listed(api.list_metadata(&ListParams::default().labels(&selector)).await)
}

fn listed<K>(read: kube::Result<kube::core::ObjectList<K>>) -> Answer
where
    K: Clone + Serialize + DeserializeOwned,
{
    match read {
        Ok(list) => Answer::Listed(
            list.items
                .iter()
                .map(|item| Object(serde_json::to_value(item).unwrap_or_default()))
                .collect(),
        ),
        Err(error) => Answer::Failed(failure(Server::Workload, &error)),
    }
}
