//! Registration of this extension: state of its ExtensionConfigs, and the namespaces for which Cluster API calls its hooks.
//!
//! ExtensionConfigs are read as JSON, so no other field that the API server accepts can make one unreadable.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde_json::Value;
use sluice_crds::foreign::condition::{Condition, find};

use crate::cluster::ClusterRef;

/// Longest repeated message of another component, in bytes.
const LONGEST_MESSAGE: usize = 500;

/// Maximum number of namespaces in a message.
const NAMED: usize = 5;

/// State of one ExtensionConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registration {
    /// The read failed for this reason, so the state is unknown.
    Unreadable(String),
    /// The ExtensionConfig does not exist.
    Absent,
    /// Cluster API does not call its hooks.
    Undiscovered {
        /// Reason of condition `Discovered`, or of the obstacle to discovery.
        reason: String,
        /// Message, on one line.
        message: String,
    },
    /// Cluster API calls its hooks.
    Discovered,
}

/// Namespaces for which Cluster API calls the hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces.
    AllNamespaces,
    /// The currently selected namespaces.
    Namespaces(BTreeSet<String>),
}

/// Finding about the registration of this extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// State of the ExtensionConfig with this name.
    Registered(String, Registration),
    /// Clusters have a ClusterBootstrap, but Cluster API calls no hooks for their namespaces.
    Unselected {
        /// Number of Clusters.
        clusters: usize,
        /// Their namespaces, in order.
        namespaces: Vec<String>,
    },
    /// The selected namespaces are unknown for this reason.
    ScopeUnknown(String),
}

impl Registration {
    /// Returns the state of an ExtensionConfig.
    #[must_use]
    pub fn of(config: Option<&Value>) -> Self {
        let Some(config) = config else {
            return Self::Absent;
        };
        let undiscovered = |reason: &str, message: &str| Self::Undiscovered {
            reason: reason.to_owned(),
            message: one_line(message),
        };
        if !config["metadata"]["deletionTimestamp"].is_null() {
            return undiscovered("Deleting", "it is being deleted, so Cluster API calls no hooks");
        }
        let conditions = &config["status"]["conditions"];
        let observed = conditions
            .as_array()
            .and_then(|all| all.iter().find(|condition| condition["type"] == "Discovered"))
            .and_then(|condition| condition["observedGeneration"].as_i64());
        let conditions: Vec<Condition> = serde_json::from_value(conditions.clone()).unwrap_or_default();
        let Some(condition) = find(&conditions, "Discovered") else {
            return undiscovered(
                "NoCondition",
                "Cluster API has not reconciled it: the Secret of annotation runtime.cluster.x-k8s.io/inject-ca-from-secret is missing or \
                 has no ca.crt, or Cluster API does not run with feature gate RuntimeSDK; see its log",
            );
        };
        if !condition.is_true() {
            return undiscovered(&condition.reason, &condition.message);
        }
        if observed.is_some_and(|observed| Some(observed) != config["metadata"]["generation"].as_i64()) {
            return undiscovered("Outdated", "Cluster API has not observed its latest change");
        }
        Self::Discovered
    }

    /// Creates the state of a failed read.
    #[must_use]
    pub fn unreadable(why: impl fmt::Display) -> Self {
        Self::Unreadable(one_line(&why.to_string()))
    }

    /// Whether Cluster API has discovered the hooks; `None` if unknown.
    #[must_use]
    pub fn is_discovered(&self) -> Option<bool> {
        match self {
            Self::Unreadable(_) => None,
            Self::Absent | Self::Undiscovered { .. } => Some(false),
            Self::Discovered => Some(true),
        }
    }
}

/// Namespaces that `spec.namespaceSelector` of an ExtensionConfig selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selected {
    /// None: the field is absent. The webhook of Cluster API sets an empty selector, so only an object that was stored without it lacks the
    /// field.
    NoNamespace,
    /// All.
    AllNamespaces,
    /// Those with these labels.
    Matching(Selector),
}

/// Returns the namespaces that an ExtensionConfig selects.
///
/// # Errors
/// The fault of the selector.
pub fn selected(config: &Value) -> Result<Selected, String> {
    let selector = config["spec"]["namespaceSelector"].clone();
    let refused = |error: &dyn fmt::Display| format!("spec.namespaceSelector: {error}");
    let selector: Option<LabelSelector> =
        serde_json::from_value(selector).map_err(|error| refused(&error))?;
    let Some(selector) = selector else {
        return Ok(Selected::NoNamespace);
    };
    let selector = Selector::try_from(selector).map_err(|error| refused(&error))?;
    Ok(if selector.selects_all() {
        Selected::AllNamespaces
    } else {
        Selected::Matching(selector)
    })
}

