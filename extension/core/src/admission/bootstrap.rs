//! The rules of a ClusterBootstrap.

use sluice_crds::labels::annotation;

use super::{
    Fault, Look, Looked, Review, Seen, Verdict,
    look::Sights,
    packages::{Listed, Rules, Strictness, each, missing},
    update,
};
use crate::{
    bootstrap::{Catalogue, KeptVersions, listed_twice, too_many, unmanaged_conflict},
    names::short,
};

pub(super) fn judge(review: &Review, looked: &Looked) -> Result<Verdict, Vec<Look>> {
    let Review { name, new, old, .. } = review;
    let mut sights = Sights::of(looked);
    let cluster = sights.see(Look::Cluster(name.clone()));
    let (deleting, stopped) = match cluster {
        Some(Seen::Cluster { deleting, stopped }) => (*deleting, *stopped),
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

    // `clusterctl move` creates objects in any order, and pauses the Cluster meanwhile.
    let lenient = stopped || (old.is_none() && review.owned);
    let before = old
        .as_ref()
        .map_or_else(Vec::new, |old| each(&old.spec).collect());
    let mut catalogue = Catalogue::new();
    let mut rules = Rules {
        review,
        sights: &mut sights,
        verdict: &mut verdict,
    };
    for listed in each(&new.spec) {
        let is_same = |old: &Listed<'_>| old.role == listed.role && old.package == listed.package;
        let unchanged = before.iter().any(is_same);
        let strict = Strictness {
            lenient: lenient || unchanged,
            unchanged,
        };
        let facts = rules.judge(&listed, strict);
        catalogue.extend(facts.map(|facts| (listed.package.ref_name.clone(), facts)));
    }
    if let Some(old) = old {
        update::judge(review, old, &kept, &mut catalogue, &mut sights, &mut verdict);
    }
    twice(review, &catalogue, &mut verdict);
    sights.complete(verdict)
}

/// What the annotation keeps; nothing of one that cannot be read.
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

/// Packages that would be one PackageInstall.
fn twice(review: &Review, catalogue: &Catalogue, verdict: &mut Verdict) {
    let Some(hold) = listed_twice(&review.new.spec, catalogue) else {
        return;
    };
    let ref_name = |listed: &Listed<'_>| {
        catalogue
            .get(&listed.package.ref_name)
            .map(|facts| facts.ref_name.as_str())
    };
    let all: Vec<_> = each(&review.new.spec).collect();
    let again = all.iter().enumerate().find(|(at, listed)| {
        let short_name = ref_name(listed).map(short);
        short_name.is_some()
            && all[..*at]
                .iter()
                .any(|first| ref_name(first).map(short) == short_name)
    });
    let Some((at, listed)) = again else { return };
    let both_additional = all[..at]
        .iter()
        .any(|first| first.is_additional() && listed.is_additional() && ref_name(first) == ref_name(listed));
    let message = if both_additional {
        format!(
            "more than one additional packages share the same refName: {}",
            hold.message
        )
    } else {
        hold.message
    };
    verdict.faults.push(Fault::new(
        format!("{}.refName", listed.field),
        &listed.package.ref_name,
        message,
    ));
}
