//! Checks of a plan.

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::PackageInstall,
    run::{ClusterBootstrapSpec, Phase},
};

use super::{chain::Link, finding::Finding, selection::excludes, usable::excluded};
use crate::{
    names,
    packages::bootstrap::{PackageFacts, Role, duplicate_hold, packages},
    protocol::{Interrupt, Read, ReadPhase, Server, Step},
    reasons::Hold,
    reconcile::cluster::{Context, Facts, connect},
};

/// Annotation of a PackageInstall by which kapp-controller installs a Package on any Kubernetes version.
const IGNORES_SELECTION: &str = "packaging.carvel.dev/ignore-kubernetes-version-selection";

/// Package of a step that excludes a Kubernetes version of the step.
struct Excluding {
    role: Role,
    /// `spec.refName` of the Package.
    ref_name: String,
    hold: Hold,
}

/// Returns the findings of a step. A PackageInstall that ignores the selection of its Package is not known here.
pub(super) fn of_link(facts: &Facts, link: &Link) -> Vec<Finding> {
    let excluding = excluding(facts, link).into_iter().map(|package| package.hold);
    let holds = first_holds(facts, link).into_iter().chain(excluding);
    holds
        .map(|hold| Finding::of_hold(Some(&link.version), hold))
        .collect()
}

/// Returns the first hold of a step.
///
/// # Errors
/// Missing reads.
pub(super) fn refusal(context: &Context<'_>, link: &Link) -> Step<Option<Hold>> {
    let facts = context.facts;
    if let Some(hold) = first_holds(facts, link).into_iter().next() {
        return Ok(Some(hold));
    }
    for package in excluding(facts, link) {
        if !ignores_selection(context, &package)? {
            return Ok(Some(package.hold));
        }
    }
    Ok(None)
}

/// Returns the holds of a step by its release and the whole of its packages.
fn first_holds(facts: &Facts, link: &Link) -> Vec<Hold> {
    let duplicated = link
        .after
        .as_ref()
        .and_then(|spec| duplicate_hold(spec, &facts.catalogue));
    // A release that may not be used is why its machines are not resolved.
    let holds = [unusable(facts, link), link.hold.clone(), duplicated];
    holds.into_iter().flatten().collect()
}

/// Returns the hold of a release that may not be used. Packages that are merged stay.
fn unusable(facts: &Facts, link: &Link) -> Option<Hold> {
    let name = link.release.as_ref().ok().filter(|_| link.is_ahead())?;
    excluded(facts.releases.get(name)?)
}

/// Returns the packages of a step that exclude a version on which kapp-controller installs or resyncs them. Packages that are merged hold
/// nothing by that.
fn excluding(facts: &Facts, link: &Link) -> Vec<Excluding> {
    let Some(spec) = link.after.as_ref().filter(|_| link.is_ahead()) else {
        return Vec::new();
    };
    let excluding = packages(spec).into_iter().filter_map(|(role, package)| {
        let of_package = facts.catalogue.get(&package.ref_name)?;
        let versions: &[&str] = match phase(spec, of_package) {
            Phase::BeforeControlPlane => &[&link.from, &link.version],
            Phase::AfterControlPlane => &[&link.version],
        };
        let mut holds = versions
            .iter()
            .filter_map(|version| excludes(&package.ref_name, of_package, version));
        Some(Excluding {
            role,
            ref_name: of_package.ref_name.clone(),
            hold: holds.next()?,
        })
    });
    excluding.collect()
}

/// Returns the phase in which a package is installed.
fn phase(spec: &ClusterBootstrapSpec, package: &PackageFacts) -> Phase {
    let policy = spec.upgrade_policy.as_ref();
    let policy = policy.and_then(|policy| policy.package(names::short(&package.ref_name)));
    policy.map_or_else(Phase::default, |policy| policy.phase)
}

/// Whether the PackageInstall of a package ignores the selection of its Package.
fn ignores_selection(context: &Context<'_>, package: &Excluding) -> Step<bool> {
    let facts = context.facts;
    let Ok(name) = names::package_install(&facts.owner.name, &package.ref_name) else {
        return Ok(false);
    };
    let at = if package.role == Role::KappController {
        (Server::Management, Some(facts.owner.namespace.as_str()))
    } else {
        match connect(context, &facts.owner, Read::Connection) {
            Ok(_) => {}
            // It cannot be asked, and another hold is not worth more.
            Err(stop) => return stop.held().map(|_| false),
        }
        (Server::Workload, Some(facts.settings.system_namespace.as_str()))
    };
    let install = context.read::<PackageInstall>(&name, at, ReadPhase::Plan);
    let install = match install {
        Ok(install) => install,
        Err(stop @ Interrupt::Need(_)) => return Err(stop),
        Err(_) => None,
    };
    Ok(install.is_some_and(|install| install.annotations().contains_key(IGNORES_SELECTION)))
}
