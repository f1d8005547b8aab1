//! The soak of gates from its first stack to its report.

use std::ops::Range;
use std::time::Instant;

use anyhow::Result;
use futures::{StreamExt as _, stream};

use super::plan::Plan;
use super::report::{self, Report};
use super::run::{self, Outcome};
use super::stage::Stage;
use crate::extension::Scope;
use crate::pace::Quantiles;
use crate::scenario::{Hooks, World};
use crate::soak::command::say;
use crate::stack::Options;
use crate::stack::complaints::Complaints;

/// How many runs are made side by side unless the command line says otherwise. CAAPH and three controllers of Flux run beside them.
pub(crate) const JOBS: usize = 2;

/// Upgrades that one stack serves.
const PER_STACK: usize = 20;

/// Name of stacks and of kept logs.
const NAME: &str = "soak-gates";

/// The plans of these runs of each seed.
pub(crate) fn plans(seeds: &[u64], numbers: &Range<u64>) -> Vec<Plan> {
    let of = |seed: &u64| {
        let seed = *seed;
        numbers.clone().map(move |index| Plan::of(seed, index))
    };
    seeds.iter().flat_map(of).collect()
}

/// Makes these runs; true if the soak has passed.
pub(crate) async fn soak(plans: &[Plan], jobs: usize) -> Result<bool> {
    let began = Instant::now();
    let seed = plans.first().map_or(0, |plan| plan.seed);
    let mut outcomes = Vec::new();
    let mut stacks = Complaints::default();
    for part in plans.chunks(PER_STACK) {
        let (made, complaints) = Box::pin(on_one_stack(part, jobs)).await?;
        outcomes.extend(made);
        stacks.add(complaints);
        // After each stack, so that a soak that is broken off leaves something.
        report::write(&Report::of(seed, &outcomes, &stacks), &outcomes)?;
    }
    let report = Report::of(seed, &outcomes, &stacks);
    let path = report::write(&report, &outcomes)?;
    tell(&report, began.elapsed().as_secs_f64());
    say(&path.display().to_string());
    Ok(report.passed())
}

/// Starts a stack, makes the runs, and removes it whatever came of them.
async fn on_one_stack(plans: &[Plan], jobs: usize) -> Result<(Vec<Outcome>, Complaints)> {
    let options = Options::new(NAME).without_packages();
    let world = World::start_with(options, &Hooks::AskedAbout(Scope::Everywhere)).await?;
    let stage = Stage::open(&world, plans).await?;
    let outcomes: Vec<Outcome> = stream::iter(plans.to_vec())
        .map(|plan| run::perform(&stage, plan))
        .buffer_unordered(jobs)
        .inspect(tell_run)
        .collect()
        .await;
    let complaints = Complaints::of(world.stack().core().directory())?;
    for complaint in complaints.lines() {
        say(&complaint);
    }
    if !complaints.is_empty() || !outcomes.iter().all(Outcome::is_good) {
        let kept = world.stack().core().directory().keep_logs(NAME);
        say(&format!("logs are kept in {}", kept.display()));
    }
    world.stop().await?;
    Ok((outcomes, complaints))
}

fn tell_run(outcome: &Outcome) {
    let Outcome {
        plan,
        early,
        stuck,
        lag,
        upgrade,
        total,
        ..
    } = outcome;
    let word = match (stuck, early.is_empty()) {
        (_, false) => "EARLY",
        (Some(_), true) => "STUCK",
        (None, true) => "ok",
    };
    let lag = lag.map_or_else(|| "-".to_owned(), |lag| format!("{lag:.2} s"));
    say(&format!(
        "{word:<5} run {} {:<4} {:>5.1} s of {:>5.1} s, lag {lag:>7}; {plan}",
        plan.seed,
        plan.index,
        upgrade.as_secs_f64(),
        total.as_secs_f64(),
    ));
    for violation in early {
        say(&format!("      too early: {violation}"));
    }
    if let Some(stuck) = stuck {
        say(&format!("      {}", stuck.replace('\n', "\n      ")));
    }
}

fn tell(report: &Report, seconds: f64) {
    let Report {
        seed,
        runs,
        early_releases,
        stuck,
        unexpected_process_ends,
        panics,
        leaks,
        disturbances,
        deliveries,
        release_lag,
    } = report;
    say(&format!(
        "\nseed {seed}: {runs} runs in {seconds:.0} s, {early_releases} early releases, {stuck} stuck"
    ));
    say(&format!(
        "{unexpected_process_ends} unexpected process ends, {panics} panics, {leaks} secrets in logs"
    ));
    for (what, count) in disturbances.iter().chain(deliveries) {
        say(&format!("{count:>4} {what}"));
    }
    let Quantiles { p50, p95, max } = release_lag;
    say(&format!(
        "write after the last proof and disturbance: p50 {p50:.2} s, p95 {p95:.2} s, max {max:.2} s"
    ));
}
