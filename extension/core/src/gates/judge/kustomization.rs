//! Kustomization of kustomize-controller v1.9: it has applied the revision that its source has now, and that is the expected one.
//!
//! - A new revision changes the source, and neither the generation nor a condition of the Kustomization until it is reconciled. So the
//!   source is read as well.
//! - A revision is `v1.18.2@sha1:…`, `main@sha1:…`, `refs/tags/v1.18.2@sha1:…` or `v1.18.2@sha256:…`, or only a digest where the source
//!   names a commit, a digest or a bucket.
//! - source-controller writes `status.observedGeneration` of a source that is suspended or stalled, and keeps its earlier artifact.
//! - The controller writes `status.observedGeneration` of a Kustomization only after a success, so failures are reported before it is
//!   compared.
//! - A Job that fails can leave a Kustomization ready (kustomize-controller #553, #686): it proves that manifests were applied.

use serde_json::Value;

use super::clause::{Clause, Judge, Seen, of_check};
use super::common::{BELONGS, EXISTS, EXPRESSION, NAMED, NOT_DELETING, OBSERVED, TYPED};
use super::flux::{NOT_RECONCILING, NOT_STALLED, NOT_SUSPENDED, OF_THE_CLUSTER, READY, failed, in_progress};
use super::kind::RelatedObject;
use super::object::{
    Field, Type, condition, detail, flag, is_deleting, is_observed, is_set, mistyped, reason, text,
};
use super::verdict::{Expected, Verdict};
use crate::names::is_object_name;
use crate::protocol::Server;
use crate::reasons::CheckReason;

/// Group and version of sources. kustomize-controller ignores the `apiVersion` of a reference.
const SOURCES: &str = "source.toolkit.fluxcd.io/v1";

/// Kind of other controllers than those of Flux. Its status has no observed generation.
const EXTERNAL_ARTIFACT: &str = "ExternalArtifact";

/// Kinds of sources.
const KINDS: [&str; 4] = ["GitRepository", "OCIRepository", "Bucket", EXTERNAL_ARTIFACT];

const REVISION: &str = "/status/artifact/revision";

const APPLIED: &str = "/status/lastAppliedRevision";

const ATTEMPTED: &str = "/status/lastAttemptedRevision";

/// Reasons of `Ready=False` for a failure. Others wait for another object or for the next reconcile.
const FAILURES: [&str; 6] = [
    "ArtifactFailed",
    "BuildFailed",
    "DecryptionFailed",
    "HealthCheckFailed",
    "PruneFailed",
    "ReconciliationFailed",
];

/// Fields of a source that the clauses read.
const SOURCE_FIELDS: &[Field] = &[
    ("/spec/suspend", Type::Flag),
    ("/status/observedGeneration", Type::Number),
    ("/status/artifact", Type::Map),
    (REVISION, Type::Text),
];

pub(super) static JUDGE: Judge = Judge {
    api_version: "kustomize.toolkit.fluxcd.io/v1",
    kind: "Kustomization",
    delivers: true,
    fields: &[
        ("/spec/suspend", Type::Flag),
        ("/spec/kubeConfig", Type::Map),
        ("/spec/kubeConfig/secretRef", Type::Map),
        ("/spec/kubeConfig/secretRef/name", Type::Text),
        ("/spec/sourceRef", Type::Map),
        ("/spec/sourceRef/kind", Type::Text),
        ("/spec/sourceRef/namespace", Type::Text),
        ("/spec/sourceRef/name", Type::Text),
        ("/status/observedGeneration", Type::Number),
        (APPLIED, Type::Text),
        (ATTEMPTED, Type::Text),
    ],
    clauses: &[
        EXISTS,
        TYPED,
        NAMED,
        BELONGS,
        NOT_DELETING,
        OF_THE_CLUSTER,
        NOT_SUSPENDED,
        SOURCE_NAMED,
        SOURCE_OF_THE_NAMESPACE,
        SOURCE_EXISTS,
        SOURCE_TYPED,
        SOURCE_NOT_DELETING,
        SOURCE_NOT_SUSPENDED,
        SOURCE_NOT_STALLED,
        SOURCE_OBSERVED,
        AT_VERSION,
        REVISION_ATTEMPTED,
        NOT_STALLED,
        NOT_FAILED,
        OBSERVED,
        REVISION_APPLIED,
        READY,
        NOT_RECONCILING,
        EXPRESSION,
    ],
    proving: of_check,
};

