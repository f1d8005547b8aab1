//! HelmChartProxy of CAAPH v0.6.4: its HelmReleaseProxy for the Cluster has deployed the expected version.
//!
//! - No status has the chart version, so both specs have to be at the expectation. A reconcile of the HelmChartProxy stops at the first
//!   Cluster that fails, and the HelmReleaseProxies of the others keep their earlier version with `Ready=True`.
//! - Conditions of the HelmChartProxy aggregate all Clusters and prove nothing. They explain why its HelmReleaseProxy is not updated.
//! - After an error of the kubeconfig, condition `HelmReleaseReady` stays `True`; only the summary `Ready` shows it.
//! - A release that is superseded or being uninstalled leaves the conditions as they were, so `status.status` is read as well.

use serde_json::Value;
use sluice_crds::labels::annotation::PAUSED;
use sluice_crds::labels::label::CAPI_CLUSTER_NAME;

use super::clause::{Clause, Judge, Seen};
use super::common::{BELONGS, EXISTS, EXPRESSION, NAMED, NOT_DELETING, OBSERVED, TYPED};
use super::kind::RelatedList;
use super::object::{
    Field, Type, condition, detail, elements, is_annotated, is_deleting, is_observed, label, mistyped, text,
};
use super::verdict::{Expected, Verdict};
use crate::reasons::CheckReason;

/// Label of a HelmReleaseProxy with the name of its HelmChartProxy.
const PROXY_NAME: &str = "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name";

const GROUP: &str = "addons.cluster.x-k8s.io";

const VERSION: &str = "v1alpha1";

/// Conditions of a HelmReleaseProxy, and their reasons for a failure.
const FAILURES: [(&str, &[&str]); 2] = [
    (
        "HelmReleaseReady",
        &[
            "HelmInstallOrUpgradeFailed",
            "HelmReleaseGetFailed",
            "HelmReleaseDeletionFailed",
            "HelmReleaseDeleted",
        ],
    ),
    (
        "ClusterAvailable",
        &[
            "GetClusterFailed",
            "GetKubeconfigFailed",
            "GetCredentialsFailed",
            "GetCACertificateFailed",
        ],
    ),
];

/// Fields of a HelmReleaseProxy that the clauses read.
const RELEASE_FIELDS: &[Field] = &[
    ("/spec/clusterRef", Type::Map),
    ("/spec/clusterRef/apiVersion", Type::Text),
    ("/spec/clusterRef/kind", Type::Text),
    ("/spec/clusterRef/name", Type::Text),
    ("/spec/clusterRef/namespace", Type::Text),
    ("/spec/reconcileStrategy", Type::Text),
    ("/spec/version", Type::Text),
    ("/status/observedGeneration", Type::Number),
    ("/status/status", Type::Text),
];

