//! The soak's command line.

use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Parser;
use futures::{StreamExt as _, stream};

use super::figures::Part;
use super::gates;
use super::plan::Plan;
use super::report::{self, Report};
use super::run::{self, Outcome, Stage};
use super::undisturbed::{self, Weighed};
use crate::extension::Scope;
use crate::objects::{Class, Release, Values};
use crate::pace::{LEAST, Pace, Quantiles};
use crate::runtime::block_on;
use crate::scenario::{Hooks, Scene, VERSIONS, World};
use crate::stack::complaints::Complaints;
use crate::stack::kubelet::Delay;

/// Upgrades that one stack serves. What deleted Clusters leave behind in etcd goes with it.
const PER_STACK: u64 = 40;

/// Upgrades that run side by side unless the command line says otherwise.
const JOBS: usize = 4;

/// Makes random upgrades with random disturbances on the real stack.
#[derive(Debug, Parser)]
#[command(name = "soak", about)]
struct Arguments {
    /// How many upgrades of each seed.
    #[arg(long, default_value_t = 10)]
    runs: u64,
    /// Seed of their plans, once or more; by default another one each time.
    #[arg(long)]
    seed: Vec<u64>,
    /// Number of the first one. With `--runs 1` it makes one run of a soak again.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many run side by side; by default 4, with `--gates` 2.
    #[arg(long)]
    jobs: Option<usize>,
    /// Upgrades without packages that an UpgradeGate holds, each with one disturbance of its Helm chart.
    #[arg(long)]
    gates: bool,
    /// Only prints the plans.
    #[arg(long)]
    plans: bool,
}

/// The main function of the soak.
#[must_use]
pub fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.seed.is_empty() {
        arguments.seed.push(by_the_clock());
    }
    for seed in &arguments.seed {
        say(&format!("seed {seed}"));
    }
    if arguments.plans {
        arguments.print_plans();
        return ExitCode::SUCCESS;
    }
    let passed = if arguments.gates {
        block_on(gates::soak(&arguments.of_gates(), arguments.jobs()))
    } else {
        block_on(soak(&arguments)).map(|report| report.passed())
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("the stack failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn numbers(&self) -> Range<u64> {
        self.first..self.first.saturating_add(self.runs)
    }

    fn jobs(&self) -> usize {
        let default = if self.gates { gates::JOBS } else { JOBS };
        self.jobs.unwrap_or(default).max(1)
    }

    fn print_plans(&self) {
        let print =
            |seed: u64, index: u64, plan: &dyn fmt::Display| say(&format!("run {seed} {index:<4} {plan}"));
        if self.gates {
            for plan in self.of_gates() {
                print(plan.seed, plan.index, &plan);
            }
        } else {
            for plan in self.all() {
                print(plan.seed, plan.index, &plan);
            }
        }
    }

    fn of_gates(&self) -> Vec<gates::Plan> {
        gates::plans(&self.seed, &self.numbers())
    }

    fn all(&self) -> impl Iterator<Item = Plan> {
        let numbers = self.numbers();
        let of = move |seed: &u64| {
            let seed = *seed;
            numbers.clone().map(move |index| Plan::of(seed, index))
        };
        self.seed.iter().flat_map(of)
    }
}

/// Seconds: short enough to be typed again.
fn by_the_clock() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |since| since.as_secs())
}

async fn soak(arguments: &Arguments) -> Result<Report> {
    let began = Instant::now();
    let seed = arguments.seed.first().copied().unwrap_or_default();
    let mut plans = arguments.all().peekable();
    let mut outcomes = Vec::new();
    let mut stacks = Complaints::default();
    while plans.peek().is_some() {
        let part: Vec<Plan> = plans
            .by_ref()
            .take(usize::try_from(PER_STACK).unwrap_or(usize::MAX))
            .collect();
        let (made, complaints) = on_one_stack(part, arguments.jobs()).await?;
        outcomes.extend(made);
        stacks.add(complaints);
        // After each stack, so that a soak that is broken off leaves something.
        report::write(&Report::of(seed, &outcomes, &stacks), &outcomes)?;
    }
    let report = Report::of(seed, &outcomes, &stacks);
    let path = report::write(&report, &outcomes)?;
    tell(&report, &outcomes, began.elapsed().as_secs_f64());
    say(&path.display().to_string());
    Ok(report)
}

/// Starts a stack, makes the runs, and removes it whatever came of them.
async fn on_one_stack(plans: Vec<Plan>, jobs: usize) -> Result<(Vec<Outcome>, Complaints)> {
    let world = World::start("soak", &Hooks::AskedAbout(Scope::Everywhere)).await?;
    let stage = Stage::open(&world).await?;
    let mut outcomes: Vec<Outcome> = stream::iter(plans)
        .map(|plan| run::perform(&stage, plan))
        .buffer_unordered(jobs)
        .inspect(tell_run)
        .collect()
        .await;
    undisturbed::weigh(&mut outcomes);
    let complaints = Complaints::of(world.stack().core().directory())?;
    for complaint in complaints.lines() {
        say(&complaint);
    }
    if !complaints.is_empty() || !outcomes.iter().all(Outcome::is_good) {
        let kept = world.stack().core().directory().keep_logs("soak");
        say(&format!("logs are kept in {}", kept.display()));
    }
    world.stop().await?;
    Ok((outcomes, complaints))
}

