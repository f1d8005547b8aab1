//! Reads that only the Cluster reconciler requests.

use crate::controllers::{concurrency::DriftCheckPermit, executor};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use kube::Client;
use sluice_core::{
    cache::Cached,
    decode::Undecodable,
    packages::build::FIELD_MANAGER,
    protocol::{LastDriftCheck, Object, Write, virtual_machine},
    reconcile::cluster::{
        Effects, Facts, Failure, ParsedKubeconfig, Read, ReadResult, Server, Watched, first_read,
    },
    upgrade_plan::workload::{List, WorkloadObjects},
};
use tokio::time::timeout;
use tracing::warn;

use super::Context;
use crate::{
    cache::store::Store,
    kube_client::{
        bounded::DecodedInPart,
        responses::{failure, served_in_any_version},
    },
    queue::requeues::ClusterRef,
    workload::Remote,
};

/// Timeout of the first request of a drift check, connection included. It is shorter than a slow reconcile: drift checks of many
/// unresponsive workload clusters then leave the permits for slow and failing Clusters free.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of all lists of [`Read::WorkloadObjects`] together. It is shorter than a slow reconcile: nothing is held for them.
const WORKLOAD_OBJECTS_TIMEOUT: Duration = Duration::from_secs(2);

/// Size of these lists together, in bytes, after which no page is requested. Objects beyond it are not checked.
const WORKLOAD_OBJECTS: usize = 8 * 1024 * 1024;

/// Minimum number of those bytes that a page counts: it may contain only the token of the next page.
const PAGE: usize = 64 * 1024;

/// Environment of one reconcile of a Cluster.
pub(super) struct Host<'a> {
    pub(super) ctx: &'a Context,
    pub(super) facts: &'a Facts,
    /// Connection to the workload cluster, once requested.
    pub(super) remote: OnceLock<Arc<Remote>>,
    /// Client of the workload cluster for this reconcile alone, once requested.
    pub(super) drift_check_client: OnceLock<Client>,
    /// Permit of the drift check, once it has one.
    pub(super) drift_check_permit: OnceLock<DriftCheckPermit>,
}

impl executor::Host<Facts> for Host<'_> {
    const MANAGER: &'static str = FIELD_MANAGER;

    fn subject(&self) -> (&str, &str) {
        (&self.facts.owner.namespace, &self.facts.owner.name)
    }

    fn client(&self, server: Server) -> Result<&Client, Failure> {
        match server {
            Server::Management => Ok(&self.ctx.client),
            Server::Workload => self
                .drift_check_client
                .get()
                .map_or_else(|| Ok(&self.remote()?.client), Ok),
        }
    }

    fn read_timeout(&self, ask: &Read) -> Option<Duration> {
        let is_first =
            *ask == first_read() && self.drift_check_client.get().is_some() && self.remote.get().is_none();
        is_first.then_some(FIRST_REQUEST_TIMEOUT)
    }

    async fn answer(&self, ask: &Read) -> Result<ReadResult, Failure> {
        let (stores, system) = (&self.ctx.stores, &self.ctx.settings.system_namespace);
        Ok(match ask {
            Read::Template(release) => {
                of_catalogue(&stores.templates, release, system, ReadResult::Template)?
            }
            Read::Package(name) => of_catalogue(&stores.packages, name, system, ReadResult::Package)?,
            Read::Shown(secret) => ReadResult::Shown(self.ctx.values_watches.shows(secret)),
            Read::Watched(server, name) => match self.watched(*server, name) {
                Ok(watched) => ReadResult::Watched(Box::new(watched)),
                Err(object) => return Err(Failure::undecodable(*server, object)),
            },
            Read::Connection(kubeconfig) => self.connect(kubeconfig).await,
            Read::OpenConnection(number) => self.still_open(*number),
            Read::Contact(_) => ReadResult::Contact(self.remote()?.contact().await),
            Read::DriftCheckPermit(last) => ReadResult::Turn(self.may_check_drift(*last)),
            Read::DriftCheckConnection(by) => {
                let client = self.ctx.remotes.client(&self.facts.owner.uid, by);
                ReadResult::of_connection(client.map(|client| {
                    self.drift_check_client.get_or_init(|| client);
                    0
                }))
            }
            Read::VirtualMachines(namespace) => self.virtual_machine(namespace).await?,
            Read::WorkloadObjects => {
                let client = executor::Host::client(self, Server::Workload)?;
                ReadResult::WorkloadObjects(Box::new(self.workload_objects(client).await))
            }
            ask => {
                let Some(request) = ask.list(system, &self.facts.owner.name) else {
                    return Ok(ReadResult::Absent);
                };
                let server = ask.server();
                let read = executor::Host::client(self, server)?.request_text(request?).await;
                ReadResult::of_list(server, &read.map_err(|error| failure(server, &error))?)
            }
        })
    }

    async fn writing(&self, effects: Effects) {
        self.ctx.local_states().keep(&self.facts.owner.uid, effects.local);
    }

    fn wrote(&self, write: &Write, written: &Object) {
        self.ctx.values_watches.wrote(write, written);
    }
}

