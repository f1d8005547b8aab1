//! Verbs of the binary that query a status service: `status`, `watch`, and `completions` of shells for all verbs.

mod arguments;
mod connection;
mod json;
mod lines;
mod status;
mod terminal;
mod watch;

use std::{io, process::ExitCode};

use clap::CommandFactory as _;

pub use self::arguments::{Cli, Verb};
use self::{connection::Trouble, terminal::Terminal};

/// The upgrade was cancelled, or the Cluster deleted.
const NOT_COMPLETED: u8 = 3;

/// `--timeout` passed before the end.
const TIMED_OUT: u8 = 4;

/// Runs a verb.
#[must_use]
pub fn main(verb: Verb) -> ExitCode {
    let outcome = match verb {
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "sluice", &mut script);
            io::Write::write_all(&mut io::stdout(), &script)
                .map(|()| ExitCode::SUCCESS)
                .map_err(Trouble::from)
        }
        Verb::Status(asked) => run(status::status(&asked, &Terminal::of_process())),
        Verb::Watch(asked) => run(watch::watch(&asked, &Terminal::of_process())),
    };
    outcome.unwrap_or_else(|trouble| {
        // A reader that closed the output needs no error.
        if !trouble.is_closed_output() {
            eprintln!("sluice: {trouble}");
        }
        ExitCode::FAILURE
    })
}

fn run(verb: impl Future<Output = Result<ExitCode, Trouble>>) -> Result<ExitCode, Trouble> {
    let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(verb)
}
