//! A pause that the addons-manager left is removed once the gates of the next step are open.

use kube::{Api, ResourceExt, api::Patch};
use serde_json::{Value, json};
use sluice_core::cluster::legacy_pause;
use sluice_crds::{foreign::Cluster, labels::annotation};

use super::{Context, Error, chain, dereference::Found, write::patch_params};

/// Removes what is left of a pause of the addons-manager, if the record releases the Cluster as it is.
pub(super) async fn remove(ctx: &Context, found: &Found) -> Result<(), Error> {
    let Some(pause) = legacy_pause(&found.cluster, found.record()) else {
        return Ok(());
    };
    let mut patch = json!({"metadata": {
        "uid": found.cluster.metadata.uid,
        "resourceVersion": found.cluster.metadata.resource_version,
        "annotations": {annotation::LEGACY_PAUSED: null},
    }});
    if pause.stopped {
        patch["spec"] = json!({"paused": Value::Null});
    }
    let patched = Api::<Cluster>::namespaced(ctx.client.clone(), &found.owner.namespace)
        .patch(&found.cluster.name_any(), &patch_params(), &Patch::Merge(&patch))
        .await
        .map_err(Error::from);
    if let Err(error) = patched {
        if error.is_conflict() {
            return Err(error);
        }
        // The rest of the pass does not depend on it: the packages of a paused Cluster can be proven.
        let note = format!(
            "the pause of the addons-manager cannot be removed: {}",
            chain(&error)
        );
        ctx.events
            .told(&found.cluster, "LegacyPauseNotRemoved", &note)
            .await;
        return Ok(());
    }
    if pause.stopped {
        let note = "removed the pause of the addons-manager: the next step of the Cluster is released";
        ctx.events.told(&found.cluster, "LegacyPauseRemoved", note).await;
    }
    Ok(())
}
