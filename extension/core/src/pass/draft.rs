//! The ClusterBootstrap as it has to be, with the clones of values that it refers to.

use kube::ResourceExt;
use sluice_crds::{labels::annotation, run::ClusterBootstrap};

use super::{Known, Server, Step, clones, known::typed, validate::Validated, write::Write};
use crate::{bootstrap::Draft, build, hold::Hold};

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
    clones::write(known, &draft.clones)?;
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
            if let Some(owners) = build::adopted(&known.facts.owner, next.owner_references()) {
                next.metadata.owner_references = Some(owners);
            }
            Write::replace(Server::Management, &next, WHY)
        }
    })?;
    typed(Server::Management, written)
}
