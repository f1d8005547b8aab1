//! Completes a partial ClusterBootstrap of a user before the API server stores it (addons-manager §6.2).

use std::cmp::Reverse;

use sluice_crds::{
    labels::{annotation, label},
    run::ClusterBootstrapSpec,
};

use super::{Lookup, LookupResult, Lookups, Review, State, lookup::LookupReader, update::none};
use crate::packages::bootstrap::{
    Completed, Filling, KeptVersions, LARGEST_SNAPSHOT, Reapplied, ReapplyInputs, Release, Role, fill,
    has_wildcard, is_ambiguous, reapply, release_mismatch,
};
use crate::{fault::Fault, releases::from_label, version::Ordered};

/// Number of releases that a refusal suggests.
const NEAREST: usize = 3;

/// Maximum number of templates beside those of the recorded release and of the annotation: each is decoded.
const MOST_TEMPLATES: usize = 32;

/// Result of a review of the mutating webhook.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// Reasons to refuse the object.
    pub faults: Vec<Fault>,
    /// Edits without effect.
    pub warnings: Vec<String>,
    /// The completed spec; `None` if it does not change.
    pub spec: Option<Completed>,
    /// Keys and values of annotations of Sluice that a replacement of the object has removed.
    pub restored_annotations: Vec<(&'static str, String)>,
}

/// Returns `completed` if it differs from the spec of the user.
fn changed(completed: Completed, own: &ClusterBootstrapSpec) -> Option<Completed> {
    (completed.filled != *own).then_some(completed)
}

/// Completes the spec of a ClusterBootstrap that carries the annotation: from the release until it has an owner, then from the stored spec.
/// Restores the snapshot of any ClusterBootstrap.
///
/// # Errors
/// The lookups that the completion still needs.
pub fn complete(review: &Review, finished: &Lookups) -> Result<Completion, Vec<Lookup>> {
    let mut completion = completed(review, finished)?;
    if completion.faults.is_empty() {
        completion.restored_annotations.extend(lost_snapshot(review));
    }
    Ok(completion)
}

/// Returns the snapshot of the stored object, if the new one has none. The merge of the next release replaces it, and only the policy
/// decides about a rollback, so nobody has to remove it.
fn lost_snapshot(review: &Review) -> Option<(&'static str, String)> {
    let key = annotation::ROLLBACK_TO;
    let stored = review.old.as_ref()?.annotations.get(key)?;
    let is_lost = !review.new.annotations.contains_key(key);
    // A larger one is cut, and cannot be read anyway.
    (is_lost && stored.len() <= LARGEST_SNAPSHOT).then(|| (key, stored.clone()))
}

fn completed(review: &Review, finished: &Lookups) -> Result<Completion, Vec<Lookup>> {
    let key = annotation::ADD_MISSING_FIELDS;
    // The annotation `RESOLVED_TKR` means that the spec was completed, or built from a template.
    let mut states = review.old.iter().chain([&review.new]);
    let is_done =
        review.owned || states.any(|state| state.annotations.contains_key(annotation::RESOLVED_TKR));
    let Some(name) = review.new.annotations.get(key) else {
        return Ok(Completion::default());
    };
    if is_done {
        if let Some(fault) = pinned_late(review, name, finished)? {
            return Ok(refused(vec![fault]));
        }
        return applied_again(review, name, finished);
    }
    let field = format!("metadata.annotations[{key}]");
    if review.spec_missing {
        return Ok(refused(vec![Fault::new(
            "spec",
            "null",
            "missing spec definition",
        )]));
    }
    let before = review.old.as_ref().and_then(|old| old.annotations.get(key));
    if before.is_some_and(|before| !before.is_empty() && before != name) {
        let text =
            "its missing fields come from another release; delete the ClusterBootstrap and apply it again";
        return Ok(refused(vec![Fault::new(field, name, text)]));
    }
    let mut lookups = LookupReader::of(finished);
    let cluster = lookups.see(Lookup::Cluster(review.name.clone()));
    let release = lookups.see(Lookup::Release(name.clone()));
    let is_of = |version: &str| matches!(release, Some(LookupResult::Release { kubernetes, .. }) if kubernetes == version);
    let label = match cluster {
        // The reconcile changes its label to this release.
        Some(LookupResult::Cluster {
            follows: Some(version),
            ..
        }) if is_of(version) => name.as_str(),
        Some(LookupResult::Cluster { label, .. }) => label.as_str(),
        // The Cluster does not exist yet. Its label is compared when it does.
        _ => name.as_str(),
    };
    if let Some(fault) = release_mismatch(name, label) {
        return lookups.complete(refused(vec![fault]));
    }
    let template = lookups.see(Lookup::Template(name.clone()));
    let completion = match (release, template) {
        (Some(LookupResult::Release { packages, .. }), Some(LookupResult::Template(template))) => {
            let kept = kept(review);
            let filling = Filling {
                template,
                kept: &kept,
                release: Release { name, packages },
                unmanaged_cni: review.new.is_unmanaged(),
            };
            match fill(&review.new.spec, filling) {
                Ok(completed) => Completion {
                    spec: changed(completed, &review.new.spec),
                    ..Completion::default()
                },
                Err(faults) => refused(faults),
            }
        }
        (Some(LookupResult::Release { .. }), _) => {
            let text = format!("clusterbootstraptemplates.run.tanzu.vmware.com {name:?} not found");
            refused(vec![Fault::new(field, name, text)])
        }
        (Some(LookupResult::NoRelease { known }), _) => {
            let text = format!(
                "tanzukubernetesreleases.run.tanzu.vmware.com {name:?} not found; {}",
                nearest(name, known)
            );
            refused(vec![Fault::new(field, name, text)])
        }
        _ => Completion::default(),
    };
    lookups.complete(completion)
}

