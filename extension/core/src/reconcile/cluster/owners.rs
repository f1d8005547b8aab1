//! Whose an object in the namespace of a Cluster is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use sluice_crds::{foreign::Cluster, run::ClusterBootstrap};

use super::{Context, Key, ReadPhase, Server, Step, interrupt::together};
use crate::{names::is_object_name, packages::build};

/// So many owners of an object are looked up.
const MOST: usize = 16;

/// Whose an object is, by one of its owners.
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

/// The owners of an object.
pub(super) struct Owners(Vec<(OwnerReference, Whose)>);

impl Owners {
    /// Those that `owners` name. Of one that this Cluster owns nothing is read.
    pub(super) fn of(known: &Context<'_>, owners: &[OwnerReference]) -> Step<Self> {
        let own = |by: &OwnerReference| present(known, by).is_some_and(|uid| uid == by.uid);
        let is_this = owners.iter().any(own);
        let whose = together(owners.iter().enumerate().map(|(count, by)| match is_this {
            true if own(by) => Ok(Whose::This),
            // As long as it is not known, it may be there.
            _ if is_this || count >= MOST => Ok(Whose::Unknown),
            _ => whose(known, by),
        }))?;
        let whose: Vec<Whose> = whose.into_iter().collect::<Step<_>>()?;
        Ok(Self(owners.iter().cloned().zip(whose).collect()))
    }

    /// The other Cluster that owns it, where this one does not.
    pub(super) fn another(&self) -> Option<&OwnerReference> {
        let another = self.0.iter().find(|(_, whose)| *whose == Whose::Another);
        another.filter(|_| !self.has(Whose::This)).map(|(by, _)| by)
    }

    /// Whether an earlier Cluster of the name, or one that is gone, has left it behind: it will be collected.
    pub(super) fn is_left_behind(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|(_, whose)| *whose == Whose::Gone)
    }

    /// Its owners with the Cluster; `None` where that is one of them. Clusters that are gone are left out.
    pub(super) fn with_cluster(&self, cluster: &build::Owner) -> Option<Vec<OwnerReference>> {
        if self.0.iter().any(|(by, _)| by.uid == cluster.uid) {
            return None;
        }
        let kept = self.0.iter().filter(|(_, whose)| *whose != Whose::Gone);
        let kept = kept.map(|(by, _)| by.clone());
        Some(kept.chain([build::owner(cluster, false)]).collect())
    }

    fn has(&self, wanted: Whose) -> bool {
        self.0.iter().any(|(_, whose)| *whose == wanted)
    }
}

/// The UID of the Cluster, or of its ClusterBootstrap, if `by` names it.
fn present<'a>(known: &'a Context<'_>, by: &OwnerReference) -> Option<&'a str> {
    let facts = known.facts;
    let is_it = by.name == facts.owner.name;
    match kind(by)? {
        Kind::Cluster => Some(facts.owner.uid.as_str()).filter(|_| is_it),
        Kind::ClusterBootstrap => {
            let bootstrap = facts.bootstrap.as_deref().filter(|_| is_it)?;
            bootstrap.metadata.uid.as_deref()
        }
    }
}

/// Whose an object is that `by` owns.
fn whose(known: &Context<'_>, by: &OwnerReference) -> Step<Whose> {
    let key = |of: fn(Server, Option<&str>, &str) -> Key| {
        of(Server::Management, Some(&known.facts.owner.namespace), &by.name)
    };
    let key = match kind(by) {
        Some(Kind::Cluster) => key(Key::of::<Cluster>),
        Some(Kind::ClusterBootstrap) => key(Key::of::<ClusterBootstrap>),
        None => return Ok(Whose::Unknown),
    };
    if !is_object_name(&by.name) {
        return Ok(Whose::Unknown);
    }
    if present(known, by) == Some(&by.uid) {
        return Ok(Whose::This);
    }
    // Asked also of this name: the Cluster in memory may be the earlier one.
    let there = known.object(key, ReadPhase::Plan)?;
    let is_there = there.is_some_and(|there| there["metadata"]["uid"] == by.uid);
    Ok(if is_there { Whose::Another } else { Whose::Gone })
}

/// An owner that says which Cluster an object belongs to. The addons-manager has made ClusterBootstraps owners of what they refer to.
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

/// Whether the Cluster is still the one in memory: what gets an owner that is gone is collected.
pub(super) fn is_current(known: &Context<'_>) -> Step<bool> {
    let owner = &known.facts.owner;
    let key = Key::of::<Cluster>(Server::Management, Some(&owner.namespace), &owner.name);
    let there = known.object(key, ReadPhase::Plan)?;
    Ok(there.is_some_and(|there| there["metadata"]["uid"] == owner.uid))
}

/// Whether there is a Cluster of this name in the namespace.
pub(super) fn is_there(known: &Context<'_>, cluster: &str) -> Step<bool> {
    let owner = &known.facts.owner;
    if cluster == owner.name {
        return Ok(true);
    }
    if !is_object_name(cluster) {
        return Ok(false);
    }
    let key = Key::of::<Cluster>(Server::Management, Some(&owner.namespace), cluster);
    Ok(known.object(key, ReadPhase::Plan)?.is_some())
}
