//! The demo's command line.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use super::terminal::{Terminal, Tone};
use super::{capture, gates, repeat, same_kubernetes, standing, upgrade};
use crate::compare::counts::audited;
use crate::components::{Binaries, CAAPH_VERSION, CLUSTER_API_VERSION, KAPP_CONTROLLER_VERSION, minor};
use crate::extension::Scope;
use crate::runtime::block_on;
use crate::scenario::{Hooks, Scene, World};
use crate::stack::Options;

/// Shows an upgrade that waits for its packages, on real Cluster API, kapp-controllers and API servers.
#[derive(Debug, Parser)]
#[command(name = "demo", about)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Verb {
    /// One upgrade, then a summary; everything is removed. What happens without a verb.
    Run,
    /// Many upgrades in a row; fails unless all kept the order and the pace.
    Repeat {
        /// How many. The pace is judged from ten on, which make twenty releases.
        #[arg(long, default_value_t = 20)]
        times: usize,
    },
    /// Moves a Cluster to higher releases of the Kubernetes version that it has, and writes `target/demo/same-kubernetes.json`; fails unless
    /// all kept the order, the pace and the number of writes.
    SameKubernetes {
        /// How many. The pace is judged from ten on.
        #[arg(long, default_value_t = 1)]
        times: usize,
    },
    /// Upgrades Clusters whose UpgradeGate waits for a chart of CAAPH, without packages, and writes `target/demo/gates.json`; fails unless all
    /// kept the order, the pace and the number of writes.
    Gates {
        /// How many. The pace is judged from ten on.
        #[arg(long, default_value_t = 1)]
        times: usize,
    },
    /// Builds the programs of the stack that are not installed.
    Prepare,
    /// Runs the demo on a pseudo-terminal and writes `docs/img/demo.svg`.
    #[command(hide = true)]
    Capture,
    /// Starts a stack with a Cluster, for inspection and upgrades by hand.
    Up,
    /// Removes it.
    Down,
    /// Holds the stack of `up`.
    #[command(hide = true)]
    Serve,
}

