//! Re-read of the Cluster and its control plane before a gate opens, or stays open because the control plane has its version. Their
//! watches may be behind, or ahead of an API server that was restored.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sluice_crds::{
    foreign::Cluster,
    labels::{annotation, label},
    run::{Gate, Outcome},
};

use super::{
    ReadPhase, Server, Step,
    facts::CachedControlPlane,
    interrupt::{needs_of, together},
    opening::{is_before_control_plane, releases_step},
    read::Key,
};
use crate::{
    cache::is_earlier,
    packages::build::Owner,
    protocol::{Context, Reconciler},
    reasons::{GateReason, Hold},
    upgrade::hop::ControlPlaneFacts,
    version::reached,
};

/// Whether a gate of an upgrade in progress is open because the `cached` control plane has its version, and that version is not
/// `confirmed` yet.
pub(crate) fn rests_on_control_plane(
    cached: Option<&CachedControlPlane>,
    confirmed: Option<&CachedControlPlane>,
    (outcome, gates): (Option<Outcome>, &[Gate]),
) -> bool {
    let Some(cached) = cached else {
        return false;
    };
    if outcome.is_some() || confirmed.is_some_and(|confirmed| confirmed.is_as(cached)) {
        return false;
    }
    let Some(version) = &cached.versions.spec_version else {
        return false;
    };
    let mut open = gates.iter().filter(|gate| releases_step(gate));
    open.any(|gate| is_before_control_plane(gate.hook) && reached(version, &gate.version))
}

/// Result of the reads of the Cluster and its control plane.
#[derive(Debug, Default)]
pub(crate) struct ConfirmedCluster {
    /// Hold of all gates, if one of them differs from the cache.
    pub(crate) outdated: Option<Hold>,
    /// The one that the API server returned at an earlier resourceVersion than the cache had.
    pub(crate) rolled_back: Option<String>,
}

impl ConfirmedCluster {
    fn compare(&mut self, key: &Key, version: Option<&str>, found: Option<&Value>, is_cached: bool) {
        let found = found.and_then(|found| found["metadata"]["resourceVersion"].as_str());
        if is_earlier(found, version) {
            self.rolled_back.get_or_insert_with(|| key.to_string());
        }
        if !is_cached {
            let text = format!("waiting for the leader to observe {key}");
            self.outdated
                .get_or_insert_with(|| Hold::new(GateReason::CacheOutdated, text));
        }
    }
}

/// Reads the Cluster `owner` and its control plane from the API server, and compares them with the cached ones.
pub(crate) fn confirm_cluster<S: Reconciler<Hold = Hold>>(
    context: &Context<'_, S>,
    owner: &Owner,
    cached: &Cluster,
    control_plane: Option<&CachedControlPlane>,
) -> Step<ConfirmedCluster> {
    let (namespace, name) = (Some(owner.namespace.as_str()), &owner.name);
    let key = Key::of::<Cluster>(Server::Management, namespace, name);
    let cluster = context.object(key.clone(), ReadPhase::Confirm);
    let found = control_plane.map(|cached| context.object(cached.key.clone(), ReadPhase::Confirm));
    together([needs_of(&cluster), found.as_ref().map_or(Ok(()), needs_of)])?;

    let mut confirmed = ConfirmedCluster::default();
    let cluster = cluster?;
    let is_cached = cluster.is_some_and(|found| is_cluster(found, cached));
    confirmed.compare(
        &key,
        cached.metadata.resource_version.as_deref(),
        cluster,
        is_cached,
    );
    if let Some((cached, found)) = control_plane.zip(found) {
        let found = found?;
        let is_cached = found.is_some_and(|found| is_control_plane(found, cached));
        confirmed.compare(&cached.key, cached.resource_version.as_deref(), found, is_cached);
    }
    Ok(confirmed)
}

