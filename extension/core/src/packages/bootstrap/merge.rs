//! Merges another TanzuKubernetesRelease into a ClusterBootstrap (addons-manager §4.2).
//!
//! Versions follow the release; values of a user never change.

use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec};

use super::{
    Catalogue, Draft, KeptVersions, create::localize, package_not_found, too_many, unmanaged_conflict,
};
use crate::reasons::{GateReason, Hold};

/// Release: its name and the Package objects that it lists.
#[derive(Debug, Clone, Copy)]
pub struct Release<'a> {
    /// Name of the TanzuKubernetesRelease.
    pub name: &'a str,
    /// `spec.bootstrapPackages[].name`.
    pub packages: &'a [String],
}

/// Inputs of a merge.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Name of the Cluster.
    pub cluster: &'a str,
    /// Current spec.
    pub current: &'a ClusterBootstrapSpec,
    /// Template of the release of the current spec, if it still exists.
    pub old: Option<&'a ClusterBootstrapSpec>,
    /// Template of the new release.
    pub new: &'a ClusterBootstrapSpec,
    /// New release.
    pub release: Release<'a>,
    /// All Package objects.
    pub catalogue: &'a Catalogue,
    /// Whether the annotation `unmanaged-cni` is set.
    pub unmanaged_cni: bool,
    /// Versions that do not follow the release.
    pub kept: &'a KeptVersions,
}

impl Inputs<'_> {
    /// Whether a package of the Cluster stays unchanged.
    fn keeps(&self, package: &ClusterBootstrapPackage) -> bool {
        let facts = self.catalogue.get(&package.ref_name);
        facts.is_some_and(|facts| self.kept.keeps(facts))
    }

    /// Whether a package of the template is left out.
    fn leaves_out(&self, template: &ClusterBootstrapPackage) -> bool {
        let facts = self.catalogue.get(&template.ref_name);
        facts.is_some_and(|facts| self.kept.leaves_out(&facts.ref_name))
    }

    fn ref_name(&self, package: &ClusterBootstrapPackage) -> Option<&str> {
        let facts = self.catalogue.get(&package.ref_name)?;
        Some(&facts.ref_name)
    }
}

/// Merges another release into a ClusterBootstrap.
///
/// A package that the user chose instead of the template's (another CNI) gets its version from the list of the release. A package that
/// only the Cluster has gets it from there too, or stays unchanged if the release does not list it. Nothing is removed. A kept version
/// stays, and a package that is left out is not added.
pub fn merge(inputs: &Inputs<'_>) -> Result<Draft, Hold> {
    let Inputs {
        cluster,
        current,
        old,
        new,
        release,
        catalogue,
        unmanaged_cni,
        ..
    } = *inputs;
    let mut merged = Draft {
        spec: current.clone(),
        ..Draft::default()
    };

    if let Some(hold) = unmanaged_conflict(cluster, current, unmanaged_cni) {
        return Err(hold);
    }
    if !unmanaged_cni {
        merged.spec.cni = match &current.cni {
            Some(cni) if inputs.keeps(cni) => Some(cni.clone()),
            Some(cni) => Some(bump_from_release(cni, release, catalogue)?),
            None => merged.adopt(inputs, new.cni.as_ref())?,
        };
    }
    merged.spec.kapp = merged.follow(inputs, current.kapp.as_ref(), new.kapp.as_ref())?;
    merged.spec.csi = merged.follow(inputs, current.csi.as_ref(), new.csi.as_ref())?;
    merged.spec.cpi = merged.follow(inputs, current.cpi.as_ref(), new.cpi.as_ref())?;
    merged.additional(inputs, old)?;

    for (role, package) in super::packages(&merged.spec) {
        if !catalogue.contains_key(&package.ref_name) {
            let by = format!("{} of ClusterBootstrap {cluster}", role.field());
            return Err(package_not_found(&package.ref_name, &by));
        }
    }
    let object = format!(
        "ClusterBootstrap {cluster} with the packages of TanzuKubernetesRelease {}",
        release.name
    );
    match too_many(&merged.spec, &object) {
        Some(hold) => Err(hold),
        None => Ok(merged),
    }
}

impl Draft {
    /// Adopts a package of the template together with its values.
    fn adopt(
        &mut self,
        inputs: &Inputs<'_>,
        template: Option<&ClusterBootstrapPackage>,
    ) -> Result<Option<ClusterBootstrapPackage>, Hold> {
        let Some(mut package) = template.filter(|template| !inputs.leaves_out(template)).cloned() else {
            return Ok(None);
        };
        self.clones.extend(localize(inputs.cluster, &mut package)?);
        Ok(Some(package))
    }

