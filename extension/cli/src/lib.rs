//! Verbs of the binary: `status`, `watch`, `plan`, `override`, and `completions` of shells for all verbs.
//!
//! `status` and `watch` are clients of the gRPC service alone. `plan` and `override` use the management cluster with the rights of the user,
//! and decide nothing themselves: `sluice-core` does.

pub mod value;

mod arguments;
mod client_error;
mod connection;
mod documents;
mod json;
mod lines;
mod management;
mod overrides;
mod plan;
mod reader;
mod status;
mod terminal;
mod watch;

use std::{io, process::ExitCode};

pub use self::arguments::{
    CreateOverrideArgs, GateArg, ListOverridesArgs, ManagementArgs, Output, OutputFormat, OverrideVerb,
    PlanArgs, RevokeOverrideArgs, ServerArgs, StatusArgs, Verb, WatchArgs,
};
use self::{connection::Trouble, terminal::Terminal};

/// The upgrade was cancelled, or the Cluster deleted.
const NOT_COMPLETED: u8 = 3;

/// `--timeout` passed before the end.
const TIMED_OUT: u8 = 4;

/// Runs a verb of `command`, which is the whole command line of the binary.
#[must_use]
pub fn run(verb: Verb, command: &mut clap::Command) -> ExitCode {
    let outcome = match verb {
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, command, "sluice", &mut script);
            io::Write::write_all(&mut io::stdout(), &script)
                .map(|()| ExitCode::SUCCESS)
                .map_err(Trouble::from)
        }
        Verb::Status(asked) => block_on(status::status(&asked, &Terminal::of_process())),
        Verb::Plan(asked) => block_on(plan::plan(&asked, &Terminal::of_process())),
        Verb::Override(verb) => block_on(overrides::run(&verb, &Terminal::of_process())),
        Verb::Watch(asked) => block_on(watch::watch(&asked, &Terminal::of_process())),
    };
    outcome.unwrap_or_else(|trouble| {
        // A reader that closed the output needs no error.
        if !trouble.is_closed_output() {
            eprintln!("sluice: {trouble}");
        }
        trouble.code()
    })
}

fn block_on(verb: impl Future<Output = Result<ExitCode, Trouble>>) -> Result<ExitCode, Trouble> {
    let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(verb)
}