/// Whether a Cluster is the cached one. Generations of a restored API server repeat, so fields are compared as well.
fn is_cluster(found: &Value, cached: &Cluster) -> bool {
    let spec = &found["spec"];
    let topology = cached.spec.topology.as_ref();
    let of_cache = |entries: Option<&BTreeMap<String, String>>, key: &str| {
        entries.and_then(|entries| entries.get(key)).cloned()
    };
    let meta = &cached.metadata;
    is_same(found, meta.uid.as_deref(), meta.generation)
        && is_deleted(found) == meta.deletion_timestamp.is_some()
        && [label::TKR, label::MANAGEMENT_CLUSTER]
            .iter()
            .all(|key| text(&found["metadata"]["labels"][*key]) == of_cache(meta.labels.as_ref(), key))
        && [
            annotation::PAUSED,
            annotation::LEGACY_PAUSED,
            annotation::RESOLVE_TKR,
        ]
        .iter()
        .all(|key| text(&found["metadata"]["annotations"][*key]) == of_cache(meta.annotations.as_ref(), key))
        && spec["paused"].as_bool().unwrap_or_default() == cached.spec.paused
        && starts_held(
            found["metadata"]["annotations"]
                .as_object()
                .into_iter()
                .flat_map(Map::keys),
        ) == starts_held(meta.annotations.iter().flat_map(BTreeMap::keys))
        && text(&spec["topology"]["version"]) == topology.map(|topology| topology.version.clone())
}

/// Whether one of these annotations keeps an upgrade from starting.
fn starts_held<'a>(mut annotations: impl Iterator<Item = &'a String>) -> bool {
    annotations.any(|key| key.starts_with(annotation::BEFORE_UPGRADE_PREFIX))
}

/// Whether a control plane is the cached one.
fn is_control_plane(found: &Value, cached: &CachedControlPlane) -> bool {
    is_same(found, cached.uid.as_deref(), cached.generation)
        && ControlPlaneFacts::in_object(found) == cached.versions
}

/// Whether an object is being deleted.
pub(super) fn is_deleted(found: &Value) -> bool {
    !found["metadata"]["deletionTimestamp"].is_null()
}

