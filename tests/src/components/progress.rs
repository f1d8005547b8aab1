//! What a person sees while components are built: a spinner on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::processes::notice;

/// Time between two plain lines of one component.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Progress of one component.
pub(super) struct Progress {
    label: String,
    started: Instant,
    last_line: Instant,
    packages: usize,
    bar: ProgressBar,
}

impl Progress {
    /// Begins component number `number` of `total`.
    pub(super) fn begin(name: &str, number: usize, total: usize) -> Self {
        let label = format!("[{number}/{total}] {name}");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(label.clone());
        bar.enable_steady_tick(Duration::from_millis(120));
        let now = Instant::now();
        let progress = Self {
            label,
            started: now,
            last_line: now,
            packages: 0,
            bar,
        };
        progress.line("building");
        progress
    }

    /// Takes a line that `go build -v` says: a package that is being compiled, or a module that is being
    /// downloaded.
    pub(super) fn said(&mut self, line: &str) {
        self.bar.set_message(line.to_owned());
        if !line.contains(' ') {
            self.packages += 1;
        }
        if self.last_line.elapsed() >= HEARTBEAT {
            self.last_line = Instant::now();
            self.line(&format!(
                "{:.0} s, {} packages, now {line}",
                self.started.elapsed().as_secs_f64(),
                self.packages
            ));
        }
    }

    /// Ends the component.
    pub(super) fn end(self, outcome: &str) {
        self.bar.finish_and_clear();
        let seconds = self.started.elapsed().as_secs_f64();
        notice(format_args!("{} {outcome} after {seconds:.0} s", self.label));
    }

    fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            notice(format_args!("{} {text}", self.label));
        }
    }
}
