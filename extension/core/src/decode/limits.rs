//! What the objects of each kind may take.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta, TypeMeta};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;
use sluice_crds::{
    decode::{self, Limit},
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use super::{Body, Unspecified};
use crate::upgrade::hop::ControlPlane;

/// Bytes of memory that an object of a tenant may take while it is decoded. A Cluster with a hundred pools, each with images of its own
/// for two Kubernetes versions, takes less.
pub const OF_TENANT: usize = 2 * 1024 * 1024;

/// The same of an object of an operator.
const OF_OPERATOR: usize = 4 * 1024 * 1024;

/// The same of the objects of the management cluster that one reconcile reads by their names.
pub const READ: usize = 8 * 1024 * 1024;

/// Bytes that an object of a tenant may take in a store, compressed.
pub const KEPT: usize = 60 * 1024;

/// The same of an object of an operator: no less than etcd takes.
const KEPT_OF_OPERATOR: usize = 2 * 1024 * 1024;

/// A kind that lists and watches bring, or that is read, and what an object of it may take.
pub trait Decode: DeserializeOwned {
    /// The type that it is read as: another one where its own would build more than is counted.
    type Read: DeserializeOwned + Into<Self>;
    /// Within this it is decoded.
    const LIMIT: Limit;
    /// Bytes that it may take in a store, compressed.
    const KEPT: usize;
}

macro_rules! decode {
    ($limit:expr, $kept:expr; $($Kind:ty),+ $(,)?) => {
        $(impl Decode for $Kind {
            type Read = Self;
            const LIMIT: Limit = $limit;
            const KEPT: usize = $kept;
        })+
    };
}

decode! {
    Limit::projected(OF_TENANT), KEPT;
    Cluster, ClusterBootstrap, ClusterClass, ControlPlane, PackageInstall, App, PartialObjectMeta<DynamicObject>,
}

// All those of a Cluster are decoded at once.
decode! {
    Limit::projected(OF_TENANT / 8), KEPT;
    MachineDeployment, MachinePool,
}

// Selectors of identities look at any label of a Namespace. A control plane, of which values are computed, may have files in it.
impl Decode for DynamicObject {
    type Read = Dynamic;
    const LIMIT: Limit = Limit::whole(OF_TENANT);
    const KEPT: usize = 256 * 1024;
}

decode! {
    Limit::whole(OF_OPERATOR), KEPT_OF_OPERATOR;
    ClusterBootstrapTemplate, TanzuKubernetesRelease, OSImage, Package, ConfigMap,
}

decode! {
    Limit::whole(READ), KEPT;
    Body, Unspecified,
}

/// An object of any kind. kube builds all of its fields twice.
#[derive(Debug)]
pub struct Dynamic(DynamicObject);

impl<'de> Deserialize<'de> for Dynamic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (mut api_version, mut kind) = (None, None);
        let mut metadata = ObjectMeta::default();
        let rest = decode::rest(deserializer, |name, text| {
            match name {
                "apiVersion" => api_version = decode::nested(text)?,
                "kind" => kind = decode::nested(text)?,
                "metadata" => metadata = decode::nested(text)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let types = api_version.zip(kind);
        Ok(Self(DynamicObject {
            types: types.map(|(api_version, kind)| TypeMeta { api_version, kind }),
            metadata,
            data: Value::Object(rest),
        }))
    }
}

impl From<Dynamic> for DynamicObject {
    fn from(Dynamic(object): Dynamic) -> Self {
        object
    }
}
