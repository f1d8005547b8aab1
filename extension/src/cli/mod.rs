//! Verbs of the binary that query a status service: `status`, `watch`, and `completions` of shells for all verbs.

mod arguments;
mod connection;
mod json;
mod lines;
mod status;
mod terminal;
mod watch;

use std::{io, process::ExitCode};

use clap::{
    CommandFactory as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

pub use self::arguments::{Cli, Command, Verb};
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

/// Returns a clap error as one line, followed by the command that was probably meant.
#[must_use]
pub fn usage_error(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let problem = lines.collect::<Vec<_>>().join(" ");
    let problem = problem.trim_start_matches("error: ");
    match meant(error) {
        Some(command) => format!("{problem}; did you mean `sluice {command}`?"),
        None => problem.to_owned(),
    }
}

/// The command for a misspelled one, and `serve` for flags of the extension without a command. A command that does not have such a flag
/// was chosen on purpose.
fn meant(error: &clap::Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::SuggestedSubcommand)) {
        (_, Some(ContextValue::Strings(commands))) => commands.first().cloned(),
        (_, Some(ContextValue::String(command))) => Some(command.clone()),
        (ErrorKind::UnknownArgument, _) => {
            let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
                return None;
            };
            let flag = argument.split('=').next()?;
            let command = Cli::command();
            let usage = error.get(ContextKind::Usage).map(ToString::to_string);
            let is_used = |chosen: &clap::Command| {
                let words = format!("sluice {}", chosen.get_name());
                usage.as_ref().is_some_and(|usage| usage.contains(&words))
            };
            if command.get_subcommands().any(is_used) {
                return None;
            }
            let serve = command.find_subcommand("serve")?;
            let is_flag = |known: &clap::Arg| {
                let long = known.get_long().is_some_and(|long| flag == format!("--{long}"));
                long || known.get_short().is_some_and(|short| flag == format!("-{short}"))
            };
            serve
                .get_arguments()
                .any(is_flag)
                .then(|| format!("serve {flag}"))
        }
        _ => None,
    }
}

fn run(verb: impl Future<Output = Result<ExitCode, Trouble>>) -> Result<ExitCode, Trouble> {
    let _installed_before = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(verb)
}
