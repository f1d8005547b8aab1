//! Completes a partial ClusterBootstrap of a user from the template of a release (addons-manager §3.2 b, §6.2).
//!
//! Only missing fields are filled. The webhook fills no values, because only the reconcile of the Cluster copies the objects that they
//! reference. The reconcile fills the rest, or everything if the webhook was not called.

use kube::core::ObjectMeta;
use sluice_crds::{
    labels::{annotation, label},
    run::{ClusterBootstrap, ClusterBootstrapPackage, ClusterBootstrapSpec},
};

use super::{
    Catalogue, Draft, KeptVersions, Release, ResolvedRelease, Role,
    create::{all_mut, localize},
    duplicate_hold, package_not_found, packages, too_many, unmanaged_conflict,
};
use crate::{
    fault::Fault,
    packages::bootstrap::missing,
    reasons::{GateReason, Hold},
};

/// Placeholder for the rest of the name of a Package.
pub(super) const WILDCARD: char = '*';

/// Maximum number of suggested names.
const CANDIDATES: usize = 5;

/// Source of missing fields.
#[derive(Debug, Clone, Copy)]
pub struct Filling<'a> {
    /// Template of the release.
    pub template: &'a ClusterBootstrapSpec,
    /// Release with the packages that complete a wildcard.
    pub release: Release<'a>,
    /// Whether Sluice does not manage the CNI.
    pub unmanaged_cni: bool,
    /// Packages that a user leaves out.
    pub kept: &'a KeptVersions,
}

impl Filling<'_> {
    fn takes(&self, theirs: &ClusterBootstrapPackage) -> bool {
        !self.kept.leaves_out_package(&theirs.ref_name)
    }
}

/// Partial spec of a user and its completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// Spec of the user with whole names instead of wildcards.
    pub named: ClusterBootstrapSpec,
    /// Spec with the missing fields.
    pub filled: ClusterBootstrapSpec,
}

/// Whether an entry names a package. A server-side apply that drops an entry may leave fields of other owners, without the name.
pub(super) fn is_named(package: &ClusterBootstrapPackage) -> bool {
    !package.ref_name.is_empty()
}

/// Whether a package of `spec` has a wildcard.
#[must_use]
pub fn has_wildcard(spec: &ClusterBootstrapSpec) -> bool {
    let mut all = packages(spec).into_iter();
    all.any(|(_, package)| package.ref_name.ends_with(WILDCARD))
}

/// Fills the missing fields of `spec`, except the values of the template.
///
/// # Errors
/// Returns faults if a wildcard is ambiguous or matches nothing, or if the template lacks a required field, too.
pub fn fill(spec: &ClusterBootstrapSpec, from: Filling<'_>) -> Result<Completed, Vec<Fault>> {
    let (named, faults) = complete_names(spec, from.release.name, Some(from.release.packages));
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut filled = named.clone();
    let plain = |template: &ClusterBootstrapPackage| ClusterBootstrapPackage {
        ref_name: template.ref_name.clone(),
        values_from: None,
    };
    let template = from.template;
    let cni = template.cni.as_ref().filter(|_| !from.unmanaged_cni);
    for (own, theirs) in [
        (&mut filled.kapp, template.kapp.as_ref()),
        (&mut filled.cni, cni),
        (&mut filled.cpi, template.cpi.as_ref()),
        (&mut filled.csi, template.csi.as_ref()),
    ] {
        if own.as_ref().is_some_and(is_named) {
            continue;
        }
        let values_from = own.take().and_then(|unnamed| unnamed.values_from);
        let theirs = theirs.filter(|theirs| from.takes(theirs));
        let ref_name = theirs.map(|theirs| theirs.ref_name.clone());
        // The API server refuses values without a package.
        let is_refused = ref_name.is_none() && values_from.is_some();
        *own = (ref_name.is_some() || is_refused).then(|| ClusterBootstrapPackage {
            ref_name: ref_name.unwrap_or_default(),
            values_from,
        });
    }
    // In the order of the template, followed by packages that only the user has.
    let own = std::mem::take(&mut filled.additional_packages);
    let of_template = |name: &str| {
        template
            .additional_packages
            .iter()
            .any(|theirs| theirs.ref_name == name)
    };
    let first = template.additional_packages.iter().filter_map(|theirs| {
        let own = own.iter().find(|own| own.ref_name == theirs.ref_name).cloned();
        own.or_else(|| from.takes(theirs).then(|| plain(theirs)))
    });
    let alone = own.iter().filter(|own| !of_template(&own.ref_name)).cloned();
    filled.additional_packages = first.chain(alone).collect();
    let lacking: Vec<Fault> = missing(&filled, from.unmanaged_cni)
        .map(|fault| {
            let tkr = from.release.name;
            let text = format!(
                "{}, and ClusterBootstrapTemplate {tkr} has none either",
                fault.text
            );
            Fault::new(fault.field, fault.value, text)
        })
        .collect();
    if lacking.is_empty() {
        Ok(Completed { named, filled })
    } else {
        Err(lacking)
    }
}

