//! App resync: a restarted kapp-controller leaves an interrupted deploy untouched for a whole sync period, so Sluice triggers it.

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

/// Triggers kapp-controller for every stalled App: it reconciles an App at once when a Secret with its values changes. An App that is
/// only slow is deployed once more afterwards, which changes nothing. The App of a Cluster's kapp-controller is on the management
/// cluster.
pub(super) fn run(context: &Context<'_>, effects: &mut Effects, packages: &Packages) -> Step<()> {
    let facts = context.facts;
    let unproven = packages
        .planned
        .iter()
        .zip(&packages.judged)
        .filter(|(_, judged)| !judged.ready());
    in_order(unproven.map(|(planned, _)| {
        if planned.server() == Server::Workload && !packages.connected {
            return Ok(());
        }
        let (_, app) = watched(context, planned)?;
        if !app.is_some_and(|app| is_underway(&app) && effects.local.app_resync_is_due(&app, context.began))
        {
            return Ok(());
        }
        // The values Secret stays as the addons-manager created it.
        if planned.is_kept {
            return Ok(());
        }
        let namespace = planned.namespace(&facts.owner, &facts.settings.system_namespace);
        let touched =
            json!({"metadata": {"annotations": {annotation::APP_RESYNCED_AT: context.began.now.to_string()}}});
        let key = Key::of::<Secret>(planned.server(), Some(namespace), &planned.secret_name);
        match context.write(Write::patch(
            key,
            touched,
            "App is stalled, triggering kapp-controller",
        )) {
            // A later reconcile retries.
            Ok(_) | Err(Interrupt::Failed(_)) => Ok(()),
            Err(stop) => Err(stop),
        }
    }))
}
