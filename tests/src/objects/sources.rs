//! What Flux fetches: repositories of Helm charts and of files.

use serde_json::{Value, json};

use super::INTERVAL;

/// apiVersion of both kinds.
const API_VERSION: &str = "source.toolkit.fluxcd.io/v1";

/// A HelmRepository.
#[derive(Debug, Clone)]
pub struct HelmRepository {
    name: String,
    url: String,
}

impl HelmRepository {
    /// The one that a [`HelmRelease`](super::HelmRelease) names unless it names another one.
    pub const NAME: &str = "charts";

    /// A static repository of this URL.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            name: Self::NAME.to_owned(),
            url: url.to_owned(),
        }
    }

    /// With another name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The object, to be applied.
    #[must_use]
    pub fn manifest(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": API_VERSION,
            "kind": "HelmRepository",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {"type": "default", "url": self.url, "interval": INTERVAL, "timeout": "10s"},
        })
    }
}

/// A GitRepository.
#[derive(Debug, Clone)]
pub struct GitSource {
    name: String,
    url: String,
    branch: String,
}

impl GitSource {
    /// One that follows a branch.
    #[must_use]
    pub fn new(name: &str, url: &str, branch: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            branch: branch.to_owned(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object, to be applied.
    #[must_use]
    pub fn manifest(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": API_VERSION,
            "kind": "GitRepository",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "url": self.url,
                "interval": INTERVAL,
                "timeout": "20s",
                "ref": {"branch": self.branch},
            },
        })
    }
}
