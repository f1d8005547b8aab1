//! Variables of expressions.

use serde_json::{Value, json};

/// Variable of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// Object of the check.
    Object,
    /// Expected version; empty without `versionKey`.
    Version,
    /// Kubernetes version that the Cluster takes next: `version` and `minor`.
    Hop,
    /// Cluster: `name`, `namespace`, `labels` and `annotations`.
    Cluster,
}

impl Variable {
    pub(super) const ALL: [Self; 4] = [Self::Object, Self::Version, Self::Hop, Self::Cluster];

    /// Returns the name in expressions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Version => "version",
            Self::Hop => "hop",
            Self::Cluster => "cluster",
        }
    }

    /// Returns the variable with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variable| variable.name() == name)
    }
}

/// Values of the variables.
#[derive(Clone, Copy, Debug)]
pub struct Variables<'a> {
    /// Object of the check, as its API server returned it.
    pub object: &'a Value,
    /// Expected version; empty without `versionKey`.
    pub version: &'a str,
    /// Kubernetes version that the Cluster takes next.
    pub hop: &'a str,
    /// Cluster, as the management API server returned it; needed only by an expression that uses it.
    pub cluster: Option<&'a Value>,
}

/// Value of a variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound<'v> {
    pub(super) variable: Variable,
    pub(super) json: &'v Value,
}

/// Values that are not part of an object.
#[derive(Debug)]
pub(super) struct Made {
    version: Value,
    hop: Value,
    cluster: Option<Value>,
}

impl Made {
    /// Makes the values of the variables.
    pub(super) fn of(variables: &Variables<'_>) -> Self {
        let minor = crate::gates::compiled::minor_of(variables.hop).unwrap_or_default();
        Self {
            version: json!(variables.version),
            hop: json!({"version": variables.hop, "minor": minor}),
            cluster: variables.cluster.map(|cluster| {
                let metadata = &cluster["metadata"];
                // A Cluster without labels has an empty map of them, so that `in` works.
                let texts = |field: &str| match &metadata[field] {
                    Value::Object(texts) => Value::Object(texts.clone()),
                    _ => json!({}),
                };
                json!({
                    "name": metadata["name"],
                    "namespace": metadata["namespace"],
                    "labels": texts("labels"),
                    "annotations": texts("annotations"),
                })
            }),
        }
    }

    /// Returns all variables that have a value.
    pub(super) fn bound<'v>(&'v self, object: &'v Value) -> Vec<Bound<'v>> {
        let bound = |variable, json| Bound { variable, json };
        let mut all = vec![
            bound(Variable::Object, object),
            bound(Variable::Version, &self.version),
            bound(Variable::Hop, &self.hop),
        ];
        all.extend(
            self.cluster
                .as_ref()
                .map(|cluster| bound(Variable::Cluster, cluster)),
        );
        all
    }
}
