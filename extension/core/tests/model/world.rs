//! The state of the world: Cluster API, kapp-controllers, the API server's objects, our leaders and replicas.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use sluice_crds::run::{Hook, PackageRecord, UpgradeRecord};

/// Kubernetes versions, by index.
pub(crate) const VERSIONS: [&str; 3] = ["v1.34.4", "v1.35.4", "v1.36.3"];

/// Releases, by index: name and index of the Kubernetes version. Each has packages of its own.
pub(crate) const RELEASES: [(&str, u8); 6] = [
    ("34-1", 0),
    ("35-1", 1),
    ("36-1", 2),
    ("35-2", 1),
    ("36-2", 2),
    ("35-3", 1),
];

/// The version of every package of a release. The last has those of the first.
pub(crate) const PACKAGE_VERSIONS: [&str; 6] = ["1.0.0", "2.0.0", "3.0.0", "2.1.0", "3.1.0", "1.0.0"];

/// What the label of a Cluster is when a user took it away.
pub(crate) const NO_LABEL: u8 = u8::MAX;

/// The Kubernetes version of a release; none of no label.
pub(crate) fn version_of(release: u8) -> Option<u8> {
    RELEASES.get(usize::from(release)).map(|release| release.1)
}

/// The value of a label; empty without one.
pub(crate) fn label(release: u8) -> &'static str {
    RELEASES.get(usize::from(release)).map_or("", |release| release.0)
}

/// The version of the packages of a release, by the first release that has it.
pub(crate) fn packages_of(release: u8) -> u8 {
    if release == 5 { 0 } else { release }
}

/// What an API server gives as UID of its namespace `kube-system`.
pub(crate) const SERVERS: [&str; 4] = ["server-0", "server-1", "server-2", "server-3"];

/// What a Cluster has as UID.
pub(crate) const UIDS: [&str; 3] = ["cluster-0", "cluster-1", "cluster-2"];

pub(crate) fn version(index: u8) -> &'static str {
    VERSIONS[usize::from(index)]
}

pub(crate) fn index_of(version: &str) -> u8 {
    let found = VERSIONS
        .iter()
        .position(|known| *known == version)
        .expect("a version of the model");
    u8::try_from(found).expect("a handful of versions")
}

/// The Cluster object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cluster {
    /// Which of [`UIDS`] it has.
    pub(crate) uid: u8,
    pub(crate) generation: u8,
    pub(crate) to: u8,
    pub(crate) label: u8,
    pub(crate) paused: bool,
    pub(crate) start_held: bool,
    pub(crate) life: Life,
    /// `status.*.upgradePlan`.
    pub(crate) planned: Planned,
}

impl Cluster {
    pub(crate) fn deleting(&self) -> bool {
        self.life != Life::Lives
    }

    pub(crate) fn gone(&self) -> bool {
        self.life == Life::Gone
    }
}

/// How far a Cluster's deletion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Lives,
    Deleting,
    Gone,
}

/// The steps that Cluster API has shown last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Planned {
    pub(crate) control_plane: Vec<u8>,
    pub(crate) workers: Vec<u8>,
}

/// A version that is asked for and one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rollout {
    pub(crate) spec: u8,
    pub(crate) status: u8,
}

impl Rollout {
    pub(crate) const fn settled(version: u8) -> Self {
        Self {
            spec: version,
            status: version,
        }
    }

    pub(crate) const fn rolling(self) -> bool {
        self.spec != self.status
    }
}

/// What Cluster API remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CapiMemory {
    /// Hooks that it still has to call.
    pub(crate) pending: Hooks,
    /// Hooks that held and are not asked again before their floor ends.
    pub(crate) floored: Hooks,
}

/// A set of hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Hooks(u16);

impl Hooks {
    pub(crate) fn has(self, hook: Hook) -> bool {
        self.0 & Self::bit(hook) != 0
    }

    pub(crate) fn add(&mut self, hook: Hook) {
        self.0 |= Self::bit(hook);
    }

