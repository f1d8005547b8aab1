//! Write of the desired ClusterBootstrap and of the values clones that it refers to.

use kube::ResourceExt;
use sluice_crds::{labels::annotation, run::ClusterBootstrap};

use super::{
    Context, Failure, Interrupt, ReadPhase, Server, Step, clones,
    confirm_cluster::confirm_cluster,
    context::typed,
    failure::{owner_refused, webhook_in_the_way},
    management,
    owners::is_current,
    validate::Validated,
    values,
    write::Write,
};
use crate::{
    packages::{
        bootstrap::{Draft, ResolvedRelease, all_mut},
        build,
    },
    reasons::Hold,
    upgrade::rollback,
};

/// Writes the ClusterBootstrap if it must change. Returns the current ClusterBootstrap, a problem, and the hold for a refused owner
/// reference. Without that owner, the ClusterBootstrap only outlives its Cluster.
pub(super) fn changed(
    context: &Context<'_>,
    validated: &Validated,
) -> Step<(Option<ClusterBootstrap>, Option<Hold>, Option<Hold>)> {
    let current = || context.facts.bootstrap.as_deref().cloned();
    let change = validated.change.as_ref().filter(|_| validated.paused.is_none());
    let (Some(draft), Ok(release)) = (change, &validated.release) else {
        return Ok((current(), validated.problem.clone(), None));
    };
    if let Some(rollback) = validated.rollback.under_way() {
        let found = context.facts;
        // A leader that stops after the write must find the gates of the version closed.
        if found.record().and_then(|record| record.rollback.as_ref()) != Some(rollback) {
            return Ok((current(), Some(rollback::not_recorded()), None));
        }
        // The control plane must still have its version.
        let cached = found.control_plane.as_ref();
        let confirmed = confirm_cluster(context, &found.owner, &found.cluster, cached)?;
        if confirmed.outdated.is_some() {
            return Ok((current(), confirmed.outdated, None));
        }
    }
    match write(context, release, draft) {
        Ok(written) => Ok((Some(written), None, None)),
        Err(Interrupt::Failed(failure))
            if is_as_it_was(context, release, draft) && failure.code.is_some() =>
        {
            let refusal = (!failure.is_conflict()).then(|| owner_refused(context, &failure));
            Ok((current(), validated.problem.clone(), refusal))
        }
        Err(Interrupt::Failed(failure)) => {
            let hold = webhook_in_the_way(&of_owner(context), &failure);
            let hold = hold.ok_or(Interrupt::Failed(failure))?;
            Ok((current(), Some(hold), None))
        }
        Err(stop) => Ok((current(), Some(stop.held()?), None)),
    }
}

fn of_owner(context: &Context<'_>) -> String {
    let owner = &context.facts.owner;
    format!("ClusterBootstrap {}/{}", owner.namespace, owner.name)
}

/// Whether the draft only adds the owner of the ClusterBootstrap.
fn is_as_it_was(context: &Context<'_>, release: &str, draft: &Draft) -> bool {
    let current = context.facts.bootstrap.as_deref();
    current.is_some_and(|current| {
        current.spec == draft.spec && ResolvedRelease::of(current).annotation == Some(release)
    })
}

/// Returns `next`, derived from `current`, with the fields that the cache omits: a replacement removes missing fields.
fn completed(
    context: &Context<'_>,
    current: &ClusterBootstrap,
    next: ClusterBootstrap,
) -> Step<ClusterBootstrap> {
    const MARKS: [&str; 3] = [
        annotation::RESOLVED_TKR,
        annotation::KAPP_CONTROLLER,
        annotation::ROLLBACK_TO,
    ];
    let whole = values::whole_bootstrap(context, ReadPhase::Plan)?;
    let edited = || {
        let what = format!("{} was edited while it was read", of_owner(context));
        Interrupt::Failed(Failure::overtaken(Server::Management, &what))
    };
    // The next spec depends on annotations, which do not change the generation.
    let version = |bootstrap: &ClusterBootstrap| (bootstrap.uid(), bootstrap.resource_version());
    if version(&whole) != version(current) {
        return Err(edited());
    }
    let ClusterBootstrap {
        mut spec, metadata, ..
    } = next;
    for package in all_mut(&mut spec) {
        let inline = package.values_from.as_mut().and_then(|from| from.inline.as_mut());
        if let Some(inline) = inline
            && inline.text().is_none()
        {
            *inline = values::inline_of(&whole.spec, inline)
                .cloned()
                .ok_or_else(edited)?;
        }
    }
    let marks = metadata.annotations.unwrap_or_default();
    let marks = marks.into_iter().filter(|(key, _)| MARKS.contains(&key.as_str()));
    let mut completed = ClusterBootstrap { spec, ..whole };
    completed.annotations_mut().extend(marks);
    completed.metadata.owner_references = metadata.owner_references;
    Ok(completed)
}

/// Writes a drafted ClusterBootstrap. Its clones come first, so that it never refers to a missing object.
fn write(context: &Context<'_>, release: &str, draft: &Draft) -> Step<ClusterBootstrap> {
    const WHY: &str = "packages differ from the release";
    clones::write(context, &draft.clones)?;
    let written = context.write(match context.facts.bootstrap.as_deref() {
        None => {
            let mut new = build::bootstrap(&context.facts.owner, draft.spec.clone(), release);
            new.annotations_mut()
                .extend(management::mark(context.facts, None));
            Write::create(Server::Management, &new, WHY)
        }
        Some(current) => {
            let mut next = ClusterBootstrap {
                spec: draft.spec.clone(),
                ..current.clone()
            };
            let mark = (annotation::RESOLVED_TKR.to_owned(), release.to_owned());
            let snapshot = draft.snapshot.clone();
            let snapshot = snapshot.map(|snapshot| (annotation::ROLLBACK_TO.to_owned(), snapshot));
            next.annotations_mut().extend([mark].into_iter().chain(snapshot));
            next.annotations_mut()
                .extend(management::mark(context.facts, Some(current)));
            if let Some(owners) = build::adopted(&context.facts.owner, next.owner_references())
                && is_current(context)?
            {
                next.metadata.owner_references = Some(owners);
            }
            if next == *current {
                return Ok(next);
            }
            Write::replace(Server::Management, &completed(context, current, next)?, WHY)
        }
    })?;
    typed(Server::Management, written)
}
