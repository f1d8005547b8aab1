//! Made-up kind: a new kind needs only such a file, its line in the table, and `cases/made-up`.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::providers::{Config, Output, Problem, Provider, Reason, Source, Sources, ValuesError};
use sluice_crds::foreign::Cluster;

/// Greeting text of nodes.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(
    group = "made-up.test",
    version = "v1",
    kind = "GreetingConfig",
    plural = "greetingconfigs",
    namespaced,
    schema = "disabled"
)]
pub(crate) struct GreetingConfigSpec {
    text: String,
    /// Name of a Secret with the key `signature`.
    signed: Option<String>,
}

pub(crate) struct Greeting;

impl Provider for Greeting {
    type Resource = GreetingConfig;
    type Spec = GreetingConfigSpec;

    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        sources: &Sources,
    ) -> Result<Output, ValuesError> {
        let (spec, namespace) = (config.spec, config.namespace);
        let night = Source::namespaced("", "ConfigMap", namespace, "night");
        let is_night = sources.find(&night)?.is_some();
        let mut greeting = json!({"text": spec.text, "cluster": cluster.metadata.name, "night": is_night});
        if let Some(name) = &spec.signed {
            let secret = sources.find(&Source::secret(namespace, name))?;
            let signature = secret.and_then(|secret| secret["data"]["signature"].as_str());
            greeting["signature"] = signature.map(Value::from).ok_or_else(|| {
                let message = format!("Secret {namespace}/{name} has no key signature");
                Problem::new(Reason::CredentialsIncomplete, message)
            })?;
        }
        Ok(Output::new("greeting", json!({ "greeting": greeting })))
    }
}