/// Returns the fault of an update that pins another release than that of the stored packages. The annotation has no effect any more, unless
/// the label of the Cluster already names the release.
fn pinned_late(review: &Review, name: &str, finished: &Lookups) -> Result<Option<Fault>, Vec<Lookup>> {
    let key = annotation::ADD_MISSING_FIELDS;
    let Some(old) = &review.old else {
        return Ok(None);
    };
    let Some(recorded) = resolved_release(old).filter(|recorded| *recorded != name) else {
        return Ok(None);
    };
    let is_unchanged = old.annotations.get(key).is_some_and(|before| before == name);
    if name.is_empty() || is_unchanged {
        return Ok(None);
    }
    let mut lookups = LookupReader::of(finished);
    let fault = match lookups.see(Lookup::Cluster(review.name.clone())) {
        Some(LookupResult::Cluster { label, .. }) if label == name => None,
        _ => {
            let text = format!(
                "ClusterBootstrap {}/{} already has the packages of TanzuKubernetesRelease {recorded}; set label {} of the Cluster to the \
                 other release first, remove the annotation, or create a new Cluster with annotation {} and then its ClusterBootstrap",
                review.namespace,
                review.name,
                label::TKR,
                annotation::CUSTOM_CLUSTER_BOOTSTRAP
            );
            Some(Fault::new(format!("metadata.annotations[{key}]"), name, text))
        }
    };
    lookups.complete(fault)
}

/// Completes a ClusterBootstrap whose annotation names the release `annotated`, from the stored one and the release that this one records.
fn applied_again(review: &Review, annotated: &str, finished: &Lookups) -> Result<Completion, Vec<Lookup>> {
    let (own, Some(old)) = (&review.new.spec, &review.old) else {
        return Ok(Completion::default());
    };
    // Without the annotation the spec would count as one that was never completed, and be compared with the release of the annotation.
    let lost = resolved_release(old).filter(|_| resolved_release(&review.new).is_none());
    let unchanged = Completion {
        restored_annotations: lost
            .map(|release| (annotation::RESOLVED_TKR, release.to_owned()))
            .into_iter()
            .collect(),
        ..Completion::default()
    };
    if review.spec_missing || old.spec == *own {
        return Ok(unchanged);
    }
    let recorded = resolved_release(old).unwrap_or(annotated);
    let mut lookups = LookupReader::of(finished);
    let packages = packages_of(recorded, &mut lookups);
    let annotated_packages = if is_ambiguous(own, &old.spec) {
        packages_of(annotated, &mut lookups)
    } else {
        None
    };
    let templates = templates_of([recorded, annotated], &mut lookups);
    if !lookups.is_complete() {
        return lookups.complete(unchanged);
    }
    let kept = kept(review);
    let inputs = ReapplyInputs {
        cluster: &review.name,
        stored: &old.spec,
        release: recorded,
        packages,
        annotated_packages,
        templates: &templates,
        unmanaged_cni: review.new.is_unmanaged(),
        kept: &kept,
    };
    let mut reapplied = reapply(own, inputs);
    if reapplied.as_ref().is_ok_and(|reapplied| reapplied.drops_unknown) {
        let others = other_templates([recorded, annotated], &mut lookups);
        let all: Vec<_> = templates.iter().copied().chain(others).collect();
        let inputs = ReapplyInputs {
            templates: &all,
            ..inputs
        };
        reapplied = reapply(own, inputs);
    }
    lookups.complete(match reapplied {
        Ok(reapplied) => Completion {
            warnings: warnings(own, &reapplied),
            spec: changed(reapplied.completed, own),
            ..unchanged
        },
        Err(faults) => refused(faults),
    })
}

