//! The Secrets of a Cluster with the values that a template names or holds: made before its ClusterBootstrap, and again where one is gone.

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{Resource as _, ResourceExt};
use sluice_crds::{
    foreign::Cluster,
    run::{ClusterBootstrap, ClusterBootstrapPackage},
};

use super::{
    Key, Known, Server, Sight, Step,
    stop::{in_order, needs_of, together},
    validate::Validated,
    values,
    write::Write,
};
use crate::{
    bootstrap::{ResolvedRelease, ValuesClone, clones_of, packages},
    build,
    hold::{GateReason, Hold},
    names,
};

const WHY: &str = "values of the ClusterBootstrap";
const WHY_NOT: &str = "it belongs to an earlier Cluster of the name, and would be collected";

/// A clone that has to be written.
struct Missing {
    secret: Secret,
    /// UID of the one that an earlier Cluster of the name has left behind.
    instead_of: Option<String>,
}

/// What there is of the name of a clone.
enum Found {
    /// A user put it there, or an earlier try: it wins, whatever it says.
    Kept,
    Nothing,
    /// That of an earlier Cluster of the name, by its UID: the garbage collector has not deleted it yet.
    Earlier(String),
}

/// Writes the clones that are not there yet. Nothing is written before all can be: the source of one may be put right while another's is
/// waited for.
pub(super) fn write(known: &Known<'_>, clones: &[ValuesClone]) -> Step<()> {
    let missing = together(clones.iter().map(|clone| missing(known, clone)))?;
    let missing: Vec<Option<Missing>> = missing.into_iter().collect::<Step<_>>()?;
    in_order(missing.iter().flatten().map(|missing| make(known, missing)))
}

/// Makes those clones again that `bootstrap` refers to and that are gone, from what the template of its release says now. What only a
/// user can make again is left to the plan, which says what is missing.
pub(super) fn restore(known: &Known<'_>, validated: &Validated, bootstrap: &ClusterBootstrap) -> Step<()> {
    let cluster = &known.facts.owner.name;
    let resolved = ResolvedRelease::of(bootstrap);
    let (Some(release), None) = (resolved.release(), &validated.paused) else {
        return Ok(());
    };
    let referred = packages(&bootstrap.spec);
    let referred: Vec<&str> = referred
        .iter()
        .filter_map(|(_, package)| own_clone(cluster, package))
        .collect();
    let found = referred.iter().map(|secret| {
        let found = known.object(key(known, secret), Sight::First)?;
        Ok((*secret, found.is_some()))
    });
    let found: Vec<(&str, bool)> = together(found)?.into_iter().collect::<Step<_>>()?;
    let gone = |clone: &ValuesClone| found.contains(&(clone.secret(), false));
    if found.iter().all(|(_, is_there)| *is_there) {
        return Ok(());
    }
    let Some(template) = known.template(release)? else {
        return Ok(());
    };
    let clones: Vec<ValuesClone> = clones_of(cluster, template).filter(gone).collect();
    let copies = together(clones.iter().map(|clone| copied(known, clone)))?;
    let mut missing = Vec::new();
    for copy in copies {
        match copy {
            Ok(secret) => missing.push(Missing {
                secret,
                instead_of: None,
            }),
            Err(stop) => drop(stop.held()?),
        }
    }
    in_order(missing.iter().map(|missing| make(known, missing)))
}

/// The Secret that a package takes its values from, if its name is the one that a clone has.
fn own_clone<'a>(cluster: &str, package: &'a ClusterBootstrapPackage) -> Option<&'a str> {
    let secret = package.values_from.as_ref()?.secret_ref.as_deref()?;
    let own = names::clone(cluster, &package.ref_name).ok()?;
    (secret == own).then_some(secret)
}

fn key(known: &Known<'_>, secret: &str) -> Key {
    Key::of::<Secret>(Server::Management, Some(&known.facts.owner.namespace), secret)
}

fn make(known: &Known<'_>, missing: &Missing) -> Step<()> {
    let Missing { secret, instead_of } = missing;
    if let Some(uid) = instead_of {
        let key = key(known, &secret.name_any());
        known.write(Write::delete(key, Some(uid.clone()), WHY_NOT))?;
    }
    // Where there is one by now, the next pass sees whose it is.
    known
        .write(Write::create(Server::Management, secret, WHY))
        .map(drop)
}

