//! Reads that a reconcile requests.

use std::{borrow::Cow, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource as _, core::ApiResource};
use sluice_crds::{
    foreign::{App, Cluster, PackageInstall},
    run::FirstSeenRun,
};

use super::{Failure, Source};
use crate::kubeconfig::WorkloadKubeconfig;

/// Outcome of the last drift check of a workload cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LastDriftCheck {
    /// The workload API server responded, or there was no drift check.
    Answered,
    /// The workload API server did not respond.
    Unanswered,
}

/// API server of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    /// API server of the management cluster, which runs Cluster API.
    Management,
    /// API server of the workload cluster.
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

/// API resource of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Version of the group.
    pub version: Cow<'static, str>,
    /// Kind.
    pub kind: Cow<'static, str>,
    /// Plural name in request paths.
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

/// Reference to one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// API server that stores the object.
    pub server: Server,
    /// API resource of its kind.
    pub resource: Resource,
    /// Namespace; `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl Key {
    /// Returns the key of an object of kind `K`.
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

    /// Returns whether the object is of kind `K`.
    pub(crate) fn is_of<K: kube::Resource<DynamicType = ()>>(&self) -> bool {
        self.resource == Resource::of::<K>()
    }

    /// Returns the key of a Cluster API Machine; Sluice reads only its metadata.
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

    /// Returns the key of namespace `kube-system`, whose UID identifies the cluster behind a workload API server.
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

/// Version of a Secret on the management cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SecretVersion {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID: a Secret that is created again is another one.
    pub uid: String,
    /// resourceVersion.
    pub resource_version: String,
}

impl SecretVersion {
    /// Returns the version of the Secret with this metadata, if it is complete.
    pub(crate) fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            resource_version: metadata.resource_version.clone()?,
        })
    }

    /// Returns the key of the Secret.
    pub(crate) fn key(&self) -> Key {
        Key::of::<Secret>(Server::Management, Some(&self.namespace), &self.name)
    }

    /// Returns the read of the Secret from its API server, for a plan.
    pub(crate) fn read(&self) -> Read {
        Read::Object(self.key(), ReadPhase::Plan)
    }
}

/// Phase of a reconcile that reads an object. A read of phase `Plan` never confirms an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadPhase {
    /// Reads that plan writes.
    Plan,
    /// Reads that confirm the observed state before a gate opens.
    Confirm,
}

/// Point of a reconcile at which the contact to the workload API server is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReadPoint {
    /// Before the first write to the workload cluster.
    BeforeWrites,
    /// Before the packages are evaluated.
    BeforeJudging,
}

/// One read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Read {
    /// Object, read from its API server.
    Object(Key, ReadPhase),
    /// ClusterBootstrapTemplate of a release, from the cache.
    Template(String),
    /// Package of the catalogue, from the cache.
    Package(String),
    /// PackageInstall and App of this name, from the cache.
    Watched(Server, String),
    /// Whether the metadata watch of values sources is current and has shown this version of a Secret last. The answer needs no request.
    Shown(SecretVersion),
    /// Cluster by namespace and name, from the cache.
    Cluster(String, String),
    /// Dependency of a configuration, from the watch of its kind.
    Source(Source),
    /// API resource of a kind.
    Served {
        /// API group.
        group: String,
        /// Kind.
        kind: String,
    },
    /// API resource of a kind in exactly one version, by discovery of an API server.
    Kind {
        /// API server.
        server: Server,
        /// API group and version, `apps/v1`.
        api_version: String,
        /// Kind.
        kind: String,
    },
    /// Objects of a kind with these labels in a namespace, read from their API server.
    Labelled {
        /// API server.
        server: Server,
        /// API resource of the kind.
        resource: Resource,
        /// Namespace.
        namespace: String,
        /// Label selector, `key=value,key=value`.
        labels: String,
        /// Phase of the reconcile that reads them.
        phase: ReadPhase,
    },
    /// Connection to the workload cluster.
    Connection(Box<ParsedKubeconfig>),
    /// Open connection of this number to the workload cluster; absent if it was closed.
    OpenConnection(u64),
    /// Connection without watches, for this reconcile only.
    DriftCheckConnection(Box<ParsedKubeconfig>),
    /// Permit for a drift check of the workload cluster.
    DriftCheckPermit(LastDriftCheck),
    /// Contact state of the workload API server.
    Contact(ReadPoint),
    /// All PackageInstalls of the workload cluster.
    Installs,
    /// All Apps of the workload cluster.
    Apps,
    /// Metadata of all Packages of the workload cluster; their content may be large.
    PackageNames,
    /// Secrets on the workload cluster that carry the label of the Cluster.
    LabelledSecrets,
    /// Objects of the workload cluster that stop or suffer from a replacement of Nodes.
    WorkloadObjects,
    /// Metadata of the Machines of the Cluster, in this namespace.
    Machines(String),
    /// Metadata of one VirtualMachine of the Cluster, in this namespace. Its kind is discovered, because Supervisors differ in its version.
    VirtualMachines(String),
}

