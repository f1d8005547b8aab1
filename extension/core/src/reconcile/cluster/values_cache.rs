//! Cache of values Secrets: version and digests of each, never its data.
//!
//! The cache decides only what a reconcile writes next, and whether it reads a Secret for that. Reads that confirm a gate never come from it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sluice_crds::labels::annotation;

use super::{Context, Interrupt, Step};
use crate::{
    digest::{self, DigestInputs},
    packages::build::{Owner, Values, back_references},
    protocol::SecretVersion,
};

/// Digests of the values of a package.
#[derive(Debug, Clone)]
pub(super) struct Digests {
    /// Digest of the values alone.
    pub(super) content: String,
    /// Digest for a PackageInstall made by Sluice.
    pub(super) own: String,
    /// Digest for a PackageInstall kept from the addons-manager.
    pub(super) kept: String,
}

impl Digests {
    pub(super) fn of(inputs: DigestInputs<'_>, values: &Values) -> Self {
        Self {
            content: digest::content(values),
            own: digest::values(&inputs, values),
            kept: digest::values(&DigestInputs { kept: true, ..inputs }, values),
        }
    }
}

/// Cached values Secret of a package. It was read, and is no credential.
#[derive(Debug, Clone)]
pub(super) struct CachedValues {
    version: SecretVersion,
    /// The part of its metadata that its adoption and its provider depend on.
    metadata: ObjectMeta,
    /// Digest of all inputs of `digests` but the values.
    inputs: String,
    digests: Digests,
}

impl CachedValues {
    /// Returns what is cached of the Secret with this metadata, for a package of a Cluster; `None` if its version is unknown.
    pub(super) fn of(
        secret: &ObjectMeta,
        (owner, package): (&Owner, &str),
        inputs: String,
        digests: Digests,
    ) -> Option<Self> {
        Some(Self {
            version: SecretVersion::of(secret)?,
            metadata: pruned(secret, owner, package),
            inputs,
            digests,
        })
    }

    pub(super) fn version(&self) -> &SecretVersion {
        &self.version
    }

    pub(super) fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// Returns the digests, if they are those for `inputs`.
    ///
    /// # Errors
    /// The read of the Secret, if other inputs than its values have changed.
    pub(super) fn digests(&self, inputs: &str) -> Step<&Digests> {
        if self.inputs == inputs {
            Ok(&self.digests)
        } else {
            Err(Interrupt::Need(vec![self.version.read()]))
        }
    }
}

/// Longest value of a label or annotation that a reconcile compares, in bytes: a label has at most 63, and a UID 36.
const LONGEST_VALUE: usize = 64;

/// Returns the part of the metadata of a values Secret that a reconcile needs. Tenants choose the size of the rest.
fn pruned(secret: &ObjectMeta, owner: &Owner, package: &str) -> ObjectMeta {
    let labels = back_references(owner, package);
    let mut owners = secret.owner_references.iter().flatten();
    let of_cluster = owners.find(|by| by.uid == owner.uid);
    ObjectMeta {
        namespace: secret.namespace.clone(),
        name: secret.name.clone(),
        uid: secret.uid.clone(),
        resource_version: secret.resource_version.clone(),
        deletion_timestamp: secret.deletion_timestamp.clone(),
        labels: only(secret.labels.as_ref(), |key| labels.contains_key(key)),
        annotations: only(secret.annotations.as_ref(), |key| {
            key == annotation::CONFIGURATION_UID
        }),
        owner_references: of_cluster.map(|by| {
            vec![OwnerReference {
                uid: by.uid.clone(),
                ..OwnerReference::default()
            }]
        }),
        ..ObjectMeta::default()
    }
}

fn only(
    fields: Option<&BTreeMap<String, String>>,
    is_needed: impl Fn(&str) -> bool,
) -> Option<BTreeMap<String, String>> {
    let fields = fields?.iter().filter(|(key, _)| is_needed(key));
    // A longer one is no UID, as a missing one is none.
    let fields = fields.filter(|(_, value)| value.len() <= LONGEST_VALUE);
    Some(fields.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Returns what is cached of `secret`, the values Secret of `package`, if the watch of values sources shows it unchanged. A Secret that this
/// reconcile has read or written is not looked up: its content is known.
pub(super) fn unchanged<'a>(
    context: &Context<'a>,
    package: &str,
    secret: &str,
) -> Step<Option<&'a CachedValues>> {
    let cached = context.local.cached_values(package);
    let Some(cached) = cached.filter(|cached| cached.version.name == secret) else {
        return Ok(None);
    };
    let version = cached.version();
    if context.has(&version.read()) || context.written(&version.key()).is_some() {
        return Ok(None);
    }
    Ok(context.is_shown(version)?.then_some(cached))
}

#[cfg(test)]
mod tests;
