//! Whether Cluster API asks: what it says of the ExtensionConfigs that register this extension, and about which namespaces it asks.
//!
//! ExtensionConfigs are read as JSON: what the API server accepts in them beside these fields keeps none of it from being read.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use serde_json::Value;
use sluice_crds::foreign::condition::{Condition, find};

use crate::cluster::ClusterRef;

/// Bytes of a message of others that are repeated.
const LONGEST_MESSAGE: usize = 500;

/// So many namespaces are named.
const NAMED: usize = 5;

/// How one ExtensionConfig stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registration {
    /// It could not be read, and why. Nothing is known of it.
    Unreadable(String),
    /// There is none of the name.
    Absent,
    /// Cluster API does not call its hooks.
    Undiscovered {
        /// Of condition `Discovered`, or of what stands in its way.
        reason: String,
        /// In one line.
        message: String,
    },
    /// Cluster API calls its hooks.
    Discovered,
}

/// The namespaces that Cluster API asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All.
    AllNamespaces,
    /// Those that are selected now.
    Namespaces(BTreeSet<String>),
}

/// One thing that is found about the registration of this extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// How the ExtensionConfig of a name stands.
    Registered(String, Registration),
    /// Clusters have a ClusterBootstrap, and Cluster API does not ask about their namespaces.
    Unselected {
        /// How many Clusters.
        clusters: usize,
        /// Their namespaces, in order.
        namespaces: Vec<String>,
    },
    /// Which namespaces are selected could not be found out, and why.
    ScopeUnknown(String),
}

impl Registration {
    /// How an ExtensionConfig stands, if there is one.
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
            return undiscovered(
                "Deleting",
                "it is being deleted, and Cluster API asks nothing any more",
            );
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
                "Cluster API has not looked at it: the Secret of annotation runtime.cluster.x-k8s.io/inject-ca-from-secret is missing or \
                 has no ca.crt, or Cluster API does not run with feature gate RuntimeSDK; its log says which",
            );
        };
        if !condition.is_true() {
            return undiscovered(&condition.reason, &condition.message);
        }
        if observed.is_some_and(|observed| Some(observed) != config["metadata"]["generation"].as_i64()) {
            return undiscovered("Outdated", "Cluster API has not looked at its last change");
        }
        Self::Discovered
    }

    /// It could not be read.
    #[must_use]
    pub fn unreadable(why: impl fmt::Display) -> Self {
        Self::Unreadable(one_line(&why.to_string()))
    }

    /// Whether Cluster API has discovered the hooks; nothing where that is not known.
    #[must_use]
    pub fn is_discovered(&self) -> Option<bool> {
        match self {
            Self::Unreadable(_) => None,
            Self::Absent | Self::Undiscovered { .. } => Some(false),
            Self::Discovered => Some(true),
        }
    }
}

/// What an ExtensionConfig selects namespaces by; nothing where it selects all.
///
/// # Errors
/// What is wrong with the selector.
pub fn selector(config: &Value) -> Result<Option<Selector>, String> {
    let selector = config["spec"]["namespaceSelector"].clone();
    let refused = |error: &dyn fmt::Display| format!("spec.namespaceSelector: {error}");
    let selector: Option<LabelSelector> =
        serde_json::from_value(selector).map_err(|error| refused(&error))?;
    let selector = Selector::try_from(selector.unwrap_or_default()).map_err(|error| refused(&error))?;
    Ok((!selector.selects_all()).then_some(selector))
}

/// The finding about Clusters with a ClusterBootstrap, if there is one.
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
    /// Whether upgrades may wait for nothing, or fail, or it is not known.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        !matches!(self, Self::Registered(_, Registration::Discovered))
    }

    /// Whether none of these says the same. Messages of others may differ: they have ports and times.
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
                "ExtensionConfig {name} cannot be read, so whether Cluster API asks is not known: {why}"
            ),
            Self::Registered(name, Registration::Absent) => write!(
                f,
                "ExtensionConfig {name} does not exist: Cluster API asks nothing, and upgrades wait for nothing; apply \
                 manifests/base/extension-config.yaml, or name the one that there is by --extension-config"
            ),
            Self::Registered(name, Registration::Undiscovered { reason, message }) => write!(
                f,
                "Cluster API has not discovered the hooks of ExtensionConfig {name} ({reason}: {message}); section \"What goes wrong\" of \
                 docs/install.md says what to do"
            ),
            Self::Registered(name, Registration::Discovered) => {
                write!(
                    f,
                    "Cluster API has discovered the hooks of ExtensionConfig {name}"
                )
            }
            Self::ScopeUnknown(why) => {
                let why = one_line(why);
                write!(f, "which namespaces ExtensionConfigs select is not known: {why}")
            }
            Self::Unselected { clusters, namespaces } => {
                let named: Vec<&str> = namespaces.iter().take(NAMED).map(String::as_str).collect();
                write!(
                    f,
                    "upgrades of Clusters with a ClusterBootstrap ({clusters}) wait for nothing, because no ExtensionConfig that is discovered \
                     selects their namespaces: {}",
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

/// A text without line ends, not too long.
fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.truncate(line.floor_char_boundary(LONGEST_MESSAGE));
    line
}

#[cfg(test)]
mod tests;
