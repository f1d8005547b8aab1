//! Releases as packages: bundles, what gives them out, and the PackageRepository that names them.

mod bundle;
mod files;
mod offer;
mod registry;

pub use bundle::Bundle;
pub use files::Files;
pub use offer::{TkrPackage, repository};
pub use registry::Registry;

use anyhow::Result;
use serde_json::Value;

/// What bundles are fetched from.
pub enum Source {
    /// Tarballs by HTTP.
    Files(Files),
    /// imgpkg bundles from a registry of images.
    Registry(Registry),
}

impl Source {
    /// Gives out a bundle. Returns how it is fetched, as one step of `spec.fetch`: another one each time, so that an object that names it
    /// changes.
    pub async fn publish(&self, name: &str, bundle: &Bundle) -> Result<Value> {
        match self {
            Self::Files(files) => files.publish(name, bundle),
            Self::Registry(registry) => registry.publish(name, bundle).await,
        }
    }
}
