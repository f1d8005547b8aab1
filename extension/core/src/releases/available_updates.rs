//! Condition `UpdatesAvailable` of a Cluster.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{Cluster, ClusterClass, condition},
    labels::name::UPDATES_AVAILABLE,
};

use super::{Evaluation, Updates, conditions::Said, evaluation::updates_of, labels::from_label};
use crate::{
    cache::stores::{Images, Releases},
    cluster::release_of,
    protocol::{Context, Done, Key, ReadPhase, Reconciler, Server, Step, Write},
    resolver::Constraints,
    version::Ordered,
};

/// Number of different constraints whose updates are kept: users choose their selectors.
const KEPT: usize = 64;

/// Available updates of Clusters, of one evaluation. Those of Clusters with the same constraints are computed once.
#[derive(Debug)]
pub struct Offers {
    evaluation: Arc<Evaluation>,
    releases: Arc<Releases>,
    images: Option<Arc<Images>>,
    pub(super) accepted: HashMap<Constraints, Updates>,
}

/// Write of the condition of a Cluster.
///
/// Cluster API owns the status, Sluice this one condition. A server-side apply leaves all other fields alone. A preceding read of the
/// Cluster preserves the time of the last transition.
#[derive(Debug)]
pub struct UpdatesAvailableWrite {
    namespace: String,
    name: String,
    uid: Option<String>,
    /// The desired condition; `None` for a Cluster without a release.
    said: Option<Said>,
}

impl Offers {
    /// Creates the offers of an evaluation of these releases and OSImages. `images` is `None` before the first list.
    #[must_use]
    pub fn of(evaluation: Arc<Evaluation>, releases: Arc<Releases>, images: Option<Arc<Images>>) -> Self {
        Self {
            evaluation,
            releases,
            images,
            accepted: HashMap::new(),
        }
    }

    /// Whether both have the same offers for every Cluster.
    #[must_use]
    pub fn is_same_for_clusters(&self, other: &Self) -> bool {
        let of_releases = are_same(&self.releases, &other.releases, |one, other| {
            one.spec == other.spec
        });
        let of_images = match (&self.images, &other.images) {
            (Some(one), Some(other)) => are_same(one, other, |one, other| one.spec == other.spec),
            (one, other) => one.is_none() && other.is_none(),
        };
        of_releases && of_images && self.evaluation.is_same_for_clusters(&other.evaluation)
    }

    /// Returns the write of a Cluster of this class; `None` if its condition is up to date or its updates are unknown, or if it is being
    /// deleted.
    pub fn of_cluster(
        &mut self,
        cluster: &Cluster,
        class: Option<&ClusterClass>,
    ) -> Option<UpdatesAvailableWrite> {
        if cluster.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let release = release_of(&cluster.metadata);
        let said = if release.is_empty() {
            None
        } else {
            Some(self.said(cluster, class, &release)?)
        };
        let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
        let found = condition::find(conditions.unwrap_or_default(), UPDATES_AVAILABLE);
        let is_said = match (found, &said) {
            (None, None) => true,
            (Some(found), Some(said)) => {
                (found.status.as_str(), &found.reason, &found.message)
                    == (said.status, &said.reason, &said.message)
            }
            _ => false,
        };
        (!is_said).then(|| UpdatesAvailableWrite {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            uid: cluster.uid(),
            said,
        })
    }

    /// Returns the condition of a Cluster on this release; `None` while its updates are unknown.
    fn said(&mut self, cluster: &Cluster, class: Option<&ClusterClass>, release: &str) -> Option<Said> {
        let by_name = || Ordered::of(&from_label(release));
        let version = self.evaluation.version(release).cloned().or_else(by_name);
        let constraints = match (&cluster.spec.topology, class) {
            (Some(_), Some(class)) => Constraints::of(cluster, class),
            // The class may request a resolution.
            (Some(_), None) => return None,
            (None, _) => None,
        };
        let updates = match constraints {
            Some(constraints) => self.accepted(constraints)?,
            None => &self.evaluation.updates,
        };
        Some(metav1(updates_of(version.as_ref(), release, updates)))
    }

    /// Returns the updates of Clusters with these constraints; `None` if they need OSImages, which are not listed yet.
    fn accepted(&mut self, constraints: Constraints) -> Option<&Updates> {
        if self.accepted.len() >= KEPT && !self.accepted.contains_key(&constraints) {
            self.accepted.clear();
        }
        match self.accepted.entry(constraints) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(unknown) => {
                let accepted = unknown.key().accepted(&self.releases, self.images.as_deref())?;
                Some(unknown.insert(self.evaluation.updates.only(&accepted)))
            }
        }
    }
}

/// Whether two snapshots have the same objects, by their labels and by `same`.
fn are_same<K: ResourceExt>(
    one: &BTreeMap<String, Arc<K>>,
    other: &BTreeMap<String, Arc<K>>,
    same: impl Fn(&K, &K) -> bool,
) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|((name, one), (other_name, other))| {
            let is_unchanged = Arc::ptr_eq(one, other) || one.labels() == other.labels() && same(one, other);
            name == other_name && is_unchanged
        })
}

/// Adds the reason that Kubernetes requires of every condition.
fn metav1(said: Said) -> Said {
    let reason = if said.reason.is_empty() {
        UPDATES_AVAILABLE.to_owned()
    } else {
        said.reason
    };
    Said { reason, ..said }
}

impl Reconciler for UpdatesAvailableWrite {
    type LocalState = ();
    type Effects = ();
    type Hold = String;

    fn effects((): &()) {}

    fn reconcile(context: &Context<'_, Self>, (): &mut ()) -> Step<Done, String> {
        let UpdatesAvailableWrite {
            namespace,
            name,
            uid,
            said,
        } = context.facts;
        let key = Key::of::<Cluster>(Server::Management, Some(namespace), name);
        let Some(found) = context.object(key.clone(), ReadPhase::Plan)? else {
            return Ok(Done::AwaitChange);
        };
        if found["metadata"]["uid"].as_str() != uid.as_deref() {
            return Ok(Done::AwaitChange);
        }
        let conditions = found["status"]["conditions"].as_array();
        let of_type = |condition: &&Value| condition["type"] == UPDATES_AVAILABLE;
        let before = conditions.into_iter().flatten().find(of_type);
        let next: Vec<Value> = said.iter().map(|said| condition(said, before, context)).collect();
        if next.first() != before {
            let body = json!({
                "apiVersion": found["apiVersion"], "kind": found["kind"],
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "status": {"conditions": next},
            });
            context.write(Write::apply_status(key, body, "available updates"))?;
        }
        Ok(Done::AwaitChange)
    }
}

/// Builds the condition, with the time of its last transition.
fn condition(said: &Said, before: Option<&Value>, context: &Context<'_, UpdatesAvailableWrite>) -> Value {
    let before = before.filter(|before| before["status"] == said.status);
    let since = before.map(|before| before["lastTransitionTime"].clone());
    let now = || {
        json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            context.began.now
        ))
    };
    json!({
        "type": UPDATES_AVAILABLE, "status": said.status, "reason": said.reason, "message": said.message,
        "lastTransitionTime": since.unwrap_or_else(now),
    })
}
