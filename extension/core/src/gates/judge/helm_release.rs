//! HelmRelease of helm-controller v1.6: the newest release of its history has deployed the expected version of the chart.
//!
//! - A version of the spec is only asked for: chart sources may be late or hold a range. `status.history` has what Helm stored.
//! - A rollback is a success at the old chart, and `status.lastAttemptedRevision` stays at the new one.
//! - `status.lastAttemptedGeneration` is written only once the chart is loaded. A suspended object keeps the earlier one.
//! - A changed values source leaves the generation as it is, and changes `status.lastAttemptedConfigDigest` before Helm runs.
//! - While an upgrade is retried, the controller does not write `status.observedGeneration`. Failures are therefore reported before it is
//!   compared.

use serde_json::Value;

use super::clause::{Clause, Judge, Seen, of_check};
use super::common::{BELONGS, EXISTS, EXPRESSION, NAMED, NOT_DELETING, OBSERVED, TYPED};
use super::flux::{
    NOT_RECONCILING, NOT_STALLED, NOT_SUSPENDED, OF_THE_CLUSTER, READY, failed, in_progress,
    latest_condition, repeats_a_proof,
};
use super::object::{Type, condition, elements, flag, number, text};
use super::verdict::Verdict;
use crate::reasons::CheckReason;

const ATTEMPTED_GENERATION: &str = "/status/lastAttemptedGeneration";

const ATTEMPTED_REVISION: &str = "/status/lastAttemptedRevision";

const ATTEMPTED_DIGEST: &str = "/status/lastAttemptedRevisionDigest";

const ATTEMPTED_VALUES: &str = "/status/lastAttemptedConfigDigest";

const PRESERVES_VALUES: &str = "/spec/upgrade/preserveValues";

/// Number of hexadecimal digits of an OCI digest that helm-controller appends to the version of a chart.
const APPENDED: usize = 12;

pub(super) static JUDGE: Judge = Judge {
    api_version: "helm.toolkit.fluxcd.io/v2",
    kind: "HelmRelease",
    delivers: true,
    fields: &[
        ("/spec/suspend", Type::Flag),
        ("/spec/kubeConfig", Type::Map),
        ("/spec/kubeConfig/secretRef", Type::Map),
        ("/spec/kubeConfig/secretRef/name", Type::Text),
        ("/spec/upgrade", Type::Map),
        (PRESERVES_VALUES, Type::Flag),
        ("/status/observedGeneration", Type::Number),
        (ATTEMPTED_GENERATION, Type::Number),
        (ATTEMPTED_REVISION, Type::Text),
        (ATTEMPTED_DIGEST, Type::Text),
        (ATTEMPTED_VALUES, Type::Text),
        ("/status/history", Type::Releases),
    ],
    clauses: &[
        EXISTS,
        TYPED,
        NAMED,
        BELONGS,
        NOT_DELETING,
        OF_THE_CLUSTER,
        NOT_SUSPENDED,
        ATTEMPTED,
        VERSION_ATTEMPTED,
        NOT_STALLED,
        NOT_REMEDIATED,
        NOT_FAILED,
        OBSERVED,
        DEPLOYED,
        VERSION_DEPLOYED,
        VALUES_DEPLOYED,
        READY,
        NOT_RECONCILING,
        EXPRESSION,
    ],
    proving: of_check,
};

/// helm-controller has attempted the latest generation.
const ATTEMPTED: Clause = Clause {
    name: "attempted",
    met: |seen| {
        let attempted = number(seen.object(), ATTEMPTED_GENERATION);
        attempted.is_some() && attempted == number(seen.object(), "/metadata/generation")
    },
    objection: |seen| {
        let message = format!("the latest generation of {} is not attempted", seen.name());
        Verdict::waiting(CheckReason::NotObserved, message).with_detail(latest_condition(seen))
    },
};

/// The attempted version is the expected one.
const VERSION_ATTEMPTED: Clause = Clause {
    name: "version attempted",
    met: |seen| {
        let object = seen.object();
        let attempted = text(object, ATTEMPTED_REVISION)
            .map(|attempted| without_digest(attempted, text(object, ATTEMPTED_DIGEST)));
        seen.expected
            .version
            .is_none_or(|version| attempted == Some(version))
    },
    objection: |seen| {
        let message = format!("{} is not at {}", seen.name(), seen.version());
        Verdict::waiting(CheckReason::NotAtVersion, message).with_detail(latest_condition(seen))
    },
};

