//! Objects of a package besides its values: owner references, extra objects and obsolete objects.

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

/// Returns an owner reference to the Cluster.
pub(super) fn reference(cluster: &Cluster) -> OwnerReference {
    let cluster = Owner {
        name: cluster.name_any(),
        namespace: cluster.namespace().unwrap_or_default(),
        uid: cluster.uid().unwrap_or_default(),
    };
    build::owner(&cluster, false)
}

/// Returns `found` with the missing owners of `wanted`; `None` if none is missing. An object has one controller: a recreated controller
/// replaces the earlier one of the same name.
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

/// Adds the Cluster to the owners of an object, if it is missing.
pub(super) fn adopt(context: &Context<'_>, cluster: &Cluster, key: Key, object: &ObjectMeta) -> Step<()> {
    let found = object.owner_references.as_deref().unwrap_or_default();
    let Some(owners) = with_owners(found, &[reference(cluster)]) else {
        return Ok(());
    };
    let metadata =
        json!({"uid": object.uid, "resourceVersion": object.resource_version, "ownerReferences": owners});
    let patch = json!({ "metadata": metadata });
    context
        .write(Write::patch(key, patch, "object is deleted with its Cluster"))
        .map(drop)
}

/// Adds the Cluster to the owners of a Secret that a configuration names, so that both are deleted together.
pub(super) fn adopt_secret(
    context: &Context<'_>,
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
    adopt(context, cluster, key, &secret.metadata)
}

/// Creates or updates an object that the package needs. Removes the owners in `former_owners` and keeps all other owners.
///
/// Cluster-scoped objects are roles, which RBAC lets Sluice write by name. The authorizer sees no name in a POST, so a missing role is
/// applied. Only Sluice writes it, and it is the same for all Clusters.
pub(super) fn extra(context: &Context<'_>, wanted: &Value, former_owners: &[String]) -> Step<()> {
    const WHY: &str = "required by a package";
    let source = source_of(wanted);
    let current = found(context, &source)?.into_iter().flatten().next();
    let mut next = wanted.clone();
    if let Some(current) = current {
        let owners =
            |object: &Value| Vec::deserialize(&object["metadata"]["ownerReferences"]).unwrap_or_default();
        let found: Vec<OwnerReference> = owners(current);
        let is_kept = |owner: &&OwnerReference| !former_owners.contains(&owner.uid);
        let kept: Vec<_> = found.iter().filter(is_kept).cloned().collect();
        let all = with_owners(&kept, &owners(wanted)).unwrap_or(kept);
        if all == found {
            // Other owners stay.
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
    let key = key(context, &source)?.ok_or_else(|| {
        let text = format!("write {source}: the API server does not serve its kind");
        Interrupt::Failed(Failure::other(Server::Management, &text))
    })?;
    let write = match (current, &key.namespace) {
        (Some(_), _) => Write::patch(key, next, WHY),
        (None, Some(_)) => Write::post(key, next, WHY),
        (None, None) => Write::apply(key, next, WHY),
    };
    context.write(write).map(drop)
}

/// Deletes an obsolete object.
pub(super) fn remove(context: &Context<'_>, source: &Source) -> Step<()> {
    let Some(current) = found(context, source)?.into_iter().flatten().next() else {
        return Ok(());
    };
    let uid = current["metadata"]["uid"].as_str().map(str::to_owned);
    let Some(key) = key(context, source)? else {
        return Ok(());
    };
    context
        .write(Write::delete(key, uid, "no package requires the object"))
        .map(drop)
}

/// Returns the key of the object of `source`; `None` if its kind is not served.
fn key(context: &Context<'_>, source: &Source) -> Step<Option<Key>> {
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
    let served = context.served(Read::Served {
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

/// Returns whether `found` contains all fields of `wanted`. Lists must be equal.
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
    fn other_owners_stay_and_a_recreated_controller_replaces_the_earlier_one() {
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
