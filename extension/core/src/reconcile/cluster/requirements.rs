//! Management packages that the release of the next step needs. The step waits until all of them are proven; a Cluster that is at the
//! release already does not.

use sluice_crds::run::TanzuKubernetesRelease;

use super::{
    Context, Facts, ReadPhase, Server, Step,
    install::pair,
    interrupt::{needs_of, together},
    validate::Validated,
};
use crate::{
    packages::requirements::{ManagementPackages, has_requirements},
    reasons::{GateReason, Hold},
    upgrade::{
        hop::{Progress, UpgradeDirection},
        tkr::TkrFacts,
    },
    version::same,
};

/// Returns the release with requirements that the Cluster moves to; `None` without requirements, or if the Cluster is at the release.
/// `replaces` says whether machines of the Cluster are to be replaced by those of the release.
pub(super) fn requiring<'a>(
    facts: &'a Facts,
    progress: &Progress,
    known: &[TkrFacts],
    release: &str,
    replaces: bool,
) -> Option<&'a TanzuKubernetesRelease> {
    let object: Option<&TanzuKubernetesRelease> = facts.releases.get(release).map(AsRef::as_ref);
    let object = object.filter(|object| has_requirements(object))?;
    moves_to(facts, progress, known, release, replaces).then_some(object)
}

/// Whether the control plane has yet to take the version of a release, or the Cluster has another release of that version.
fn moves_to(facts: &Facts, progress: &Progress, known: &[TkrFacts], release: &str, replaces: bool) -> bool {
    if progress.direction != UpgradeDirection::Forward {
        return false;
    }
    if !progress.taken {
        return true;
    }
    if replaces {
        // The packages of the release are merged before the entry is written, so they do not show that the machines are of the release.
        return facts.made_of.as_deref() != Some(release);
    }
    let resolved = facts.resolved_release().release();
    // A control plane that has the version already needs the packages of the release.
    let is_of_version = |name: &str| {
        let mut known = known.iter();
        known.any(|known| known.name == name && same(&known.kubernetes_version, &progress.hop))
    };
    facts.made_of.as_deref() != Some(release)
        && resolved.is_some_and(|resolved| resolved != release && is_of_version(resolved))
}

/// Returns the hold of a release whose requirements are not met.
pub(super) fn unmet(packages: &ManagementPackages, release: &TanzuKubernetesRelease) -> Option<Hold> {
    packages.unmet(release).map(not_ready)
}

fn not_ready(why: String) -> Hold {
    Hold::new(GateReason::ManagementPackageNotReady, why)
}

/// Judges the packages that the release of the next step needs by reads from the API server. Returns the hold of one that is not proven,
/// although the caches show a proof.
pub(super) fn confirm(context: &Context<'_>, validated: &Validated) -> Step<Option<Hold>> {
    let facts = context.facts;
    let (true, Ok(release)) = (validated.requires, &validated.release) else {
        return Ok(None);
    };
    let cached = facts.releases.get(release);
    let assessed = cached.and_then(|cached| facts.management_packages.assess(cached));
    let installs = match assessed {
        Some(Ok(assessment)) => assessment.installs,
        _ => Vec::new(),
    };
    let at = (Server::Management, Some(facts.settings.system_namespace.as_str()));
    let object =
        context.read::<TanzuKubernetesRelease>(release, (Server::Management, None), ReadPhase::Confirm);
    let pairs = together(
        installs
            .iter()
            .map(|name| pair(context, name, at, ReadPhase::Confirm)),
    );
    together([needs_of(&object), needs_of(&pairs)])?;
    let Some(object) = object? else {
        let gone = format!("TanzuKubernetesRelease {release} does not exist");
        return Ok(Some(not_ready(gone)));
    };
    let mut packages = ManagementPackages::default();
    for read in pairs? {
        let (install, app) = read?;
        if let Some(install) = install {
            packages.install(&install, true);
        }
        if let Some(app) = app {
            packages.app(&app, true);
        }
    }
    Ok(unmet(&packages, &object))
}

#[cfg(test)]
mod tests;
