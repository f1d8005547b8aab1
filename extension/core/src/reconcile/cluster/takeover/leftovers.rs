//! Objects with leftovers of the addons-manager.

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt;
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::Cluster,
    labels::{annotation, finalizer, name},
    run::ClusterBootstrap,
};

use crate::{
    migration::{holds_machine, without_finalizer},
    reconcile::cluster::{
        Context, Failure, Interrupt, ReadPhase, Server, Step, Verb, Write,
        interrupt::{needs_of, together},
        read::{Key, Read},
    },
};

/// One object, and the finalizer or annotation to remove from it.
pub(super) struct Leftover {
    pub(super) key: Key,
    pub(super) what: &'static str,
    pub(super) patch: Value,
}

impl Leftover {
    /// Whether `object` still has the leftover.
    fn is_in(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let mut finalizers = metadata["finalizers"].as_array().into_iter().flatten();
        finalizers.any(|name| name == self.what) || !metadata["annotations"][self.what].is_null()
    }

    fn is_of_machine(&self) -> bool {
        self.what == annotation::LEGACY_PRE_TERMINATE
    }
}

/// Result of a removal of leftovers.
pub(super) struct Removal<'a> {
    /// Removed leftovers, without those that a webhook restored at once.
    pub(super) removed: Vec<&'a Leftover>,
    /// Whether any object was written.
    pub(super) wrote: bool,
    /// First failed write; a conflict only if no other failure follows.
    pub(super) failed: Option<(&'a Leftover, Failure)>,
}

/// Removes `leftovers` in their order. A failed write of a Machine does not block other Machines, but it keeps the finalizers, which
/// trigger the check for leftovers. Without a response of the API server, no further writes follow.
pub(super) fn remove<'a>(context: &Context<'_>, leftovers: &'a [Leftover]) -> Step<Removal<'a>> {
    const WHY: &str = "leftover of the addons-manager, which nothing else removes";
    let mut removal = Removal {
        removed: Vec::new(),
        wrote: false,
        failed: None,
    };
    let mut writes = Vec::new();
    for left in leftovers {
        if removal.failed.is_some() && !left.is_of_machine() {
            break;
        }
        match context.write(Write::patch(left.key.clone(), left.patch.clone(), WHY)) {
            Ok(written) => {
                removal.wrote = true;
                if !left.is_in(written) {
                    removal.removed.push(left);
                }
            }
            Err(Interrupt::Failed(failure)) if failure.is_not_found() => {}
            Err(Interrupt::Failed(failure)) => {
                let ends = failure.is_transient();
                let before = removal.failed.as_ref();
                if before.is_none_or(|(_, before)| before.is_conflict()) {
                    removal.failed = Some((left, failure));
                }
                if ends {
                    break;
                }
            }
            Err(Interrupt::Write(more)) => writes.extend(more),
            Err(stop) => return Err(stop),
        }
    }
    if writes.is_empty() {
        Ok(removal)
    } else {
        Err(Interrupt::Write(writes))
    }
}

/// Returns the leftovers in the order of their removal.
pub(super) fn leftovers(context: &Context<'_>) -> Step<Vec<Leftover>> {
    const FINALIZER: &str = finalizer::LEGACY_ADDON;
    let facts = context.facts;
    let namespace = &facts.owner.namespace;
    let machines = context.listed(Read::Machines(namespace.clone()));
    let secret = context.read::<Secret>(
        &kubeconfig(context),
        (Server::Management, Some(namespace)),
        ReadPhase::Plan,
    );
    together([needs_of(&machines), needs_of(&secret)])?;
    let mut left = Vec::new();
    for machine in machines? {
        // The addons-manager has not written a Machine with unreadable metadata.
        let Ok(metadata) = ObjectMeta::deserialize(&machine.0["metadata"]) else {
            continue;
        };
        if holds_machine(&metadata) {
            let mut patch = exactly(&metadata);
            patch["metadata"]["annotations"] = json!({annotation::LEGACY_PRE_TERMINATE: null});
            left.push(Leftover {
                key: Key::machine(namespace, &metadata.name.unwrap_or_default()),
                what: annotation::LEGACY_PRE_TERMINATE,
                patch,
            });
        }
    }
    let mut of = |key: Key, metadata: &ObjectMeta| {
        if let Some(others) = without_finalizer(metadata) {
            let mut patch = exactly(metadata);
            patch["metadata"]["finalizers"] = json!(others);
            left.push(Leftover {
                key,
                what: FINALIZER,
                patch,
            });
        }
    };
    let bootstrap = facts
        .bootstrap
        .as_deref()
        .map(|bootstrap| (of_bootstrap(context), metadata_of(context, bootstrap)));
    let of_cluster = (of_cluster(context), facts.cluster.metadata.clone());
    let secret = secret?.map(|secret| {
        let key = Key::of::<Secret>(Server::Management, Some(namespace), &kubeconfig(context));
        (key, secret.metadata)
    });
    // A ClusterBootstrap that is being deleted vanishes with its finalizer. Sluice does not manage a Cluster that has neither the label
    // nor a ClusterBootstrap, so this finalizer goes last.
    let (goes, stays) = match bootstrap {
        Some((key, metadata)) if metadata.deletion_timestamp.is_some() => (Some((key, metadata)), None),
        stays => (None, stays),
    };
    for (key, metadata) in stays.into_iter().chain(secret).chain([of_cluster]).chain(goes) {
        of(key, &metadata);
    }
    Ok(left)
}

