//! Keeps the board up to date with the stores.

use crate::cache::event_handlers::Changed;
use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, channel::mpsc::UnboundedReceiver};
use prost::Message as _;
use sluice_core::{
    cluster::ClusterRef,
    status::{ClusterView, view},
};
use sluice_proto::status::v1::{self, status_service_server::SERVICE_NAME};
use tokio::time::{interval, sleep};
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::error;

use super::{Life, Status, World, message};
use crate::{lock::lock, telemetry::metrics::watch_panicked};

/// How often the health service says whether memory is current.
const HEALTH: Duration = Duration::from_secs(5);

/// When all is begun again after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// So many Clusters are looked at before others have their turn on the thread.
const TURN: usize = 64;

/// What keeps the board up to date.
pub(super) struct Follower {
    pub(super) status: Status,
    /// Says whether calls are answered.
    pub(super) health: HealthReporter,
    pub(super) life: Life,
}

impl Follower {
    /// Follows the stores for as long as it is polled.
    pub(super) async fn follow(self, mut news: UnboundedReceiver<Changed>) {
        loop {
            let following = AssertUnwindSafe(self.follow_from_all(&mut news));
            let Err(_panicked) = following.catch_unwind().await else {
                return;
            };
            watch_panicked();
            error!(
                "The board of the status service is not kept up to date because of a panic, and begun again"
            );
            sleep(AFTER_PANIC).await;
        }
    }

    async fn follow_from_all(&self, news: &mut UnboundedReceiver<Changed>) {
        let mut ticks = interval(HEALTH);
        let leaves = self.life.leaves.clone();
        let mut leaving = pin!(leaves.cancelled().fuse());
        let filled = async {
            let world = self.status.0.world.wait().await;
            world.stores.tell_managed().await;
            world
        };
        let mut filled = pin!(filled);
        // What changes before all of it is there is looked at with all of it.
        let world = loop {
            tokio::select! {
                biased;
                world = &mut filled => break world,
                _ = ticks.tick() => self.report().await,
                () = &mut leaving => self.report().await,
                change = news.next() => if change.is_none() { return },
            }
        };
        let look = |cluster: &ClusterRef| view(&world.stores, cluster);
        self.show(self.all(world), look).await;
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
                change = news.next() => change,
            };
            let Some(first) = first else {
                return;
            };
            let mut changed = HashSet::new();
            let mut next = Some(first);
            while let Some(change) = next {
                match change {
                    Changed::One(cluster) => drop(changed.insert(cluster)),
                    Changed::All => changed.extend(self.all(world)),
                }
                next = news.try_recv().ok();
            }
            self.show(changed, look).await;
        }
    }

    /// Every Cluster that is there, or was there when it was looked at.
    fn all(&self, world: &World) -> HashSet<ClusterRef> {
        let shown = lock(&self.status.0.board).clusters();
        world
            .stores
            .clusters
            .all_names()
            .into_iter()
            .chain(shown)
            .collect()
    }

    /// Looks at these Clusters and shows what has changed.
    pub(super) async fn show(
        &self,
        clusters: HashSet<ClusterRef>,
        look: impl Fn(&ClusterRef) -> Option<ClusterView>,
    ) {
        let inner = &self.status.0;
        for (number, cluster) in clusters.iter().enumerate() {
            let encode = |view| Bytes::from(message::cluster(view).encode_to_vec());
            let seen = catch_unwind(AssertUnwindSafe(|| look(cluster).map(encode)));
            let encoded = seen.unwrap_or_else(|_panicked| {
                watch_panicked();
                error!(%cluster, "The status service shows no upgrade of a Cluster, because looking at it has ended in a panic");
                self.without_upgrade(cluster)
            });
            if lock(&inner.board).put(cluster, encoded) {
                inner.changes.send_modify(|changes| *changes += 1);
            }
            if number % TURN == TURN - 1 {
                self.life.heart.beat();
                tokio::task::yield_now().await;
            }
        }
    }

    /// A Cluster as it was shown last, without what may not be true any more. It is not taken away: that would say that it is deleted.
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

    /// Says whether calls are answered, and beats.
    async fn report(&self) {
        self.life.heart.beat();
        let status = match self.status.unsynced() {
            None if !self.life.leaves.is_cancelled() => ServingStatus::Serving,
            _ => ServingStatus::NotServing,
        };
        for service in ["", SERVICE_NAME] {
            self.health.set_service_status(service, status).await;
        }
    }
}