/// Fills all missing fields of `spec` for `cluster`: packages without values get clones of those in the template.
///
/// The values of the template belong to its package: another one in the same field keeps its defaults.
///
/// # Errors
/// Returns the first fault, or the hold of a clone that cannot be built.
pub fn fill_with_values(
    cluster: &str,
    spec: &ClusterBootstrapSpec,
    from: Filling<'_>,
    catalogue: &Catalogue,
) -> Result<Draft, Hold> {
    if let Some(hold) = unmanaged_conflict(cluster, spec, from.unmanaged_cni) {
        return Err(hold);
    }
    let Completed { mut filled, .. } = fill(spec, from).map_err(|faults| not_filled(cluster, &faults))?;
    if filled.upgrade_policy.is_none() {
        filled.upgrade_policy.clone_from(&from.template.upgrade_policy);
    }
    let object = format!(
        "ClusterBootstrap {cluster} with the packages of TanzuKubernetesRelease {}",
        from.release.name
    );
    if let Some(hold) = too_many(&filled, &object).or_else(|| duplicate_hold(&filled, catalogue)) {
        return Err(hold);
    }
    for (role, package) in packages(&filled) {
        if !catalogue.contains_key(&package.ref_name) {
            let by = format!("{} of ClusterBootstrap {cluster}", role.field());
            return Err(package_not_found(&package.ref_name, &by));
        }
    }
    let theirs = packages(from.template);
    let ref_name =
        |package: &ClusterBootstrapPackage| catalogue.get(&package.ref_name).map(|facts| &facts.ref_name);
    let roles: Vec<Role> = packages(&filled).into_iter().map(|(role, _)| role).collect();
    let mut draft = Draft {
        spec: filled,
        ..Draft::default()
    };
    for (role, own) in roles.into_iter().zip(all_mut(&mut draft.spec)) {
        let is_same = |theirs: &ClusterBootstrapPackage| {
            theirs.ref_name == own.ref_name
                || (ref_name(theirs).is_some() && ref_name(theirs) == ref_name(own))
        };
        let mut of_field = theirs.iter().filter(|(of, _)| *of == role);
        if own.values_from.is_some() {
            continue;
        }
        if let Some((_, theirs)) = of_field.find(|(_, theirs)| is_same(theirs)) {
            own.values_from.clone_from(&theirs.values_from);
            draft.clones.extend(localize(cluster, own)?);
        }
    }
    Ok(draft)
}

fn not_filled(cluster: &str, faults: &[Fault]) -> Hold {
    let first = faults.first().map(ToString::to_string).unwrap_or_default();
    Hold::new(
        GateReason::MissingFieldsNotFilled,
        format!("ClusterBootstrap {cluster} cannot be filled: {first}"),
    )
}

/// Returns the release from which a ClusterBootstrap without owner is filled. One with an owner was filled, or created from a
/// template: its annotation stays without effect.
///
/// # Errors
/// Returns a fault if the annotation names no release, or another one than the label of the Cluster.
pub fn filled_from<'a>(
    bootstrap: &'a ClusterBootstrap,
    owned: bool,
    label: &str,
) -> Result<Option<&'a str>, Hold> {
    let annotations = bootstrap.metadata.annotations.as_ref();
    let named = annotations.and_then(|annotations| annotations.get(annotation::ADD_MISSING_FIELDS));
    let Some(release) = named.filter(|_| !owned && ResolvedRelease::of(bootstrap).annotation.is_none())
    else {
        return Ok(None);
    };
    let name = bootstrap.metadata.name.as_deref().unwrap_or_default();
    match release_mismatch(release, label) {
        Some(fault) => Err(not_filled(name, &[fault])),
        None => Ok(Some(release)),
    }
}

/// Returns the release that the annotation of a ClusterBootstrap pins until a Cluster adopts the ClusterBootstrap.
#[must_use]
pub fn pinned_release(bootstrap: &ObjectMeta) -> Option<&str> {
    let annotations = bootstrap.annotations.as_ref()?;
    let release = annotations.get(annotation::ADD_MISSING_FIELDS)?;
    let mut owners = bootstrap.owner_references.iter().flatten();
    let is_adopted =
        annotations.contains_key(annotation::RESOLVED_TKR) || owners.any(|owner| owner.kind == "Cluster");
    let pins = !release.is_empty() && !is_adopted && bootstrap.deletion_timestamp.is_none();
    pins.then_some(release.as_str())
}

