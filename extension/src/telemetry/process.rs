//! Metrics of the process and of its build, with the names of the Prometheus client libraries.

use std::{fmt, fs, io};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        counter::ConstCounter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};

/// Clock ticks of a second in /proc, which Linux fixes for all architectures that Rust supports.
const TICKS: f64 = 100.0;

/// Registers the metrics of the process and of its build.
pub fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(Process));
    let build = Family::<BuildLabels, Gauge>::default();
    let labels = BuildLabels {
        version: env!("CARGO_PKG_VERSION"),
        revision: option_env!("SLUICE_REVISION").unwrap_or("unknown"),
    };
    build.get_or_create(&labels).set(1);
    registry.register(
        "sluice_build_info",
        "1, with the version and the commit of the build",
        build,
    );
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    revision: &'static str,
}

/// Reads /proc when metrics are scraped.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // A file that cannot be read leaves out its metrics: another kernel, or a sandbox without /proc.
        if let Ok(usage) = Usage::read() {
            usage.encode(&mut encoder)?;
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            let help = "Open file descriptors";
            gauge(&mut encoder, "process_open_fds", help, count(files.count()))?;
        }
        if let Some(limit) = fs::read_to_string("/proc/self/limits")
            .ok()
            .as_deref()
            .and_then(max_fds)
        {
            let help = "Limit of open file descriptors";
            gauge(&mut encoder, "process_max_fds", help, limit)?;
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    let encoder = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    gauge.encode(encoder)
}

#[expect(clippy::cast_precision_loss, reason = "file descriptors are below 2^52")]
fn count(count: usize) -> f64 {
    count as f64
}

/// Resource usage of the process, as the kernel reports it.
#[derive(Debug, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    start_time_seconds: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl Usage {
    fn read() -> io::Result<Self> {
        let read = |path| fs::read_to_string(path);
        let usage = Self::parse(
            &read("/proc/self/stat")?,
            &read("/proc/self/status")?,
            &read("/proc/stat")?,
        );
        usage.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// From `/proc/self/stat`, `/proc/self/status` and `/proc/stat`; see proc(5).
    fn parse(stat: &str, status: &str, system: &str) -> Option<Self> {
        // The name of the process may contain spaces and parentheses, and ends at the last one.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        // From field 3 on: utime is field 14, stime field 15, starttime field 22.
        let user = ticks(fields.nth(11)?)?;
        let kernel = ticks(fields.next()?)?;
        let started = ticks(fields.nth(6)?)?;
        Some(Self {
            cpu_seconds: user + kernel,
            start_time_seconds: number(system, "btime")? + started,
            virtual_bytes: number(status, "VmSize:")? * 1024.0,
            resident_bytes: number(status, "VmRSS:")? * 1024.0,
        })
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = ConstCounter::new(self.cpu_seconds);
        let help = "CPU time of user and kernel, in seconds";
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)?;
        for (name, help, value) in [
            (
                "process_start_time_seconds",
                "Start of the process, as Unix time in seconds",
                self.start_time_seconds,
            ),
            (
                "process_virtual_memory_bytes",
                "Size of the virtual memory, in bytes",
                self.virtual_bytes,
            ),
            (
                "process_resident_memory_bytes",
                "Size of the resident memory, in bytes",
                self.resident_bytes,
            ),
        ] {
            gauge(encoder, name, help, value)?;
        }
        Ok(())
    }
}

fn ticks(field: &str) -> Option<f64> {
    Some(field.parse::<f64>().ok()? / TICKS)
}

/// The number behind a word at the beginning of a line.
fn number(text: &str, word: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(word));
    lines.next()?.split_whitespace().next()?.parse().ok()
}

/// The soft limit; Go, too, shows an unlimited number as the largest one.
fn max_fds(limits: &str) -> Option<f64> {
    let mut lines = limits
        .lines()
        .filter_map(|line| line.strip_prefix("Max open files"));
    match lines.next()?.split_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        limit => limit.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn usage_is_read_from_the_files_of_the_kernel() {
        let stat = "17 (a (b) c) S 1 17 17 0 -1 4194560 2501 0 0 0 250 50 0 0 20 0 9 0 12345 1000 2000 18446744073709551615";
        let status = "Name:\ta\nVmPeak:\t   300 kB\nVmSize:\t   200 kB\nVmRSS:\t   100 kB\n";
        let system = "cpu  1 2 3\nbtime 1700000000\nprocesses 5\n";
        let expected = Usage {
            cpu_seconds: 3.0,
            start_time_seconds: 1_700_000_123.45,
            virtual_bytes: 204_800.0,
            resident_bytes: 102_400.0,
        };
        assert_eq!(Usage::parse(stat, status, system), Some(expected));
        assert_eq!(Usage::parse("17 (a) S 1", status, system), None);
        assert_eq!(Usage::parse(stat, "VmSize:\t x kB", system), None);
    }

    #[test]
    fn the_limit_of_files_may_be_missing() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(max_fds(limits), Some(1024.0));
        assert_eq!(
            max_fds("Max open files  unlimited unlimited files"),
            Some(f64::INFINITY)
        );
        assert_eq!(max_fds("Limit\n"), None);
    }

    #[test]
    fn this_process_is_shown() {
        let (mut text, mut registry) = (String::new(), Registry::default());
        register(&mut registry);
        encode(&mut text, &registry).unwrap();
        let value = |series: &str| -> f64 {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            value
                .unwrap_or_else(|| panic!("no {series} in {text}"))
                .parse()
                .unwrap()
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") > value("process_open_fds"));
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        let now = jiff::Timestamp::now().as_second();
        let age = f64::from(i32::try_from(now).unwrap()) - value("process_start_time_seconds");
        assert!((-5.0..86_400.0).contains(&age), "{age}");
        let build = format!(
            "sluice_build_info{{version=\"{}\",revision=",
            env!("CARGO_PKG_VERSION")
        );
        assert!(text.contains(&build), "{text}");
    }
}
