//! Completes a partial ClusterBootstrap of a user before the API server stores it (addons-manager §6.2).

use sluice_crds::{
    labels::{annotation, label},
    run::ClusterBootstrapSpec,
};

use super::{Lookup, LookupResult, Lookups, Review, lookup::LookupReader};
use crate::fault::Fault;
use crate::packages::bootstrap::{
    Completed, Filling, KeptVersions, Reapplied, Release, fill, reapply, release_mismatch,
};

/// Number of releases that a refusal suggests.
const NEAREST: usize = 3;

/// Result of a review of the mutating webhook.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// Reasons to refuse the object.
    pub faults: Vec<Fault>,
    /// The completed spec; `None` if nothing has to be written.
    pub spec: Option<Completed>,
}

/// Returns `completed` if it differs from the spec of the user.
fn changed(completed: Completed, own: &ClusterBootstrapSpec) -> Option<Completed> {
    (completed.filled != *own).then_some(completed)
}

/// Completes the spec of a ClusterBootstrap that carries the annotation: from the release until it has an owner, then from the stored spec.
///
/// # Errors
/// The lookups that the completion still needs.
pub fn complete(review: &Review, finished: &Lookups) -> Result<Completion, Vec<Lookup>> {
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
                    faults: Vec::new(),
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
    let recorded = old.annotations.get(annotation::RESOLVED_TKR);
    let Some(recorded) = recorded.filter(|recorded| !recorded.is_empty() && *recorded != name) else {
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

/// Completes a ClusterBootstrap from the stored one and the release that this one records.
fn applied_again(review: &Review, name: &str, finished: &Lookups) -> Result<Completion, Vec<Lookup>> {
    let own = &review.new.spec;
    let old = review.old.as_ref().filter(|old| old.spec != *own);
    let Some(old) = old.filter(|_| !review.spec_missing) else {
        return Ok(Completion::default());
    };
    let recorded = old.annotations.get(annotation::RESOLVED_TKR);
    let recorded = recorded.map_or(name, String::as_str);
    let mut lookups = LookupReader::of(finished);
    let packages: &[String] = match lookups.see(Lookup::Release(recorded.to_owned())) {
        Some(LookupResult::Release { packages, .. }) => packages,
        _ => &[],
    };
    let templates = [recorded, name].map(
        |release| match lookups.see(Lookup::Template(release.to_owned())) {
            Some(LookupResult::Template(template)) => Some(&**template),
            _ => None,
        },
    );
    let from = Reapplied {
        cluster: &review.name,
        stored: &old.spec,
        release: Release {
            name: recorded,
            packages,
        },
        templates,
        unmanaged_cni: review.new.is_unmanaged(),
        kept: &kept(review),
    };
    let completion = match reapply(own, from) {
        Ok((named, filled)) => Completion {
            spec: changed(Completed { named, filled }, own),
            faults: Vec::new(),
        },
        Err(faults) => refused(faults),
    };
    lookups.complete(completion)
}

/// Versions that the annotation keeps; none if it is unreadable, which the validating webhook refuses.
fn kept(review: &Review) -> KeptVersions {
    let kept = review.new.annotations.get(annotation::KEEP_PACKAGE_VERSIONS);
    KeptVersions::parse(kept.map_or("", String::as_str)).unwrap_or_default()
}

const fn refused(faults: Vec<Fault>) -> Completion {
    Completion { faults, spec: None }
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
