//! Clauses that all kinds have, or all that observe generations or run containers.

use sluice_crds::labels::label::CAPI_CLUSTER_NAME;

use super::clause::{Clause, Seen};
use super::image::{container, has_version};
use super::object::{is_deleting, is_observed, is_set, label, mistyped, text};
use super::verdict::Verdict;
use crate::reasons::CheckReason;

/// The object exists.
pub(super) const EXISTS: Clause = Clause {
    name: "exists",
    met: |seen| seen.object.is_some(),
    objection: |seen| {
        Verdict::waiting(
            CheckReason::ObjectNotFound,
            format!("{} does not exist", seen.name()),
        )
    },
};

/// Each field that a clause reads has its type. Otherwise a clause about a field that is usually absent would be met.
pub(super) const TYPED: Clause = Clause {
    name: "typed",
    met: |seen| mistyped(seen.object(), seen.judge.fields).is_none(),
    objection: |seen| {
        let wrong = mistyped(seen.object(), seen.judge.fields).unwrap_or_default();
        Verdict::waiting(CheckReason::NotObserved, format!("{}: {wrong}", seen.name()))
    },
};

/// The object is the one that the check names. One of a cluster-scoped kind has no namespace.
pub(super) const NAMED: Clause = Clause {
    name: "named",
    met: |seen| {
        let object = seen.object();
        text(object, "/metadata/name") == Some(seen.expected.name)
            && text(object, "/metadata/namespace").unwrap_or_default() == seen.expected.namespace
    },
    objection: |seen| {
        Verdict::waiting(
            CheckReason::BelongsElsewhere,
            format!("another object was read than {}", seen.name()),
        )
    },
};

/// The object has no label of another Cluster.
pub(super) const BELONGS: Clause = Clause {
    name: "belongs",
    met: |seen| {
        label(seen.object(), CAPI_CLUSTER_NAME).is_none_or(|cluster| cluster == seen.expected.cluster)
    },
    objection: |seen| {
        Verdict::waiting(
            CheckReason::BelongsElsewhere,
            format!(
                "label {CAPI_CLUSTER_NAME} of {} names another Cluster",
                seen.name()
            ),
        )
    },
};

/// The object is not being deleted.
pub(super) const NOT_DELETING: Clause = Clause {
    name: "not deleting",
    met: |seen| !is_deleting(seen.object()),
    objection: |seen| {
        Verdict::waiting(
            CheckReason::ObjectDeleting,
            format!("{} is being deleted", seen.name()),
        )
    },
};

/// The image of the container has the expected version.
pub(super) const AT_VERSION: Clause = Clause {
    name: "at version",
    met: |seen| {
        let Some(version) = seen.expected.version else {
            return true;
        };
        let image = seen
            .expected
            .container
            .and_then(|name| container(seen.object(), name))
            .and_then(|container| text(container, "/image"));
        image.is_some_and(|image| has_version(image, version))
    },
    objection: |seen| {
        let (object, name) = (seen.name(), seen.expected.container.unwrap_or_default());
        let message = match container(seen.object(), name) {
            Some(_) => format!("container {name} of {object} is not at {}", seen.version()),
            None => format!("{object} has no container {name}"),
        };
        Verdict::waiting(CheckReason::NotAtVersion, message)
    },
};

/// The controller has observed the latest generation.
pub(super) const OBSERVED: Clause = Clause {
    name: "observed",
    met: |seen| is_observed(seen.object()),
    objection: unobserved,
};

/// The controller has observed the latest generation, if the status tells which one it has observed.
pub(super) const OBSERVED_IF_REPORTED: Clause = Clause {
    name: "observed",
    met: |seen| {
        let object = seen.object();
        !is_set(object, "/status/observedGeneration") || is_observed(object)
    },
    objection: unobserved,
};

fn unobserved(seen: &Seen<'_>) -> Verdict {
    Verdict::waiting(
        CheckReason::NotObserved,
        format!("the latest generation of {} is not observed", seen.name()),
    )
}
