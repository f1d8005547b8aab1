//! The Sluice runtime extension.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use sluice::{
    app,
    cli::{self, Cli, Command},
    telemetry::log::Log,
};

/// Returns memory of past lists and request bursts to the system, see docs/decisions/0017.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let args = match Cli::try_parse() {
        Ok(Cli {
            command: Some(Command::Serve(args)),
        }) => *args,
        Ok(Cli {
            command: Some(Command::Query(verb)),
        }) => return sluice_cli::run(*verb, &mut Cli::command()),
        Ok(Cli { command: None }) => return help(),
        // Requested help or version.
        Err(answer) if !answer.use_stderr() => answer.exit(),
        Err(error) => return misused(&cli::usage_error(&error)),
    };
    if let Err(problem) = args.check() {
        return misused(&problem);
    }
    let log = Log::start(args.logging_format, args.verbosity);
    match app::main(args, &log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line at any log level: the first thing that an operator of a crash loop reads.
            log.line(format_args!("sluice: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a usage error as one line, which a crash loop shows, and returns its exit code.
fn misused(problem: &str) -> ExitCode {
    eprintln!("sluice: {problem}");
    ExitCode::from(2)
}

/// Prints the help of the binary.
fn help() -> ExitCode {
    match Cli::command().print_help() {
        // A reader that closed the output needs no error.
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}
