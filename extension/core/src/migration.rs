//! Leftovers of the addons-manager: predicates on single objects.
//!
//! The addons-manager set a finalizer on Clusters with additional packages, their ClusterBootstraps and their kubeconfig Secrets, and an
//! annotation on the Machines of such Clusters (`addons/controllers`, release 0.29). Only the addons-manager removes them.

mod same;

pub use same::{are_empty, same_values};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_crds::{
    foreign::Cluster,
    labels::{annotation, finalizer},
    run::ClusterBootstrap,
};

/// Returns the finalizers of an object without that of the addons-manager; `None` if the object does not have it.
#[must_use]
pub fn without_finalizer(object: &ObjectMeta) -> Option<Vec<String>> {
    let finalizers = object.finalizers.as_ref()?;
    let is_legacy = |name: &&String| *name == finalizer::LEGACY_ADDON;
    finalizers.iter().any(|name| is_legacy(&name)).then(|| {
        let others = finalizers.iter().filter(|name| !is_legacy(name));
        others.cloned().collect()
    })
}

/// Whether the addons-manager holds a Machine. The same annotation with another value belongs to another owner.
#[must_use]
pub fn holds_machine(machine: &ObjectMeta) -> bool {
    let annotations = machine.annotations.as_ref();
    let value = annotations.and_then(|annotations| annotations.get(annotation::LEGACY_PRE_TERMINATE));
    value.is_some_and(|value| value == annotation::LEGACY_PRE_TERMINATE_OWNER)
}

/// Whether a Cluster may have leftovers, judged by the cache: the Cluster or its ClusterBootstrap has the finalizer, or a ClusterBootstrap
/// of the addons-manager has no record yet (`is_recorded`).
#[must_use]
pub fn may_be_left(cluster: &Cluster, bootstrap: Option<&ClusterBootstrap>, is_recorded: bool) -> bool {
    let has_finalizer = |object: &ObjectMeta| without_finalizer(object).is_some();
    let is_resolved = |bootstrap: &ClusterBootstrap| {
        let resolved = bootstrap
            .status
            .as_ref()
            .and_then(|status| status.resolved_tkr.as_deref());
        resolved.is_some_and(|release| !release.is_empty())
    };
    has_finalizer(&cluster.metadata)
        || bootstrap.is_some_and(|bootstrap| {
            has_finalizer(&bootstrap.metadata) || (!is_recorded && is_resolved(bootstrap))
        })
}

/// Whether Cluster API continues the deletion of a Cluster without further hook calls.
#[must_use]
pub fn is_let_go(cluster: &Cluster) -> bool {
    let annotations = cluster.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(annotation::OK_TO_DELETE))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::run::{ClusterBootstrapSpec, ClusterBootstrapStatus};

    use super::*;

    const OLD: &str = finalizer::LEGACY_ADDON;
    const OTHER: &str = "cluster.cluster.x-k8s.io";

    fn with_finalizers(names: &[&str]) -> ObjectMeta {
        ObjectMeta {
            finalizers: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..ObjectMeta::default()
        }
    }

    #[rstest]
    #[case::none(&[], None)]
    #[case::of_others(&[OTHER], None)]
    #[case::one(&[OLD], Some(vec![]))]
    #[case::among_others(&[OTHER, OLD, "a.user/wait"], Some(vec![OTHER, "a.user/wait"]))]
    #[case::one_that_looks_like_it(&["tkg.tanzu.vmware.com/addons"], None)]
    fn only_the_legacy_finalizer_is_removed(#[case] there: &[&str], #[case] left: Option<Vec<&str>>) {
        let left = left.map(|left| left.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(without_finalizer(&with_finalizers(there)), left);
    }

    #[rstest]
    #[case::its_own(
        annotation::LEGACY_PRE_TERMINATE,
        annotation::LEGACY_PRE_TERMINATE_OWNER,
        true
    )]
    #[case::of_a_user(annotation::LEGACY_PRE_TERMINATE, "someone", false)]
    #[case::another_hook(
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/other",
        annotation::LEGACY_PRE_TERMINATE_OWNER,
        false
    )]
    fn a_machine_is_held_by_its_own_annotation(#[case] key: &str, #[case] value: &str, #[case] held: bool) {
        let machine = ObjectMeta {
            annotations: Some([(key.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert_eq!(holds_machine(&machine), held);
        assert!(!holds_machine(&ObjectMeta::default()));
    }

    #[rstest]
    #[case::nothing(&[], &[], None, false, false)]
    #[case::on_the_cluster(&[OLD], &[], None, true, true)]
    #[case::on_the_bootstrap_alone(&[], &[OLD], None, true, true)]
    #[case::of_others(&[OTHER], &[OTHER], None, true, false)]
    #[case::half_of_it_is_gone(&[], &[], Some("36-1"), false, true)]
    #[case::what_was_taken_over(&[], &[], Some("36-1"), true, false)]
    #[case::a_new_one(&[], &[], Some(""), false, false)]
    fn leftovers_may_exist(
        #[case] cluster: &[&str],
        #[case] bootstrap: &[&str],
        #[case] resolved: Option<&str>,
        #[case] is_recorded: bool,
        #[case] expected: bool,
    ) {
        let cluster = Cluster {
            metadata: with_finalizers(cluster),
            ..Cluster::default()
        };
        let mut object = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
        object.metadata = with_finalizers(bootstrap);
        object.status = resolved.map(|release| ClusterBootstrapStatus {
            resolved_tkr: Some(release.to_owned()),
            ..ClusterBootstrapStatus::default()
        });
        assert_eq!(may_be_left(&cluster, Some(&object), is_recorded), expected);
    }
}
