//! Step 4: the Secret with the values, and what the package needs beside it. Nothing is written that is there already.

use std::{collections::BTreeMap, fmt::Debug};

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::{DynamicObject, ObjectMeta},
    runtime::reflector::ObjectRef,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_core::{
    build::{Owner, owner},
    names,
    providers::{Output, Problem, Reason, Source},
};
use sluice_crds::{
    foreign::Cluster,
    labels::{label, secret_type},
};

use super::{
    Error, OfKind,
    dereference::Found,
    evaluate::{Evaluated, read},
};
use crate::controllers::{served, write::delete};

/// Field manager of everything that this controller writes.
const FIELD_MANAGER: &str = "sluice-providers";

/// What was written: the name of the Secret, or why there is none.
pub(super) type Applied = Result<String, Problem>;

/// Writes what follows from a configuration.
pub(super) async fn run(ctx: &OfKind, found: &Found, evaluated: &Evaluated) -> Result<Applied, Error> {
    let (cluster, output) = match &evaluated.outcome {
        Ok(outcome) => outcome,
        Err(problem) => return Ok(Err(problem.clone())),
    };
    let secret = match values_secret(found, cluster, output) {
        Ok(secret) => secret,
        Err(problem) => return Ok(Err(problem)),
    };
    // One that was found by its name is made one of its Cluster.
    owned_by(cluster, &ctx.api(&found.namespace), &*found.config).await?;
    for object in &output.objects {
        beside(ctx, found, object).await?;
    }
    for source in &output.obsolete {
        remove(ctx, found, source).await?;
    }
    for source in &output.owned {
        goes_with(ctx, cluster, evaluated, source).await?;
    }
    write(ctx, cluster, &secret).await?;
    Ok(Ok(secret.name_any()))
}

fn values_secret(found: &Found, cluster: &Cluster, output: &Output) -> Result<Secret, Problem> {
    let name = names::provider_values_secret(&cluster.name_any(), output.addon)
        .map_err(|error| Problem::new(Reason::NameTooLong, format!("Secret with values: {error}")))?;
    let package = found.config.labels().get(label::PACKAGE_NAME).cloned();
    let labels = [(label::CLUSTER_NAME.to_owned(), cluster.name_any())];
    let labels = labels
        .into_iter()
        .chain(package.map(|package| (label::PACKAGE_NAME.to_owned(), package)));
    let data = output
        .document()
        .into_iter()
        .map(|(key, content)| (key, ByteString(content)));
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(found.namespace.clone()),
            labels: Some(labels.collect()),
            owner_references: Some(vec![reference(cluster)]),
            ..ObjectMeta::default()
        },
        type_: Some(secret_type::OPAQUE.to_owned()),
        data: Some(data.collect()),
        ..Secret::default()
    })
}

fn reference(cluster: &Cluster) -> OwnerReference {
    let cluster = Owner {
        name: cluster.name_any(),
        namespace: cluster.namespace().unwrap_or_default(),
        uid: cluster.uid().unwrap_or_default(),
    };
    owner(&cluster, false)
}

/// Writes the Secret and wakes the Cluster that it is for. What another leader has written since it was read stays: 409 says so.
async fn write(ctx: &OfKind, cluster: &Cluster, secret: &Secret) -> Result<(), Error> {
    let namespace = secret.namespace().unwrap_or_default();
    let (api, name) = (
        Api::<Secret>::namespaced(ctx.shared.client.clone(), &namespace),
        secret.name_any(),
    );
    match api.get_opt(&name).await? {
        Some(found) if same(secret, &found) => return Ok(()),
        Some(found) => {
            let mut next = secret.clone();
            next.metadata.uid = found.uid();
            next.metadata.resource_version = found.resource_version();
            let forced = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&name, &forced, &Patch::Apply(next)).await?;
        }
        // An apply would take over one that exists by now.
        None => drop(api.create(&post_params(), secret).await?),
    }
    ctx.shared.triggers.wake(ObjectRef::from_obj(cluster));
    Ok(())
}

fn same(wanted: &Secret, found: &Secret) -> bool {
    let within = |wanted: &BTreeMap<String, String>, found: &BTreeMap<String, String>| {
        wanted.iter().all(|(key, value)| found.get(key) == Some(value))
    };
    let owned = |owner: &OwnerReference| {
        found
            .owner_references()
            .iter()
            .any(|other| other.uid == owner.uid)
    };
    wanted.data == found.data
        && within(wanted.labels(), found.labels())
        && wanted.owner_references().iter().all(owned)
}

/// Makes an object that the package needs what it has to be.
async fn beside(ctx: &OfKind, found: &Found, wanted: &Value) -> Result<(), Error> {
    let text = |pointer: &str| {
        wanted
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (group, kind) = (
        text("/apiVersion")
            .rsplit_once('/')
            .map_or("", |(group, _)| group),
        text("/kind"),
    );
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let source = if namespace.is_empty() {
        Source::cluster_wide(group, kind, name)
    } else {
        Source::namespaced(group, kind, namespace, name)
    };
    let current = read(ctx, found, &source).await?;
    if current
        .objects
        .first()
        .is_some_and(|current| contains(current, wanted))
    {
        return Ok(());
    }
    let Some(api) = api(ctx, &source).await? else {
        return Err(Error::Unreadable(
            source.clone(),
            "the API server does not serve it".to_owned(),
        ));
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &params, &Patch::Apply(wanted)).await?;
    Ok(())
}

/// Removes an object that is not needed any more.
async fn remove(ctx: &OfKind, found: &Found, source: &Source) -> Result<(), Error> {
    let current = read(ctx, found, source).await?.objects.into_iter().next();
    let Some(current) = current.and_then(|current| serde_json::from_value::<DynamicObject>(current).ok())
    else {
        return Ok(());
    };
    if let Some(api) = api(ctx, source).await? {
        delete(&api, &current.name_any(), current.uid()).await?;
    }
    Ok(())
}

/// A Secret that a configuration names goes with its Cluster.
async fn goes_with(
    ctx: &OfKind,
    cluster: &Cluster,
    evaluated: &Evaluated,
    source: &Source,
) -> Result<(), Error> {
    let Ok(Some(secret)) = evaluated.sources.find(source) else {
        return Ok(());
    };
    let Ok(secret) = serde_json::from_value::<Secret>(secret.clone()) else {
        return Ok(());
    };
    let api = Api::<Secret>::namespaced(ctx.shared.client.clone(), &secret.namespace().unwrap_or_default());
    owned_by(cluster, &api, &secret).await
}

/// Adds the Cluster to the owners of an object, if it is none of them.
async fn owned_by<K>(cluster: &Cluster, api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let wanted = reference(cluster);
    let mut owners = object.owner_references().to_vec();
    if owners.iter().any(|owner| owner.uid == wanted.uid) {
        return Ok(());
    }
    owners.push(wanted);
    let patch =
        json!({"metadata": {"resourceVersion": object.resource_version(), "ownerReferences": owners}});
    api.patch(&object.name_any(), &params(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// The client of what `source` names; `None` when its kind is not served.
async fn api(ctx: &OfKind, source: &Source) -> Result<Option<Api<DynamicObject>>, Error> {
    let (group, kind) = source.group_kind();
    let client = || ctx.shared.client.clone();
    Ok(served(&ctx.shared.client, group, kind)
        .await?
        .map(|resource| match source {
            Source::Object {
                namespace: Some(namespace),
                ..
            } => Api::namespaced_with(client(), namespace, &resource),
            _ => Api::all_with(client(), &resource),
        }))
}

/// A patch under the name of this controller.
pub(super) fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
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
