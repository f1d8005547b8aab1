//! Scenarios side by side: many on one stack that they share, and beside it lanes, each with a stack of its own for one after the other.

use std::iter;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow};
use futures::future::{join, join_all};
use futures::{StreamExt as _, stream};

use super::runner::{Installation, Needs, Place, Scenario, paint, say};
use super::scene::Scene;
use super::world::{Hooks, World};
use crate::extension::Scope;
use crate::stack::Options;
use crate::stack::audit::{ADMIN, Audited, SLUICE};
use crate::stack::complaints::Complaints;

/// Name of the webhook configuration of gates, as it is shipped.
const GATES: &str = "sluice-gates";

/// Scenarios that have not begun yet.
pub(super) struct Waiting(Mutex<Vec<Scenario>>);

impl Waiting {
    pub(super) fn new(scenarios: Vec<Scenario>) -> Self {
        Self(Mutex::new(scenarios))
    }

    /// The first one of a place, on a stack that has what it needs or, without one, on a stack that is started for it.
    fn next(&self, place: Place, stack: Option<Needs>) -> Option<Scenario> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = waiting.iter().position(|scenario| {
            scenario.place == place && stack.is_none_or(|needs| scenario.needs() == needs)
        })?;
        Some(waiting.remove(next))
    }

    /// Cluster API asks Sluice about these namespaces.
    fn asked(&self, place: Place, first: &Scenario) -> Hooks {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let here = waiting
            .iter()
            .filter(|scenario| scenario.place == place && scenario.needs() == first.needs());
        let asked: Vec<String> = iter::once(first)
            .chain(here)
            .filter(|scenario| scenario.asks_sluice)
            .map(|scenario| scenario.namespace().to_owned())
            .collect();
        if asked.is_empty() {
            Hooks::Absent
        } else {
            Hooks::AskedAbout(Scope::Namespaces(asked))
        }
    }
}

/// What came of scenarios.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) passed: usize,
    /// What failed, and why.
    pub(super) failed: Vec<String>,
}

impl Ended {
    fn add(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed.extend(more.failed);
    }
}

/// Runs all: `jobs` at once on the stack that they share, beside so many `lanes`, and then those that are alone.
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
            Err(error) => {
                let failure = format!("the stack {} failed: {error:#}", place.of());
                say(&failure);
                ended.failed.push(failure);
                break;
            }
        }
    }
    ended
}

/// Starts the stack of a scenario, and runs all of its kind.
async fn on_one_stack(waiting: &Waiting, first: Scenario, jobs: usize) -> Result<Ended> {
    let (place, needs) = (first.place, first.needs());
    let began = Instant::now();
    let mut options = Options::new("scenarios").cluster_api(needs.cluster_api);
    if needs.audited {
        options = options.audited(Audited::users(&[SLUICE, ADMIN]));
    }
    options = match needs.installation {
        Installation::Complete => options,
        Installation::Gated => options.stores_json(),
        Installation::GatesOnly => options.without_packages(),
    };
    let world = World::start_with(options, &waiting.asked(place, &first)).await?;
    say(&format!(
        "the stack {} with Cluster API {} is ready after {:.1} s",
        place.of(),
        needs.cluster_api.version(),
        began.elapsed().as_secs_f64()
    ));
    let firsts = iter::once(Some(first)).chain(iter::repeat_with(|| None));
    let all: Vec<Ended> = stream::iter(firsts.take(jobs))
        .map(|first| one_after_the_other(&world, waiting, place, needs, first))
        .buffer_unordered(jobs)
        .collect()
        .await;

    let mut ended = Ended::default();
    for part in all {
        ended.add(part);
    }
    let directory = world.stack().core().directory();
    let complaints = Complaints::of(directory)?;
    for complaint in complaints.lines() {
        say(&complaint);
    }
    if ended.failed.is_empty() && !complaints.is_empty() {
        // Any of them may have caused it.
        ended.failed.push(complaints.to_string());
    }
    if !ended.failed.is_empty() {
        let kept = directory.keep_logs("scenarios");
        say(&format!("logs are kept in {}", kept.display()));
    }
    world.stop().await?;
    Ok(ended)
}

/// Runs `first`, and then what is next.
async fn one_after_the_other(
    world: &Arc<World>,
    waiting: &Waiting,
    place: Place,
    needs: Needs,
    first: Option<Scenario>,
) -> Ended {
    let mut ended = Ended::default();
    let mut next = first;
    while let Some(scenario) = next.take().or_else(|| waiting.next(place, Some(needs))) {
        match perform(world, scenario).await {
            Ok(()) => ended.passed += 1,
            Err(failure) => ended.failed.push(failure),
        }
    }
    ended
}

/// Runs one scenario, then has the observer judge it. A panic is a failure like any other.
///
/// # Errors
/// The scenario has failed, with its name.
async fn perform(world: &Arc<World>, scenario: Scenario) -> Result<(), String> {
    let began = Instant::now();
    say(&format!("start {:<26} {}", scenario.name, scenario.proves));
    let outcome = match open(world, &scenario).await {
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
    outcome.map_err(|error| format!("{}: {error:#}", scenario.name))
}

/// Prepares the namespace of a scenario. With gates, the API server asks Sluice about those in it.
async fn open(world: &Arc<World>, scenario: &Scenario) -> Result<Scene> {
    let scene = Scene::open(world, scenario.namespace(), &scenario.class).await?;
    if scenario.installation.has_gates() && scenario.asks_sluice {
        let extension = world.extension()?;
        extension.admit_gates(GATES, scene.namespace()).await?;
    }
    Ok(scene)
}

async fn finish(scene: &Scene, scenario: &Scenario, outcome: Result<()>) -> Result<()> {
    let judged = if scenario.asks_sluice {
        scene.in_order().await
    } else {
        // Its clusters roll on their own; the scenario itself asks the observer.
        scene.world().observer().check()
    };
    let observer = scene.world().observer();
    for left_out in observer.read(|ledger| ledger.left_out(scene.namespace())) {
        say(&format!("      the observer does not judge {left_out}"));
    }
    let closed = scene.close().await;
    outcome.and(judged).and(closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::ClusterApiRelease;

    fn scenario(name: &'static str, release: ClusterApiRelease) -> Scenario {
        Scenario::new(name, "", |_| Box::pin(async { Ok(()) })).cluster_api(release)
    }

    /// The names that a lane runs, with `,` between those of one stack and `|` between stacks.
    fn run_by_one_lane(waiting: &Waiting) -> String {
        let mut stacks = Vec::new();
        while let Some(first) = waiting.next(Place::OwnStack, None) {
            let mut names = vec![first.name];
            while let Some(next) = waiting.next(Place::OwnStack, Some(first.needs())) {
                names.push(next.name);
            }
            stacks.push(names.join(","));
        }
        stacks.join("|")
    }

    #[test]
    fn a_stack_serves_all_scenarios_that_need_the_same() {
        use ClusterApiRelease::{Newest, V1_11, V1_13};
        let waiting = Waiting::new(vec![
            scenario("a", Newest),
            scenario("older", V1_13),
            scenario("b", Newest),
            scenario("oldest", V1_11),
            scenario("audited", Newest).audited(),
            scenario("gates", Newest).gates_only(),
            scenario("c", Newest),
            scenario("edits", Newest).gated(),
        ]);
        assert_eq!(
            run_by_one_lane(&waiting),
            "a,b,c|older|oldest|audited|gates|edits"
        );
    }
}
