//! Reads of the management cluster with the rights of the user.

use std::{sync::Arc, time::Duration};

use http::Request;
use kube::{
    Client, Resource,
    core::{ApiResource, ObjectList, params::ListParams, request},
    discovery::{self, Scope},
};
use sluice_core::{
    decode::{Decode, Item, Undecodable},
    protocol::{Failure, Key, Server},
    text::one_line,
};
use tokio::time::timeout;

use super::{client_error::of_client, connection::Trouble};

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

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::NotAnswered(one(&failure.text))
    }
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

    /// Returns the body of a response.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond.
    pub(super) async fn request(&self, request: Request<Vec<u8>>) -> Result<String, Failure> {
        in_time(self.client.request_text(request)).await
    }
}

/// Returns the result of a request.
///
/// # Errors
/// The API server refuses the request, or does not respond in time.
pub(super) async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Failure> {
    let answer = timeout(ANSWER, request).await;
    answer
        .map_err(|_elapsed| late())?
        .map_err(|error| failure(&error))
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
