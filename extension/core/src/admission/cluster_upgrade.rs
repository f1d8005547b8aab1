//! Validates updates of Clusters that change version or release, by the [plan](crate::upgrade_plan) of the upgrade.
//!
//! A refusal only spares a user an upgrade that its first gate would hold. No gate and no record reads a verdict, so an update that may be
//! a way out of a held upgrade is admitted.

use std::sync::Arc;

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::{Cluster, ClusterClass, cluster::ClusterSpec},
    labels::{annotation, label},
};

use super::Verdict;
use crate::{
    cache::stores::Stores,
    clock::Clock,
    cluster::{is_stopped, release_of},
    fault::Fault,
    installation::gate_in_force::NotInForce,
    packages::bootstrap::way_back,
    reconcile::cluster::{Facts, Unknown},
    text::one_line,
    upgrade_plan::{
        Admission, Effect, Finding, FindingReason, UpgradePlan, WarningReason, assume_steps, plan_of,
    },
    version::{reached, same},
};

/// Maximum number of findings in a verdict.
const MAX_FINDINGS: usize = 10;

/// Maximum length of the text of a finding, in characters.
const MAX_TEXT: usize = 512;

/// Maximum length of a value, in characters.
const MAX_VALUE: usize = 64;

/// Update of a Cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterUpdate<'a> {
    /// The cached Cluster, which has the status and the reference to the control plane: any caller may send any others.
    pub stored: &'a Cluster,
    /// The Cluster before the update.
    pub old: &'a Cluster,
    /// The Cluster after the update.
    pub new: &'a Cluster,
    /// Whether findings may refuse the update; otherwise all of them are warnings.
    pub denies: bool,
}

/// Whether this is the annotation that exempts a version from the checks.
#[must_use]
pub fn is_exemption(key: &str) -> bool {
    key == annotation::SKIP_UPGRADE_CHECKS
}

/// Whether the upgrade of a Cluster is checked: the update changes version or release label, the Cluster is not paused, and its annotation
/// does not exempt the version.
#[must_use]
pub fn is_checked(old: &Cluster, new: &Cluster) -> bool {
    let Some(version) = version_of(new) else {
        return false;
    };
    let differs = version_of(old) != Some(version) || release_of(&old.metadata) != release_of(&new.metadata);
    let exempt = new.annotations().get(annotation::SKIP_UPGRADE_CHECKS);
    // A Cluster is paused during a move.
    differs && !is_stopped(new) && exempt.is_none_or(|exempt| exempt != version)
}

/// Whether an update raises the version of a Cluster that is not paused, so that Cluster API is to call the hooks. A cancellation lowers it.
#[must_use]
pub fn is_bump(old: &Cluster, new: &Cluster) -> bool {
    let versions = version_of(old).zip(version_of(new));
    // A Cluster is paused during a move.
    !is_stopped(new) && versions.is_some_and(|(old, new)| old != new && !reached(old, new))
}

/// Returns a verdict about an update that raises the version while the gate of the Cluster is not in force. Nothing exempts a version.
#[must_use]
pub fn with_gate(mut verdict: Verdict, new: &Cluster, not: &NotInForce, denies: bool) -> Verdict {
    let NotInForce {
        reason,
        message,
        is_certain,
    } = not;
    let reason = reason.as_str();
    if denies && *is_certain {
        let version = one_line(version_of(new).unwrap_or_default(), MAX_VALUE);
        let text = format!("the upgrade would not wait for Sluice ({reason}): {message}");
        let fault = Fault::new("spec.topology.version", version.as_str(), text);
        verdict.faults.push(fault);
    } else {
        let verb = if *is_certain { "will not" } else { "may not" };
        let text = format!("the upgrade {verb} wait for Sluice ({reason}): {message}");
        verdict.warnings.insert(0, text);
    }
    verdict
}

