//! Keeps the board up to date with the stores.

use std::{collections::HashSet, panic::AssertUnwindSafe, time::Duration};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, channel::mpsc::UnboundedReceiver};
use prost::Message as _;
use sluice_core::{cluster::ClusterRef, status::view};
use sluice_proto::status::v1::status_service_server::SERVICE_NAME;
use tokio::time::{interval, sleep};
use tonic_health::{ServingStatus, server::HealthReporter};

use super::{Status, World, message};
use crate::{lock::lock, metrics::watch_panicked};

/// What has changed that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// One Cluster, or its ClusterBootstrap.
    One(ClusterRef),
    /// A release: any Cluster may be concerned.
    All,
}

/// How often the health service says whether memory is current.
const HEALTH: Duration = Duration::from_secs(5);

/// When all is begun again after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// So many Clusters are looked at before others have their turn on the thread.
const TURN: usize = 64;

impl Status {
    /// Follows the stores for as long as it is polled, and says by `health` whether calls are answered.
    pub(super) async fn follow(self, mut news: UnboundedReceiver<Changed>, health: HealthReporter) {
        let world = self.0.world.wait().await;
        loop {
            let following = AssertUnwindSafe(self.follow_from_all(world, &mut news, &health));
            let Err(_panicked) = following.catch_unwind().await else {
                return;
            };
            watch_panicked();
            sleep(AFTER_PANIC).await;
        }
    }

    async fn follow_from_all(
        &self,
        world: &World,
        news: &mut UnboundedReceiver<Changed>,
        health: &HealthReporter,
    ) {
        let mut ticks = interval(HEALTH);
        let filled = world.stores.filled_for_status();
        tokio::pin!(filled);
        // What changes before all of it is there is looked at with all of it.
        loop {
            tokio::select! {
                biased;
                () = &mut filled => break,
                _ = ticks.tick() => self.report(health).await,
                change = news.next() => if change.is_none() { return },
            }
        }
        self.show(world, self.all(world)).await;
        let _filled_before = self.0.filled.set(());
        self.report(health).await;
        loop {
            let first = tokio::select! {
                _ = ticks.tick() => {
                    self.report(health).await;
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
            self.show(world, changed).await;
        }
    }

    /// Every Cluster that is there, or was there when it was looked at.
    fn all(&self, world: &World) -> HashSet<ClusterRef> {
        let shown = lock(&self.0.board).clusters();
        world
            .stores
            .clusters
            .all_names()
            .into_iter()
            .chain(shown)
            .collect()
    }

    /// Looks at these Clusters and shows what has changed.
    async fn show(&self, world: &World, clusters: HashSet<ClusterRef>) {
        for (number, cluster) in clusters.iter().enumerate() {
            let seen = view(&world.stores, cluster);
            let encoded = seen.map(|view| Bytes::from(message::cluster(view).encode_to_vec()));
            if lock(&self.0.board).put(cluster, encoded) {
                self.0.changes.send_modify(|changes| *changes += 1);
            }
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn report(&self, health: &HealthReporter) {
        let status = match self.unsynced() {
            None => ServingStatus::Serving,
            Some(_) => ServingStatus::NotServing,
        };
        for service in ["", SERVICE_NAME] {
            health.set_service_status(service, status).await;
        }
    }
}
