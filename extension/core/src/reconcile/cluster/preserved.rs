//! PackageInstalls of the addons-manager, kept on a settled Cluster while they request the planned packages.
//!
//! They differ from those of Sluice in their sync period and in their values Secret, whose name is fixed. They do not show which values
//! were deployed: their judgement is informational and releases no Machine (`record::may_keep`). With the next change of the Cluster
//! they get Secrets named after their content, and keep their UID.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use sluice_crds::{foreign::PackageInstall, labels::name, run::UpgradeRecord};

use super::{Context, ReadPhase, Server, Step, interrupt::together, plan::Planned, values::content};
use crate::{
    digest::differs_in_template_only,
    migration::{are_empty, same_values},
    names,
    packages::{
        bootstrap::Role,
        build::{LackedFields, Values, specs_match, with_tkgs_values},
    },
};

/// Fields of a PackageInstall made by the addons-manager.
struct KeepableFields {
    /// Name of its values Secret; empty for none.
    secret: String,
    sync_period: String,
}

impl Planned {
    fn keep(&mut self, made: KeepableFields) {
        self.is_kept = true;
        self.digest.clone_from(&self.kept_digest);
        (self.secret_name, self.sync_period) = (made.secret, made.sync_period);
    }

    /// Plans the PackageInstall as Sluice makes it.
    fn make(&mut self) {
        self.is_kept = false;
        let own = self.own.clone();
        (self.digest, self.secret_name, self.sync_period) = (own.digest, own.secret_name, own.sync_period);
    }
}

/// Keeps the packages of `planned` that the record marks as kept.
pub(super) fn by_record(record: Option<&UpgradeRecord>, may_keep: bool, planned: &mut [Planned]) {
    let Some(record) = record.filter(|_| may_keep) else {
        return;
    };
    for planned in planned {
        let recorded = record
            .packages
            .iter()
            .find(|package| package.name == names::short(&planned.facts.ref_name));
        let digest = recorded.map_or("", |package| &package.values_digest);
        if digest == planned.kept_digest || differs_in_template_only(digest, &planned.kept_digest) {
            // The PackageInstall names the actual Secret, once it is read.
            let (secret, sync_period) = (planned.secret_name.clone(), planned.sync_period.clone());
            planned.keep(KeepableFields { secret, sync_period });
        }
    }
}

/// Decides which packages of `planned` are kept, by reads from the API servers. Without a connection to the workload, its packages keep
/// the decision of the record.
///
/// kapp-controller comes first: its change redeploys all packages that it installs.
pub(super) fn compare_servers(
    context: &Context<'_>,
    may_keep: bool,
    connected: bool,
    planned: &mut [Planned],
) -> Step<()> {
    if !may_keep {
        planned.iter_mut().for_each(Planned::make);
        return Ok(());
    }
    let each = planned.iter().map(|planned| match planned.server() {
        Server::Workload if !connected => Ok(None),
        _ => read_keepable_fields(context, planned),
    });
    let each: Vec<Option<KeepableFields>> = together(each)?.into_iter().collect::<Step<_>>()?;
    let mut installer_stays = true;
    for (planned, made) in planned.iter_mut().zip(each) {
        match made {
            _ if planned.server() == Server::Workload && !connected => {}
            Some(made) if installer_stays => planned.keep(made),
            _ => planned.make(),
        }
        installer_stays &= planned.role != Role::KappController || planned.is_kept;
    }
    Ok(())
}

/// Returns the fields of the current PackageInstall, if it may be kept.
fn read_keepable_fields(context: &Context<'_>, planned: &Planned) -> Step<Option<KeepableFields>> {
    let facts = context.facts;
    let namespace = planned.namespace(&facts.owner, &facts.settings.system_namespace);
    let watched = context.watched(planned.server(), &planned.install_name)?;
    let install = match &watched.install {
        Some(install) => Some(Arc::clone(install)),
        // The watch is not filled yet, and an existing PackageInstall must not count as missing.
        None if !watched.filled => {
            let at = (planned.server(), Some(namespace));
            let found: Option<PackageInstall> = context.read(&planned.install_name, at, ReadPhase::Plan)?;
            found.map(Arc::new)
        }
        None => None,
    };
    let Some(install) = install else {
        return Ok(None);
    };
    let Some(made) = keepable_fields(context, planned, &install)? else {
        return Ok(None);
    };
    let is_right = right_values(
        context,
        planned,
        (&made.secret, planned.values()?),
        ReadPhase::Plan,
    )?;
    Ok(is_right.then_some(made))
}