/// helm-controller has not rolled back or uninstalled a failed release.
const NOT_REMEDIATED: Clause = Clause {
    name: "not remediated",
    met: |seen| condition(seen.object(), "Remediated", "True").is_none(),
    objection: failed,
};

/// Neither Helm nor a test of the chart has failed.
const NOT_FAILED: Clause = Clause {
    name: "not failed",
    met: |seen| {
        let object = seen.object();
        let has_failed = |type_: &str| condition(object, type_, "False").is_some();
        !has_failed("Ready")
            || !["Released", "TestSuccess", "Remediated"]
                .into_iter()
                .any(has_failed)
    },
    objection: failed,
};

/// Helm has deployed the newest release.
const DEPLOYED: Clause = Clause {
    name: "deployed",
    met: |seen| newest(seen).is_some_and(|release| text(release, "/status") == Some("deployed")),
    objection: |seen| {
        in_progress(
            seen,
            format!("the newest Helm release of {} is not deployed", seen.name()),
        )
    },
};

/// The newest release has the attempted version. The digest of a chart counts as well.
const VERSION_DEPLOYED: Clause = Clause {
    name: "version deployed",
    met: |seen| {
        let attempted = text(seen.object(), ATTEMPTED_REVISION);
        attempted.is_some() && newest(seen).is_some_and(|release| text(release, "/chartVersion") == attempted)
    },
    objection: |seen| {
        let name = seen.name();
        in_progress(
            seen,
            format!("the newest Helm release of {name} has another chart version than the attempted one"),
        )
    },
};

/// The newest release has the attempted values, unless Helm merges them with those of the earlier release.
const VALUES_DEPLOYED: Clause = Clause {
    name: "values deployed",
    met: |seen| {
        let object = seen.object();
        let attempted = text(object, ATTEMPTED_VALUES);
        let are_deployed = || {
            attempted.is_some()
                && newest(seen).is_some_and(|release| text(release, "/configDigest") == attempted)
        };
        flag(object, PRESERVES_VALUES) || are_deployed() || repeats_a_proof(seen)
    },
    objection: |seen| {
        let name = seen.name();
        in_progress(
            seen,
            format!("the newest Helm release of {name} has other values than the attempted ones"),
        )
    },
};

/// Returns the newest release of the history, which is in no particular order.
fn newest<'a>(seen: &Seen<'a>) -> Option<&'a Value> {
    elements(seen.object(), "/status/history").max_by_key(|release| number(release, "/version"))
}

