//! Kinds that have a judge, and the objects that a judge needs beside that of its check.

use super::clause::Judge;
use super::{
    custom_resource_definition, daemon_set, deployment, helm_chart_proxy, helm_release, job, kustomization,
    other, stateful_set,
};

/// Judge of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JudgedKind {
    /// Helm chart that CAAPH delivers to Clusters.
    HelmChartProxy,
    /// Helm chart that Flux delivers.
    HelmRelease,
    /// Manifests that Flux delivers.
    Kustomization,
    /// Workload with a Pod on each Node.
    DaemonSet,
    /// Workload with replicas.
    Deployment,
    /// Workload with replicas that have identities.
    StatefulSet,
    /// Workload that completes.
    Job,
    /// Definition of a kind.
    CustomResourceDefinition,
    /// Any other kind, by an expression.
    Other,
}

impl JudgedKind {
    /// All kinds with a judge of their own, in the order of messages.
    pub const ALL: [Self; 8] = [
        Self::HelmChartProxy,
        Self::HelmRelease,
        Self::Kustomization,
        Self::DaemonSet,
        Self::Deployment,
        Self::StatefulSet,
        Self::Job,
        Self::CustomResourceDefinition,
    ];

    /// Returns the kind with this spelling, if it has a judge of its own. The fields of another version may have another meaning.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|judged| judged.as_str() == kind && judged.api_version() == api_version)
    }

    /// Returns the kind, `DaemonSet`; empty for [`Self::Other`].
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.judge().kind
    }

    /// Returns group and version, `apps/v1`; empty for [`Self::Other`].
    #[must_use]
    pub fn api_version(self) -> &'static str {
        self.judge().api_version
    }

    /// Whether the kind belongs to a delivery system: its proof says that a version was applied, not that it runs.
    #[must_use]
    pub fn is_delivery(self) -> bool {
        self.judge().delivers
    }

    pub(super) fn judge(self) -> &'static Judge {
        match self {
            Self::HelmChartProxy => &helm_chart_proxy::JUDGE,
            Self::HelmRelease => &helm_release::JUDGE,
            Self::Kustomization => &kustomization::JUDGE,
            Self::DaemonSet => &daemon_set::JUDGE,
            Self::Deployment => &deployment::JUDGE,
            Self::StatefulSet => &stateful_set::JUDGE,
            Self::Job => &job::JUDGE,
            Self::CustomResourceDefinition => &custom_resource_definition::JUDGE,
            Self::Other => &other::JUDGE,
        }
    }
}

/// Objects that a kind needs beside the object of the check, on the same API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Related {
    /// Objects with labels.
    List(RelatedList),
    /// One object, which the object of the check names.
    Object(RelatedObject),
}

/// Objects with labels, in the namespace of the object of the check.
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

/// One object by its name. Its name and namespace are valid, and therefore segments of a URL path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedObject {
    /// Group and version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}
