//! Creates a ClusterBootstrap from its template (addons-manager §3.2a).

use sluice_crds::{
    FreeForm,
    run::{ClusterBootstrapPackage, ClusterBootstrapSpec, TypedLocalObjectReference},
};

use super::{Catalogue, Source, package_not_found, packages, source};
use crate::{
    names,
    reasons::{GateReason, Hold},
};

/// Object with values of the new ClusterBootstrap that has to exist in the namespace of the Cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum ValuesClone {
    /// Inline values of the ClusterBootstrap; they stay there, and the Secret mirrors them.
    Inline {
        /// Name of the Secret to write.
        secret: String,
        /// Name of the Package object.
        package: String,
        /// Values document.
        values: FreeForm,
    },
    /// Copy of a Secret of the system namespace.
    Secret {
        /// Name in the system namespace.
        from: String,
        /// Name in the namespace of the Cluster.
        to: String,
        /// Name of the Package object.
        package: String,
    },
    /// Copy of a provider object of the system namespace.
    Provider {
        /// Original in the system namespace.
        from: TypedLocalObjectReference,
        /// Name in the namespace of the Cluster.
        to: String,
        /// Name of the Package object.
        package: String,
    },
}

impl ValuesClone {
    /// Returns the name of the object in the namespace of the Cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Inline { secret, .. } => secret,
            Self::Secret { to, .. } | Self::Provider { to, .. } => to,
        }
    }

    /// Returns the name of the Package object.
    #[must_use]
    pub fn package(&self) -> &str {
        match self {
            Self::Inline { package, .. } | Self::Secret { package, .. } | Self::Provider { package, .. } => {
                package
            }
        }
    }

    /// Returns API group and kind of the object; the core group is empty.
    #[must_use]
    pub fn group_kind(&self) -> (&str, &str) {
        match self {
            Self::Inline { .. } | Self::Secret { .. } => ("", "Secret"),
            Self::Provider { from, .. } => (from.api_group.as_deref().unwrap_or_default(), &from.kind),
        }
    }
}

/// Desired spec and the clones that it references.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    /// Spec of the ClusterBootstrap.
    pub spec: ClusterBootstrapSpec,
    /// Clones that have to exist before the spec is written.
    pub clones: Vec<ValuesClone>,
    /// Value of annotation `lifecycle.sluice.dev/rollback-to`; `None` if the present one stays.
    pub snapshot: Option<String>,
}

/// Builds the ClusterBootstrap that `template` describes for `cluster`.
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
    Ok(Draft {
        spec,
        clones,
        ..Draft::default()
    })
}

/// Returns the clones of a ClusterBootstrap of `cluster` according to `template`.
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
