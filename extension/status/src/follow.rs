//! Keeps the snapshot store up to date with the caches.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, channel::mpsc::UnboundedReceiver};
use prost::Message as _;
use sluice_core::{cluster::ClusterRef, lock::lock};
use sluice_proto::status::v1::{self, status_service_server::SERVICE_NAME};
use tokio::time::{interval, sleep};
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::error;

use super::{Caches, ClusterView, Lifecycle, Status, message};

/// Interval of the health report about the caches.
const HEALTH: Duration = Duration::from_secs(5);

/// Delay before a restart after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// Clusters that are read before other tasks get the thread.
const TURN: usize = 64;

/// Change that the service shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// Change of one Cluster or its ClusterBootstrap.
    One(ClusterRef),
    /// Change of a release, which may affect any Cluster.
    All,
}

/// Task state that keeps the snapshot store up to date.
pub(super) struct Follower {
    pub(super) status: Status,
    /// Reports whether calls are served.
    pub(super) health: HealthReporter,
    pub(super) life: Lifecycle,
}

impl Follower {
    /// Follows the caches for as long as it is polled.
    pub(super) async fn follow(self, mut changes: UnboundedReceiver<Changed>) {
        loop {
            let following = AssertUnwindSafe(self.follow_from_all(&mut changes));
            let Err(_panicked) = following.catch_unwind().await else {
                return;
            };
            (self.life.panicked)();
            error!("Update of status snapshots panicked; restarting it");
            sleep(AFTER_PANIC).await;
        }
    }

    async fn follow_from_all(&self, changes: &mut UnboundedReceiver<Changed>) {
        let mut ticks = interval(HEALTH);
        let leaves = self.life.leaves.clone();
        let mut leaving = pin!(leaves.cancelled().fuse());
        let filled = async {
            let caches = &self.status.0.sources.wait().await.caches;
            caches.filled().await;
            &**caches
        };
        let mut filled = pin!(filled);
        // Changes before the first full read are part of it.
        let caches = loop {
            tokio::select! {
                biased;
                caches = &mut filled => break caches,
                _ = ticks.tick() => self.report().await,
                () = &mut leaving => self.report().await,
                change = changes.next() => if change.is_none() { return },
            }
        };
        let read = |cluster: &ClusterRef| caches.view(cluster);
        self.show(self.all(caches), read).await;
        let _filled_before = self.status.0.filled.set(());
        self.report().await;
        loop {
            let first = tokio::select! {
                _ = ticks.tick() => {
                    self.report().await;
                    continue;
                }
                () = &mut leaving => {
                    self.report().await;
                    continue;
                }
                change = changes.next() => change,
            };
            let Some(first) = first else {
                return;
            };
            let mut clusters = HashSet::new();
            let mut next = Some(first);
            while let Some(change) = next {
                match change {
                    Changed::One(cluster) => drop(clusters.insert(cluster)),
                    Changed::All => clusters.extend(self.all(caches)),
                }
                next = changes.try_recv().ok();
            }
            self.show(clusters, read).await;
        }
    }

    /// Returns every Cluster that exists or is in the snapshot store.
    fn all(&self, caches: &dyn Caches) -> HashSet<ClusterRef> {
        let shown = lock(&self.status.0.board).clusters();
        caches.clusters().into_iter().chain(shown).collect()
    }

    /// Reads these Clusters and publishes their changes.
    pub(super) async fn show(
        &self,
        clusters: HashSet<ClusterRef>,
        read: impl Fn(&ClusterRef) -> Option<ClusterView>,
    ) {
        let inner = &self.status.0;
        for (number, cluster) in clusters.iter().enumerate() {
            let encode = |view| Bytes::from(message::cluster(view).encode_to_vec());
            let seen = catch_unwind(AssertUnwindSafe(|| read(cluster).map(encode)));
            let encoded = seen.unwrap_or_else(|_panicked| {
                (self.life.panicked)();
                error!(%cluster, "Failed to read Cluster because of a panic; hiding its upgrade in the status service");
                self.without_upgrade(cluster)
            });
            if lock(&inner.board).put(cluster, encoded) {
                inner.changes.send_modify(|changes| *changes += 1);
            }
            if number % TURN == TURN - 1 {
                (self.life.beat)();
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns the last snapshot of a Cluster without its possibly outdated upgrade. Removing the snapshot would report a deletion.
    fn without_upgrade(&self, cluster: &ClusterRef) -> Option<Bytes> {
        let before = lock(&self.status.0.board).get(cluster).cloned()?;
        let before = v1::Cluster::decode(before).ok()?;
        let now = v1::Cluster {
            upgrade: None,
            pending: false,
            ..before
        };
        Some(Bytes::from(now.encode_to_vec()))
    }

    /// Reports the health of the service, and beats.
    async fn report(&self) {
        (self.life.beat)();
        let status = match self.status.unusable() {
            None if !self.life.leaves.is_cancelled() => ServingStatus::Serving,
            _ => ServingStatus::NotServing,
        };
        for service in ["", SERVICE_NAME] {
            self.health.set_service_status(service, status).await;
        }
    }
}
