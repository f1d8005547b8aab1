//! Clones of the values that a template names or holds, created before the ClusterBootstrap and restored if they are gone.

mod provider;
mod secret;

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_crds::run::{ClusterBootstrap, ClusterBootstrapPackage};

use super::{
    Context, Interrupt, Key, ReadPhase, Step,
    failure::object_refused,
    interrupt::{in_order, together},
    owners::Owners,
    validate::Validated,
    write::Write,
};
use crate::{
    names,
    packages::bootstrap::{ResolvedRelease, ValuesClone, clones_of, packages},
    reasons::{GateReason, Hold},
};

const WHY: &str = "values of the ClusterBootstrap";
const WHY_NOT: &str = "leftover of an earlier Cluster of the same name";

/// Write of a clone.
#[derive(Debug)]
struct CloneChange {
    key: Key,
    /// Name of the Package that uses the clone.
    package: String,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Create the clone.
    Make {
        object: Value,
        /// UID of the leftover of an earlier Cluster of the same name, if any.
        instead_of: Option<String>,
    },
    /// Add the Cluster as an owner of the existing object.
    Own(Value),
}

/// Existing object with the name of a clone.
enum Found<'a> {
    /// An object of a user or of an earlier attempt. Existing objects are never overwritten.
    Kept(&'a Value),
    Nothing,
    /// UID of a leftover of an earlier Cluster of the same name, which the garbage collector has not deleted yet.
    Earlier(String),
}

/// Writes missing clones, once all of them can be written: the source of one may change while another is still missing.
pub(super) fn write(context: &Context<'_>, clones: &[ValuesClone]) -> Step<()> {
    let changes = together(clones.iter().map(|clone| changes(context, clone)))?;
    let changes: Vec<Vec<CloneChange>> = changes.into_iter().collect::<Step<_>>()?;
    make(context, changes.into_iter().flatten())
}

/// Restores missing clones that `bootstrap` refers to from the current template of its release. The plan reports objects that only a
/// user can restore.
///
/// Returns the hold of a clone that cannot be restored.
pub(super) fn restore(
    context: &Context<'_>,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) -> Step<Option<Hold>> {
    let cluster = &context.facts.owner.name;
    let resolved = ResolvedRelease::of(bootstrap);
    let (Some(release), None) = (resolved.release(), &validated.paused) else {
        return Ok(None);
    };
    let referred = packages(&bootstrap.spec);
    let referred: Vec<Reference<'_>> = referred
        .iter()
        .filter_map(|(_, package)| Reference::to_own_clone(cluster, package))
        .collect();
    let found = together(referred.iter().map(|reference| is_there(context, reference)))?;
    let found: Vec<bool> = found.into_iter().collect::<Step<_>>()?;
    if found.iter().all(|is_there| *is_there) {
        return Ok(None);
    }
    let Some(template) = context.template(release)? else {
        return Ok(None);
    };
    let gone = |clone: &ValuesClone| {
        let mut found = referred.iter().zip(&found);
        found.any(|(reference, is_there)| !is_there && reference.is_to(clone))
    };
    let clones: Vec<ValuesClone> = clones_of(cluster, template).filter(gone).collect();
    let mut missing = Vec::new();
    for outcome in together(clones.iter().map(|clone| changes(context, clone)))? {
        match outcome {
            Ok(changes) => missing.extend(changes),
            Err(stop) => drop(stop.held()?),
        }
    }
    match make(context, missing) {
        Ok(()) => Ok(None),
        Err(stop) => stop.held().map(Some),
    }
}

/// A clone that a ClusterBootstrap refers to.
struct Reference<'a> {
    group: &'a str,
    kind: &'a str,
    name: &'a str,
    /// Name of the Package that takes values from it.
    package: &'a str,
}

impl<'a> Reference<'a> {
    /// Returns the values source of a package, if it has the name of a clone.
    fn to_own_clone(cluster: &str, package: &'a ClusterBootstrapPackage) -> Option<Self> {
        let (from, package) = (package.values_from.as_ref()?, package.ref_name.as_str());
        let reference = match (&from.secret_ref, &from.provider_ref) {
            (Some(name), None) => Self {
                group: "",
                kind: "Secret",
                name,
                package,
            },
            (None, Some(provider)) => Self {
                group: provider.api_group.as_deref().unwrap_or_default(),
                kind: &provider.kind,
                name: &provider.name,
                package,
            },
            _ => return None,
        };
        let own = names::clone(cluster, package).ok()?;
        (reference.name == own).then_some(reference)
    }