/// Returns the release in annotation `lifecycle.sluice.dev/resolved-tkr`.
fn resolved_release(state: &State) -> Option<&str> {
    let release = state.annotations.get(annotation::RESOLVED_TKR)?;
    Some(release.as_str()).filter(|release| !release.is_empty())
}

/// Returns the packages of a release; `None` if it does not exist.
fn packages_of<'a>(release: &str, lookups: &mut LookupReader<'a>) -> Option<&'a [String]> {
    match lookups.see(Lookup::Release(release.to_owned())) {
        Some(LookupResult::Release { packages, .. }) => Some(packages),
        _ => None,
    }
}

/// Returns the existing templates of these releases.
fn templates_of<'a, 'r>(
    releases: impl IntoIterator<Item = &'r str>,
    lookups: &mut LookupReader<'a>,
) -> Vec<&'a ClusterBootstrapSpec> {
    let mut templates = Vec::new();
    for release in releases {
        let seen = lookups.see(Lookup::Template(release.to_owned()));
        if let Some(LookupResult::Template(template)) = seen {
            templates.push(&**template);
        }
    }
    templates
}

/// Returns at most [`MOST_TEMPLATES`] templates of other releases than `known`, those next below the recorded release first: a package
/// that none of the known releases has comes from one on the way between them.
fn other_templates<'a>(known: [&str; 2], lookups: &mut LookupReader<'a>) -> Vec<&'a ClusterBootstrapSpec> {
    let Some(LookupResult::TemplateNames(names)) = lookups.see(Lookup::TemplateNames) else {
        return Vec::new();
    };
    let version = |release: &str| Ordered::of(&from_label(release));
    let recorded = version(known[0]);
    let names = names.iter().map(String::as_str);
    let mut others: Vec<_> = names
        .filter(|name| !known.contains(name))
        .map(|name| (version(name) > recorded, Reverse(version(name)), name))
        .collect();
    others.sort();
    let nearest = others.into_iter().take(MOST_TEMPLATES);
    templates_of(nearest.map(|(.., name)| name), lookups)
}

/// Returns a warning for each package that stays although the user does not list it. A file with wildcards is partial, so its omissions are
/// no edits.
fn warnings(own: &ClusterBootstrapSpec, reapplied: &Reapplied) -> Vec<String> {
    if has_wildcard(own) {
        return Vec::new();
    }
    let restored = reapplied.restored.iter();
    restored
        .map(|(role, package)| {
            let stays = format!("{}: {package} was filled in and stays", role.field());
            match role {
                Role::KappController | Role::Cni => format!("{stays}, because the field is required"),
                Role::Cpi | Role::Csi | Role::Additional => {
                    format!("{stays}; to leave it out set {}", none(package))
                }
            }
        })
        .collect()
}

/// Versions that the annotation keeps; none if it is unreadable, which the validating webhook refuses.
fn kept(review: &Review) -> KeptVersions {
    let kept = review.new.annotations.get(annotation::KEEP_PACKAGE_VERSIONS);
    KeptVersions::parse(kept.map_or("", String::as_str)).unwrap_or_default()
}

fn refused(faults: Vec<Fault>) -> Completion {
    Completion {
        faults,
        ..Completion::default()
    }
}

/// The releases whose names share the longest prefix with `name`.
fn nearest(name: &str, known: &[String]) -> String {
    let common = |other: &String| {
        name.chars()
            .zip(other.chars())
            .take_while(|(one, other)| one == other)
            .count()
    };
    let mut sorted: Vec<&String> = known.iter().collect();
    sorted.sort_by_key(|other| std::cmp::Reverse(common(other)));
    sorted.truncate(NEAREST);
    if sorted.is_empty() {
        return "there are none".to_owned();
    }
    let names: Vec<&str> = sorted.into_iter().map(String::as_str).collect();
    format!("the nearest are {}", names.join(", "))
}
