//! Whether Cluster API calls the hooks of Sluice before it upgrades a Cluster. It is a report: no gate and no record reads it.

mod reports;

use jiff::Timestamp;
use serde_json::Value;
use sluice_crds::run::{ClusterBootstrap, ClusterBootstrapStatus, Hook};

pub use self::reports::GateReports;
use super::registration::Registration;
use crate::{protocol::Write, reasons::reasons, summary::conditions::with_gate_in_force, text::one_line};

/// Longest message, in characters.
const LONGEST: usize = 512;

/// Group of the hooks in `status.handlers`.
const HOOKS: &str = "hooks.runtime.cluster.x-k8s.io/";

reasons! {
    /// Reason why the gate of a Cluster is not in force, or why that is unknown.
    ///
    /// Later reasons are of an ExtensionConfig that is closer to being in force.
    NotInForceReason:
    /// No ExtensionConfig of Sluice exists.
    ExtensionConfigMissing,
    /// Cluster API has not discovered the hooks.
    NotDiscovered,
    /// The ExtensionConfig does not select the namespace.
    NamespaceNotSelected,
    /// Cluster API does not know all hooks that Sluice offers.
    HandlersMissing,
    /// Cluster API continues without an answer.
    FailurePolicyIgnore,
    /// The Cluster has no topology, so Cluster API calls no hooks for it.
    NoTopology,
    /// A version was written while its gate was not open.
    VersionUngated,
    /// ExtensionConfig or namespaces cannot be read.
    Unreadable,
}

impl NotInForceReason {
    /// Whether the gate may be in force.
    #[must_use]
    pub const fn is_unknown(self) -> bool {
        matches!(self, Self::Unreadable)
    }
}

/// Gate that is not in force, or may not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotInForce {
    /// The reason.
    pub reason: NotInForceReason,
    /// Object, field, value and way out, on one line.
    pub message: String,
    /// Whether Cluster API certainly upgrades the Cluster without waiting. Otherwise admission only warns.
    pub is_certain: bool,
}

impl NotInForce {
    /// Creates it with a message that is put on one line and cut.
    #[must_use]
    pub fn new(reason: NotInForceReason, message: &str) -> Self {
        Self {
            reason,
            message: one_line(message, LONGEST),
            is_certain: !reason.is_unknown(),
        }
    }

    /// Returns that of a Cluster without a topology.
    #[must_use]
    pub fn no_topology() -> Self {
        let message = "the Cluster has no spec.topology, so Cluster API calls no hooks for it and its upgrades do not wait; use a \
                       ClusterClass, or delete the ClusterBootstrap";
        Self::new(NotInForceReason::NoTopology, message)
    }
}

/// Whether the gate of a Cluster is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateInForce {
    /// It is.
    Yes,
    /// It is not, or that is unknown.
    No(NotInForce),
}

/// One ExtensionConfig of Sluice, as it was read.
#[derive(Debug, Clone)]
pub struct ReadConfig {
    /// Name.
    pub name: String,
    /// The object, if it exists, or the reason of a failed read.
    pub config: Result<Option<Value>, String>,
    /// Hooks that Sluice offers at the path of this ExtensionConfig.
    pub offered: Vec<Hook>,
}

impl ReadConfig {
    /// Returns its state.
    #[must_use]
    pub fn registration(&self) -> Registration {
        match &self.config {
            Ok(config) => Registration::of(config.as_ref()),
            Err(why) => Registration::unreadable(why),
        }
    }

    /// Returns the object if Cluster API calls the hooks. It keeps the handlers of an earlier discovery while a later one fails, and calls
    /// them with their failure policy.
    #[must_use]
    pub fn called(&self) -> Option<&Value> {
        let config = self.config.as_ref().ok()?.as_ref()?;
        let is_kept = !handlers(config).is_empty() && config["metadata"]["deletionTimestamp"].is_null();
        (is_kept || self.registration() == Registration::Discovered).then_some(config)
    }

    /// Returns the object if Cluster API has discovered the hooks.
    #[must_use]
    pub fn discovered(&self) -> Option<&Value> {
        let config = self.config.as_ref().ok()?.as_ref();
        config.filter(|_| self.registration() == Registration::Discovered)
    }

