//! What the storage drivers of clouds have in common. Proxies are their own; those of the Cluster are not for them.

use serde_json::{Value, json};

use super::cluster::given;

/// Namespace of a driver unless the configuration says another.
const NAMESPACE: &str = "kube-system";
/// Replicas of a driver unless the configuration says another number.
const REPLICAS: i32 = 3;

/// What a configuration says about a driver.
pub(super) struct Driver<'a> {
    pub(super) namespace: Option<&'a String>,
    pub(super) http_proxy: Option<&'a String>,
    pub(super) https_proxy: Option<&'a String>,
    pub(super) no_proxy: Option<&'a String>,
    pub(super) replicas: Option<i32>,
}

impl Driver<'_> {
    /// Its values.
    pub(super) fn values(&self) -> Value {
        json!({
            "namespace": given(self.namespace, NAMESPACE),
            "http_proxy": given(self.http_proxy, ""),
            "https_proxy": given(self.https_proxy, ""),
            "no_proxy": given(self.no_proxy, ""),
            "deployment_replicas": self.replicas.unwrap_or(REPLICAS),
        })
    }
}