/// Judges an update by the plans of the Cluster before and after it; `None` until the control plane is listed. `facts_of` returns the
/// facts of a Cluster from `stores`; `None` for an unmanaged one.
#[must_use]
pub fn judge(
    update: &ClusterUpdate<'_>,
    facts_of: impl Fn(&Arc<Cluster>) -> Option<Facts>,
    stores: &impl Stores,
    now: Clock,
) -> Option<Verdict> {
    let ClusterUpdate { stored, old, new, .. } = *update;
    if !is_checked(old, new) {
        return Some(Verdict::default());
    }
    let planned_as = |cluster: &Cluster| {
        let is_stored = version_of(cluster) == version_of(stored);
        planned(facts_of(&as_written(stored, cluster)), is_stored, stores, now)
    };
    let (facts, mut plan) = match planned_as(new) {
        Ok(Some(planned)) => planned,
        Ok(None) => return Some(Verdict::default()),
        Err(Unplanned::Reading) => return None,
        Err(Unplanned::Failed(why)) => return Some(unchecked(&why)),
    };
    name_class(&mut plan, stored, stores);
    let mut refusing = refusing(&plan);
    if !refusing.is_empty() {
        let is_refused = update.denies
            && !is_way_back(old, &facts)
            && match planned_as(old) {
                Ok(Some((_, before))) => !improves(&self::refusing(&before), &refusing),
                // Sluice begins to manage the Cluster, whatever release it runs.
                Ok(None) => version_of(old) != version_of(new),
                // It may be the way out.
                Err(_) => false,
            };
        if !is_refused {
            refusing.clear();
        }
    }
    Some(verdict(update, &plan, &refusing))
}

/// Returns the verdict about an update whose upgrade cannot be checked: gates hold for the same findings.
#[must_use]
pub fn unchecked(why: &str) -> Verdict {
    let why = one_line(why, MAX_TEXT);
    Verdict {
        faults: Vec::new(),
        warnings: vec![format!("the upgrade was not checked: {why}")],
    }
}

fn version_of(cluster: &Cluster) -> Option<&str> {
    let topology = cluster.spec.topology.as_ref()?;
    Some(topology.version.as_str())
}

/// Returns the stored Cluster with the fields of a request that a user writes.
fn as_written(stored: &Cluster, written: &Cluster) -> Arc<Cluster> {
    let mut metadata = stored.metadata.clone();
    let labels = metadata.labels.get_or_insert_default();
    match written.labels().get(label::TKR) {
        Some(release) => labels.insert(label::TKR.to_owned(), release.clone()),
        None => labels.remove(label::TKR),
    };
    let annotations = metadata.annotations.get_or_insert_default();
    for key in [annotation::PAUSED, annotation::RESOLVE_TKR] {
        match written.annotations().get(key) {
            Some(value) => annotations.insert(key.to_owned(), value.clone()),
            None => annotations.remove(key),
        };
    }
    Arc::new(Cluster {
        metadata,
        spec: ClusterSpec {
            control_plane_ref: stored.spec.control_plane_ref.clone(),
            infrastructure_ref: stored.spec.infrastructure_ref.clone(),
            ..written.spec.clone()
        },
        status: stored.status.clone(),
    })
}

/// Reason why there is no plan.
enum Unplanned {
    /// The first list of the kind of its control plane is in progress.
    Reading,
    /// Something that the plan needs is not known.
    Failed(String),
}

/// Returns the plan of a Cluster with its facts; `None` for an unmanaged one. An extension cannot have planned the steps to a version that is
/// not stored yet.
fn planned(
    facts: Option<Facts>,
    is_stored: bool,
    stores: &impl Stores,
    now: Clock,
) -> Result<Option<(Facts, UpgradePlan)>, Unplanned> {
    let Some(mut facts) = facts else {
        return Ok(None);
    };
    match &facts.unknown {
        None => {}
        Some(Unknown::Reading) => return Err(Unplanned::Reading),
        Some(Unknown::Unreadable(hold)) => return Err(Unplanned::Failed(hold.to_string())),
    }
    let assumed = if is_stored { None } else { assume_steps(&mut facts) };
    let mut plan = plan_of(&facts, stores, now).map_err(|error| Unplanned::Failed(error.to_string()))?;
    plan.findings.extend(assumed);
    Ok(Some((facts, plan)))
}

/// Adds a ClusterClass that lists the target to the finding that the class of the Cluster does not. It is in the namespace of the stored
/// class, because a caller may write any namespace.
fn name_class(plan: &mut UpgradePlan, cached: &Cluster, stores: &impl Stores) {
    let not_in_class = FindingReason::Warning(WarningReason::VersionNotInClass);
    let (Some(topology), Some(namespace)) = (&cached.spec.topology, cached.namespace()) else {
        return;
    };
    if plan.findings.iter().any(|finding| finding.reason == not_in_class) {
        let namespace = topology.class_namespace().unwrap_or(&namespace);
        let class: Option<Arc<ClusterClass>> = stores.class_with(namespace, &plan.to);
        plan.name_class(class.as_deref());
    }
}

/// Returns the findings for which an update is refused.
fn refusing(plan: &UpgradePlan) -> Vec<&Finding> {
    let findings = plan.findings.iter();
    findings
        .filter(|finding| finding.admission == Admission::Refuses)
        .collect()
}

