//! Ownership of objects in the namespace of a Cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use sluice_crds::{foreign::Cluster, run::ClusterBootstrap};

use super::{Context, Key, ReadPhase, Server, Step, interrupt::together};
use crate::{names::is_object_name, packages::build};

/// Maximum number of owners of an object that are looked up.
const MOST: usize = 16;

/// Ownership of an object by one of its owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ownership {
    /// This Cluster owns the object.
    This,
    /// A deleted Cluster owned the object.
    Gone,
    /// Another existing Cluster owns the object.
    Another,
    /// A user has set another kind of owner: the garbage collector keeps the object while that owner exists.
    Unknown,
}

/// Owners of an object.
pub(super) struct Owners(Vec<(OwnerReference, Ownership)>);

impl Owners {
    /// Resolves `owners`. For an object of this Cluster, Sluice reads no owner.
    pub(super) fn of(context: &Context<'_>, owners: &[OwnerReference]) -> Step<Self> {
        let own = |by: &OwnerReference| present(context, by).is_some_and(|uid| uid == by.uid);
        let is_this = owners.iter().any(own);
        let whose = together(owners.iter().enumerate().map(|(count, by)| match is_this {
            true if own(by) => Ok(Ownership::This),
            // An owner that is not looked up may exist.
            _ if is_this || count >= MOST => Ok(Ownership::Unknown),
            _ => whose(context, by),
        }))?;
        let whose: Vec<Ownership> = whose.into_iter().collect::<Step<_>>()?;
        Ok(Self(owners.iter().cloned().zip(whose).collect()))
    }

    /// Returns the other Cluster that owns the object, if this one does not.
    pub(super) fn another(&self) -> Option<&OwnerReference> {
        let another = self.0.iter().find(|(_, whose)| *whose == Ownership::Another);
        another.filter(|_| !self.has(Ownership::This)).map(|(by, _)| by)
    }

    /// Whether the object is a leftover of deleted Clusters, which the garbage collector will delete.
    pub(super) fn is_left_behind(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|(_, whose)| *whose == Ownership::Gone)
    }

    /// Returns the owners with the Cluster added and deleted Clusters removed; `None` if the Cluster already is an owner.
    pub(super) fn with_cluster(&self, cluster: &build::Owner) -> Option<Vec<OwnerReference>> {
        if self.0.iter().any(|(by, _)| by.uid == cluster.uid) {
            return None;
        }
        let kept = self.0.iter().filter(|(_, whose)| *whose != Ownership::Gone);
        let kept = kept.map(|(by, _)| by.clone());
        Some(kept.chain([build::owner(cluster, false)]).collect())
    }

    fn has(&self, wanted: Ownership) -> bool {
        self.0.iter().any(|(_, whose)| *whose == wanted)
    }
}

/// Returns the UID of the Cluster, or of its ClusterBootstrap, if `by` names it.
fn present<'a>(context: &'a Context<'_>, by: &OwnerReference) -> Option<&'a str> {
    let facts = context.facts;
    let is_it = by.name == facts.owner.name;
    match kind(by)? {
        Kind::Cluster => Some(facts.owner.uid.as_str()).filter(|_| is_it),
        Kind::ClusterBootstrap => {
            let bootstrap = facts.bootstrap.as_deref().filter(|_| is_it)?;
            bootstrap.metadata.uid.as_deref()
        }
    }
}

/// Returns the ownership of an object that `by` owns.
fn whose(context: &Context<'_>, by: &OwnerReference) -> Step<Ownership> {
    let key = |of: fn(Server, Option<&str>, &str) -> Key| {
        of(Server::Management, Some(&context.facts.owner.namespace), &by.name)
    };
    let key = match kind(by) {
        Some(Kind::Cluster) => key(Key::of::<Cluster>),
        Some(Kind::ClusterBootstrap) => key(Key::of::<ClusterBootstrap>),
        None => return Ok(Ownership::Unknown),
    };
    if !is_object_name(&by.name) {
        return Ok(Ownership::Unknown);
    }
    if present(context, by) == Some(&by.uid) {
        return Ok(Ownership::This);
    }
    // Read also for the name of this Cluster: the cached Cluster may be the earlier one.
    let there = context.object(key, ReadPhase::Plan)?;
    let is_there = there.is_some_and(|there| there["metadata"]["uid"] == by.uid);
    Ok(if is_there {
        Ownership::Another
    } else {
        Ownership::Gone
    })
}

/// Kind of an owner that identifies a Cluster. The addons-manager made ClusterBootstraps owners of the objects that they refer to.
enum Kind {
    Cluster,
    ClusterBootstrap,
}

fn kind(by: &OwnerReference) -> Option<Kind> {
    let group = by.api_version.split_once('/').map_or("", |(group, _)| group);
    match by.kind.as_str() {
        "Cluster" if group == Cluster::group(&()) => Some(Kind::Cluster),
        "ClusterBootstrap" if group == ClusterBootstrap::group(&()) => Some(Kind::ClusterBootstrap),
        _ => None,
    }
}

/// Whether the Cluster is still the cached one: the garbage collector deletes an object whose owner is gone.
pub(super) fn is_current(context: &Context<'_>) -> Step<bool> {
    let owner = &context.facts.owner;
    let key = Key::of::<Cluster>(Server::Management, Some(&owner.namespace), &owner.name);
    let there = context.object(key, ReadPhase::Plan)?;
    Ok(there.is_some_and(|there| there["metadata"]["uid"] == owner.uid))
}

/// Whether a Cluster of this name exists in the namespace.
pub(super) fn cluster_exists(context: &Context<'_>, cluster: &str) -> Step<bool> {
    let owner = &context.facts.owner;
    if cluster == owner.name {
        return Ok(true);
    }
    if !is_object_name(cluster) {
        return Ok(false);
    }
    let key = Key::of::<Cluster>(Server::Management, Some(&owner.namespace), cluster);
    Ok(context.object(key, ReadPhase::Plan)?.is_some())
}
