//! What helm-controller and kustomize-controller show of their work. Both write the observed generation of suspended objects.

use serde_json::Value;

use super::must;
use super::objects::At;
use crate::observer::conditions::{is_false, is_observed, is_true, text};
use crate::observer::key::{Checked, Place, Source};

/// Conditions that tell of another state than the one that the spec asks for.
const FAILURES: [&str; 2] = ["Stalled", "Remediated"];

/// The chart version that a HelmRelease has deployed for its current spec, without the digest of an artifact.
///
/// The newest entry of the history counts: a rollback is a success, too, and the version that was tried is another one then.
pub(super) fn deployed(release: &Value) -> Result<String, String> {
    is_followed(release)?;
    let status = &release["status"];
    must(
        status["lastAttemptedGeneration"] == release["metadata"]["generation"],
        || format!("generation {} was tried last", status["lastAttemptedGeneration"]),
    )?;
    let newest = newest(release).ok_or("it has no history")?;
    must(newest["status"] == "deployed", || {
        format!("its newest release is {}", newest["status"])
    })?;
    let chart = text(newest, "/chartVersion");
    let tried = &status["lastAttemptedRevision"];
    must(!chart.is_empty() && *tried == chart, || {
        format!("chart {tried} was tried last, {chart:?} is deployed")
    })?;
    // helm-controller appends the begin of it.
    let digest = text(release, "/status/lastAttemptedRevisionDigest");
    let version = match chart.rsplit_once('+') {
        Some((version, appended)) if !appended.is_empty() && digest.contains(appended) => version,
        _ => chart.as_str(),
    };
    Ok(version.to_owned())
}

/// Whether the newest release has the values that were tried last. With those of the release before, Helm computes others.
pub(super) fn has_values(release: &Value) -> bool {
    let tried = &release["status"]["lastAttemptedConfigDigest"];
    let keeps_values = release["spec"]["upgrade"]["preserveValues"] == true;
    keeps_values
        || newest(release).is_some_and(|newest| tried.is_string() && newest["configDigest"] == *tried)
}

fn newest(release: &Value) -> Option<&Value> {
    let history = release["status"]["history"].as_array()?;
    history.iter().max_by_key(|entry| entry["version"].as_i64())
}

/// The revision that a Kustomization has applied, if it has tried no other one since.
pub(super) fn applied(kustomization: &Value) -> Result<String, String> {
    is_followed(kustomization)?;
    let (applied, tried) = (
        text(kustomization, "/status/lastAppliedRevision"),
        text(kustomization, "/status/lastAttemptedRevision"),
    );
    must(!applied.is_empty() && applied == tried, || {
        format!("revision {tried:?} was tried last, {applied:?} is applied")
    })?;
    Ok(applied)
}

/// Where the source of a Kustomization is.
pub(super) fn source(kustomization: &Value, place: &Place, namespace: &str) -> Result<At, String> {
    let reference = &kustomization["spec"]["sourceRef"];
    let kind = reference["kind"].as_str().and_then(Source::of);
    let kind = kind.ok_or_else(|| format!("its source is {reference}"))?;
    let of = reference["namespace"].as_str().filter(|of| !of.is_empty());
    let of = of.unwrap_or(namespace);
    must(*place != Place::Management || of == namespace, || {
        format!("its source is in namespace {of}")
    })?;
    let name = text(reference, "/name");
    Ok((place.clone(), Checked::Source(kind), (of.to_owned(), name)))
}

/// The revision of a source. source-controller observes the generation of a suspended one, and keeps its artifact.
///
/// Other controllers write an ExternalArtifact, which has no observed generation.
pub(super) fn revision(kind: Checked, source: &Value) -> Result<String, String> {
    let observed = &source["status"]["observedGeneration"];
    let needs_none = kind == Checked::Source(Source::ExternalArtifact) && observed.is_null();
    must(needs_none || is_observed(source), || {
        format!(
            "generation {} of its source is observed as {observed}",
            source["metadata"]["generation"]
        )
    })?;
    must(source["spec"]["suspend"] != true, || {
        "its source is suspended".to_owned()
    })?;
    must(!is_true(source, "Stalled"), || "its source is Stalled".to_owned())?;
    let revision = text(source, "/status/artifact/revision");
    must(!revision.is_empty(), || "its source has no artifact".to_owned())?;
    Ok(revision)
}

/// Whether the last reconcile has succeeded, and none goes on.
pub(super) fn is_at_rest(object: &Value) -> bool {
    is_true(object, "Ready") && !is_true(object, "Reconciling")
}

/// Whether a reconcile goes on that has not failed.
pub(super) fn goes_on(object: &Value) -> bool {
    is_true(object, "Reconciling") && !is_false(object, "Ready")
}

/// The controller follows the spec of the object.
fn is_followed(object: &Value) -> Result<(), String> {
    must(object["spec"]["suspend"] != true, || "it is suspended".to_owned())?;
    must(is_observed(object), || {
        format!(
            "generation {} is observed as {}",
            object["metadata"]["generation"], object["status"]["observedGeneration"]
        )
    })?;
    match FAILURES.iter().find(|kind| is_true(object, kind)) {
        Some(kind) => Err(format!("it is {kind}")),
        None => Ok(()),
    }
}
