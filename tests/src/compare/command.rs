//! The command line of the comparison.

use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use futures::future::try_join;
use tokio::signal::unix::{SignalKind, signal};

use super::plan::{Done, Plan};
use super::plot;
use super::report::{self, Figures};
use super::side::Side;
use super::stand_in::{self, Unpause};
use crate::components::Binaries;
use crate::fleet::memory::Meminfo;
use crate::runtime::block_on;

/// Compares upgrades by Sluice with those of the pause flow, on real Cluster API and kapp-controllers.
#[derive(Debug, Parser)]
#[command(name = "compare", about)]
struct Arguments {
    /// Upgrades of each flow with each delay, at most; there are no more than five, and three with the longest one.
    #[arg(long, default_value_t = 5)]
    times: usize,
    /// Draws the picture and writes the tables of docs/performance.md from the figures that are there.
    #[arg(long)]
    plot: bool,
    /// Where the figures are.
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Where performance.md is.
    #[arg(long, value_name = "DIRECTORY", default_value = "docs")]
    docs: PathBuf,
    /// Source of the available memory.
    #[arg(long, default_value = "/proc/meminfo", hide = true)]
    meminfo: PathBuf,
}

/// The main function of the comparison.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = block_on(perform(&arguments));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// One line of progress.
pub(super) fn say(text: impl Display) {
    // A closed standard error is no reason to fail.
    let _closed = writeln!(std::io::stderr(), "compare: {text}");
}

async fn perform(arguments: &Arguments) -> Result<()> {
    let path = arguments.figures.clone().map_or_else(report::path, Ok)?;
    if arguments.plot {
        return plot::draw(&Figures::read(&path)?, &arguments.docs);
    }
    ensure!(arguments.times > 0, "--times 0 makes no upgrade");
    stand_in::program()?;
    Binaries::ready().await?;
    let began = Instant::now();
    let (plan, done) = (Plan::of(arguments.times), Done::default());
    let memory = Meminfo::of(&arguments.meminfo).watched();
    let ended = tokio::select! {
        ended = memory.beside(carried_out(&plan, &done)) => ended,
        signal = interrupted() => Err(anyhow!("{}", signal?)),
    };
    let upgrades = done.all();
    ended.with_context(|| {
        let (count, of) = (upgrades.len(), plan.upgrades());
        format!(
            "broke off after {count} of {of} upgrades, {} is as it was",
            path.display()
        )
    })?;
    let figures = Figures::of(upgrades);
    figures.write(&path)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", report::table(&figures))?;
    writeln!(out, "{}", report::table_of_phases(&figures))?;
    writeln!(
        out,
        "{} after {:.0} s",
        path.display(),
        began.elapsed().as_secs_f64()
    )?;
    Ok(())
}

async fn carried_out(plan: &Plan, done: &Done) -> Result<()> {
    say("starting two management clusters");
    let (sluice, pause_flow) = Box::pin(try_join(Side::sluice(), Side::pause_flow(Unpause::Written))).await?;
    let sides = [pause_flow, sluice];
    plan.carry_out(&sides, done).await?;
    for side in &sides {
        side.check()?;
    }
    try_join(sides[0].stop(), sides[1].stop()).await?;
    Ok(())
}

/// Waits for a signal that asks this process to end, and names it.
async fn interrupted() -> Result<&'static str> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(tokio::select! {
        _ = interrupt.recv() => "interrupted",
        _ = terminate.recv() => "asked to end",
    })
}
