//! Environment of one reconcile of a gated Cluster.

use std::{sync::OnceLock, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Client, discovery::Scope};
use sluice_core::{
    gates::{facts::GateFacts, reconcile::GateEffects},
    packages::build::FIELD_MANAGER,
    protocol::{Failure, Key, LastDriftCheck, Object, Read, ReadResult, Resource, Server, Write},
};

use super::Context;
use crate::{
    clock::now,
    controllers::{concurrency::DriftCheckPermit, executor},
    kube_client::responses::{failure, served_in},
    queue::requeues::ClusterRef,
};

/// Timeout of the read that shows which cluster the workload API server serves, connection included. It is the first one, and shorter than
/// a slow reconcile: unresponsive workload clusters then leave the permits for slow and failing Clusters free.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Environment of one reconcile.
pub(super) struct Host<'a> {
    pub(super) ctx: &'a Context,
    pub(super) facts: &'a GateFacts,
    /// Number of rollbacks of the API server before the reconcile.
    pub(super) rollbacks: u64,
    /// Client of the workload cluster, once requested.
    pub(super) workload: OnceLock<Client>,
    /// Permit to contact the workload cluster, once requested; `None` if the Cluster waits for it.
    pub(super) permit: OnceLock<Option<DriftCheckPermit>>,
}

impl Host<'_> {
    /// Discovers a kind, unless it was discovered a moment ago.
    async fn kind(&self, server: Server, api_version: &str, kind: &str) -> Result<ReadResult, Failure> {
        let kinds = self.ctx.clients.kinds(server, &self.facts.owner.uid);
        if let Some(found) = kinds.get(api_version, kind, now()) {
            return Ok(found);
        }
        let client = executor::Host::<GateFacts>::client(self, server)?;
        let found = match served_in(client, api_version, kind).await {
            Ok(Some((resource, Scope::Namespaced))) => ReadResult::Served(Resource::from(&resource)),
            Ok(Some((resource, Scope::Cluster))) => ReadResult::ServedClusterWide(Resource::from(&resource)),
            Ok(None) => return Ok(ReadResult::Absent),
            Err(error) => return Err(failure(server, &error)),
        };
        kinds.keep(api_version, kind, found.clone(), now());
        Ok(found)
    }
}

impl executor::Host<GateFacts> for Host<'_> {
    const MANAGER: &'static str = FIELD_MANAGER;

    fn subject(&self) -> (&str, &str) {
        (&self.facts.owner.namespace, &self.facts.owner.name)
    }

    fn client(&self, server: Server) -> Result<&Client, Failure> {
        match server {
            Server::Management => Ok(&self.ctx.client),
            Server::Workload => {
                let unconnected = || Failure::other(server, "there is no connection to the workload");
                self.workload.get().ok_or_else(unconnected)
            }
        }
    }

    fn read_timeout(&self, ask: &Read) -> Option<Duration> {
        is_first(ask).then_some(FIRST_REQUEST_TIMEOUT)
    }

    async fn answer(&self, ask: &Read) -> Result<ReadResult, Failure> {
        Ok(match ask {
            Read::DriftCheckConnection(by) => {
                self.permitted()?;
                let client = self.ctx.clients.client(&self.facts.owner.uid, by, now());
                ReadResult::of_connection(client.map(|client| {
                    self.workload.get_or_init(|| client);
                    0
                }))
            }
            Read::Kind {
                server,
                api_version,
                kind,
            } => self.kind(*server, api_version, kind).await?,
            // A gate requests no other read.
            _ => ReadResult::Absent,
        })
    }

    fn answered(&self, ask: &Read, answer: &ReadResult) {
        if !is_first(ask) {
            return;
        }
        // A refusal occupies no reconcile for long.
        let silence = match answer {
            ReadResult::Failed(failure) if failure.code.is_none() => Some(failure.clone()),
            _ => None,
        };
        self.ctx.clients.heard(&self.facts.owner.uid, silence);
    }

    async fn writing(&self, effects: GateEffects) {
        let uid = &self.facts.owner.uid;
        self.ctx.local_states().keep(uid, self.rollbacks, effects.local);
    }

    fn wrote(&self, _: &Write, _: &Object) {}
}

