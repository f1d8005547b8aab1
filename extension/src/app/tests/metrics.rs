//! The reference of metrics, and the alerts, name what there is.

use std::{collections::BTreeMap, path::Path};

use prometheus_client::encoding::text::encode;

use super::*;

/// A metric as it is registered.
struct Registered {
    /// Its name, without the suffixes of counters and histograms.
    name: String,
    help: String,
    /// Its type; one without any series yet shows none.
    type_: Option<String>,
}

impl Registered {
    /// Whether this is the name of its series.
    fn is_named(&self, series: &str) -> bool {
        let Self { name, type_, .. } = self;
        let is_counter = series.strip_suffix("_total") == Some(name.as_str());
        match type_.as_deref() {
            Some("counter") => is_counter,
            Some(_) => series == name,
            None => is_counter || series == name,
        }
    }
}

/// What `before` is followed by in a text, up to the next quotation mark.
fn quoted<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split('"').next()
}

fn registered() -> Vec<Registered> {
    let (log, index) = (
        Log::to(std::io::sink()),
        Index::new("tkg-system".into(), Duration::from_mins(10), Arc::default()),
    );
    let mut registry = Registry::default();
    let _metrics = Metrics::registered(&log, &index, &mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let of = |kind: &str| -> BTreeMap<String, String> {
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix(kind)?.split_once(' '));
        lines
            .map(|(name, said)| (name.to_owned(), said.to_owned()))
            .collect()
    };
    let (types, mut helps) = (of("# TYPE "), of("# HELP "));
    // The text leaves out those that have labels and no series yet.
    let all = format!("{registry:?}");
    for descriptor in all.split("Descriptor {").skip(1) {
        let (name, help) = (quoted(descriptor, "name: \""), quoted(descriptor, "help: \""));
        let (name, help) = name.zip(help).unwrap();
        if !helps.keys().any(|known| known.starts_with(name)) {
            helps.insert(name.to_owned(), help.to_owned());
        }
    }
    let metric = |(name, help): (String, String)| Registered {
        help: help.trim_end_matches('.').to_owned(),
        type_: types.get(&name).cloned(),
        name,
    };
    helps.into_iter().map(metric).collect()
}

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The rows of the reference: type and meaning by name.
fn documented() -> BTreeMap<String, (String, String)> {
    let page = read("docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let name = cells[0].strip_prefix('`')?.strip_suffix('`')?;
        Some((name.to_owned(), (cells[1].to_owned(), cells[3].to_owned())))
    });
    rows.collect()
}

#[test]
fn the_reference_is_what_the_registry_has() {
    let (mut documented, registered) = (documented(), registered());
    for metric in &registered {
        let series = documented.keys().find(|series| metric.is_named(series)).cloned();
        let series = series.unwrap_or_else(|| panic!("no row of {}", metric.name));
        let (type_, meaning) = documented.remove(&series).unwrap();
        assert_eq!(meaning, metric.help, "{series}");
        assert!(metric.type_.as_ref().is_none_or(|is| *is == type_), "{series}");
        assert_eq!(series.ends_with("_total"), type_ == "counter", "{series}");
    }
    assert!(documented.is_empty(), "no such metrics: {documented:?}");
    assert!(registered.len() > 15, "{}", registered.len());
}

/// Metrics of a text that are not registered; `_bucket`, `_count` and `_sum` are series of a histogram.
fn unknown(text: &str) -> Vec<String> {
    let registered = registered();
    let names = text
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| word.starts_with("sluice_"));
    names
        .filter(|name| {
            let suffixes = ["_bucket", "_count", "_sum"];
            let family = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
            let name = family.unwrap_or(name);
            !registered.iter().any(|metric| metric.is_named(name))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn alerts_ask_for_metrics_that_there_are() {
    let rules = read("manifests/alerts/rules.yaml");
    assert_eq!(unknown(&rules), Vec::<String>::new());
    assert!(rules.contains("sluice_gate_held_seconds"));
}

/// Each panel asks for something, and all for what there is.
#[test]
fn the_dashboard_shows_metrics_that_there_are() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("manifests/alerts/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            assert!(expression.contains("sluice_"), "{expression}");
            assert_eq!(unknown(expression), Vec::<String>::new(), "{expression}");
        }
    }
    assert!(panels.len() > 10, "{}", panels.len());
}
