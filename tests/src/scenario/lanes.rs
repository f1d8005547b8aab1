//! Scenarios side by side: many on one stack that they share, and beside it lanes, each with a stack of its own for one after the other.

use std::iter;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use futures::future::{join, join_all};
use futures::{StreamExt as _, stream};

use super::runner::{Place, Scenario, paint, say};
use super::scene::Scene;
use super::turns::Turn;
use super::world::{Hooks, World};
use crate::components::ClusterApiRelease;
use crate::extension::Scope;
use crate::stack::Options;
use crate::stack::complaints::Complaints;

/// Approximate duration of the start and end of a stack.
const STACK: Duration = Duration::from_secs(20);

/// Scenarios that have not begun yet.
pub(super) struct Waiting {
    scenarios: Mutex<Vec<(Scenario, Option<Turn>)>>,
    began: Instant,
    budget: Duration,
}

impl Waiting {
    /// Those without a turn are run in any case.
    pub(super) fn new(scenarios: Vec<(Scenario, Option<Turn>)>, budget: Duration) -> Self {
        Self {
            scenarios: Mutex::new(scenarios),
            began: Instant::now(),
            budget,
        }
    }

    /// The first one of a place that may begin now, on a stack with this Cluster API or, without one, on a stack that is started for it.
    fn next(&self, place: Place, stack: Option<ClusterApiRelease>) -> Option<Scenario> {
        let starts = if stack.is_none() { STACK } else { Duration::ZERO };
        let elapsed = self.began.elapsed() + starts;
        let mut waiting = self.scenarios.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |scenario: &Scenario| stack.is_none_or(|release| scenario.cluster_api == release);
        // Those that are due do not wait for the end of a stack on which they cannot run.
        let is_due = |turn: &Option<Turn>| turn.as_ref().is_some_and(|turn| turn.due);
        let leaves = waiting
            .iter()
            .any(|(scenario, turn)| scenario.place == place && !fits(scenario) && is_due(turn));
        let next = waiting.iter().position(|(scenario, turn)| {
            let may_begin = match turn {
                Some(turn) if leaves => turn.due,
                Some(turn) => turn.may_begin(elapsed, self.budget),
                None => true,
            };
            scenario.place == place && fits(scenario) && may_begin
        })?;
        Some(waiting.remove(next).0)
    }

    /// Cluster API asks Sluice about these namespaces.
    fn asked(&self, place: Place, first: &Scenario) -> Hooks {
        let waiting = self.scenarios.lock().unwrap_or_else(PoisonError::into_inner);
        let here = waiting.iter().map(|(scenario, _)| scenario);
        let here =
            here.filter(|scenario| scenario.place == place && scenario.cluster_api == first.cluster_api);
        let asked: Vec<String> = iter::once(first)
            .chain(here)
            .filter(|scenario| scenario.asks_sluice)
            .map(|scenario| scenario.name.to_owned())
            .collect();
        if asked.is_empty() {
            Hooks::Absent
        } else {
            Hooks::AskedAbout(Scope::Namespaces(asked))
        }
    }

    /// The names of those that did not begin.
    pub(super) fn left(&self) -> Vec<&'static str> {
        let waiting = self.scenarios.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().map(|(scenario, _)| scenario.name).collect()
    }
}

/// What came of scenarios.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Each with its time.
    pub(super) passed: Vec<(&'static str, Duration)>,
    pub(super) failed: usize,
}

impl Ended {
    fn add(&mut self, more: Self) {
        self.passed.extend(more.passed);
        self.failed += more.failed;
    }
}

/// Runs all that may begin: `jobs` at once on the stack that they share, beside so many `lanes`, and then those that are alone.
pub(super) async fn run(waiting: &Waiting, jobs: usize, lanes: usize) -> Ended {
    let lanes = join_all((0..lanes).map(|_| on_stacks(waiting, Place::OwnStack, 1)));
    let (shared, lanes) = join(on_stacks(waiting, Place::Shared, jobs), lanes).await;
    let mut ended = Ended::default();
    for part in iter::once(shared).chain(lanes) {
        ended.add(part);
    }
    ended.add(on_stacks(waiting, Place::Alone, 1).await);
    ended
}

/// Starts a stack while there is a scenario for one: the next has another Cluster API.
async fn on_stacks(waiting: &Waiting, place: Place, jobs: usize) -> Ended {
    let mut ended = Ended::default();
    while let Some(first) = waiting.next(place, None) {
        match on_one_stack(waiting, first, jobs).await {
            Ok(more) => ended.add(more),
            // Successes on earlier stacks are recorded nevertheless.
            Err(error) => {
                say(&format!("the stack {} failed: {error:#}", place.of()));
                ended.failed += 1;
                break;
            }
        }
    }
    ended
}

