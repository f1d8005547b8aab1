//! Reads of the objects that releases depend on: bounded, and shared between calls.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt as _;
use http::StatusCode;
use http_body_util::BodyExt as _;
use kube::{
    Client, Resource as _, ResourceExt as _,
    api::ListParams,
    client::Body,
    core::{Request, Status},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_core::{
    cache::stores::Releases,
    decode::Decode as _,
    error_chain::error_chain,
    gate::{
        confirmation::{NotConfirmed, ObjectRead, ReleaseObject},
        flights::Flights,
    },
    limits::{Share, Shares},
};
use sluice_crds::run::TanzuKubernetesRelease;
use sluice_hooks::Repeats;
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore, oneshot},
    time::{Instant, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use crate::{
    kube_client::{
        bounded::{Bounds, NoAnswer, bounded},
        middleware::Transport,
    },
    lock::lock,
};

/// Time that a call waits for all of its reads.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_millis(500);

/// Maximum number of concurrent reads. One address gets at most half of what others leave.
pub(super) const READS: usize = 16;

/// Maximum number of calls that wait for reads. One address gets at most half of what others leave: more than Cluster API has workers.
const CALLS: usize = 256;

/// Maximum number of objects that are decoded at once: an object may take 2 MiB decoded.
const DECODED: usize = 2;

/// Limits of one read. A read outlives its calls: the next ones find an open connection.
const READ: Bounds = Bounds {
    time: Duration::from_secs(2),
    silence: Duration::MAX,
    answer: 4 * 1024 * 1024,
    memory: usize::MAX,
    list: usize::MAX,
    page: 0,
    pace: usize::MAX,
};

/// Call that waits for a read.
struct Waiting {
    peer: IpAddr,
    told: oneshot::Sender<Result<ObjectRead, NotConfirmed>>,
}

/// Releases, or the reason why they could not be listed.
type Listed = Result<Arc<Releases>, NotConfirmed>;

/// Reads objects for calls. Clones share the reads.
#[derive(Clone)]
pub(crate) struct Confirmer(Arc<Inner>);

struct Inner {
    client: Client,
    /// Runtime of the reads: a large object takes milliseconds to decode, and no other hook call waits for it.
    runtime: Handle,
    flights: Mutex<Flights<ReleaseObject, Waiting>>,
    reads: Shares<IpAddr>,
    /// Notified when a read has ended.
    ended: Notify,
    calls: Shares<IpAddr>,
    decoding: Semaphore,
    computing: Semaphore,
    /// Calls that wait for a list of releases.
    lists: Mutex<Flights<(), oneshot::Sender<Listed>>>,
    failures: Repeats<&'static str>,
}

impl fmt::Debug for Confirmer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confirmer").finish_non_exhaustive()
    }
}

/// Cause of a failed read.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Client(#[source] kube::Error),
    #[error("{code}: {message}")]
    Refused { code: StatusCode, message: String },
    #[error("the response is not {0}")]
    Invalid(ReleaseObject),
    #[error("the response is not a list of TanzuKubernetesReleases")]
    NotListed,
    #[error("reading panicked; see the panic above")]
    Panicked,
}

impl Error {
    fn result(&self) -> NotConfirmed {
        match self {
            Self::Client(error) if is_late(error) => NotConfirmed::Late,
            Self::Client(_) | Self::Refused { .. } | Self::Panicked => NotConfirmed::Failed,
            Self::Invalid(_) | Self::NotListed => NotConfirmed::Invalid,
        }
    }
}

fn is_late(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut sources = std::iter::successors(Some(error), |error| (**error).source());
    sources.any(<dyn std::error::Error>::is::<NoAnswer>)
}

impl Confirmer {
    /// Creates a confirmer that reads through `client`, which nothing else uses, on the current runtime.
    pub(crate) fn new(client: impl Into<Transport>) -> Self {
        Self(Arc::new(Inner {
            client: bounded(client, READ).into_client(),
            runtime: Handle::current(),
            flights: Mutex::default(),
            reads: Shares::of(READS),
            ended: Notify::new(),
            calls: Shares::of(CALLS),
            decoding: Semaphore::new(DECODED),
            computing: Semaphore::new(1),
            lists: Mutex::default(),
            failures: Repeats::default(),
        }))
    }

