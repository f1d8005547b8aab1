//! Conditions `ReleaseCompatible` and `UpdatesAvailable` of a Cluster.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{Cluster, ClusterClass, Condition, condition},
    labels::name::{RELEASE_COMPATIBLE, UPDATES_AVAILABLE},
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

/// Types of the conditions, in the order of the write.
const TYPES: [&str; 2] = [UPDATES_AVAILABLE, RELEASE_COMPATIBLE];

/// Write of the conditions of a Cluster.
///
/// Cluster API owns the status, Sluice these conditions. A server-side apply leaves all other fields alone. It names both conditions,
/// because it removes one that it omits. A preceding read of the Cluster preserves the times of the last transitions.
#[derive(Debug)]
pub struct ClusterConditions {
    namespace: String,
    name: String,
    uid: Option<String>,
    /// The desired conditions, in the order of [`TYPES`].
    desired: [Desired; 2],
}

/// Desired state of a condition.
#[derive(Debug)]
enum Desired {
    /// With this content.
    Said(Said),
    /// As it is, because a part of it is unknown.
    Unchanged,
    /// No condition: the Cluster has no release.
    Absent,
}

impl Desired {
    /// Whether the cached condition is as desired.
    fn is_met(&self, found: Option<&Condition>) -> bool {
        match (self, found) {
            (Self::Unchanged, _) | (Self::Absent, None) => true,
            (Self::Said(said), Some(found)) => {
                (found.status.as_str(), &found.reason, &found.message)
                    == (said.status, &said.reason, &said.message)
            }
            (Self::Absent, Some(_)) | (Self::Said(_), None) => false,
        }
    }
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

    /// Returns the write of a Cluster of this class; `None` if its conditions are up to date or its updates are unknown, or if it is being
    /// deleted.
    pub fn of_cluster(
        &mut self,
        cluster: &Cluster,
        class: Option<&ClusterClass>,
    ) -> Option<ClusterConditions> {
        if cluster.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let release = release_of(&cluster.metadata);
        let desired = if release.is_empty() {
            [Desired::Absent, Desired::Absent]
        } else {
            let compatible = self.evaluation.said_of_compatibility(&release);
            let compatible = compatible.map(|said| metav1(said, RELEASE_COMPATIBLE));
            [
                Desired::Said(self.said(cluster, class, &release)?),
                compatible.map_or(Desired::Unchanged, Desired::Said),
            ]
        };
        let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
        let conditions = conditions.unwrap_or_default();
        let mut each = TYPES.iter().zip(&desired);
        let is_met = each.all(|(type_, desired)| desired.is_met(condition::find(conditions, type_)));
        (!is_met).then(|| ClusterConditions {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            uid: cluster.uid(),
            desired,
        })
    }

    /// Returns condition `UpdatesAvailable` of a Cluster on this release; `None` while its updates are unknown.
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
        let said = updates_of(version.as_ref(), release, updates);
        Some(metav1(said, UPDATES_AVAILABLE))
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
fn metav1(said: Said, reason: &str) -> Said {
    let reason = if said.reason.is_empty() {
        reason.to_owned()
    } else {
        said.reason
    };
    Said { reason, ..said }
}

impl Reconciler for ClusterConditions {
    type LocalState = ();
    type Effects = ();
    type Hold = String;

    fn effects((): &()) {}

    fn reconcile(context: &Context<'_, Self>, (): &mut ()) -> Step<Done, String> {
        let ClusterConditions {
            namespace,
            name,
            uid,
            desired,
        } = context.facts;
        let key = Key::of::<Cluster>(Server::Management, Some(namespace), name);
        let Some(found) = context.object(key.clone(), ReadPhase::Plan)? else {
            return Ok(Done::AwaitChange);
        };
        if found["metadata"]["uid"].as_str() != uid.as_deref() {
            return Ok(Done::AwaitChange);
        }
        let conditions = found["status"]["conditions"].as_array();
        let of_type = |type_: &str| {
            let mut conditions = conditions.into_iter().flatten();
            conditions.find(|condition| condition["type"] == type_)
        };
        let (mut next, mut is_due) = (Vec::new(), false);
        for (type_, desired) in TYPES.into_iter().zip(desired) {
            let before = of_type(type_);
            let condition = match desired {
                Desired::Said(said) => Some(condition(type_, said, before, context)),
                Desired::Unchanged => before.cloned(),
                Desired::Absent => None,
            };
            is_due |= condition.as_ref() != before;
            next.extend(condition);
        }
        if is_due {
            let body = json!({
                "apiVersion": found["apiVersion"], "kind": found["kind"],
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "status": {"conditions": next},
            });
            context.write(Write::apply_status(
                key,
                body,
                "compatibility and available updates",
            ))?;
        }
        Ok(Done::AwaitChange)
    }
}

/// Builds a condition, with the time of its last transition.
fn condition(
    type_: &str,
    said: &Said,
    before: Option<&Value>,
    context: &Context<'_, ClusterConditions>,
) -> Value {
    let before = before.filter(|before| before["status"] == said.status);
    let since = before.map(|before| before["lastTransitionTime"].clone());
    let now = || {
        json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            context.began.now
        ))
    };
    json!({
        "type": type_, "status": said.status, "reason": said.reason, "message": said.message,
        "lastTransitionTime": since.unwrap_or_else(now),
    })
}
