//! Reports objects that cannot be decoded, in the log and as a metric.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{LazyLock, Mutex},
};

use prometheus_client::{
    collector::Collector, encoding::DescriptorEncoder, metrics::MetricType, registry::Registry,
};
use sluice_core::{cluster::ClusterRef, decode::Undecodable};
use tracing::{debug, info, warn};

use crate::{cache::watch::Presence, lock::lock};

/// Number of objects that the metric names: a tenant may create any number.
const NAMED: usize = 100;

/// Object by kind, namespace and name.
type Named = (String, ClusterRef);

/// All undecodable objects of the process, each with the number of stores that hold it.
static ALL: LazyLock<Mutex<BTreeMap<Named, usize>>> = LazyLock::new(Mutex::default);

/// Undecodable objects of one store. Dropping it withdraws them.
#[derive(Debug)]
pub(crate) struct Reported {
    /// Whether the server is untrusted: it may send any number of objects under any name. The hold messages of its Clusters name the
    /// relevant ones.
    untrusted: bool,
    kinds: BTreeMap<ClusterRef, String>,
}

impl Reported {
    /// Creates an empty set.
    pub(crate) fn new(untrusted: bool) -> Self {
        Self {
            untrusted,
            kinds: BTreeMap::new(),
        }
    }

    /// Reports an undecodable object, or one that was corrected or deleted.
    pub(crate) fn saw(&mut self, object: &Undecodable, presence: Presence) {
        let (kind, reference) = (&object.kind, object.reference());
        let (namespace, name) = (reference.namespace(), reference.name());
        if self.untrusted {
            debug!(%kind, namespace, name, ?presence, why = %object.why, "Failed to decode object of a workload cluster");
            return;
        }
        self.take_back(&reference);
        match presence {
            Presence::There => {
                warn!(%kind, namespace, name, why = %object.why, "Failed to decode object, holding dependent Clusters");
                *lock(&ALL).entry((kind.clone(), reference.clone())).or_default() += 1;
                self.kinds.insert(reference, kind.clone());
            }
            Presence::Gone => {
                info!(%kind, namespace, name, "Undecodable object was corrected or deleted");
            }
        }
    }

    fn take_back(&mut self, reference: &ClusterRef) {
        let Some(kind) = self.kinds.remove(reference) else {
            return;
        };
        let (named, mut all) = ((kind, reference.clone()), lock(&ALL));
        match all.get_mut(&named) {
            Some(stores) if *stores > 1 => *stores -= 1,
            _ => drop(all.remove(&named)),
        }
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        while let Some(reference) = self.kinds.keys().next().cloned() {
            self.take_back(&reference);
        }
    }
}

/// Collector of undecodable objects, evaluated at each scrape.
#[derive(Debug)]
struct Objects;

/// Registers the collector.
pub(crate) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Objects));
}

impl Collector for Objects {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = lock(&ALL).clone();
        let mut counts = BTreeMap::<&str, usize>::new();
        for (kind, _) in all.keys() {
            *counts.entry(kind).or_default() += 1;
        }
        let help = "Objects that cannot be decoded, by kind";
        let mut metric =
            encoder.encode_descriptor("sluice_undecodable_objects", help, None, MetricType::Gauge)?;
        for (kind, count) in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            metric.encode_family(&[("kind", kind)])?.encode_gauge(&count)?;
        }
        let help = "1 for each object that cannot be decoded, a hundred at most";
        let mut metric =
            encoder.encode_descriptor("sluice_undecodable_object_info", help, None, MetricType::Gauge)?;
        for (kind, object) in all.keys().take(NAMED) {
            let labels = [
                ("kind", kind.as_str()),
                ("namespace", object.namespace()),
                ("name", object.name()),
            ];
            metric.encode_family(&labels)?.encode_gauge(&1i64)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn object(name: &str) -> Undecodable {
        Undecodable {
            kind: "Odd".to_owned(),
            metadata: ObjectMeta {
                namespace: Some("team-a".to_owned()),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            class: None,
            why: "field spec: it is nested deeper than 127 levels".to_owned(),
        }
    }

    fn shown() -> Vec<String> {
        let (mut text, mut registry) = (String::new(), Registry::default());
        register(&mut registry);
        encode(&mut text, &registry).unwrap();
        let ours = text.lines().filter(|line| line.contains("\"Odd\""));
        ours.map(str::to_owned).collect()
    }

    #[test]
    fn objects_are_shown_until_they_are_gone_or_their_store_is() {
        let (mut one, mut other, mut untrusted) =
            (Reported::new(false), Reported::new(false), Reported::new(true));
        untrusted.saw(&object("of a workload"), Presence::There);
        one.saw(&object("a"), Presence::There);
        one.saw(&object("a"), Presence::There);
        one.saw(&object("b"), Presence::There);
        other.saw(&object("b"), Presence::There);
        one.saw(&object("a"), Presence::Gone);
        let expected = [
            r#"sluice_undecodable_objects{kind="Odd"} 1"#,
            r#"sluice_undecodable_object_info{kind="Odd",namespace="team-a",name="b"} 1"#,
        ];
        assert_eq!(shown(), expected);
        drop(one);
        assert_eq!(shown(), expected, "the other store still has it");
        drop(other);
        assert_eq!(shown(), Vec::<String>::new());
    }
}
