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

/// A hook call that outlives its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedHookCall {
    hook: Hook,
    namespace: String,
    name: String,
    uid: String,
    generation: i64,
    label: Option<String>,
    version: String,
    first_step: Option<String>,
    deleted_at: Option<Timestamp>,
    now: Option<Timestamp>,
}

impl From<&HookCall<'_>> for OwnedHookCall {
    fn from(call: &HookCall<'_>) -> Self {
        Self {
            hook: call.hook,
            namespace: call.namespace.to_owned(),
            name: call.name.to_owned(),
            uid: call.uid.to_owned(),
            generation: call.generation,
            label: call.label.map(str::to_owned),
            version: call.version.to_owned(),
            first_step: call.first_step.map(str::to_owned),
            deleted_at: call.deleted_at,
            now: call.now,
        }
    }
}

impl OwnedHookCall {
    /// Returns the call.
    #[must_use]
    pub fn as_call(&self) -> HookCall<'_> {
        HookCall {
            hook: self.hook,
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            generation: self.generation,
            label: self.label.as_deref(),
            version: &self.version,
            first_step: self.first_step.as_deref(),
            deleted_at: self.deleted_at,
            now: self.now,
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
