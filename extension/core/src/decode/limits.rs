//! Memory limits of the objects of each kind.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta, TypeMeta};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;
use sluice_crds::{
    decode::{self, Fault, Limit},
    foreign::{
        App, Cluster, ClusterClass, ControlPlane, MachineDeployment, MachinePool, Package, PackageInstall,
    },
    lifecycle::{ClusterUpgrade, UpgradeGate, UpgradeOverride},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use super::{Body, ClusterBody};

/// Memory limit for decoding an object of a tenant, in bytes.
pub const OF_TENANT: usize = 2 * 1024 * 1024;

/// Memory limit of a cached object of a tenant, in bytes. A Cluster with a hundred pools, each with its own images for two Kubernetes
/// versions, needs a fourth.
pub const CACHED: usize = 1024 * 1024;

/// Memory limit for decoding an object of an operator, in bytes.
const OF_OPERATOR: usize = 4 * 1024 * 1024;

/// Memory limit for decoding an object that a reconcile reads by name from the management cluster, in bytes.
pub const READ: usize = 8 * 1024 * 1024;

/// Kind that Sluice lists, watches or reads, with its size limit.
pub trait Decode: DeserializeOwned {
    /// Limit for decoding, and so for a cached object.
    const LIMIT: Limit;

    /// Decodes an object, and returns its memory in bytes. Not generic, so that only this crate compiles the decoders of these kinds.
    ///
    /// # Errors
    /// The text is not an object of the kind, or exceeds the limit.
    fn decode(json: &str, limit: Limit) -> Result<(Self, usize), Fault>;
}

macro_rules! decode {
    ($limit:expr; $($Kind:ty),+ $(,)?) => {
        $(impl Decode for $Kind {
            const LIMIT: Limit = $limit;

            fn decode(json: &str, limit: Limit) -> Result<(Self, usize), Fault> {
                decode::from_str(json, limit)
            }
        })+
    };
}

decode! {
    Limit::projected(CACHED);
    Cluster, ClusterBootstrap, ClusterClass, ControlPlane, PackageInstall, App, UpgradeGate, ClusterUpgrade,
    PartialObjectMeta<DynamicObject>,
}

// All objects of a Cluster are decoded at once.
decode! {
    Limit::projected(CACHED / 4);
    MachineDeployment, MachinePool, UpgradeOverride,
}

// Selectors of identities may match any label of a Namespace. A control plane, a source of values, may contain files.
impl Decode for DynamicObject {
    const LIMIT: Limit = Limit::whole(OF_TENANT);

    fn decode(json: &str, limit: Limit) -> Result<(Self, usize), Fault> {
        let (Dynamic(object), memory) = decode::from_str(json, limit)?;
        Ok((object, memory))
    }
}

decode! {
    Limit::whole(OF_OPERATOR);
    ClusterBootstrapTemplate, TanzuKubernetesRelease, OSImage, Package, ConfigMap,
}

decode! {
    Limit::whole(READ);
    Body, ClusterBody,
}

/// An object of any kind. kube allocates all of its fields twice.
struct Dynamic(DynamicObject);

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
