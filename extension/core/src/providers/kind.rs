//! What a configuration kind is.

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
    /// How a configuration finds its Cluster.
    const OWNER: OwnerBy = OwnerBy::Reference;
    /// Whether `status.message` repeats what is wrong.
    const STATUS_MESSAGE: bool = false;

    /// What a configuration turns into.
    ///
    /// # Errors
    /// Something has to be read first, or to be corrected by a user.
    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        sources: &Sources,
    ) -> Result<Output, ValuesError>;
}

/// How a configuration finds its Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerBy {
    /// By the first of its owners that is a Cluster.
    Reference,
    /// The same, and by its own name when it has no such owner.
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
    /// What it asks for.
    pub spec: &'a S,
}

/// A kind as the controller runs it.
#[derive(Clone, Debug)]
pub struct Kind {
    /// How it is served.
    pub resource: ApiResource,
    /// How a configuration finds its Cluster.
    pub owner: OwnerBy,
    /// Whether `status.message` repeats what is wrong.
    pub status_message: bool,
    values: fn(&DynamicObject, &Cluster, &Sources) -> Result<Output, ValuesError>,
}

impl Kind {
    /// The kind of a provider.
    #[must_use]
    pub fn of<P: Provider>() -> Self {
        Self {
            resource: ApiResource::erase::<P::Resource>(&()),
            owner: P::OWNER,
            status_message: P::STATUS_MESSAGE,
            values: evaluate::<P>,
        }
    }

    /// What a configuration of this kind turns into.
    ///
    /// # Errors
    /// Something has to be read first, or to be corrected by a user.
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
        // The API server has checked it against the definition, so one of the two is of another release.
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
