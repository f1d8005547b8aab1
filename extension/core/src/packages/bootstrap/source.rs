//! Source of the values of a package. Reconciles and admission share it, so that both accept the same sources.

use sluice_crds::{
    FreeForm,
    run::{ClusterBootstrapPackage, TypedLocalObjectReference},
};

use crate::reasons::{GateReason, Hold};

/// Source of the values of a package.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Source<'a> {
    /// Defaults of the package.
    Defaults,
    /// Inline values of the ClusterBootstrap.
    Inline(&'a FreeForm),
    /// Secret with this name.
    Secret(&'a str),
    /// Secret in the status of this provider object.
    Provider(&'a TypedLocalObjectReference),
}

/// Returns the source of the values of `package`.
///
/// # Errors
/// Returns a hold if there is more than one.
pub fn source(package: &ClusterBootstrapPackage) -> Result<Source<'_>, Hold> {
    let Some(from) = &package.values_from else {
        return Ok(Source::Defaults);
    };
    match (&from.inline, &from.secret_ref, &from.provider_ref) {
        (None, None, None) => Ok(Source::Defaults),
        (Some(inline), None, None) => Ok(Source::Inline(inline)),
        (None, Some(secret), None) => Ok(Source::Secret(secret)),
        (None, None, Some(provider)) => Ok(Source::Provider(provider)),
        _ => Err(Hold::new(
            GateReason::ValuesSourceAmbiguous,
            format!(
                "package {} has more than one of inline, secretRef and providerRef in valuesFrom; keep one",
                package.ref_name
            ),
        )),
    }
}
