//! Runs scenarios: `--list`, a filter by name, one plain line at the end.

use std::io::{IsTerminal as _, Write as _};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Parser;
use futures::StreamExt as _;
use futures::stream;

use super::scene::Scene;
use super::world::{Hooks, World};
use crate::extension::Scope;
use crate::objects::Class;
use crate::stack::complaints::Complaints;

type Running = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One scenario.
#[derive(Clone)]
pub struct Scenario {
    /// Its name, also of its namespace.
    pub name: &'static str,
    /// What it proves, in one line.
    pub proves: &'static str,
    /// Its ClusterClass.
    pub class: Class,
    /// Whether Cluster API asks Sluice about its namespace.
    pub asks_sluice: bool,
    /// Whether it wants the machine for itself.
    pub alone: bool,
    /// Whether it takes too long to be run with every change.
    pub long: bool,
    /// Runs it.
    pub run: fn(Scene) -> Running,
}

impl Scenario {
    /// A short scenario that runs beside others and has Sluice asked.
    #[must_use]
    pub fn new(name: &'static str, proves: &'static str, run: fn(Scene) -> Running) -> Self {
        Self {
            name,
            proves,
            class: Class::default(),
            asks_sluice: true,
            alone: false,
            long: false,
            run,
        }
    }

    /// With another ClusterClass.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Wants the machine and everything that scenarios share for itself.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Takes too long to be run with every change.
    #[must_use]
    pub fn long(mut self) -> Self {
        self.long = true;
        self
    }

    /// Cluster API does not ask Sluice.
    #[must_use]
    pub fn without_sluice(mut self) -> Self {
        self.asks_sluice = false;
        self
    }
}

/// Real components, one scenario each: `cargo test -p sluice-tests --test scenarios -- [NAME]...`
#[derive(Debug, Parser)]
#[command(name = "scenarios", about)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct Arguments {
    /// Runs only scenarios whose name contains one of these.
    names: Vec<String>,
    /// Lists the scenarios and what each proves.
    #[arg(long)]
    list: bool,
    /// Leaves out those that take long.
    #[arg(long, conflicts_with = "long_half")]
    short: bool,
    /// Of those that take long the even ones (0) or the odd ones (1), and no others.
    #[arg(long, value_name = "HALF", value_parser = clap::value_parser!(u8).range(0..=1))]
    long_half: Option<u8>,
    /// How many scenarios run side by side.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    // What cargo and test runners pass to every test program.
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    quiet: bool,
    #[arg(long, hide = true)]
    exact: bool,
    #[arg(long, hide = true)]
    test_threads: Option<usize>,
}

/// The main function of the test program.
#[must_use]
pub fn main(scenarios: &[Scenario]) -> ExitCode {
    let arguments = Arguments::parse();
    let mut chosen: Vec<Scenario> = scenarios
        .iter()
        .filter(|scenario| arguments.chooses(scenario.name) && !(arguments.short && scenario.long))
        .cloned()
        .collect();
    if let Some(wanted) = arguments.long_half {
        let others = leave_half(&mut chosen, wanted);
        say(&format!(
            "half {wanted} of the scenarios that take long: {}",
            names(&chosen)
        ));
        say(&format!("left to half {}: {}", 1 - wanted, names(&others)));
    }
    if arguments.list {
        for scenario in &chosen {
            say(&format!("{:<28} {}", scenario.name, scenario.proves));
        }
        return ExitCode::SUCCESS;
    }
    if chosen.is_empty() {
        say(&format!("no scenario is chosen by {:?}", arguments.names));
        return ExitCode::FAILURE;
    }
    log();
    match runtime().and_then(|runtime| runtime.block_on(run(chosen, arguments.jobs.max(1)))) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("the stack failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn chooses(&self, scenario: &str) -> bool {
        self.names.is_empty()
            || self.names.iter().any(|name| {
                if self.exact {
                    scenario == name
                } else {
                    scenario.contains(name.as_str())
                }
            })
    }
}

/// Leaves one half of the scenarios that take long, and returns the other one.
///
/// Those that run alone and those that run beside others are dealt out one by one, each in their order, so that both halves
/// take about as long.
fn leave_half(chosen: &mut Vec<Scenario>, wanted: u8) -> Vec<Scenario> {
    let mut seen = [0_u8; 2];
    let (mine, others) = std::mem::take(chosen)
        .into_iter()
        .filter(|scenario| scenario.long)
        .partition(|scenario| {
            let dealt = &mut seen[usize::from(scenario.alone)];
            *dealt ^= 1;
            // Those that run alone begin with the other half.
            (*dealt ^ 1) ^ u8::from(scenario.alone) == wanted
        });
    *chosen = mine;
    others
}

