//! The rules of what an update of a ClusterBootstrap changes: no package is swapped, lowered or dropped unawares, and no provider.

use std::cmp::Ordering;

use sluice_crds::{
    labels::annotation,
    run::{ClusterBootstrapPackage, TypedLocalObjectReference},
};

use super::{
    Fault, Look, Review, Seen, State, Verdict,
    look::Sights,
    packages::{Listed, each},
};
use crate::{
    bootstrap::{Catalogue, KeptVersions, PackageFacts, Role, Source, source},
    names::short,
    version::order,
};

/// Judges the change from `old`. `catalogue` has the Packages of the new spec and gets those of the old one.
pub(super) fn judge(
    review: &Review,
    old: &State,
    kept: &KeptVersions,
    catalogue: &mut Catalogue,
    sights: &mut Sights<'_>,
    verdict: &mut Verdict,
) {
    let new: Vec<_> = each(&review.new.spec).collect();
    for before in each(&old.spec) {
        let after: Vec<_> = new.iter().filter(|after| after.role == before.role).collect();
        // What stays as it was cannot be wrong.
        if after.iter().any(|after| after.package == before.package) {
            continue;
        }
        let mut change = Change {
            kept,
            catalogue,
            sights,
            verdict,
        };
        if before.is_additional() {
            change.additional(&before, &after);
        } else if let Some(after) = after.first() {
            change.core(&before, after);
        } else {
            change.removed(&before);
        }
    }
}

/// One package that is not as it was.
struct Change<'a, 'b> {
    kept: &'a KeptVersions,
    catalogue: &'a mut Catalogue,
    sights: &'a mut Sights<'b>,
    verdict: &'a mut Verdict,
}

impl Change<'_, '_> {
    /// What the Package of an old entry says of itself. One that is gone is told by its name, which kapp-controller makes of the refName
    /// and the version: it is of the package `like` if it begins so.
    fn of_old(&mut self, name: &str, like: Option<&PackageFacts>) -> Option<PackageFacts> {
        if let Some(facts) = self.catalogue.get(name) {
            return Some(facts.clone());
        }
        if let Some(Seen::Package(facts)) = self.sights.see(Look::Package(name.to_owned())) {
            self.catalogue.insert(name.to_owned(), facts.clone());
            return Some(facts.clone());
        }
        let like = like?;
        let version = name.strip_prefix(like.ref_name.as_str())?.strip_prefix('.')?;
        Some(PackageFacts {
            ref_name: like.ref_name.clone(),
            version: version.to_owned(),
            ..PackageFacts::default()
        })
    }

    /// A package of a field that holds one.
    fn core(&mut self, before: &Listed<'_>, after: &Listed<'_>) {
        let (was, is) = (&before.package.ref_name, &after.package.ref_name);
        if let Some(new) = self.catalogue.get(is).cloned() {
            match self.of_old(was, Some(&new)) {
                Some(old) if old.ref_name == new.ref_name => self.not_lower(&old, &new, after),
                None if !self.is_gone(was) => self.verdict.warnings.push(format!(
                    "{}.refName: Package {was} could not be looked up, so that {is} was not compared with it",
                    after.field
                )),
                // The name of one that is gone says that it is of another package.
                _ => self.refuse(
                    after,
                    "refName",
                    is,
                    format!(
                        "new package refName and old package refName should be the same, the old one is {was}"
                    ),
                ),
            }
        }
        self.source(before.package, after);
    }

    fn is_gone(&mut self, name: &str) -> bool {
        let seen = self.sights.see(Look::Package(name.to_owned()));
        matches!(seen, Some(Seen::Absent { .. }))
    }

    /// A package of the list.
    fn additional(&mut self, before: &Listed<'_>, after: &[&Listed<'_>]) {
        let mut name = before.package.ref_name.clone();
        for each in after {
            let Some(new) = self.catalogue.get(&each.package.ref_name).cloned() else {
                continue;
            };
            let Some(old) = self.of_old(&before.package.ref_name, Some(&new)) else {
                continue;
            };
            if old.ref_name == new.ref_name {
                self.not_lower(&old, &new, each);
                return self.source(before.package, each);
            }
        }
        if let Some(old) = self.of_old(&before.package.ref_name, None) {
            if self.kept.leaves_out(&old.ref_name) {
                return;
            }
            name = old.ref_name;
        }
        // Nothing can be said while the new ones, or this one, are not known.
        let all_known = after
            .iter()
            .all(|each| self.catalogue.contains_key(&each.package.ref_name));
        let unknown = matches!(
            self.sights.see(Look::Package(before.package.ref_name.clone())),
            None | Some(Seen::Unknown(_))
        );
        if !all_known || unknown {
            return;
        }
        let (key, short) = (annotation::KEEP_PACKAGE_VERSIONS, short(&name));
        self.verdict.faults.push(Fault::new(
            before.role.field(),
            &before.package.ref_name,
            format!(
                "missing updated additional package; to leave it out say \"{short}=none\" in annotation {key}"
            ),
        ));
    }

    /// A core package that is taken out. That of the CNI and of kapp-controller is refused elsewhere.
    fn removed(&mut self, before: &Listed<'_>) {
        if !matches!(before.role, Role::Cpi | Role::Csi) {
            return;
        }
        let Some(old) = self.of_old(&before.package.ref_name, None) else {
            return;
        };
        if !self.kept.leaves_out(&old.ref_name) {
            let (field, key, short) = (
                before.role.field(),
                annotation::KEEP_PACKAGE_VERSIONS,
                short(&old.ref_name),
            );
            self.verdict.warnings.push(format!(
                "{field}: the next release adds {short} again; to leave it out say \"{short}=none\" in annotation {key}"
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

fn is_same_kind(old: &TypedLocalObjectReference, new: &TypedLocalObjectReference) -> bool {
    (&old.api_group, &old.kind) == (&new.api_group, &new.kind)
}

fn described(by: &TypedLocalObjectReference) -> String {
    format!("{}/{}", by.api_group.as_deref().unwrap_or_default(), by.kind)
}
