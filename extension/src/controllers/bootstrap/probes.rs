//! Probes of held Clusters, which look for the cause. Each runs in a task of its own, so that a slow workload cluster delays no reconcile
//! and no release. Its result waits for the next reconcile of the Cluster, which it requeues.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::Stream;
use kube::Client;
use sluice_core::{
    held_cause::{Probe, ProbeRequest, Probed, Probing},
    protocol::{Failure, Server},
};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    kube_client::{
        bounded::{AtMost, DecodedInPart},
        responses::failure,
    },
    lock::lock,
    queue::{requeues::ClusterRef, work_queue::Feed},
};

/// Maximum number of concurrent probes.
const AT_ONCE: usize = 4;

/// Timeout of all requests of a probe together.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Probes of this process.
#[derive(Debug)]
pub(crate) struct Probes {
    permits: Arc<Semaphore>,
    /// State by UID of the Cluster.
    states: Arc<Mutex<HashMap<String, State>>>,
    /// Clusters whose probe has ended.
    ended: Feed<ClusterRef>,
}

#[derive(Debug)]
enum State {
    /// The task makes the requests.
    Runs { task: AbortOnDropHandle<()> },
    /// The result waits for a reconcile.
    Ended(Box<Probed>),
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            states: Arc::default(),
            ended: Feed::default(),
        }
    }
}

impl Probes {
    /// Returns the Clusters whose probe has ended from now on, see [`Feed::listen`].
    pub(super) fn ended(&self) -> impl Stream<Item = ClusterRef> + Send + 'static + use<> {
        self.ended.listen()
    }

    /// Starts a probe of the Cluster with this UID, with the clients of the management cluster and of the workload cluster. Returns `false`
    /// if other probes have all permits.
    pub(super) fn start(&self, uid: &str, clients: (Client, Option<Client>), probe: Probe) -> bool {
        let mut states = lock(&self.states);
        // A task that panicked leaves no result.
        if matches!(states.get(uid), Some(State::Runs { task }) if !task.is_finished()) {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return false;
        };
        let cluster = ClusterRef::new(&probe.namespace, &probe.cluster);
        let (shared, ended, owner) = (Arc::clone(&self.states), self.ended.clone(), uid.to_owned());
        let task = tokio::spawn(async move {
            let probed = run(&clients, probe).await;
            drop(permit);
            let mut states = lock(&shared);
            let Some(state) = states.get_mut(&owner) else {
                return;
            };
            *state = State::Ended(Box::new(probed));
            drop(states);
            ended.send(cluster);
        });
        let task = AbortOnDropHandle::new(task);
        states.insert(uid.to_owned(), State::Runs { task });
        true
    }

    /// Returns the result of the last probe of the Cluster with this UID, once.
    pub(super) fn take(&self, uid: &str) -> Option<Probed> {
        let mut states = lock(&self.states);
        match states.remove(uid)? {
            State::Ended(probed) => Some(*probed),
            running @ State::Runs { .. } => {
                states.insert(uid.to_owned(), running);
                None
            }
        }
    }

    /// Ends the probe of a Cluster, and drops its result.
    pub(super) fn forget(&self, uid: &str) {
        let state = lock(&self.states).remove(uid);
        // No lock is held any more.
        drop(state);
    }
}

/// Makes the requests of a probe, one after the other.
async fn run((management, workload): &(Client, Option<Client>), probe: Probe) -> Probed {
    let mut probing = Probing::new(probe);
    let requests = async {
        while let Some(request) = probing.next_request() {
            let client = match request.server {
                Server::Management => Some(management),
                Server::Workload => workload.as_ref(),
            };
            let answer = match client {
                Some(client) => send(client, request).await,
                None => Err(Failure::other(
                    request.server,
                    "there is no connection to the workload",
                )),
            };
            probing.answered(answer.as_deref());
        }
    };
    if timeout(TIMEOUT, requests).await.is_err() {
        probing.timed_out();
    }
    probing.end()
}

async fn send(client: &Client, request: ProbeRequest) -> Result<String, Failure> {
    let ProbeRequest {
        server,
        mut request,
        longest,
    } = request;
    request.extensions_mut().insert(DecodedInPart);
    request.extensions_mut().insert(AtMost(longest));
    let text = client.request_text(request).await;
    text.map_err(|error| failure(server, &error))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http::{Request, Response};
    use kube::client::Body;
    use tokio::task::yield_now;
    use tower::{BoxError, service_fn};

    use super::*;

    #[tokio::test]
    async fn a_task_without_a_result_is_replaced() {
        let probes = Probes::default();
        let is_running = || {
            let states = lock(&probes.states);
            matches!(states.get("uid"), Some(State::Runs { task }) if !task.is_finished())
        };
        let task = AbortOnDropHandle::new(tokio::spawn(async {}));
        lock(&probes.states).insert("uid".to_owned(), State::Runs { task });
        while is_running() {
            yield_now().await;
        }
        let silent = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, BoxError>>());
        let probe = Probe {
            subject: "antrea 1.9.0".to_owned(),
            package: None,
            is_unreachable: true,
            namespace: "team-a".to_owned(),
            cluster: "one".to_owned(),
        };
        let client = Client::new(silent, "default");
        assert!(probes.start("uid", (client.clone(), Some(client)), probe));
        assert!(is_running());
    }
}
