//! A kapp-controller whose process ended leaves what it was deploying as it is for a whole sync period. It is asked again.

use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use sluice_crds::labels::annotation;

use super::{
    Context, Interrupt, Server, Step,
    effects::Effects,
    interrupt::in_order,
    packages::{Packages, watched},
    read::Key,
    write::Write,
};
use crate::proof::is_underway;

/// Has kapp-controller work again on every App that says it is being deployed and has not moved for long: an App is worked
/// on at once when a Secret with its values changes. One that is only slow is deployed once more afterwards, which changes
/// nothing. The App of a cluster's kapp-controller is one of the management cluster.
pub(super) fn run(known: &Context<'_>, effects: &mut Effects, packages: &Packages) -> Step<()> {
    let facts = known.facts;
    let unproven = packages
        .planned
        .iter()
        .zip(&packages.judged)
        .filter(|(_, judged)| !judged.ready());
    in_order(unproven.map(|(planned, _)| {
        if planned.server() == Server::Workload && !packages.connected {
            return Ok(());
        }
        let (_, app) = watched(known, planned)?;
        if !app.is_some_and(|app| is_underway(&app) && effects.memory.app_resync_is_due(&app, known.began)) {
            return Ok(());
        }
        // Its Secret stays as the addons-manager has made it.
        if planned.is_kept {
            return Ok(());
        }
        let namespace = planned.namespace(&facts.owner, &facts.settings.system_namespace);
        let touched =
            json!({"metadata": {"annotations": {annotation::NUDGED_AT: known.began.now.to_string()}}});
        let key = Key::of::<Secret>(planned.server(), Some(namespace), &planned.secret_name);
        match known.write(Write::patch(
            key,
            touched,
            "kapp-controller shall work again on an App that does not move",
        )) {
            // It is tried again after a while.
            Ok(_) | Err(Interrupt::Failed(_)) => Ok(()),
            Err(stop) => Err(stop),
        }
    }))
}
