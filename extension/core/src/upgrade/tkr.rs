//! Selects the TanzuKubernetesRelease of a hop.

use crate::reasons::{GateReason, Hold};
use crate::upgrade::hop::{Progress, UpgradeDirection};
use serde_json::Value;
use sluice_crds::foreign::cluster::{Topology, Variable, Variables};
use sluice_crds::labels::{label, name};

/// Facts about a TanzuKubernetesRelease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TkrFacts {
    /// Name, which is the value of the label on Clusters.
    pub name: String,
    /// `spec.version`, by which releases are ordered.
    pub version: String,
    /// `spec.kubernetes.version`, byte for byte.
    pub kubernetes_version: String,
    /// Whether it is marked legacy; Sluice does not manage Clusters on it.
    pub legacy: bool,
}

/// Returns the release that variable `TKR_DATA` of a Cluster names for a Kubernetes version.
#[must_use]
pub fn pinned(topology: &Topology, version: &str) -> Option<String> {
    let data = topology.variable(name::TKR_DATA)?;
    let release = data.get(version)?.get("labels")?.get(label::TKR)?.as_str()?;
    Some(release.to_owned())
}

/// Returns the Kubernetes versions for which variable `TKR_DATA` names a release.
#[must_use]
pub fn pinned_versions(variables: &Variables) -> Vec<String> {
    let data = variables.get(name::TKR_DATA).map(Variable::value);
    let entries = data.as_ref().and_then(Value::as_object).into_iter().flatten();
    entries
        .filter(|(_, entry)| entry["labels"][label::TKR].is_string())
        .map(|(version, _)| version.clone())
        .collect()
}

/// Selects the release of a hop toward a target.
///
/// It is the one pinned for the hop in the Cluster's variable `TKR_DATA`; else the one in the label, if it has the version of the hop;
/// else, for a version below the target, the only known one of that version. The release of the target itself is never guessed, so a
/// version that arrives before its label holds.
pub fn for_hop(
    hop: &str,
    to: &str,
    pinned: Option<&str>,
    label: &str,
    known: &[TkrFacts],
) -> Result<String, Hold> {
    if let Some(name) = pinned {
        let release = find(name, known).ok_or_else(|| not_found("TKR_DATA", name))?;
        if release.legacy {
            return Err(legacy("TKR_DATA", name));
        }
        return if release.kubernetes_version == hop {
            Ok(release.name.clone())
        } else {
            Err(of_another_version(release, hop, "TKR_DATA names"))
        };
    }
    let labelled = find(label, known).ok_or_else(|| tkr_not_found(label))?;
    if labelled.kubernetes_version == hop {
        return Ok(labelled.name.clone());
    }
    if hop == to {
        return Err(of_another_version(labelled, hop, "the label names"));
    }
    let mut candidates = known
        .iter()
        .filter(|release| !release.legacy && release.kubernetes_version == hop);
    match (candidates.next(), candidates.next()) {
        (Some(only), None) => Ok(only.name.clone()),
        (None, _) => Err(Hold::new(
            GateReason::NoTKRForHop,
            format!("no TanzuKubernetesRelease is for Kubernetes {hop}"),
        )),
        (Some(_), Some(_)) => Err(Hold::new(
            GateReason::NoTKRForHop,
            format!("several TanzuKubernetesReleases are for Kubernetes {hop}; name one in TKR_DATA"),
        )),
    }
}

/// Selects the release of the next hop; see [`for_hop`].
///
/// A cancelled upgrade keeps the `resolved` release, the one in the ClusterBootstrap, whatever the current label: merged packages stay,
/// and no others are begun.
pub fn for_progress(
    progress: &Progress,
    resolved: Option<&str>,
    to: &str,
    pinned: Option<&str>,
    label: &str,
    known: &[TkrFacts],
) -> Result<String, Hold> {
    match (progress.direction, resolved) {
        (UpgradeDirection::Cancelled, Some(merged)) => Ok(merged.to_owned()),
        (UpgradeDirection::PlanUnknown, _) => Err(plan_unknown(to)),
        _ => for_hop(&progress.hop, to, pinned, label, known),
    }
}

