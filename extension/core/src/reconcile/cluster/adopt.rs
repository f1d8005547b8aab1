//! Owner references and lookup labels that tie the values sources of a ClusterBootstrap to the Cluster.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::{Value, json};
use sluice_crds::{
    labels::label,
    run::{ClusterBootstrap, ClusterBootstrapPackage},
};

use super::{
    Context, Effects, Interrupt, Key, ReadPhase, Server, Step,
    context::typed,
    failure::{object_refused, object_refused_with},
    interrupt::{in_order, together},
    owners::{Owners, cluster_exists, is_current},
    provider::{self, Found},
    validate::Validated,
    values,
    values_cache::unchanged,
    write::Write,
};
use crate::events::Event;
use crate::{
    cluster::ClusterRef,
    names,
    packages::{
        bootstrap::{Provided, Role, is_credential, packages},
        build,
    },
    reasons::Hold,
    value_kinds::ConfigRef,
};

const WHY: &str = "values source of the Cluster";

/// One object and its write.
struct Adoption {
    key: Key,
    patch: Option<Value>,
    /// Name of the Package that takes values from the object.
    package: String,
    /// Whether its values are unavailable before the write.
    is_needed: bool,
    /// The configuration of Sluice, if its Secret holds values that Sluice did not compute for it.
    outdated: Option<ConfigRef>,
}

/// Adds missing owners and labels to the values sources of `bootstrap`.
///
/// `refusal` is the refused owner of `bootstrap` itself. Returns the hold that blocks the computation of values. A refusal that affects
/// only the next edit, or the deletion of the Cluster, becomes an event.
pub(super) fn adopt(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    refusal: Option<Hold>,
) -> Step<Option<Hold>> {
    if validated.paused.is_some() {
        return Ok(None);
    }
    let mut packages = packages(&bootstrap.spec);
    // An object of several packages gets the label of the CNI, whose values depend on the label.
    packages.sort_by_key(|(role, _)| *role != Role::Cni);
    let each = packages
        .iter()
        .map(|(role, package)| adoption(context, *role, package));
    let mut adoptions: Vec<Adoption> = Vec::new();
    let each: Vec<Option<Adoption>> = together(each)?.into_iter().collect::<Step<_>>()?;
    for adoption in each.into_iter().flatten() {
        if adoptions.iter().all(|other| other.key != adoption.key) {
            adoptions.push(adoption);
        }
    }
    let (mut missed, mut refused) = (None, refusal);
    in_order(adoptions.iter().map(|adoption| match adoption.write(context) {
        Err(Interrupt::Held(hold)) if adoption.is_needed => {
            missed.get_or_insert(hold);
            Ok(())
        }
        Err(Interrupt::Held(hold)) => {
            refused.get_or_insert(hold);
            Ok(())
        }
        outcome => outcome,
    }))?;
    let outdated = adoptions.into_iter().filter_map(|adoption| adoption.outdated);
    effects.configurations.extend(outdated);
    // Published once, not in each reconcile: other events would follow each time.
    if effects.local.is_new_refusal(refused.as_ref()) {
        effects.events.extend(refused.map(Event::Held));
    }
    Ok(missed)
}

/// Returns the missing metadata of the values source of `package`; `None` if it is unreadable, which already holds its values.
fn adoption(context: &Context<'_>, role: Role, package: &ClusterBootstrapPackage) -> Step<Option<Adoption>> {
    // An unresolved wildcard is neither the name of a Package nor a label.
    let Some(from) = package
        .values_from
        .as_ref()
        .filter(|_| names::is_package_name(&package.ref_name))
    else {
        return Ok(None);
    };
    let namespace = &context.facts.owner.namespace;
    match (Provided::of(namespace, role, package), &from.secret_ref) {
        (Some(asked), None) => match provider::find(context, &asked, ReadPhase::Plan) {
            Ok(found) => of_provider(context, &asked, found),
            Err(stop) => stop.held().map(|_| None),
        },
        (None, Some(secret)) => of_secret(context, secret, &package.ref_name),
        _ => Ok(None),
    }
}

fn of_provider(context: &Context<'_>, asked: &Provided<'_>, found: Found) -> Step<Option<Adoption>> {
    let Found { key, object } = found;
    let cluster = &context.facts.owner;
    let owners = Owners::of(context, object.owner_references())?;
    let is_shared = owners.another().is_some();
    // Its values belong to the other Cluster.
    if is_shared && asked.is_ours() {
        return Ok(None);
    }
    let owners = owners.with_cluster(cluster);
    // The garbage collector deletes an object whose owner is gone.
    if owners.is_some() && !is_current(context)? {
        return Ok(None);
    }
    let labels = if asked.is_ours() {
        build::back_references(cluster, asked.package)
    } else {
        labels(context, &object.metadata, asked.package)?
    };
    let is_needed = (asked.is_ours() && owners.is_some()) || !asked.is_labelled(&object);
    Ok(Some(Adoption {
        patch: patch(&object.metadata, labels, owners),
        package: asked.package.to_owned(),
        is_needed,
        outdated: outdated(context, asked, &key, &object)?,
        key,
    }))
}