/// Whether an update takes the Cluster back to the version of its control plane, or to the release of its machines.
fn is_way_back(old: &Cluster, facts: &Facts) -> bool {
    let to = facts.topology.version.as_str();
    let control_plane = facts.control_plane.as_ref();
    let version = control_plane.and_then(|cached| cached.versions.spec_version.as_deref());
    let is_of_machines = facts.made_of.as_deref() == Some(facts.label.as_str()) || is_before_upgrade(facts);
    version.is_some_and(|version| reached(version, to)) && (version_of(old) != Some(to) || is_of_machines)
}

/// Whether the label names the release from before the upgrade that the snapshot of the ClusterBootstrap is of.
fn is_before_upgrade(facts: &Facts) -> bool {
    let snapshot = facts.bootstrap.as_deref().and_then(way_back);
    snapshot.is_some_and(|snapshot| {
        snapshot.release == facts.label && same(&snapshot.version, &facts.topology.version)
    })
}

/// Whether an update adds no finding or removes one. A finding that another version or release changes is not removed.
fn improves(before: &[&Finding], after: &[&Finding]) -> bool {
    let is_removed = |finding: &&Finding| count(after, finding.reason) < count(before, finding.reason);
    after.iter().all(|finding| before.contains(finding)) || before.iter().any(is_removed)
}

fn count(findings: &[&Finding], reason: FindingReason) -> usize {
    let of_reason = findings.iter().filter(|finding| finding.reason == reason);
    of_reason.count()
}

/// Returns the verdict of a plan, refused for some of its findings.
fn verdict(update: &ClusterUpdate<'_>, plan: &UpgradePlan, refusing: &[&Finding]) -> Verdict {
    let is_fault = |finding: &&Finding| refusing.contains(finding);
    let (faults, mut warned): (Vec<&Finding>, Vec<&Finding>) = plan.findings.iter().partition(is_fault);
    warned.sort_by_key(|finding| finding.effect == Effect::Warns);
    let warning = |finding: &&Finding| {
        let text = described(finding);
        let is_held = finding.effect == Effect::Blocks && finding.admission != Admission::LeftToClusterApi;
        if is_held {
            format!("will be held: {text}")
        } else {
            text
        }
    };
    let mut warnings: Vec<String> = warned.iter().take(MAX_FINDINGS).map(warning).collect();
    warnings.extend(left_out(update, warned.len()));
    Verdict {
        faults: faults_of(update, &faults),
        warnings,
    }
}

/// Returns the faults of an update. The last one names the exemption.
fn faults_of(update: &ClusterUpdate<'_>, refusing: &[&Finding]) -> Vec<Fault> {
    let version = version_of(update.new).unwrap_or_default();
    let version = one_line(version, MAX_VALUE);
    let (field, value) = if version_of(update.old) == version_of(update.new) {
        let release = release_of(&update.new.metadata);
        (
            format!("metadata.labels[{}]", label::TKR),
            one_line(&release, MAX_VALUE),
        )
    } else {
        ("spec.topology.version".to_owned(), version.clone())
    };
    let fault = |finding: &&Finding| {
        let mut text = described(finding);
        if !finding.remedy.is_empty() {
            text = format!("{text}; {}", finding.remedy);
        }
        Fault::new(field.as_str(), value.as_str(), text)
    };
    let mut faults: Vec<Fault> = refusing.iter().take(MAX_FINDINGS).map(fault).collect();
    if let Some(last) = faults.last_mut() {
        let more = left_out(update, refusing.len()).map(|more| format!("; {more}"));
        last.text = format!(
            "{}{}; to write it all the same, set annotation {}={version} on the Cluster, and gates will hold the upgrade",
            last.text,
            more.unwrap_or_default(),
            annotation::SKIP_UPGRADE_CHECKS
        );
    }
    faults
}

/// Returns a finding as one line.
fn described(
    Finding {
        hop, reason, message, ..
    }: &Finding,
) -> String {
    let at = hop.as_ref().map(|hop| format!(" at {hop}")).unwrap_or_default();
    one_line(&format!("{}{at}: {message}", reason.as_str()), MAX_TEXT)
}

/// Returns how to see the findings beyond the limit, if there are more.
fn left_out(update: &ClusterUpdate<'_>, findings: usize) -> Option<String> {
    let more = findings.checked_sub(MAX_FINDINGS).filter(|more| *more > 0)?;
    let (namespace, name) = (update.stored.namespace(), update.stored.name_any());
    let namespace = namespace.unwrap_or_default();
    Some(format!("{more} more findings: sluice plan -n {namespace} {name}"))
}

#[cfg(test)]
mod tests;