    pub(crate) fn remove(&mut self, hook: Hook) {
        self.0 &= !Self::bit(hook);
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn bit(hook: Hook) -> u16 {
        let index = Hook::ALL
            .iter()
            .position(|known| *known == hook)
            .expect("every hook is listed");
        1 << index
    }
}

/// A record, hashed by what a hook or another leader can tell apart.
#[derive(Clone, PartialEq)]
pub(crate) struct Record(pub(crate) Arc<UpgradeRecord>);

impl Eq for Record {}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UpgradeRecord {
            from,
            to,
            hop,
            tkr,
            label,
            outcome,
            ..
        } = &*self.0;
        write!(
            f,
            "{from:?} -> {to} by {hop:?}, {tkr:?} for label {label}, {outcome:?}"
        )?;
        for gate in &self.0.gates {
            write!(
                f,
                "\n  {} {} {} {}",
                gate.hook,
                gate.version,
                if gate.open { "open" } else { "held" },
                gate.reason
            )?;
        }
        for judged in &self.0.packages {
            let PackageRecord {
                name,
                version,
                values_digest,
                state,
                reason,
                ..
            } = judged;
            write!(f, "\n  {name} {version} {values_digest} {state:?} {reason}")?;
        }
        Ok(())
    }
}

impl Hash for Record {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let record = &*self.0;
        (&record.cluster_uid, &record.workload_uid).hash(state);
        record.observed_cluster_generation.hash(state);
        record.observed_bootstrap_generation.hash(state);
        (&record.label, &record.from, &record.to, &record.hop, &record.tkr).hash(state);
        for gate in &record.gates {
            (gate.hook, &gate.version, gate.open, &gate.reason, &gate.message).hash(state);
        }
        for judged in &record.packages {
            (
                &judged.values_digest,
                &judged.version,
                &judged.reason,
                judged.app_generation,
            )
                .hash(state);
            (judged.state as u8).hash(state);
        }
        record.outcome.map(|outcome| outcome as u8).hash(state);
        (
            record.begun_at.is_some(),
            record.ready_at.is_some(),
            record.released_at.is_some(),
            record.completed_at.is_some(),
        )
            .hash(state);
    }
}

/// The ClusterBootstrap object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bootstrap {
    /// How often it was made again; it stands for its UID.
    pub(crate) incarnation: u8,
    pub(crate) exists: bool,
    pub(crate) generation: u8,
    /// The release whose packages are in the spec.
    pub(crate) release: u8,
    /// The release that the annotation says.
    pub(crate) marked: Option<u8>,
    /// The release that the status says.
    pub(crate) resolved: Option<u8>,
    /// Revision of the values in the spec.
    pub(crate) values: u8,
    pub(crate) paused: bool,
    pub(crate) record: Option<Record>,
}

impl Bootstrap {
    /// One that was just made from the template of a release.
    pub(crate) fn made(incarnation: u8, release: u8) -> Self {
        Self {
            incarnation,
            exists: true,
            generation: 1,
            release,
            marked: Some(release),
            resolved: None,
            values: 0,
            paused: false,
            record: None,
        }
    }
}

/// What a package is installed from: it makes version and values of an App.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wish {
    /// Index of the package's version.
    pub(crate) package: u8,
    pub(crate) values: u8,
    /// The version of the API server in the digest.
    pub(crate) stage: u8,
    /// The API server in the digest.
    pub(crate) server: u8,
}

impl Wish {
    /// What a package that does not exist is installed from.
    pub(crate) const NOTHING: Self = Self {
        package: u8::MAX,
        values: 0,
        stage: 0,
        server: 0,
    };
}

/// Whether a user stopped a package by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stop {
    No,
    Paused,
    Canceled,
}

/// kapp-controller's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Reconciling,
    Succeeded,
    Failed,
}

/// A PackageInstall.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Install {
    pub(crate) generation: u8,
    pub(crate) wish: Wish,
    pub(crate) stop: Stop,
    pub(crate) observed: u8,
    pub(crate) chosen: u8,
    pub(crate) state: State,
}