    /// Returns the reason why Cluster API does not call all hooks for a namespace, if so. `selects` tells whether the selector selects the
    /// namespace.
    fn not_in_force(
        &self,
        namespace: &str,
        selects: impl FnOnce() -> Result<bool, String>,
    ) -> Option<NotInForce> {
        use NotInForceReason::{ExtensionConfigMissing, NamespaceNotSelected, NotDiscovered, Unreadable};
        let name = &self.name;
        let not = |reason, message: String| Some(NotInForce::new(reason, &message));
        if let Some(config) = self.called() {
            return match selects() {
                Ok(true) => self.lacks(handlers(config)),
                Ok(false) => not(
                    NamespaceNotSelected,
                    format!(
                        "spec.namespaceSelector of ExtensionConfig {name} does not select namespace {namespace}; label the namespace, or \
                         change the selector"
                    ),
                ),
                Err(_) => not(
                    Unreadable,
                    format!(
                        "the namespaces that ExtensionConfig {name} selects are unknown; the log of Sluice has the cause"
                    ),
                ),
            };
        }
        match self.registration() {
            // The text of a failed request differs each time, and each difference would be a write.
            Registration::Unreadable(_) => not(
                Unreadable,
                format!("ExtensionConfig {name} cannot be read; the log of Sluice has the cause"),
            ),
            Registration::Undiscovered { reason, .. } => not(
                NotDiscovered,
                format!(
                    "Cluster API has not discovered the hooks of ExtensionConfig {name} ({reason}); see its condition Discovered and \
                     docs/install.md"
                ),
            ),
            Registration::Absent | Registration::Discovered => not(
                ExtensionConfigMissing,
                format!(
                    "ExtensionConfig {name} does not exist: Cluster API calls no hooks, and upgrades do not wait; apply the manifests of \
                     Sluice, or name the existing one by --extension-config"
                ),
            ),
        }
    }

    /// Returns the fault of the handlers that Cluster API calls, if any.
    fn lacks(&self, handlers: &[Value]) -> Option<NotInForce> {
        let name = &self.name;
        let has = |hook: &Hook| {
            handlers
                .iter()
                .any(|handler| hook_of(handler) == Some(hook.as_str()))
        };
        let missing: Vec<Hook> = self.offered.iter().copied().filter(|hook| !has(hook)).collect();
        if !missing.is_empty() {
            let hooks: Vec<&str> = missing.iter().map(|hook| hook.as_str()).collect();
            let message = format!(
                "status.handlers of ExtensionConfig {name} lacks {}; set spec.clientConfig.service.path for the version of Cluster API, and \
                 annotate the ExtensionConfig so that Cluster API discovers it again",
                hooks.join(", ")
            );
            return Some(NotInForce {
                is_certain: missing.iter().any(|hook| holds_upgrades(*hook)),
                ..NotInForce::new(NotInForceReason::HandlersMissing, &message)
            });
        }
        let ignored = ignored(handlers)?;
        let message = format!(
            "status.handlers of ExtensionConfig {name} has failurePolicy Ignore for {ignored}: Cluster API continues an upgrade when Sluice \
             does not answer; remove what changes the answer of Sluice to discovery"
        );
        Some(NotInForce::new(NotInForceReason::FailurePolicyIgnore, &message))
    }
}

/// Whether a gate holds calls of this hook during an upgrade.
const fn holds_upgrades(hook: Hook) -> bool {
    matches!(
        hook,
        Hook::BeforeClusterUpgrade
            | Hook::BeforeControlPlaneUpgrade
            | Hook::AfterControlPlaneUpgrade
            | Hook::BeforeWorkersUpgrade
    )
}

/// Returns the handlers that Cluster API has discovered.
fn handlers(config: &Value) -> &[Value] {
    config["status"]["handlers"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the hook of a handler in `status.handlers`, if it is one of Cluster API.
fn hook_of(handler: &Value) -> Option<&str> {
    let hook = &handler["requestHook"];
    let is_known = hook["apiVersion"].as_str()?.starts_with(HOOKS);
    hook["hook"].as_str().filter(|_| is_known)
}

/// Returns the first hook whose failed calls Cluster API ignores.
fn ignored(handlers: &[Value]) -> Option<&str> {
    let mut ignored = handlers
        .iter()
        .filter(|handler| handler["failurePolicy"] == "Ignore");
    ignored.find_map(hook_of)
}

/// Returns the reason why the gates of a namespace are not in force; `None` if one of the ExtensionConfigs puts them in force. Of several
/// reasons, one that leaves it unknown comes first, then that of the ExtensionConfig which is closest to being in force. `selects` tells
/// whether the selector of an ExtensionConfig whose hooks Cluster API calls selects the namespace.
#[must_use]
pub fn not_in_force(
    configs: &[ReadConfig],
    namespace: &str,
    selects: impl Fn(&ReadConfig) -> Result<bool, String>,
) -> Option<NotInForce> {
    let mut worst: Option<NotInForce> = None;
    for config in configs {
        let found = config.not_in_force(namespace, || selects(config))?;
        if worst.as_ref().is_none_or(|worst| worst.reason < found.reason) {
            worst = Some(found);
        }
    }
    worst
}

/// Returns the write of condition `GateInForce` of a Cluster that no reconcile covers, because it has no topology; `None` if the
/// ClusterBootstrap has the condition.
#[must_use]
pub fn write(bootstrap: &ClusterBootstrap, not: NotInForce, now: Timestamp) -> Option<Write> {
    let status = bootstrap.status.clone().unwrap_or_default();
    let gate = GateInForce::No(not);
    let conditions = with_gate_in_force(status.conditions.clone(), Some(&gate), &[], true, now);
    if conditions == status.conditions {
        return None;
    }
    let next = ClusterBootstrap {
        status: Some(ClusterBootstrapStatus { conditions, ..status }),
        ..bootstrap.clone()
    };
    Some(Write::status(&next, "the gate is not in force"))
}

#[cfg(test)]
mod tests;
