//! Validation rules of one package of a spec.

use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec, TypedLocalObjectReference};

use super::{Lookup, LookupResult, Review, Verdict, lookup::LookupReader};
use crate::fault::Fault;
use crate::{
    digest, names,
    packages::bootstrap::{PackageFacts, Role, Source, credential_of, credential_refused, packages, source},
    value_kinds::provides_values,
};

/// A package and the path of the field that lists it.
#[derive(Debug, Clone)]
pub(super) struct Listed<'a> {
    pub(super) role: Role,
    pub(super) field: String,
    pub(super) package: &'a ClusterBootstrapPackage,
}

impl Listed<'_> {
    pub(super) fn is_additional(&self) -> bool {
        self.role == Role::Additional
    }

    pub(super) fn fault(&self, field: &str, value: &str, text: impl Into<String>) -> Fault {
        Fault::new(format!("{}.{field}", self.field), value, text)
    }

    /// Whether `other` has the same name and source of values. No rule reads the content of inline values.
    pub(super) fn is_like(&self, other: &Listed<'_>) -> bool {
        let (one, other) = (self.package, other.package);
        one.ref_name == other.ref_name && source_fields(one) == source_fields(other)
    }
}

/// Returns the fields of the source of values, without the content of inline values.
fn source_fields(
    package: &ClusterBootstrapPackage,
) -> Option<(bool, Option<&str>, Option<&TypedLocalObjectReference>)> {
    let from = package.values_from.as_ref()?;
    Some((
        from.inline.is_some(),
        from.secret_ref.as_deref(),
        from.provider_ref.as_ref(),
    ))
}

/// All packages of a spec.
pub(super) fn each(spec: &ClusterBootstrapSpec) -> impl Iterator<Item = Listed<'_>> {
    let mut additional = 0;
    packages(spec).into_iter().map(move |(role, package)| {
        let field = if role == Role::Additional {
            additional += 1;
            format!("{}[{}]", role.field(), additional - 1)
        } else {
            role.field().to_owned()
        };
        Listed { role, field, package }
    })
}

/// Checks the values source of a package by its fields alone, without lookups.
pub(super) fn source_faults<'a>(listed: &Listed<'a>) -> Result<Source<'a>, Fault> {
    let source = source(listed.package).map_err(|hold| {
        let text = format!(
            "valuesFrom can't have more than one non-null subfield: {}",
            hold.message
        );
        listed.fault("valuesFrom", "object", text)
    })?;
    match source {
        Source::Defaults | Source::Inline(_) => {}
        Source::Secret(secret) => {
            if !names::is_object_name(secret) {
                return Err(listed.fault("valuesFrom.secretRef", secret, "no Secret can have this name"));
            }
        }
        Source::Provider(by) => provider_faults(listed, by)?,
    }
    Ok(source)
}

fn provider_faults(listed: &Listed<'_>, by: &TypedLocalObjectReference) -> Result<(), Fault> {
    let fault = |field: &str, value: &str, text: &str| {
        Err(listed.fault(&format!("valuesFrom.providerRef.{field}"), value, text))
    };
    let Some(group) = &by.api_group else {
        return fault("apiGroup", "null", "apiGroup can't be nil");
    };
    if !provides_values(group, &by.kind) {
        let text = format!(
            "{group}/{} provides no values; name a configuration of Sluice, or a kind of another project",
            by.kind
        );
        return fault("kind", &by.kind, &text);
    }
    if !names::is_object_name(&by.name) {
        return fault("name", &by.name, "no object can have this name");
    }
    Ok(())
}

/// Inputs and verdict of the rules for packages.
pub(super) struct Rules<'a, 'l> {
    pub(super) review: &'a Review,
    /// Whether a missing object is a warning instead of a fault.
    pub(super) lenient: bool,
    pub(super) lookups: &'a mut LookupReader<'l>,
    pub(super) verdict: &'a mut Verdict,
}

