//! A kapp-controller whose process ended leaves what it was deploying as it is for a whole sync period. It is asked again.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::reflector::ObjectRef,
};
use serde_json::json;
use sluice_core::proof::{JudgedOn, is_underway};
use sluice_crds::labels::annotation;
use tracing::info;

use super::{chain, packages::Packages};
use crate::remote::Remote;

/// Has kapp-controller work again on every App of the workload that says it is being deployed and has not moved for long: an
/// App is worked on at once when a Secret with its values changes. One that is only slow is deployed once more afterwards,
/// which changes nothing.
pub(super) async fn run(remote: &Remote, namespace: &str, packages: &Packages) {
    let unproven = packages
        .planned
        .iter()
        .zip(&packages.judged)
        .filter(|(planned, judged)| planned.judged_on() == JudgedOn::Workload && !judged.ready());
    for (planned, _) in unproven {
        let key = ObjectRef::new(&planned.install_name).within(namespace);
        let stuck = remote.apps.get(&key).is_some_and(|app| {
            let version = app.resource_version().unwrap_or_default();
            is_underway(&app) && remote.is_quiet(&planned.install_name, &version, Instant::now())
        });
        if !stuck {
            continue;
        }
        let touched =
            json!({"metadata": {"annotations": {annotation::ASKED_AGAIN_AT: Timestamp::now().to_string()}}});
        let asked = Api::<Secret>::namespaced(remote.client.clone(), namespace)
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
