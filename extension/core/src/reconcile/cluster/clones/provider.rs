//! Clones of values providers from the system namespace, with the objects that they refer to (addons-manager §3.2a).

use serde_json::{Value, json};
use sluice_crds::run::TypedLocalObjectReference;

use super::{
    super::{
        Server,
        interrupt::needs_of,
        provider::{COPYING as VERBS, Missing, check_kind, resource},
        values::is_of_cluster,
    },
    CloneChange, Context, Found, Key, Owners, ReadPhase, Step, What, found, left_behind, owner_references,
};
use crate::{
    names,
    packages::{
        bootstrap::{EmbeddedReference, credential_refused, embedded_references, is_credential_type},
        build,
    },
    protocol::interrupt::together,
    reasons::{GateReason, Hold},
};

/// Whether the object of this name exists in the namespace of the Cluster, with all objects that it refers to.
pub(super) fn is_whole(context: &Context<'_>, (group, kind): (&str, &str), name: &str) -> Step<bool> {
    let Some(found) = peek(context, (group, kind), name)? else {
        return Ok(false);
    };
    let references = embedded_references(found);
    let embedded = references
        .iter()
        .map(|each| peek(context, (&each.group, &each.kind), &each.name));
    let embedded: Vec<Option<&Value>> = together(embedded)?.into_iter().collect::<Step<_>>()?;
    Ok(embedded.iter().all(Option::is_some))
}

/// Returns the object of this name in the namespace of the Cluster, if any.
fn peek<'a>(context: &'a Context<'_>, (group, kind): (&str, &str), name: &str) -> Step<Option<&'a Value>> {
    let namespace = &context.facts.owner.namespace;
    let missing = Missing::new(format!("{kind} {namespace}/{name}"), VERBS);
    if !names::is_object_name(name) {
        return Err(missing.hold("has an invalid name").into());
    }
    let key = Key {
        server: Server::Management,
        resource: resource(context, group, kind, &missing)?,
        namespace: Some(namespace.clone()),
        name: name.to_owned(),
    };
    known_first(context, &key, &missing)
}

/// Returns the writes that create the provider of the package and the objects that it refers to. Objects of users are never overwritten.
pub(super) fn changes(
    context: &Context<'_>,
    from: &TypedLocalObjectReference,
    to: &str,
    package: &str,
) -> Step<Vec<CloneChange>> {
    let (owner, system) = (&context.facts.owner, &context.facts.settings.system_namespace);
    let named = format!("{} {system}/{}", from.kind, from.name);
    let missing = Missing::new(
        format!("{named}, the values source of package {package} in the template,"),
        VERBS,
    );
    let group = from.api_group.as_deref().unwrap_or_default();
    // Sluice may create ClusterBootstraps and PackageInstalls. A copy of one would be more than a values source.
    check_kind(group, &from.kind, &missing)?;
    let resource = resource(context, group, &from.kind, &missing)?;
    let key = |namespace: &str, name: &str| Key {
        server: Server::Management,
        resource: resource.clone(),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    };
    let (own, source) = (key(&owner.namespace, to), key(system, &from.name));
    let of_own = Missing::new(format!("{own}, the values source of package {package},"), VERBS);
    let there = known_first(context, &own, &of_own).and_then(|there| found(context, &own, package, there));
    let source = known_first(context, &source, &missing);
    together([needs_of(&there), needs_of(&source)])?;
    let there = there?;
    let source = match (source, &there) {
        (Ok(Some(source)), _) => source,
        // An existing provider is complete, or its user completes it.
        (Ok(None), Found::Kept(_)) => return Ok(Vec::new()),
        (Ok(None), _) => return Err(missing.hold("does not exist").into()),
        (Err(stop), Found::Kept(_)) => return stop.held().map(|_| Vec::new()),
        (Err(stop), _) => return Err(stop),
    };
    let mut references = embedded_references(source);
    // From the system namespace, a user gets only objects that both the template and the user's provider refer to.
    if let Found::Kept(kept) = there {
        let asked = embedded_references(kept);
        references.retain(|reference| asked.iter().any(|asked| is_same(asked, reference)));
    }
    let embedded = references
        .iter()
        .map(|each| embedded(context, each, &named, package));
    let embedded: Vec<Option<CloneChange>> = together(embedded)?.into_iter().collect::<Step<_>>()?;
    let mut changes: Vec<CloneChange> = embedded.into_iter().flatten().collect();
    let instead_of = match there {
        Found::Kept(_) => return Ok(changes),
        Found::Nothing => None,
        Found::Earlier(uid) => Some(uid),
    };
    let labels = build::back_references(owner, package);
    let object = copy(source, &own, &json!({"labels": labels}), owner);
    changes.push(CloneChange {
        key: own,
        package: package.to_owned(),
        what: What::Make { object, instead_of },
    });
    Ok(changes)
}

