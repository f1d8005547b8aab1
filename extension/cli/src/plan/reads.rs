//! Reads of the management cluster with the rights of the user.

use std::{sync::Arc, time::Duration};

use http::Request;
use kube::{
    Client, Resource,
    core::{ApiResource, ObjectList, params::ListParams, request},
    discovery::{self, Scope},
};
use sluice_core::{
    cache::{snapshot::Snapshot, stores::Stored},
    decode::{Decode, Item, Undecodable},
    protocol::{self, Failure, Key, Read, ReadResult, Server},
    reconcile::cluster::Facts,
    text::one_line,
};
use sluice_crds::{
    foreign::{Cluster, Package},
    run::ClusterBootstrapTemplate,
};
use tokio::time::timeout;

use super::client_error::of_client;

/// Timeout of a request.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

/// Maximum number of objects of a page.
const PAGE: u32 = 500;

/// Maximum length of an error, in characters.
const LONGEST: usize = 1024;

/// Renders a text of a server on one line.
pub(super) fn one(text: &str) -> String {
    one_line(text, LONGEST)
}

/// Reader of the management cluster.
pub(super) struct Reader {
    client: Client,
    /// Objects of lists that cannot be decoded.
    undecodable: Vec<Arc<Undecodable>>,
}

impl Reader {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            undecodable: Vec::new(),
        }
    }

    /// Returns the listed objects that cannot be decoded.
    pub(super) fn take_undecodable(&mut self) -> Vec<Arc<Undecodable>> {
        std::mem::take(&mut self.undecodable)
    }

    /// Returns the text of an object; `None` if it does not exist, or its kind is not served.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond.
    pub(super) async fn text(&self, key: &Key) -> Result<Option<String>, Failure> {
        match self.request(key.request()?).await {
            Ok(text) => Ok(Some(text)),
            Err(failure) if failure.code == Some(404) => Ok(None),
            Err(failure) => Err(Failure {
                text: format!("read {key}: {}", failure.text),
                ..failure
            }),
        }
    }

    /// Returns an object by its key; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read or decoded.
    pub(super) async fn object<K: Decode>(&self, key: &Key) -> Result<Option<K>, Failure> {
        let Some(text) = self.text(key).await? else {
            return Ok(None);
        };
        let not_an_object = || Failure::other(Server::Management, &format!("read {key}: not an object"));
        let item = Item::<K>::of(&text).ok_or_else(not_an_object)?;
        item.map(Some)
            .map_err(|undecodable| Failure::undecodable(Server::Management, undecodable.into()))
    }

    /// Returns an object by its name; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read or decoded.
    pub(super) async fn get<K>(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<K>>, Failure>
    where
        K: Decode + Resource<DynamicType = ()>,
    {
        let key = Key::of::<K>(Server::Management, namespace, name);
        Ok(self.object(&key).await?.map(Arc::new))
    }

    /// Lists the objects of a kind that have these labels, and keeps those that cannot be decoded.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond.
    pub(super) async fn list<K>(
        &mut self,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Arc<K>>, Failure>
    where
        K: Decode + Clone + Resource<DynamicType = ()>,
    {
        let named = |text: &str| format!("list {}.{}: {text}", K::plural(&()), K::group(&()));
        let kind = request::Request::new(K::url_path(&(), namespace));
        let mut params = ListParams::default().labels(labels).limit(PAGE);
        let mut listed = Vec::new();
        loop {
            let request = kind
                .list(&params)
                .map_err(|error| Failure::other(Server::Management, &named(&error.to_string())))?;
            let text = self.request(request).await.map_err(|failure| Failure {
                text: named(&failure.text),
                ..failure
            })?;
            let page: ObjectList<Item<K>> = serde_json::from_str(&text)
                .map_err(|error| Failure::other(Server::Management, &named(&one(&error.to_string()))))?;
            for item in page.items {
                match item {
                    Item::Decoded(object) => listed.push(Arc::new(object)),
                    Item::Undecodable(mut object) => {
                        // Items of a list may lack their kind.
                        object.kind = K::kind(&()).into_owned();
                        self.undecodable.push(object.into());
                    }
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(listed),
            }
        }
    }

    /// Returns how a kind is served; `None` if it is not.
    ///
    /// # Errors
    /// The API server refuses the discovery or does not respond.
    pub(super) async fn served(
        &self,
        group: &str,
        kind: &str,
    ) -> Result<Option<(ApiResource, Scope)>, Failure> {
        let found = timeout(ANSWER, discovery::group(&self.client, group)).await;
        match found.map_err(|_elapsed| late())? {
            Ok(group) => {
                let found = group.recommended_kind(kind);
                Ok(found.map(|(resource, capabilities)| (resource, capabilities.scope)))
            }
            Err(kube::Error::Discovery(_)) => Ok(None),
            Err(error) => match failure(&error) {
                failure if failure.code == Some(404) => Ok(None),
                failure => Err(Failure {
                    text: format!("discover {kind}.{group}: {}", failure.text),
                    ..failure
                }),
            },
        }
    }

    /// Returns the result of a read of a plan. Objects that were listed come from the snapshot.
    pub(super) async fn answer(&self, facts: &Facts, snapshot: &Snapshot, read: &Read) -> ReadResult {
        let answer = self.answered(facts, snapshot, read).await;
        answer.unwrap_or_else(ReadResult::Failed)
    }

    async fn answered(&self, facts: &Facts, snapshot: &Snapshot, read: &Read) -> Result<ReadResult, Failure> {
        let system = Some(facts.settings.system_namespace.as_str());
        let not_read = || Failure::other(read.server(), "sluice plan has no such read");
        Ok(match read {
            Read::Template(release) => {
                let template = self.get::<ClusterBootstrapTemplate>(system, release).await?;
                template.map_or(ReadResult::Absent, ReadResult::Template)
            }
            Read::Package(name) => {
                let package = Stored::<Package>::found(snapshot, system, name)
                    .map_err(|object| Failure::undecodable(Server::Management, object))?;
                package.map_or(ReadResult::Absent, ReadResult::Package)
            }
            Read::Cluster(namespace, name) => {
                let cluster = self.get::<Cluster>(Some(namespace), name).await?;
                cluster.map_or(ReadResult::Absent, ReadResult::Cluster)
            }
            Read::Object(key, _) if key.server == Server::Management => {
                let text = self.text(key).await?;
                text.map_or(ReadResult::Absent, |text| ReadResult::of_object(key, &text))
            }
            Read::Served { group, kind } => match self.served(group, kind).await? {
                Some((resource, Scope::Namespaced)) => {
                    ReadResult::Served(protocol::Resource::from(&resource))
                }
                Some((resource, Scope::Cluster)) => {
                    ReadResult::ServedClusterWide(protocol::Resource::from(&resource))
                }
                None => ReadResult::Absent,
            },
            read if read.server() == Server::Management => {
                let request = read.list(&facts.settings.system_namespace, &facts.owner.name);
                let text = self.request(request.ok_or_else(not_read)??).await?;
                ReadResult::of_list(Server::Management, &text)
            }
            _ => return Err(not_read()),
        })
    }

    async fn request(&self, request: Request<Vec<u8>>) -> Result<String, Failure> {
        let answer = timeout(ANSWER, self.client.request_text(request)).await;
        answer
            .map_err(|_elapsed| late())?
            .map_err(|error| failure(&error))
    }
}

fn late() -> Failure {
    let text = format!("no answer within {} s", ANSWER.as_secs());
    Failure::other(Server::Management, &text)
}

/// Maps an error to a failure whose text is one line.
fn failure(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => Failure {
            code: Some(status.code),
            message: status.message.clone(),
            ..Failure::other(Server::Management, &refusal(status.code, &status.message))
        },
        error => Failure::other(Server::Management, &one(&of_client(error))),
    }
}

fn refusal(code: u16, message: &str) -> String {
    if message.is_empty() {
        format!("the API server refuses with {code}")
    } else {
        one(message)
    }
}
