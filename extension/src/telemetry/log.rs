//! The log of the process.
//!
//! A separate thread writes the lines, so that no task waits for standard error. When the log collector of a node hangs, the pipe fills
//! and every writer would block, the hook server included. Lines beyond the buffer are dropped and counted.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt,
    io::Write,
    panic::PanicHookInfo,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::counter::ConstCounter,
    registry::Registry,
};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, fmt as lines, fmt::MakeWriter};

use crate::flags::LogFormat;

/// Maximum number of buffered lines: minutes at a usual rate, and 32 MiB at most.
const WAITING_LINES: usize = 2 * 1024;

/// Maximum length of a line in bytes; longer lines are truncated. API servers choose the length of their messages.
const LONGEST_LINE: usize = 16 * 1024;

/// Log of the process. Dropping it flushes buffered lines for about a second at most.
#[derive(Debug)]
pub struct Log {
    writer: NonBlocking,
    _flush: WorkerGuard,
}

impl Log {
    pub(crate) fn to(destination: impl Write + Send + 'static) -> Self {
        let (writer, flush) = NonBlockingBuilder::default()
            .buffered_lines_limit(WAITING_LINES)
            .lossy(true)
            .thread_name("log")
            .finish(destination);
        Self {
            writer,
            _flush: flush,
        }
    }

    /// Starts logging to standard error. `RUST_LOG` takes precedence over `verbosity` (0 errors … 5 everything).
    #[must_use]
    pub fn start(format: LogFormat, verbosity: u8) -> Self {
        let log = Self::to(std::io::stderr());
        let level = match verbosity {
            0 => "error",
            1 => "warn",
            2 | 3 => "info",
            4 => "debug",
            _ => "trace",
        };
        // kube logs each failed attempt as an error; the caller logs the failure and its effect.
        // h2 warns about frames that any peer may send without limit.
        let own = ["sluice", "sluice_hooks", "sluice_core", "sluice_status"];
        let own = own.map(|crate_| format!(",{crate_}={level}")).concat();
        let own = format!("warn,kube_client=off,h2=error{own}");
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(own));
        let builder = lines()
            .with_env_filter(filter)
            .with_writer(Lines(log.writer.clone()))
            .with_target(false);
        match format {
            LogFormat::Json => builder
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .init(),
            LogFormat::Text => builder.init(),
        }
        // The standard hook blocks on standard error, and so does every later panic.
        let writer = log.writer.clone();
        std::panic::set_hook(Box::new(move |panic| panicked(writer.clone(), panic)));
        log
    }

    /// Writes one line unchanged, whatever the format and the verbosity.
    pub fn line(&self, line: fmt::Arguments<'_>) {
        write_whole(self.writer.clone(), &format!("{line}\n"));
    }

    /// Registers the counter of dropped lines.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Dropped(self.writer.error_counter())));
    }
}

/// Writes `text`. A full buffer drops it, and no other error exists.
fn write_whole(writer: NonBlocking, text: &str) {
    let _ = Lines(writer).write_all(text.as_bytes());
}

/// Writer that forwards each write as one line.
#[derive(Clone)]
struct Lines(NonBlocking);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if line.len() <= LONGEST_LINE {
            self.0.write_all(line)?;
        } else {
            let beginning = String::from_utf8_lossy(&line[..LONGEST_LINE]);
            self.0.write_all(format!("{beginning}…\n").as_bytes())?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Logs a panic as the standard hook does.
fn panicked(writer: NonBlocking, panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let mut text = format!("\nthread '{}' {panic}\n", thread.name().unwrap_or("<unnamed>"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        text.push_str("stack backtrace:\n");
        text.push_str(&backtrace.to_string());
    }
    write_whole(writer, &text);
}

#[derive(Debug)]
struct Dropped(ErrorCounter);

impl Collector for Dropped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let lines = ConstCounter::new(u64::try_from(self.0.dropped_lines()).unwrap_or(u64::MAX));
        let encoder = encoder.encode_descriptor(
            "sluice_log_dropped_lines",
            "Log lines that were dropped because standard error was not read",
            None,
            lines.metric_type(),
        )?;
        lines.encode(encoder)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use prometheus_client::encoding::text::encode;

    use super::*;

    /// Destination that blocks until it is released.
    struct Stuck {
        written: Arc<Mutex<Vec<u8>>>,
        let_go: mpsc::Receiver<()>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // Also continues when the other end is dropped.
            let _ = self.let_go.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn stuck() -> (Log, Arc<Mutex<Vec<u8>>>, mpsc::Sender<()>) {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let (hold, let_go) = mpsc::channel();
        let log = Log::to(Stuck {
            written: Arc::clone(&written),
            let_go,
        });
        (log, written, hold)
    }

    fn shown(log: &Log) -> String {
        let mut registry = Registry::default();
        log.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn an_unread_log_blocks_nothing_and_counts_dropped_lines() {
        let (log, _written, hold) = stuck();
        assert!(shown(&log).contains("sluice_log_dropped_lines_total 0\n"));

        let lines = 3 * WAITING_LINES;
        for number in 0..lines {
            log.line(format_args!("line {number}"));
        }

        let text = shown(&log);
        let dropped = text
            .lines()
            .find_map(|line| line.strip_prefix("sluice_log_dropped_lines_total "))
            .unwrap();
        let dropped: usize = dropped.parse().unwrap();
        // The writer has taken one line or none.
        assert!(
            (lines - WAITING_LINES - 1..=lines - WAITING_LINES).contains(&dropped),
            "{dropped}"
        );
        drop(hold);
    }

    #[test]
    fn long_lines_are_truncated() {
        let (log, written, hold) = stuck();
        log.line(format_args!("{}", "ä".repeat(LONGEST_LINE)));
        log.line(format_args!("short"));
        drop(hold);
        drop(log);
        let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = written.lines().collect();
        assert!(lines[0].len() < LONGEST_LINE + 10, "{}", lines[0].len());
        assert_eq!(lines[1..], ["short"]);
    }

    #[test]
    fn drop_flushes_buffered_lines() {
        let (log, written, hold) = stuck();
        log.line(format_args!("first"));
        log.line(format_args!("last"));
        drop(hold);
        drop(log);
        assert_eq!(String::from_utf8_lossy(&written.lock().unwrap()), "first\nlast\n");
    }

    #[test]
    fn drop_does_not_wait_forever() {
        let (log, written, hold) = stuck();
        log.line(format_args!("first"));
        drop(log);
        assert!(written.lock().unwrap().is_empty());
        drop(hold);
    }
}
