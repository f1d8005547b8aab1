//! Completes a new UpgradeOverride with its user and the UID of its Cluster, and refuses one that cannot have an effect.
//!
//! No gate relies on a verdict: [the judge of overrides](crate::upgrade::overrides) checks each rule itself, and ValidatingAdmissionPolicy
//! `sluice-overrides` checks the user.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use sluice_crds::{
    decode::{self, Limit},
    foreign::Cluster,
    lifecycle::{EVERY_PACKAGE, MAX_DAYS, MAX_PACKAGES, UpgradeOverrideSpec},
    run::{ClusterBootstrap, ClusterBootstrapSpec, ClusterBootstrapTemplate},
};

use super::Verdict;
use crate::{
    cache::stores::{Stored, Stores},
    decode::OF_TENANT,
    fault::Fault,
    names::{LONGEST_NAME, short},
    packages::bootstrap::packages,
    text::one_line,
    upgrade::overrides::{LONGEST_REASON, is_malformed},
};

/// Maximum length of the version of a step, as in the definition.
const LONGEST_VERSION: usize = 128;

/// Maximum length of a value in a message, in characters.
const MAX_VALUE: usize = 64;

/// Maximum length of the list of known packages in a message, in characters.
const MAX_KNOWN: usize = 512;

/// Maximum number of unknown packages in a verdict.
const MAX_UNKNOWN: usize = 10;

/// Create of an UpgradeOverride.
#[derive(Debug, Clone, Copy)]
pub struct NewOverride<'a> {
    /// Namespace of the override and its Cluster.
    pub namespace: &'a str,
    /// User who creates it.
    pub user: &'a str,
    /// Its spec.
    pub spec: &'a UpgradeOverrideSpec,
}

/// Result of a review.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverrideVerdict {
    /// Whether the override is admitted.
    pub verdict: Verdict,
    /// Value for `spec.requestedBy`, if the field is absent.
    pub requested_by: Option<String>,
    /// Value for `spec.clusterUID`, if the field is absent.
    pub cluster_uid: Option<String>,
}

/// Decodes a spec.
///
/// # Errors
/// The definition refuses the spec as well.
pub fn decoded(json: &str) -> Result<UpgradeOverrideSpec, Fault> {
    match decode::from_str(json, Limit::whole(OF_TENANT)) {
        Ok((spec, _)) => Ok(spec),
        Err(decode::Fault { path, what }) => {
            let field = match path.as_str() {
                "." => "spec".to_owned(),
                path => format!("spec.{path}"),
            };
            Err(Fault::new(field, "", what))
        }
    }
}

/// Judges a create by the caches alone.
#[must_use]
pub fn judge(
    new: &NewOverride<'_>,
    stores: &impl Stores,
    system_namespace: &str,
    now: Timestamp,
) -> OverrideVerdict {
    let spec = new.spec;
    let mut faults = malformed(new);
    faults.extend(user(new));
    faults.extend(expiry(spec.expires_at.0, now));
    let mut cluster_uid = None;
    match uid_of(new, stores) {
        None => {
            let text = format!(
                "Cluster {:?} is not found in namespace {:?}",
                one_line(&spec.cluster_name, MAX_VALUE),
                new.namespace
            );
            faults.push(fault("clusterName", &spec.cluster_name, text));
        }
        Some(uid) => {
            match &spec.cluster_uid {
                Some(given) if *given != uid => {
                    let text =
                        format!("the UID of the Cluster is {uid:?}; remove the field, and Sluice sets it");
                    faults.push(fault("clusterUID", given, text));
                }
                Some(_) => {}
                None => cluster_uid = Some(uid),
            }
            faults.extend(unknown_packages(new, stores, system_namespace));
        }
    }
    if !faults.is_empty() {
        return OverrideVerdict {
            verdict: Verdict {
                faults,
                ..Verdict::default()
            },
            ..OverrideVerdict::default()
        };
    }
    OverrideVerdict {
        verdict: Verdict::default(),
        requested_by: spec.requested_by.is_none().then(|| new.user.to_owned()),
        cluster_uid,
    }
}

fn fault(field: &str, value: &str, text: impl Into<String>) -> Fault {
    Fault::new(format!("spec.{field}"), one_line(value, MAX_VALUE), text)
}

