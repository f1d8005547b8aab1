//! Where the values of a package come from. Passes and admission read it here, so that neither takes what the other refuses.

use sluice_crds::{
    FreeForm,
    run::{ClusterBootstrapPackage, TypedLocalObjectReference},
};

use crate::reasons::{GateReason, Hold};

/// The source of a package's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Source<'a> {
    /// The package's own defaults.
    Defaults,
    /// The ClusterBootstrap itself.
    Inline(&'a FreeForm),
    /// The Secret of this name.
    Secret(&'a str),
    /// The Secret that this object names in its status.
    Provider(&'a TypedLocalObjectReference),
}

/// The source of `package`'s values.
///
/// # Errors
/// There is more than one.
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
