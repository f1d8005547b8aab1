//! What belongs to a package beside its values: owners, extra objects, and what is not needed any more.

use k8s_openapi::{
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::ResourceExt as _;
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_crds::foreign::Cluster;

use super::{Context, Interrupt, Step, values::found};
use crate::{
    packages::build::{self, Owner},
    protocol::{Failure, Key, Read, Server, Write},
    providers::{Source, Sources, source::text},
};

/// The Cluster as an owner.
pub(super) fn reference(cluster: &Cluster) -> OwnerReference {
    let cluster = Owner {
        name: cluster.name_any(),
        namespace: cluster.namespace().unwrap_or_default(),
        uid: cluster.uid().unwrap_or_default(),
    };
    build::owner(&cluster, false)
}

/// `found` and those of `wanted` that are missing; `None` when none is. An object has one controller: one that was made again under its
/// name takes the place of the one before.
pub(super) fn with_owners(
    found: &[OwnerReference],
    wanted: &[OwnerReference],
) -> Option<Vec<OwnerReference>> {
    let missing = wanted
        .iter()
        .filter(|wanted| found.iter().all(|found| found.uid != wanted.uid));
    let is_succeeded = |found: &OwnerReference, wanted: &OwnerReference| {
        let both = [found, wanted].iter().all(|owner| owner.controller == Some(true));
        both && (&found.kind, &found.name) == (&wanted.kind, &wanted.name) && found.uid != wanted.uid
    };
    let kept = found
        .iter()
        .filter(|found| !wanted.iter().any(|wanted| is_succeeded(found, wanted)));
    let all: Vec<_> = kept.chain(missing).cloned().collect();
    (all != found).then_some(all)
}

/// Adds the Cluster to the owners of an object, if it is none of them.
pub(super) fn adopt(known: &Context<'_>, cluster: &Cluster, key: Key, object: &ObjectMeta) -> Step<()> {
    let found = object.owner_references.as_deref().unwrap_or_default();
    let Some(owners) = with_owners(found, &[reference(cluster)]) else {
        return Ok(());
    };
    let metadata =
        json!({"uid": object.uid, "resourceVersion": object.resource_version, "ownerReferences": owners});
    let patch = json!({ "metadata": metadata });
    known
        .write(Write::patch(key, patch, "it goes with its Cluster"))
        .map(drop)
}

/// A Secret that a configuration names goes with its Cluster.
pub(super) fn adopt_secret(
    known: &Context<'_>,
    cluster: &Cluster,
    sources: &Sources,
    source: &Source,
) -> Step<()> {
    let Ok(Some(secret)) = sources.find(source) else {
        return Ok(());
    };
    let Ok(secret) = Secret::deserialize(secret) else {
        return Ok(());
    };
    let namespace = secret.namespace();
    let key = Key::of::<Secret>(Server::Management, namespace.as_deref(), &secret.name_any());
    adopt(known, cluster, key, &secret.metadata)
}

/// Makes an object that the package needs what it has to be. Of its owners those that `former_owners` names go, and those of others stay.
///
/// Objects of the whole cluster are roles of names that Sluice may write. A POST does not say a name to an authorizer, so one that is
/// missing is applied; only Sluice writes it, and it is the same for all Clusters.
pub(super) fn extra(known: &Context<'_>, wanted: &Value, former_owners: &[String]) -> Step<()> {
    const WHY: &str = "a package needs it";
    let source = source_of(wanted);
    let current = found(known, &source)?.into_iter().flatten().next();
    let mut next = wanted.clone();
    if let Some(current) = current {
        let owners =
            |object: &Value| Vec::deserialize(&object["metadata"]["ownerReferences"]).unwrap_or_default();
        let found: Vec<OwnerReference> = owners(current);
        let is_kept = |owner: &&OwnerReference| !former_owners.contains(&owner.uid);
        let kept: Vec<_> = found.iter().filter(is_kept).cloned().collect();
        let all = with_owners(&kept, &owners(wanted)).unwrap_or(kept);
        if all == found {
            // Those of others stay.
            drop(
                next["metadata"]
                    .as_object_mut()
                    .map(|metadata| metadata.remove("ownerReferences")),
            );
        } else {
            next["metadata"]["ownerReferences"] = json!(all);
        }
        if contains(current, &next) {
            return Ok(());
        }
        for field in ["uid", "resourceVersion"] {
            next["metadata"][field] = current["metadata"][field].clone();
        }
    }
    let key = key(known, &source)?.ok_or_else(|| {
        let text = format!("write {source}: the API server does not serve its kind");
        Interrupt::Failed(Failure::other(Server::Management, &text))
    })?;
    let write = match (current, &key.namespace) {
        (Some(_), _) => Write::patch(key, next, WHY),
        (None, Some(_)) => Write::post(key, next, WHY),
        (None, None) => Write::apply(key, next, WHY),
    };
    known.write(write).map(drop)
}

/// Removes an object that is not needed any more.
pub(super) fn remove(known: &Context<'_>, source: &Source) -> Step<()> {
    let Some(current) = found(known, source)?.into_iter().flatten().next() else {
        return Ok(());
    };
    let uid = current["metadata"]["uid"].as_str().map(str::to_owned);
    let Some(key) = key(known, source)? else {
        return Ok(());
    };
    known
        .write(Write::delete(key, uid, "no package needs it any more"))
        .map(drop)
}

/// The object that `source` names, as requests name it; `None` when its kind is not served.
fn key(known: &Context<'_>, source: &Source) -> Step<Option<Key>> {
    let Source::Object {
        group,
        kind,
        namespace,
        name,
        ..
    } = source
    else {
        return Ok(None);
    };
    let served = known.served(Read::Served {
        group: group.clone(),
        kind: kind.clone(),
    })?;
    Ok(served.map(|resource| Key {
        server: Server::Management,
        resource,
        namespace: namespace.clone(),
        name: name.clone(),
    }))
}

fn source_of(object: &Value) -> Source {
    let api_version = text(object, "/apiVersion");
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    match text(object, "/metadata/namespace") {
        "" => Source::cluster_wide(group, kind, name),
        namespace => Source::namespaced(group, kind, namespace, name),
    }
}

/// Whether `found` says everything that `wanted` says. Lists are equal or not.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| found.get(name).is_some_and(|found| contains(found, wanted))),
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str, uid: &str, controller: bool) -> OwnerReference {
        OwnerReference {
            kind: "VSphereCluster".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: controller.then_some(true),
            ..OwnerReference::default()
        }
    }

    #[test]
    fn owners_of_others_stay_and_a_controller_follows_the_one_before_it() {
        let (other, before, now) = (
            owner("other", "1", false),
            owner("one", "2", true),
            owner("one", "3", true),
        );
        let found = [other.clone(), before.clone()];
        assert_eq!(with_owners(&found, std::slice::from_ref(&before)), None);
        assert_eq!(
            with_owners(&found, std::slice::from_ref(&now)),
            Some(vec![other.clone(), now.clone()])
        );
        let no_controller = owner("one", "3", false);
        assert_eq!(
            with_owners(&found, std::slice::from_ref(&no_controller)),
            Some(vec![other, before, no_controller])
        );
    }
}
