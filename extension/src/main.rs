//! The Sluice runtime extension.

use std::process::ExitCode;

use clap::Parser;
use sluice::{
    app,
    cli::{self, Cli},
    telemetry::log::Log,
};

/// Returns memory of past lists and request bursts to the system, see docs/decisions/0017.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let Cli { verb, serve: args } = match Cli::try_parse() {
        Ok(cli) => cli,
        // Requested help or version.
        Err(answer) if !answer.use_stderr() => answer.exit(),
        Err(error) => return misused(&first_paragraph(&error.to_string())),
    };
    if let Some(verb) = verb {
        return cli::main(verb);
    }
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
    eprintln!("sluice: {}", problem.trim_start_matches("error: "));
    ExitCode::from(2)
}

/// Joins the lines of a clap error up to the usage text.
fn first_paragraph(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}