/// Returns the current metadata of `bootstrap`: this reconcile may have written its status.
fn metadata_of(context: &Context<'_>, bootstrap: &ClusterBootstrap) -> ObjectMeta {
    let mut metadata = bootstrap.metadata.clone();
    let written = context.made(&of_bootstrap(context), Verb::ReplaceStatus);
    if let Some(version) = written.and_then(|written| written["metadata"]["resourceVersion"].as_str()) {
        metadata.resource_version = Some(version.to_owned());
    }
    metadata
}

/// Whether the kubeconfig Secret, if this reconcile has already read it, still has the finalizer.
pub(super) fn kubeconfig_has_finalizer(context: &Context<'_>) -> bool {
    let namespace = Some(context.facts.owner.namespace.as_str());
    let key = Key::of::<Secret>(Server::Management, namespace, &kubeconfig(context));
    let read = Read::Object(key.clone(), ReadPhase::Plan);
    let found = context.has(&read).then(|| context.object(key, ReadPhase::Plan));
    let finalizers = |found: &Value| found["metadata"]["finalizers"].as_array().cloned();
    let found = found.and_then(Result::ok).flatten().and_then(finalizers);
    found.is_some_and(|names| names.iter().any(|name| name == finalizer::LEGACY_ADDON))
}

/// Returns a patch with the UID and resourceVersion of `object` as preconditions.
pub(super) fn exactly(object: &ObjectMeta) -> Value {
    json!({"metadata": {"uid": object.uid, "resourceVersion": object.resource_version}})
}

fn kubeconfig(context: &Context<'_>) -> String {
    format!("{}{}", context.facts.owner.name, name::KUBECONFIG_SUFFIX)
}

pub(super) fn of_cluster(context: &Context<'_>) -> Key {
    let owner = &context.facts.owner;
    Key::of::<Cluster>(Server::Management, Some(&owner.namespace), &owner.name)
}

pub(super) fn of_bootstrap(context: &Context<'_>) -> Key {
    let facts = context.facts;
    let name = facts
        .bootstrap
        .as_ref()
        .map_or_else(String::new, |found| found.name_any());
    Key::of::<ClusterBootstrap>(Server::Management, Some(&facts.owner.namespace), &name)
}

/// Returns the event note on removed leftovers.
pub(super) fn note(leftovers: &[&Leftover]) -> String {
    let of = |what: &'static str| leftovers.iter().filter(move |left| left.what == what);
    let objects: Vec<String> = of(finalizer::LEGACY_ADDON)
        .map(|left| left.key.to_string())
        .collect();
    let machines = of(annotation::LEGACY_PRE_TERMINATE).count();
    let mut parts = Vec::new();
    if !objects.is_empty() {
        parts.push(format!(
            "finalizer {} of {}",
            finalizer::LEGACY_ADDON,
            objects.join(", ")
        ));
    }
    if machines > 0 {
        let key = annotation::LEGACY_PRE_TERMINATE;
        parts.push(format!("annotation {key} of {machines} Machine(s)"));
    }
    format!("removed leftovers of the addons-manager: {}", parts.join("; "))
}
