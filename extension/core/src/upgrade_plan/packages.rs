//! Findings about the packages of a step.

use std::cmp::Ordering;

use sluice_crds::run::ClusterBootstrapSpec;

use super::{
    chain::Link,
    finding::{Finding, FindingReason, WarningReason},
};
use crate::{
    packages::bootstrap::{Catalogue, PackageFacts, Role, packages},
    reconcile::cluster::{Facts, may_be_unmanaged},
    version::{Ordered, order, range::Range},
};

/// Returns the findings about the packages of a step.
pub(super) fn findings(facts: &Facts, link: &Link) -> Vec<Finding> {
    let Some(after) = &link.after else {
        return Vec::new();
    };
    let hop = Some(link.version.as_str());
    let catalogue: &Catalogue = &facts.catalogue;
    let lowered = lowered(catalogue, link.before.as_ref(), after);
    let excluding = if may_be_unmanaged(facts) {
        Vec::new()
    } else {
        excluding(catalogue, after)
    };
    let warnings = lowered.into_iter().chain(excluding);
    warnings
        .map(|(reason, message)| Finding::new(hop, FindingReason::Warning(reason), message))
        .collect()
}

/// Returns the packages of a spec with their facts. Missing Packages have none.
fn known<'a>(
    catalogue: &'a Catalogue,
    spec: &'a ClusterBootstrapSpec,
) -> impl Iterator<Item = (Role, &'a str, &'a PackageFacts)> {
    packages(spec).into_iter().filter_map(move |(role, package)| {
        let facts = catalogue.get(&package.ref_name)?;
        Some((role, package.ref_name.as_str(), facts))
    })
}

/// Returns the packages with a lower version than before.
fn lowered(
    catalogue: &Catalogue,
    before: Option<&ClusterBootstrapSpec>,
    after: &ClusterBootstrapSpec,
) -> Vec<(WarningReason, String)> {
    let before: Vec<&PackageFacts> = before
        .into_iter()
        .flat_map(|before| known(catalogue, before))
        .map(|(_, _, facts)| facts)
        .collect();
    let lowered = known(catalogue, after).filter_map(|(_, _, to)| {
        let from = before.iter().find(|from| from.ref_name == to.ref_name)?;
        let is_lower = order(&to.version, &from.version) == Some(Ordering::Less);
        is_lower.then(|| {
            let (name, from, to) = (&to.ref_name, &from.version, &to.version);
            let message = format!("{name} goes from {from} down to {to}");
            (WarningReason::PackageDowngraded, message)
        })
    });
    lowered.collect()
}

/// Returns the packages that the kapp-controller of the same spec does not install. The one of the management cluster installs
/// kapp-controller itself.
fn excluding(catalogue: &Catalogue, spec: &ClusterBootstrapSpec) -> Vec<(WarningReason, String)> {
    let mut installers = known(catalogue, spec).filter(|(role, ..)| *role == Role::KappController);
    let version = installers.next().map(|(_, _, facts)| facts.version.as_str());
    // A version that kapp-controller cannot report excludes nothing.
    let Some(version) = version.filter(|version| Ordered::of(version).is_some()) else {
        return Vec::new();
    };
    let installed = known(catalogue, spec).filter(|(role, ..)| *role != Role::KappController);
    let excluding = installed.filter_map(|(_, name, facts)| {
        let constraints = facts.kapp_controller.as_deref()?;
        let message = match Range::parse(constraints) {
            Err(error) => format!("kappControllerVersionSelection of Package {name} is not usable: {error}"),
            Ok(range) if range.allows(version) => return None,
            Ok(_) => format!("Package {name} allows kapp-controller {constraints}, not {version}"),
        };
        Some((WarningReason::PackageExcludesKappController, message))
    });
    excluding.collect()
}

#[cfg(test)]
mod tests;