/// Hold of a ClusterBootstrap whose Cluster upgrades to another version before that of the release `named`.
#[must_use]
pub fn other_hop(cluster: &str, named: &str, next: &str) -> Hold {
    Hold::new(
        GateReason::MissingFieldsNotFilled,
        format!(
            "the annotation of ClusterBootstrap {cluster} names TanzuKubernetesRelease {named}, but the next version is that of \
             {next}; write a whole ClusterBootstrap with the packages of {next}"
        ),
    )
}

/// Returns the fault of an annotation that is empty or names another release than the label of the Cluster.
#[must_use]
pub fn release_mismatch(release: &str, label: &str) -> Option<Fault> {
    let field = format!("metadata.annotations[{}]", annotation::ADD_MISSING_FIELDS);
    if release.is_empty() {
        let text = "it must name the TanzuKubernetesRelease of the label of the Cluster";
        return Some(Fault::new(field, release, text));
    }
    (release != label).then(|| {
        let text = format!(
            "label {} of the Cluster says {label:?}; write the same release in both",
            label::TKR
        );
        Fault::new(field, release, text)
    })
}

/// Resolves the wildcards of `spec` to `packages` of TanzuKubernetesRelease `tkr`, and returns a fault for each that has none or several.
/// A release that does not exist has no `packages`.
pub(super) fn complete_names(
    spec: &ClusterBootstrapSpec,
    tkr: &str,
    packages: Option<&[String]>,
) -> (ClusterBootstrapSpec, Vec<Fault>) {
    let mut filled = spec.clone();
    let mut faults = Vec::new();
    for (field, package) in [
        ("spec.kapp", &mut filled.kapp),
        ("spec.cni", &mut filled.cni),
        ("spec.cpi", &mut filled.cpi),
        ("spec.csi", &mut filled.csi),
    ] {
        let Some(package) = package else { continue };
        match one_of(&package.ref_name, tkr, packages) {
            Some(Ok(name)) => package.ref_name = name,
            Some(Err(text)) => faults.push(Fault::new(format!("{field}.refName"), &package.ref_name, text)),
            None => {}
        }
    }
    for (index, package) in spec.additional_packages.iter().enumerate() {
        let own = || Ok(package.ref_name.clone());
        let name = one_of(&package.ref_name, tkr, packages).unwrap_or_else(own);
        let is_taken = |name: &String| {
            let first = &filled.additional_packages[..index];
            first.iter().any(|first| first.ref_name == *name)
        };
        let text = match name {
            Ok(name) if is_taken(&name) => {
                "more than one additional packages share the same refName".to_owned()
            }
            Ok(name) => {
                filled.additional_packages[index].ref_name = name;
                continue;
            }
            Err(text) => text,
        };
        faults.push(Fault::new(additional_name(index), &package.ref_name, text));
    }
    (filled, faults)
}

/// Returns the path of the name of an additional package.
pub(super) fn additional_name(index: usize) -> String {
    format!("spec.additionalPackages[{index}].refName")
}

/// Whether `name` is a Package of this wildcard.
pub(super) fn matches(wildcard: &str, name: &str) -> bool {
    let prefix = wildcard.strip_suffix(WILDCARD);
    prefix.is_some_and(|prefix| name.starts_with(prefix))
}

/// Returns the package of the release that matches a wildcard; none if `name` is not a wildcard.
fn one_of(name: &str, tkr: &str, packages: Option<&[String]>) -> Option<Result<String, String>> {
    if !name.ends_with(WILDCARD) {
        return None;
    }
    let Some(packages) = packages else {
        return Some(Err(format!(
            "TanzuKubernetesRelease {tkr} does not exist; write the whole name of a Package"
        )));
    };
    let all = packages.iter().map(String::as_str);
    let matching: Vec<&str> = all.clone().filter(|package| matches(name, package)).collect();
    Some(match matching.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] if packages.is_empty() => Err(format!("TanzuKubernetesRelease {tkr} lists no packages")),
        [] => Err(format!(
            "no package of TanzuKubernetesRelease {tkr} has this prefix; it has {}",
            candidates(all)
        )),
        several => Err(format!(
            "{} packages of TanzuKubernetesRelease {tkr} have this prefix: {}; write more of the name",
            several.len(),
            candidates(several.iter().copied())
        )),
    })
}

/// Lists at most [`CANDIDATES`] names.
pub(super) fn candidates<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len().checked_sub(CANDIDATES) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..CANDIDATES].join(", ")),
    }
}

#[cfg(test)]
mod tests;
