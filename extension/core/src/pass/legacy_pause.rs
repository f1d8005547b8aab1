//! The pause that the addons-manager has left on a Cluster: it would keep Cluster API from asking.

use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_crds::{foreign::Cluster, labels::annotation};

use super::{
    Known, Server, Step, Stop,
    ask::Key,
    effects::{Effects, Event},
    write::Write,
};
use crate::cluster::legacy_pause;

/// Removes what is left of a pause of the addons-manager, if the record releases the Cluster as it is.
pub(super) fn remove(known: &Known<'_>, effects: &mut Effects) -> Step<()> {
    let facts = known.facts;
    let cluster = &facts.cluster;
    let Some(pause) = legacy_pause(cluster, facts.record()) else {
        return Ok(());
    };
    let mut patch = json!({"metadata": {
        "uid": cluster.metadata.uid,
        "resourceVersion": cluster.metadata.resource_version,
        "annotations": {annotation::LEGACY_PAUSED: null},
    }});
    if pause.stopped {
        patch["spec"] = json!({"paused": Value::Null});
    }
    let key = Key::of::<Cluster>(
        Server::Management,
        Some(&facts.owner.namespace),
        &cluster.name_any(),
    );
    match known.write(Write::patch(key, patch, "the record holds the Cluster instead")) {
        Ok(_) => {}
        Err(Stop::Failed(failure)) if !failure.is_conflict() => {
            // The rest of the pass does not depend on it: the packages of a paused Cluster can be proven.
            let note = format!("the pause of the addons-manager cannot be removed: {failure}");
            effects.events.push(Event::Said("LegacyPauseNotRemoved", note));
            return Ok(());
        }
        Err(stop) => return Err(stop),
    }
    if pause.stopped {
        let note = "removed the pause of the addons-manager: the next step of the Cluster is released";
        effects
            .events
            .push(Event::Said("LegacyPauseRemoved", note.to_owned()));
    }
    Ok(())
}
