//! Validation rules of an update of a ClusterBootstrap: no package or provider is swapped, downgraded or dropped by accident.

use std::cmp::Ordering;

use sluice_crds::{
    labels::annotation,
    run::{ClusterBootstrapPackage, TypedLocalObjectReference},
};

use super::{
    Lookup, LookupResult, Review, State, Verdict,
    lookup::LookupReader,
    packages::{Listed, each},
};
use crate::fault::Fault;
use crate::{
    names::short,
    packages::bootstrap::{Catalogue, KeptVersions, PackageFacts, Role, Source, source},
    version::order,
};

/// Judges the change from `old`. `catalogue` holds the Packages of the new spec.
pub(super) fn judge(
    review: &Review,
    old: &State,
    kept: &KeptVersions,
    catalogue: &Catalogue,
    lookups: &mut LookupReader<'_>,
    verdict: &mut Verdict,
) {
    let new: Vec<_> = each(&review.new.spec).collect();
    let mut change = UpdateReview {
        kept,
        catalogue,
        lookups,
        verdict,
    };
    for before in each(&old.spec) {
        let in_its_field = |after: &&Listed<'_>| after.role == before.role;
        // An unchanged entry needs no check.
        if new
            .iter()
            .filter(in_its_field)
            .any(|after| after.is_like(&before))
        {
            continue;
        }
        if before.is_additional() {
            change.additional(&before, &new);
        } else if let Some(after) = new.iter().find(in_its_field) {
            change.core(&before, after);
        } else {
            change.removed(&before, &new);
        }
    }
}

/// Inputs and verdict of the rules for changed packages.
struct UpdateReview<'a, 'b> {
    kept: &'a KeptVersions,
    catalogue: &'a Catalogue,
    lookups: &'a mut LookupReader<'b>,
    verdict: &'a mut Verdict,
}

/// Relation of two Package names.
enum Pair {
    /// Both name the same package, at these versions.
    Same(Box<[PackageFacts; 2]>),
    /// The names are of different packages.
    Another,
    /// Neither Package was found.
    Unknown,
}

/// Whether a package is still listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Yes,
    No,
    /// The lookup of a Package failed.
    Unknown,
}

impl UpdateReview<'_, '_> {
    /// Compares the Packages of an old entry and a new one. kapp-controller requires that the name of a Package is its refName and version.
    /// So the name of a missing Package is enough to tell whether it is of the same package.
    fn pair(&mut self, was: &str, is: &str) -> Pair {
        let (old, new) = (self.of_old(was), self.catalogue.get(is).cloned());
        let (old, new) = match (old, new) {
            (Some(old), Some(new)) => (Some(old), Some(new)),
            (Some(old), None) => (Some(old.clone()), by_name(is, &old)),
            (None, Some(new)) => (by_name(was, &new), Some(new)),
            (None, None) => return Pair::Unknown,
        };
        match (old, new) {
            (Some(old), Some(new)) if old.ref_name == new.ref_name => Pair::Same(Box::new([old, new])),
            _ => Pair::Another,
        }
    }

    /// Facts of the Package of an old entry.
    fn of_old(&mut self, name: &str) -> Option<PackageFacts> {
        if let Some(facts) = self.catalogue.get(name) {
            return Some(facts.clone());
        }
        match self.lookups.see(Lookup::Package(name.to_owned())) {
            Some(LookupResult::Package(facts)) => Some(facts.clone()),
            _ => None,
        }
    }

    /// Whether the annotation leaves out the package of an old entry, whose Package may not exist any more.
    fn leaves_out(&mut self, name: &str) -> bool {
        let old = self.of_old(name);
        self.kept.leaves_out(name) || old.is_some_and(|old| self.kept.leaves_out(&old.ref_name))
    }

    /// Judges a package of a field with a single package.
    fn core(&mut self, before: &Listed<'_>, after: &Listed<'_>) {
        let (was, is) = (&before.package.ref_name, &after.package.ref_name);
        match self.pair(was, is) {
            Pair::Same(pair) => self.not_lower(&pair, after),
            Pair::Unknown => self.verdict.warnings.push(format!(
                "{}.refName: neither Package {was} nor {is} was found, so they were not compared",
                after.field
            )),
            // A name that no Package ever had must stay correctable.
            Pair::Another if self.is_gone(was) && self.leaves_out(was) => {}
            Pair::Another => {
                let way_out = if self.is_gone(was) {
                    format!(", which does not exist; if it never did, set {}", none(was))
                } else {
                    String::new()
                };
                let text = format!(
                    "new package refName and old package refName should be the same, the old one is {was}{way_out}"
                );
                self.refuse(after, "refName", is, text);
            }
        }
        self.source(before.package, after);
    }

    fn is_gone(&mut self, name: &str) -> bool {
        let seen = self.lookups.see(Lookup::Package(name.to_owned()));
        matches!(seen, Some(LookupResult::Absent { .. }))
    }