/// The main function of the demo.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let terminal = Terminal::new();
    let kept = block_on(perform(&terminal, arguments.verb.unwrap_or(Verb::Run)));
    terminal.rest();
    match kept {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            terminal.say(Tone::Bad, format!("demo: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the command. Returns false if the upgrade violated the order or the pace.
async fn perform(terminal: &Terminal, verb: Verb) -> Result<bool> {
    match verb {
        Verb::Run => with_world(terminal, Once).await,
        Verb::Repeat { times } => with_world(terminal, Series { times }).await,
        Verb::SameKubernetes { times } => with_world(terminal, SameKubernetes { times }).await,
        Verb::Gates { times } => with_world(terminal, Gates { times }).await,
        Verb::Prepare => prepare(terminal, Once::EARLIER).await.map(|_| true),
        Verb::Capture => tokio::task::spawn_blocking(capture::capture)
            .await?
            .map(|()| true),
        Verb::Up => standing::up(terminal).await.map(|()| true),
        Verb::Down => standing::down(terminal).await.map(|()| true),
        Verb::Serve => standing::serve(terminal).await.map(|()| true),
    }
}

pub(super) trait Act {
    /// Kubernetes versions of its Clusters before the newest one.
    const EARLIER: usize;

    /// Options of its stack.
    fn options(&self) -> Options {
        Options::new("demo")
    }

    /// What delivers to its Clusters.
    fn delivery(&self) -> String {
        format!("kapp-controller {KAPP_CONTROLLER_VERSION}")
    }

    async fn play(&self, terminal: &Terminal, world: &Arc<World>) -> Result<bool>;
}

pub(super) struct Once;

struct Series {
    times: usize,
}

struct SameKubernetes {
    times: usize,
}

struct Gates {
    times: usize,
}

impl Act for Series {
    const EARLIER: usize = 2;

    async fn play(&self, terminal: &Terminal, world: &Arc<World>) -> Result<bool> {
        repeat::run(terminal, world, self.times).await
    }
}

impl Act for SameKubernetes {
    const EARLIER: usize = 0;

    fn options(&self) -> Options {
        Options::new("demo").audited(audited())
    }

    async fn play(&self, terminal: &Terminal, world: &Arc<World>) -> Result<bool> {
        same_kubernetes::run(terminal, world, self.times).await
    }
}

impl Act for Gates {
    const EARLIER: usize = 1;

    fn options(&self) -> Options {
        Options::new("demo-gates").audited(audited()).without_packages()
    }

    fn delivery(&self) -> String {
        format!("CAAPH {CAAPH_VERSION}")
    }

    async fn play(&self, terminal: &Terminal, world: &Arc<World>) -> Result<bool> {
        gates::run(terminal, world, self.times).await
    }
}

impl Act for Once {
    const EARLIER: usize = 1;

    async fn play(&self, terminal: &Terminal, world: &Arc<World>) -> Result<bool> {
        let scene = Scene::open(world, upgrade::NAMESPACE, &upgrade::class()).await?;
        let releases = upgrade::releases(&scene)?;
        let _served = upgrade::offer(terminal, &scene, &releases).await?;
        let (old, new) = (&releases[1], &releases[2]);
        terminal.say(
            Tone::Heading,
            format!(
                "\nCreating a Cluster of version {} with one worker pool: its release is {}",
                minor(old.kubernetes()),
                old.name()
            ),
        );
        for package in old.packages() {
            terminal.say(
                Tone::Plain,
                format!("  package {} {}", package.short(), package.version()),
            );
        }
        let began = Instant::now();
        let cluster = upgrade::create(terminal, &scene, "demo", old).await?;
        terminal.say(
            Tone::Good,
            format!(
                "  Cluster Available and packages proven after {:.1} s",
                began.elapsed().as_secs_f64()
            ),
        );
        upgrade::show_releases(terminal, &scene).await?;
        terminal.say(
            Tone::Heading,
            format!(
                "\nSetting topology.version to {} and the label to {}",
                new.kubernetes(),
                new.name()
            ),
        );
        let report = upgrade::run(terminal, &cluster, old, new).await?;
        upgrade::summarize(terminal, &report);
        let path = upgrade::write(&report)?;
        terminal.say(Tone::Plain, format!("  {}", path.display()));
        Ok(!report.early_release)
    }
}

/// Builds the programs for Clusters of the newest version and of `earlier` ones before it, unless they are installed or were built before.
/// Writes `target/demo/programs.json`.
pub(super) async fn prepare(terminal: &Terminal, earlier: usize) -> Result<Arc<Binaries>> {
    terminal.waiting("the stack's programs");
    let binaries = Binaries::of_the_demo(earlier).await?;
    let path = upgrade::directory()?.join("programs.json");
    fs::write(&path, serde_json::to_string_pretty(&binaries.report())?)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(binaries)
}

/// Starts a stack, has the act played, and removes the stack whatever came of it.
async fn with_world<A: Act>(terminal: &Terminal, act: A) -> Result<bool> {
    let binaries = prepare(terminal, A::EARLIER).await?;
    terminal.say(
        Tone::Heading,
        format!(
            "Starting Cluster API {CLUSTER_API_VERSION}, {} and Sluice",
            act.delivery()
        ),
    );
    for program in binaries
        .report()
        .iter()
        .filter(|program| program.is_of_kubernetes())
    {
        terminal.say(Tone::Plain, format!("  {}", program.line()));
    }
    terminal.waiting(format!(
        "etcd, kube-apiserver, kube-controller-manager, Cluster API, {}, Sluice",
        act.delivery()
    ));
    let began = Instant::now();
    let world = World::start_with(act.options(), &Hooks::AskedAbout(Scope::Everywhere)).await?;
    terminal.say(
        Tone::Good,
        format!("  ready after {:.1} s", began.elapsed().as_secs_f64()),
    );
    let played = act.play(terminal, &world).await;
    let played = played.and_then(|kept| world.stack().check().map(|()| kept));
    if !matches!(played, Ok(true)) {
        let kept = world.stack().core().directory().keep_logs("demo");
        terminal.say(Tone::Plain, format!("  logs are kept in {}", kept.display()));
    }
    terminal.waiting("everything to be removed");
    world.stop().await?;
    played
}
