//! Whether Cluster API asks: what it says of the ExtensionConfigs that register this extension, and about which namespaces it asks.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{DynamicObject, Selector};
use sluice_crds::foreign::condition::{Condition, find};

use crate::cluster::ClusterRef;

/// Bytes of a message of Cluster API that are repeated.
const LONGEST_MESSAGE: usize = 500;

/// So many namespaces are named.
const NAMED: usize = 5;

/// How one ExtensionConfig stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registration {
    /// There is none of the name.
    Absent,
    /// Cluster API does not know its hooks.
    Undiscovered {
        /// Of condition `Discovered`; empty without one.
        reason: String,
        /// In one line.
        message: String,
    },
    /// Cluster API calls its hooks.
    Discovered,
}

/// The namespaces that Cluster API asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// All.
    Everywhere,
    /// Those that are selected now.
    In(BTreeSet<String>),
}

/// What there is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// How the ExtensionConfig of a name stands.
    Registered(String, Registration),
    /// Clusters of these namespaces have a ClusterBootstrap, and Cluster API does not ask about them.
    Unasked {
        /// How many.
        clusters: usize,
        /// In their order.
        namespaces: Vec<String>,
    },
}

impl Registration {
    /// How an ExtensionConfig stands, if there is one.
    #[must_use]
    pub fn of(config: Option<&DynamicObject>) -> Self {
        let Some(config) = config else {
            return Self::Absent;
        };
        let conditions: Vec<Condition> =
            serde_json::from_value(config.data["status"]["conditions"].clone()).unwrap_or_default();
        match find(&conditions, "Discovered") {
            Some(condition) if condition.is_true() => Self::Discovered,
            condition => {
                let Condition { reason, message, .. } = condition.cloned().unwrap_or_default();
                Self::Undiscovered {
                    reason,
                    message: one_line(&message),
                }
            }
        }
    }
}

/// What an ExtensionConfig selects namespaces by; nothing where it selects all.
#[must_use]
pub fn selector(config: &DynamicObject) -> Option<Selector> {
    let selector: LabelSelector =
        serde_json::from_value(config.data["spec"]["namespaceSelector"].clone()).unwrap_or_default();
    let selector = Selector::try_from(selector).ok()?;
    (!selector.selects_all()).then_some(selector)
}

/// What there is to say of ExtensionConfigs, and of Clusters with a ClusterBootstrap.
#[must_use]
pub fn findings(
    registrations: Vec<(String, Registration)>,
    asked: &Asked,
    clusters: &[ClusterRef],
) -> Vec<Finding> {
    let discovered = registrations
        .iter()
        .any(|(_, registration)| *registration == Registration::Discovered);
    let registered = registrations
        .into_iter()
        .map(|(name, registration)| Finding::Registered(name, registration));
    let mut findings: Vec<Finding> = registered.collect();
    // Of one that is not discovered more need not be said.
    if let Asked::In(namespaces) = asked
        && discovered
    {
        let unasked: Vec<&str> = clusters
            .iter()
            .map(ClusterRef::namespace)
            .filter(|namespace| !namespaces.contains(*namespace))
            .collect();
        let namespaces: BTreeSet<&str> = unasked.iter().copied().collect();
        if !unasked.is_empty() {
            findings.push(Finding::Unasked {
                clusters: unasked.len(),
                namespaces: namespaces.into_iter().map(str::to_owned).collect(),
            });
        }
    }
    findings
}