    fn is_to(&self, clone: &ValuesClone) -> bool {
        (self.group, self.kind) == clone.group_kind() && self.name == clone.name()
    }
}

/// Whether the object exists, with all objects that it refers to. Its readers report an unreadable one.
fn is_there(context: &Context<'_>, reference: &Reference<'_>) -> Step<bool> {
    let Reference {
        group,
        kind,
        name,
        package,
    } = *reference;
    let found = match (group, kind) {
        ("", "Secret") => secret::is_there(context, package, name),
        _ => provider::is_whole(context, (group, kind), name),
    };
    found.or_else(|stop| stop.held().map(|_| true))
}

/// Returns the writes that create the clone.
fn changes(context: &Context<'_>, clone: &ValuesClone) -> Step<Vec<CloneChange>> {
    match clone {
        ValuesClone::Inline { .. } | ValuesClone::Secret { .. } => {
            Ok(secret::change(context, clone)?.into_iter().collect())
        }
        ValuesClone::Provider { from, to, package } => provider::changes(context, from, to, package),
    }
}

/// Executes the changes in their order, each object once.
fn make(context: &Context<'_>, changes: impl IntoIterator<Item = CloneChange>) -> Step<()> {
    let mut seen = HashSet::new();
    let changes: Vec<CloneChange> = changes
        .into_iter()
        .filter(|change| seen.insert(change.key.clone()))
        .collect();
    in_order(changes.iter().map(|change| change.make(context)))
}

impl CloneChange {
    fn make(&self, context: &Context<'_>) -> Step<()> {
        let key = || self.key.clone();
        let written = match &self.what {
            What::Make { object, instead_of } => {
                let deletion = instead_of
                    .as_ref()
                    .map(|uid| Write::delete(key(), Some(uid.clone()), WHY_NOT));
                // If the object exists by now, the next reconcile checks its owner.
                let creation = || context.write(Write::post(key(), object.clone(), WHY));
                match deletion {
                    Some(deletion) => context.write(deletion).and_then(|_| creation()),
                    None => creation(),
                }
            }
            What::Own(patch) => context.write(Write::patch(key(), patch.clone(), "missing owner reference")),
        };
        match written {
            Ok(_) => Ok(()),
            Err(Interrupt::Failed(failure)) => Err(object_refused(&self.key, &self.package, failure)),
            Err(stop) => Err(stop),
        }
    }
}

/// Classifies `found`, the object at `key`, for the clone of `package`.
///
/// # Errors
/// Returns a [`Hold`] for an object of another Cluster.
fn found<'a>(context: &Context<'_>, key: &Key, package: &str, found: Option<&'a Value>) -> Step<Found<'a>> {
    let Some(found) = found else {
        return Ok(Found::Nothing);
    };
    let owners = Owners::of(context, &owner_references(found))?;
    if let Some(by) = owners.another() {
        return Err(of_another(key, package, by).into());
    }
    Ok(match left_behind(key, found, &owners)? {
        Some(uid) => Found::Earlier(uid),
        None => Found::Kept(found),
    })
}

/// Returns the UID of `found` if it is a leftover of an earlier Cluster.
///
/// # Errors
/// Returns a [`Hold`] for a leftover that is being deleted.
fn left_behind(key: &Key, found: &Value, owners: &Owners) -> Result<Option<String>, Hold> {
    if !owners.is_left_behind() {
        return Ok(None);
    }
    let metadata = &found["metadata"];
    match metadata["uid"].as_str() {
        Some(uid) if metadata["deletionTimestamp"].is_null() => Ok(Some(uid.to_owned())),
        _ => {
            let message = format!(
                "{key} of an earlier Cluster of the same name is being deleted and has finalizers; if they remain, find the controller \
                 that should remove them"
            );
            Err(Hold::new(GateReason::ValuesNotFound, message))
        }
    }
}

/// Returns the owner references of an object.
fn owner_references(object: &Value) -> Vec<OwnerReference> {
    Vec::deserialize(&object["metadata"]["ownerReferences"]).unwrap_or_default()
}

/// Returns the hold for a values source that belongs to another Cluster.
fn of_another(key: &Key, package: &str, by: &OwnerReference) -> Hold {
    let (namespace, kind) = (key.namespace.as_deref().unwrap_or_default(), &key.resource.kind);
    let message = format!(
        "{key}, the values source of package {package}, belongs to {} {namespace}/{}; give one of the two Clusters another name, \
         or remove that owner from the {kind} if both Clusters share its values",
        by.kind, by.name
    );
    Hold::new(GateReason::ValuesOwnerMismatch, message)
}