impl Read {
    /// Returns the source whose change makes the result obsolete, if the read opens a watch for it.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        match self {
            Self::Cluster(namespace, name) => Some(Source::cluster(namespace, name)),
            Self::Source(source) => Some(source.clone()),
            _ => None,
        }
    }

    /// Returns whether the read lists objects of the workload cluster; such a list may be long.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(
            self,
            Self::Installs
                | Self::Apps
                | Self::PackageNames
                | Self::LabelledSecrets
                | Self::WorkloadObjects
                | Self::Labelled {
                    server: Server::Workload,
                    ..
                }
        )
    }

    /// Returns the API server of the read.
    #[must_use]
    pub const fn server(&self) -> Server {
        match self {
            Self::Object(key, _) => key.server,
            Self::Watched(server, _) | Self::Kind { server, .. } | Self::Labelled { server, .. } => *server,
            Self::Template(_)
            | Self::Package(_)
            | Self::Shown(_)
            | Self::Cluster(..)
            | Self::Source(_)
            | Self::Served { .. }
            | Self::Machines(_)
            | Self::VirtualMachines(_) => Server::Management,
            Self::Connection(_)
            | Self::OpenConnection(_)
            | Self::DriftCheckPermit(_)
            | Self::DriftCheckConnection(_)
            | Self::Contact(_)
            | Self::Installs
            | Self::Apps
            | Self::PackageNames
            | Self::LabelledSecrets
            | Self::WorkloadObjects => Server::Workload,
        }
    }
}

/// Parsed kubeconfig of a connection.
#[derive(Debug, Clone)]
pub struct ParsedKubeconfig {
    /// Parsed content.
    pub parsed: WorkloadKubeconfig,
    /// Digest of the bytes, by [`digest`](crate::kubeconfig::digest).
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

/// Cached PackageInstall and App of one name.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    /// PackageInstall.
    pub install: Option<Arc<PackageInstall>>,
    /// App of the PackageInstall.
    pub app: Option<Arc<App>>,
    /// Run that the App showed when the watch first observed its current generation.
    pub first_seen: Option<FirstSeenRun>,
    /// Whether the stores were filled before the lookup. An unfilled store may miss existing objects.
    pub filled: bool,
}

/// Contact state of the workload API server.
#[derive(Debug, Clone)]
pub enum Contact {
    /// A watch ended permanently.
    Ended,
    /// The watches get no response.
    Silent {
        /// Time of the first missing response.
        since: Timestamp,
        /// Time of this check.
        now: Timestamp,
        /// Time since the last response, if there was one.
        last_answer: Option<Duration>,
        /// Cause of the last failure, if TLS or a proxy reported it.
        cause: Option<String>,
    },
    /// A store was emptied, for this reason.
    GivenUp(String),
    /// The API server serves the cluster of the connection.
    Serves {
        /// UID of namespace `kube-system`.
        uid: String,
    },
    /// The API server serves another cluster than the connection was opened for.
    Replaced,
    /// The identity of the cluster could not be read.
    Unread {
        /// Time of the first failed read, if an earlier read succeeded.
        since: Option<Timestamp>,
        /// Failure of the read.
        failure: Failure,
    },
}
