//! Touches Clusters whose hook calls failed to reach this extension; see [`sluice_core::installation::retrigger`].

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

/// Interval between checks for failed hook calls.
const INTERVAL: Duration = Duration::from_secs(1);

/// Touches Clusters with failed hook calls for as long as it is polled. Only the leader runs it.
///
/// Covers unmanaged Clusters too: Cluster API calls the hooks of every Cluster and waits for each response.
pub async fn run(client: Client, clusters: Store<Cluster>, uncalled: Arc<Mutex<Uncalled>>) {
    let mut touched = Touched::default();
    let mut tick = tokio::time::interval(INTERVAL);
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
                Ok(_) => info!(
                    namespace,
                    name, "Touched Cluster so that Cluster API retries its hook call"
                ),
                // A concurrent change or deletion also makes Cluster API reconcile.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => {
                    warn!(namespace, name, %error, "Failed to touch Cluster for a retry of its hook call");
                }
            }
        }
    }
}