/// Returns a chart version without the digest of its OCI artifact, `1.18.2` of `1.18.2+0123456789ab`. Other build metadata is part of the
/// version.
fn without_digest<'a>(version: &'a str, digest: Option<&str>) -> &'a str {
    let bare = digest.and_then(|digest| {
        let (_, digits) = digest.rsplit_once(':')?;
        let (bare, appended) = version.rsplit_once('+')?;
        (appended.len() == APPENDED && digits.starts_with(appended)).then_some(bare)
    });
    bare.unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::flux::{WITHDRAWN, WRONG as OF_FLUX, at_its_interval, each_withdraws};
    use super::*;
    use crate::gates::judge::cases::{
        Edit, Given, OBJECT, Without, Wrong, each_clause_is_needed, helm_release, helm_release_of_workload,
    };

    #[rustfmt::skip]
    const WRONG: &[Wrong] = &[
        // Suspended and edited in one write, and resumed.
        ("attempted", |given| { given.set("/metadata", "generation", json!(4)); given.set("/status", "observedGeneration", json!(4)); }, CheckReason::NotObserved, Without::Proven),
        ("attempted", |given| given.remove("/status", "lastAttemptedGeneration"), CheckReason::NotObserved, Without::Proven),
        ("version attempted", |given| given.version = Some("1.18.3"), CheckReason::NotAtVersion, Without::Proven),
        ("version attempted", |given| given.version = Some("v1.18.2"), CheckReason::NotAtVersion, Without::Proven),
        ("version attempted", |given| given.version = Some(""), CheckReason::NotAtVersion, Without::Proven),
        ("version attempted", |given| deploy(given, "1.18.2+vmware.1"), CheckReason::NotAtVersion, Without::Proven),
        ("not remediated", |given| given.set_condition_of_object("Remediated", "True", "RollbackSucceeded"), CheckReason::DeliveryFailed, Without::Proven),
        ("not failed", |given| { given.set_condition_of_object("Ready", "False", "UpgradeFailed"); given.set_condition_of_object("Released", "False", "UpgradeFailed"); }, CheckReason::DeliveryFailed, Without::Unlike),
        ("not failed", |given| { given.set_condition_of_object("Ready", "False", "TestFailed"); given.set_condition_of_object("TestSuccess", "False", "TestFailed"); }, CheckReason::DeliveryFailed, Without::Unlike),
        ("not failed", |given| { given.set_condition_of_object("Ready", "False", "RollbackFailed"); given.set_condition_of_object("Remediated", "False", "RollbackFailed"); }, CheckReason::DeliveryFailed, Without::Unlike),
        ("deployed", |given| given.set("/status/history/1", "status", json!("failed")), CheckReason::DeliveryInProgress, Without::Proven),
        ("deployed", |given| given.set("/status/history/1", "status", json!("pending-upgrade")), CheckReason::DeliveryInProgress, Without::Proven),
        ("deployed", |given| given.set("/status", "history", json!([])), CheckReason::DeliveryInProgress, Without::Unlike),
        // The newest release is that with the highest version, wherever it is in the list.
        ("deployed", |given| given.set("/status/history/0", "version", json!(9)), CheckReason::DeliveryInProgress, Without::Unlike),
        ("version deployed", |given| given.set("/status/history/1", "chartVersion", json!("1.17.4")), CheckReason::DeliveryInProgress, Without::Proven),
        ("version deployed", |given| given.set("/status/history/1", "chartVersion", json!("1.18.2+0123456789ab")), CheckReason::DeliveryInProgress, Without::Proven),
        ("version deployed", |given| { given.version = None; given.remove("/status", "lastAttemptedRevision"); }, CheckReason::DeliveryInProgress, Without::Proven),
        ("values deployed", |given| given.set("/status", "lastAttemptedConfigDigest", json!("sha256:changed")), CheckReason::DeliveryInProgress, Without::Proven),
        ("values deployed", |given| given.remove("/status", "lastAttemptedConfigDigest"), CheckReason::DeliveryInProgress, Without::Proven),
        ("typed", |given| given.set("/spec/upgrade", "preserveValues", json!("true")), CheckReason::NotObserved, Without::Proven),
    ];

    /// Deploys a version of the chart, with the digest of an OCI artifact.
    fn deploy(given: &mut Given, version: &str) {
        let digest = json!("sha256:0123456789abcdef0123");
        given.set("/status", "lastAttemptedRevisionDigest", digest);
        given.set("/status", "lastAttemptedRevision", json!(version));
        given.set("/status/history/1", "chartVersion", json!(version));
    }

    #[test]
    fn each_clause_of_a_helm_release_is_needed() {
        each_clause_is_needed(helm_release, &[OBJECT, OF_FLUX, WRONG].concat());
    }

    #[rstest]
    #[case::appended("1.18.2+0123456789ab", "1.18.2")]
    #[case::of_another_artifact("1.18.2+ffffffffffff", "1.18.2+ffffffffffff")]
    #[case::of_another_length("1.18.2+0123456789", "1.18.2+0123456789")]
    #[case::build_metadata("1.18.2+vmware.1", "1.18.2+vmware.1")]
    #[case::tracking_switched_off("1.18.2", "1.18.2")]
    fn only_the_digest_of_the_chart_is_left_out(#[case] deployed: &str, #[case] version: &'static str) {
        let mut given = helm_release();
        deploy(&mut given, deployed);
        given.version = Some(version);
        assert_eq!(given.judged().reason(), None, "{}", given.message());
        given.remove("/status", "lastAttemptedRevisionDigest");
        let is_proven = deployed == version;
        assert_eq!(given.judged().reason().is_none(), is_proven, "no digest, no part");
    }

    #[test]
    fn preserved_values_have_another_digest() {
        let mut given = helm_release();
        given.set("/status", "lastAttemptedConfigDigest", json!("sha256:merged"));
        given.set("/spec/upgrade", "preserveValues", json!(true));
        assert_eq!(given.judged().reason(), None);
    }

    #[test]
    fn without_a_version_the_attempted_one_is_deployed() {
        let mut given = helm_release();
        given.version = None;
        assert_eq!(given.judged().reason(), None);
        given.set("/status", "lastAttemptedRevision", json!("1.18.3"));
        assert_eq!(given.judged().reason(), Some(CheckReason::DeliveryInProgress));
    }

    #[test]
    fn one_of_the_workload_cluster_has_no_kubeconfig() {
        let given = helm_release_of_workload();
        assert_eq!(given.judged().reason(), None, "{}", given.message());
        let mut remote = helm_release_of_workload();
        let of_cluster = json!({"secretRef": {"name": "prod-1-kubeconfig"}});
        remote.set("/spec", "kubeConfig", of_cluster);
        assert_eq!(
            remote.message(),
            "HelmRelease kube-system/cilium has a spec.kubeConfig, and may be of another cluster"
        );
    }

    #[test]
    fn the_secret_of_the_cluster_is_named() {
        let mut given = helm_release();
        given.set("/spec/kubeConfig/secretRef", "name", json!("prod-2-kubeconfig"));
        assert_eq!(
            given.message(),
            "spec.kubeConfig of HelmRelease cilium does not name Secret prod-1-kubeconfig"
        );
    }

    /// The upgrade failed, and Flux has rolled it back to the earlier chart.
    #[test]
    fn a_rollback_is_a_failure_with_the_cause_as_its_detail() {
        let mut given = helm_release();
        given.set("/status/history/1", "chartVersion", json!("1.17.4"));
        given.set_condition_of_object("Remediated", "True", "RollbackSucceeded");
        given.set_condition_of_object("Released", "False", "UpgradeFailed");
        given.set_condition_of_object("Ready", "False", "RollbackSucceeded");
        // It is not written while retries are left.
        given.set("/status", "observedGeneration", json!(2));
        assert_eq!(
            given.judged(),
            Verdict::Failed {
                reason: CheckReason::DeliveryFailed,
                message: "HelmRelease cilium failed".to_owned(),
                detail: "Released=False (UpgradeFailed): of Flux".to_owned(),
            }
        );
    }

    #[test]
    fn the_condition_of_a_late_release_is_the_detail() {
        let mut given = helm_release();
        given.version = Some("1.18.3");
        given.set_condition_of_object("Ready", "False", "SourceNotReady");
        assert_eq!(given.message(), "HelmRelease cilium is not at 1.18.3");
        assert_eq!(given.detail(), "Ready=False (SourceNotReady): of Flux");
    }

    #[rustfmt::skip]
    const WITHDRAWN_HERE: &[(&str, Edit, CheckReason)] = &[
        ("failed release", |given| { given.set_condition_of_object("Ready", "False", "UpgradeFailed"); given.set_condition_of_object("Released", "False", "UpgradeFailed"); }, CheckReason::DeliveryFailed),
        ("rollback", |given| given.set_condition_of_object("Remediated", "True", "RollbackSucceeded"), CheckReason::DeliveryFailed),
        ("attempt at another version", |given| given.set("/status", "lastAttemptedRevision", json!("1.18.3")), CheckReason::NotAtVersion),
        ("deployed at another version", |given| given.set("/status/history/1", "chartVersion", json!("1.17.4")), CheckReason::DeliveryInProgress),
        ("release that failed", |given| given.set("/status/history/1", "status", json!("failed")), CheckReason::DeliveryInProgress),
    ];

    #[test]
    fn anything_but_a_reconcile_withdraws_a_recorded_proof() {
        each_withdraws(helm_release, &[WITHDRAWN, WITHDRAWN_HERE].concat());
    }

    /// The values of a ConfigMap have changed, at the same generation of the HelmRelease.
    #[test]
    fn a_recorded_proof_outlives_an_upgrade_to_other_values() {
        let mut given = at_its_interval(helm_release());
        given.set("/status", "lastAttemptedConfigDigest", json!("sha256:changed"));
        assert_eq!(given.judged().reason(), None, "{}", given.message());
        given.latch = None;
        assert_eq!(given.judged().reason(), Some(CheckReason::DeliveryInProgress));
    }
}
