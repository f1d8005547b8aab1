//! Clones of Secrets with values of a template.

use k8s_openapi::api::core::v1::Secret;

use super::{
    super::{Server, interrupt::needs_of, values, values_cache::unchanged},
    CloneChange, Context, Found, ReadPhase, Step, What, found,
};
use crate::{
    packages::{
        bootstrap::{ValuesClone, credential_refused, is_credential},
        build,
    },
    protocol::interrupt::together,
    reasons::{GateReason, Hold},
    reconcile::cluster::Key,
};

/// Returns the key of a Secret in the namespace of the Cluster.
pub(super) fn key(context: &Context<'_>, secret: &str) -> Key {
    Key::of::<Secret>(Server::Management, Some(&context.facts.owner.namespace), secret)
}

/// Whether the values Secret of `package` exists.
pub(super) fn is_there(context: &Context<'_>, package: &str, secret: &str) -> Step<bool> {
    if unchanged(context, package, secret)?.is_some() {
        return Ok(true);
    }
    let found = context.object(key(context, secret), ReadPhase::Plan)?;
    Ok(found.is_some())
}

/// Returns the write that creates the clone; `None` if the Secret already exists.
pub(super) fn change(context: &Context<'_>, clone: &ValuesClone) -> Step<Option<CloneChange>> {
    let key = key(context, clone.name());
    let there = context.object(key.clone(), ReadPhase::Plan);
    let found = there.and_then(|there| found(context, &key, clone.package(), there));
    let copy = copied(context, clone);
    together([needs_of(&found), needs_of(&copy)])?;
    let instead_of = match found? {
        Found::Kept(_) => return Ok(None),
        Found::Nothing => None,
        Found::Earlier(uid) => Some(uid),
    };
    // An object of this type has no map with keys that are not text.
    let object = serde_json::to_value(copy?).unwrap_or_default();
    Ok(Some(CloneChange {
        key,
        package: clone.package().to_owned(),
        what: What::Make { object, instead_of },
    }))
}

/// Returns the desired Secret of a clone.
fn copied(context: &Context<'_>, clone: &ValuesClone) -> Step<Secret> {
    let owner = &context.facts.owner;
    let values_copy = match clone {
        ValuesClone::Inline { values, package, .. } => {
            build::inline_document(&values::inline_text(context, values, package, ReadPhase::Plan)?)
        }
        ValuesClone::Secret { from, package, .. } => {
            let system = &context.facts.settings.system_namespace;
            let found = context.read::<Secret>(from, (Server::Management, Some(system)), ReadPhase::Plan)?;
            let missing = || {
                Hold::new(
                    GateReason::ValuesNotFound,
                    format!("Secret {system}/{from} with the values of package {package} does not exist"),
                )
            };
            let found = found.ok_or_else(missing)?;
            if is_credential(&found) || values::is_of_cluster(context, system, from)? {
                return Err(credential_refused(system, from, package).into());
            }
            values::content(&found)
        }
        ValuesClone::Provider { .. } => build::Values::new(),
    };
    Ok(build::clone_secret(
        owner,
        clone.name(),
        clone.package(),
        &values_copy,
    ))
}
