//! Command line of the binary: `serve`, and the verbs of `sluice-cli`.

use clap::{
    CommandFactory as _, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use sluice_cli::Verb;

use crate::flags::Args;

/// Holds a Cluster API rollout until the packages of the new Kubernetes version are proven ready.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, about, long_about = None)]
pub struct Cli {
    /// Without a command, the binary prints its help.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Commands of the binary.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the runtime extension
    Serve(Box<Args>),
    /// Commands that query a running extension
    #[command(flatten)]
    Query(Box<Verb>),
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

/// Returns a command with the commands before it, as the usage in the error spells them.
fn below_chosen(error: &clap::Error, command: &str) -> String {
    let usage = error.get(ContextKind::Usage);
    let usage = usage.map(ToString::to_string).unwrap_or_default();
    let words = usage.split_whitespace().skip_while(|word| *word != "sluice");
    let chosen = words
        .skip(1)
        .take_while(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()));
    chosen.chain([command]).collect::<Vec<_>>().join(" ")
}

/// The command for a misspelled one, and `serve` for flags of the extension without a command. A command that does not have such a flag
/// was chosen on purpose.
fn meant(error: &clap::Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::SuggestedSubcommand)) {
        (_, Some(ContextValue::Strings(commands))) => {
            commands.first().map(|command| below_chosen(error, command))
        }
        (_, Some(ContextValue::String(command))) => Some(below_chosen(error, command)),
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
