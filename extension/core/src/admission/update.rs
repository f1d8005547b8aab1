//! The rules of what an update of a ClusterBootstrap changes: no package is swapped, lowered or dropped unawares, and no provider.

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

/// Judges the change from `old`. `catalogue` has the Packages of the new spec.
pub(super) fn judge(
    review: &Review,
    old: &State,
    kept: &KeptVersions,
    catalogue: &Catalogue,
    sights: &mut LookupReader<'_>,
    verdict: &mut Verdict,
) {
    let new: Vec<_> = each(&review.new.spec).collect();
    let mut change = UpdateReview {
        kept,
        catalogue,
        sights,
        verdict,
    };
    for before in each(&old.spec) {
        let in_its_field = |after: &&Listed<'_>| after.role == before.role;
        // What stays as it was cannot be wrong.
        if new
            .iter()
            .filter(in_its_field)
            .any(|after| after.package == before.package)
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

/// One package that is not as it was.
struct UpdateReview<'a, 'b> {
    kept: &'a KeptVersions,
    catalogue: &'a Catalogue,
    sights: &'a mut LookupReader<'b>,
    verdict: &'a mut Verdict,
}

/// What two names of Packages say of each other.
enum Pair {
    /// They are of one package, at these versions.
    Same(PackageFacts, PackageFacts),
    /// They are of two packages.
    Another,
    /// It could not be looked up.
    Unknown,
}

/// Whether a package is still listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Yes,
    No,
    /// A Package could not be looked up.
    Unknown,
}

impl UpdateReview<'_, '_> {
    /// Compares the Packages of an old entry and a new one. kapp-controller makes the name of a Package of its refName and its version, so
    /// that the name of one that is not there says whether it is of the package of the other one.
    fn pair(&mut self, was: &str, is: &str) -> Pair {
        let (old, new) = (self.of_old(was), self.catalogue.get(is).cloned());
        let (old, new) = match (old, new) {
            (Some(old), Some(new)) => (Some(old), Some(new)),
            (Some(old), None) => (Some(old.clone()), by_name(is, &old)),
            (None, Some(new)) => (by_name(was, &new), Some(new)),
            (None, None) => return Pair::Unknown,
        };
        match (old, new) {
            (Some(old), Some(new)) if old.ref_name == new.ref_name => Pair::Same(old, new),
            _ => Pair::Another,
        }
    }

    /// What the Package of an old entry says of itself.
    fn of_old(&mut self, name: &str) -> Option<PackageFacts> {
        if let Some(facts) = self.catalogue.get(name) {
            return Some(facts.clone());
        }
        match self.sights.see(Lookup::Package(name.to_owned())) {
            Some(LookupResult::Package(facts)) => Some(facts.clone()),
            _ => None,
        }
    }

    /// Whether the annotation leaves out the package of an old entry, which may be gone.
    fn leaves_out(&mut self, name: &str) -> bool {
        let old = self.of_old(name);
        self.kept.leaves_out(name) || old.is_some_and(|old| self.kept.leaves_out(&old.ref_name))
    }

    /// A package of a field that holds one.
    fn core(&mut self, before: &Listed<'_>, after: &Listed<'_>) {
        let (was, is) = (&before.package.ref_name, &after.package.ref_name);
        match self.pair(was, is) {
            Pair::Same(old, new) => self.not_lower(&old, &new, after),
            Pair::Unknown => self.verdict.warnings.push(format!(
                "{}.refName: neither Package {was} nor {is} was found, so that they were not compared",
                after.field
            )),
            // A name that never was one of a Package has to be corrected some day.
            Pair::Another if self.is_gone(was) && self.leaves_out(was) => {}
            Pair::Another => {
                let way_out = if self.is_gone(was) {
                    format!(", which does not exist; if it never did, say {}", none(was))
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
        let seen = self.sights.see(Lookup::Package(name.to_owned()));
        matches!(seen, Some(LookupResult::Absent { .. }))
    }

    /// The same package in any field of the new spec, as the next release may have it; or that it cannot be said whether there is one.
    fn found(&mut self, before: &Listed<'_>, new: &[Listed<'_>]) -> Found {
        let mut found = Found::No;
        for after in new {
            match self.pair(&before.package.ref_name, &after.package.ref_name) {
                Pair::Same(old, new) => {
                    self.not_lower(&old, &new, after);
                    if after.role != before.role {
                        let (to, from) = (&after.field, before.role.field());
                        self.verdict.warnings.push(format!(
                            "{to}: upgrades are held while the release has {} in {from}",
                            new.ref_name
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

    /// A package of the list.
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
        // A name that is not found is no package that could be missed, but its own may be listed under another one that is not found.
        if unknown && self.of_old(was).is_none() && !self.is_gone(was) {
            let field = before.role.field();
            self.verdict.warnings.push(format!(
                "{field}: Package {was} was not looked up, so that it is not known whether it is still listed"
            ));
            return;
        }
        self.verdict.faults.push(Fault::new(
            before.role.field(),
            was,
            format!(
                "missing updated additional package; to leave it out say {}",
                none(was)
            ),
        ));
    }

    /// A core package that is taken out. That of the CNI and of kapp-controller is refused elsewhere.
    fn removed(&mut self, before: &Listed<'_>, new: &[Listed<'_>]) {
        if self.found(before, new) == Found::Yes || !matches!(before.role, Role::Cpi | Role::Csi) {
            return;
        }
        let was = &before.package.ref_name;
        if !self.leaves_out(was) {
            let (field, short) = (before.role.field(), short(was));
            self.verdict.warnings.push(format!(
                "{field}: the next release adds {short} again; to leave it out say {}",
                none(was)
            ));
        }
    }

    fn not_lower(&mut self, old: &PackageFacts, new: &PackageFacts, after: &Listed<'_>) {
        // By the order of the gate, which also does not take what has none for high enough.
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
                "package downgrade is not allowed, original version: {}, updated version {}; to keep the lower one say \
                 \"{short}={}\" in annotation {key}",
                old.version, new.version, new.version
            ),
        );
    }

    /// The values of a package that were provided by an object stay so.
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

/// What leaves the package out that a Package of this name is of.
fn none(package: &str) -> String {
    let (key, short) = (annotation::KEEP_PACKAGE_VERSIONS, short(package));
    format!("\"{short}=none\" in annotation {key}")
}

/// What the name of a Package that is not there says, if it is one of the package `like`.
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
