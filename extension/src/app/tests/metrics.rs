//! The process shows each metric, and the reference, alerts, dashboard and docs name no other.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use prometheus_client::encoding::text::encode;

use super::{
    loopback::{Loopback, until},
    *,
};
use crate::{cache::rollbacks::Rollbacks, controllers::bootstrap::world::World};

/// Series that each replica shows whether it leads or not.
const SHOWN: [&str; 47] = [
    "certwatcher_read_certificate_total",
    "controller_runtime_active_workers",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_reconcile_panics_total",
    "controller_runtime_reconcile_time_seconds_count",
    "controller_runtime_reconcile_timeouts_total",
    "controller_runtime_reconcile_total",
    "controller_runtime_webhook_latency_seconds_count",
    "controller_runtime_webhook_requests_in_flight",
    "controller_runtime_webhook_requests_total",
    "leader_election_master_status",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "rest_client_requests_total",
    "sluice_api_server_rollbacks_total",
    "sluice_build_info",
    "sluice_certificate_expiration_timestamp_seconds",
    "sluice_deadline_exceeded_clusters",
    "sluice_expression_errors_total",
    "sluice_gate_held_clusters",
    "sluice_gate_longest_hold_seconds",
    "sluice_gate_release_lag_seconds_count",
    "sluice_held_clusters",
    "sluice_log_dropped_lines_total",
    "sluice_release_confirmation_duration_seconds_count",
    "sluice_release_confirmations_total",
    "sluice_server_accepted_connections_total",
    "sluice_server_closed_connections_total",
    "sluice_server_open_connections",
    "sluice_server_tls_handshake_failures_total",
    "sluice_slow_reconciles_canceled_total",
    "sluice_ungated_versions_total",
    "sluice_unselected_clusters",
    "sluice_upgrade_overrides_total",
    "sluice_watch_panics_total",
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds_count",
    "workqueue_retries_total",
    "workqueue_unfinished_work_seconds",
    "workqueue_work_duration_seconds_count",
];

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

/// The sum of the series with this name and label.
fn sum(text: &str, name: &str, label: &str) -> f64 {
    let series = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (named, labels) = series.split_once('{')?;
        (named == name && labels.contains(label)).then(|| value.parse::<f64>().unwrap())
    });
    series.sum()
}

#[tokio::test]
async fn a_leader_and_a_standby_show_each_metric() {
    let world = World::new();
    let servers = Loopback::of(&world).await;
    let stop = CancellationToken::new();
    let leads = |shown: &Registry| sum(&text(shown), "leader_election_master_status", "sluice-leader");
    let (leading, leader) = servers.run_shown(&["--leader-elect"], &stop);
    until("the first replica leads", || leads(&leader) > 0.5).await;
    let (waiting, standby) = servers.run_shown(&["--leader-elect"], &stop);
    let reconciles = |shown: &Registry| {
        ["cluster", "provider", "release"].map(|controller| {
            let label = format!("controller=\"{controller}\"");
            sum(&text(shown), "controller_runtime_reconcile_total", &label)
        })
    };
    until("the leader reconciles", || reconciles(&leader)[0] > 0.5).await;
    let holds = |shown: &Registry| text(shown).contains("sluice_gate_longest_hold_seconds{");
    until("both count holds", || holds(&leader) && holds(&standby)).await;

    for shown in [&leader, &standby] {
        let text = text(shown);
        for name in SHOWN {
            let is_it = |line: &str| {
                let series = line.strip_prefix(name);
                series.is_some_and(|rest| rest.starts_with([' ', '{']))
            };
            assert!(text.lines().any(is_it), "{name}");
        }
        // It has a series for each object only.
        assert!(text.contains("# TYPE sluice_undecodable_object_info gauge"));
        let hosts: BTreeSet<_> = text
            .lines()
            .filter(|line| line.starts_with("rest_client_requests_total"))
            .filter_map(|line| quoted(line, "host=\""))
            .collect();
        assert_eq!(hosts.len(), 1, "only the management API server: {hosts:?}");
        assert!(sum(&text, "rest_client_requests_total", "code=\"200\"") > 0.5);
    }
    assert!(leads(&standby) < 0.5, "one replica leads");
    assert!(reconciles(&standby).iter().sum::<f64>() < 0.5);
    let limit = |shown: &Registry| {
        sum(
            &text(shown),
            "controller_runtime_max_concurrent_reconciles",
            "release",
        )
    };
    assert!(limit(&leader) > 0.5 && limit(&standby) < 0.5);
    leading.abort();
    waiting.abort();
    for shown in [leader, standby] {
        assert_text_format(shown).await;
    }
}

