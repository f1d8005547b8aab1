//! Builds the ClusterBootstrap of a Cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sluice_crds::labels::annotation;
use sluice_crds::run::{ClusterBootstrap, ClusterBootstrapSpec};

use super::Owner;

/// Returns an owner reference to the Cluster. Only the ClusterBootstrap names it as its controller.
#[must_use]
pub fn owner(cluster: &Owner, controller: bool) -> OwnerReference {
    OwnerReference {
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        kind: "Cluster".to_owned(),
        name: cluster.name.clone(),
        uid: cluster.uid.clone(),
        controller: controller.then_some(true),
        block_owner_deletion: controller.then_some(true),
    }
}

/// Adds the Cluster to the `owners` of its ClusterBootstrap. Returns `None` if they name it correctly or name another Cluster: such a
/// ClusterBootstrap belongs to an earlier Cluster of the same name, and the garbage collector removes it.
///
/// The Cluster becomes the controller, unless there is another one.
#[must_use]
pub fn adopted(cluster: &Owner, owners: &[OwnerReference]) -> Option<Vec<OwnerReference>> {
    let is_cluster = |by: &&OwnerReference| {
        by.kind == "Cluster" && by.api_version.split('/').next() == Some("cluster.x-k8s.io")
    };
    let is_controlled = |by: &OwnerReference| by.controller == Some(true);
    let own = |by: &OwnerReference| by.uid == cluster.uid;
    let has_another = owners.iter().filter(is_cluster).any(|by| !own(by));
    let is_theirs = owners.iter().any(|by| is_controlled(by) && !own(by));
    let is_owned = owners
        .iter()
        .any(|by| own(by) && (is_controlled(by) || is_theirs));
    if has_another || is_owned {
        return None;
    }
    let others = owners.iter().filter(|by| !own(by)).cloned();
    Some(others.chain([owner(cluster, !is_theirs)]).collect())
}

/// Builds the ClusterBootstrap of `cluster`, with the same name and namespace, and the packages of `release`.
#[must_use]
pub fn bootstrap(cluster: &Owner, spec: ClusterBootstrapSpec, release: &str) -> ClusterBootstrap {
    ClusterBootstrap {
        metadata: ObjectMeta {
            name: Some(cluster.name.clone()),
            namespace: Some(cluster.namespace.clone()),
            owner_references: Some(vec![owner(cluster, true)]),
            annotations: Some([(annotation::RESOLVED_TKR.to_owned(), release.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn by(kind: &str, uid: &str, controller: bool) -> OwnerReference {
        let group = if kind == "Cluster" {
            "cluster.x-k8s.io/v1beta1"
        } else {
            "example.com/v1"
        };
        OwnerReference {
            api_version: group.to_owned(),
            kind: kind.to_owned(),
            name: "one".to_owned(),
            uid: uid.to_owned(),
            controller: controller.then_some(true),
            block_owner_deletion: None,
        }
    }

    /// UIDs of owners, and whether each is the controller.
    type Expected = Option<Vec<(&'static str, bool)>>;

    #[rstest]
    #[case::of_a_user(&[], Some(vec![("own", true)]))]
    #[case::of_something_else(&[by("Fleet", "fleet", false)], Some(vec![("fleet", false), ("own", true)]))]
    #[case::that_something_else_controls(&[by("Fleet", "fleet", true)], Some(vec![("fleet", true), ("own", false)]))]
    #[case::that_its_cluster_does_not_control(&[by("Cluster", "own", false)], Some(vec![("own", true)]))]
    #[case::as_it_should_be(&[by("Cluster", "own", true)], None)]
    #[case::that_something_else_controls_and_its_cluster_owns(&[by("Fleet", "fleet", true), by("Cluster", "own", false)], None)]
    #[case::of_an_earlier_cluster(&[by("Cluster", "earlier", true)], None)]
    #[case::of_an_earlier_cluster_and_this_one(&[by("Cluster", "earlier", true), by("Cluster", "own", false)], None)]
    fn a_bootstrap_goes_with_its_cluster(#[case] owners: &[OwnerReference], #[case] expected: Expected) {
        let cluster = Owner {
            name: "one".to_owned(),
            namespace: "team-a".to_owned(),
            uid: "own".to_owned(),
        };
        let found = adopted(&cluster, owners);
        let found: Option<Vec<_>> = found.as_ref().map(|owners| {
            owners
                .iter()
                .map(|by| (by.uid.as_str(), by.controller == Some(true)))
                .collect()
        });
        assert_eq!(found, expected);
    }
}