fn names(scenarios: &[Scenario]) -> String {
    let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
    names.join(", ")
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Runs the scenarios; returns how many failed.
async fn run(scenarios: Vec<Scenario>, jobs: usize) -> Result<usize> {
    let asked: Vec<String> = scenarios
        .iter()
        .filter(|scenario| scenario.asks_sluice)
        .map(|scenario| scenario.name.to_owned())
        .collect();
    say(&format!("{} scenarios, starting the stack", scenarios.len()));
    let began = Instant::now();
    let hooks = if asked.is_empty() {
        Hooks::Absent
    } else {
        Hooks::AskedAbout(Scope::Namespaces(asked))
    };
    let world = World::start("scenarios", &hooks).await?;
    say(&format!(
        "the stack is ready after {:.1} s",
        began.elapsed().as_secs_f64()
    ));

    let total = scenarios.len();
    let (alone, together): (Vec<Scenario>, Vec<Scenario>) =
        scenarios.into_iter().partition(|scenario| scenario.alone);
    let mut failed = stream::iter(together)
        .map(|scenario| perform(world.clone(), scenario))
        .buffer_unordered(jobs)
        .filter(|passed| std::future::ready(!passed))
        .count()
        .await;
    for scenario in alone {
        failed += usize::from(!perform(world.clone(), scenario).await);
    }

    let directory = world.stack().core().directory();
    let complaints = Complaints::of(directory)?;
    for complaint in complaints.lines() {
        say(&complaint);
    }
    failed += usize::from(failed == 0 && !complaints.is_empty());
    if failed > 0 {
        let kept = directory.keep_logs("scenarios");
        say(&format!("logs are kept in {}", kept.display()));
    }
    world.stop().await?;
    say(&format!(
        "{} passed, {failed} failed",
        total.saturating_sub(failed)
    ));
    Ok(failed)
}

/// Runs one scenario, then has the observer judge it; tells how it went. A panic is a failure like any other.
async fn perform(world: Arc<World>, scenario: Scenario) -> bool {
    let began = Instant::now();
    say(&format!("start {:<26} {}", scenario.name, scenario.proves));
    let outcome = match Scene::open(&world, scenario.name, &scenario.class).await {
        Ok(scene) => {
            let outcome = tokio::spawn((scenario.run)(scene.clone()))
                .await
                .unwrap_or_else(|panic| Err(anyhow!("{panic}")));
            finish(&scene, &scenario, outcome).await
        }
        Err(error) => Err(error.context("prepare the scenario")),
    };
    let after = format!("{:.1} s", began.elapsed().as_secs_f64());
    match &outcome {
        Ok(()) => say(&format!(
            "{} {:<26} {after:>8}",
            paint("ok   ", 32),
            scenario.name
        )),
        Err(error) => {
            say(&format!(
                "{} {:<26} {after:>8}",
                paint("FAIL ", 31),
                scenario.name
            ));
            say(&format!(
                "      {}",
                format!("{error:#}").replace('\n', "\n      ")
            ));
        }
    }
    outcome.is_ok()
}

async fn finish(scene: &Scene, scenario: &Scenario, outcome: Result<()>) -> Result<()> {
    let judged = if scenario.asks_sluice {
        scene.in_order().await
    } else {
        // Its clusters roll on their own; the scenario itself asks the observer.
        scene.world().observer().check()
    };
    let closed = scene.close().await;
    outcome.and(judged).and(closed)
}

fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,kube_client=off,kube_runtime=off"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second call in one process would be the only way to fail.
    drop(subscriber.try_init());
}

fn paint(text: &str, colour: u8) -> String {
    if std::io::stdout().is_terminal() {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The reader is gone: nothing to do about it.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Time that most waits of scenarios get; generous, for a machine that does other things too.
pub const PATIENCE: Duration = Duration::from_mins(4);

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(name: &'static str) -> Scenario {
        Scenario::new(name, "", |_| Box::pin(std::future::ready(Ok(()))))
    }

    #[test]
    fn every_long_scenario_is_in_one_half() {
        let all = [
            scenario("short"),
            scenario("a").long(),
            scenario("x").long().alone(),
            scenario("b").long(),
            scenario("alone").alone(),
            scenario("y").long().alone(),
            scenario("c").long(),
        ];
        let half = |wanted| {
            let mut chosen = all.to_vec();
            let others = leave_half(&mut chosen, wanted);
            (names(&chosen), names(&others))
        };
        assert_eq!(half(0), ("a, y, c".to_owned(), "x, b".to_owned()));
        assert_eq!(half(1), ("x, b".to_owned(), "a, y, c".to_owned()));
    }
}