/// Keeps `install` in `planned` if its own fields allow it. Returns whether they do.
pub(super) fn keep(context: &Context<'_>, planned: &mut Planned, install: &PackageInstall) -> Step<bool> {
    let made = keepable_fields(context, planned, install)?;
    let stays = made.is_some();
    if let Some(made) = made {
        planned.keep(made);
    }
    Ok(stays)
}

/// Returns the fields of `install`, if the addons-manager made it and it matches `planned` apart from its values Secret.
fn keepable_fields(
    context: &Context<'_>,
    planned: &Planned,
    install: &PackageInstall,
) -> Step<Option<KeepableFields>> {
    if planned.repairs > 0
        || install.metadata.deletion_timestamp.is_some()
        || is_of_another_cluster(install, &context.facts.owner.uid)
    {
        return Ok(None);
    }
    let secret = match install.spec.values.as_slice() {
        // The addons-manager named no Secret for a package without values.
        [] => are_empty(planned.values()?).then(String::new),
        _ => fixed_secret(context, planned, install),
    };
    let Some((secret, sync_period)) = secret.zip(install.spec.sync_period.clone()) else {
        return Ok(None);
    };
    let mut wanted = planned.install(context.facts);
    wanted.spec.sync_period = Some(sync_period.clone());
    wanted.spec.values.clone_from(&install.spec.values);
    Ok(specs_match(install, &wanted).then_some(KeepableFields { secret, sync_period }))
}

/// Whether the PackageInstall belongs to an earlier Cluster with the same name, and not to the one with this UID.
pub(super) fn is_of_another_cluster(install: &PackageInstall, uid: &str) -> bool {
    let owners = install.metadata.owner_references.iter().flatten();
    let mut clusters = owners
        .filter(|owner| owner.kind == "Cluster" && owner.api_version.starts_with("cluster.x-k8s.io/"))
        .peekable();
    clusters.peek().is_some() && clusters.all(|owner| owner.uid != uid)
}

/// Returns the only values Secret of `install`, if its name follows the scheme of the addons-manager.
pub(super) fn fixed_secret(
    context: &Context<'_>,
    planned: &Planned,
    install: &PackageInstall,
) -> Option<String> {
    let [values] = install.spec.values.as_slice() else {
        return None;
    };
    let secret = values.secret_ref.as_ref().filter(|secret| secret.key.is_none())?;
    let (cluster, package) = (&context.facts.owner.name, &planned.facts.ref_name);
    let of_workload = names::provider_values_secret(cluster, package);
    // The PackageInstall of kapp-controller is on the management cluster and names the values source itself.
    let of_management = names::clone(cluster, package);
    let is = |name: Result<String, _>| name.is_ok_and(|name: String| name == secret.name);
    let is_fixed = is(of_workload) || planned.server() == Server::Management && is(of_management);
    is_fixed.then(|| secret.name.clone())
}

/// Whether the Secret of a kept PackageInstall has the planned `values`.
pub(super) fn has_right_values(
    context: &Context<'_>,
    planned: &Planned,
    values: &Values,
    phase: ReadPhase,
) -> Step<bool> {
    right_values(context, planned, (&planned.secret_name, values), phase)
}

fn right_values(
    context: &Context<'_>,
    planned: &Planned,
    (secret, values): (&str, &Values),
    phase: ReadPhase,
) -> Step<bool> {
    if secret.is_empty() {
        return Ok(true);
    }
    let facts = context.facts;
    let namespace = planned.namespace(&facts.owner, &facts.settings.system_namespace);
    let found = context.read::<Secret>(secret, (planned.server(), Some(namespace)), phase)?;
    Ok(found.is_some_and(|found| has_values(planned, values, content(&found))))
}

/// Whether the addons-manager wrote `found` for `planned` with these `values`. On a Supervisor it wrote also those that the Package lacks,
/// and its empty values beside them.
fn has_values(planned: &Planned, values: &Values, found: Values) -> bool {
    let Some(release) = &planned.on_supervisor else {
        return same_values(values, &found);
    };
    let with_all = with_tkgs_values(values.clone(), release, LackedFields::default());
    let found = without_empty_values(found);
    let wanted = [values.clone(), with_all];
    wanted
        .into_iter()
        .any(|wanted| same_values(&without_empty_values(wanted), &found))
}

/// Returns values without empty ones beside those for a Supervisor.
fn without_empty_values(mut values: Values) -> Values {
    let mut own = values.clone();
    if own.remove(name::TKGS_VALUES_KEY).is_some() && are_empty(&own) {
        values.retain(|key, _| key == name::TKGS_VALUES_KEY);
    }
    values
}

#[cfg(test)]
mod tests;
