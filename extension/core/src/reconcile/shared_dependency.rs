//! Dependents of objects that many Clusters share, and the fan-out requeue after a change.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::Cluster,
    labels::label,
    run::{ClusterBootstrap, Outcome},
};

use crate::{
    cluster::ClusterRef,
    limits::TokenBucket,
    packages::bootstrap::{ResolvedRelease, packages},
    upgrade::record::of_cluster,
};

/// Object that many Clusters may depend on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedDependency {
    /// TanzuKubernetesRelease, by name.
    Release(String),
    /// ClusterBootstrapTemplate, by name.
    Template(String),
    /// Package, by name.
    Package(String),
    /// ClusterClass, by namespace and name.
    Class(String, String),
}

/// Clusters by ClusterClass. A change of a class affects only its own Clusters, so the fan-out looks up no others.
#[derive(Debug, Default)]
pub struct Classes {
    of: HashMap<ClusterRef, Arc<Class>>,
    clusters: BTreeMap<Arc<Class>, BTreeSet<ClusterRef>>,
}

/// Namespace and name of a ClusterClass.
type Class = (String, String);

impl Classes {
    /// Observes a Cluster.
    pub fn saw(&mut self, named: &ClusterRef, cluster: &Cluster) {
        let class = class_of(cluster);
        if self.of.get(named).map(|class| &**class) == class.as_ref() {
            return;
        }
        self.gone(named);
        let Some(class) = class else { return };
        let known = self.clusters.get_key_value(&class);
        let class = known.map_or_else(|| Arc::new(class), |(known, _)| Arc::clone(known));
        self.of.insert(named.clone(), Arc::clone(&class));
        self.clusters.entry(class).or_default().insert(named.clone());
    }

    /// Whether a Cluster has a topology.
    #[must_use]
    pub fn has_topology(&self, named: &ClusterRef) -> bool {
        self.of.contains_key(named)
    }

    /// Drops a deleted Cluster.
    pub fn gone(&mut self, named: &ClusterRef) {
        let Some(class) = self.of.remove(named) else {
            return;
        };
        if let Entry::Occupied(mut clusters) = self.clusters.entry(class) {
            clusters.get_mut().remove(named);
            if clusters.get().is_empty() {
                clusters.remove();
            }
        }
    }

    /// Returns the Clusters that may depend on `changed`; `None` if any Cluster may.
    #[must_use]
    pub fn dependents_of(&self, changed: &BTreeSet<SharedDependency>) -> Option<Vec<ClusterRef>> {
        let mut concerned = BTreeSet::new();
        for shared in changed {
            let SharedDependency::Class(namespace, name) = shared else {
                return None;
            };
            let clusters = self.clusters.get(&(namespace.clone(), name.clone()));
            concerned.extend(clusters.into_iter().flatten().cloned());
        }
        Some(concerned.into_iter().collect())
    }
}

/// Dependency of a Cluster on a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Impact {
    /// Not affected.
    None,
    /// Affected, and possibly blocked only by this change.
    Waiting,
    /// Settled, and possibly no longer up to date.
    Resting,
}

/// Settled Clusters of one batch.
const BATCH: usize = 100;

/// Time between two batches of settled Clusters.
const BETWEEN: Duration = Duration::from_millis(50);

/// Fan-out requeue: Clusters to requeue after a change of shared objects.
#[derive(Debug)]
pub struct FanOutQueue {
    waiting: BTreeSet<ClusterRef>,
    resting: BTreeSet<ClusterRef>,
    batches: TokenBucket,
}

impl FanOutQueue {
    /// Returns an empty queue.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            waiting: BTreeSet::new(),
            resting: BTreeSet::new(),
            batches: TokenBucket::full(BETWEEN, now),
        }
    }

    /// Adds a Cluster if it depends on `changed`. `bootstrap` looks up its ClusterBootstrap.
    pub fn add(
        &mut self,
        changed: &BTreeSet<SharedDependency>,
        cluster: &Cluster,
        bootstrap: impl FnOnce() -> Option<Arc<ClusterBootstrap>>,
    ) {
        let is_of_others = |shared: &SharedDependency| matches!(shared, SharedDependency::Class(namespace, name) if !is_of_class(cluster, namespace, name));
        if changed.iter().all(is_of_others) {
            return;
        }
        match depends_on(changed, cluster, bootstrap().as_deref()) {
            Impact::None => {}
            Impact::Waiting => drop(self.waiting.insert(ClusterRef::of(cluster))),
            Impact::Resting => drop(self.resting.insert(ClusterRef::of(cluster))),
        }
    }

    /// Returns the number of Clusters still to requeue.
    #[must_use]
    pub fn left(&self) -> usize {
        self.waiting.len() + self.resting.len()
    }

    /// Returns the time of the next requeue, which may be in the past; `None` if no Cluster is left.
    #[must_use]
    pub fn next_at(&self) -> Option<Instant> {
        let cost = if self.waiting.is_empty() {
            BETWEEN
        } else {
            Duration::ZERO
        };
        (self.left() > 0).then(|| self.batches.available_at(cost))
    }

    /// Returns the Clusters to requeue now: all waiting ones, and a batch of settled ones if it is due.
    pub fn next(&mut self, now: Instant) -> Vec<ClusterRef> {
        let mut next: Vec<_> = std::mem::take(&mut self.waiting).into_iter().collect();
        if !self.resting.is_empty() && self.batches.try_take(BETWEEN, now) {
            next.extend(std::iter::from_fn(|| self.resting.pop_first()).take(BATCH));
        }
        next
    }
}

