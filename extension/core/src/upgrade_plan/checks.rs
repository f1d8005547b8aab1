//! Checks of a plan.

use sluice_crds::{
    foreign::PackageInstall,
    run::{ClusterBootstrapSpec, Phase},
};

use super::{
    chain::{Link, Position},
    finding::{Effect, Finding, FindingReason, WarningReason},
    selection::excludes,
    usable,
};
use crate::{
    names,
    packages::bootstrap::{PackageFacts, Role, duplicate_hold, packages},
    protocol::{Interrupt, Key, Read, ReadPhase, Server, Step},
    reasons::Hold,
    reconcile::cluster::{Context, Facts, connect, may_be_unmanaged},
};

/// Annotation of a PackageInstall by which kapp-controller installs a Package on any Kubernetes version.
pub const IGNORES_SELECTION: &str = "packaging.carvel.dev/ignore-kubernetes-version-selection";

/// Package of a step that excludes a Kubernetes version of the step.
struct Excluding {
    /// Its PackageInstall.
    install: Option<Key>,
    hold: Hold,
}

/// Returns the findings of a step. A PackageInstall that ignores the selection of its Package is not known here.
pub(super) fn of_link(facts: &Facts, link: &Link) -> Vec<Finding> {
    let hop = Some(link.version.as_str());
    let holds = first_holds(facts, link).into_iter();
    let mut findings: Vec<Finding> = holds.map(|hold| Finding::of_hold(hop, hold)).collect();
    let excluding = excluding(facts, link).into_iter().map(|package| Finding {
        install: package.install,
        ..Finding::of_hold(hop, package.hold)
    });
    findings.extend(excluding);
    // They hold their own step, once it is the next one.
    let needs = link.needs.clone().map(|hold| Finding {
        effect: Effect::Warns,
        ..Finding::of_hold(hop, hold)
    });
    findings.extend(needs);
    findings.extend(link.waits.clone().map(|hold| Finding::of_hold(hop, hold)));
    if link.is_cut {
        let message = format!(
            "the steps after {} are checked once they are nearer",
            link.version
        );
        let reason = FindingReason::Warning(WarningReason::StepsNotPlanned);
        findings.push(Finding::new(hop, reason, message));
    }
    findings
}

/// Returns the first hold of a step.
///
/// # Errors
/// Missing reads.
pub(super) fn refusal(context: &Context<'_>, link: &Link) -> Step<Option<Hold>> {
    match first_holds(context.facts, link).into_iter().next() {
        None => excluded(context, link),
        hold => Ok(hold),
    }
}

/// Returns the hold of the first package of a step that excludes a Kubernetes version of the step.
///
/// # Errors
/// Missing reads.
pub(super) fn excluded(context: &Context<'_>, link: &Link) -> Step<Option<Hold>> {
    for package in excluding(context.facts, link) {
        let ignores = match &package.install {
            Some(install) => ignores_selection(context, install)?,
            None => false,
        };
        if !ignores {
            return Ok(Some(package.hold));
        }
    }
    Ok(None)
}

/// Returns the holds of a step by its release and the whole of its packages.
fn first_holds(facts: &Facts, link: &Link) -> Vec<Hold> {
    let after = link.after.as_ref();
    let duplicated = after.and_then(|spec| duplicate_hold(spec, &facts.catalogue));
    // A release that may not be used is why its machines are not resolved.
    let holds = [unusable(facts, link), link.hold.clone(), duplicated];
    holds.into_iter().flatten().collect()
}

/// Returns the hold of a release that may not be used. Packages that are merged stay.
pub(super) fn unusable(facts: &Facts, link: &Link) -> Option<Hold> {
    let name = link
        .release
        .as_ref()
        .ok()
        .filter(|_| link.position == Position::Unmerged)?;
    let is_held = link.needs.is_some() || link.hold.is_some();
    usable::excluded(facts.releases.get(name)?, is_held)
}

/// Returns the packages of a step that exclude a version on which kapp-controller installs or resyncs them.
fn excluding(facts: &Facts, link: &Link) -> Vec<Excluding> {
    // Packages that go back ran on the version.
    let is_checked = matches!(link.position, Position::Unmerged | Position::Merged);
    let Some(spec) = link.after.as_ref().filter(|_| is_checked) else {
        return Vec::new();
    };
    let excluding = packages(spec).into_iter().filter_map(|(role, package)| {
        // Another client may install it.
        if role == Role::KappController && may_be_unmanaged(facts) {
            return None;
        }
        let of_package = facts.catalogue.get(&package.ref_name)?;
        let versions: &[&str] = match phase(spec, of_package) {
            Phase::BeforeControlPlane => &[&link.from, &link.version],
            Phase::AfterControlPlane => &[&link.version],
        };
        let mut holds = versions
            .iter()
            .filter_map(|version| excludes(&package.ref_name, of_package, version));
        Some(Excluding {
            hold: holds.next()?,
            install: install(facts, role, of_package),
        })
    });
    excluding.collect()
}

/// Returns the PackageInstall of a package; `None` if its name is too long.
fn install(facts: &Facts, role: Role, package: &PackageFacts) -> Option<Key> {
    let (server, namespace) = if role == Role::KappController {
        (Server::Management, &facts.owner.namespace)
    } else {
        (Server::Workload, &facts.settings.system_namespace)
    };
    let name = names::package_install(&facts.owner.name, &package.ref_name).ok()?;
    Some(Key::of::<PackageInstall>(server, Some(namespace), &name))
}

/// Returns the phase in which a package is installed.
fn phase(spec: &ClusterBootstrapSpec, package: &PackageFacts) -> Phase {
    let policy = spec.upgrade_policy.as_ref();
    let policy = policy.and_then(|policy| policy.package(names::short(&package.ref_name)));
    policy.map_or_else(Phase::default, |policy| policy.phase)
}

/// Whether a PackageInstall ignores the selection of its Package. One that cannot be read does not.
fn ignores_selection(context: &Context<'_>, install: &Key) -> Step<bool> {
    if install.server == Server::Workload
        && let Err(stop) = connect(context, &context.facts.owner, Read::Connection)
    {
        return stop.held().map(|_| false);
    }
    match context.object(install.clone(), ReadPhase::Plan) {
        Ok(read) => {
            Ok(read.is_some_and(|read| !read["metadata"]["annotations"][IGNORES_SELECTION].is_null()))
        }
        Err(Interrupt::Failed(_)) => Ok(false),
        Err(stop) => Err(stop),
    }
}