/// Starts the stack of a scenario, and runs all of its kind until none may begin any more.
async fn on_one_stack(waiting: &Waiting, first: Scenario, jobs: usize) -> Result<Ended> {
    let (place, release) = (first.place, first.cluster_api);
    let began = Instant::now();
    let options = Options::new("scenarios").cluster_api(release);
    let world = World::start_with(options, &waiting.asked(place, &first)).await?;
    say(&format!(
        "the stack {} with Cluster API {} is ready after {:.1} s",
        place.of(),
        release.version(),
        began.elapsed().as_secs_f64()
    ));
    let firsts = iter::once(Some(first)).chain(iter::repeat(None));
    let all: Vec<Vec<(&'static str, Option<Duration>)>> = stream::iter(firsts.take(jobs))
        .map(|first| one_after_the_other(&world, waiting, place, release, first))
        .buffer_unordered(jobs)
        .collect()
        .await;

    let mut ended = Ended::default();
    for (name, took) in all.into_iter().flatten() {
        match took {
            Some(took) => ended.passed.push((name, took)),
            None => ended.failed += 1,
        }
    }
    let directory = world.stack().core().directory();
    let complaints = Complaints::of(directory)?;
    for complaint in complaints.lines() {
        say(&complaint);
    }
    if ended.failed == 0 && !complaints.is_empty() {
        // It may be of any of them.
        ended = Ended {
            passed: Vec::new(),
            failed: 1,
        };
    }
    if ended.failed > 0 {
        let kept = directory.keep_logs("scenarios");
        say(&format!("logs are kept in {}", kept.display()));
    }
    world.stop().await?;
    Ok(ended)
}

/// Runs `first`, and then what is next; how long each took that passed.
async fn one_after_the_other(
    world: &Arc<World>,
    waiting: &Waiting,
    place: Place,
    release: ClusterApiRelease,
    first: Option<Scenario>,
) -> Vec<(&'static str, Option<Duration>)> {
    let mut ended = Vec::new();
    let mut next = first;
    while let Some(scenario) = next.take().or_else(|| waiting.next(place, Some(release))) {
        let name = scenario.name;
        ended.push((name, perform(world, scenario).await));
    }
    ended
}

/// Runs one scenario, then has the observer judge it; how long it took if it passed. A panic is a failure like any other.
async fn perform(world: &Arc<World>, scenario: Scenario) -> Option<Duration> {
    let began = Instant::now();
    say(&format!("start {:<26} {}", scenario.name, scenario.proves));
    let outcome = match Scene::open(world, scenario.name, &scenario.class).await {
        Ok(scene) => {
            let outcome = tokio::spawn((scenario.run)(scene.clone()))
                .await
                .unwrap_or_else(|panic| Err(anyhow!("{panic}")));
            finish(&scene, &scenario, outcome).await
        }
        Err(error) => Err(error.context("prepare the scenario")),
    };
    let took = began.elapsed();
    let after = format!("{:.1} s", took.as_secs_f64());
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
    outcome.is_ok().then_some(took)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(name: &'static str, release: ClusterApiRelease) -> Scenario {
        Scenario::new(name, "", |_| Box::pin(async { Ok(()) })).cluster_api(release)
    }

    /// The names that a lane runs, with `,` between those of one stack and `|` between stacks.
    fn run_by_one_lane(waiting: &Waiting) -> String {
        let mut stacks = Vec::new();
        while let Some(first) = waiting.next(Place::OwnStack, None) {
            let mut names = vec![first.name];
            while let Some(next) = waiting.next(Place::OwnStack, Some(first.cluster_api)) {
                names.push(next.name);
            }
            stacks.push(names.join(","));
        }
        stacks.join("|")
    }

    #[test]
    fn those_that_are_due_wait_for_no_others() {
        use ClusterApiRelease::{Newest, V1_11, V1_13};
        let turn = |name: &str, due| Some(Turn::of(name, due));
        let scenarios = || {
            [
                (scenario("a", Newest), true),
                (scenario("older", V1_13), true),
                (scenario("b", Newest), false),
                (scenario("oldest", V1_11), false),
                (scenario("c", Newest), false),
            ]
        };
        let by_turn = scenarios().map(|(scenario, due)| {
            let turn = turn(scenario.name, due);
            (scenario, turn)
        });
        let waiting = Waiting::new(by_turn.to_vec(), Duration::from_mins(4));
        assert_eq!(run_by_one_lane(&waiting), "a|older|b,c|oldest");
        let all = scenarios().map(|(scenario, _)| (scenario, None));
        let waiting = Waiting::new(all.to_vec(), Duration::ZERO);
        assert_eq!(run_by_one_lane(&waiting), "a,b,c|older|oldest");
    }

    #[test]
    fn no_stack_is_started_that_would_be_ready_too_late() {
        let one = || {
            vec![(
                scenario("a", ClusterApiRelease::Newest),
                Some(Turn::of("a", false)),
            )]
        };
        let waiting = Waiting::new(one(), STACK / 2);
        assert!(waiting.next(Place::OwnStack, None).is_none());
        assert!(
            waiting
                .next(Place::OwnStack, Some(ClusterApiRelease::Newest))
                .is_some()
        );
    }
}