/// Returns the dependency of a Cluster on `changed`. A settled Cluster depends on the objects that it names. Any other Cluster depends
/// on all shared objects except classes of other Clusters.
fn depends_on(
    changed: &BTreeSet<SharedDependency>,
    cluster: &Cluster,
    bootstrap: Option<&ClusterBootstrap>,
) -> Impact {
    let label = cluster.labels().get(label::TKR);
    if label.is_none() && bootstrap.is_none() {
        return Impact::None;
    }
    let record = bootstrap
        .and_then(|bootstrap| bootstrap.status.as_ref())
        .and_then(|status| of_cluster(status.upgrade.as_ref(), cluster.metadata.uid.as_deref()?));
    let rests =
        record.is_some_and(|record| matches!(record.outcome, Some(Outcome::Completed | Outcome::RolledBack)));
    let named = |shared: &SharedDependency| match shared {
        // The release of a version depends on all releases.
        SharedDependency::Release(_) => true,
        SharedDependency::Template(name) => {
            !rests
                || label == Some(name)
                || bootstrap.is_some_and(|bootstrap| ResolvedRelease::of(bootstrap).release() == Some(name))
        }
        SharedDependency::Package(name) => {
            !rests || bootstrap.is_some_and(|bootstrap| names(bootstrap, name))
        }
        SharedDependency::Class(namespace, name) => is_of_class(cluster, namespace, name),
    };
    match changed.iter().any(named) {
        false => Impact::None,
        true if rests => Impact::Resting,
        true => Impact::Waiting,
    }
}

fn names(bootstrap: &ClusterBootstrap, package: &str) -> bool {
    let packages = packages(&bootstrap.spec);
    packages.iter().any(|(_, named)| named.ref_name == package)
}

fn is_of_class(cluster: &Cluster, namespace: &str, name: &str) -> bool {
    class_of(cluster).is_some_and(|class| (class.0.as_str(), class.1.as_str()) == (namespace, name))
}