impl Finding {
    /// Whether upgrades may wait for nothing, or fail.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        !matches!(self, Self::Registered(_, Registration::Discovered))
    }

    /// Whether none of these says the same. Messages may differ: they have ports and times.
    #[must_use]
    pub fn is_new(&self, before: &[Self]) -> bool {
        let same = |other: &Self| match (self, other) {
            (
                Self::Registered(name, Registration::Undiscovered { reason, .. }),
                Self::Registered(other, Registration::Undiscovered { reason: before, .. }),
            ) => name == other && reason == before,
            _ => self == other,
        };
        !before.iter().any(same)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
            Self::Unasked { clusters, namespaces } => {
                let named: Vec<&str> = namespaces.iter().take(NAMED).map(String::as_str).collect();
                write!(
                    f,
                    "upgrades of {clusters} Clusters with a ClusterBootstrap wait for nothing, because no ExtensionConfig selects their \
                     namespaces: {}",
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(spec: &Value, conditions: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "runtime.cluster.x-k8s.io/v1beta2",
            "kind": "ExtensionConfig",
            "metadata": {"name": "sluice"},
            "spec": spec,
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn stands(conditions: &Value) -> Finding {
        let config = config(&json!({}), conditions);
        Finding::Registered("sluice".to_owned(), Registration::of(Some(&config)))
    }

    fn undiscovered(reason: &str, message: &str) -> Finding {
        stands(&json!([{"type": "Discovered", "status": "False", "reason": reason, "message": message}]))
    }

    fn clusters(names: &[(&str, &str)]) -> Vec<ClusterRef> {
        names
            .iter()
            .map(|(namespace, name)| ClusterRef::new(namespace, name))
            .collect()
    }

    #[test]
    fn each_finding_is_one_line_with_a_way_out() {
        let absent = Finding::Registered("sluice".to_owned(), Registration::of(None));
        let refused = undiscovered("NotDiscovered", "dial tcp:\n  connection refused");
        let silent = stands(&json!([]));
        let discovered = stands(&json!([{"type": "Discovered", "status": "True", "reason": "Discovered"}]));
        let unasked = Finding::Unasked {
            clusters: 9,
            namespaces: ["a", "b", "c", "d", "e", "f", "g"].map(str::to_owned).to_vec(),
        };
        for (finding, trouble, text) in [
            (absent, true, "ExtensionConfig sluice does not exist"),
            (
                refused,
                true,
                "sluice (NotDiscovered: dial tcp: connection refused); section",
            ),
            (silent, true, "Cluster API has not discovered the hooks"),
            (
                discovered,
                false,
                "has discovered the hooks of ExtensionConfig sluice",
            ),
            (
                unasked,
                true,
                "9 Clusters with a ClusterBootstrap wait for nothing, because no ExtensionConfig selects their namespaces: \
                 a, b, c, d, e and 2 more; label",
            ),
        ] {
            assert_eq!(finding.is_trouble(), trouble, "{finding}");
            let line = finding.to_string();
            assert!(line.contains(text) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn conditions_of_another_type_are_no_discovery() {
        assert!(stands(&json!("none")).is_trouble());
        assert!(stands(&json!([{"type": "Discovered", "status": true}])).is_trouble());
        assert!(stands(&json!([{"type": "Ready", "status": "True"}])).is_trouble());
    }

    #[test]
    fn a_finding_is_said_once() {
        let before = [undiscovered("NotDiscovered", "port 1"), stands(&json!([]))];
        assert!(!undiscovered("NotDiscovered", "port 2").is_new(&before));
        assert!(undiscovered("Other", "port 1").is_new(&before));
        let discovered = Finding::Registered("sluice".to_owned(), Registration::Discovered);
        assert!(discovered.is_new(&before));
        assert!(!discovered.is_new(std::slice::from_ref(&discovered)));
    }

    #[test]
    fn selectors_are_those_of_namespaces() {
        let of = |spec: Value| selector(&config(&spec, &json!([]))).map(|selector| selector.to_string());
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({"namespaceSelector": {}})), None);
        assert_eq!(
            of(json!({"namespaceSelector": {"matchLabels": {"a": "b"}}})),
            Some("a=b".to_owned())
        );
        let expression =
            json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["x", "y"]});
        assert_eq!(
            of(json!({"namespaceSelector": {"matchExpressions": [expression]}})),
            Some("kubernetes.io/metadata.name in (x,y)".to_owned())
        );
    }

    #[test]
    fn clusters_that_nothing_asks_about_are_counted() {
        let clusters = clusters(&[("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")]);
        let discovered = || vec![("sluice".to_owned(), Registration::Discovered)];
        let in_a = Asked::In(BTreeSet::from(["a".to_owned()]));
        let found = findings(discovered(), &in_a, &clusters);
        let unasked = Finding::Unasked {
            clusters: 2,
            namespaces: vec!["b".to_owned(), "c".to_owned()],
        };
        assert_eq!(found.last(), Some(&unasked));
        assert_eq!(findings(discovered(), &Asked::Everywhere, &clusters).len(), 1);
        assert_eq!(findings(discovered(), &in_a, &clusters[..2]).len(), 1);
        let absent = vec![("sluice".to_owned(), Registration::Absent)];
        assert_eq!(findings(absent, &in_a, &clusters).len(), 1);
    }
}