/// Scrapes a registry without asking for OpenMetrics, and checks each line against the metric before it.
async fn assert_text_format(registry: Registry) {
    use tower::ServiceExt as _;
    let request = http::Request::get("/metrics").header("accept", "text/plain");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let router = health::router(Health::default(), Arc::new(registry));
    let answer = router.oneshot(request).await.unwrap();
    let content_type = &answer.headers()["content-type"];
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX)
        .await
        .unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();

    let (mut name, mut kind) = ("", "");
    let mut types = BTreeSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            name = help.split_once(' ').unwrap().0;
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (family, of) = typed.split_once(' ').unwrap();
            assert_eq!(family, name, "{line}");
            types.insert(of);
            kind = of;
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let suffix = series.split('{').next().unwrap().strip_prefix(name);
            let suffixes: &[&str] = match kind {
                "histogram" => &["_bucket", "_count", "_sum"],
                _ => &[""],
            };
            assert!(suffix.is_some_and(|suffix| suffixes.contains(&suffix)), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert_eq!(types, BTreeSet::from(["counter", "gauge", "histogram"]));
}

/// Registered metric.
struct Registered {
    /// Its name, without the suffixes of counters and histograms.
    name: String,
    help: String,
    /// Type, unless the metric has no series yet.
    type_: Option<String>,
}

impl Registered {
    /// Returns whether `series` belongs to this metric.
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

/// Returns the text between `before` and the next quotation mark.
fn quoted<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split('"').next()
}

fn registered() -> Vec<Registered> {
    let (log, index) = (
        Log::to(std::io::sink()),
        Index::new("tkg-system".into(), Duration::from_mins(10), Arc::default()),
    );
    let mut registry = Registry::default();
    let _metrics = Metrics::registered(&log, &index, &Rollbacks::default(), &mut registry);
    let text = text(&registry);
    let of = |kind: &str| -> BTreeMap<String, String> {
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix(kind)?.split_once(' '));
        lines
            .map(|(name, said)| (name.to_owned(), said.to_owned()))
            .collect()
    };
    let (types, mut helps) = (of("# TYPE "), of("# HELP "));
    // The text format omits labelled metrics without series.
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

/// Returns the rows of the reference: type and meaning by name.
fn documented() -> BTreeMap<String, (String, String)> {
    let page = read("docs/reference/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, type_, _labels, meaning] = cells[..] else {
            return None;
        };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        Some((name.to_owned(), (type_.to_owned(), meaning.to_owned())))
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

/// Beginnings of the names of metrics that this process serves.
const PREFIXES: [&str; 7] = [
    "certwatcher_",
    "controller_runtime_",
    "leader_election_",
    "process_",
    "rest_client_",
    "sluice_",
    "workqueue_",
];

/// The metrics that a text names; a prefix by itself, as in `process_*`, names none.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| {
            let mut prefixes = PREFIXES.iter();
            prefixes.any(|prefix| word.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()))
        })
}

/// Metrics of a text that are not registered; `_bucket`, `_count` and `_sum` are series of a histogram.
fn unknown(text: &str) -> Vec<String> {
    let registered = registered();
    named(text)
        .filter(|name| {
            let suffixes = ["_bucket", "_count", "_sum"];
            let family = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
            let name = family.unwrap_or(name);
            !registered.iter().any(|metric| metric.is_named(name))
        })
        .map(str::to_owned)
        .collect()
}

/// Files below a directory of the repository.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

/// The changelog is not checked: its history has names that are no more.
#[test]
fn docs_and_manifests_name_metrics_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for directory in ["docs", "manifests"] {
        files(&root.join(directory), &mut found);
    }
    let (mut wrong, mut citing) = (Vec::new(), 0_usize);
    for path in found {
        // Anything else that is no text cites no metric.
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        citing += usize::from(named(&text).next().is_some());
        let path = path.strip_prefix(&root).unwrap().display().to_string();
        wrong.extend(unknown(&text).into_iter().map(|name| format!("{path}: {name}")));
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(citing > 10, "{citing} files cite metrics");
}

/// Whether an expression asks for metrics of Sluice alone: Cluster API serves metrics of the same names, even of a controller `cluster`.
fn is_of_sluice(expression: &str) -> bool {
    let all = expression.split(['(', ')', ',', '/']);
    let shared = |part: &&str| named(part).any(|name| !name.starts_with("sluice_"));
    let joins = ["sluice_build_info", "last_over_time(sluice_build_info["];
    let joined = joins.map(|join| {
        expression
            .matches(&format!("and on (job, instance) {join}"))
            .count()
    });
    all.filter(shared).count() == joined.iter().sum::<usize>()
}

#[test]
fn alerts_ask_for_metrics_of_sluice() {
    let rules = read("manifests/alerts/rules.yaml");
    let expressions = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    for expression in expressions {
        assert!(named(expression).next().is_some(), "{expression}");
        assert!(is_of_sluice(expression), "{expression}");
    }
    assert!(rules.contains("sluice_gate_longest_hold_seconds"));
}

/// Each panel asks for something.
#[test]
fn the_dashboard_shows_metrics_of_sluice() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("manifests/alerts/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            assert!(named(expression).next().is_some(), "{expression}");
            assert!(is_of_sluice(expression), "{expression}");
        }
    }
    assert!(panels.len() > 10, "{}", panels.len());
}
