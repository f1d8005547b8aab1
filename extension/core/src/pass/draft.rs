//! The ClusterBootstrap as it has to be, with the clones of values that it refers to.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use sluice_crds::{labels::annotation, run::ClusterBootstrap};

use super::{
    Known, Server, Sight, Step,
    known::typed,
    stop::{in_order, together},
    validate::Validated,
    values,
    write::Write,
};
use crate::{
    bootstrap::{Draft, ValuesClone},
    build,
    hold::{GateReason, Hold},
};

/// The ClusterBootstrap as it is now, written where it has to be another one; and what is wrong.
pub(super) fn changed(
    known: &Known<'_>,
    validated: &Validated,
) -> Step<(Option<ClusterBootstrap>, Option<Hold>)> {
    let current = || known.facts.bootstrap.as_deref().cloned();
    let change = validated.change.as_ref().filter(|_| validated.paused.is_none());
    let (Some(draft), Ok(release)) = (change, &validated.release) else {
        return Ok((current(), validated.problem.clone()));
    };
    match write(known, release, draft) {
        Ok(written) => Ok((Some(written), None)),
        Err(stop) => Ok((current(), Some(stop.held()?))),
    }
}

/// Writes a drafted ClusterBootstrap: its clones first, so that it never refers to what does not exist.
fn write(known: &Known<'_>, release: &str, draft: &Draft) -> Step<ClusterBootstrap> {
    const WHY: &str = "its packages shall be those of the release";
    let clones = together(draft.clones.iter().map(|clone| copied(known, clone)))?;
    // Only once all can be made: the source of one may be put right while another's is waited for.
    let clones: Vec<_> = clones.into_iter().collect::<Step<_>>()?;
    in_order(clones.iter().map(|clone| {
        // One that exists was put there by the user, or by an earlier try: it wins.
        let create = Write::create(Server::Management, clone, "values of the ClusterBootstrap");
        known.create(create).map(drop)
    }))?;
    let written = known.write(match known.facts.bootstrap.as_deref() {
        None => {
            let new = build::bootstrap(&known.facts.owner, draft.spec.clone(), release);
            Write::create(Server::Management, &new, WHY)
        }
        Some(current) => {
            let mut next = ClusterBootstrap {
                spec: draft.spec.clone(),
                ..current.clone()
            };
            let mark = (annotation::RESOLVED_TKR.to_owned(), release.to_owned());
            next.annotations_mut().extend([mark]);
            Write::replace(Server::Management, &next, WHY)
        }
    })?;
    typed(Server::Management, written)
}

/// The Secret that a clone shall be.
fn copied(known: &Known<'_>, clone: &ValuesClone) -> Step<Secret> {
    let owner = &known.facts.owner;
    let (name, package, content) = match clone {
        ValuesClone::Inline {
            secret,
            package,
            values,
        } => (secret, package, build::inline_document(values)),
        ValuesClone::Secret { from, to, package } => {
            let system = &known.facts.settings.system_namespace;
            let found = known.read::<Secret>(from, (Server::Management, Some(system)), Sight::First)?;
            let missing = || {
                Hold::new(
                    GateReason::ValuesNotFound,
                    format!("Secret {system}/{from} with the values of package {package} does not exist"),
                )
            };
            (to, package, values::content(&found.ok_or_else(missing)?))
        }
    };
    Ok(build::clone_secret(owner, name, package, &content))
}