/// The clone, unless there is one that wins.
fn missing(known: &Known<'_>, clone: &ValuesClone) -> Step<Option<Missing>> {
    let (found, copy) = (found(known, clone), copied(known, clone));
    together([needs_of(&found), needs_of(&copy)])?;
    let instead_of = match found? {
        Found::Kept => return Ok(None),
        Found::Nothing => None,
        Found::Earlier(uid) => Some(uid),
    };
    Ok(Some(Missing {
        secret: copy?,
        instead_of,
    }))
}

/// What there is of the name of a clone.
///
/// # Errors
/// One that belongs to another Cluster is a [`Hold`].
fn found(known: &Known<'_>, clone: &ValuesClone) -> Step<Found> {
    let owner = &known.facts.owner;
    let (name, namespace) = (clone.secret(), owner.namespace.as_str());
    let found = known.read::<Secret>(name, (Server::Management, Some(namespace)), Sight::First)?;
    let Some(found) = found else {
        return Ok(Found::Nothing);
    };
    let whose = together(found.owner_references().iter().map(|by| whose(known, by)))?;
    let whose: Vec<Whose> = whose.into_iter().collect::<Step<_>>()?;
    if whose.is_empty() || whose.contains(&Whose::This) {
        return Ok(Found::Kept);
    }
    if let Some(by) = whose.iter().position(|whose| *whose == Whose::Another) {
        let (package, by) = (clone.package(), &found.owner_references()[by]);
        let message = format!(
            "Secret {namespace}/{name}, which package {package} takes its values from, belongs to {} {namespace}/{}; give one of the \
             two Clusters another name, or remove that owner from the Secret where both shall have its values",
            by.kind, by.name
        );
        return Err(Hold::new(GateReason::ValuesOwnerMismatch, message).into());
    }
    if whose.contains(&Whose::Unknown) {
        return Ok(Found::Kept);
    }
    match found.metadata.uid {
        Some(uid) if found.metadata.deletion_timestamp.is_none() => Ok(Found::Earlier(uid)),
        _ => {
            let message = format!(
                "Secret {namespace}/{name} of an earlier Cluster of the name is being deleted, and has finalizers"
            );
            Err(Hold::new(GateReason::ValuesNotFound, message).into())
        }
    }
}

/// Whose a clone is, by one of its owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// This very Cluster's.
    This,
    /// That of a Cluster which is gone.
    Gone,
    /// That of another Cluster, which is there.
    Another,
    /// Something else that a user has made its owner: the garbage collector leaves it alone while that is there.
    Unknown,
}

/// Whose a clone is that `by` owns. The addons-manager has made ClusterBootstraps the owners of clones.
fn whose(known: &Known<'_>, by: &OwnerReference) -> Step<Whose> {
    let owner = &known.facts.owner;
    let bootstrap = known.facts.bootstrap.as_deref().and_then(ResourceExt::uid);
    let key =
        |of: fn(Server, Option<&str>, &str) -> Key| of(Server::Management, Some(&owner.namespace), &by.name);
    let (present, key) = match (group(by), by.kind.as_str()) {
        (group, "Cluster") if group == Cluster::group(&()) => {
            (Some(owner.uid.as_str()), key(Key::of::<Cluster>))
        }
        (group, "ClusterBootstrap") if group == ClusterBootstrap::group(&()) => {
            (bootstrap.as_deref(), key(Key::of::<ClusterBootstrap>))
        }
        _ => return Ok(Whose::Unknown),
    };
    if by.name == owner.name && present == Some(by.uid.as_str()) {
        return Ok(Whose::This);
    }
    // Asked also of this name: the Cluster in memory may be the earlier one.
    let there = known.object(key, Sight::First)?;
    let is_there = there.is_some_and(|there| there["metadata"]["uid"] == by.uid);
    Ok(if is_there { Whose::Another } else { Whose::Gone })
}

fn group(by: &OwnerReference) -> &str {
    by.api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The Secret that a clone shall be.
fn copied(known: &Known<'_>, clone: &ValuesClone) -> Step<Secret> {
    let owner = &known.facts.owner;
    let content = match clone {
        ValuesClone::Inline { values, .. } => build::inline_document(values),
        ValuesClone::Secret { from, package, .. } => {
            let system = &known.facts.settings.system_namespace;
            let found = known.read::<Secret>(from, (Server::Management, Some(system)), Sight::First)?;
            let missing = || {
                Hold::new(
                    GateReason::ValuesNotFound,
                    format!("Secret {system}/{from} with the values of package {package} does not exist"),
                )
            };
            values::content(&found.ok_or_else(missing)?)
        }
    };
    Ok(build::clone_secret(
        owner,
        clone.secret(),
        clone.package(),
        &content,
    ))
}