/// Whether an object has this UID and generation.
pub(super) fn is_same(found: &Value, uid: Option<&str>, generation: Option<i64>) -> bool {
    let metadata = &found["metadata"];
    metadata["uid"].as_str() == uid && metadata["generation"].as_i64() == generation
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;
    use sluice_crds::run::{Hook, UpgradeRecord};

    use super::{super::opening::withheld, *};
    use crate::{protocol::Resource, upgrade::hop::Rollout};

    fn cluster() -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {
                "name": "one", "namespace": "team-a", "uid": "uid", "generation": 7, "resourceVersion": "100",
                "labels": {label::TKR: "v1.36.3---sluice.1"}, "annotations": {},
            },
            "spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.36.3"}},
        })
    }

    fn control_plane() -> Value {
        json!({
            "metadata": {"uid": "uid", "generation": 3, "resourceVersion": "100"},
            "spec": {"version": "v1.36.3"},
            "status": {"version": "v1.36.3", "versions": [{"version": "v1.35.4"}, {"version": "v1.36.3"}]},
        })
    }

    fn cached(control_plane: &Value) -> CachedControlPlane {
        let metadata = &control_plane["metadata"];
        CachedControlPlane {
            key: Key {
                server: Server::Management,
                resource: Resource {
                    group: "controlplane.example.com".into(),
                    version: "v1".into(),
                    kind: "Good".into(),
                    plural: "goods".into(),
                },
                namespace: Some("team-a".to_owned()),
                name: "one".to_owned(),
            },
            uid: text(&metadata["uid"]),
            generation: metadata["generation"].as_i64(),
            resource_version: text(&metadata["resourceVersion"]),
            versions: ControlPlaneFacts::in_object(control_plane),
            rollout: Rollout::default(),
        }
    }

    #[rstest]
    #[case::uid("/metadata/uid", json!("another"), false)]
    #[case::generation("/metadata/generation", json!(6), false)]
    #[case::label("/metadata/labels", json!({label::TKR: "another"}), false)]
    #[case::without_label("/metadata/labels", json!({}), false)]
    #[case::label_of_a_management_cluster(
        "/metadata/labels", json!({label::TKR: "v1.36.3---sluice.1", label::MANAGEMENT_CLUSTER: ""}), false
    )]
    #[case::paused_by_annotation("/metadata/annotations", json!({annotation::PAUSED: ""}), false)]
    #[case::selector("/metadata/annotations", json!({annotation::RESOLVE_TKR: "a"}), false)]
    #[case::paused_by_addons_manager("/metadata/annotations", json!({annotation::LEGACY_PAUSED: "v1"}), false)]
    #[case::start_held("/metadata/annotations", json!({"before-upgrade.hook.cluster.cluster.x-k8s.io/a": "b"}), false)]
    #[case::paused("/spec", json!({"paused": true, "topology": {"version": "v1.36.3"}}), false)]
    #[case::target("/spec/topology/version", json!("v1.37.1"), false)]
    #[case::without_topology("/spec", json!({}), false)]
    #[case::deleted("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"), false)]
    #[case::other_annotation("/metadata/annotations", json!({"a": "b"}), true)]
    #[case::other_label("/metadata/labels", json!({label::TKR: "v1.36.3---sluice.1", "a": "b"}), true)]
    #[case::version("/metadata/resourceVersion", json!("101"), true)]
    fn a_cluster_is_compared(#[case] field: &str, #[case] value: Value, #[case] expected: bool) {
        let cached: Cluster = serde_json::from_value(cluster()).unwrap();
        assert!(is_cluster(&cluster(), &cached));
        let mut found = cluster();
        match field.rsplit_once('/') {
            Some((parent, added)) => found.pointer_mut(parent).unwrap()[added] = value,
            None => unreachable!("{field}"),
        }
        assert_eq!(is_cluster(&found, &cached), expected);
    }

    #[rstest]
    #[case::uid("/metadata/uid", json!("another"), false)]
    #[case::generation("/metadata/generation", json!(2), false)]
    #[case::desired("/spec/version", json!("v1.35.4"), false)]
    #[case::oldest("/status/versions/0/version", json!("v1.36.3"), false)]
    #[case::without_status("/status", json!({}), false)]
    #[case::version("/metadata/resourceVersion", json!("101"), true)]
    fn a_control_plane_is_compared(#[case] field: &str, #[case] value: Value, #[case] expected: bool) {
        let cached = cached(&control_plane());
        assert!(is_control_plane(&control_plane(), &cached));
        let mut found = control_plane();
        *found.pointer_mut(field).unwrap() = value;
        assert_eq!(is_control_plane(&found, &cached), expected);
    }

    #[test]
    fn a_difference_and_an_earlier_version_are_named() {
        let key = cached(&control_plane()).key;
        let mut confirmed = ConfirmedCluster::default();
        let found = control_plane();
        confirmed.compare(&key, Some("100"), Some(&found), true);
        assert_eq!((&confirmed.outdated, &confirmed.rolled_back), (&None, &None));
        confirmed.compare(&key, Some("101"), Some(&found), true);
        assert_eq!(confirmed.outdated, None, "its content is the same");
        assert_eq!(confirmed.rolled_back.as_deref(), Some("Good team-a/one"));
        confirmed.compare(&key, Some("100"), None, false);
        let outdated = confirmed.outdated.map(|hold| hold.to_string());
        let expected = "CacheOutdated: waiting for the leader to observe Good team-a/one";
        assert_eq!(outdated.as_deref(), Some(expected));
    }

    #[test]
    fn no_gate_opens_or_stays_open_by_an_outdated_cache() {
        use Hook::{
            AfterControlPlaneUpgrade, AfterWorkersUpgrade, BeforeClusterUpgrade, BeforeWorkersUpgrade,
        };
        let gate = |hook, open| Gate {
            hook,
            version: "v1.36.3".to_owned(),
            open,
            reason: String::new(),
            message: String::new(),
            overridden_by: None,
        };
        let record = |gates: [(Hook, bool); 4]| UpgradeRecord {
            gates: gates.map(|(hook, open)| gate(hook, open)).into(),
            ..UpgradeRecord::default()
        };
        let previous = record([
            (BeforeClusterUpgrade, true),
            (AfterControlPlaneUpgrade, true),
            (BeforeWorkersUpgrade, false),
            (AfterWorkersUpgrade, false),
        ]);
        let next = record([
            (BeforeClusterUpgrade, true),
            (AfterControlPlaneUpgrade, true),
            (BeforeWorkersUpgrade, true),
            (AfterWorkersUpgrade, true),
        ]);
        let hold = Hold::new(GateReason::CacheOutdated, "waiting");
        let found = withheld(Some(&previous), next.clone(), &hold);
        let open = |record: &UpgradeRecord| record.gates.iter().map(|gate| gate.open).collect::<Vec<_>>();
        assert_eq!(open(&found), [false, true, false, false]);
        assert_eq!(found.gates[0].reason, "CacheOutdated");

        let completed = UpgradeRecord {
            outcome: Some(Outcome::Completed),
            ..next
        };
        let found = withheld(Some(&previous), completed.clone(), &hold);
        assert_eq!(
            (found.outcome, open(&found)),
            (None, vec![false, true, false, false])
        );
        let found = withheld(None, completed.clone(), &hold);
        assert_eq!((found.outcome, open(&found)), (None, vec![false; 4]));
        let found = withheld(Some(&completed), completed.clone(), &hold);
        assert_eq!(found.outcome, Some(Outcome::Completed), "it has ended before");
    }
}