    /// Combines the version of the template with the values of the Cluster; keeps the Cluster's package if the template has none.
    fn follow(
        &mut self,
        inputs: &Inputs<'_>,
        current: Option<&ClusterBootstrapPackage>,
        template: Option<&ClusterBootstrapPackage>,
    ) -> Result<Option<ClusterBootstrapPackage>, Hold> {
        match (current, template) {
            (None, template) => self.adopt(inputs, template),
            (Some(current), None) => Ok(Some(current.clone())),
            (Some(current), _) if inputs.keeps(current) => Ok(Some(current.clone())),
            // The user has another package instead.
            (Some(current), Some(template))
                if inputs.leaves_out(template) && inputs.ref_name(current) != inputs.ref_name(template) =>
            {
                Ok(Some(bump_if_listed(current, inputs.release, inputs.catalogue)))
            }
            (Some(current), Some(template)) => Ok(Some(ClusterBootstrapPackage {
                ref_name: template.ref_name.clone(),
                ..current.clone()
            })),
        }
    }

    fn additional(&mut self, inputs: &Inputs<'_>, old: Option<&ClusterBootstrapSpec>) -> Result<(), Hold> {
        let Inputs {
            cluster,
            current,
            new,
            release,
            catalogue,
            ..
        } = *inputs;
        let ref_name = |package: &ClusterBootstrapPackage| {
            catalogue
                .get(&package.ref_name)
                .map(|facts| facts.ref_name.clone())
        };
        let find = |packages: &[ClusterBootstrapPackage], wanted: &str| {
            packages
                .iter()
                .find(|p| ref_name(p).as_deref() == Some(wanted))
                .cloned()
        };

        let mut packages = Vec::new();
        for package in &current.additional_packages {
            let Some(wanted) = ref_name(package).filter(|_| !inputs.keeps(package)) else {
                // Either it is kept, or its Package object is missing: the check at the end of the merge names it.
                packages.push(package.clone());
                continue;
            };
            packages.push(match find(&new.additional_packages, &wanted) {
                None => bump_if_listed(package, release, catalogue),
                Some(template) => {
                    let was_plain = package.values_from.is_none()
                        && old
                            .and_then(|old| find(&old.additional_packages, &wanted))
                            .is_none_or(|old| old.values_from.is_none());
                    if was_plain && template.values_from.is_some() {
                        let mut template = template;
                        self.clones.extend(localize(cluster, &mut template)?);
                        template
                    } else {
                        ClusterBootstrapPackage {
                            ref_name: template.ref_name,
                            ..package.clone()
                        }
                    }
                }
            });
        }
        for template in &new.additional_packages {
            let known = ref_name(template)
                .is_some_and(|wanted| find(&current.additional_packages, &wanted).is_some());
            if !known {
                packages.extend(self.adopt(inputs, Some(template))?);
            }
        }
        self.spec.additional_packages = packages;
        Ok(())
    }
}

/// Returns the release's version of a package that the user chose instead of the one in the template.
fn bump_from_release(
    package: &ClusterBootstrapPackage,
    release: Release<'_>,
    catalogue: &Catalogue,
) -> Result<ClusterBootstrapPackage, Hold> {
    let Some(facts) = catalogue.get(&package.ref_name) else {
        return Err(package_not_found(
            &package.ref_name,
            "spec.cni of the ClusterBootstrap",
        ));
    };
    listed(&facts.ref_name, release, catalogue)
        .map(|ref_name| ClusterBootstrapPackage {
            ref_name,
            ..package.clone()
        })
        .ok_or_else(|| not_listed(&facts.ref_name, release, catalogue))
}

/// Hold of a release without a version of a package: its listed Package does not exist, or it lists none.
fn not_listed(ref_name: &str, release: Release<'_>, catalogue: &Catalogue) -> Hold {
    let tkr = release.name;
    // The name of a Package consists of its refName and version.
    let of_package = |name: &str| {
        name.strip_prefix(ref_name)
            .is_some_and(|rest| rest.starts_with('.'))
    };
    let missing = release
        .packages
        .iter()
        .find(|name| of_package(name) && !catalogue.contains_key(*name));
    if let Some(name) = missing {
        let by = format!("spec.bootstrapPackages of TanzuKubernetesRelease {tkr}");
        return package_not_found(name, &by);
    }
    let message =
        format!("TanzuKubernetesRelease {tkr} lists no version of {ref_name} in spec.bootstrapPackages");
    Hold::new(GateReason::PackageNotInRelease, message)
}

fn bump_if_listed(
    package: &ClusterBootstrapPackage,
    release: Release<'_>,
    catalogue: &Catalogue,
) -> ClusterBootstrapPackage {
    catalogue
        .get(&package.ref_name)
        .and_then(|facts| listed(&facts.ref_name, release, catalogue))
        .map_or_else(
            || package.clone(),
            |ref_name| ClusterBootstrapPackage {
                ref_name,
                ..package.clone()
            },
        )
}

/// Returns the Package object of a release with exactly this `spec.refName`. A prefix would confuse `antrea` and `antrea-interworking`.
fn listed(ref_name: &str, release: Release<'_>, catalogue: &Catalogue) -> Option<String> {
    release
        .packages
        .iter()
        .find(|name| {
            catalogue
                .get(*name)
                .is_some_and(|facts| facts.ref_name == ref_name)
        })
        .cloned()
}