/// An App.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct App {
    /// The API server that it was made on; it stands for its UID.
    pub(crate) made_on: u8,
    pub(crate) generation: u8,
    pub(crate) wish: Wish,
    pub(crate) stop: Stop,
    pub(crate) observed: u8,
    pub(crate) state: State,
    /// What the running attempt deploys, and the API server it began on.
    pub(crate) running: Option<(Wish, u8)>,
}

/// The last successful deployment of a package: the truth that no client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Deployed {
    pub(crate) wish: Wish,
    /// Version of the API server.
    pub(crate) on: u8,
}

/// A package with its objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Package {
    pub(crate) install: Install,
    pub(crate) app: App,
    pub(crate) deployed: Deployed,
    pub(crate) deleting: bool,
}

impl Package {
    /// One that is deployed.
    pub(crate) fn settled(wish: Wish, server: u8, on: u8) -> Self {
        let nothing = wish == Wish::NOTHING;
        let state = if nothing {
            State::Reconciling
        } else {
            State::Succeeded
        };
        Self {
            install: Install {
                generation: 1,
                wish,
                stop: Stop::No,
                observed: 1,
                chosen: wish.package,
                state,
            },
            app: App {
                made_on: server,
                generation: 1,
                wish,
                stop: Stop::No,
                observed: 1,
                state,
                running: None,
            },
            deployed: Deployed { wish, on },
            deleting: false,
        }
    }

    /// One that does not exist.
    pub(crate) fn missing(server: u8) -> Self {
        Self::settled(Wish::NOTHING, server, 0)
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.install.wish == Wish::NOTHING
    }
}

/// Whether the workload's API server answers, as our controller knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Contact {
    Answers,
    /// It fell silent a moment ago.
    Silent,
    /// It is silent for longer than what was proven lasts.
    SilentForLong,
    /// It is silent since before our controller began.
    NeverAnswered,
}

/// What a leader has read of the management cluster and not yet acted on, and what its watches have shown of packages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    pub(crate) read: Option<Box<Read>>,
    pub(crate) installs: Vec<Install>,
    pub(crate) apps: Vec<App>,
}

/// One read of the management cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Read {
    pub(crate) cluster: Cluster,
    pub(crate) control_plane: Rollout,
    pub(crate) workers: Option<Rollout>,
    pub(crate) bootstrap: Bootstrap,
}

/// What a replica's index holds of the ClusterBootstrap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Index {
    /// None of a ClusterBootstrap that does not exist.
    pub(crate) generation: Option<u8>,
    pub(crate) record: Option<Record>,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) control_plane: Rollout,
    pub(crate) workers: Option<Rollout>,
    pub(crate) capi: CapiMemory,
    pub(crate) bootstrap: Bootstrap,
    pub(crate) packages: Vec<Package>,
    /// Packages on the API server that the kubeconfig may be swapped for.
    pub(crate) elsewhere: Vec<Package>,
    /// Which of [`SERVERS`] the kubeconfig leads to. The other one of its pair is elsewhere.
    pub(crate) server: u8,
    pub(crate) contact: Contact,
    /// Whether what a merge needs does not exist.
    pub(crate) merge_fails: bool,
    pub(crate) leaders: Vec<Leader>,
    pub(crate) replicas: Vec<Index>,
    /// Edits that users may still make, one bit each.
    pub(crate) edits_left: u16,
    /// Deployments that may still fail.
    pub(crate) failures_left: u8,
    /// Resyncs that may still happen.
    pub(crate) resyncs_left: u8,
    /// The rule that was broken, if one was.
    pub(crate) broken: Option<&'static str>,
}

impl World {
    pub(crate) fn read(&self) -> Read {
        Read {
            cluster: self.cluster.clone(),
            control_plane: self.control_plane,
            workers: self.workers,
            bootstrap: self.bootstrap.clone(),
        }
    }

    pub(crate) fn index(&self) -> Index {
        Index {
            generation: self.bootstrap.exists.then_some(self.bootstrap.generation),
            record: self.bootstrap.record.clone(),
        }
    }

    /// Whether packages but kapp-controller's own can be reached.
    pub(crate) fn answers(&self) -> bool {
        self.contact == Contact::Answers
    }
}
