//! The part of a request that is read.
//!
//! A Cluster comes as v1beta1 from Cluster API up to 1.12 (in 1.11 and 1.12 without apiVersion and kind) and as v1beta2
//! later, always under the same hook version. The fields below are the same in all of them. Other fields are skipped
//! without a copy and, if needed, read from the API server: a request is data, not authority.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::labels::Text;
use super::object::Object;

/// A request of any hook.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) cluster: Option<Object<Cluster<'a>>>,
    #[serde(borrow)]
    pub(super) from_kubernetes_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) to_kubernetes_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) from_control_plane_kubernetes_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kubernetes_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) control_plane_upgrades: Option<Vec<Object<Step<'a>>>>,
    #[serde(borrow)]
    pub(super) workers_upgrades: Option<Vec<Object<Step<'a>>>>,
}

/// The Cluster of a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cluster<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) metadata: Option<Object<Metadata<'a>>>,
    #[serde(borrow)]
    pub(super) spec: Option<Object<Spec<'a>>>,
}

/// The spec of a Cluster.
#[derive(Debug, Deserialize)]
pub(super) struct Spec<'a> {
    #[serde(borrow)]
    pub(super) topology: Option<Object<Topology<'a>>>,
}

/// Its topology.
#[derive(Debug, Deserialize)]
pub(super) struct Topology<'a> {
    #[serde(borrow)]
    pub(super) version: Option<Text<'a>>,
    /// Kept as text: only GenerateUpgradePlan reads it.
    #[serde(borrow)]
    pub(super) variables: Option<&'a RawValue>,
}

/// Its metadata.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) namespace: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) uid: Option<Text<'a>>,
    pub(super) generation: Option<i64>,
    #[serde(borrow)]
    pub(super) deletion_timestamp: Option<Text<'a>>,
    /// Kept as text: most of them are needed only where a gate selects Clusters by them.
    #[serde(borrow)]
    pub(super) labels: Option<&'a RawValue>,
}

/// One remaining step of an upgrade.
#[derive(Debug, Deserialize)]
pub(super) struct Step<'a> {
    #[serde(borrow)]
    pub(super) version: Option<Text<'a>>,
}
