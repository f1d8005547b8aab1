//! The Sluice runtime extension.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, error::ErrorKind};
use sluice::{cli::Args, run, telemetry::Log};

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(problem) = args.leader.check() {
        Args::command().error(ErrorKind::ValueValidation, problem).exit();
    }
    let log = Log::start(args.logging_format, args.verbosity);
    match run::main(args, &log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line, whatever the log level: the first thing that an operator of a crash loop reads.
            log.line(format_args!("sluice: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
