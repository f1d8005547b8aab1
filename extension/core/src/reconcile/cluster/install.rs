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
    plan::Planned,
    preserved,
    read::{Key, Read},
    takeover::{LeftoverState, Thing},
    write::Write,
};
use crate::packages::build::{self, Identity, Repair};

/// Ensures the objects that `planned` needs, and its PackageInstall. Sets `altered` if its Package or its values differ from those that
/// the current PackageInstall requests, also if a later step fails.
///
/// The needed objects are checked periodically, and more often while there is a `need`: kapp-controller depends on them, and nothing
/// else restores an object that a user deletes or edits.
pub(super) fn install(
    known: &Context<'_>,
    memory: &mut LocalState,
    planned: &Planned,
    need: Need,
    altered: &mut bool,
) -> Step<()> {
    // A later write must not replace a change made after this observation.
    let found = known
        .watched(planned.server(), &planned.install_name)?
        .install
        .as_deref();
    let wanted = planned.install(known.facts);
    if planned.server() == Server::Workload {
        // Objects behind an open gate are checked first, regardless of the identity.
        if need != Need::OpenGate {
            ensured_identity(known, memory, need)?;
        }
        // For a PackageInstall that requests another Package, the copy is new.
        let asks_for_it = || found.is_some_and(|found| build::asks_for(found, &wanted));
        *altered |= ensured_copy(known, memory, planned, need)? && asks_for_it();
    }
    *altered |= ensured_values(known, memory, planned, need)?;
    if planned.server() == Server::Workload && need == Need::OpenGate {
        ensured_identity(known, memory, need)?;
    }
    match found {
        // The PackageInstall exists: it was read, and the watch will show it.
        None if planned.is_kept => Ok(()),
        found => {
            let fixed = found.filter(|_| !planned.is_kept).and_then(|found| {
                let secret = preserved::fixed_secret(known, planned, found)?;
                Some((found.resource_version().unwrap_or_default(), secret))
            });
            let Some((version, secret)) = fixed else {
                return write_install(known, planned.server(), &wanted, found);
            };
            let (now, period) = (known.began.instant, known.facts.settings.sync_period.length);
            let name = Thing::ValuesName(planned.install_name.clone());
            // Another client writes it as well, and the next reconcile reports that.
            if memory.removals.seen(name.clone(), &version, period, now) == LeftoverState::Returned {
                return Ok(());
            }
            write_install(known, planned.server(), &wanted, found)?;
            memory.removals.removed(name, version, now);
            // No other trace of its Secret remains: the addons-manager gave it no label.
            if planned.server() == Server::Workload {
                memory.leave(secret);
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

/// Checks the objects `needed` behind `thing` with its `content`, once the check is due. Calls `mend` if they differ, and returns its
/// result: whether `thing` was altered. After an alteration or a failure, the next reconcile checks again. Without a response, the last
/// check behind an open gate stays valid for a while.
fn ensured(
    memory: &mut LocalState,
    known: &Context<'_>,
    (thing, content): (&str, &str),
    need: Need,
    needed: &[&dyn Ensure],
    mend: impl FnOnce(&dyn Fn() -> Step<bool>) -> Step<bool>,
) -> Step<bool> {
    let now = known.began.instant;
    if !memory.is_due(thing, content, check_interval(known, need), now) {
        return Ok(false);
    }
    let right = match are_right(known, needed) {
        Err(Interrupt::Failed(failure))
            if failure.says_nothing() && memory.is_believed(thing, content, need, now) =>
        {
            return Ok(false);
        }
        outcome => outcome?,
    };
    let put_right = || {
        let mut made = needed.iter().map(|needed| needed.ensure(known));
        made.try_fold(false, |any, made| Ok(made? || any))
    };
    let altered = !right && mend(&put_right)?;
    if !altered {
        memory.checked(thing, content, now);
    }
    Ok(altered)
}

fn check_interval(known: &Context<'_>, need: Need) -> Duration {
    need.check_interval(known.facts.settings.sync_period.length)
}

/// Ensures the identity that packages are installed with.
fn ensured_identity(known: &Context<'_>, memory: &mut LocalState, need: Need) -> Step<bool> {
    with_identity(known, |needed| {
        ensured(memory, known, ("identity", ""), need, needed, |put_right| {
            put_right()
        })
    })
}

fn with_identity<T>(known: &Context<'_>, make: impl FnOnce(&[&dyn Ensure]) -> T) -> T {
    let Identity {
        namespace,
        service_account,
        cluster_role,
        cluster_role_binding,
    } = build::identity(&known.facts.settings.system_namespace);
    make(&[
        &Needed::on_workload(&namespace, build::exists),
        &Needed::on_workload(&service_account, build::exists),
        &Needed::on_workload(&cluster_role, build::repair_role),
        &Needed::on_workload(&cluster_role_binding, build::repair_binding),
    ])
}

/// Whether the identity that packages are installed with exists and is correct.
pub(super) fn identity_is_right(known: &Context<'_>) -> Step<bool> {
    with_identity(known, |needed| are_right(known, needed))
}

fn are_right(known: &Context<'_>, needed: &[&dyn Ensure]) -> Step<bool> {
    let right = together(needed.iter().map(|needed| needed.is_right(known)))?;
    right.into_iter().try_fold(true, |all, right| Ok(right? && all))
}

/// Ensures the copy of the Package of `planned` in the workload.
fn ensured_copy(known: &Context<'_>, memory: &mut LocalState, planned: &Planned, need: Need) -> Step<bool> {
    let Some(source) = known.package(&planned.package_name)? else {
        return Ok(false);
    };
    // The resourceVersion changes at least as often as the content, which may be large and is compared in each reconcile.
    let content = source.resource_version().unwrap_or_default();
    let thing = format!("Package {}", planned.package_name);
    if !memory.is_due(&thing, &content, check_interval(known, need), known.began.instant) {
        return Ok(false);
    }
    let copy = build::package(source, &known.facts.settings.system_namespace);
    let needed = Needed::on_workload(&copy, build::repair_package);
    ensured(memory, known, (&thing, &content), need, &[&needed], |put_right| {
        match need {
            // The gate closes before the write; until then each check finds the difference again.
            Need::OpenGate => Ok(true),
            Need::Proof | Need::Nothing => put_right(),
        }
    })
}

/// Whether the copy of the Package of `planned` in the workload exists and is correct.
pub(super) fn copy_is_right(known: &Context<'_>, planned: &Planned) -> Step<bool> {
    let Some(source) = known.package(&planned.package_name)? else {
        return Ok(true);
    };
    let copy = build::package(source, &known.facts.settings.system_namespace);
    Needed::on_workload(&copy, build::repair_package).is_right(known)
}

/// Whether the Secret with the values of a package exists and is correct.
pub(super) fn values_are_right(known: &Context<'_>, planned: &Planned) -> Step<bool> {
    if planned.is_kept {
        return preserved::has_right_values(known, planned, ReadPhase::Plan);
    }
    let wanted = planned.values_secret(&known.facts.owner, &known.facts.settings.system_namespace);
    needed_values(planned, &wanted).is_right(known)
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
fn ensured_values(known: &Context<'_>, memory: &mut LocalState, planned: &Planned, need: Need) -> Step<bool> {
    // Kept values were read when the plan decided to keep them.
    if planned.is_kept {
        return Ok(false);
    }
    let system = &known.facts.settings.system_namespace;
    let wanted = planned.values_secret(&known.facts.owner, system);
    // The name carries Cluster, package and digest, and a package is on one server only.
    let thing = format!("Secret {}", planned.secret_name);
    let needed = needed_values(planned, &wanted);
    ensured(memory, known, (&thing, ""), need, &[&needed], |put_right| {
        if is_named(
            known,
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
fn is_named(known: &Context<'_>, planned: &Planned, at: (Server, Option<&str>)) -> Step<bool> {
    let name = &planned.install_name;
    let (install, app) = pair(known, name, at, ReadPhase::Plan)?;
    let of_install = install.iter().flat_map(|install| &install.spec.values);
    let mut of_install = of_install.filter_map(|values| values.secret_ref.as_ref());
    let tools = app.iter().flat_map(|app| app.spec.template_tools());
    let mut of_app = tools.flat_map(TemplateTool::secrets);
    Ok(of_install.any(|secret| secret.name == planned.secret_name)
        || of_app.any(|secret| secret == planned.secret_name))
}

/// Reads PackageInstall and App of one name in one round.
pub(super) fn pair(
    known: &Context<'_>,
    name: &str,
    at: (Server, Option<&str>),
    sight: ReadPhase,
) -> Step<(Option<PackageInstall>, Option<App>)> {
    let (server, namespace) = at;
    let keys = [
        Key::of::<PackageInstall>(server, namespace, name),
        Key::of::<App>(server, namespace, name),
    ];
    together(keys.map(|key| known.object(key, sight)))?;
    Ok((known.read(name, at, sight)?, known.read(name, at, sight)?))
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
    fn is_right(&self, known: &Context<'_>) -> Step<bool>;

    /// Creates a missing object and repairs an incorrect one. Returns whether it did either.
    fn ensure(&self, known: &Context<'_>) -> Step<bool>;
}

impl<K> Ensure for Needed<'_, K>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    fn is_right(&self, known: &Context<'_>) -> Step<bool> {
        let found = self.found(known)?;
        Ok(found.is_some_and(|found| matches!((self.repair)(self.wanted, &found), Repair::NotNeeded)))
    }

    fn ensure(&self, known: &Context<'_>) -> Step<bool> {
        const MISSING: &str = "a package needs it";
        const ALTERED: &str = "it differs from what a package needs";
        let (server, wanted) = (self.server, self.wanted);
        let Some(found) = self.found(known)? else {
            return known.create(Write::create(server, wanted, MISSING));
        };
        match (self.repair)(wanted, &found) {
            Repair::NotNeeded => return Ok(false),
            Repair::Replace(next) => drop(known.write(Write::replace(server, &*next, ALTERED))?),
            Repair::Recreate => {
                let key = Key::of::<K>(server, wanted.meta().namespace.as_deref(), &wanted.name_any());
                known.write(Write::delete(key, found.uid(), ALTERED))?;
                known.create(Write::create(server, wanted, MISSING))?;
            }
        }
        Ok(true)
    }
}

impl<K> Needed<'_, K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    fn found(&self, known: &Context<'_>) -> Step<Option<K>> {
        let at = (self.server, self.wanted.meta().namespace.as_deref());
        known.read::<K>(&self.wanted.name_any(), at, ReadPhase::Plan)
    }
}

/// Writes a PackageInstall as `wanted`. The write has the UID and resourceVersion of `found`, so it never overwrites a later change.
/// Without `found` the PackageInstall is created, never replaced. In both cases, 409 means that `found` is outdated.
fn write_install(
    known: &Context<'_>,
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
    known.write(write).map(drop)
}

/// Removes the values Secrets of earlier versions and stages from the workload, including those that this process took over from the
/// addons-manager.
pub(super) fn tidy(known: &Context<'_>, memory: &LocalState, planned: &[Planned]) -> Step<()> {
    let system = &known.facts.settings.system_namespace;
    let removed = in_order(known.listed(Read::LabelledSecrets)?.iter().map(|secret| {
        let metadata = &secret.0["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default();
        let current = planned.iter().any(|planned| planned.secret_name == name);
        let mut prefixes = planned.iter().map(|planned| &planned.secret_prefix);
        if current || !prefixes.any(|prefix| name.starts_with(prefix)) {
            return Ok(());
        }
        let key = Key::of::<Secret>(Server::Workload, Some(system), name);
        let uid = metadata["uid"].as_str().map(str::to_owned);
        let delete = Write::delete(key, uid, "values of an earlier version or stage");
        known.write(delete).map(drop)
    }));
    // Remaining Secrets are removed when the next upgrade completes.
    removed.or_else(|stop| stop.failed().map(drop))?;
    let mut left = memory
        .left()
        .filter(|name| planned.iter().all(|planned| planned.secret_name != **name));
    left.try_for_each(|name| {
        let Some(found) = known.read::<Secret>(name, (Server::Workload, Some(system)), ReadPhase::Plan)?
        else {
            return Ok(());
        };
        let key = Key::of::<Secret>(Server::Workload, Some(system), name);
        let delete = Write::delete(key, found.uid(), "values deployed by the addons-manager");
        known.write(delete).map(drop)
    })
}

#[cfg(test)]
mod tests;
