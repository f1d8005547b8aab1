//! Predicates of a Cluster that the gate and the controllers share: managed, paused, legacy.

mod reference;

use kube::{ResourceExt, core::ObjectMeta};
use sluice_crds::foreign::{Cluster, cluster::ClusterStatus};
use sluice_crds::labels::{annotation, label, name::TOPOLOGY_RECONCILED};
use sluice_crds::run::{Gate, Hook, UpgradeRecord};

pub use self::reference::ClusterRef;
use crate::reasons::GateReason;

/// Whether Sluice manages a Cluster with this release label. `legacy` means that the release is marked legacy.
///
/// A Cluster with a ClusterBootstrap is managed whatever its label, so the right to edit the Cluster does not suffice to bypass
/// the gate.
#[must_use]
pub fn is_managed(label: Option<&str>, legacy: bool, has_bootstrap: bool) -> bool {
    has_bootstrap || (!legacy && label.is_some_and(|label| !label.is_empty()))
}

/// Returns the release that the label of a Cluster names; empty without a label.
#[must_use]
pub fn release_of(cluster: &ObjectMeta) -> String {
    let labels = cluster.labels.as_ref();
    labels
        .and_then(|labels| labels.get(label::TKR))
        .cloned()
        .unwrap_or_default()
}

/// Whether a release is marked legacy: Sluice does not manage its Clusters that have no ClusterBootstrap.
#[must_use]
pub fn is_legacy(release: &ObjectMeta) -> bool {
    let labels = release.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(label::LEGACY_TKR))
}

/// Whether the Cluster waits for a ClusterBootstrap that a user creates.
#[must_use]
pub fn is_custom(cluster: &Cluster) -> bool {
    cluster
        .annotations()
        .contains_key(annotation::CUSTOM_CLUSTER_BOOTSTRAP)
}

/// Whether Cluster API has reconciled the topology of the current generation of a Cluster. It reconciles a Cluster one at a time, so no
/// reconcile of an earlier generation is left.
#[must_use]
pub fn is_reconciled(cluster: &Cluster) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let observed = conditions
        .filter(|condition| condition.type_ == TOPOLOGY_RECONCILED)
        .find_map(|condition| condition.observed_generation);
    observed.is_some() && observed >= cluster.metadata.generation
}

/// Whether the API server of the workload has responded once. Until then no package can be deployed.
#[must_use]
pub fn is_initialized(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.and_then(ClusterStatus::control_plane_initialized) == Some(true)
}

/// Whether Cluster API does not reconcile the Cluster: `spec.paused` or the annotation `cluster.x-k8s.io/paused` is set.
#[must_use]
pub fn is_stopped(cluster: &Cluster) -> bool {
    cluster.spec.paused || cluster.annotations().contains_key(annotation::PAUSED)
}

/// Whether a user has paused the Cluster. A pause by the addons-manager does not count.
#[must_use]
pub fn is_paused(cluster: &Cluster) -> bool {
    pause(cluster).is_some()
}

/// Field or annotation by which a user has paused a Cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// `spec.paused`.
    Spec,
    /// The annotation `cluster.x-k8s.io/paused`.
    Annotation,
    /// Field and annotation.
    Both,
}

/// Returns the pause that a user has set. A pause by the addons-manager does not count.
#[must_use]
pub fn pause(cluster: &Cluster) -> Option<Pause> {
    let spec = cluster.spec.paused && !is_paused_by_addons_manager(cluster);
    match (spec, cluster.annotations().contains_key(annotation::PAUSED)) {
        (false, false) => None,
        (true, false) => Some(Pause::Spec),
        (false, true) => Some(Pause::Annotation),
        (true, true) => Some(Pause::Both),
    }
}

/// Whether the addons-manager has set `spec.paused`: it wrote label, pause and an annotation with the label value in one update.
fn is_paused_by_addons_manager(cluster: &Cluster) -> bool {
    let paused_for = cluster.annotations().get(annotation::LEGACY_PAUSED);
    let label = cluster.labels().get(label::TKR);
    cluster.spec.paused && paused_for.is_some_and(|release| !release.is_empty() && Some(release) == label)
}

/// Leftover of a pause by the addons-manager that Sluice removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyPause {
    /// Whether Sluice removes `spec.paused` together with the annotation.
    pub stopped: bool,
}

/// Returns the pause by the addons-manager that can be removed: `record` is current for the Cluster and would release its next step.
/// The open gate is required because Cluster API may not call hooks at all, for example without a discovered ExtensionConfig.
/// A Cluster that is being deleted has no next step, and its deletion does not proceed while it is paused.
///
/// `record` belongs to this very Cluster. An annotation that names another release than the label proves nothing, so it stays while
/// the Cluster is paused.
#[must_use]
pub fn legacy_pause(cluster: &Cluster, record: Option<&UpgradeRecord>) -> Option<LegacyPause> {
    cluster.annotations().get(annotation::LEGACY_PAUSED)?;
    let record = record?;
    let label = cluster.labels().get(label::TKR).map_or("", String::as_str);
    let answers =
        Some(record.observed_cluster_generation) == cluster.metadata.generation && record.label == label;
    let mut first = record.gates.iter().filter(|gate| is_first(gate.hook));
    let released = cluster.metadata.deletion_timestamp.is_some() || first.all(permits_removal);
    let stopped = is_paused_by_addons_manager(cluster);
    (answers && released && (stopped || !cluster.spec.paused)).then_some(LegacyPause { stopped })
}

/// Whether a gate permits removal of the pause. Cluster API plans the steps of an upgrade only for a Cluster that is not paused.
fn permits_removal(gate: &Gate) -> bool {
    gate.open || GateReason::parse(&gate.reason) == Some(GateReason::UpgradePlanUnknown)
}

