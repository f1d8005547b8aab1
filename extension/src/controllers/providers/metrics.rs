//! Counts of configurations by the reason of their condition, computed on each scrape.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use kube::core::DynamicObject;
use prometheus_client::{
    collector::Collector, encoding::DescriptorEncoder, metrics::MetricType, registry::Registry,
};
use sluice_core::reconcile::provider::Reasons;

use crate::{cache::watch::Presence, lock::lock};

/// Counts of configurations. Clones share the counts.
#[derive(Clone, Default)]
pub struct Configurations(Arc<Mutex<Reasons>>);

impl Configurations {
    /// Registers the counts.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Updates the counts with a configuration of a kind.
    pub(super) fn saw(&self, kind: &Arc<str>, config: &DynamicObject, presence: Presence) {
        lock(&self.0).saw(kind, config, presence == Presence::There);
    }
}

impl fmt::Debug for Configurations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configurations").finish_non_exhaustive()
    }
}

impl Collector for Configurations {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(
            "sluice_configurations",
            "Configurations by kind and by the reason of their Ready condition",
            None,
            MetricType::Gauge,
        )?;
        for ((kind, reason), count) in lock(&self.0).counts() {
            metric
                .encode_family(&[("kind", kind), ("reason", reason)])?
                .encode_gauge(&count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use serde_json::{Value, json};

    use super::*;

    fn config(name: &str, condition: &Value) -> DynamicObject {
        let object = json!({"metadata": {"name": name}, "status": {"conditions": [condition]}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn configurations_are_counted_by_the_reason_of_their_condition() {
        let (configurations, mut registry) = (Configurations::default(), Registry::default());
        configurations.register(&mut registry);
        let ready = |reason| json!({"type": "Ready", "reason": reason});
        let saw =
            |object: &DynamicObject, presence| configurations.saw(&"AntreaConfig".into(), object, presence);
        for object in [
            config("one", &ready("ValuesWritten")),
            config("two", &ready("CIDRMissing")),
            config("three", &ready("CIDRMissing")),
            config("four", &ready("whatever a user wrote")),
            config("five", &json!({"type": "Other", "reason": "CIDRMissing"})),
            config("six", &ready("CIDRMissing")),
        ] {
            saw(&object, Presence::There);
        }
        saw(&config("three", &ready("ValuesWritten")), Presence::There);
        saw(&config("one", &ready("ValuesWritten")), Presence::Gone);
        saw(&config("one", &ready("ValuesWritten")), Presence::Gone);

        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let counts: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            counts,
            [
                r#"sluice_configurations{kind="AntreaConfig",reason="CIDRMissing"} 2"#,
                r#"sluice_configurations{kind="AntreaConfig",reason="Other"} 1"#,
                r#"sluice_configurations{kind="AntreaConfig",reason="ValuesWritten"} 1"#,
            ]
        );
    }
}
