//! A Cluster whose read panics affects no other Cluster.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use prost::Message as _;
use sluice_core::{cluster::ClusterRef, lock::lock};
use sluice_crds::run::UpgradeRecord;
use sluice_proto::status::v1;
use tokio_util::sync::CancellationToken;
use tonic_health::server::health_reporter;

use crate::{ClusterView, Lifecycle, Status, StatusMetrics, follow::Follower, snapshot_store::Selection};

/// Panics of this test, the only one that counts them.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn follower() -> Follower {
    Follower {
        status: Status::new(StatusMetrics::default()),
        health: health_reporter().0,
        life: Lifecycle {
            leaves: CancellationToken::new(),
            ends: CancellationToken::new(),
            beat: Arc::new(|| {}),
            panicked: || {
                PANICS.fetch_add(1, Ordering::Relaxed);
            },
        },
    }
}

fn at(name: &str) -> ClusterRef {
    ClusterRef::new("ns", name)
}

fn view(cluster: &ClusterRef) -> ClusterView {
    ClusterView {
        cluster: cluster.clone(),
        uid: format!("uid of {}", cluster.name()),
        tkr_label: String::new(),
        managed: true,
        upgrade: Some(UpgradeRecord::default()),
        since: None,
        topology_version: String::new(),
        pending: true,
    }
}

/// Returns each Cluster in the snapshot store, with its UID and whether its upgrade is shown.
fn shown(follower: &Follower) -> Vec<(String, String, bool)> {
    let board = lock(&follower.status.0.board);
    let clusters = board.list(&Selection::All, None);
    clusters
        .map(|(_, encoded)| v1::Cluster::decode(encoded.clone()).unwrap())
        .map(|cluster| {
            assert_eq!(cluster.upgrade.is_some(), cluster.pending);
            (cluster.name, cluster.uid, cluster.upgrade.is_some())
        })
        .collect()
}

#[tokio::test]
async fn a_panic_over_one_cluster_leaves_the_others_shown() {
    let follower = follower();
    let all: HashSet<_> = ["bad", "one", "two"].map(at).into();
    let panics = |cluster: &ClusterRef| {
        assert_ne!(cluster.name(), "bad", "a bug");
        Some(view(cluster))
    };
    let is = |name: &str, upgrade| (name.to_owned(), format!("uid of {name}"), upgrade);

    follower.show(all.clone(), panics).await;
    assert_eq!(
        shown(&follower),
        [is("one", true), is("two", true)],
        "it is left out"
    );

    follower.show(all.clone(), |cluster| Some(view(cluster))).await;
    assert_eq!(
        shown(&follower),
        [is("bad", true), is("one", true), is("two", true)]
    );

    follower.show(all, panics).await;
    let wanted = [is("bad", false), is("one", true), is("two", true)];
    assert_eq!(
        shown(&follower),
        wanted,
        "it is there, and nothing is said of its upgrade"
    );
    assert_eq!(PANICS.load(Ordering::Relaxed), 2);
}