impl Host<'_> {
    /// Takes the permit to contact the workload cluster that a drift check needs, and each reconcile of a Cluster whose workload cluster
    /// did not respond last: a network partition may affect thousands of them, and each occupies a reconcile for seconds.
    ///
    /// # Errors
    /// The Cluster waits for the permit. During an upgrade it stays as unreachable as before, so that its gates are closed in time.
    fn permitted(&self) -> Result<(), Failure> {
        if matches!(self.permit.get(), Some(Some(_))) {
            return Ok(());
        }
        let (owner, limiter) = (&self.facts.owner, &self.ctx.limiter);
        let cluster = ClusterRef::new(&owner.namespace, &owner.name);
        let (silence, rests) = (self.ctx.clients.silence(&owner.uid), self.rests());
        let last = match (&silence, rests) {
            (Some(_), _) => LastDriftCheck::Unanswered,
            (None, true) => LastDriftCheck::Answered,
            (None, false) => {
                drop(limiter.granted_drift_check(&cluster));
                return Ok(());
            }
        };
        let permit = limiter.drift_check_permit(&cluster, last);
        let is_permitted = permit.is_some();
        // Set only here, and the executor requests a connection once.
        let _set_before = self.permit.set(permit);
        if is_permitted {
            return Ok(());
        }
        Err(silence
            .filter(|_| !rests)
            .unwrap_or_else(|| Failure::overtaken(Server::Management, "the drift check waits for its turn")))
    }

    /// Whether the reconcile has requested a permit.
    pub(super) fn needs_permit(&self) -> bool {
        self.permit.get().is_some()
    }

    /// Whether the reconcile is a drift check that waits for its permit, so that its results say nothing.
    pub(super) fn is_deferred(&self) -> bool {
        self.rests() && matches!(self.permit.get(), Some(None))
    }

    /// Whether the last upgrade of the Cluster has ended, and no other is wanted.
    fn rests(&self) -> bool {
        let record = self.facts.record();
        record.is_some_and(|record| record.outcome.is_some() && record.to == self.facts.topology.version)
    }
}

/// Whether a read shows which cluster the workload API server serves.
fn is_first(ask: &Read) -> bool {
    let identity = Key::of::<Namespace>(Server::Workload, None, "kube-system");
    matches!(ask, Read::Object(key, _) if *key == identity)
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use serde_json::json;

    use super::*;
    use crate::controllers::{
        bootstrap::world::{VERSION, World},
        gates::tests::{cluster, gate, leader},
    };

    /// A drift check that was put off must neither report a silence nor write.
    #[tokio::test(start_paused = true)]
    async fn a_drift_check_waits_for_its_permit() {
        let world = World::new();
        let gates = "/apis/lifecycle.sluice.dev/v1alpha1/namespaces/team-a";
        world
            .management
            .put(&format!("{gates}/upgradegates/backup"), gate(&json!({})));
        let record = json!({
            "schema": 1, "clusterUID": "uid", "observedClusterGeneration": 1, "to": VERSION, "outcome": "Completed",
        });
        world.management.put(
            &format!("{gates}/clusterupgrades/one"),
            json!({
                "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {},
                "status": {"upgrade": record},
            }),
        );
        let leader = leader(&world.management).await;
        let reference = ClusterRef::new("team-a", "one");
        let control_plane = |named: &_| leader.control_planes.get(&reference, named);
        let facts =
            GateFacts::of(&cluster(&leader), &leader.stores, &leader.settings, control_plane).unwrap();
        let host = || Host {
            ctx: &leader,
            facts: &facts,
            rollbacks: 0,
            workload: OnceLock::new(),
            permit: OnceLock::new(),
        };
        let mut granted = leader.limiter.granted();
        let other = ClusterRef::new("team-a", "other");
        let taken = leader
            .limiter
            .drift_check_permit(&other, LastDriftCheck::Answered);
        assert!(taken.is_some());
        let early = host();
        let refused = early.permitted().unwrap_err();
        assert_eq!(
            refused.server,
            Server::Management,
            "it says nothing of the workload"
        );
        assert!(early.is_deferred());

        drop(taken);
        assert_eq!(granted.next().await, Some(reference.clone()));
        let late = host();
        assert!(late.permitted().is_ok());
        assert!(!late.is_deferred());
    }
}
