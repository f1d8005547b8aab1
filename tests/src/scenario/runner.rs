//! Runs scenarios: `--list`, a filter by name, one plain line at the end.

use std::io::{IsTerminal as _, Write as _};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use super::lanes::{self, Waiting};
use super::scene::Scene;
use crate::components::ClusterApiRelease;
use crate::objects::Class;
use crate::runtime::block_on;

type Running = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One scenario.
pub struct Scenario {
    /// Its name, also of its namespace unless it has another one.
    pub name: &'static str,
    /// Another namespace than one of its own.
    pub namespace: Option<&'static str>,
    /// Purpose of the scenario, in one line.
    pub proves: &'static str,
    /// Its ClusterClass.
    pub class: Class,
    /// Whether Cluster API calls Sluice for its namespace.
    pub asks_sluice: bool,
    /// Resources that it shares with other scenarios.
    pub place: Place,
    /// The Cluster API of its stack.
    pub cluster_api: ClusterApiRelease,
    /// Whether the API servers of its stack write down the requests of Sluice.
    pub audited: bool,
    /// Which installation of Sluice its stack has.
    pub installation: Installation,
    /// Whether CI runs it for each submission. All others run in the night.
    pub each_time: bool,
    /// Runs it.
    pub run: fn(Scene) -> Running,
}

/// What a scenario needs of its stack. One stack serves the scenarios of a place that need the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) cluster_api: ClusterApiRelease,
    pub(super) audited: bool,
    pub(super) installation: Installation,
}

/// What Sluice is installed for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Installation {
    /// Packages and gates, beside kapp-controller.
    #[default]
    Complete,
    /// The same, with API servers that store JSON: the observer reads the workloads that gates check.
    Gated,
    /// Gates only, without kapp-controller and the kinds of packages.
    GatesOnly,
}

impl Installation {
    /// Whether scenarios have gates, so that the API server asks Sluice about them.
    pub(super) fn has_gates(self) -> bool {
        match self {
            Self::Complete => false,
            Self::Gated | Self::GatesOnly => true,
        }
    }
}

/// Resources that a scenario shares with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A stack with others beside it.
    Shared,
    /// A stack with others before and after it, because it ends what all share.
    OwnStack,
    /// Not even the machine.
    Alone,
}

impl Place {
    pub(super) fn of(self) -> &'static str {
        match self {
            Self::Shared => "that many share",
            Self::OwnStack => "of a lane",
            Self::Alone => "for those that run alone",
        }
    }
}

impl Scenario {
    pub(super) fn needs(&self) -> Needs {
        Needs {
            cluster_api: self.cluster_api,
            audited: self.audited,
            installation: self.installation,
        }
    }

    /// A scenario that runs beside others in the night, and has Sluice asked.
    #[must_use]
    pub fn new(name: &'static str, proves: &'static str, run: fn(Scene) -> Running) -> Self {
        Self {
            name,
            namespace: None,
            proves,
            class: Class::default(),
            asks_sluice: true,
            place: Place::Shared,
            cluster_api: ClusterApiRelease::Newest,
            audited: false,
            installation: Installation::Complete,
            each_time: false,
            run,
        }
    }

    /// The namespace of its Clusters.
    #[must_use]
    pub fn namespace(&self) -> &'static str {
        self.namespace.unwrap_or(self.name)
    }

    /// With its Clusters in a namespace that exists already.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &'static str) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// With another ClusterClass.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Ends or stops what scenarios share, so it has a stack of its own.
    #[must_use]
    pub fn own_stack(mut self) -> Self {
        self.place = Place::OwnStack;
        self
    }

    /// Runs on another release of Cluster API, and so on a stack of its own.
    #[must_use]
    pub fn cluster_api(mut self, release: ClusterApiRelease) -> Self {
        self.cluster_api = release;
        self.own_stack()
    }

    /// Has a stack of its own whose API servers write down the requests of Sluice; see [`Cluster::requests`](super::Cluster::requests).
    #[must_use]
    pub fn audited(mut self) -> Self {
        self.audited = true;
        self.own_stack()
    }

    /// Has a stack of its own without packages, and the class of [`gates`](super::gates::class), unless it is given another one later.
    #[must_use]
    pub fn gates_only(mut self) -> Self {
        self.installation = Installation::GatesOnly;
        self.class = super::gates::class();
        self.own_stack()
    }

    /// Has a stack of its own with packages and gates, and a class with a real DaemonSet controller, unless it is given another one later.
    #[must_use]
    pub fn gated(mut self) -> Self {
        self.installation = Installation::Gated;
        self.class = Class {
            daemon_sets: true,
            ..Class::default()
        };
        self.own_stack()
    }

    /// Wants the machine for itself.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.place = Place::Alone;
        self
    }

    /// Runs for each submission.
    #[must_use]
    pub fn each_time(mut self) -> Self {
        self.each_time = true;
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
    /// Only those that run for each submission.
    #[arg(long)]
    each_time: bool,
    /// How many scenarios run side by side on the stack that they share.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// How many that need a stack of their own run beside them.
    #[arg(long, default_value_t = 2)]
    lanes: usize,
    // Arguments that cargo and test runners pass to every test program.
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
pub fn main(scenarios: Vec<Scenario>) -> ExitCode {
    let arguments = Arguments::parse();
    let chosen: Vec<Scenario> = scenarios
        .into_iter()
        .filter(|scenario| arguments.chooses(scenario))
        .collect();
    if chosen.is_empty() {
        say(&format!("no scenario is chosen by {:?}", arguments.names));
        return ExitCode::FAILURE;
    }
    if arguments.list {
        for scenario in &chosen {
            say(&format!("{:<36} {}", scenario.name, scenario.proves));
        }
        return ExitCode::SUCCESS;
    }
    log();
    match run(&arguments, chosen) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("the stack failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn chooses(&self, scenario: &Scenario) -> bool {
        let is_named = |wanted: &String| {
            if self.exact {
                scenario.name == wanted
            } else {
                scenario.name.contains(wanted.as_str())
            }
        };
        (scenario.each_time || !self.each_time) && (self.names.is_empty() || self.names.iter().any(is_named))
    }
}

/// Runs the scenarios, and returns whether none failed.
fn run(arguments: &Arguments, chosen: Vec<Scenario>) -> Result<bool> {
    let waiting = Waiting::new(chosen);
    let (jobs, lanes) = (arguments.jobs.max(1), arguments.lanes.max(1));
    let ended = block_on(async { Ok(lanes::run(&waiting, jobs, lanes).await) })?;
    // Again at the end, which is all that some terminals keep.
    for failure in &ended.failed {
        say(&format!("failed: {failure}"));
    }
    say(&format!("{} passed, {} failed", ended.passed, ended.failed.len()));
    Ok(ended.failed.is_empty())
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

pub(super) fn paint(text: &str, colour: u8) -> String {
    if std::io::stdout().is_terminal() {
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The reader is gone: nothing to do about it.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Timeout of most waits of scenarios, generous for a busy machine.
pub const TIMEOUT: Duration = Duration::from_mins(4);
