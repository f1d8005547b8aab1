//! Step 4: writes, in the documented order. kapp-controller first and alone, because it is what installs the others.

use k8s_openapi::api::{
    core::v1::{Namespace, Secret, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, ResourceExt, runtime::reflector::ObjectRef};
use sluice_core::{
    bootstrap::{Draft, ValuesClone},
    build::{self, Identity, Install, Owner, Place},
    hold::{Hold, HoldReason},
};
use sluice_crds::{
    foreign::{Package, PackageInstall},
    labels::annotation,
    run::ClusterBootstrap,
};

use super::{
    Context, Error,
    targets::Planned,
    values,
    write::{apply, create, params, put},
};
use crate::remote::Remote;

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

/// The PackageInstall of kapp-controller, beside the Cluster.
pub(super) async fn on_management(ctx: &Context, owner: &Owner, planned: &Planned) -> Result<(), Error> {
    let wanted = build::install(
        owner,
        &planned.install(Place::Management, &ctx.settings.sync_period_text()),
    );
    let key = ObjectRef::new(&planned.install_name).within(&owner.namespace);
    if ctx
        .stores
        .installs
        .get(&key)
        .is_some_and(|found| build::same_install(&wanted, &found))
    {
        return Ok(());
    }
    let client = &ctx.client;
    let values = build::values_secret(
        owner,
        &planned.secret_name,
        &owner.namespace,
        &planned.package_name,
        &planned.values,
        true,
    );
    create(
        &Api::<Secret>::namespaced(client.clone(), &owner.namespace),
        &values,
    )
    .await?;
    apply(
        &Api::<PackageInstall>::namespaced(client.clone(), &owner.namespace),
        &wanted,
    )
    .await?;
    Ok(())
}

/// One package inside the workload cluster: its Package, its values, its PackageInstall.
pub(super) async fn on_workload(
    ctx: &Context,
    owner: &Owner,
    remote: &Remote,
    planned: &Planned,
) -> Result<(), Error> {
    let namespace = &ctx.settings.system_namespace;
    remote
        .prepared(async || identity(remote, namespace).await)
        .await?;

    let source = ctx
        .stores
        .packages
        .get(&ObjectRef::new(&planned.package_name).within(namespace));
    let content = source
        .as_ref()
        .and_then(|source| serde_json::to_string(&source.spec).ok())
        .unwrap_or_default();
    if let Some(source) = source.filter(|_| !remote.is_copied(&planned.package_name, &content)) {
        let api = Api::<Package>::namespaced(remote.client.clone(), namespace);
        put(&api, &build::package(&source, namespace), build::same_package).await?;
        remote.set_copied(&planned.package_name, content);
    }

    let wanted = build::install(
        owner,
        &planned.install(Place::Workload(namespace), &ctx.settings.sync_period_text()),
    );
    let key = ObjectRef::new(&planned.install_name).within(namespace);
    if remote
        .installs
        .get(&key)
        .is_some_and(|found| build::same_install(&wanted, &found))
    {
        return Ok(());
    }
    let values = build::values_secret(
        owner,
        &planned.secret_name,
        namespace,
        &planned.package_name,
        &planned.values,
        false,
    );
    create(
        &Api::<Secret>::namespaced(remote.client.clone(), namespace),
        &values,
    )
    .await?;
    apply(
        &Api::<PackageInstall>::namespaced(remote.client.clone(), namespace),
        &wanted,
    )
    .await?;
    Ok(())
}

async fn identity(remote: &Remote, namespace: &str) -> kube::Result<()> {
    let client = || remote.client.clone();
    let Identity {
        namespace: system,
        service_account,
        cluster_role,
        cluster_role_binding,
    } = build::identity(namespace);
    create(&Api::<Namespace>::all(client()), &system).await?;
    create(
        &Api::<ServiceAccount>::namespaced(client(), namespace),
        &service_account,
    )
    .await?;
    create(&Api::<ClusterRole>::all(client()), &cluster_role).await?;
    create(&Api::<ClusterRoleBinding>::all(client()), &cluster_role_binding).await?;
    Ok(())
}

impl Planned {
    fn install<'a>(&'a self, place: Place<'a>, sync_period: &'a str) -> Install<'a> {
        Install {
            name: &self.install_name,
            place,
            ref_name: &self.facts.ref_name,
            version: &self.facts.version,
            values: &self.secret_name,
            sync_period,
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
