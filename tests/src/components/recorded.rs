//! Times of the last recorded first run, from which the time left is estimated.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// Cores of the machine that the times were recorded on.
pub(super) const CORES: f64 = 2.0;

/// Seconds of a component that is not in the record.
const UNKNOWN: f64 = 60.0;

/// `docs/performance/cold.json`, which `make cold-demo` writes.
const RECORD: &str = include_str!("../../../docs/performance/cold.json");

#[derive(Deserialize)]
struct Record {
    components: Vec<Component>,
}

#[derive(Deserialize)]
struct Component {
    name: String,
    seconds: Option<f64>,
}

/// Seconds that the component took.
pub(super) fn seconds(name: &str) -> f64 {
    static SECONDS: LazyLock<BTreeMap<String, f64>> = LazyLock::new(|| {
        let record = serde_json::from_str(RECORD).unwrap_or(Record {
            components: Vec::new(),
        });
        let components = record.components.into_iter();
        components
            .filter_map(|component| Some((component.name, component.seconds?)))
            .collect()
    });
    SECONDS.get(name).copied().unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_of_the_components_that_the_demo_builds() {
        let record: Record = serde_json::from_str(RECORD).unwrap();
        let mut recorded: Vec<String> = record
            .components
            .into_iter()
            .map(|component| component.name)
            .collect();
        let mut built: Vec<String> = super::super::catalogue::of_the_demo()
            .iter()
            .map(|component| component.binary().to_owned())
            .collect();
        recorded.sort();
        built.sort();
        assert_eq!(recorded, built);
    }
}
