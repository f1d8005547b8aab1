//! What the proof of a package rests on, read again before a gate opens: the word of kapp-controller, its values, its Package, and
//! their copies in the workload cluster; and the template that names the packages. Secrets are not watched, and a watch of Packages or
//! templates may be behind.

use std::collections::HashMap;

use futures::{future::try_join_all, try_join};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use serde_json::Value;
use sluice_core::{
    bootstrap::{PackageFacts, Role, packages},
    build::{self, Owner, Repair},
    proof::{JudgedOn, is_made_from},
};
use sluice_crds::{
    foreign::{App, Package, PackageInstall},
    run::{ClusterBootstrapPackage, ClusterBootstrapSpec, ClusterBootstrapTemplate},
};

use super::{Context, dereference, targets::Planned, values};
use crate::remote::Remote;

/// The UID of the workload, and the PackageInstall and App of each package, as the API servers have them.
pub(super) struct Fresh<'a> {
    pub(super) uid: String,
    pairs: HashMap<&'a str, Pair>,
}

/// PackageInstall and App of one package.
#[derive(Default)]
pub(super) struct Pair {
    pub(super) install: Option<PackageInstall>,
    pub(super) app: Option<App>,
    /// `spec` of the App, whole.
    app_spec: Value,
}

impl Pair {
    fn is_made_from(&self, package: &Package) -> bool {
        let install = self.install.as_ref();
        install.is_some_and(|install| is_made_from(&self.app_spec, package, install))
    }
}

impl Fresh<'_> {
    pub(super) fn of(&self, planned: &Planned) -> Option<&Pair> {
        self.pairs.get(planned.install_name.as_str())
    }
}

/// Reads the UID of the workload, and the objects of each package that are judged on the workload.
///
/// # Errors
/// The workload API server does not answer.
pub(super) async fn read_workload<'a>(
    remote: &Remote,
    namespace: &str,
    planned: &'a [Planned],
) -> kube::Result<Fresh<'a>> {
    let uid = remote.read_uid().await?;
    let pairs = pairs(&remote.client, namespace, planned, JudgedOn::Workload).await?;
    Ok(Fresh { uid, pairs })
}

/// Adds the objects of each package that are judged on the management cluster.
///
/// # Errors
/// The management API server does not answer.
pub(super) async fn read_management<'a>(
    client: &Client,
    namespace: &str,
    planned: &'a [Planned],
    fresh: &mut Fresh<'a>,
) -> kube::Result<()> {
    let more = pairs(client, namespace, planned, JudgedOn::Management).await?;
    fresh.pairs.extend(more);
    Ok(())
}

async fn pairs<'a>(
    client: &Client,
    namespace: &str,
    planned: &'a [Planned],
    on: JudgedOn,
) -> kube::Result<HashMap<&'a str, Pair>> {
    let installs = Api::<PackageInstall>::namespaced(client.clone(), namespace);
    let apps =
        Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &ApiResource::erase::<App>(&()));
    // By name: what others keep there may be more than is read of a list.
    let reads = planned
        .iter()
        .filter(|planned| planned.judged_on() == on)
        .map(async |planned| {
            let name = planned.install_name.as_str();
            let (install, app) = try_join!(installs.get_opt(name), apps.get_opt(name))?;
            let app_spec = app.as_ref().map_or(Value::Null, |app| app.data["spec"].clone());
            let typed = |app| serde_json::to_value(app).and_then(serde_json::from_value::<App>);
            let app = app.map(typed).transpose().map_err(kube::Error::SerdeError)?;
            Ok::<_, kube::Error>((
                name,
                Pair {
                    install,
                    app,
                    app_spec,
                },
            ))
        });
    Ok(try_join_all(reads).await?.into_iter().collect())
}

/// Whether the template of a release is what its watch has shown. It says which packages a gate waits for.
///
/// # Errors
/// The management API server does not answer.
pub(super) async fn is_template_current(ctx: &Context, release: &str) -> kube::Result<bool> {
    let namespace = &ctx.settings.system_namespace;
    let templates = Api::<ClusterBootstrapTemplate>::namespaced(ctx.client.clone(), namespace);
    let found = templates.get_opt(release).await?;
    Ok(found.map(|template| template.spec.0) == dereference::template(ctx, release))
}

/// What became of a package since it was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Its values or its Package are other ones.
    Changed,
    /// Nothing, but what was written for it is missing or says something else.
    Altered,
    /// Nothing, but its App is not made from the Package.
    NotMade,
    /// Nothing.
    AsPlanned,
}

/// Looks at each package of `planned`, which was planned from `spec`.
///
/// # Errors
/// One of the two API servers does not answer.
pub(super) async fn look(
    ctx: &Context,
    owner: &Owner,
    remote: &Remote,
    spec: &ClusterBootstrapSpec,
    planned: &[Planned],
    fresh: &Fresh<'_>,
) -> kube::Result<Vec<Look>> {
    let asked = packages(spec);
    let looks = planned.iter().map(async |planned| {
        // Not by its place: one that could not be planned may stand before it.
        let is_it = |(role, package): &&(Role, &ClusterBootstrapPackage)| {
            *role == planned.role && package.ref_name == planned.package_name
        };
        let Some((_, package)) = asked.iter().find(is_it) else {
            return Ok(Look::Changed);
        };
        let installed = installed(ctx, owner, remote, package, planned).await?;
        Ok::<_, kube::Error>(match installed {
            Err(look) => look,
            Ok(package) if fresh.of(planned).is_some_and(|pair| pair.is_made_from(&package)) => {
                Look::AsPlanned
            }
            Ok(_) => Look::NotMade,
        })
    });
    try_join_all(looks).await
}

/// The Package that `planned` is installed from, or how that or its values are not as planned.
async fn installed(
    ctx: &Context,
    owner: &Owner,
    remote: &Remote,
    package: &ClusterBootstrapPackage,
    planned: &Planned,
) -> kube::Result<Result<Package, Look>> {
    let system = &ctx.settings.system_namespace;
    let values = values::read(&ctx.client, &owner.namespace, planned.role, package).await?;
    if values.as_ref() != Ok(&planned.values) {
        return Ok(Err(Look::Changed));
    }
    let is_planned = |found: &Package| PackageFacts::of(found) == planned.facts;
    let sources = Api::<Package>::namespaced(ctx.client.clone(), system);
    let source = sources.get_opt(&planned.package_name).await?;
    let Some(source) = source.filter(is_planned) else {
        return Ok(Err(Look::Changed));
    };
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
        return Ok(Err(Look::Altered));
    }
    if on_management {
        return Ok(Ok(source));
    }
    let copies = Api::<Package>::namespaced(client.clone(), namespace);
    // By what it is chosen need not be confirmed: it was.
    let copy = copies.get_opt(&planned.package_name).await?.filter(is_planned);
    Ok(copy.ok_or(Look::Altered))
}

#[cfg(test)]
mod tests;