/// The Kustomization names a source of a known kind.
const SOURCE_NAMED: Clause = Clause {
    name: "source named",
    met: |seen| named_source(seen.expected, seen.object()).is_some(),
    objection: |seen| {
        let message = format!(
            "spec.sourceRef of {} does not name a source of kind {}",
            seen.name(),
            KINDS.join(", ")
        );
        Verdict::waiting(CheckReason::ObjectNotFound, message)
    },
};

/// On the management cluster, the source is in the namespace of the Cluster. Others are not read.
const SOURCE_OF_THE_NAMESPACE: Clause = Clause {
    name: "source of the namespace",
    met: |seen| source_of(seen.expected, seen.object()).is_some(),
    objection: |seen| {
        let message = format!(
            "spec.sourceRef of {} names a source of another namespace",
            seen.name()
        );
        Verdict::waiting(CheckReason::BelongsElsewhere, message)
    },
};

/// The source exists.
const SOURCE_EXISTS: Clause = Clause {
    name: "source exists",
    met: |seen| source(seen).is_some(),
    objection: |seen| {
        let message = format!("{} of {} does not exist", source_name(seen), seen.name());
        Verdict::waiting(CheckReason::ObjectNotFound, message)
    },
};

/// Each field of the source that a clause reads has its type.
const SOURCE_TYPED: Clause = Clause {
    name: "source typed",
    met: |seen| source(seen).is_some_and(|source| mistyped(source, SOURCE_FIELDS).is_none()),
    objection: |seen| {
        let wrong = source(seen).and_then(|source| mistyped(source, SOURCE_FIELDS));
        let message = format!("{}: {}", source_name(seen), wrong.unwrap_or_default());
        Verdict::waiting(CheckReason::NotObserved, message)
    },
};

/// The source is not being deleted.
const SOURCE_NOT_DELETING: Clause = Clause {
    name: "source not deleting",
    met: |seen| source(seen).is_some_and(|source| !is_deleting(source)),
    objection: |seen| {
        let message = format!("{} is being deleted", source_name(seen));
        Verdict::waiting(CheckReason::ObjectDeleting, message)
    },
};

/// The source is not suspended.
const SOURCE_NOT_SUSPENDED: Clause = Clause {
    name: "source not suspended",
    met: |seen| source(seen).is_some_and(|source| !flag(source, "/spec/suspend")),
    objection: |seen| {
        let message = format!("{} is suspended", source_name(seen));
        Verdict::waiting(CheckReason::DeliverySuspended, message)
    },
};

/// source-controller has not given up.
const SOURCE_NOT_STALLED: Clause = Clause {
    name: "source not stalled",
    met: |seen| source(seen).is_some_and(|source| condition(source, "Stalled", "True").is_none()),
    objection: |seen| Verdict::Failed {
        reason: CheckReason::DeliveryFailed,
        message: format!("{} failed", source_name(seen)),
        detail: of_source(seen),
    },
};

/// The latest generation of the source is observed.
const SOURCE_OBSERVED: Clause = Clause {
    name: "source observed",
    met: |seen| {
        let reports = text(seen.object(), "/spec/sourceRef/kind") != Some(EXTERNAL_ARTIFACT);
        source(seen).is_some_and(|source| {
            is_observed(source) || !reports && !is_set(source, "/status/observedGeneration")
        })
    },
    objection: |seen| {
        let message = format!("the latest generation of {} is not observed", source_name(seen));
        Verdict::waiting(CheckReason::NotObserved, message).with_detail(of_source(seen))
    },
};

