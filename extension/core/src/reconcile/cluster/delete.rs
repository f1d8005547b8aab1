//! Deletion of a Cluster: additional packages are uninstalled while its infrastructure still exists.

use kube::ResourceExt;
use sluice_crds::{
    foreign::{PackageInstall, condition},
    labels::annotation,
    run::{ClusterBootstrap, Hook, UpgradeRecord},
};

use super::{
    Context, Done, Interrupt, ReadPhase, Server, Step,
    context::typed,
    effects::Effects,
    failure::{silent, unanswered},
    interrupt::in_order,
    management,
    read::{Key, Read},
    status, workload,
    write::Write,
};
use crate::{
    names,
    packages::build::Owner,
    reasons::{GateReason, Hold},
};

/// Uninstalls additional packages, then releases the deletion.
pub(super) fn delete(context: &Context<'_>, effects: &mut Effects) -> Step<Done> {
    let facts = context.facts;
    // Cluster API does not continue a paused Cluster either, and `clusterctl move` deletes paused Clusters that live on. No reconcile
    // would observe the end of the Cluster, and a connection would stay open.
    let Some(bootstrap) = facts.bootstrap.as_deref().filter(|_| !facts.cluster().paused) else {
        return Ok(Done::Forget);
    };
    let waiting = if is_uninstalled(facts.record()) {
        None
    } else {
        uninstall(context, effects, bootstrap)?
    };
    status::deleting(context, effects, bootstrap, waiting.as_ref())?;
    Ok(if waiting.is_some() {
        // Watches of the workload show the progress.
        Done::RequeueAfter(effects.local.wait(&facts.owner.uid, context.began.instant))
    } else {
        Done::Forget
    })
}

/// Whether the record has released the deletion.
fn is_uninstalled(record: Option<&UpgradeRecord>) -> bool {
    let mut gates = record.into_iter().flat_map(|record| &record.gates);
    gates.any(|gate| gate.hook == Hook::BeforeClusterDelete && gate.open)
}

/// Deletes the PackageInstalls of additional packages. Returns the hold of the deletion; `None` once none is left.
fn uninstall(
    context: &Context<'_>,
    effects: &mut Effects,
    bootstrap: &ClusterBootstrap,
) -> Step<Option<Hold>> {
    let names = additional(&context.facts.owner, bootstrap);
    if names.is_empty() || management::is_left_alone(context)? {
        return Ok(None);
    }
    if let Err(stop) = workload::connect(context, &context.facts.owner, Read::Connection) {
        let hold = stop.held()?;
        effects.disconnect = true;
        // A workload that was never reachable has nothing to uninstall.
        return Ok(Some(hold).filter(|hold| hold.reason != GateReason::KubeconfigNotFound));
    }
    // The kubeconfig may lead to the management API server, whose PackageInstalls of these names belong to others.
    match server(context) {
        Ok(ServerOf::Workload) => {}
        Ok(ServerOf::Management) => return Ok(None),
        Err(Interrupt::Held(hold)) => return Ok(Some(hold)),
        Err(stop) => return stop.failed().map(|failure| Some(silent(&failure))),
    }
    let listed = match context.listed(Read::Installs) {
        Ok(listed) => listed,
        Err(Interrupt::Failed(failure)) if failure.is_not_found() => return Ok(None),
        Err(stop) => return stop.failed().map(|failure| Some(silent(&failure))),
    };
    let system = &context.facts.settings.system_namespace;
    let installs = listed
        .iter()
        .map(|install| typed::<PackageInstall, _>(Server::Workload, &install.0))
        .collect::<Step<Vec<_>>>()?;
    let mut running = installs
        .iter()
        .filter(|install| {
            let conditions = install.status.as_ref().map(|status| &status.conditions);
            names.contains(&install.name_any())
                && !conditions.is_some_and(|conditions| condition::is_true(conditions, "DeleteFailed"))
        })
        .peekable();
    let waiting = running.peek().map(|install| {
        let message = format!(
            "waiting for PackageInstall {} to be uninstalled",
            install.name_any()
        );
        Hold::new(GateReason::UninstallInProgress, message)
    });
    let deleted = in_order(running.map(|install| {
        if install.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let key = Key::of::<PackageInstall>(Server::Workload, Some(system), &install.name_any());
        let delete = Write::delete(key, install.uid(), "the Cluster is being deleted");
        context.write(delete).map(drop)
    }));
    match deleted {
        Ok(()) => Ok(waiting),
        Err(stop) => stop.failed().map(|failure| Some(silent(&failure))),
    }
}

/// Cluster behind a kubeconfig.
enum ServerOf {
    Workload,
    Management,
}

/// Returns the cluster that the kubeconfig leads to.
///
/// # Errors
/// Returns a [`Hold`] for a server whose packages must not be uninstalled.
fn server(context: &Context<'_>) -> Step<ServerOf> {
    let namespace = context.object(Key::kube_system(), ReadPhase::Plan)?;
    let uid = namespace.and_then(|namespace| namespace["metadata"]["uid"].as_str());
    let uid = uid.ok_or_else(|| unanswered(None))?;
    if let Some(hold) = management::refused(context, uid)? {
        return Err(hold.into());
    }
    let is_own = context.facts.management_uid.as_deref() == Some(uid);
    Ok(if is_own {
        ServerOf::Management
    } else {
        ServerOf::Workload
    })
}

/// Returns the names of the PackageInstalls to uninstall. Core packages and those on the skip list vanish with the workload cluster.
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
