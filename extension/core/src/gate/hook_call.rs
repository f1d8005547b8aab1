//! Request of a hook call, reduced to the fields that Sluice reads.

use jiff::Timestamp;
pub use sluice_crds::run::Hook;

/// One call of a lifecycle hook.
///
/// Sluice reads only these fields of a request, and never treats them as proof: the record is the only evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookCall<'a> {
    /// The hook.
    pub hook: Hook,
    /// Namespace of the Cluster.
    pub namespace: &'a str,
    /// Name of the Cluster.
    pub name: &'a str,
    /// UID of the Cluster.
    pub uid: &'a str,
    /// Generation of the Cluster that Cluster API has observed.
    pub generation: i64,
    /// Value of the label `run.tanzu.vmware.com/tkr`; an empty value counts as none.
    pub label: Option<&'a str>,
    /// Version of the call: `toKubernetesVersion` of Before* hooks, `kubernetesVersion` of After* hooks, `spec.topology.version` of
    /// BeforeClusterCreate; unspecified for the others.
    pub version: &'a str,
    /// `controlPlaneUpgrades[0].version`, read for BeforeClusterUpgrade only. Absent before Cluster API 1.12.
    pub first_step: Option<&'a str>,
    /// `metadata.deletionTimestamp` of the Cluster.
    pub deleted_at: Option<Timestamp>,
    /// Time of the management API server, which stamps deletions, at the arrival of the call; `None` while it is unknown.
    pub now: Option<Timestamp>,
}

impl HookCall<'_> {
    /// Returns the version of the gate for this call.
    #[must_use]
    pub fn gate_version(&self) -> &str {
        match (self.hook, self.first_step) {
            (Hook::BeforeClusterUpgrade, Some(step)) => step,
            _ => self.version,
        }
    }
}

/// Returns the name of the handler of a hook, a DNS label.
#[must_use]
pub const fn handler(hook: Hook) -> &'static str {
    match hook {
        Hook::BeforeClusterCreate => "before-cluster-create",
        Hook::AfterControlPlaneInitialized => "after-control-plane-initialized",
        Hook::BeforeClusterUpgrade => "before-cluster-upgrade",
        Hook::BeforeControlPlaneUpgrade => "before-control-plane-upgrade",
        Hook::AfterControlPlaneUpgrade => "after-control-plane-upgrade",
        Hook::BeforeWorkersUpgrade => "before-workers-upgrade",
        Hook::AfterWorkersUpgrade => "after-workers-upgrade",
        Hook::AfterClusterUpgrade => "after-cluster-upgrade",
        Hook::BeforeClusterDelete => "before-cluster-delete",
    }
}
