//! Validation rules of a ClusterBootstrap.

use sluice_crds::labels::annotation;

use super::{
    Lookup, LookupResult, Lookups, Review, Verdict,
    lookup::LookupReader,
    packages::{Listed, Rules, each},
    update,
};
use crate::packages::bootstrap::{
    Catalogue, KeptVersions, duplicate_hold, duplicate_indexes, too_many, unmanaged_conflict,
};
use crate::{fault::Fault, packages::bootstrap::missing};

pub(super) fn judge(review: &Review, finished: &Lookups) -> Result<Verdict, Vec<Lookup>> {
    let Review { name, new, old, .. } = review;
    let mut lookups = LookupReader::of(finished);
    let cluster = lookups.see(Lookup::Cluster(name.clone()));
    let (deleting, stopped) = match cluster {
        Some(LookupResult::Cluster {
            deleting, stopped, ..
        }) => (*deleting, *stopped),
        _ => (false, false),
    };
    if old.is_some() && deleting {
        return Ok(Verdict::default());
    }
    let mut verdict = Verdict::default();
    if new.is_unmanaged() && new.spec.cni.is_some() {
        let text = "Spec.CNI should be empty if the clusterbootstrap is annotated to use unmanaged CNI.";
        let hold = unmanaged_conflict(name, &new.spec, true).map(|hold| hold.message);
        verdict
            .faults
            .push(Fault::new("", "", format!("{text} {}", hold.unwrap_or_default())));
    }
    verdict.faults.extend(missing(&new.spec, new.is_unmanaged()));
    if let Some(hold) = too_many(&new.spec, &format!("ClusterBootstrap {name}")) {
        let count = new.spec.additional_packages.len().to_string();
        verdict
            .faults
            .push(Fault::of(hold, "spec.additionalPackages", count));
        return Ok(verdict);
    }
    let kept = kept(review, &mut verdict);

    let before = old
        .as_ref()
        .map_or_else(Vec::new, |old| each(&old.spec).collect());
    let mut catalogue = Catalogue::new();
    let mut rules = Rules {
        review,
        // `clusterctl move` creates objects in any order, and pauses the Cluster meanwhile.
        lenient: stopped,
        lookups: &mut lookups,
        verdict: &mut verdict,
    };
    for listed in each(&new.spec) {
        let is_same = |old: &Listed<'_>| old.role == listed.role && old.is_like(&listed);
        let facts = if before.iter().any(is_same) {
            rules.known(&listed.package.ref_name)
        } else {
            rules.judge(&listed)
        };
        catalogue.extend(facts.map(|facts| (listed.package.ref_name.clone(), facts)));
    }
    if let Some(old) = old {
        update::judge(review, old, &kept, &catalogue, &mut lookups, &mut verdict);
    }
    duplicates(review, &catalogue, &mut verdict);
    // A move or a restore creates an object that was stored before. A refusal would stop the move half-way; the gate holds for its faults.
    if old.is_none() && review.owned {
        let faults = std::mem::take(&mut verdict.faults);
        verdict.warnings.extend(faults.iter().map(ToString::to_string));
    }
    lookups.complete(verdict)
}

/// Versions that the annotation keeps. Reports an unreadable annotation as a fault and keeps nothing.
fn kept(review: &Review, verdict: &mut Verdict) -> KeptVersions {
    let key = annotation::KEEP_PACKAGE_VERSIONS;
    let Some(text) = review.new.annotations.get(key) else {
        return KeptVersions::default();
    };
    KeptVersions::parse(text).unwrap_or_else(|hold| {
        let field = format!("metadata.annotations[{key}]");
        verdict.faults.push(Fault::of(hold, field, text));
        KeptVersions::default()
    })
}

/// Reports packages that would share one PackageInstall.
fn duplicates(review: &Review, catalogue: &Catalogue, verdict: &mut Verdict) {
    let spec = &review.new.spec;
    let (Some((first, second)), Some(hold)) = (
        duplicate_indexes(spec, catalogue),
        duplicate_hold(spec, catalogue),
    ) else {
        return;
    };
    let all: Vec<_> = each(spec).collect();
    let (first, second) = (&all[first], &all[second]);
    let ref_name = |listed: &Listed<'_>| {
        catalogue
            .get(&listed.package.ref_name)
            .map(|facts| &facts.ref_name)
    };
    let text = if first.is_additional() && second.is_additional() && ref_name(first) == ref_name(second) {
        format!(
            "more than one additional packages share the same refName: {}",
            hold.message
        )
    } else {
        hold.message
    };
    verdict
        .faults
        .push(second.fault("refName", &second.package.ref_name, text));
}
