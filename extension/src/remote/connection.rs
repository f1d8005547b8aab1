//! One live connection: a client, the PackageInstalls and Apps behind it, and whether the server answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{reflector::Store, watcher},
};
use serde::de::DeserializeOwned;
use sluice_crds::foreign::{App, PackageInstall};
use tokio::{sync::OnceCell, task::AbortHandle};

use crate::{
    triggers::Wake,
    watch::{Seen, follow},
};

/// Whether the workload API server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// It answered the last request.
    Answers,
    /// It has not answered since then.
    Silent(Timestamp),
}

/// One live connection. Dropping it ends its watches.
pub struct Remote {
    /// Client of the workload API server.
    pub client: Client,
    /// PackageInstalls of the system namespace.
    pub installs: Store<PackageInstall>,
    /// Apps of the system namespace.
    pub apps: Store<App>,
    digest: String,
    contact: Arc<Mutex<Contact>>,
    uid: OnceCell<String>,
    prepared: OnceCell<()>,
    copied: Mutex<BTreeMap<String, String>>,
    watches: Vec<AbortHandle>,
}

impl Remote {
    pub(super) fn open(client: Client, namespace: &str, digest: String, wake: Wake) -> Self {
        let contact = Arc::new(Mutex::new(Contact::Answers));
        let (installs, first) = watch::<PackageInstall>(&client, namespace, &contact, wake.clone());
        let (apps, second) = watch::<App>(&client, namespace, &contact, wake);
        Self {
            client,
            installs,
            apps,
            digest,
            contact,
            uid: OnceCell::new(),
            prepared: OnceCell::new(),
            copied: Mutex::default(),
            watches: vec![first, second],
        }
    }

    /// Digest of the kubeconfig that the connection was made of.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether the server answers, as far as the watches know.
    #[must_use]
    pub fn contact(&self) -> Contact {
        *self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// UID of namespace `kube-system`: the identity of the API server's data, whatever its address is.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn uid(&self) -> kube::Result<&str> {
        self.uid
            .get_or_try_init(|| self.read_uid())
            .await
            .map(String::as_str)
    }

    /// The same, asked of the server now.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn read_uid(&self) -> kube::Result<String> {
        let namespace = Api::<Namespace>::all(self.client.clone())
            .get_metadata("kube-system")
            .await?;
        Ok(namespace.uid().unwrap_or_default())
    }

    /// Runs `prepare` once for the life of the connection; a failure is tried again by the next caller.
    ///
    /// # Errors
    /// What `prepare` says.
    pub async fn prepared<E>(&self, prepare: impl AsyncFnOnce() -> Result<(), E>) -> Result<(), E> {
        self.prepared
            .get_or_try_init(async || prepare().await)
            .await
            .map(|&()| ())
    }

    /// Whether `content` was written to `name` over this connection already.
    #[must_use]
    pub fn is_copied(&self, name: &str, content: &str) -> bool {
        let copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        copied.get(name).is_some_and(|known| known == content)
    }

    /// Remembers that `content` was written to `name`.
    pub fn set_copied(&self, name: &str, content: String) {
        self.copied
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), content);
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.watches.iter().for_each(AbortHandle::abort);
    }
}

fn watch<K>(
    client: &Client,
    namespace: &str,
    contact: &Arc<Mutex<Contact>>,
    wake: Wake,
) -> (Store<K>, AbortHandle)
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let contact = Arc::clone(contact);
    let (store, run) = follow(api, watcher::Config::default(), (), move |seen| {
        let mut contact = contact.lock().unwrap_or_else(PoisonError::into_inner);
        match (&seen, *contact) {
            // Until kapp-controller has brought its kinds, "not found" is a sign of life.
            (Seen::Failed(error), Contact::Answers) if !answered(error) => {
                *contact = Contact::Silent(Timestamp::now());
            }
            (Seen::Failed(error), _) if !answered(error) => return,
            _ => *contact = Contact::Answers,
        }
        drop(contact);
        wake.wake();
    });
    (store, tokio::spawn(run).abort_handle())
}

fn answered(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => matches!(error, kube::Error::Api(_)),
        watcher::Error::WatchError(_) => true,
        watcher::Error::NoResourceVersion => false,
    }
}