    /// Admits a call of this peer until the returned share is dropped; `None` while too many calls wait.
    pub(super) fn admit(&self, peer: IpAddr) -> Option<Share<IpAddr>> {
        self.0.calls.take(&peer)
    }

    /// Reads an object for a call of this peer, by a request that is sent after this function is called.
    pub(super) async fn read(
        &self,
        object: &ReleaseObject,
        peer: IpAddr,
        deadline: Instant,
    ) -> Result<ObjectRead, NotConfirmed> {
        let joined = timeout_at(deadline, self.join(object, peer)).await;
        let read = joined.map_err(|_| NotConfirmed::Limited)?;
        match timeout_at(deadline, read).await {
            Ok(told) => told.unwrap_or(Err(NotConfirmed::Failed)),
            Err(_) => Err(NotConfirmed::Late),
        }
    }

    /// Lists all releases by a request that is sent after this function is called. Calls share a list, and one is in flight at a time: it may
    /// take 4 MiB, and more decoded. A release that cannot be decoded is left out.
    pub(super) async fn releases(&self, deadline: Instant) -> Listed {
        let (told, listed) = oneshot::channel();
        let starts = lock(&self.0.lists).join((), told);
        if starts {
            self.0.runtime.spawn(self.clone().run_lists());
        }
        match timeout_at(deadline, listed).await {
            Ok(told) => told.unwrap_or(Err(NotConfirmed::Failed)),
            Err(_) => Err(NotConfirmed::Late),
        }
    }