/// Hold for an upgrade whose steps are not known yet.
pub(crate) fn plan_unknown(to: &str) -> Hold {
    Hold::new(
        GateReason::UpgradePlanUnknown,
        format!("waiting for Cluster API to plan the upgrade to {to}"),
    )
}

/// Hold for a label that names a release that does not exist.
#[must_use]
pub fn tkr_not_found(name: &str) -> Hold {
    not_found(&format!("label {}", label::TKR), name)
}

fn not_found(by: &str, name: &str) -> Hold {
    Hold::new(
        GateReason::TKRNotFound,
        format!("TanzuKubernetesRelease {name}, named by {by}, does not exist"),
    )
}

/// Hold for a release without a template.
#[must_use]
pub fn template_not_found(namespace: &str, release: &str) -> Hold {
    Hold::new(
        GateReason::TemplateNotFound,
        format!("ClusterBootstrapTemplate {namespace}/{release} of the release does not exist"),
    )
}

/// Hold for a Cluster with a ClusterBootstrap whose release is marked legacy.
#[must_use]
pub fn tkr_legacy(name: &str) -> Hold {
    legacy(&format!("label {}", label::TKR), name)
}

fn legacy(by: &str, name: &str) -> Hold {
    Hold::new(
        GateReason::TKRLegacy,
        format!(
            "{by} names TanzuKubernetesRelease {name}, which is marked legacy, but the Cluster has a ClusterBootstrap; \
             name another release"
        ),
    )
}

fn find<'a>(name: &str, known: &'a [TkrFacts]) -> Option<&'a TkrFacts> {
    known.iter().find(|release| release.name == name)
}