    /// Finds the same package in any field of the new spec, because the next release may list it in another field.
    fn found(&mut self, before: &Listed<'_>, new: &[Listed<'_>]) -> Found {
        let mut found = Found::No;
        for after in new {
            match self.pair(&before.package.ref_name, &after.package.ref_name) {
                Pair::Same(pair) => {
                    self.not_lower(&pair, after);
                    if after.role != before.role {
                        let (to, from) = (&after.field, before.role.field());
                        self.verdict.warnings.push(format!(
                            "{to}: upgrades are held while the release has {} in {from}",
                            pair[1].ref_name
                        ));
                    }
                    self.source(before.package, after);
                    return Found::Yes;
                }
                Pair::Another => {}
                Pair::Unknown => found = Found::Unknown,
            }
        }
        found
    }

    /// Judges an additional package.
    fn additional(&mut self, before: &Listed<'_>, new: &[Listed<'_>]) {
        let was = &before.package.ref_name;
        let found = self.found(before, new);
        if found == Found::Yes {
            return;
        }
        let unknown = found == Found::Unknown;
        if self.leaves_out(was) {
            return;
        }
        // The package may still be listed under another name whose lookup failed, so this is a warning and not a refusal.
        if unknown && self.of_old(was).is_none() && !self.is_gone(was) {
            let field = before.role.field();
            self.verdict.warnings.push(format!(
                "{field}: Package {was} was not looked up, so it is unknown whether it is still listed"
            ));
            return;
        }
        self.verdict.faults.push(Fault::new(
            before.role.field(),
            was,
            format!(
                "missing updated additional package; to leave it out set {}",
                none(was)
            ),
        ));
    }

    /// Judges the removal of a core package. Other rules refuse the removal of the CNI and of kapp-controller.
    fn removed(&mut self, before: &Listed<'_>, new: &[Listed<'_>]) {
        if self.found(before, new) == Found::Yes || !matches!(before.role, Role::Cpi | Role::Csi) {
            return;
        }
        let was = &before.package.ref_name;
        if !self.leaves_out(was) {
            let (field, short) = (before.role.field(), short(was));
            self.verdict.warnings.push(format!(
                "{field}: the next release adds {short} again; to leave it out set {}",
                none(was)
            ));
        }
    }

    fn not_lower(&mut self, [old, new]: &[PackageFacts; 2], after: &Listed<'_>) {
        // The order of the gate, which also rejects a version that has no order.
        let lower = order(&new.version, &old.version).is_none_or(|order| order == Ordering::Less);
        if !lower || self.kept.keeps(new) {
            return;
        }
        let (key, short) = (annotation::KEEP_PACKAGE_VERSIONS, short(&new.ref_name));
        self.refuse(
            after,
            "refName",
            &after.package.ref_name,
            format!(
                "package downgrade is not allowed, original version: {}, updated version {}; to keep the lower one set \
                 \"{short}={}\" in annotation {key}",
                old.version, new.version, new.version
            ),
        );
    }

    /// Refuses to replace the provider of values by another kind of source.
    fn source(&mut self, before: &ClusterBootstrapPackage, after: &Listed<'_>) {
        let (Ok(Source::Provider(old)), Ok(new)) = (source(before), source(after.package)) else {
            return;
        };
        match new {
            Source::Defaults => {}
            Source::Provider(new) if is_same_kind(old, new) => {}
            Source::Provider(new) => self.refuse(
                after,
                "valuesFrom.providerRef",
                &described(new),
                format!(
                    "change to Group and Kind in ProviderRef is not allowed, it was {}",
                    described(old)
                ),
            ),
            Source::Inline(_) | Source::Secret(_) => self.refuse(
                after,
                "valuesFrom",
                if matches!(new, Source::Inline(_)) {
                    "inline"
                } else {
                    "secretRef"
                },
                format!(
                    "change from providerRef to other types of data value representation is not allowed, it was {}",
                    described(old)
                ),
            ),
        }
    }

    fn refuse(&mut self, after: &Listed<'_>, field: &str, value: &str, text: String) {
        let field = format!("{}.{field}", after.field);
        self.verdict.faults.push(Fault::new(field, value, text));
    }
}

/// Annotation entry that leaves out the package of this Package name.
pub(super) fn none(package: &str) -> String {
    let (key, short) = (annotation::KEEP_PACKAGE_VERSIONS, short(package));
    format!("\"{short}=none\" in annotation {key}")
}

/// Derives the facts of a missing Package from its name, if it is of the same package as `like`.
fn by_name(name: &str, like: &PackageFacts) -> Option<PackageFacts> {
    let version = name.strip_prefix(like.ref_name.as_str())?.strip_prefix('.')?;
    Some(PackageFacts {
        ref_name: like.ref_name.clone(),
        version: version.to_owned(),
        ..PackageFacts::default()
    })
}

fn is_same_kind(old: &TypedLocalObjectReference, new: &TypedLocalObjectReference) -> bool {
    (&old.api_group, &old.kind) == (&new.api_group, &new.kind)
}

fn described(by: &TypedLocalObjectReference) -> String {
    format!("{}/{}", by.api_group.as_deref().unwrap_or_default(), by.kind)
}