    /// Computes a result on the runtime of the reads, one at a time; `None` if it takes too long or panics.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let this = self.clone();
        let computed = self.0.runtime.spawn(async move {
            let _computing = this.0.computing.acquire().await;
            compute()
        });
        // A call that has given up computes nothing, unless it has begun.
        let computed = AbortOnDropHandle::new(computed);
        timeout_at(Instant::now() + CONFIRM_WITHIN, computed)
            .await
            .ok()?
            .ok()
    }

    /// Lists releases until no call waits for them.
    async fn run_lists(self) {
        loop {
            let listed = AssertUnwindSafe(self.list()).catch_unwind().await;
            let listed = listed.unwrap_or(Err(Error::Panicked)).map_err(|error| {
                self.log(&"TanzuKubernetesReleases", &error);
                error.result()
            });
            let (calls, goes_on) = lock(&self.0.lists).end(&());
            for call in calls {
                // A call that has given up does not need them.
                let _given_up = call.send(listed.clone());
            }
            if !goes_on {
                return;
            }
        }
    }

    async fn list(&self) -> Result<Arc<Releases>, Error> {
        /// A release takes many times its text decoded, so only the texts are decoded together.
        #[derive(Deserialize)]
        struct List<'a> {
            kind: String,
            /// Go writes an empty list as null.
            #[serde(borrow)]
            items: Option<Vec<&'a RawValue>>,
        }
        let url = TanzuKubernetesRelease::url_path(&(), None);
        let request = Request::new(url).list(&ListParams::default());
        let request = request.map_err(|_| Error::NotListed)?.map(Body::from);
        let (code, body) = self.send(request).await?;
        if code != StatusCode::OK {
            let status: Status = serde_json::from_slice(&body).unwrap_or_default();
            return Err(Error::Refused {
                code,
                message: status.message,
            });
        }
        let list: List<'_> = serde_json::from_slice(&body).map_err(|_| Error::NotListed)?;
        // For example, a proxy may answer.
        if list.kind != "TanzuKubernetesReleaseList" {
            return Err(Error::NotListed);
        }
        let decoded = list.items.into_iter().flatten().filter_map(|item| {
            let decoded = TanzuKubernetesRelease::decode(item.get(), TanzuKubernetesRelease::LIMIT);
            let (release, _) = decoded.ok()?;
            Some((release.name_any(), Arc::new(release)))
        });
        Ok(Arc::new(decoded.collect()))
    }

    async fn send(&self, request: http::Request<Body>) -> Result<(StatusCode, Bytes), Error> {
        let response = self.0.client.send(request).await.map_err(Error::Client)?;
        let code = response.status();
        let body = response.into_body().collect().await.map_err(Error::Client)?;
        Ok((code, body.to_bytes()))
    }

    /// Joins the next read of an object, or starts it once the peer has a share.
    async fn join(
        &self,
        object: &ReleaseObject,
        peer: IpAddr,
    ) -> oneshot::Receiver<Result<ObjectRead, NotConfirmed>> {
        loop {
            let ended = self.0.ended.notified();
            if let Some(read) = self.try_join(object, peer) {
                return read;
            }
            ended.await;
        }
    }

    fn try_join(
        &self,
        object: &ReleaseObject,
        peer: IpAddr,
    ) -> Option<oneshot::Receiver<Result<ObjectRead, NotConfirmed>>> {
        let mut flights = lock(&self.0.flights);
        // A call that waits for the next read of an object starts none.
        let share = if flights.has(object) {
            None
        } else {
            Some(self.0.reads.take(&peer)?)
        };
        let (told, read) = oneshot::channel();
        let starts = flights.join(object.clone(), Waiting { peer, told });
        drop(flights);
        if let Some(share) = share.filter(|_| starts) {
            self.0.runtime.spawn(self.clone().run(object.clone(), share));
        }
        Some(read)
    }

    /// Reads an object until no call waits for it.
    async fn run(self, object: ReleaseObject, share: Share<IpAddr>) {
        let mut share = Some(share);
        while let Some(held) = share.take() {
            let read = AssertUnwindSafe(self.request(&object)).catch_unwind().await;
            let read = read.unwrap_or(Err(Error::Panicked)).map_err(|error| {
                self.log(&object, &error);
                error.result()
            });
            drop(held);
            let mut flights = lock(&self.0.flights);
            let (calls, goes_on) = flights.end(&object);
            tell(calls, &read);
            if goes_on {
                // The next read is one of the calls that wait for it.
                share = flights
                    .served(&object)
                    .find_map(|call| self.0.reads.take(&call.peer));
                if share.is_none() {
                    let (calls, _) = flights.end(&object);
                    tell(calls, &Err(NotConfirmed::Limited));
                }
            }
            drop(flights);
            self.0.ended.notify_waiters();
        }
    }

    async fn request(&self, object: &ReleaseObject) -> Result<ObjectRead, Error> {
        let invalid = |_: NotConfirmed| Error::Invalid(object.clone());
        let request = object.request().map_err(invalid)?.map(Body::from);
        let (code, body) = self.send(request).await?;
        if code == StatusCode::OK {
            let text = std::str::from_utf8(&body).unwrap_or_default();
            let _decoding = self.0.decoding.acquire().await;
            return object.found(text).map_err(invalid);
        }
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        object.absent(&status).map_err(|_| Error::Refused {
            code,
            message: status.message,
        })
    }

    /// Logs a failure. An outage fails the reads of every call, so only the first of a series is a warning.
    fn log(&self, object: &dyn fmt::Display, error: &Error) {
        let (result, cause) = (error.result().as_str(), error_chain(error));
        let every = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        if let Some(left_out) = self.0.failures.begins(every, result, Instant::now().into_std()) {
            warn!(%object, error = cause, left_out, "Failed to confirm release");
        } else {
            debug!(%object, error = cause, "Failed to confirm release");
        }
    }
}

fn tell(calls: Vec<Waiting>, read: &Result<ObjectRead, NotConfirmed>) {
    for call in calls {
        // A call that has given up does not need it.
        let _given_up = call.told.send(read.clone());
    }
}

#[cfg(test)]
mod tests;