impl Stage {
    async fn open(world: &Arc<World>) -> Result<Self> {
        let scene = Scene::open(world, "soak", &Class::default()).await?;
        let releases = VERSIONS
            .iter()
            .zip(["1.0.0", "2.0.0", "3.0.0"])
            .map(|(kubernetes, version)| {
                let release = scene.full_release(kubernetes, version, Delay::NONE, Delay::NONE)?;
                Ok(release.values("metrics-server", Values::Secret(super::values(1))))
            })
            .collect::<Result<Vec<Release>>>()?;
        for release in &releases {
            scene.publish(release).await?;
        }
        Ok(Self {
            scene,
            releases: Arc::new(releases),
            shared: Arc::default(),
        })
    }
}

fn tell_run(outcome: &Outcome) {
    let Outcome {
        plan,
        verdict,
        stuck,
        lag,
        upgrade,
        total,
        ..
    } = outcome;
    let word = match (stuck, verdict.early.is_empty()) {
        (_, false) => "EARLY",
        (Some(_), true) => "STUCK",
        (None, true) => "ok",
    };
    let lag = lag.map_or_else(|| "-".to_owned(), |lag| format!("{:.2} s", lag.since_proof));
    say(&format!(
        "{word:<5} run {} {:<4} {:>5.1} s of {:>5.1} s, lag {lag:>7}; {plan}",
        plan.seed,
        plan.index,
        upgrade.as_secs_f64(),
        total.as_secs_f64(),
    ));
    for violation in &verdict.early {
        say(&format!("      too early: {violation}"));
    }
    for violation in &verdict.overtaken {
        say(&format!("      proof taken away after the answer: {violation}"));
    }
    if let Some(stuck) = stuck {
        say(&format!("      {}", stuck.replace('\n', "\n      ")));
    }
}

fn tell(report: &Report, outcomes: &[Outcome], seconds: f64) {
    let Report {
        seed,
        runs,
        early_releases,
        overtaken,
        stuck,
        unexpected_process_ends,
        kapp_controller_ends,
        panics,
        leaks,
        release_lag: lag,
        absent,
        ..
    } = report;
    let count = u32::try_from((*runs).max(1)).unwrap_or(u32::MAX);
    let good = report::lags(outcomes, |lag| lag.since_all_was_good);
    say(&format!(
        "\nseed {seed}: {runs} runs in {seconds:.0} s ({:.1} s each), {early_releases} early releases, {stuck} stuck",
        seconds / f64::from(count)
    ));
    say(&format!(
        "{overtaken} proofs taken away after the answer, {unexpected_process_ends} unexpected process ends, {kapp_controller_ends} ends of kapp-controllers, {panics} panics, {leaks} secrets in logs"
    ));
    let absent: usize = absent.values().sum();
    say(&format!(
        "{absent} disturbances did not happen: their objects were not there"
    ));
    let quantiles = |what: &str, of: &Quantiles| {
        say(&format!(
            "{what}: p50 {:.2} s, p95 {:.2} s, max {:.2} s",
            of.p50, of.p95, of.max
        ));
    };
    quantiles("write after the last proof", lag);
    quantiles("write after the last proof and disturbance", &good);
    quantiles(
        "write to workers after the last proof",
        &report.workers_release_lag,
    );
    tell_pace(report, outcomes);
}

fn tell_pace(report: &Report, outcomes: &[Outcome]) {
    let Report {
        releases,
        undisturbed_releases,
        undisturbed_release_lag: lag,
        pace,
        ..
    } = report;
    let said = match pace {
        Pace::Kept => "kept".to_owned(),
        Pace::Missed => "MISSED".to_owned(),
        Pace::TooFew => format!("not judged, because there are fewer than {LEAST}"),
    };
    say(&format!(
        "{undisturbed_releases} of {releases} releases were undisturbed: p50 {:.2} s, p95 {:.2} s, max {:.2} s; the pace (p95 {} s) is {said}",
        lag.p50,
        lag.p95,
        lag.max,
        undisturbed::GOALS.p95
    ));
    let longest = report::longest_disturbed(outcomes);
    if !longest.is_empty() {
        say("disturbed releases that took longest since the last proof and all disturbances:");
    }
    for (outcome, weighed) in longest {
        if let Some(line) = disturbed(outcome, weighed) {
            say(&line);
        }
    }
}

/// Possible causes of delay of a disturbed release: a late call of Cluster API, a lease, or a hold.
fn disturbed(outcome: &Outcome, weighed: &Weighed) -> Option<String> {
    let Weighed { released, lag, cause } = weighed;
    let cause = cause.as_ref()?;
    let part = match released.part {
        Part::ControlPlane => "control plane",
        Part::Workers => "workers",
    };
    let (kind, (seed, index)) = (cause.kind.name(), cause.run);
    let ended = if cause.is_over {
        let since = cause.ended.duration_since(released.proven).as_secs_f64();
        let order = if since < 0.0 { "before" } else { "after" };
        format!("ended {:.1} s {order} the last proof", since.abs())
    } else {
        "was under way at the write".to_owned()
    };
    let asked = cause.first_call_after.map_or_else(
        || "did not ask".to_owned(),
        |after| format!("asked after {after:.1} s"),
    );
    let held = cause.reason.as_ref().map_or_else(String::new, |reason| {
        format!(", was held {} times, last for {reason}", cause.holds)
    });
    Some(format!(
        "      {:>5.2} s ({lag:.2} s since the last proof) {part} of run {} {}: {kind} of run {seed} {index} {ended}; Cluster API {asked}{held}",
        cause.since_all_was_good, outcome.plan.seed, outcome.plan.index,
    ))
}

pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The reader is gone: nothing to do about it.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
