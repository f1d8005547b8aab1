//! Objects of one package, in the order of their writes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};
use sluice_crds::foreign::{App, PackageInstall, packaging::TemplateTool};

use super::{
    Context, Interrupt, LocalState, ReadPhase, Server, Step,
    interrupt::{in_order, together},
    local_state::Need,
    management::Ownership,
    plan::Planned,
    preserved,
    read::{Key, Read},
    takeover::{LeftoverState, Thing},
    write::Write,
};
use crate::{
    digest::is_digest,
    packages::build::{self, Identity, Repair},
};

/// Ensures the objects that `planned` needs, and its PackageInstall. Sets `altered` if its Package or its values differ from those that
/// the current PackageInstall requests, also if a later step fails.
///
/// The needed objects are checked periodically, and more often while there is a `need`: kapp-controller depends on them, and nothing
/// else restores an object that a user deletes or edits.
pub(super) fn install(
    context: &Context<'_>,
    local: &mut LocalState,
    planned: &Planned,
    need: Need,
    altered: &mut bool,
) -> Step<()> {
    // A later write must not replace a change made after this observation.
    let found = context
        .watched(planned.server(), &planned.install_name)?
        .install
        .as_deref();
    let wanted = planned.install(context.facts);
    if planned.server() == Server::Workload {
        // Objects behind a gate are checked first, regardless of the identity.
        if !need.is_of_gate() {
            ensured_identity(context, local, need)?;
        }
        // For a PackageInstall that requests another Package, the copy is new.
        let asks_for_it = || found.is_some_and(|found| build::specs_match(found, &wanted));
        *altered |= ensured_copy(context, local, planned, need)? && asks_for_it();
    }
    *altered |= ensured_values(context, local, planned, need)?;
    if planned.server() == Server::Workload && need.is_of_gate() {
        ensured_identity(context, local, need)?;
    }
    match found {
        // The PackageInstall exists: it was read, and the watch will show it.
        None if planned.is_kept => Ok(()),
        found => {
            let fixed = found.filter(|_| !planned.is_kept).and_then(|found| {
                let secret = preserved::fixed_secret(context, planned, found)?;
                Some((found.resource_version().unwrap_or_default(), secret))
            });
            let Some((version, secret)) = fixed else {
                return write_install(context, planned.server(), &wanted, found);
            };
            let (now, period) = (context.began.instant, context.facts.settings.sync_period.length);
            let name = Thing::ValuesName(planned.install_name.clone());
            // Another client writes it as well, and the next reconcile reports that.
            if local.removals.seen(name.clone(), &version, period, now) == LeftoverState::Returned {
                return Ok(());
            }
            write_install(context, planned.server(), &wanted, found)?;
            local.removals.removed(name, version, now);
            // No other trace of its Secret remains: the addons-manager gave it no label.
            if planned.server() == Server::Workload {
                local.leave(secret);
            }
            Ok(())
        }
    }
}

/// An object that a package needs.
struct Needed<'a, K> {
    server: Server,
    wanted: &'a K,
    /// Returns the repair of an object that differs.
    repair: fn(&K, &K) -> Repair<K>,
}

/// Checks the objects `needed` behind `thing` with its `state`, once the check is due. Calls `mend` if they differ, and returns its
/// result: whether `thing` was altered. After an alteration or a failure, the next reconcile checks again. Without a response, the last
/// check behind a gate stays valid for a while.
fn ensured(
    local: &mut LocalState,
    context: &Context<'_>,
    (thing, state): (&str, &str),
    need: Need,
    needed: &[&dyn Ensure],
    mend: impl FnOnce(&dyn Fn() -> Step<bool>) -> Step<bool>,
) -> Step<bool> {
    let now = context.began.instant;
    if !local.is_due(thing, state, check_interval(context, need), now) {
        return Ok(false);
    }
    let right = match are_right(context, needed) {
        Err(Interrupt::Failed(failure))
            if failure.is_transient() && local.is_believed(thing, state, need, now) =>
        {
            return Ok(false);
        }
        outcome => outcome?,
    };
    let put_right = || {
        let mut made = needed.iter().map(|needed| needed.ensure(context));
        made.try_fold(false, |any, made| Ok(made? || any))
    };
    let altered = !right && mend(&put_right)?;
    if !altered {
        local.checked(thing, state, now);
    }
    Ok(altered)
}

