//! Lists of a workload cluster, page by page.

use http::Request;
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Resource,
    core::{params::ListParams, request},
};
use serde::{Deserialize, de::DeserializeOwned};
use sluice_crds::decode::{self, Limit};

use super::{LONGEST_NAME, WorkloadObjects, budget::Budget, place};
use crate::{
    protocol::{Failure, Server},
    text::one_line,
};

/// Memory limit of one decoded page, in bytes. Only a few fields of each object are decoded.
const PAGE: usize = 4 * 1024 * 1024;

/// Finished Pods are not drained.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Longest version of a kubelet, in characters.
const LONGEST_VERSION: usize = 64;

/// List of a workload cluster, in all namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// PodDisruptionBudgets.
    Budgets,
    /// Nodes.
    Nodes,
    /// Metadata of Pods.
    Pods,
}

/// One page of a list.
#[derive(Deserialize)]
struct Page<T> {
    kind: Option<String>,
    metadata: Option<PageMetadata>,
    /// Go writes an empty list as null.
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    token: Option<String>,
}

/// Metadata of an object.
#[derive(Debug, Deserialize)]
pub(super) struct Names {
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) generation: Option<i64>,
}

#[derive(Deserialize)]
struct PodItem {
    metadata: PodMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    name: Option<String>,
    namespace: Option<String>,
    deletion_timestamp: Option<String>,
    annotations: Option<PodAnnotations>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize)]
struct PodAnnotations {
    /// Set on the mirror of a static Pod, which belongs to its Node.
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    controller: Option<bool>,
}

#[derive(Deserialize)]
struct NodeItem {
    metadata: Names,
    status: Option<NodeStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    node_info: Option<NodeInfo>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeInfo {
    kubelet_version: Option<String>,
}

impl List {
    /// All lists. The longest one is the last: a reader with limits may not complete it.
    pub const ALL: [Self; 3] = [Self::Budgets, Self::Nodes, Self::Pods];

    /// Returns the request of the page at a token, or of the first one, with at most `limit` objects.
    ///
    /// # Errors
    /// The token makes no request.
    pub fn request(self, limit: u32, token: Option<&str>) -> Result<Request<Vec<u8>>, Failure> {
        let first = ListParams::default().limit(limit);
        let page = match token {
            Some(token) => first.continue_token(token),
            None => first,
        };
        let request = match self {
            Self::Budgets => of::<PodDisruptionBudget>().list(&page),
            Self::Pods => of::<Pod>().list_metadata(&page.fields(UNFINISHED)),
            Self::Nodes => of::<Node>().list(&page),
        };
        request.map_err(|error| Failure::other(Server::Workload, &error.to_string()))
    }
}

impl WorkloadObjects {
    /// Adds a page of a list. Returns the token of the next page.
    ///
    /// # Errors
    /// The text is not a list of the kind, or its objects take too much memory.
    pub fn add(&mut self, list: List, text: &str) -> Result<Option<String>, Failure> {
        match list {
            List::Budgets => {
                let (budgets, token) = page::<Budget>(text)?;
                self.budgets.extend(budgets.iter().filter_map(Budget::warning));
                Ok(token)
            }
            List::Pods => {
                let (pods, token) = page::<PodItem>(text)?;
                let metadata = pods.iter().map(|pod| &pod.metadata);
                let alone = metadata.filter(|pod| pod.has_no_controller());
                self.pods.extend(alone.map(PodMetadata::place));
                Ok(token)
            }
            List::Nodes => {
                let (nodes, token) = page::<NodeItem>(text)?;
                self.nodes.extend(nodes.into_iter().filter_map(NodeItem::facts));
                Ok(token)
            }
        }
    }
}

impl PodMetadata {
    /// Whether a drain deletes the Pod, and nothing creates it again. Pods of DaemonSets have a controller.
    fn has_no_controller(&self) -> bool {
        let mut owners = self.owner_references.iter().flatten();
        let is_mirror = self
            .annotations
            .as_ref()
            .is_some_and(|annotations| annotations.mirror.is_some());
        !owners.any(|owner| owner.controller == Some(true)) && !is_mirror && self.deletion_timestamp.is_none()
    }

    fn place(&self) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        place(self.namespace.as_deref().unwrap_or_default(), name)
    }
}

impl NodeItem {
    /// Returns name and version of the kubelet.
    fn facts(self) -> Option<(String, String)> {
        let version = self.status?.node_info?.kubelet_version?;
        let name = one_line(&self.metadata.name.unwrap_or_default(), LONGEST_NAME);
        Some((name, one_line(&version, LONGEST_VERSION)))
    }
}

/// Returns the request builder for a kind in all namespaces.
fn of<K: Resource<DynamicType = ()>>() -> request::Request {
    request::Request::new(K::url_path(&(), None))
}

/// Decodes a page. Returns its objects and the token of the next page. Any other content than a list is a failure: it may be from a proxy.
pub(crate) fn page<T: DeserializeOwned>(text: &str) -> Result<(Vec<T>, Option<String>), Failure> {
    let unreadable = |what: &dyn std::fmt::Display| {
        Failure::other(Server::Workload, &format!("the list cannot be read: {what}"))
    };
    let page = decode::from_str::<Page<T>>(text, Limit::whole(PAGE));
    let (page, _) = page.map_err(|fault| unreadable(&fault))?;
    if !page.kind.is_some_and(|kind| kind.ends_with("List")) {
        return Err(unreadable(&"the response is not a list"));
    }
    let token = page.metadata.and_then(|metadata| metadata.token);
    let token = token.filter(|token| !token.is_empty());
    Ok((page.items.unwrap_or_default(), token))
}
