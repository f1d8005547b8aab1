//! The deletion of a Cluster: additional packages are uninstalled while its infrastructure is still there.

use kube::{Api, ResourceExt, api::ListParams, runtime::controller::Action};
use sluice_core::{
    build::Owner,
    hold::{Hold, HoldReason},
    names,
};
use sluice_crds::{
    foreign::{PackageInstall, condition},
    labels::annotation,
    run::{ClusterBootstrap, Hook, UpgradeRecord},
};

use super::{Context, Error, UNWATCHED, dereference::Found, update_status, workload};

/// Uninstalls, then lets the deletion go on.
pub(super) async fn run(ctx: &Context, found: &Found) -> Result<Action, Error> {
    let Some(bootstrap) = &found.bootstrap else {
        ctx.forget(&found.owner.uid);
        return Ok(Action::await_change());
    };
    // Cluster API does not go on with a paused Cluster either, and `clusterctl move` deletes paused ones that live on.
    if found.facts().paused {
        // No pass sees it go, and a connection would stay.
        ctx.forget(&found.owner.uid);
        return Ok(Action::await_change());
    }
    let waiting = if is_uninstalled(found.record()) {
        None
    } else {
        uninstall(ctx, &found.owner, bootstrap).await?
    };
    update_status::deleting(ctx, found, bootstrap, waiting.as_ref()).await?;
    if waiting.is_some() {
        return Ok(Action::requeue(UNWATCHED));
    }
    ctx.forget(&found.owner.uid);
    Ok(Action::await_change())
}

/// Whether the record has let the deletion go on.
fn is_uninstalled(record: Option<&UpgradeRecord>) -> bool {
    let mut gates = record.into_iter().flat_map(|record| &record.gates);
    gates.any(|gate| gate.hook == Hook::BeforeClusterDelete && gate.open)
}

/// Deletes the PackageInstalls of additional packages. `None` once nothing is left to wait for.
async fn uninstall(
    ctx: &Context,
    owner: &Owner,
    bootstrap: &ClusterBootstrap,
) -> Result<Option<Hold>, Error> {
    let names = additional(owner, bootstrap);
    if names.is_empty() {
        return Ok(None);
    }
    let remote = match workload::connect(ctx, owner).await? {
        Ok(remote) => remote,
        // A workload that was never reachable has nothing to uninstall.
        Err(hold) if hold.reason == HoldReason::KubeconfigNotFound => return Ok(None),
        Err(hold) => return Ok(Some(hold)),
    };
    let api = Api::<PackageInstall>::namespaced(remote.client.clone(), &ctx.settings.system_namespace);
    let unreachable = || {
        Hold::new(
            HoldReason::WorkloadUnreachable,
            "the workload API server does not answer",
        )
    };
    let listed = match api.list(&ListParams::default()).await {
        Ok(listed) => listed,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(_) => return Ok(Some(unreachable())),
    };
    let mut waiting = None;
    for install in listed
        .iter()
        .filter(|install| names.contains(&install.name_any()))
    {
        let conditions = install
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.conditions);
        if condition::is_true(conditions, "DeleteFailed") {
            continue;
        }
        if install.metadata.deletion_timestamp.is_none()
            && super::write::delete(&api, &install.name_any(), install.uid())
                .await
                .is_err()
        {
            return Ok(Some(unreachable()));
        }
        let message = || {
            format!(
                "waiting for PackageInstall {} to be uninstalled",
                install.name_any()
            )
        };
        waiting = waiting.or_else(|| Some(Hold::new(HoldReason::UninstallRunning, message())));
    }
    Ok(waiting)
}

/// Names of the PackageInstalls that are uninstalled. Packages on the skip list go with the cluster, and so do core ones.
fn additional(owner: &Owner, bootstrap: &ClusterBootstrap) -> Vec<String> {
    let skipped = bootstrap
        .annotations()
        .get(annotation::SKIP_PACKAGE_INSTALL_DELETION);
    let skipped: Vec<&str> = skipped
        .into_iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|prefix| !prefix.is_empty())
        .collect();
    bootstrap
        .spec
        .additional_packages
        .iter()
        .filter(|package| !skipped.iter().any(|prefix| package.ref_name.starts_with(prefix)))
        .filter_map(|package| names::package_install(&owner.name, &package.ref_name).ok())
        .collect()
}