fn check_interval(context: &Context<'_>, need: Need) -> Duration {
    need.check_interval(context.facts.settings.sync_period.length)
}

/// Ensures the identity that packages are installed with.
fn ensured_identity(context: &Context<'_>, local: &mut LocalState, need: Need) -> Step<bool> {
    with_identity(context, |needed| {
        ensured(local, context, ("identity", ""), need, needed, |put_right| {
            put_right()
        })
    })
}

fn with_identity<T>(context: &Context<'_>, make: impl FnOnce(&[&dyn Ensure]) -> T) -> T {
    let Identity {
        namespace,
        service_account,
        cluster_role,
        cluster_role_binding,
    } = build::identity(&context.facts.settings.system_namespace);
    make(&[
        &Needed::on_workload(&namespace, build::exists),
        &Needed::on_workload(&service_account, build::exists),
        &Needed::on_workload(&cluster_role, build::repair_role),
        &Needed::on_workload(&cluster_role_binding, build::repair_binding),
    ])
}

/// Whether the identity that packages are installed with exists and is correct.
pub(super) fn identity_is_right(context: &Context<'_>) -> Step<bool> {
    with_identity(context, |needed| are_right(context, needed))
}

fn are_right(context: &Context<'_>, needed: &[&dyn Ensure]) -> Step<bool> {
    let right = together(needed.iter().map(|needed| needed.is_right(context)))?;
    right.into_iter().try_fold(true, |all, right| Ok(right? && all))
}

/// Ensures the copy of the Package of `planned` in the workload.
fn ensured_copy(context: &Context<'_>, local: &mut LocalState, planned: &Planned, need: Need) -> Step<bool> {
    if !planned.is_copied {
        return Ok(false);
    }
    let Some(source) = context.package(&planned.package_name)? else {
        return Ok(false);
    };
    // The resourceVersion changes at least as often as the content, which may be large and is compared in each reconcile.
    let version = source.resource_version().unwrap_or_default();
    let thing = format!("Package {}", planned.package_name);
    if !local.is_due(
        &thing,
        &version,
        check_interval(context, need),
        context.began.instant,
    ) {
        return Ok(false);
    }
    let copy = build::package(source, &context.facts.settings.system_namespace);
    let needed = Needed::on_workload(&copy, build::repair_package);
    ensured(
        local,
        context,
        (&thing, &version),
        need,
        &[&needed],
        |put_right| {
            match need {
                // The record loses the proof before the write; until then each check finds the difference again.
                Need::OpenGate | Need::NextGate => Ok(true),
                Need::Proof | Need::Nothing => put_right(),
            }
        },
    )
}

/// Whether the copy of the Package of `planned` in the workload exists and is correct.
pub(super) fn copy_is_right(context: &Context<'_>, planned: &Planned) -> Step<bool> {
    if !planned.is_copied {
        return Ok(true);
    }
    let Some(source) = context.package(&planned.package_name)? else {
        return Ok(true);
    };
    let copy = build::package(source, &context.facts.settings.system_namespace);
    Needed::on_workload(&copy, build::repair_package).is_right(context)
}

/// Whether the Secret with the values of a package exists and is correct.
pub(super) fn values_are_right(context: &Context<'_>, planned: &Planned) -> Step<bool> {
    if planned.is_kept {
        return preserved::has_right_values(context, planned, planned.values()?, ReadPhase::Plan);
    }
    let facts = context.facts;
    let wanted = planned.values_secret(&facts.owner, &facts.settings.system_namespace, planned.values()?);
    needed_values(planned, &wanted).is_right(context)
}

