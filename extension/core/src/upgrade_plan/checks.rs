//! Checks of a plan.

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::PackageInstall,
    run::{ClusterBootstrapPackage, ClusterBootstrapSpec, Phase},
};

use super::{chain::Link, finding::Finding, selection::excludes, usable::excluded};
use crate::{
    names,
    packages::bootstrap::{PackageFacts, Role, packages},
    protocol::{Read, ReadPhase, Server, Step},
    reasons::{GateReason, Hold},
    reconcile::cluster::{Context, Facts, connect},
    upgrade::tkr::pinned,
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
    let holds = link
        .hold
        .clone()
        .into_iter()
        .chain(unusable(facts, link))
        .chain(excluding);
    holds.map(|hold| finding(facts, link, hold)).collect()
}

/// Returns the finding of a hold at a step. Label, version and entries of the Cluster, and its ClusterBootstrap, may be edited one after the
/// other.
fn finding(facts: &Facts, link: &Link, hold: Hold) -> Finding {
    let is_missing =
        |(_, package): (Role, &ClusterBootstrapPackage)| !facts.catalogue.contains_key(&package.ref_name);
    let is_of_namespace = match hold.reason {
        GateReason::NoTKRForHop => {
            link.version == facts.topology.version || pinned(&facts.topology, &link.version).is_some()
        }
        GateReason::PackageNotFound => {
            let before = link.before.as_ref().map(packages).unwrap_or_default();
            before.into_iter().any(is_missing)
        }
        _ => false,
    };
    if is_of_namespace {
        Finding::of_namespace(Some(&link.version), hold)
    } else {
        Finding::of_hold(Some(&link.version), hold)
    }
}

/// Returns the first hold of a step.
///
/// # Errors
/// Missing reads.
pub(super) fn refusal(context: &Context<'_>, link: &Link) -> Step<Option<Hold>> {
    let facts = context.facts;
    if let Some(hold) = link.hold.clone().or_else(|| unusable(facts, link)) {
        return Ok(Some(hold));
    }
    for package in excluding(facts, link) {
        if !ignores_selection(context, &package)? {
            return Ok(Some(package.hold));
        }
    }
    Ok(None)
}

/// Returns the hold of a release that may not be used. Packages that are merged stay.
fn unusable(facts: &Facts, link: &Link) -> Option<Hold> {
    let name = link.release.as_ref().ok().filter(|_| !link.is_merged)?;
    excluded(facts.releases.get(name)?)
}

/// Returns the packages of a step that exclude a version on which kapp-controller installs or resyncs them. Packages that are merged hold
/// nothing by that.
fn excluding(facts: &Facts, link: &Link) -> Vec<Excluding> {
    let Some(spec) = link.after.as_ref().filter(|_| !link.is_merged) else {
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
    let short = names::short(&package.ref_name);
    let policies = spec.upgrade_policy.iter().flat_map(|policy| &policy.packages);
    let mut of_package = policies.filter(|policy| policy.package == short);
    of_package
        .next()
        .map_or_else(Phase::default, |policy| policy.phase)
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
        Err(stop @ crate::protocol::Interrupt::Need(_)) => return Err(stop),
        Err(_) => None,
    };
    Ok(install.is_some_and(|install| install.annotations().contains_key(IGNORES_SELECTION)))
}
