//! A ClusterBootstrap from its template (addons-manager §3.2a).

use sluice_crds::{
    FreeForm,
    run::{ClusterBootstrapPackage, ClusterBootstrapSpec, TypedLocalObjectReference},
};

use super::{Catalogue, Source, package_not_found, packages, source};
use crate::{
    names,
    reasons::{GateReason, Hold},
};

/// What holds or provides values of the new ClusterBootstrap, and must exist in the namespace of the Cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum ValuesClone {
    /// Values written in the ClusterBootstrap itself; they stay there, the Secret mirrors them.
    Inline {
        /// Name of the Secret to write.
        secret: String,
        /// Name of the Package object.
        package: String,
        /// The values document.
        values: FreeForm,
    },
    /// A Secret of the system namespace, copied.
    Secret {
        /// Name in the system namespace.
        from: String,
        /// Name in the namespace of the Cluster.
        to: String,
        /// Name of the Package object.
        package: String,
    },
    /// An object of the system namespace that provides values, copied.
    Provider {
        /// The object in the system namespace.
        from: TypedLocalObjectReference,
        /// Name in the namespace of the Cluster.
        to: String,
        /// Name of the Package object.
        package: String,
    },
}

impl ValuesClone {
    /// Name of the object in the namespace of the Cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Inline { secret, .. } => secret,
            Self::Secret { to, .. } | Self::Provider { to, .. } => to,
        }
    }

    /// Name of the Package object.
    #[must_use]
    pub fn package(&self) -> &str {
        match self {
            Self::Inline { package, .. } | Self::Secret { package, .. } | Self::Provider { package, .. } => {
                package
            }
        }
    }

    /// API group and kind of the object; the core group is empty.
    #[must_use]
    pub fn group_kind(&self) -> (&str, &str) {
        match self {
            Self::Inline { .. } | Self::Secret { .. } => ("", "Secret"),
            Self::Provider { from, .. } => (from.api_group.as_deref().unwrap_or_default(), &from.kind),
        }
    }
}

/// A spec that shall be written, and the clones it refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// Spec of the ClusterBootstrap.
    pub spec: ClusterBootstrapSpec,
    /// What must exist before the spec is written.
    pub clones: Vec<ValuesClone>,
}

/// The ClusterBootstrap that `template` describes for `cluster`.
///
/// References to Secrets and providers are renamed to the cluster's own clones (`<cluster>-<short>-package`).
pub fn from_template(
    cluster: &str,
    template: &ClusterBootstrapSpec,
    catalogue: &Catalogue,
) -> Result<Draft, Hold> {
    let mut spec = template.clone();
    spec.paused = false;
    let mut clones = Vec::new();
    for package in all_mut(&mut spec) {
        if !catalogue.contains_key(&package.ref_name) {
            return Err(package_not_found(
                &package.ref_name,
                "the ClusterBootstrapTemplate",
            ));
        }
        clones.extend(localize(cluster, package)?);
    }
    Ok(Draft { spec, clones })
}

/// The clones that a ClusterBootstrap of `cluster` has by `template`.
pub fn clones_of(cluster: &str, template: &ClusterBootstrapSpec) -> impl Iterator<Item = ValuesClone> {
    packages(template).into_iter().filter_map(move |(_, package)| {
        let mut package = package.clone();
        localize(cluster, &mut package).ok().flatten()
    })
}

/// Points the values of a package taken from a template at the cluster's own objects.
pub(super) fn localize(
    cluster: &str,
    package: &mut ClusterBootstrapPackage,
) -> Result<Option<ValuesClone>, Hold> {
    let name = package.ref_name.clone();
    let own = || {
        names::clone(cluster, &name).map_err(|error| {
            Hold::new(
                GateReason::NameTooLong,
                format!("values of package {name}: {error}"),
            )
        })
    };
    let clone = match source(package)? {
        Source::Defaults => return Ok(None),
        Source::Inline(inline) => ValuesClone::Inline {
            secret: own()?,
            values: inline.clone(),
            package: name,
        },
        Source::Secret(secret) => ValuesClone::Secret {
            from: secret.to_owned(),
            to: own()?,
            package: name,
        },
        Source::Provider(provider) => ValuesClone::Provider {
            from: provider.clone(),
            to: own()?,
            package: name,
        },
    };
    if let Some(from) = &mut package.values_from {
        match &clone {
            ValuesClone::Inline { .. } => {}
            ValuesClone::Secret { to, .. } => from.secret_ref = Some(to.clone()),
            ValuesClone::Provider { to, .. } => {
                if let Some(provider) = &mut from.provider_ref {
                    provider.name.clone_from(to);
                }
            }
        }
    }
    Ok(Some(clone))
}

pub(crate) fn all_mut(spec: &mut ClusterBootstrapSpec) -> impl Iterator<Item = &mut ClusterBootstrapPackage> {
    [&mut spec.kapp, &mut spec.cni, &mut spec.cpi, &mut spec.csi]
        .into_iter()
        .flatten()
        .chain(&mut spec.additional_packages)
}