fn needed_values<'a>(planned: &Planned, wanted: &'a Secret) -> Needed<'a, Secret> {
    Needed {
        server: planned.server(),
        wanted,
        repair: build::repair_values_secret,
    }
}

/// Ensures the Secret with the values of a package. Returns whether it was altered after the PackageInstall or the App named it.
///
/// A named Secret may be deployed. It stays unchanged until another one is named, so that the alteration is found again if the record
/// of this reconcile is not written.
fn ensured_values(
    context: &Context<'_>,
    local: &mut LocalState,
    planned: &Planned,
    need: Need,
) -> Step<bool> {
    // Kept values were read when the plan decided to keep them.
    if planned.is_kept {
        return Ok(false);
    }
    // The name carries Cluster, package and digest, and a package is on one server only.
    let thing = format!("Secret {}", planned.secret_name);
    // The values are read only for a check that is due.
    if !local.is_due(&thing, "", check_interval(context, need), context.began.instant) {
        return Ok(false);
    }
    let system = &context.facts.settings.system_namespace;
    let wanted = planned.values_secret(&context.facts.owner, system, planned.values()?);
    let needed = needed_values(planned, &wanted);
    ensured(local, context, (&thing, ""), need, &[&needed], |put_right| {
        if is_named(
            context,
            planned,
            (needed.server, wanted.metadata.namespace.as_deref()),
        )? {
            return Ok(true);
        }
        put_right()?;
        Ok(false)
    })
}

/// Whether the PackageInstall or the App of a package, read from the server, names its values Secret.
fn is_named(context: &Context<'_>, planned: &Planned, at: (Server, Option<&str>)) -> Step<bool> {
    let name = &planned.install_name;
    let (install, app) = pair(context, name, at, ReadPhase::Plan)?;
    let of_install = install.iter().flat_map(|install| &install.spec.values);
    let mut of_install = of_install.filter_map(|values| values.secret_ref.as_ref());
    let tools = app.iter().flat_map(|app| app.spec.template_tools());
    let mut of_app = tools.flat_map(TemplateTool::secrets);
    Ok(of_install.any(|secret| secret.name == planned.secret_name)
        || of_app.any(|secret| secret == planned.secret_name))
}

/// Reads PackageInstall and App of one name in one round.
pub(super) fn pair(
    context: &Context<'_>,
    name: &str,
    at: (Server, Option<&str>),
    phase: ReadPhase,
) -> Step<(Option<PackageInstall>, Option<App>)> {
    let (server, namespace) = at;
    let keys = [
        Key::of::<PackageInstall>(server, namespace, name),
        Key::of::<App>(server, namespace, name),
    ];
    together(keys.map(|key| context.object(key, phase)))?;
    Ok((context.read(name, at, phase)?, context.read(name, at, phase)?))
}

impl<'a, K> Needed<'a, K> {
    fn on_workload(wanted: &'a K, repair: fn(&K, &K) -> Repair<K>) -> Self {
        Self {
            server: Server::Workload,
            wanted,
            repair,
        }
    }
}

/// An object of any kind that a package needs.
trait Ensure {
    /// Whether the object exists and is correct.
    fn is_right(&self, context: &Context<'_>) -> Step<bool>;

    /// Creates a missing object and repairs an incorrect one. Returns whether it did either.
    fn ensure(&self, context: &Context<'_>) -> Step<bool>;
}

impl<K> Ensure for Needed<'_, K>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    fn is_right(&self, context: &Context<'_>) -> Step<bool> {
        let found = self.found(context)?;
        Ok(found.is_some_and(|found| matches!((self.repair)(self.wanted, &found), Repair::NotNeeded)))
    }