/// Whether Cluster API calls this hook before it writes a control plane.
fn is_first(hook: Hook) -> bool {
    matches!(
        hook,
        Hook::BeforeClusterCreate | Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;

    use super::*;

    fn cluster(paused: bool, annotations: &[(&str, &str)]) -> Cluster {
        let mut cluster = Cluster::default();
        cluster.metadata.generation = Some(7);
        cluster.spec.paused = paused;
        cluster.labels_mut().insert(label::TKR.into(), "36-1".into());
        for (key, value) in annotations {
            cluster
                .annotations_mut()
                .insert((*key).to_owned(), (*value).to_owned());
        }
        cluster
    }

    fn record() -> UpgradeRecord {
        UpgradeRecord {
            observed_cluster_generation: 7,
            label: "36-1".into(),
            ..UpgradeRecord::default()
        }
    }

    const OF_USER: (&str, &str) = (annotation::PAUSED, "");
    const OF_MANAGER: (&str, &str) = (annotation::LEGACY_PAUSED, "36-1");
    const OF_EARLIER: (&str, &str) = (annotation::LEGACY_PAUSED, "35-1");
    const EMPTY: (&str, &str) = (annotation::LEGACY_PAUSED, "");

    #[rstest]
    #[case::not_at_all(false, &[], None)]
    #[case::in_the_spec(true, &[], Some(Pause::Spec))]
    #[case::by_annotation(false, &[OF_USER], Some(Pause::Annotation))]
    #[case::in_both_ways(true, &[OF_USER], Some(Pause::Both))]
    #[case::by_the_addons_manager(true, &[OF_MANAGER], None)]
    #[case::by_the_addons_manager_and_a_user(true, &[OF_MANAGER, OF_USER], Some(Pause::Annotation))]
    #[case::while_an_old_annotation_is_left(true, &[OF_EARLIER], Some(Pause::Spec))]
    #[case::while_an_empty_annotation_is_left(true, &[EMPTY], Some(Pause::Spec))]
    fn a_cluster_is_paused_by_a_user(
        #[case] spec: bool,
        #[case] annotations: &[(&str, &str)],
        #[case] by: Option<Pause>,
    ) {
        let cluster = cluster(spec, annotations);
        assert_eq!((pause(&cluster), is_paused(&cluster)), (by, by.is_some()));
    }

    #[rstest]
    #[case::nothing(false, &[], None)]
    #[case::users_pause(true, &[], None)]
    #[case::managers_pause(true, &[OF_MANAGER], Some(true))]
    #[case::managers_pause_and_the_users(true, &[OF_MANAGER, OF_USER], Some(true))]
    #[case::annotation_left_behind(false, &[OF_EARLIER], Some(false))]
    #[case::annotation_of_another_release_in_a_pause(true, &[OF_EARLIER], None)]
    fn leftover_pause_of_the_addons_manager(
        #[case] spec: bool,
        #[case] annotations: &[(&str, &str)],
        #[case] removed: Option<bool>,
    ) {
        let found = legacy_pause(&cluster(spec, annotations), Some(&record()));
        assert_eq!(found.map(|pause| pause.stopped), removed);
    }

    #[rstest]
    #[case::not_there(None)]
    #[case::older_than_the_cluster(Some(UpgradeRecord { observed_cluster_generation: 6, ..record() }))]
    #[case::of_another_label(Some(UpgradeRecord { label: "35-1".into(), ..record() }))]
    fn a_pause_stays_without_a_current_record(#[case] record: Option<UpgradeRecord>) {
        assert_eq!(legacy_pause(&cluster(true, &[OF_MANAGER]), record.as_ref()), None);
    }

    #[rstest]
    #[case::of_the_upgrade(Hook::BeforeClusterUpgrade, "PackagesNotReady", false)]
    #[case::of_the_control_plane(Hook::BeforeControlPlaneUpgrade, "PackagesNotReady", false)]
    #[case::that_is_open(Hook::BeforeControlPlaneUpgrade, "", true)]
    #[case::that_only_a_control_plane_opens(Hook::AfterControlPlaneUpgrade, "ControlPlaneUpgrading", true)]
    #[case::that_only_cluster_api_opens(Hook::BeforeClusterUpgrade, "UpgradePlanUnknown", true)]
    fn a_pause_stays_while_a_gate_is_closed(#[case] hook: Hook, #[case] reason: &str, #[case] removed: bool) {
        let gate = Gate {
            hook,
            version: "v1.36.3".into(),
            open: reason.is_empty(),
            reason: reason.into(),
            message: String::new(),
            overridden_by: None,
        };
        let record = UpgradeRecord {
            gates: vec![gate],
            ..record()
        };
        let mut cluster = cluster(true, &[OF_MANAGER]);
        assert_eq!(legacy_pause(&cluster, Some(&record)).is_some(), removed);
        cluster.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert!(legacy_pause(&cluster, Some(&record)).is_some(), "being deleted");
    }

    #[rstest]
    #[case::unlabelled(None, false, false, false)]
    #[case::empty_label(Some(""), false, false, false)]
    #[case::labelled(Some("36-1"), false, false, true)]
    #[case::legacy(Some("36-1"), true, false, false)]
    #[case::unlabelled_with_bootstrap(None, false, true, true)]
    #[case::legacy_with_bootstrap(Some("36-1"), true, true, true)]
    fn a_cluster_is_managed(
        #[case] label: Option<&str>,
        #[case] legacy: bool,
        #[case] has_bootstrap: bool,
        #[case] managed: bool,
    ) {
        assert_eq!(is_managed(label, legacy, has_bootstrap), managed);
    }
}