fn of_another_version(release: &TkrFacts, hop: &str, by: &str) -> Hold {
    let TkrFacts {
        name,
        kubernetes_version,
        ..
    } = release;
    Hold::new(
        GateReason::NoTKRForHop,
        format!("{by} {name}, which is for Kubernetes {kubernetes_version} and not for {hop}"),
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::upgrade::hop::{ControlPlaneFacts, Plan, progress};
    use sluice_crds::run::UpgradeRecord;

    const V35: &str = "v1.35.4";
    const V36: &str = "v1.36.3";

    fn release(name: &str, version: &str) -> TkrFacts {
        TkrFacts {
            name: name.into(),
            version: String::new(),
            kubernetes_version: version.into(),
            legacy: false,
        }
    }

    fn known() -> Vec<TkrFacts> {
        vec![release("35-1", V35), release("36-1", V36)]
    }

    #[rstest]
    #[case::label_of_the_target(V36, V36, None, "36-1", Ok("36-1"))]
    #[case::pinned_for_the_hop(V35, V36, Some("35-1"), "36-1", Ok("35-1"))]
    #[case::only_one_on_the_way(V35, V36, None, "36-1", Ok("35-1"))]
    #[case::label_still_of_the_hop(V35, V36, None, "35-1", Ok("35-1"))]
    #[case::version_before_its_label(V36, V36, None, "35-1", Err(GateReason::NoTKRForHop))]
    #[case::label_before_its_version(V35, V35, None, "36-1", Err(GateReason::NoTKRForHop))]
    #[case::label_unknown(V36, V36, None, "36-9", Err(GateReason::TKRNotFound))]
    #[case::label_unknown_on_the_way(V35, V36, None, "36-9", Err(GateReason::TKRNotFound))]
    #[case::pinned_unknown(V35, V36, Some("35-9"), "36-1", Err(GateReason::TKRNotFound))]
    #[case::pinned_for_another_version(V35, V36, Some("36-1"), "36-1", Err(GateReason::NoTKRForHop))]
    #[case::none_on_the_way("v1.35.5", V36, None, "36-1", Err(GateReason::NoTKRForHop))]
    #[case::another_build_is_another_version("v1.36.3+b", V36, None, "36-1", Err(GateReason::NoTKRForHop))]
    fn the_release_of_a_hop(
        #[case] hop: &str,
        #[case] to: &str,
        #[case] pinned: Option<&str>,
        #[case] label: &str,
        #[case] expected: Result<&str, GateReason>,
    ) {
        let found = for_hop(hop, to, pinned, label, &known());
        assert_eq!(found.as_deref().map_err(|hold| hold.reason), expected);
    }

    #[test]
    fn several_on_the_way_need_a_pin() {
        let several = [known(), vec![release("35-2", V35)]].concat();
        let hold = for_hop(V35, V36, None, "36-1", &several).unwrap_err();
        assert_eq!(hold.reason, GateReason::NoTKRForHop);
        assert_eq!(
            for_hop(V35, V36, Some("35-2"), "36-1", &several),
            Ok("35-2".to_owned())
        );
    }

    #[test]
    fn a_cancelled_upgrade_keeps_the_release_that_is_merged() {
        let begun = UpgradeRecord {
            hop: Some(V36.into()),
            ..UpgradeRecord::default()
        };
        let settled = ControlPlaneFacts {
            spec_version: Some(V35.into()),
            status_version: Some(V35.into()),
        };
        let of = |previous: Option<&UpgradeRecord>, resolved: &str, to: &str, label: &str| {
            let progress = progress(Some(&settled), &[], to, &Plan::Direct, previous);
            let several = [known(), vec![release("36-2", V36)]].concat();
            for_progress(&progress, Some(resolved), to, None, label, &several)
        };
        assert_eq!(of(Some(&begun), "36-1", V35, "35-1"), Ok("36-1".to_owned()));
        assert_eq!(of(Some(&begun), "36-1", V35, "36-2"), Ok("36-1".to_owned()));
        assert_eq!(of(Some(&begun), "36-1", V36, "36-2"), Ok("36-2".to_owned()));
        assert_eq!(of(None, "36-1", V35, "35-1"), Ok("35-1".to_owned()));
    }

    /// Found by reading: the target went up before its label and came back, and the packages of the target were installed.
    #[test]
    fn a_cancelled_upgrade_that_merged_nothing_begins_nothing() {
        let held = UpgradeRecord {
            hop: Some(V36.into()),
            ..UpgradeRecord::default()
        };
        let settled = ControlPlaneFacts {
            spec_version: Some(V35.into()),
            status_version: Some(V35.into()),
        };
        let progress = progress(Some(&settled), &[], V35, &Plan::Direct, Some(&held));
        assert_eq!(progress.direction, UpgradeDirection::Cancelled);
        let release = for_progress(&progress, Some("35-1"), V35, None, "35-1", &known());
        assert_eq!(release, Ok("35-1".to_owned()));
    }

    #[test]
    fn an_unplanned_way_has_no_release() {
        let settled = ControlPlaneFacts {
            spec_version: Some(V35.into()),
            status_version: Some(V35.into()),
        };
        let unknown = Plan::Given {
            control_plane: Vec::new(),
            workers: Vec::new(),
        };
        let progress = progress(Some(&settled), &[], V36, &unknown, None);
        let release = for_progress(&progress, Some("35-1"), V36, None, "36-1", &known());
        assert_eq!(release.unwrap_err().reason, GateReason::UpgradePlanUnknown);
    }

    #[test]
    fn a_legacy_release_is_not_chosen_on_the_way() {
        let legacy = TkrFacts {
            legacy: true,
            ..release("35-0", V35)
        };
        let with_legacy = [known(), vec![legacy.clone()]].concat();
        assert_eq!(
            for_hop(V35, V36, None, "36-1", &with_legacy),
            Ok("35-1".to_owned())
        );
        assert_eq!(
            for_hop(V35, V36, Some("35-0"), "36-1", &with_legacy).map_err(|hold| hold.reason),
            Err(GateReason::TKRLegacy),
            "nor by a pin, which needs no more than the label"
        );
        let only_legacy = [legacy, release("36-1", V36)];
        assert_eq!(
            for_hop(V35, V36, None, "36-1", &only_legacy).map_err(|hold| hold.reason),
            Err(GateReason::NoTKRForHop)
        );
    }
}