pub(super) static JUDGE: Judge = Judge {
    api_version: "addons.cluster.x-k8s.io/v1alpha1",
    kind: "HelmChartProxy",
    delivers: true,
    fields: &[
        ("/spec/reconcileStrategy", Type::Text),
        ("/spec/version", Type::Text),
        ("/status/observedGeneration", Type::Number),
    ],
    clauses: &[
        EXISTS,
        TYPED,
        NAMED,
        BELONGS,
        NOT_DELETING,
        Clause {
            name: "not paused",
            met: |seen| !is_annotated(seen.object(), PAUSED),
            objection: |seen| suspended(&format!("{} is paused", seen.name())),
        },
        Clause {
            name: "continuous",
            met: |seen| !installs_once(seen.object()),
            objection: |seen| suspended(&format!("{} has reconcileStrategy InstallOnce", seen.name())),
        },
        Clause {
            name: "version wanted",
            met: |seen| {
                let wanted = text(seen.object(), "/spec/version");
                seen.expected
                    .version
                    .is_none_or(|version| wanted == Some(version))
            },
            objection: |seen| {
                let message = format!("{} is not at {}", seen.name(), seen.version());
                Verdict::waiting(CheckReason::NotAtVersion, message)
            },
        },
        OBSERVED,
        Clause {
            name: "one release",
            met: |seen| releases(seen).count() <= 1,
            objection: |seen| {
                let message = format!("{} has several HelmReleaseProxies for the Cluster", seen.name());
                Verdict::waiting(CheckReason::SeveralMatches, message)
            },
        },
        Clause {
            name: "release exists",
            met: |seen| release(seen).is_some(),
            objection: |seen| {
                let message = format!("{} has no HelmReleaseProxy for the Cluster", seen.name());
                Verdict::waiting(CheckReason::ObjectNotFound, message).with_detail(of_proxy(seen))
            },
        },
        Clause {
            name: "release typed",
            met: |seen| release(seen).is_some_and(|release| mistyped(release, RELEASE_FIELDS).is_none()),
            objection: |seen| {
                let wrong = release(seen).and_then(|release| mistyped(release, RELEASE_FIELDS));
                let message = format!("{}: {}", release_name(seen), wrong.unwrap_or_default());
                Verdict::waiting(CheckReason::NotObserved, message)
            },
        },
        Clause {
            name: "controlled",
            met: |seen| release(seen).is_some_and(|release| is_controlled(release, seen.object())),
            objection: |seen| {
                let message = format!("{} belongs to another HelmChartProxy", release_name(seen));
                Verdict::waiting(CheckReason::BelongsElsewhere, message)
            },
        },
        Clause {
            name: "of the Cluster",
            met: |seen| release(seen).is_some_and(|release| refers_to_cluster(release, seen.expected)),
            objection: |seen| {
                let message = format!("{} is of another Cluster", release_name(seen));
                Verdict::waiting(CheckReason::BelongsElsewhere, message)
            },
        },
        Clause {
            name: "release not deleting",
            met: |seen| release(seen).is_some_and(|release| !is_deleting(release)),
            objection: |seen| {
                let message = format!("{} is being deleted", release_name(seen));
                Verdict::waiting(CheckReason::ObjectDeleting, message)
            },
        },
        Clause {
            name: "release not paused",
            met: |seen| release(seen).is_some_and(|release| !is_annotated(release, PAUSED)),
            objection: |seen| suspended(&format!("{} is paused", release_name(seen))),
        },
        Clause {
            name: "release continuous",
            met: |seen| release(seen).is_some_and(|release| !installs_once(release)),
            objection: |seen| {
                suspended(&format!(
                    "{} has reconcileStrategy InstallOnce",
                    release_name(seen)
                ))
            },
        },
        Clause {
            name: "version delivered",
            met: |seen| {
                let wanted = seen
                    .expected
                    .version
                    .or_else(|| text(seen.object(), "/spec/version"));
                release(seen).is_some_and(|release| text(release, "/spec/version") == wanted)
            },
            objection: |seen| {
                let message = match seen.expected.version {
                    Some(_) => format!("{} is not at {}", release_name(seen), seen.version()),
                    None => format!("{} is not at the version of {}", release_name(seen), seen.name()),
                };
                Verdict::waiting(CheckReason::NotAtVersion, message).with_detail(of_proxy(seen))
            },
        },
        Clause {
            name: "release observed",
            met: |seen| release(seen).is_some_and(is_observed),
            objection: |seen| {
                let message = format!("the latest generation of {} is not observed", release_name(seen));
                Verdict::waiting(CheckReason::NotObserved, message)
            },
        },
        Clause {
            name: "not failed",
            met: |seen| release(seen).is_some_and(|release| !is_failed(release)),
            objection: |seen| Verdict::Failed {
                reason: CheckReason::DeliveryFailed,
                message: format!("{} failed", release_name(seen)),
                detail: of_release(seen),
            },
        },
        Clause {
            name: "ready",
            met: |seen| {
                release(seen).is_some_and(|release| {
                    condition(release, "Ready", "True").is_some()
                        || seen.latched_at(release) && is_reconciling(release)
                })
            },
            objection: |seen| {
                let message = format!("{} is not ready", release_name(seen));
                Verdict::waiting(CheckReason::DeliveryInProgress, message).with_detail(of_release(seen))
            },
        },
        Clause {
            name: "deployed",
            met: |seen| {
                release(seen).is_some_and(|release| {
                    text(release, "/status/status") == Some("deployed")
                        || seen.latched_at(release) && is_reconciling(release)
                })
            },
            objection: |seen| {
                let message = format!("the Helm release of {} is not deployed", release_name(seen));
                Verdict::waiting(CheckReason::DeliveryInProgress, message).with_detail(of_release(seen))
            },
        },
        EXPRESSION,
    ],
    proving: release,
};

