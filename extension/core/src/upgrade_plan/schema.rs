//! Values of the packages of a step against the schemas of their Packages.
//!
//! kapp-controller does not enforce `valuesSchema`, so a mismatch only warns. Findings name fields that the schema lists, and never a
//! value or another field.

mod document;
mod mismatch;
mod openapi;
mod work;

use jsonschema::{Draft, PatternOptions};
use serde_json::Value;
use sluice_crds::{
    foreign::Package,
    run::{ClusterBootstrapPackage, ClusterBootstrapSpec},
};

use self::document::document;
use super::{
    Scope, WarningReason,
    chain::Link,
    finding::{Finding, FindingReason},
};
use crate::{
    packages::{
        bootstrap::{Role, Source, packages, source},
        build::{Values, inline_document},
    },
    protocol::{
        ReadPhase, Step,
        interrupt::{needs_of, together},
    },
    reconcile::cluster::{Context, Facts, values},
    text::one_line,
};

/// Size limit of a schema, in bytes of JSON.
const LONGEST: usize = 256 * 1024;

/// Maximum number of mismatches of one package.
const MOST: usize = 20;

/// Memory limit of a compiled pattern, and of the states that are cached while it is matched, in bytes.
const PATTERN: usize = 64 * 1024;

/// Error for a schema that values cannot be compared with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaNotUsable {
    /// The schema is too long.
    #[error("it is longer than 256 KiB")]
    TooLong,
    /// The schema is nested too deep, or a reference leads back to itself.
    #[error("it is nested deeper than 64 levels, or refers to itself")]
    TooDeep,
    /// A reference leads to another document, which is not read.
    #[error("it refers to another document")]
    Remote,
    /// A reference leads nowhere.
    #[error("it refers to a schema that it does not contain")]
    Dangling,
    /// A comparison with the values would take too much time or memory.
    #[error("a comparison with these values takes too much work")]
    TooMuchWork,
    /// It is not a schema of OpenAPI 3.0.
    #[error("it is no schema of OpenAPI 3.0: {0}")]
    Invalid(String),
}

/// Values of a package, and their schema.
struct Compared<'a> {
    /// Name of the Package.
    package: &'a str,
    schema: &'a Value,
    values: Values,
}

/// Returns the warnings about values that do not match the schema of their Package, and the holds of values that cannot be read.
///
/// # Errors
/// Missing reads.
pub(super) fn findings(context: &Context<'_>, link: &Link, scope: Scope) -> Step<Vec<Finding>> {
    let facts = context.facts;
    let Some(after) = &link.after else {
        return Ok(Vec::new());
    };
    let current = facts.bootstrap.as_deref().map(|bootstrap| &bootstrap.spec);
    let is_first = link.before.as_ref() == current;
    // What a later step does not change is compared at the first one.
    let changes = packages(after)
        .into_iter()
        .filter(|(_, package)| is_first || !has(link.before.as_ref(), |before| before == *package));
    let compared = changes.map(|(role, package)| compared(context, scope, role, package));
    let mut findings = Vec::new();
    for package in together(compared)? {
        match package {
            Ok(None) => {}
            Ok(Some(package)) => findings.extend(compare(&link.version, &package)),
            Err(stop) => {
                let hold = stop.held()?;
                // It is that of every step.
                if is_first {
                    findings.push(Finding::of_hold(Some(&link.version), hold));
                }
            }
        }
    }
    Ok(findings)
}

/// Returns values and schema of a package; `None` if nothing is compared. Values that the cache lacks are only read with
/// [`Scope::values`].
fn compared<'a>(
    context: &'a Context<'_>,
    scope: Scope,
    role: Role,
    package: &'a ClusterBootstrapPackage,
) -> Step<Option<Compared<'a>>> {
    let inline = match source(package)? {
        Source::Defaults => return Ok(None),
        Source::Inline(inline) => inline.text(),
        Source::Secret(_) | Source::Provider(_) => None,
    };
    let values = match inline {
        Some(inline) => Ok(inline_document(inline)),
        None if scope.values && is_present(context.facts, package) => {
            values(context, role, package, ReadPhase::Plan)
        }
        None => return Ok(None),
    };
    let object = context.package(&package.ref_name);
    together([needs_of(&values), needs_of(&object)])?;
    let values = values?;
    Ok(object?.and_then(schema_of).map(|schema| Compared {
        package: &package.ref_name,
        schema,
        values,
    }))
}

/// Whether the values source of a package exists before the upgrade. A step that adds a package also creates its source.
fn is_present(facts: &Facts, package: &ClusterBootstrapPackage) -> bool {
    let current = facts.bootstrap.as_deref().map(|bootstrap| &bootstrap.spec);
    has(current, |present| present.values_from == package.values_from)
}

fn has(spec: Option<&ClusterBootstrapSpec>, is_it: impl Fn(&ClusterBootstrapPackage) -> bool) -> bool {
    let mut packages = spec.map(packages).unwrap_or_default().into_iter();
    packages.any(|(_, package)| is_it(package))
}

fn schema_of(package: &Package) -> Option<&Value> {
    package.spec.rest.get("valuesSchema")?.get("openAPIv3")
}

/// Returns the warnings about the values of a package at the step to a version.
fn compare(version: &str, compared: &Compared<'_>) -> Vec<Finding> {
    let Compared {
        package,
        schema,
        values,
    } = compared;
    let warning = |reason, message| Finding::new(Some(version), FindingReason::Warning(reason), message);
    let document = match document(values) {
        Ok(document) => document,
        Err(why) => {
            let message = format!("values of Package {package} are not readable: {why}");
            return vec![warning(WarningReason::ValuesNotReadable, message)];
        }
    };
    match mismatches(schema, &document) {
        Ok(mismatches) => {
            let found = mismatches.into_iter().map(|mismatch| {
                let message =
                    format!("values of Package {package} do not match its valuesSchema: {mismatch}");
                warning(WarningReason::ValuesNotInSchema, message)
            });
            found.collect()
        }
        Err(why) => {
            let message = format!("valuesSchema of Package {package} is not usable: {why}");
            vec![warning(WarningReason::SchemaNotUsable, message)]
        }
    }
}

/// Compares values with a schema of OpenAPI 3.0. Returns at most 20 texts, each with a field and what is wrong with it.
///
/// # Errors
/// The schema cannot be used, or the comparison exceeds the limits of time and memory.
pub fn mismatches(schema: &Value, values: &Value) -> Result<Vec<String>, SchemaNotUsable> {
    let length = serde_json::to_vec(schema).map_or(usize::MAX, |text| text.len());
    if length > LONGEST {
        return Err(SchemaNotUsable::TooLong);
    }
    let schema = openapi::json_schema(schema)?;
    if !work::is_bounded(&schema, values) {
        return Err(SchemaNotUsable::TooMuchWork);
    }
    let patterns = PatternOptions::regex()
        .size_limit(PATTERN)
        .dfa_size_limit(PATTERN);
    let validator = jsonschema::options()
        .with_draft(Draft::Draft4)
        .offline()
        .with_pattern_options(patterns)
        .build(&schema)
        .map_err(|error| SchemaNotUsable::Invalid(one_line(&error.to_string(), 160)))?;
    let mut found = Vec::new();
    for error in validator.iter_errors(values) {
        let text = mismatch::text(&error);
        // Each item of a list may have the same one.
        if !found.contains(&text) {
            found.push(text);
        }
        if found.len() == MOST {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
