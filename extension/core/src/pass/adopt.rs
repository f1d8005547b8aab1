//! What ties the objects that a ClusterBootstrap takes values from to the Cluster: an owner, and labels by which they are found.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    labels::label,
    run::{ClusterBootstrap, ClusterBootstrapPackage},
};

use super::{
    Effects, Event, Key, Known, Server, Sight, Step, Stop,
    failure::object_refused,
    known::typed,
    owners::{Owners, is_there},
    provider::{self, Found},
    stop::{in_order, together},
    validate::Validated,
    write::Write,
};
use crate::{
    bootstrap::{Provided, Role, packages},
    build,
    hold::Hold,
};

const WHY: &str = "the packages of the Cluster take values from it";

/// What has to be written for one object.
struct Adoption {
    key: Key,
    patch: Value,
    /// Name of the Package that takes values from it.
    package: String,
    /// Whether its values cannot be had before.
    is_needed: bool,
}

/// Gives what `bootstrap` takes values from its owner and its labels, where it lacks them.
///
/// Returns what keeps values from being computed at all. What is only lost for the next edit, or for the deletion of the Cluster, is an
/// event.
pub(super) fn adopt(
    known: &Known<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
) -> Step<Option<Hold>> {
    if validated.paused.is_some() {
        return Ok(None);
    }
    let mut packages = packages(&bootstrap.spec);
    // Where several name the same object it is labelled for the CNI, whose values depend on the label.
    packages.sort_by_key(|(role, _)| *role != Role::Cni);
    let each = packages
        .iter()
        .map(|(role, package)| adoption(known, *role, package));
    let mut adoptions: Vec<Adoption> = Vec::new();
    for adoption in together(each)? {
        let Some(adoption) = adoption? else { continue };
        if adoptions.iter().all(|other| other.key != adoption.key) {
            adoptions.push(adoption);
        }
    }
    let mut held = None;
    in_order(adoptions.iter().map(|adoption| match adoption.write(known) {
        Err(Stop::Held(hold)) if adoption.is_needed => {
            held.get_or_insert(hold);
            Ok(())
        }
        Err(Stop::Held(hold)) => {
            effects
                .events
                .push(Event::Said(hold.reason.as_str(), hold.message));
            Ok(())
        }
        outcome => outcome,
    }))?;
    Ok(held)
}

/// What the object lacks that `package` takes its values from; nothing where it cannot be read, which its values are waited for with.
fn adoption(known: &Known<'_>, role: Role, package: &ClusterBootstrapPackage) -> Step<Option<Adoption>> {
    let Some(from) = &package.values_from else {
        return Ok(None);
    };
    let namespace = &known.facts.owner.namespace;
    match (Provided::of(namespace, role, package), &from.secret_ref) {
        (Some(asked), None) => match provider::find(known, &asked, Sight::First) {
            Ok(found) => of_provider(known, &asked, found),
            Err(stop) => stop.held().map(|_| None),
        },
        (None, Some(secret)) => of_secret(known, secret, &package.ref_name),
        _ => Ok(None),
    }
}

fn of_provider(known: &Known<'_>, asked: &Provided<'_>, found: Found) -> Step<Option<Adoption>> {
    let Found { key, object } = found;
    let cluster = &known.facts.owner;
    let owners = Owners::of(known, object.owner_references())?;
    let is_shared = owners.another().is_some();
    // Its values are those of the other Cluster.
    if is_shared && asked.is_ours() {
        return Ok(None);
    }
    let mut labels = labels(known, &object.metadata, asked.package)?;
    labels.extend(asked.label().map(|(key, value)| (key.to_owned(), value)));
    let owners = owners.with_cluster(cluster);
    let is_needed = (asked.is_ours() && owners.is_some()) || !asked.is_labelled(&object);
    let patch = patch(&object.metadata, labels, owners);
    Ok(patch.map(|patch| Adoption {
        key,
        patch,
        package: asked.package.to_owned(),
        is_needed,
    }))
}

/// A Secret of a user keeps its owners: its user deletes it.
fn of_secret(known: &Known<'_>, secret: &str, package: &str) -> Step<Option<Adoption>> {
    let key = Key::of::<Secret>(Server::Management, Some(&known.facts.owner.namespace), secret);
    let found = match known.written(&key) {
        Some(written) => Some(written),
        None => known.object(key.clone(), Sight::First)?,
    };
    let Some(found) = found else {
        return Ok(None);
    };
    let found: Secret = typed(Server::Management, found)?;
    let labels = labels(known, &found.metadata, package)?;
    Ok(patch(&found.metadata, labels, None).map(|patch| Adoption {
        key,
        patch,
        package: package.to_owned(),
        is_needed: false,
    }))
}

/// The labels that the object is to have. One that is labelled with another Cluster keeps its labels for as long as that is there: each
/// would take them from the other.
fn labels(known: &Known<'_>, object: &ObjectMeta, package: &str) -> Step<BTreeMap<String, String>> {
    let cluster = &known.facts.owner;
    let labelled = object
        .labels
        .as_ref()
        .and_then(|labels| labels.get(label::CLUSTER_NAME));
    let is_theirs = match labelled {
        Some(other) if *other != cluster.name => is_there(known, other)?,
        _ => false,
    };
    Ok(if is_theirs {
        BTreeMap::new()
    } else {
        build::back_references(cluster, package)
    })
}

/// The patch that gives an object what it lacks of these.
fn patch(
    object: &ObjectMeta,
    labels: BTreeMap<String, String>,
    owners: Option<Vec<OwnerReference>>,
) -> Option<Value> {
    if object.deletion_timestamp.is_some() {
        return None;
    }
    let there = object.labels.as_ref();
    let lacks = |(key, value): &(String, String)| there.and_then(|labels| labels.get(key)) != Some(value);
    let labels: BTreeMap<String, String> = labels.into_iter().filter(lacks).collect();
    if labels.is_empty() && owners.is_none() {
        return None;
    }
    let mut metadata = json!({"uid": object.uid, "resourceVersion": object.resource_version});
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    if let Some(owners) = owners {
        metadata["ownerReferences"] = json!(owners);
    }
    Some(json!({"metadata": metadata}))
}

impl Adoption {
    fn write(&self, known: &Known<'_>) -> Step<()> {
        match known.write(Write::patch(self.key.clone(), self.patch.clone(), WHY)) {
            Ok(_) => Ok(()),
            // What is gone meanwhile is missed by those who read it.
            Err(Stop::Failed(failure)) if failure.is_not_found() => Ok(()),
            Err(Stop::Failed(failure)) => Err(object_refused(&self.key, &self.package, failure)),
            Err(stop) => Err(stop),
        }
    }
}
