//! What the proof of a package rests on, read again before a gate opens: the word of kapp-controller, its values, its Package, and
//! their copies in the workload cluster. Secrets are not watched, and a watch of Packages may be behind.

use std::collections::HashMap;

use futures::{future::try_join_all, try_join};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use sluice_core::{
    bootstrap::{PackageFacts, packages},
    build::{self, Owner, Repair},
    proof::JudgedOn,
};
use sluice_crds::{
    foreign::{App, Package, PackageInstall},
    run::{ClusterBootstrapPackage, ClusterBootstrapSpec},
};

use super::{Context, targets::Planned, values};
use crate::remote::Remote;

/// PackageInstall and App, as they are on the workload API server.
pub(super) type Fresh = (Option<PackageInstall>, Option<App>);

/// The UID of the workload, and the objects of each package that kapp-controller works on there, by the name of its PackageInstall.
///
/// # Errors
/// The workload API server does not answer.
pub(super) async fn read<'a>(
    remote: &Remote,
    namespace: &str,
    planned: &'a [Planned],
) -> kube::Result<(String, HashMap<&'a str, Fresh>)> {
    let uid = remote.read_uid().await?;
    let installs = Api::<PackageInstall>::namespaced(remote.client.clone(), namespace);
    let apps = Api::<App>::namespaced(remote.client.clone(), namespace);
    let on_workload = planned
        .iter()
        .filter(|planned| planned.judged_on() == JudgedOn::Workload);
    // By name: what others keep there may be more than is read of a list.
    let reads = on_workload.map(async |planned| {
        let name = planned.install_name.as_str();
        let fresh = try_join!(installs.get_opt(name), apps.get_opt(name))?;
        Ok::<_, kube::Error>((name, fresh))
    });
    Ok((uid, try_join_all(reads).await?.into_iter().collect()))
}

/// The first package of `planned` that is not any more what was planned from `spec`.
///
/// # Errors
/// One of the two API servers does not answer.
pub(super) async fn changed<'a>(
    ctx: &Context,
    owner: &Owner,
    remote: &Remote,
    spec: &ClusterBootstrapSpec,
    planned: &'a [Planned],
) -> kube::Result<Option<&'a str>> {
    let asked = packages(spec);
    let looks = planned
        .iter()
        .zip(&asked)
        .map(async |(planned, (_, package))| is_as_planned(ctx, owner, remote, package, planned).await);
    let same = try_join_all(looks).await?;
    let changed = planned.iter().zip(same).find(|(_, same)| !same);
    Ok(changed.map(|(planned, _)| planned.package_name.as_str()))
}

async fn is_as_planned(
    ctx: &Context,
    owner: &Owner,
    remote: &Remote,
    package: &ClusterBootstrapPackage,
    planned: &Planned,
) -> kube::Result<bool> {
    let system = &ctx.settings.system_namespace;
    let values = values::read(&ctx.client, &owner.namespace, planned.role, package).await?;
    if values.as_ref() != Ok(&planned.values) {
        return Ok(false);
    }
    let sources = Api::<Package>::namespaced(ctx.client.clone(), system);
    let Some(source) = sources.get_opt(&planned.package_name).await? else {
        return Ok(false);
    };
    if PackageFacts::of(&source) != planned.facts {
        return Ok(false);
    }
    let on_management = planned.judged_on() == JudgedOn::Management;
    let client = if on_management {
        &ctx.client
    } else {
        &remote.client
    };
    let namespace = planned.namespace(owner, system);
    let wanted = planned.values_secret(owner, system);
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let secret = secrets.get_opt(&planned.secret_name).await?;
    if !secret.is_some_and(|found| build::repair_values_secret(&wanted, &found) == Repair::NotNeeded) {
        return Ok(false);
    }
    if on_management {
        return Ok(true);
    }
    let copies = Api::<Package>::namespaced(client.clone(), namespace);
    let copy = copies.get_opt(&planned.package_name).await?;
    // By what it is chosen need not be confirmed: it was.
    Ok(copy.is_some_and(|found| PackageFacts::of(&found) == planned.facts))
}

#[cfg(test)]
mod tests;
