//! What a pass asks for.

use std::{borrow::Cow, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource as _, core::ApiResource};
use sluice_crds::{
    foreign::{App, Cluster, PackageInstall},
    run::FirstSeenRun,
};

use super::{Failure, Source};
use crate::kubeconfig::WorkloadKubeconfig;

/// What the last look at a workload came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LastDriftCheck {
    /// It was answered, or there was none.
    Answered,
    /// It was not.
    Unanswered,
}

/// Which API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    /// The one that Cluster API runs on.
    Management,
    /// The one of the Cluster.
    Workload,
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Management => "management",
            Self::Workload => "workload",
        })
    }
}

/// How a kind is served.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// API group; empty is the core group.
    pub group: Cow<'static, str>,
    /// Version of the group.
    pub version: Cow<'static, str>,
    /// Its kind.
    pub kind: Cow<'static, str>,
    /// Its name in paths.
    pub plural: Cow<'static, str>,
}

impl Resource {
    fn of<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self {
            group: K::group(&()),
            version: K::version(&()),
            kind: K::kind(&()),
            plural: K::plural(&()),
        }
    }
}

impl From<&ApiResource> for Resource {
    fn from(served: &ApiResource) -> Self {
        let own = |text: &String| text.clone().into();
        Self {
            group: own(&served.group),
            version: own(&served.version),
            kind: own(&served.kind),
            plural: own(&served.plural),
        }
    }
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The server that has it.
    pub server: Server,
    /// Its kind.
    pub resource: Resource,
    /// Its namespace, if its kind has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Key {
    /// An object of kind `K`.
    #[must_use]
    pub fn of<K: kube::Resource<DynamicType = ()>>(
        server: Server,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        Self {
            server,
            resource: Resource::of::<K>(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// Whether the object is of kind `K`.
    pub(crate) fn is_of<K: kube::Resource<DynamicType = ()>>(&self) -> bool {
        self.resource == Resource::of::<K>()
    }

    /// A Machine of Cluster API, of which Sluice reads the metadata alone.
    pub(crate) fn machine(namespace: &str, name: &str) -> Self {
        Self {
            server: Server::Management,
            resource: Resource {
                group: Cluster::group(&()),
                version: Cluster::version(&()),
                kind: "Machine".into(),
                plural: "machines".into(),
            },
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        }
    }

    /// The namespace whose UID says which cluster a workload API server serves.
    pub(crate) fn kube_system() -> Self {
        Self::of::<Namespace>(Server::Workload, None, "kube-system")
    }
}

/// `Secret team-a/one`.
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, name) = (&self.resource.kind, &self.name);
        match &self.namespace {
            Some(namespace) => write!(f, "{kind} {namespace}/{name}"),
            None => write!(f, "{kind} {name}"),
        }
    }
}

/// For what an object is read. What was read to plan and write does not confirm anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadPhase {
    /// To plan and to write.
    Plan,
    /// Before a gate opens.
    Confirm,
}

/// When the workload API server is asked how it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadPoint {
    /// Before anything is written there.
    BeforeWrites,
    /// Before packages are judged.
    BeforeJudging,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Read {
    /// An object, read from its API server.
    Object(Key, ReadPhase),
    /// The ClusterBootstrapTemplate of a release, as the watch shows it.
    Template(String),
    /// A Package of the catalogue, as the watch shows it.
    Package(String),
    /// PackageInstall and App of this name, as the watches show them.
    Watched(Server, String),
    /// A Cluster, as the watch shows it: namespace and name.
    Cluster(String, String),
    /// What a configuration depends on, as a watch of its kind shows it.
    Source(Source),
    /// How a kind is served.
    Served {
        /// Its API group.
        group: String,
        /// Its kind.
        kind: String,
    },
    /// A connection to the workload.
    Connection(Box<ParsedKubeconfig>),
    /// The same without watches, for this pass alone.
    DriftCheckConnection(Box<ParsedKubeconfig>),
    /// Whether the workload may be looked at now.
    DriftCheckPermit(LastDriftCheck),
    /// How the workload answers.
    Contact(ReadPoint),
    /// All PackageInstalls of the workload.
    Installs,
    /// All Apps of the workload.
    Apps,
    /// The metadata of all Packages of the workload: their content may be large.
    PackageNames,
    /// The Secrets on the workload that are labelled with the Cluster.
    LabelledSecrets,
    /// The metadata of the Machines of the Cluster, in this namespace.
    Machines(String),
}

impl Read {
    /// What has to change for another answer, if a watch that has to be looked for shows it.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        match self {
            Self::Cluster(namespace, name) => Some(Source::cluster(namespace, name)),
            Self::Source(source) => Some(source.clone()),
            _ => None,
        }
    }

    /// Whether a list of the workload is asked for, which may be long.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(
            self,
            Self::Installs | Self::Apps | Self::PackageNames | Self::LabelledSecrets
        )
    }

    /// The server that answers.
    #[must_use]
    pub const fn server(&self) -> Server {
        match self {
            Self::Object(key, _) => key.server,
            Self::Watched(server, _) => *server,
            Self::Template(_)
            | Self::Package(_)
            | Self::Cluster(..)
            | Self::Source(_)
            | Self::Served { .. }
            | Self::Machines(_) => Server::Management,
            Self::Connection(_)
            | Self::DriftCheckPermit(_)
            | Self::DriftCheckConnection(_)
            | Self::Contact(_)
            | Self::Installs
            | Self::Apps
            | Self::PackageNames
            | Self::LabelledSecrets => Server::Workload,
        }
    }
}

/// What a connection is made of.
#[derive(Debug, Clone)]
pub struct ParsedKubeconfig {
    /// What was read.
    pub parsed: WorkloadKubeconfig,
    /// Digest of its bytes, by [`digest`](crate::kubeconfig::digest).
    pub digest: String,
}

impl PartialEq for ParsedKubeconfig {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ParsedKubeconfig {}

impl std::hash::Hash for ParsedKubeconfig {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// What the watches show of one name.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    /// The PackageInstall.
    pub install: Option<Arc<PackageInstall>>,
    /// Its App.
    pub app: Option<Arc<App>>,
    /// The run that the App showed when its present generation was first seen.
    pub first_seen: Option<FirstSeenRun>,
    /// Whether the stores were filled before that was looked up: what others do not show may be there.
    pub filled: bool,
}

/// How the workload API server answers.
#[derive(Debug, Clone)]
pub enum Contact {
    /// A watch of it has ended for good.
    Ended,
    /// Its watches have found it silent.
    Silent {
        /// Since when.
        since: Timestamp,
        /// When that was asked.
        now: Timestamp,
        /// How long ago it answered anything, if it did.
        last_answer: Option<Duration>,
    },
    /// A store had to be emptied; why.
    GivenUp(String),
    /// Whose data it serves.
    Serves {
        /// UID of namespace `kube-system`.
        uid: String,
    },
    /// Other data than the connection was opened for.
    Replaced,
    /// It does not say whose data it serves.
    Unread {
        /// Since when, if it said so before.
        since: Option<Timestamp>,
        /// What it answered.
        failure: Failure,
    },
}
