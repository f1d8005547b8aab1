//! Step 4: writes, in the documented order. kapp-controller first and alone, because it is what installs the others.

use futures::try_join;
use k8s_openapi::api::{
    core::v1::{Namespace, Secret, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, Client, ResourceExt, runtime::reflector::ObjectRef};
use sluice_core::{
    bootstrap::{Draft, ValuesClone},
    build::{self, Identity, Install, Owner, Place},
    hold::{Hold, HoldReason},
};
use sluice_crds::{
    foreign::{App, Package, PackageInstall, packaging::TemplateTool},
    labels::annotation,
    run::ClusterBootstrap,
};

use super::{
    Context, Error,
    targets::Planned,
    values,
    write::{create, ensure, install, is_right, params},
};
use crate::remote::{Need, Remote};

/// Writes a drafted ClusterBootstrap: its clones first, so that it never refers to what does not exist.
pub(super) async fn draft(
    ctx: &Context,
    owner: &Owner,
    current: Option<&ClusterBootstrap>,
    release: &str,
    draft: Draft,
) -> Result<Result<ClusterBootstrap, Hold>, Error> {
    for clone in draft.clones {
        if let Err(hold) = write_clone(ctx, owner, clone).await? {
            return Ok(Err(hold));
        }
    }
    let api = Api::<ClusterBootstrap>::namespaced(ctx.client.clone(), &owner.namespace);
    let written = match current {
        None => {
            api.create(&params(), &build::bootstrap(owner, draft.spec, release))
                .await
        }
        Some(current) => {
            let mut next = ClusterBootstrap {
                spec: draft.spec,
                ..current.clone()
            };
            let mark = (annotation::RESOLVED_TKR.to_owned(), release.to_owned());
            next.annotations_mut().extend([mark]);
            api.replace(&owner.name, &params(), &next).await
        }
    };
    written.map(Ok).map_err(Error::from)
}

async fn write_clone(ctx: &Context, owner: &Owner, clone: ValuesClone) -> Result<Result<(), Hold>, Error> {
    let (name, package, content) = match clone {
        ValuesClone::Inline {
            secret,
            package,
            values,
        } => (secret, package, build::inline_document(&values)),
        ValuesClone::Secret { from, to, package } => {
            let system = &ctx.settings.system_namespace;
            let Some(found) = Api::<Secret>::namespaced(ctx.client.clone(), system)
                .get_opt(&from)
                .await?
            else {
                return Ok(Err(Hold::new(
                    HoldReason::ValuesNotFound,
                    format!("Secret {system}/{from} with the values of package {package} does not exist"),
                )));
            };
            (to, package, values::content(&found))
        }
    };
    let secret = build::clone_secret(owner, &name, &package, &content);
    // One that exists was put there by the user, or by an earlier try: it wins.
    create(&Api::namespaced(ctx.client.clone(), &owner.namespace), &secret).await?;
    Ok(Ok(()))
}

/// The PackageInstall of kapp-controller, beside the Cluster, and its values. `remote` remembers when they were looked at. Says
/// whether the values were not what the PackageInstall, as it is, asks for.
pub(super) async fn on_management(
    ctx: &Context,
    owner: &Owner,
    remote: &Remote,
    planned: &Planned,
    need: Need,
) -> Result<bool, Error> {
    let namespace = &owner.namespace;
    // Found before anything is written: what is written later must not replace what was written in between.
    let found = ctx
        .stores
        .installs
        .get(&ObjectRef::new(&planned.install_name).within(namespace));
    let altered = ensure_values(ctx, owner, remote, &ctx.client, planned, need).await?;
    let wanted = build::install(owner, &planned.install(Place::Management));
    let installs = Api::namespaced(ctx.client.clone(), namespace);
    install(&installs, &wanted, found.as_deref()).await?;
    Ok(altered)
}

/// The Secret with the values of a package, on the server of `client`. Says whether it was altered since it was named.
///
/// One that is named may be what was deployed. It stays as it is until another one is named, so that it is found again where the
/// record of this pass is not written.
async fn ensure_values(
    ctx: &Context,
    owner: &Owner,
    remote: &Remote,
    client: &Client,
    planned: &Planned,
    need: Need,
) -> kube::Result<bool> {
    let system = &ctx.settings.system_namespace;
    let namespace = planned.namespace(owner, system);
    let values = planned.values_secret(owner, system);
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    // Its name carries cluster, package and digest, and a package is on one server only.
    let thing = format!("Secret {}", planned.secret_name);
    let look = async || is_right(&secrets, &values, build::repair_values_secret).await;
    let mend = async || {
        if is_named(client, namespace, planned).await? {
            return Ok(true);
        }
        ensure(&secrets, &values, build::repair_values_secret).await?;
        Ok(false)
    };
    remote.ensured(&thing, "", need, look, mend).await
}

/// Whether the PackageInstall or the App of a package, as the server has them, names its values Secret.
async fn is_named(client: &Client, namespace: &str, planned: &Planned) -> kube::Result<bool> {
    let installs = Api::<PackageInstall>::namespaced(client.clone(), namespace);
    let apps = Api::<App>::namespaced(client.clone(), namespace);
    let name = &planned.install_name;
    let (install, app) = try_join!(installs.get_opt(name), apps.get_opt(name))?;
    let of_install = install.iter().flat_map(|install| &install.spec.values);
    let mut of_install = of_install.filter_map(|values| values.secret_ref.as_ref());
    let tools = app.iter().flat_map(|app| app.spec.template_tools());
    let mut of_app = tools.flat_map(TemplateTool::secrets);
    Ok(of_install.any(|secret| secret.name == planned.secret_name)
        || of_app.any(|secret| secret == planned.secret_name))
}

/// One package inside the workload cluster: the identity that installs it, its Package, its values, its PackageInstall.
///
/// What the PackageInstall needs is looked at for as long as there is a `need`: kapp-controller cannot do without, and nothing else
/// restores what is deleted or edited by hand. Says whether its Package or its values were not what the PackageInstall, as it
/// is, asks for.
pub(super) async fn on_workload(
    ctx: &Context,
    owner: &Owner,
    remote: &Remote,
    planned: &Planned,
    need: Need,
) -> Result<bool, Error> {
    let namespace = &ctx.settings.system_namespace;
    let client = || remote.client.clone();
    // Found before anything is written: what is written later must not replace what was written in between.
    let found = remote
        .installs
        .get(&ObjectRef::new(&planned.install_name).within(namespace));
    let identity = IdentityApis::new(remote, namespace);
    remote
        .ensured(
            "identity",
            "",
            need,
            async || identity.is_right().await,
            async || identity.ensure().await,
        )
        .await?;

    let source = ctx
        .stores
        .packages
        .get(&ObjectRef::new(&planned.package_name).within(namespace));
    let wanted = build::install(owner, &planned.install(Place::Workload(namespace)));
    let found = found.as_deref();
    let mut altered = false;
    if let Some(source) = source {
        let copy = build::package(&source, namespace);
        // Changes at least as often as the content, which may be large and is looked at in each pass.
        let content = source.resource_version().unwrap_or_default();
        let packages = Api::<Package>::namespaced(client(), namespace);
        let thing = format!("Package {}", planned.package_name);
        let look = async || is_right(&packages, &copy, build::repair_package).await;
        let mend = async || ensure(&packages, &copy, build::repair_package).await;
        let written = remote.ensured(&thing, &content, need, look, mend).await?;
        // For a PackageInstall that asks for another one it is new.
        altered = written && found.is_some_and(|found| build::asks_for(found, &wanted));
    }

    altered |= ensure_values(ctx, owner, remote, &remote.client, planned, need).await?;
    let installs = Api::<PackageInstall>::namespaced(client(), namespace);
    install(&installs, &wanted, found).await?;
    Ok(altered)
}

/// What packages are installed with, and where it is.
struct IdentityApis {
    wanted: Identity,
    namespaces: Api<Namespace>,
    accounts: Api<ServiceAccount>,
    roles: Api<ClusterRole>,
    bindings: Api<ClusterRoleBinding>,
}

impl IdentityApis {
    fn new(remote: &Remote, namespace: &str) -> Self {
        let client = || remote.client.clone();
        Self {
            wanted: build::identity(namespace),
            namespaces: Api::all(client()),
            accounts: Api::namespaced(client(), namespace),
            roles: Api::all(client()),
            bindings: Api::all(client()),
        }
    }

    async fn is_right(&self) -> kube::Result<bool> {
        let wanted = &self.wanted;
        let right = try_join!(
            is_right(&self.namespaces, &wanted.namespace, build::exists),
            is_right(&self.accounts, &wanted.service_account, build::exists),
            is_right(&self.roles, &wanted.cluster_role, build::repair_role),
            is_right(
                &self.bindings,
                &wanted.cluster_role_binding,
                build::repair_binding
            ),
        )?;
        Ok(right == (true, true, true, true))
    }

    async fn ensure(&self) -> kube::Result<bool> {
        let wanted = &self.wanted;
        let mut written = ensure(&self.namespaces, &wanted.namespace, build::exists).await?;
        written |= ensure(&self.accounts, &wanted.service_account, build::exists).await?;
        written |= ensure(&self.roles, &wanted.cluster_role, build::repair_role).await?;
        written |= ensure(
            &self.bindings,
            &wanted.cluster_role_binding,
            build::repair_binding,
        )
        .await?;
        Ok(written)
    }
}

impl Planned {
    fn install<'a>(&'a self, place: Place<'a>) -> Install<'a> {
        Install {
            name: &self.install_name,
            place,
            ref_name: &self.facts.ref_name,
            version: &self.facts.version,
            values: &self.secret_name,
            sync_period: &self.sync_period,
        }
    }
}

/// Removes the values Secrets of earlier versions and stages from the workload.
pub(super) async fn tidy(
    ctx: &Context,
    owner: &Owner,
    remote: &Remote,
    planned: &[Planned],
) -> Result<(), Error> {
    let selector = format!("{}={}", sluice_crds::labels::label::CLUSTER_NAME, owner.name);
    let api = Api::<Secret>::namespaced(remote.client.clone(), &ctx.settings.system_namespace);
    let listed = api
        .list_metadata(&kube::api::ListParams::default().labels(&selector))
        .await?;
    for secret in listed {
        let name = secret.name_any();
        let current = planned.iter().any(|planned| planned.secret_name == name);
        let ours = planned
            .iter()
            .any(|planned| name.starts_with(&planned.secret_prefix));
        if ours && !current {
            super::write::delete(&api, &name, secret.uid()).await?;
        }
    }
    Ok(())
}
