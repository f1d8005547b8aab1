//! Lines of the demo: coloured, with a spinner, on a terminal; plain elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// A heading.
    Heading,
    /// Something waits.
    Waiting,
    /// Something is done.
    Good,
    /// Something is wrong.
    Bad,
    /// Anything else.
    Plain,
}

impl Tone {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Heading => Some("1"),
            Self::Waiting => Some("33"),
            Self::Good => Some("32"),
            Self::Bad => Some("1;31"),
            Self::Plain => None,
        }
    }
}

/// Where the story is printed.
pub(super) struct Terminal {
    spinner: ProgressBar,
    colour: bool,
}

impl Terminal {
    pub(super) fn new() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let target = if is_terminal {
            ProgressDrawTarget::stdout()
        } else {
            ProgressDrawTarget::hidden()
        };
        let spinner = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {wide_msg}") {
            spinner.set_style(style);
        }
        if is_terminal {
            spinner.enable_steady_tick(Duration::from_millis(120));
        }
        Self {
            spinner,
            colour: is_terminal && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    /// Tells a line.
    pub(super) fn say(&self, tone: Tone, line: impl AsRef<str>) {
        let line = line.as_ref();
        let text = line.trim_start_matches('\n');
        let above = &line[..line.len() - text.len()];
        let painted = match tone.code() {
            Some(code) if self.colour => format!("{above}\u{1b}[{code}m{text}\u{1b}[0m"),
            _ => line.to_owned(),
        };
        self.spinner.suspend(|| {
            let mut out = std::io::stdout().lock();
            // The reader is gone: nothing to do about it.
            drop(writeln!(out, "{painted}").and_then(|()| out.flush()));
        });
    }

    /// Shows the current wait; only on a terminal.
    pub(super) fn waiting(&self, what: impl Into<String>) {
        self.spinner.set_message(what.into());
    }

    /// Takes the spinner away.
    pub(super) fn rest(&self) {
        self.spinner.finish_and_clear();
    }
}