fn is_same(one: &EmbeddedReference, other: &EmbeddedReference) -> bool {
    (&one.group, &one.kind, &one.name) == (&other.group, &other.kind, &other.name)
}

/// Returns the write for an object that `source` refers to, under the same name. An existing object only gets this Cluster as another
/// owner: Clusters of one namespace share it.
fn embedded(
    context: &Context<'_>,
    reference: &EmbeddedReference,
    source: &str,
    package: &str,
) -> Step<Option<CloneChange>> {
    let (owner, system) = (&context.facts.owner, &context.facts.settings.system_namespace);
    let EmbeddedReference {
        field,
        group,
        kind,
        name,
        namespace,
    } = reference;
    let said_by = format!("{field} of {source}");
    if let Some(namespace) = namespace.as_ref().filter(|namespace| *namespace != system) {
        let message = format!(
            "{said_by} names {kind} {namespace}/{name}, but only objects of its own namespace are allowed; remove field namespace, and \
             create the object there"
        );
        return Err(Hold::new(GateReason::ValuesNotFound, message).into());
    }
    let missing = Missing::new(format!("{kind} {system}/{name}, which {said_by} names,"), VERBS);
    if !names::is_object_name(name) {
        return Err(missing.hold("has an invalid name; correct it").into());
    }
    let resource = resource(context, group, kind, &missing)?;
    let key = |namespace: &str| Key {
        server: Server::Management,
        resource: resource.clone(),
        namespace: Some(namespace.to_owned()),
        name: name.clone(),
    };
    let own = key(&owner.namespace);
    let found = known_first(context, &own, &missing)?;
    let make = |instead_of: Option<String>| -> Step<Option<What>> {
        let source = known_first(context, &key(system), &missing)?;
        let source = source.ok_or_else(|| missing.hold("does not exist"))?;
        let is_credential = || -> Step<bool> {
            Ok(is_credential_type(source["type"].as_str()) || is_of_cluster(context, system, name)?)
        };
        if (group.as_str(), kind.as_str()) == ("", "Secret") && is_credential()? {
            return Err(credential_refused(system, name, package).into());
        }
        let object = copy(source, &own, &json!({}), owner);
        Ok(Some(What::Make { object, instead_of }))
    };
    let what = match found {
        None => make(None),
        Some(found) => {
            let owners = Owners::of(context, &owner_references(found))?;
            if let Some(uid) = left_behind(&own, found, &owners)? {
                make(Some(uid))
            } else {
                let (uid, version) = (&found["metadata"]["uid"], &found["metadata"]["resourceVersion"]);
                let patch = |owners| json!({"metadata": {"uid": uid, "resourceVersion": version, "ownerReferences": owners}});
                Ok(owners.with_cluster(owner).map(patch).map(What::Own))
            }
        }
    };
    Ok(what?.map(|what| CloneChange {
        key: own,
        package: package.to_owned(),
        what,
    }))
}

/// Reads an object as it was before this reconcile, because each round derives the same writes from it.
fn known_first<'a>(context: &'a Context<'_>, key: &Key, missing: &Missing) -> Step<Option<&'a Value>> {
    missing.explain(context.object(key.clone(), ReadPhase::Plan), key)
}

/// Returns a copy of `source` as the object of `key`, without its metadata and its status.
fn copy(source: &Value, key: &Key, metadata: &Value, owner: &build::Owner) -> Value {
    let mut copy = source.clone();
    let mut metadata = metadata.clone();
    metadata["name"] = json!(key.name);
    metadata["namespace"] = json!(key.namespace);
    metadata["ownerReferences"] = json!([build::owner(owner, false)]);
    if let Some(fields) = copy.as_object_mut() {
        fields.remove("status");
        fields.insert("metadata".to_owned(), metadata);
    }
    copy
}
