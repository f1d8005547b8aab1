//! What the objects of each kind may take.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{DynamicObject, PartialObjectMeta};
use serde::de::DeserializeOwned;
use sluice_crds::{
    decode::Limit,
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use super::Body;
use crate::hop::ControlPlane;

/// Bytes of memory that an object of a tenant may take while it is decoded. A Cluster with a hundred pools, each with images of its own
/// for two Kubernetes versions, takes less.
pub const OF_TENANT: usize = 2 * 1024 * 1024;

/// The same of an object of an operator.
const OF_OPERATOR: usize = 4 * 1024 * 1024;

/// The same of an object of the management cluster that is read by its name.
pub const READ: usize = 16 * 1024 * 1024;

/// Bytes that an object of a tenant may take in a store, compressed.
pub const KEPT: usize = 48 * 1024;

/// The same of an object of an operator: no less than etcd takes.
const KEPT_OF_OPERATOR: usize = 2 * 1024 * 1024;

/// A kind that lists and watches bring, or that is read, and what an object of it may take.
pub trait Decode: DeserializeOwned {
    /// Within this it is decoded.
    const LIMIT: Limit;
    /// Bytes that it may take in a store, compressed.
    const KEPT: usize;
}

macro_rules! decode {
    ($limit:expr, $kept:expr; $($Kind:ty),+ $(,)?) => {
        $(impl Decode for $Kind {
            const LIMIT: Limit = $limit;
            const KEPT: usize = $kept;
        })+
    };
}

decode! {
    Limit::projected(OF_TENANT), KEPT;
    Cluster, ClusterBootstrap, ClusterClass, MachineDeployment, MachinePool, ControlPlane, PackageInstall, App,
    PartialObjectMeta<DynamicObject>,
}

// kube builds it of a copy, which is not counted.
decode! {
    Limit::projected(OF_TENANT / 2), KEPT;
    DynamicObject,
}

decode! {
    Limit::whole(OF_OPERATOR), KEPT_OF_OPERATOR;
    ClusterBootstrapTemplate, TanzuKubernetesRelease, OSImage, Package, ConfigMap,
}

decode! {
    Limit::whole(READ), KEPT;
    Body,
}
