//! Kinds that have a judge.

use super::clause::Judge;
use super::{daemon_set, deployment, helm_chart_proxy, job, stateful_set};

/// Kind that has a judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JudgedKind {
    /// Helm chart that CAAPH delivers to Clusters.
    HelmChartProxy,
    /// Workload with a Pod on each Node.
    DaemonSet,
    /// Workload with replicas.
    Deployment,
    /// Workload with replicas that have identities.
    StatefulSet,
    /// Workload that completes.
    Job,
}

impl JudgedKind {
    /// All kinds, in the order of messages.
    pub const ALL: [Self; 5] = [
        Self::HelmChartProxy,
        Self::DaemonSet,
        Self::Deployment,
        Self::StatefulSet,
        Self::Job,
    ];

    /// Returns the kind with this spelling, if it has a judge. The fields of another version may have another meaning.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|judged| judged.as_str() == kind && judged.api_version() == api_version)
    }

    /// Returns the kind, `DaemonSet`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.judge().kind
    }

    /// Returns group and version, `apps/v1`.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        self.judge().api_version
    }

    /// Whether the kind belongs to a delivery system on the management cluster: its proof says that a version was applied, not that it runs.
    #[must_use]
    pub fn is_delivery(self) -> bool {
        self.judge().delivers
    }

    pub(super) fn judge(self) -> &'static Judge {
        match self {
            Self::HelmChartProxy => &helm_chart_proxy::JUDGE,
            Self::DaemonSet => &daemon_set::JUDGE,
            Self::Deployment => &deployment::JUDGE,
            Self::StatefulSet => &stateful_set::JUDGE,
            Self::Job => &job::JUDGE,
        }
    }
}

/// List of objects that a kind needs beside its object, in the namespace of the Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedList {
    /// API group.
    pub group: &'static str,
    /// Version of the group.
    pub version: String,
    /// Kind.
    pub kind: &'static str,
    /// Name of the API resource.
    pub plural: &'static str,
    /// Labels, all of which the objects have.
    pub labels: Vec<(String, String)>,
}