/// Returns the reason for which Cluster API calls no hook for Clusters of this namespace; `None` if it does. Without a discovered
/// ExtensionConfig there is no scope.
#[must_use]
pub fn unasked(scope: Option<&Scope>, namespace: &str) -> Option<String> {
    match scope {
        None => Some("Cluster API has discovered no ExtensionConfig of Sluice; the log of Sluice says why".to_owned()),
        Some(Scope::AllNamespaces) => None,
        Some(Scope::Namespaces(selected)) => (!selected.contains(namespace)).then(|| {
            format!(
                "no ExtensionConfig of Sluice selects namespace {namespace}; label the namespace, or change spec.namespaceSelector of the \
                 ExtensionConfig"
            )
        }),
    }
}

/// Returns the finding about Clusters with a ClusterBootstrap in unselected namespaces, if any.
#[must_use]
pub fn unselected(scope: &Scope, clusters: &[ClusterRef]) -> Option<Finding> {
    let Scope::Namespaces(selected) = scope else {
        return None;
    };
    let unselected: Vec<&str> = clusters
        .iter()
        .map(ClusterRef::namespace)
        .filter(|namespace| !selected.contains(*namespace))
        .collect();
    let namespaces: BTreeSet<&str> = unselected.iter().copied().collect();
    (!unselected.is_empty()).then(|| Finding::Unselected {
        clusters: unselected.len(),
        namespaces: namespaces.into_iter().map(str::to_owned).collect(),
    })
}

impl Finding {
    /// Whether upgrades may proceed ungated or fail, or the state is unknown.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        !matches!(self, Self::Registered(_, Registration::Discovered))
    }

    /// Whether none of these findings is the same. Messages of other components may differ, because they contain ports and times.
    #[must_use]
    pub fn is_new(&self, before: &[Self]) -> bool {
        use Registration::{Undiscovered, Unreadable};
        let same = |other: &Self| match (self, other) {
            (Self::Registered(name, now), Self::Registered(other, before)) => {
                name == other
                    && match (now, before) {
                        (Undiscovered { reason, .. }, Undiscovered { reason: before, .. }) => {
                            reason == before
                        }
                        (Unreadable(_), Unreadable(_)) => true,
                        _ => now == before,
                    }
            }
            (Self::ScopeUnknown(_), Self::ScopeUnknown(_)) => true,
            _ => self == other,
        };
        !before.iter().any(same)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registered(name, Registration::Unreadable(why)) => write!(
                f,
                "ExtensionConfig {name} cannot be read, so it is unknown whether Cluster API calls hooks: {why}"
            ),
            Self::Registered(name, Registration::Absent) => write!(
                f,
                "ExtensionConfig {name} does not exist: Cluster API calls no hooks, and upgrades are not held; apply \
                 manifests/base/extension-config.yaml, or name the existing one by --extension-config"
            ),
            Self::Registered(name, Registration::Undiscovered { reason, message }) => write!(
                f,
                "Cluster API has not discovered the hooks of ExtensionConfig {name} ({reason}: {message}); see section \"What goes wrong\" of \
                 docs/install.md"
            ),
            Self::Registered(name, Registration::Discovered) => {
                write!(
                    f,
                    "Cluster API has discovered the hooks of ExtensionConfig {name}"
                )
            }
            Self::ScopeUnknown(why) => {
                let why = one_line(why);
                write!(
                    f,
                    "the namespaces that ExtensionConfigs select are unknown: {why}"
                )
            }
            Self::Unselected { clusters, namespaces } => {
                let named: Vec<&str> = namespaces.iter().take(NAMED).map(String::as_str).collect();
                write!(
                    f,
                    "upgrades of Clusters with a ClusterBootstrap or a ClusterUpgrade ({clusters}) are not held, because no discovered ExtensionConfig selects \
                     their namespaces: {}",
                    named.join(", ")
                )?;
                if let Some(more @ 1..) = namespaces.len().checked_sub(NAMED) {
                    write!(f, " and {more} more")?;
                }
                write!(
                    f,
                    "; label the namespaces, or change spec.namespaceSelector of the ExtensionConfig"
                )
            }
        }
    }
}

/// Shortens a text and puts it on one line.
fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.truncate(line.floor_char_boundary(LONGEST_MESSAGE));
    line
}

#[cfg(test)]
mod tests;
