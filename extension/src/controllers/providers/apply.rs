//! Step 4: the Secret with the values, and what the package needs beside it. Nothing is written that is there already.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::{DynamicObject, ObjectMeta},
    runtime::reflector::ObjectRef,
};
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
    watches::served,
};

/// Field manager of everything that this controller writes.
pub(super) const FIELD_MANAGER: &str = "sluice-providers";

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
    own(ctx, found, cluster).await?;
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

/// Writes the Secret and wakes the Cluster that it is for.
async fn write(ctx: &OfKind, cluster: &Cluster, secret: &Secret) -> Result<(), Error> {
    let namespace = secret.namespace().unwrap_or_default();
    let api = Api::<Secret>::namespaced(ctx.shared.client.clone(), &namespace);
    let current = api.get_opt(&secret.name_any()).await?;
    if current.is_some_and(|current| same(secret, &current)) {
        return Ok(());
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&secret.name_any(), &params, &Patch::Apply(secret))
        .await?;
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

/// Makes a configuration that was found by its name one of its Cluster.
async fn own(ctx: &OfKind, found: &Found, cluster: &Cluster) -> Result<(), Error> {
    let wanted = reference(cluster);
    let mut owners = found.config.owner_references().to_vec();
    if owners.iter().any(|owner| owner.uid == wanted.uid) {
        return Ok(());
    }
    owners.push(wanted);
    let patch =
        json!({"metadata": {"resourceVersion": found.config.resource_version(), "ownerReferences": owners}});
    let (api, name) = (ctx.api(&found.namespace), found.config.name_any());
    api.patch(&name, &params(), &Patch::Merge(patch)).await?;
    Ok(())
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
        return Err(Error::Unlisted(source.to_string()));
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &params, &Patch::Apply(wanted)).await?;
    Ok(())
}

/// Removes an object that is not needed any more.
async fn remove(ctx: &OfKind, found: &Found, source: &Source) -> Result<(), Error> {
    let current = read(ctx, found, source).await?.objects;
    let (Some(current), Some(api)) = (current.first(), api(ctx, source).await?) else {
        return Ok(());
    };
    let text = |pointer: &str| {
        current
            .pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let exactly = DeleteParams {
        preconditions: Some(Preconditions {
            uid: text("/metadata/uid"),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api
        .delete(&text("/metadata/name").unwrap_or_default(), &exactly)
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
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
    let wanted = reference(cluster);
    let mut owners = secret.owner_references().to_vec();
    if owners.iter().any(|owner| owner.uid == wanted.uid) {
        return Ok(());
    }
    owners.push(wanted);
    let api = Api::<Secret>::namespaced(ctx.shared.client.clone(), &secret.namespace().unwrap_or_default());
    let patch =
        json!({"metadata": {"resourceVersion": secret.resource_version(), "ownerReferences": owners}});
    api.patch(&secret.name_any(), &params(), &Patch::Merge(patch))
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

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
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
