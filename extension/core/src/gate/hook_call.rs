//! What a hook call asks, reduced to the fields that are read.

use jiff::Timestamp;
pub use sluice_crds::run::Hook;

/// One call of a lifecycle hook.
///
/// Only these fields of a request are read, as data and never as authority: what is true is in the record.
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
    /// Generation of the Cluster that Cluster API looked at.
    pub generation: i64,
    /// Value of the label `run.tanzu.vmware.com/tkr`; an empty one is none.
    pub label: Option<&'a str>,
    /// The version that the question is about: `toKubernetesVersion` of Before* hooks, `kubernetesVersion` of After*
    /// hooks, `spec.topology.version` of BeforeClusterCreate; anything for the others.
    pub version: &'a str,
    /// `controlPlaneUpgrades[0].version`, read for BeforeClusterUpgrade only. Absent before Cluster API 1.12.
    pub first_step: Option<&'a str>,
    /// `metadata.deletionTimestamp` of the Cluster.
    pub deleted_at: Option<Timestamp>,
    /// Time of the management API server, which has stamped the deletion, when the call arrived; `None` while it is not known.
    pub now: Option<Timestamp>,
}

impl HookCall<'_> {
    /// The version of the gate that answers the call.
    #[must_use]
    pub fn gate_version(&self) -> &str {
        match (self.hook, self.first_step) {
            (Hook::BeforeClusterUpgrade, Some(step)) => step,
            _ => self.version,
        }
    }
}

/// The name of the one handler of a hook, a DNS label.
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