/// Returns the configuration, if its Secret holds values that were not computed for this Cluster. No watch shows that.
fn outdated(
    context: &Context<'_>,
    asked: &Provided<'_>,
    key: &Key,
    object: &DynamicObject,
) -> Step<Option<ConfigRef>> {
    let Some(secret) = asked.secret(object).ok().filter(|_| asked.is_ours()) else {
        return Ok(None);
    };
    let namespace = &context.facts.owner.namespace;
    let check = |found: &ObjectMeta| asked.check(object, found, &context.facts.owner.uid);
    let is_outdated = if let Some(cached) = unchanged(context, asked.package, secret)? {
        check(cached.metadata()).is_err()
    } else {
        let found = context.read::<Secret>(secret, (Server::Management, Some(namespace)), ReadPhase::Plan)?;
        found.is_some_and(|found| check(&found.metadata).is_err())
    };
    Ok(is_outdated.then(|| ConfigRef {
        kind: key.resource.kind.as_ref().into(),
        object: ClusterRef::new(namespace, &key.name),
    }))
}

/// Returns the adoption of a user's Secret. It keeps its owners, because the user deletes it.
fn of_secret(context: &Context<'_>, secret: &str, package: &str) -> Step<Option<Adoption>> {
    if !names::is_object_name(secret) {
        return Ok(None);
    }
    let key = Key::of::<Secret>(Server::Management, Some(&context.facts.owner.namespace), secret);
    let found = match unchanged(context, package, secret)? {
        Some(cached) => Some(Cow::Borrowed(cached.metadata())),
        None => uncached(context, &key)?.map(Cow::Owned),
    };
    let Some(found) = found else {
        return Ok(None);
    };
    // The values of a credential are refused, and with a label every edit of it would requeue the Cluster.
    if values::is_of_cluster(context, &context.facts.owner.namespace, secret)? {
        return Ok(None);
    }
    let labels = labels(context, &found, package)?;
    Ok(Some(Adoption {
        key,
        patch: patch(&found, labels, None),
        package: package.to_owned(),
        is_needed: false,
        outdated: None,
    }))
}

/// Returns the metadata of a Secret that is not taken from the cache; `None` for a credential and for a missing Secret.
fn uncached(context: &Context<'_>, key: &Key) -> Step<Option<ObjectMeta>> {
    let found = match context.written(key) {
        Some(written) => Some(written),
        None => context.object(key.clone(), ReadPhase::Plan)?,
    };
    let found = found.map(|found| typed::<Secret, _>(Server::Management, found));
    let found = found.transpose()?.filter(|found| !is_credential(found));
    Ok(found.map(|found| found.metadata))
}

/// Returns the desired labels of the object. Labels of another existing Cluster stay: otherwise both Clusters keep overwriting each
/// other.
fn labels(context: &Context<'_>, object: &ObjectMeta, package: &str) -> Step<BTreeMap<String, String>> {
    let cluster = &context.facts.owner;
    let labelled = object
        .labels
        .as_ref()
        .and_then(|labels| labels.get(label::CLUSTER_NAME));
    let is_theirs = match labelled {
        Some(other) if *other != cluster.name => cluster_exists(context, other)?,
        _ => false,
    };
    Ok(if is_theirs {
        BTreeMap::new()
    } else {
        build::back_references(cluster, package)
    })
}

/// Returns the patch that adds the missing labels and owners to an object.
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
    fn write(&self, context: &Context<'_>) -> Step<()> {
        let Some(patch) = self.patch.clone() else {
            return Ok(());
        };
        match context.write(Write::patch(self.key.clone(), patch, WHY)) {
            Ok(_) => Ok(()),
            // The readers of a deleted object report it.
            Err(Interrupt::Failed(failure)) if failure.is_not_found() => Ok(()),
            // The next reconcile retries; other packages never wait for it.
            Err(Interrupt::Failed(failure)) if !self.is_needed => match failure.code {
                Some(409) => Ok(()),
                Some(_) => Err(object_refused_with(&self.key, &self.package, &failure).into()),
                None => Err(Interrupt::Failed(failure)),
            },
            Err(Interrupt::Failed(failure)) => Err(object_refused(&self.key, &self.package, failure)),
            Err(stop) => Err(stop),
        }
    }
}
