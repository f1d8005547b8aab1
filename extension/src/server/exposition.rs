//! Exposition formats of `/metrics`, negotiated as in Prometheus client libraries: OpenMetrics for a scraper that asks for it, and the
//! Prometheus text format for all others.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
};

use http::{HeaderMap, header::ACCEPT};
use mime::Mime;
use prometheus_client::{encoding::text, registry::Registry};

/// Exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics of this version. Both supported versions have the same text here.
    OpenMetrics(&'static str),
    /// Prometheus text format 0.0.4.
    Text,
}

impl Format {
    /// Returns the supported format with the highest quality in the `Accept` headers, the first one of several. Wildcards and unsupported
    /// formats select the text format, because older scrapers send them.
    pub(super) fn negotiate(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter();
        let ranges = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        let mut preferred = (0.0, Self::Text);
        for (quality, format) in ranges.filter_map(Self::accepted) {
            if quality > preferred.0 {
                preferred = (quality, format);
            }
        }
        preferred.1
    }

    /// Returns the quality and the format of a media range; `None` if its format is not supported.
    fn accepted(range: &str) -> Option<(f32, Self)> {
        let range: Mime = range.trim().parse().ok()?;
        let parameter = |name: &'static str| range.get_param(name).map(|value| value.as_str());
        let format = match (range.essence_str(), parameter("version")) {
            ("application/openmetrics-text", Some("1.0.0")) => Self::OpenMetrics("1.0.0"),
            ("application/openmetrics-text", Some("0.0.1") | None) => Self::OpenMetrics("0.0.1"),
            ("text/plain", Some("0.0.4") | None) => Self::Text,
            _ => return None,
        };
        let quality = parameter("q").map_or(Ok(1.0), str::parse::<f32>);
        Some((quality.ok()?, format))
    }

    pub(super) fn content_type(self) -> String {
        match self {
            Self::OpenMetrics(version) => {
                format!("application/openmetrics-text; version={version}; charset=utf-8")
            }
            Self::Text => "text/plain; version=0.0.4; charset=utf-8".to_owned(),
        }
    }

    pub(super) fn encode(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut open_metrics = String::new();
        text::encode(&mut open_metrics, registry)?;
        match self {
            Self::OpenMetrics(_) => Ok(open_metrics),
            Self::Text => text_format(&open_metrics),
        }
    }
}

/// Converts OpenMetrics to the Prometheus text format, as the Python client does: `_total` is part of the name of a counter, types are
/// those of the text format, and units, exemplars and the end marker are left out.
fn text_format(open_metrics: &str) -> Result<String, fmt::Error> {
    let types = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types: HashMap<&str, &str> = types.collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let Some(metadata) = line.strip_prefix("# ") else {
            writeln!(text, "{}", without_exemplar(line))?;
            continue;
        };
        let mut words = metadata.splitn(3, ' ');
        let (Some(keyword @ ("HELP" | "TYPE")), Some(name), Some(said)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (suffix, metric_type) = match types.get(name).copied().unwrap_or("unknown") {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            "stateset" => ("", "gauge"),
            "unknown" => ("", "untyped"),
            other => ("", other),
        };
        let said = if keyword == "TYPE" { metric_type } else { said };
        writeln!(text, "# {keyword} {name}{suffix} {said}")?;
    }
    Ok(text)
}