impl Host<'_> {
    fn remote(&self) -> Result<&Remote, Failure> {
        let unconnected = || Failure::other(Server::Workload, "there is no connection to the workload");
        self.remote.get().map(AsRef::as_ref).ok_or_else(unconnected)
    }

    /// Lists one VirtualMachine of the Cluster, if the management API server serves the kind.
    async fn virtual_machine(&self, namespace: &str) -> Result<ReadResult, Failure> {
        const GROUP: &str = "vmoperator.vmware.com";
        let client = executor::Host::client(self, Server::Management)?;
        let failed = |error: kube::Error| failure(Server::Management, &error);
        let served = served_in_any_version(client, GROUP, "VirtualMachine").await;
        let Some(kind) = served.map_err(failed)? else {
            return Ok(ReadResult::Absent);
        };
        let request = virtual_machine(&kind, namespace, &self.facts.owner.name)?;
        let read = client.request_text(request).await.map_err(failed)?;
        Ok(ReadResult::of_list(Server::Management, &read))
    }

    /// Lists objects of the workload cluster, as far as its API server answers in time.
    async fn workload_objects(&self, client: &Client) -> WorkloadObjects {
        let (namespace, name) = executor::Host::subject(self);
        let (mut objects, mut are_all) = (WorkloadObjects::default(), true);
        let lists = async {
            let mut left = WORKLOAD_OBJECTS;
            for list in List::ALL {
                let added = add(client, list, &mut objects, &mut left).await;
                are_all &= added.unwrap_or_else(|error| {
                    warn!(namespace, name, ?list, %error, "Failed to list objects for upgrade warnings");
                    false
                });
            }
        };
        if timeout(WORKLOAD_OBJECTS_TIMEOUT, lists).await.is_err() {
            let seconds = WORKLOAD_OBJECTS_TIMEOUT.as_secs();
            warn!(
                namespace,
                name, seconds, "Timed out listing objects for upgrade warnings"
            );
            are_all = false;
        }
        if are_all { objects } else { objects.incomplete() }
    }

    fn may_check_drift(&self, last: LastDriftCheck) -> bool {
        if self.drift_check_permit.get().is_some() {
            return true;
        }
        let cluster = ClusterRef::new(&self.facts.owner.namespace, &self.facts.owner.name);
        let permit = self.ctx.limiter.drift_check_permit(&cluster, last);
        permit.is_some_and(|permit| self.drift_check_permit.set(permit).is_ok())
    }

    async fn connect(&self, kubeconfig: &ParsedKubeconfig) -> ReadResult {
        let (owner, remotes) = (&self.facts.owner, &self.ctx.remotes);
        let cluster = ClusterRef::new(&owner.namespace, &owner.name);
        let remote = remotes.open(&owner.uid, &cluster, &kubeconfig.parsed, &kubeconfig.digest);
        if let Ok(remote) = &remote {
            remote.first_lists().await;
        }
        ReadResult::of_connection(remote.map(|remote| self.remote.get_or_init(|| remote).number))
    }

    fn still_open(&self, number: u64) -> ReadResult {
        let remote = self.ctx.remotes.get(&self.facts.owner.uid);
        let remote = remote.filter(|remote| remote.number == number);
        remote.map_or(ReadResult::Absent, |remote| {
            ReadResult::Connected(self.remote.get_or_init(|| remote).number)
        })
    }

    /// Returns the watched objects of one name.
    ///
    /// # Errors
    /// An object that cannot be decoded.
    fn watched(&self, server: Server, name: &str) -> Result<Watched, Arc<Undecodable>> {
        let (stores, settings) = (&self.ctx.stores, &self.ctx.settings);
        let (installs, apps, namespace, remote) = match (server, self.remote.get()) {
            (Server::Management, _) => (&stores.installs, &stores.apps, &self.facts.owner.namespace, None),
            (Server::Workload, Some(remote)) => (
                &remote.installs,
                &remote.apps,
                &settings.system_namespace,
                Some(remote),
            ),
            (Server::Workload, None) => return Ok(Watched::default()),
        };
        // Checked first: objects of a list that ends later may be missing below.
        let filled = remote.is_none_or(|remote| remote.is_filled());
        Ok(Watched {
            install: installs.found(Some(namespace), name)?,
            app: apps.found(Some(namespace), name)?,
            first_seen: remote.and_then(|remote| remote.first_seen_run(name)),
            filled,
        })
    }
}

/// Returns the number of objects in a page, so that its text is far below the limit of a response of a workload cluster. The status of a
/// Node names up to 50 images.
const fn page(list: List) -> u32 {
    match list {
        List::Budgets | List::Pods => 500,
        List::Nodes => 100,
    }
}

/// Adds the pages of a list until `left` bytes are used up. Returns whether these are all pages.
async fn add(
    client: &Client,
    list: List,
    objects: &mut WorkloadObjects,
    left: &mut usize,
) -> Result<bool, Failure> {
    let mut token = None;
    while *left > 0 {
        let mut request = list.request(page(list), token.as_deref())?;
        request.extensions_mut().insert(DecodedInPart);
        let text = client.request_text(request).await;
        let text = text.map_err(|error| failure(Server::Workload, &error))?;
        *left = left.saturating_sub(text.len().max(PAGE));
        token = objects.add(list, &text)?;
        if token.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads an object that many Clusters share.
fn of_catalogue<K: Cached>(
    store: &Store<K>,
    name: &str,
    system: &str,
    found: impl FnOnce(Arc<K>) -> ReadResult,
) -> Result<ReadResult, Failure> {
    let object = store.found(Some(system), name);
    let object = object.map_err(|object| Failure::undecodable(Server::Management, object))?;
    Ok(object.map_or(ReadResult::Absent, found))
}
