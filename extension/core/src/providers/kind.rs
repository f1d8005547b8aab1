//! Definition of a configuration kind.

use std::collections::BTreeMap;

use kube::{
    Resource, ResourceExt as _,
    core::{ApiResource, DynamicObject},
};
use serde::de::DeserializeOwned;
use sluice_crds::foreign::Cluster;

use super::{
    output::Output,
    problem::{Problem, Reason},
    source::{Sources, ValuesError},
};

/// One kind of configuration.
pub trait Provider {
    /// The kind itself.
    type Resource: Resource<DynamicType = ()>;
    /// Its spec.
    type Spec: DeserializeOwned;
    /// How a configuration refers to its Cluster.
    const OWNER: OwnerBy = OwnerBy::Reference;
    /// Whether `status.message` repeats the problem.
    const STATUS_MESSAGE: bool = false;

    /// Computes the output of a configuration.
    ///
    /// # Errors
    /// A source has to be read first, or a user has to correct a problem.
    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        sources: &Sources,
    ) -> Result<Output, ValuesError>;
}

/// How a configuration refers to its Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerBy {
    /// By its first owner of kind Cluster.
    Reference,
    /// By its first owner of kind Cluster; without one by its own name.
    ReferenceOrName,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a, S> {
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its spec.
    pub spec: &'a S,
}

/// A kind in the table of the controller.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The API resource of the kind.
    pub resource: ApiResource,
    /// How a configuration refers to its Cluster.
    pub owner: OwnerBy,
    /// Whether `status.message` repeats the problem.
    pub status_message: bool,
    values: fn(&DynamicObject, &Cluster, &Sources) -> Result<Output, ValuesError>,
}

impl Kind {
    /// Returns the kind of a provider.
    #[must_use]
    pub fn of<P: Provider>() -> Self {
        Self {
            resource: ApiResource::erase::<P::Resource>(&()),
            owner: P::OWNER,
            status_message: P::STATUS_MESSAGE,
            values: evaluate::<P>,
        }
    }

    /// Computes the output of a configuration of this kind.
    ///
    /// # Errors
    /// A source has to be read first, or a user has to correct a problem.
    pub fn values(
        &self,
        config: &DynamicObject,
        cluster: &Cluster,
        sources: &Sources,
    ) -> Result<Output, ValuesError> {
        (self.values)(config, cluster, sources)
    }
}

fn evaluate<P: Provider>(
    object: &DynamicObject,
    cluster: &Cluster,
    sources: &Sources,
) -> Result<Output, ValuesError> {
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let spec: P::Spec = serde_json::from_value(spec).map_err(|error| {
        let kind = P::Resource::kind(&());
        // The API server validates the spec against the CRD, so CRD and Sluice are of different releases.
        let message = format!(
            "spec of {kind} {namespace}/{name} cannot be read: {error}; apply the CRDs of this release"
        );
        Problem::new(Reason::ConfigUnreadable, message)
    })?;
    let config = Config {
        name: &name,
        namespace: &namespace,
        uid: object.metadata.uid.as_deref().unwrap_or_default(),
        labels: object.labels(),
        spec: &spec,
    };
    P::values(&config, cluster, sources)
}