    fn ensure(&self, context: &Context<'_>) -> Step<bool> {
        const MISSING: &str = "required by a package";
        const ALTERED: &str = "differs from the object that a package requires";
        let (server, wanted) = (self.server, self.wanted);
        let Some(found) = self.found(context)? else {
            return context.create(Write::create(server, wanted, MISSING));
        };
        match (self.repair)(wanted, &found) {
            Repair::NotNeeded => return Ok(false),
            Repair::Replace(next) => drop(context.write(Write::replace(server, &*next, ALTERED))?),
            Repair::Recreate => {
                let key = Key::of::<K>(server, wanted.meta().namespace.as_deref(), &wanted.name_any());
                context.write(Write::delete(key, found.uid(), ALTERED))?;
                context.create(Write::create(server, wanted, MISSING))?;
            }
        }
        Ok(true)
    }
}

impl<K> Needed<'_, K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    fn found(&self, context: &Context<'_>) -> Step<Option<K>> {
        let at = (self.server, self.wanted.meta().namespace.as_deref());
        context.read::<K>(&self.wanted.name_any(), at, ReadPhase::Plan)
    }
}

/// Writes a PackageInstall as `wanted`. The write has the UID and resourceVersion of `found`, so it never overwrites a later change.
/// Without `found` the PackageInstall is created, never replaced. In both cases, 409 means that `found` is outdated.
fn write_install(
    context: &Context<'_>,
    server: Server,
    wanted: &PackageInstall,
    found: Option<&PackageInstall>,
) -> Step<()> {
    const WHY: &str = "PackageInstall differs from the ClusterBootstrap";
    let write = match found {
        None => Write::create(server, wanted, WHY),
        Some(found) => {
            let Some(patch) = build::update(wanted, found) else {
                return Ok(());
            };
            let namespace = wanted.namespace();
            let key = Key::of::<PackageInstall>(server, namespace.as_deref(), &wanted.name_any());
            Write::patch(key, patch, WHY)
        }
    };
    context.write(write).map(drop)
}

/// Whether a Secret has the name of a values Secret of Sluice with this prefix. If one API server serves both clusters, other Secrets of
/// the Cluster may begin with the prefix, so the rest of the name must be a digest.
fn is_values_secret(name: &str, prefix: &str, ownership: Ownership) -> bool {
    let digest = name.strip_prefix(prefix);
    digest.is_some_and(|digest| !ownership.is_own_server() || is_digest(digest))
}

/// Removes the values Secrets of earlier versions and stages from the workload, including those that this process took over from the
/// addons-manager. If one API server serves both clusters, the latter have the names of Secrets that configurations write, and stay.
pub(super) fn tidy(
    context: &Context<'_>,
    local: &LocalState,
    (planned, ownership): (&[Planned], Ownership),
) -> Step<()> {
    let system = &context.facts.settings.system_namespace;
    let removed = in_order(context.listed(Read::LabelledSecrets)?.iter().map(|secret| {
        let metadata = &secret.0["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let current = planned.iter().any(|planned| planned.secret_name == name);
        let mut prefixes = planned.iter().map(|planned| &planned.secret_prefix);
        if current || !prefixes.any(|prefix| is_values_secret(name, prefix, ownership)) {
            return Ok(());
        }
        let key = Key::of::<Secret>(Server::Workload, Some(system), name);
        let uid = metadata["uid"].as_str().map(str::to_owned);
        let delete = Write::delete(key, uid, "values of an earlier version or stage");
        context.write(delete).map(drop)
    }));
    // Remaining Secrets are removed when the next upgrade completes.
    removed.or_else(|stop| stop.failed().map(drop))?;
    if ownership.is_own_server() {
        return Ok(());
    }
    let mut left = local
        .left()
        .filter(|name| planned.iter().all(|planned| planned.secret_name != **name));
    left.try_for_each(|name| {
        let Some(found) = context.read::<Secret>(name, (Server::Workload, Some(system)), ReadPhase::Plan)?
        else {
            return Ok(());
        };
        let key = Key::of::<Secret>(Server::Workload, Some(system), name);
        let delete = Write::delete(key, found.uid(), "values deployed by the addons-manager");
        context.write(delete).map(drop)
    })
}

#[cfg(test)]
mod tests;
