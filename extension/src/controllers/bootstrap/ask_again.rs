//! A kapp-controller whose process ended leaves what it was deploying as it is for a whole sync period. It is asked again.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
    runtime::reflector::ObjectRef,
};
use serde_json::json;
use sluice_core::{
    build::Owner,
    proof::{JudgedOn, is_underway},
};
use sluice_crds::labels::annotation;
use tracing::info;

use super::{Context, chain, packages::Packages};
use crate::remote::Remote;

/// Has kapp-controller work again on every App that says it is being deployed and has not moved for long: an App is worked
/// on at once when a Secret with its values changes. One that is only slow is deployed once more afterwards, which changes
/// nothing. The App of a cluster's kapp-controller is one of the management cluster, and likewise.
pub(super) async fn run(ctx: &Context, owner: &Owner, remote: Option<&Remote>, packages: &Packages) {
    let unproven = packages
        .planned
        .iter()
        .zip(&packages.judged)
        .filter(|(_, judged)| !judged.ready());
    for (planned, _) in unproven {
        let (client, apps, namespace) = match (planned.judged_on(), remote) {
            (JudgedOn::Management, _) => (&ctx.client, &ctx.stores.apps, &owner.namespace),
            (JudgedOn::Workload, Some(remote)) => {
                (&remote.client, &remote.apps, &ctx.settings.system_namespace)
            }
            (JudgedOn::Workload, None) => continue,
        };
        let key = ObjectRef::new(&planned.install_name).within(namespace);
        let stuck = apps
            .get(&key)
            .is_some_and(|app| is_underway(&app) && ctx.is_quiet(&owner.uid, &app));
        if !stuck {
            continue;
        }
        let touched =
            json!({"metadata": {"annotations": {annotation::ASKED_AGAIN_AT: Timestamp::now().to_string()}}});
        let asked = Api::<Secret>::namespaced(client.clone(), namespace)
            .patch_metadata(
                &planned.secret_name,
                &PatchParams::default(),
                &Patch::Merge(&touched),
            )
            .await;
        let app = &planned.install_name;
        match asked {
            Ok(_) => info!(
                app,
                "Asked kapp-controller to work again on an App that does not move"
            ),
            Err(error) => info!(app, error = %chain(&error), "Asking kapp-controller to work again"),
        }
    }
}