/// Returns a sample up to its exemplar, which follows `#`. Quoted label values may contain that, too.
fn without_exemplar(sample: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    let exemplar = sample.find(|letter: char| {
        if escaped {
            escaped = false;
            return false;
        }
        match letter {
            '\\' => escaped = quoted,
            '"' => quoted = !quoted,
            _ => {}
        }
        letter == '#' && !quoted
    });
    exemplar.map_or(sample, |start| sample[..start].trim_end())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use prometheus_client::{
        metrics::{
            counter::Counter,
            exemplar::{CounterWithExemplar, HistogramWithExemplars},
            family::Family,
            gauge::ConstGauge,
            info::Info,
        },
        registry::Unit,
    };
    use rstest::rstest;

    use super::*;

    const NEWER: Format = Format::OpenMetrics("1.0.0");
    const OLDER: Format = Format::OpenMetrics("0.0.1");

    #[rstest]
    #[case::no_header(&[], Format::Text)]
    #[case::curl(&["*/*"], Format::Text)]
    #[case::browser(&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], Format::Text)]
    #[case::agent(&["text/plain"], Format::Text)]
    #[case::older_prometheus(&["text/plain;version=0.0.4;q=1,*/*;q=0.1"], Format::Text)]
    #[case::protobuf(
        &["application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3"],
        Format::Text
    )]
    #[case::prometheus_2_5(
        &["application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"],
        OLDER
    )]
    #[case::prometheus_2_50(
        &["application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"],
        NEWER
    )]
    #[case::prometheus_3(
        &["application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"],
        NEWER
    )]
    #[case::no_version(&["application/openmetrics-text"], OLDER)]
    #[case::later_version(&["application/openmetrics-text;version=2.0.0"], Format::Text)]
    #[case::upper_case(&["Application/OpenMetrics-Text; Version=1.0.0"], NEWER)]
    #[case::quoted(&["application/openmetrics-text; version=\"1.0.0\"; charset=utf-8"], NEWER)]
    #[case::refused(&["application/openmetrics-text;version=1.0.0;q=0"], Format::Text)]
    #[case::text_preferred(
        &["application/openmetrics-text;version=1.0.0;q=0.1,text/plain;version=0.0.4;q=0.9"],
        Format::Text
    )]
    #[case::first_of_equals(&["text/plain,application/openmetrics-text;version=1.0.0"], Format::Text)]
    #[case::two_headers(&["text/plain;q=0.5", "application/openmetrics-text;version=1.0.0"], NEWER)]
    #[case::invalid_quality(&["application/openmetrics-text;version=1.0.0;q=high"], Format::Text)]
    #[case::invalid(&["openmetrics", ",;,", "\u{e4}"], Format::Text)]
    fn the_format_is_the_preferred_one_that_is_supported(#[case] accept: &[&str], #[case] expected: Format) {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        assert_eq!(Format::negotiate(&headers), expected);
    }

    #[rstest]
    #[case::counter(
        "# HELP calls Calls.\n# TYPE calls counter\ncalls_total{a=\"b\"} 1\n",
        "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total{a=\"b\"} 1\n"
    )]
    #[case::gauge(
        "# HELP age Age of a call.\n# TYPE age gauge\nage 1.5\n",
        "# HELP age Age of a call.\n# TYPE age gauge\nage 1.5\n"
    )]
    #[case::unit(
        "# TYPE age_seconds gauge\n# UNIT age_seconds seconds\nage_seconds 1\n",
        "# TYPE age_seconds gauge\nage_seconds 1\n"
    )]
    #[case::info(
        "# HELP build Build.\n# TYPE build info\nbuild_info{v=\"1\"} 1\n",
        "# HELP build_info Build.\n# TYPE build_info gauge\nbuild_info{v=\"1\"} 1\n"
    )]
    #[case::stateset(
        "# TYPE phase stateset\nphase{phase=\"a\"} 1\n",
        "# TYPE phase gauge\nphase{phase=\"a\"} 1\n"
    )]
    #[case::unknown("# TYPE x unknown\nx 1\n", "# TYPE x untyped\nx 1\n")]
    #[case::exemplar("x_total 1 # {a=\"b\"} 1.0 2.0\n", "x_total 1\n")]
    #[case::exemplar_after_labels(
        "x_bucket{le=\"1.0\",a=\"}\"} 1 # {a=\"\\\" # {\"} 1.0\n",
        "x_bucket{le=\"1.0\",a=\"}\"} 1\n"
    )]
    #[case::no_exemplar(
        "x{a=\"1 # {b=\\\"c\\\"} 1\",d=\"\\\\\"} 1\n",
        "x{a=\"1 # {b=\\\"c\\\"} 1\",d=\"\\\\\"} 1\n"
    )]
    #[case::end("# EOF\n", "")]
    fn each_kind_of_line_is_converted(#[case] open_metrics: &str, #[case] expected: &str) {
        assert_eq!(text_format(open_metrics).as_deref(), Ok(expected));
    }

    type Labels = Vec<(&'static str, &'static str)>;

    #[test]
    fn a_registry_is_encoded_in_the_text_format() {
        let mut registry = Registry::default();
        let family = Family::<Labels, Counter>::default();
        family.get_or_create(&vec![("a", "\"#\\\n")]).inc();
        registry.register("calls", "Calls", family);
        let counter: CounterWithExemplar<Labels> = CounterWithExemplar::default();
        counter.inc_by(1, Some(vec![("trace", "1")]), None);
        registry.register_with_unit("waited", "Wait", Unit::Seconds, counter);
        let histogram = HistogramWithExemplars::<Labels>::new([1.0].into_iter());
        histogram.observe(0.5, Some(vec![("trace", "2")]), None);
        registry.register("age", "Age", histogram);
        registry.register("build", "Build", Info::new(vec![("version", "1")]));
        registry.register("limit", "Limit", ConstGauge::new(2_i64));

        let text = Format::Text.encode(&registry).unwrap();

        let expected = r##"# HELP calls_total Calls.
# TYPE calls_total counter
calls_total{a="\"#\\\n"} 1
# HELP waited_seconds_total Wait.
# TYPE waited_seconds_total counter
waited_seconds_total 1
# HELP age Age.
# TYPE age histogram
age_sum 0.5
age_count 1
age_bucket{le="1.0"} 1
age_bucket{le="+Inf"} 1
# HELP build_info Build.
# TYPE build_info gauge
build_info{version="1"} 1
# HELP limit Limit.
# TYPE limit gauge
limit 2
"##;
        assert_eq!(text, expected);
    }
}