/// Returns the list of the HelmReleaseProxies of Cluster and HelmChartProxy.
pub(super) fn releases_of(expected: &Expected<'_>) -> RelatedList {
    RelatedList {
        group: GROUP,
        version: VERSION.to_owned(),
        kind: "HelmReleaseProxy",
        plural: "helmreleaseproxies",
        labels: vec![
            (CAPI_CLUSTER_NAME.to_owned(), expected.cluster.to_owned()),
            (PROXY_NAME.to_owned(), expected.name.to_owned()),
        ],
    }
}

/// Returns the HelmReleaseProxies with the labels of Cluster and HelmChartProxy.
fn releases<'a>(seen: &Seen<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    let expected = seen.expected;
    seen.related.iter().filter(move |release| {
        label(release, CAPI_CLUSTER_NAME) == Some(expected.cluster)
            && label(release, PROXY_NAME) == Some(expected.name)
            && text(release, "/metadata/namespace") == Some(expected.namespace)
    })
}

/// Returns the HelmReleaseProxy of the Cluster.
fn release<'a>(seen: &Seen<'a>) -> Option<&'a Value> {
    releases(seen).next()
}

fn release_name(seen: &Seen<'_>) -> String {
    let name = release(seen).and_then(|release| text(release, "/metadata/name"));
    format!("HelmReleaseProxy {}", name.unwrap_or_default())
}

fn suspended(message: &str) -> Verdict {
    Verdict::waiting(CheckReason::DeliverySuspended, message.to_owned())
}

/// Whether CAAPH leaves the release alone once it is installed.
fn installs_once(object: &Value) -> bool {
    text(object, "/spec/reconcileStrategy") == Some("InstallOnce")
}

fn is_controlled(release: &Value, proxy: &Value) -> bool {
    let uid = text(proxy, "/metadata/uid");
    let mut owners = elements(release, "/metadata/ownerReferences");
    uid.is_some()
        && owners.any(|owner| {
            let is_controller = owner.get("controller").and_then(Value::as_bool) == Some(true);
            is_controller && owner.get("uid").and_then(Value::as_str) == uid
        })
}

/// Whether `spec.clusterRef` is the Cluster. CAAPH leaves kind and version empty where its cache did.
fn refers_to_cluster(release: &Value, expected: &Expected<'_>) -> bool {
    let kind = text(release, "/spec/clusterRef/kind").unwrap_or_default();
    let api_version = text(release, "/spec/clusterRef/apiVersion").unwrap_or_default();
    text(release, "/spec/clusterRef/name") == Some(expected.cluster)
        && text(release, "/spec/clusterRef/namespace") == Some(expected.namespace)
        && matches!(kind, "" | "Cluster")
        && (api_version.is_empty() || api_version.starts_with("cluster.x-k8s.io/"))
}

fn is_failed(release: &Value) -> bool {
    text(release, "/status/status") == Some("failed")
        || FAILURES.iter().any(|(type_, reasons)| {
            condition(release, type_, "False")
                .and_then(|condition| condition.get("reason"))
                .and_then(Value::as_str)
                .is_some_and(|reason| reasons.contains(&reason))
        })
}

/// Whether Helm is at work on an earlier success. Any other state than this withdraws a recorded proof.
fn is_reconciling(release: &Value) -> bool {
    let is_pending = condition(release, "HelmReleaseReady", "False")
        .and_then(|condition| condition.get("reason"))
        .and_then(Value::as_str)
        == Some("HelmReleasePending");
    let status = text(release, "/status/status").unwrap_or_default();
    is_pending
        && condition(release, "ClusterAvailable", "True").is_some()
        && matches!(status, "deployed" | "pending-install" | "pending-upgrade")
}

/// Returns the condition of the HelmChartProxy that explains why it does not update HelmReleaseProxies. Its cause may be the values for
/// another Cluster.
fn of_proxy(seen: &Seen<'_>) -> String {
    detail(
        seen.object(),
        &[("HelmReleaseProxySpecsUpToDate", "False"), ("Ready", "False")],
    )
}

fn of_release(seen: &Seen<'_>) -> String {
    let conditions = [
        ("ClusterAvailable", "False"),
        ("HelmReleaseReady", "False"),
        ("Ready", "False"),
    ];
    release(seen)
        .map(|release| detail(release, &conditions))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