impl Rules<'_, '_> {
    /// Judges one package and returns the facts of its Package.
    pub(super) fn judge(&mut self, listed: &Listed<'_>) -> Option<PackageFacts> {
        let name = &listed.package.ref_name;
        if !names::is_package_name(name) {
            let text = "no Package can have this name";
            self.verdict.faults.push(listed.fault("refName", name, text));
            return None;
        }
        let facts = match self.lookups.see(Lookup::Package(name.clone())) {
            Some(LookupResult::Package(facts)) => Some(facts.clone()),
            Some(seen) => {
                self.absent(listed, ("refName", name), seen);
                None
            }
            None => None,
        };
        if let Some(facts) = &facts {
            self.verdict.faults.extend(too_long(self.review, listed, facts));
        }
        match source_faults(listed) {
            Ok(Source::Secret(secret)) => self.secret(listed, secret),
            Ok(Source::Provider(by)) => self.provider(listed, by),
            Ok(Source::Defaults | Source::Inline(_)) => {}
            Err(fault) => self.verdict.faults.push(fault),
        }
        facts
    }

    /// Returns the facts of the Package without a judgement, for entries that an update does not change.
    pub(super) fn known(&mut self, name: &str) -> Option<PackageFacts> {
        match self.lookups.see(Lookup::Package(name.to_owned())) {
            Some(LookupResult::Package(facts)) => Some(facts.clone()),
            _ => None,
        }
    }

    fn secret(&mut self, listed: &Listed<'_>, secret: &str) {
        let field = "valuesFrom.secretRef";
        let is_of_cluster = credential_of(secret).any(|cluster| {
            let seen = self.lookups.see(Lookup::Cluster(cluster.to_owned()));
            matches!(seen, Some(LookupResult::Cluster { .. }))
        });
        let seen = self.lookups.see(Lookup::Secret(secret.to_owned()));
        if is_of_cluster || seen == Some(&LookupResult::Secret { credential: true }) {
            let package = &listed.package.ref_name;
            let hold = credential_refused(&self.review.namespace, secret, package);
            self.verdict
                .faults
                .push(listed.fault(field, secret, hold.message));
        } else if let Some(seen) = seen {
            self.absent(listed, (field, secret), seen);
        }
    }

    fn provider(&mut self, listed: &Listed<'_>, by: &TypedLocalObjectReference) {
        match self.lookups.see(Lookup::provider(by)) {
            Some(LookupResult::NotServed) => {
                let group = by.api_group.as_deref().unwrap_or_default();
                let text = format!("unable to find server preferred resource {group}/{}", by.kind);
                self.missing(listed.fault("valuesFrom.providerRef", &by.kind, text));
            }
            Some(LookupResult::ClusterScoped) => {
                let group = by.api_group.as_deref().unwrap_or_default();
                let text = format!(
                    "{group}/{} is cluster-scoped and provides no values; name an object of a namespaced kind",
                    by.kind
                );
                let fault = listed.fault("valuesFrom.providerRef.kind", &by.kind, text);
                self.verdict.faults.push(fault);
            }
            Some(seen) => self.absent(listed, ("valuesFrom.providerRef.name", &by.name), seen),
            None => {}
        }
    }

    /// Reports a missing object or a failed lookup for the value of a field.
    fn absent(&mut self, listed: &Listed<'_>, (field, value): (&str, &str), seen: &LookupResult) {
        match seen {
            LookupResult::Absent { resource } => {
                let text = format!("{resource} {value:?} not found");
                self.missing(listed.fault(field, value, text));
            }
            LookupResult::Unknown(why) => self.verdict.warnings.push(format!(
                "{}.{field}: {value:?} was not looked up: {why}",
                listed.field
            )),
            _ => {}
        }
    }

    fn missing(&mut self, fault: Fault) {
        if self.lenient {
            let warning = format!("{fault}; upgrades of the Cluster are held until it exists");
            self.verdict.warnings.push(warning);
        } else {
            self.verdict.faults.push(fault);
        }
    }
}

/// Checks that the names of objects for the package are not too long for Kubernetes.
fn too_long(review: &Review, listed: &Listed<'_>, facts: &PackageFacts) -> Option<Fault> {
    let (cluster, package) = (&review.name, &facts.ref_name);
    let names = [
        names::package_install(cluster, package),
        names::values_secret(cluster, package, &"0".repeat(digest::LENGTH)),
        names::clone(cluster, package),
    ];
    let error = names.into_iter().find_map(Result::err)?;
    Some(listed.fault("refName", &listed.package.ref_name, error.to_string()))
}
