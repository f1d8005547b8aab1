//! A direct hook call to one replica, as Cluster API makes it.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Replica;
use crate::extension::hook_call;

const GROUP_VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";

/// Response to a hook call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookReply {
    /// `Success` or `Failure`.
    pub status: String,
    /// Reason and message of the hold; empty for a release.
    #[serde(default)]
    pub message: String,
    /// Seconds until the next call; 0 when released.
    #[serde(default)]
    pub retry_after_seconds: u32,
    #[serde(default)]
    control_plane_upgrades: Vec<PlannedStep>,
    /// Whether the server ended the connection after its answer.
    #[serde(skip)]
    pub closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct PlannedStep {
    version: String,
}

impl HookReply {
    /// Whether the answer releases the call.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.status == "Success" && self.retry_after_seconds == 0
    }

    /// Whether the answer holds the call for `reason`.
    #[must_use]
    pub fn is_held(&self, reason: &str) -> bool {
        self.status == "Success" && self.retry_after_seconds > 0 && self.reason() == reason
    }

    /// Versions that the control plane takes by an answer of GenerateUpgradePlan.
    #[must_use]
    pub fn steps(&self) -> Vec<&str> {
        let steps = self.control_plane_upgrades.iter();
        steps.map(|step| step.version.as_str()).collect()
    }

    /// The reason of a hold, the first word of its message; empty for a release.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.message.split(':').next().unwrap_or_default()
    }
}

impl Replica {
    /// Asks which hooks there are, as Cluster API does when it starts.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) async fn discovers(&self) -> Result<()> {
        let request = json!({"apiVersion": GROUP_VERSION, "kind": "DiscoveryRequest"});
        let path = format!("/{GROUP_VERSION}/discovery");
        hook_call::ask(self.hook_port.number(), &self.ca_bundle, &path, &request)
            .await
            .map(drop)
    }

    /// Asks `hook` (`BeforeClusterUpgrade`) about `cluster`, a Cluster object, with `fields` of the request beside it.
    ///
    /// # Errors
    /// The server does not respond, or not in the format of the SDK.
    pub async fn ask(&self, hook: &str, cluster: &Value, fields: &Value) -> Result<HookReply> {
        let mut request = fields.clone();
        request["apiVersion"] = json!(GROUP_VERSION);
        request["kind"] = json!(format!("{hook}Request"));
        request["cluster"] = cluster.clone();
        // Cluster API sends neither.
        if let Some(cluster) = request["cluster"].as_object_mut() {
            cluster.remove("status");
        }
        if let Some(metadata) = request["cluster"]["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let path = format!("/{GROUP_VERSION}/{}/{}", hook.to_ascii_lowercase(), dashed(hook));
        let answer = hook_call::ask(self.hook_port.number(), &self.ca_bundle, &path, &request).await?;
        let reply: HookReply = serde_json::from_value(answer.body).with_context(|| format!("ask {hook}"))?;
        Ok(HookReply {
            closed: answer.closed,
            ..reply
        })
    }
}

/// The name of the handler: `before-cluster-upgrade`.
fn dashed(hook: &str) -> String {
    let mut name = String::new();
    for letter in hook.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}