/// The source has the expected version.
const AT_VERSION: Clause = Clause {
    name: "at version",
    met: |seen| {
        let revision = source(seen).and_then(|source| text(source, REVISION));
        seen.expected
            .version
            .is_none_or(|version| revision.is_some_and(|revision| has_version(revision, version)))
    },
    objection: |seen| {
        let message = format!("{} is not at {}", source_name(seen), seen.version());
        Verdict::waiting(CheckReason::NotAtVersion, message).with_detail(of_source(seen))
    },
};

/// kustomize-controller has attempted the revision of the source.
const REVISION_ATTEMPTED: Clause = Clause {
    name: "revision attempted",
    met: |seen| {
        let attempted = text(seen.object(), ATTEMPTED);
        attempted.is_some() && attempted == source(seen).and_then(|source| text(source, REVISION))
    },
    objection: |seen| {
        let (name, source) = (seen.name(), source_name(seen));
        in_progress(seen, format!("{name} is not at the revision of {source}"))
    },
};

/// The last reconcile has not failed.
const NOT_FAILED: Clause = Clause {
    name: "not failed",
    met: |seen| reason(seen.object(), "Ready", "False").is_none_or(|reason| !FAILURES.contains(&reason)),
    objection: failed,
};

/// kustomize-controller has applied the revision that it attempted.
const REVISION_APPLIED: Clause = Clause {
    name: "revision applied",
    met: |seen| {
        let applied = text(seen.object(), APPLIED);
        applied.is_some() && applied == text(seen.object(), ATTEMPTED)
    },
    objection: |seen| {
        in_progress(
            seen,
            format!("{} has not applied its latest revision", seen.name()),
        )
    },
};

/// Returns the source that a Kustomization names, if it may be read.
pub(super) fn source_of(expected: &Expected<'_>, kustomization: &Value) -> Option<RelatedObject> {
    named_source(expected, kustomization)
        .filter(|source| expected.server == Server::Workload || source.namespace == expected.namespace)
}

/// Returns the source that a Kustomization names. Its names become parts of a path, and the definition of the kind does not check them.
fn named_source(expected: &Expected<'_>, kustomization: &Value) -> Option<RelatedObject> {
    let named = text(kustomization, "/spec/sourceRef/kind")?;
    let kind = KINDS.into_iter().find(|kind| *kind == named)?;
    let name = text(kustomization, "/spec/sourceRef/name")?;
    let namespace = text(kustomization, "/spec/sourceRef/namespace")
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or(expected.namespace);
    (is_object_name(name) && is_object_name(namespace)).then(|| RelatedObject {
        api_version: SOURCES,
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Returns the source as its API server returned it.
fn source<'a>(seen: &Seen<'a>) -> Option<&'a Value> {
    let named = source_of(seen.expected, seen.object())?;
    seen.related.iter().find(|source| {
        text(source, "/metadata/name") == Some(named.name.as_str())
            && text(source, "/metadata/namespace") == Some(named.namespace.as_str())
    })
}

/// Returns kind and name of the source for messages, `GitRepository addons`.
fn source_name(seen: &Seen<'_>) -> String {
    let Some(RelatedObject {
        kind,
        namespace,
        name,
        ..
    }) = source_of(seen.expected, seen.object())
    else {
        return String::new();
    };
    if seen.expected.server == Server::Management {
        format!("{kind} {name}")
    } else {
        format!("{kind} {namespace}/{name}")
    }
}

/// Returns the condition of the source that explains why it has no later artifact.
fn of_source(seen: &Seen<'_>) -> String {
    let conditions = [
        ("FetchFailed", "True"),
        ("Ready", "False"),
        ("Stalled", "True"),
        ("Reconciling", "True"),
    ];
    source(seen)
        .map(|source| detail(source, &conditions))
        .unwrap_or_default()
}

/// Whether a revision has the version, byte for byte: as the name before the digest, or as the whole revision. A name may have an `@`, a
/// digest has none.
fn has_version(revision: &str, version: &str) -> bool {
    let name = revision.rsplit_once('@').map(|(name, _)| name);
    !version.is_empty() && (name == Some(version) || revision == version)
}

#[cfg(test)]
mod tests;
