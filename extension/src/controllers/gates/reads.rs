//! Environment of one reconcile of a gated Cluster.

use std::{sync::OnceLock, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Client, discovery::Scope};
use sluice_core::{
    gates::{facts::GateFacts, reconcile::GateEffects},
    packages::build::FIELD_MANAGER,
    protocol::{Failure, Key, Object, Read, ReadResult, Resource, Server, Write},
};

use super::Context;
use crate::{
    clock::now,
    controllers::executor,
    kube_client::responses::{failure, served_in},
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
        let identity = Key::of::<Namespace>(Server::Workload, None, "kube-system");
        let is_first = matches!(ask, Read::Object(key, _) if *key == identity);
        is_first.then_some(FIRST_REQUEST_TIMEOUT)
    }

    async fn answer(&self, ask: &Read) -> Result<ReadResult, Failure> {
        Ok(match ask {
            Read::DriftCheckConnection(by) => {
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

    async fn writing(&self, effects: GateEffects) {
        let uid = &self.facts.owner.uid;
        self.ctx.local_states().keep(uid, self.rollbacks, effects.local);
    }

    fn wrote(&self, _: &Write, _: &Object) {}
}
