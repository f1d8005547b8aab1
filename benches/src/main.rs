//! `sluice-bench`: load on the hooks of any runtime extension.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sluice_benches::{compare, echo, load};

/// Measures runtime extensions of Cluster API.
#[derive(Debug, Parser)]
#[command(name = "sluice-bench", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Load(Box<load::Arguments>),
    Echo(echo::Arguments),
    Draw(compare::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Load(arguments) => loaded(&arguments),
        Command::Echo(arguments) => echo::serve(&arguments),
        Command::Draw(arguments) => compare::draw(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the figures are what was asked for")]
fn loaded(arguments: &load::Arguments) -> anyhow::Result<()> {
    use anyhow::Context as _;

    let report = load::run(arguments)?;
    println!("{report}");
    if let Some(path) = &arguments.json {
        let json = serde_json::to_vec_pretty(&report)?;
        std::fs::write(path, json).with_context(|| format!("write --json {}", path.display()))?;
    }
    if let Some(path) = &arguments.svg {
        let title = format!("Latency of hooks at {}", arguments.url);
        let svg = load::plot::distribution(&title, &[("all calls", &report.latency)])?;
        std::fs::write(path, svg).with_context(|| format!("write --svg {}", path.display()))?;
    }
    Ok(())
}
