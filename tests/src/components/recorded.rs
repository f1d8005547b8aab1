//! Times of the last recorded first run, from which the time left is estimated.

use std::sync::LazyLock;

use serde::Deserialize;

/// Seconds of a component that is not in the record.
const UNKNOWN: f64 = 60.0;

/// `docs/performance/cold.json`, which `make cold-demo` writes.
const RECORD: &str = include_str!("../../../docs/performance/cold.json");

#[derive(Deserialize)]
struct Record {
    cores: u32,
    components: Vec<Component>,
}

#[derive(Deserialize)]
struct Component {
    name: String,
    seconds: Option<f64>,
}

/// Cores of the machine that the times were recorded on.
pub(super) fn cores() -> f64 {
    record().cores.into()
}

/// Seconds that the component took.
pub(super) fn seconds(name: &str) -> f64 {
    let component = record()
        .components
        .iter()
        .find(|component| component.name == name);
    component
        .and_then(|component| component.seconds)
        .unwrap_or(UNKNOWN)
}

fn record() -> &'static Record {
    static READ: LazyLock<Record> = LazyLock::new(|| {
        serde_json::from_str(RECORD).unwrap_or(Record {
            cores: 2,
            components: Vec::new(),
        })
    });
    &READ
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
            .filter(|component| component.seconds.is_some())
            .map(|component| component.name)
            .collect();
        let mut built: Vec<String> = super::super::catalogue::of_the_demo(1)
            .iter()
            .map(|component| component.binary().to_owned())
            .collect();
        recorded.sort();
        built.sort();
        assert_eq!(recorded, built);
    }
}
