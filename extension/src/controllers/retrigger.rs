//! Touches Clusters of which a hook of this extension could not be called; see [`sluice_core::installation::retrigger`].

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use sluice_core::installation::retrigger::{Touched, Uncalled, touch};
use sluice_crds::foreign::Cluster;
use tracing::{info, warn};

use crate::{cache::store::Store, clock::now, lock::lock};

/// How often the Clusters in memory are looked through.
const LOOK: Duration = Duration::from_secs(1);

/// Touches those of the Clusters that could not be asked about, for as long as it is polled. Only the leader does.
///
/// All Clusters count, managed or not: Cluster API asks about every one, and waits for every answer.
pub async fn run(client: Client, clusters: Store<Cluster>, uncalled: Arc<Mutex<Uncalled>>) {
    let mut touched = Touched::default();
    let mut tick = tokio::time::interval(LOOK);
    loop {
        tick.tick().await;
        let failed = {
            let uncalled = lock(&uncalled);
            touched.forget_old(&uncalled, now());
            uncalled.clusters()
        };
        for named in failed {
            let Some(cluster) = clusters.get(Some(named.namespace()), named.name()) else {
                continue;
            };
            if !touched.is_due(&named, now()) {
                continue;
            }
            let (namespace, name) = (named.namespace(), named.name());
            let patch = Patch::Merge(touch(&cluster, Timestamp::now()));
            let api = Api::<Cluster>::namespaced(client.clone(), namespace);
            match api.patch_metadata(name, &PatchParams::default(), &patch).await {
                Ok(_) => info!(namespace, name, "Asked Cluster API to call again"),
                // Another one changed or deleted it, which wakes Cluster API as well.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => warn!(namespace, name, %error, "Asking Cluster API to call again"),
            }
        }
    }
}