/// Returns the faults of texts that messages repeat.
fn malformed(new: &NewOverride<'_>) -> Vec<Fault> {
    let spec = new.spec;
    let user = spec.requested_by.as_deref().unwrap_or(new.user);
    let texts = [
        ("reason", spec.reason.as_str(), LONGEST_REASON),
        ("requestedBy", user, LONGEST_REASON),
        (
            "target.kubernetesVersion",
            spec.target.kubernetes_version.as_str(),
            LONGEST_VERSION,
        ),
        ("target.release", spec.target.release.as_str(), LONGEST_NAME),
    ];
    let texts = texts.into_iter();
    let mut faults: Vec<Fault> = texts
        .filter(|(_, text, longest)| is_malformed(text, *longest))
        .map(|(field, text, longest)| {
            let rule = format!("needs 1 to {longest} characters, without control characters");
            fault(field, text, rule)
        })
        .collect();
    let count = spec.packages.len();
    if count == 0 || count > MAX_PACKAGES {
        let rule = format!("needs 1 to {MAX_PACKAGES} packages, or {EVERY_PACKAGE:?}");
        faults.push(fault("packages", &count.to_string(), rule));
    }
    faults
}

/// Returns the fault of a given user who is not the caller. The policy refuses it as well, but only some time after its installation.
fn user(new: &NewOverride<'_>) -> Option<Fault> {
    let given = new
        .spec
        .requested_by
        .as_ref()
        .filter(|given| *given != new.user)?;
    Some(fault(
        "requestedBy",
        given,
        "another user creates the UpgradeOverride; remove the field, and Sluice sets it",
    ))
}

fn expiry(expires: Timestamp, now: Timestamp) -> Option<Fault> {
    let left = expires.duration_since(now);
    let text = if left <= SignedDuration::ZERO {
        format!("the time has passed: it is {now:.0}")
    } else if left > SignedDuration::from_hours(24 * MAX_DAYS) {
        format!("an override expires at most {MAX_DAYS} days after its creation: it is {now:.0}")
    } else {
        return None;
    };
    Some(fault("expiresAt", &expires.to_string(), text))
}

/// Returns the UID of the Cluster, also of one that cannot be decoded.
fn uid_of(new: &NewOverride<'_>, stores: &impl Stores) -> Option<String> {
    let name = &new.spec.cluster_name;
    match Stored::<Cluster>::found(stores, Some(new.namespace), name) {
        Ok(cluster) => cluster?.metadata.uid.clone(),
        Err(undecodable) => undecodable.metadata.uid.clone(),
    }
}

/// Returns the faults of packages that neither the record nor the ClusterBootstrap nor the template of the release has. No package is
/// unknown while one of these objects cannot be decoded.
fn unknown_packages(new: &NewOverride<'_>, stores: &impl Stores, system_namespace: &str) -> Vec<Fault> {
    let spec = new.spec;
    let bootstrap = Stored::<ClusterBootstrap>::found(stores, Some(new.namespace), &spec.cluster_name);
    let template =
        Stored::<ClusterBootstrapTemplate>::found(stores, Some(system_namespace), &spec.target.release);
    let (Ok(bootstrap), Ok(template)) = (bootstrap, template) else {
        return Vec::new();
    };
    let mut known = BTreeSet::from([EVERY_PACKAGE]);
    if let Some(bootstrap) = bootstrap.as_deref() {
        known.extend(names_of(&bootstrap.spec));
        let record = bootstrap
            .status
            .as_ref()
            .and_then(|status| status.upgrade.as_ref());
        let packages = record.into_iter().flat_map(|record| &record.packages);
        known.extend(packages.map(|package| package.name.as_str()));
    }
    if let Some(template) = template.as_deref() {
        known.extend(names_of(&template.spec.0));
    }
    let unknown = |(at, package): (usize, &String)| {
        let listed: Vec<&str> = known.iter().copied().collect();
        let listed = one_line(&listed.join(", "), MAX_KNOWN);
        let text = format!("neither the Cluster nor the release has a package of this short name: {listed}");
        fault(&format!("packages[{at}]"), package, text)
    };
    let named = spec.packages.iter().enumerate();
    named
        .filter(|(_, package)| !known.contains(package.as_str()))
        .take(MAX_UNKNOWN)
        .map(unknown)
        .collect()
}

fn names_of(spec: &ClusterBootstrapSpec) -> impl Iterator<Item = &str> {
    packages(spec)
        .into_iter()
        .map(|(_, package)| short(&package.ref_name))
}

#[cfg(test)]
mod tests;
