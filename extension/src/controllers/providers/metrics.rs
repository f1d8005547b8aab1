//! How many configurations there are, and what is wrong with how many: read off their conditions when metrics are asked for.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use kube::{core::DynamicObject, runtime::reflector::Store};
use prometheus_client::{
    collector::Collector, encoding::DescriptorEncoder, metrics::MetricType, registry::Registry,
};
use sluice_core::providers::by_reason;

use crate::lock::lock;

/// Counts configurations. Clones count the same ones.
#[derive(Clone, Default)]
pub struct Configurations(Arc<Mutex<Vec<OfKind>>>);

type OfKind = (String, Store<DynamicObject>);

impl Configurations {
    /// Makes the counts visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Counts the configurations of a kind too.
    pub(super) fn add(&self, kind: &str, store: Store<DynamicObject>) {
        lock(&self.0).push((kind.to_owned(), store));
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
        for (kind, store) in &*lock(&self.0) {
            for (reason, count) in by_reason(&store.state()) {
                metric
                    .encode_family(&[("kind", kind.as_str()), ("reason", reason)])?
                    .encode_gauge(&count)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kube::{
        core::ApiResource,
        runtime::{reflector::store::Writer, watcher::Event},
    };
    use prometheus_client::encoding::text::encode;
    use serde_json::{Value, json};

    use super::*;

    fn config(name: &str, condition: &Value) -> DynamicObject {
        let object = json!({"metadata": {"name": name}, "status": {"conditions": [condition]}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn configurations_are_counted_by_the_reason_of_their_condition() {
        let kind = ApiResource {
            group: "g".to_owned(),
            version: "v1".to_owned(),
            api_version: "g/v1".to_owned(),
            kind: "AntreaConfig".to_owned(),
            plural: "antreaconfigs".to_owned(),
        };
        let mut writer = Writer::new(kind);
        let ready = |reason| json!({"type": "Ready", "reason": reason});
        for object in [
            config("one", &ready("ValuesWritten")),
            config("two", &ready("CIDRMissing")),
            config("three", &ready("CIDRMissing")),
            config("four", &ready("whatever somebody wrote")),
            config("five", &json!({"type": "Other", "reason": "CIDRMissing"})),
        ] {
            writer.apply_watcher_event(&Event::Apply(object));
        }
        let (configurations, mut registry) = (Configurations::default(), Registry::default());
        configurations.register(&mut registry);
        configurations.add("AntreaConfig", writer.as_reader());

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