fn class_of(cluster: &Cluster) -> Option<Class> {
    let topology = cluster.spec.topology.as_ref()?;
    let own = cluster.metadata.namespace.as_deref().unwrap_or_default();
    let namespace = topology.class_namespace().unwrap_or(own);
    Some((namespace.to_owned(), topology.class_name()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::cache::stores::tests::object;

    fn cluster(labels: &Value) -> Arc<Cluster> {
        let topology = json!({"classRef": {"name": "class"}, "version": "v1.36.3"});
        object(
            Some("team-a"),
            "one",
            labels,
            &json!({"spec": {"topology": topology}}),
        )
    }

    /// Returns a ClusterBootstrap of release `release` with package `package`.
    fn bootstrap(outcome: Option<&str>) -> Arc<ClusterBootstrap> {
        let record = json!({
            "schema": 1, "clusterUID": "uid", "observedClusterGeneration": 1, "observedBootstrapGeneration": 1,
            "label": "release", "to": "v1.36.3", "outcome": outcome,
        });
        let rest = json!({
            "spec": {"cni": {"refName": "package"}}, "status": {"resolvedTKR": "release", "upgrade": record},
        });
        object(Some("team-a"), "one", &json!({}), &rest)
    }

    #[rstest]
    #[case::any_release(SharedDependency::Release("other".into()), true)]
    #[case::its_template(SharedDependency::Template("release".into()), true)]
    #[case::another_template(SharedDependency::Template("other".into()), false)]
    #[case::its_package(SharedDependency::Package("package".into()), true)]
    #[case::another_package(SharedDependency::Package("other".into()), false)]
    #[case::its_class(SharedDependency::Class("team-a".into(), "class".into()), true)]
    #[case::a_class_of_others(SharedDependency::Class("team-b".into(), "class".into()), false)]
    fn a_settled_cluster_depends_on_the_objects_that_it_names(
        #[case] changed: SharedDependency,
        #[case] named: bool,
    ) {
        let is_class = matches!(changed, SharedDependency::Class(..));
        let changed = BTreeSet::from([changed]);
        let labelled = cluster(&json!({label::TKR: "release"}));
        let expected = |yes| if named { yes } else { Impact::None };
        let completed = bootstrap(Some("Completed"));
        assert_eq!(
            depends_on(&changed, &labelled, Some(&completed)),
            expected(Impact::Resting)
        );
        for waiting in [None, Some("Cancelled")] {
            let open = bootstrap(waiting);
            let expected = if is_class {
                expected(Impact::Waiting)
            } else {
                Impact::Waiting
            };
            assert_eq!(depends_on(&changed, &labelled, Some(&open)), expected);
            assert_eq!(depends_on(&changed, &labelled, None), expected);
        }
        assert_eq!(
            depends_on(&changed, &cluster(&json!({})), None),
            Impact::None,
            "not managed"
        );
    }

    #[test]
    fn the_record_of_an_earlier_cluster_of_the_name_is_ignored() {
        let mut other = bootstrap(Some("Completed"));
        let status = Arc::make_mut(&mut other).status.as_mut().unwrap();
        status.upgrade.as_mut().unwrap().cluster_uid = "another".to_owned();
        let changed = BTreeSet::from([SharedDependency::Package("other".to_owned())]);
        let labelled = cluster(&json!({label::TKR: "release"}));
        assert_eq!(depends_on(&changed, &labelled, Some(&other)), Impact::Waiting);
    }

    #[test]
    fn only_the_clusters_of_a_class_are_looked_up_when_it_changes() {
        let class =
            |namespace: &str, name: &str| SharedDependency::Class(namespace.to_owned(), name.to_owned());
        let mut classes = Classes::default();
        let saw = |classes: &mut Classes, namespace: &str, name: &str, class: Value| {
            let topology = json!({"classRef": class, "version": "v1.36.3"});
            let spec = json!({"spec": {"topology": topology}});
            let cluster: Arc<Cluster> = object(Some(namespace), name, &json!({}), &spec);
            classes.saw(&ClusterRef::of(&*cluster), &cluster);
        };
        for number in 0..1000 {
            saw(
                &mut classes,
                "team-a",
                &number.to_string(),
                json!({"name": "large"}),
            );
        }
        saw(&mut classes, "team-a", "one", json!({"name": "small"}));
        saw(&mut classes, "team-b", "two", json!({"name": "small"}));
        let shared = json!({"name": "small", "namespace": "team-a"});
        saw(&mut classes, "team-c", "three", shared.clone());
        let lookups = |classes: &Classes, changed: &[SharedDependency]| {
            let concerned = classes.dependents_of(&changed.iter().cloned().collect());
            concerned.map(|clusters| clusters.iter().map(ClusterRef::to_string).collect::<Vec<_>>())
        };
        let none: Option<Vec<String>> = Some(Vec::new());
        assert_eq!(lookups(&classes, &[class("team-d", "unused")]), none);
        let small = lookups(&classes, &[class("team-a", "small")]).unwrap();
        assert_eq!(small, ["team-a/one", "team-c/three"]);
        let both = [class("team-a", "small"), class("team-b", "small")];
        assert_eq!(lookups(&classes, &both).unwrap().len(), 3);
        let release = SharedDependency::Release("new".to_owned());
        assert_eq!(
            lookups(&classes, &[class("team-a", "small"), release]),
            None,
            "any"
        );

        saw(&mut classes, "team-a", "one", shared);
        saw(&mut classes, "team-c", "three", json!({"name": "small"}));
        assert_eq!(
            lookups(&classes, &[class("team-a", "small")]).unwrap(),
            ["team-a/one"]
        );
        classes.gone(&ClusterRef::new("team-a", "one"));
        classes.gone(&ClusterRef::new("team-a", "one"));
        assert_eq!(lookups(&classes, &[class("team-a", "small")]), none);
        assert_eq!(classes.of.len(), 1002);
    }

    #[test]
    fn waiting_clusters_come_first_and_settled_ones_in_batches() {
        let now = Instant::now();
        let mut fan_out = FanOutQueue::new(now);
        let changed = BTreeSet::from([SharedDependency::Release("new".to_owned())]);
        let named = |name: &str| {
            let mut cluster = cluster(&json!({label::TKR: "release"}));
            Arc::make_mut(&mut cluster).metadata.name = Some(name.to_owned());
            cluster
        };
        for number in (0..250).chain(0..250) {
            let settled = || Some(bootstrap(Some("Completed")));
            fan_out.add(&changed, &named(&number.to_string()), settled);
        }
        for _ in 0..2 {
            fan_out.add(&changed, &named("waiting"), || None);
        }
        assert_eq!(fan_out.left(), 251, "each once");
        assert_eq!(fan_out.next_at(), Some(now));
        let first = fan_out.next(now);
        assert_eq!((first.len(), first[0].name()), (101, "waiting"));
        for (batch, count) in [(1, 100), (2, 50)] {
            let at = now + BETWEEN * batch;
            assert_eq!(fan_out.next_at(), Some(at));
            assert_eq!(
                fan_out
                    .next(at.checked_sub(Duration::from_millis(1)).unwrap())
                    .len(),
                0
            );
            assert_eq!(fan_out.next(at).len(), count);
        }
        assert_eq!(fan_out.next_at(), None);
        fan_out.add(&changed, &named("waiting"), || None);
        assert!(
            fan_out.next_at() <= Some(now + BETWEEN * 2),
            "a waiting one has no rate"
        );
    }
}
