//! What a replica answers hooks from what it remembers, and which Clusters it holds.

mod answers;
mod counting;
mod noted;

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;
use sluice_crds::{
    foreign::Cluster,
    labels::label,
    run::{ClusterBootstrap, ClusterBootstrapTemplate, Hook, TanzuKubernetesRelease, UpgradeRecord},
};

pub use self::{
    answers::Answers,
    counting::{Counting, Uncounted},
    noted::{Noted, Said},
};
use crate::{
    cluster::{is_custom, is_legacy, is_managed},
    decision::{Decision, Knowledge, Known, decide},
    decode::Undecodable,
    hold::Hold,
    hook_call::HookCall,
    record::of_cluster,
    retry::RetryPolicy,
    stores::{Stored, Stores},
    stuck::{Counted, Held, Standing, Stuck},
    tkr::{template_not_found, tkr_not_found},
};

/// What hooks are answered from.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a, S, N> {
    /// What is in memory.
    pub stores: &'a S,
    /// The namespace of templates.
    pub system_namespace: &'a str,
    /// What keeps the Cluster with a UID from having a record at all, if that is known.
    pub note: N,
}

/// What sets the wait of a Cluster.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The policy for all.
    pub policy: RetryPolicy,
    /// Where this one is stuck, if it is.
    stuck: Option<Stuck>,
    /// As [`Counted`] measures it.
    now: Duration,
}

impl Pace {
    /// The pace of the Cluster with this UID.
    #[must_use]
    pub fn of(uid: &str, held: &Counted, deletion_limit: u32, now: Duration) -> Self {
        let policy = RetryPolicy {
            stuck: u32::try_from(held.stuck.len()).unwrap_or(u32::MAX),
            deletion_limit,
            ..RetryPolicy::with_held(held.moving)
        };
        Self {
            policy,
            stuck: held.stuck.get(uid).copied(),
            now,
        }
    }
}

impl<S: Stores, N: Fn(&str) -> Option<Hold>> Index<'_, S, N> {
    /// What a call is answered. `leaderless` says that no replica leads.
    #[must_use]
    pub fn decide(&self, call: &HookCall<'_>, pace: &Pace, leaderless: bool) -> Decision {
        let bootstrap = self.bootstrap(call.namespace, call.name);
        let cluster: Option<Arc<Cluster>> = self.stores.get(Some(call.namespace), call.name);
        let release = self.release(call.label);
        let bootstrap_undecodable = self.undecodable_bootstrap(call.namespace, call.name);
        // A deletion waits for its packages to be uninstalled, whatever its release is.
        let needs_release = call.hook != Hook::BeforeClusterDelete;
        let undecodable_release = self.undecodable_release(call.label).filter(|_| needs_release);
        let record = recorded(bootstrap.as_deref());
        let missing = self.missing(call.label, call.uid, release.is_some());
        // Not by the last look: the Cluster may have moved since.
        let still = pace.stuck.and_then(|stuck| {
            let standing = match of_cluster(record, call.uid) {
                Some(record) => Standing::of_record(record),
                None => Standing::of_hold(call.label.unwrap_or_default(), missing.as_ref()?),
            };
            Some(stuck.still(standing, pace.now))
        });
        let known = Known {
            record,
            bootstrap_generation: bootstrap.as_ref().and_then(|b| b.metadata.generation),
            bootstrap_undecodable: bootstrap_undecodable.is_some(),
            legacy: release_is_legacy(release.as_deref(), undecodable_release.as_deref()),
            undecodable: self
                .undecodable_cluster(call.namespace, call.name)
                .or(bootstrap_undecodable)
                .or(undecodable_release)
                .map(|object| object.hold()),
            custom: cluster.as_deref().is_some_and(is_custom),
            missing,
            leaderless,
            still: still.unwrap_or_default(),
        };
        decide(call, &Knowledge::synced(call.label, known), &pace.policy)
    }

    /// Where a Cluster is held, if it is.
    #[must_use]
    pub fn held(&self, namespace: &str, name: &str) -> Option<Held> {
        if let Some(held) = self.held_by_undecodable(namespace, name) {
            return Some(held);
        }
        let cluster: Arc<Cluster> = self.stores.get(Some(namespace), name)?;
        let (uid, meta) = (cluster.uid()?, &cluster.metadata);
        let bootstrap = self.bootstrap(meta.namespace.as_deref()?, meta.name.as_deref()?);
        if let Some(record) = of_cluster(recorded(bootstrap.as_deref()), &uid) {
            return record.outcome.is_none().then(|| Held {
                standing: Standing::of_record(record),
                recorded: true,
                uid,
            });
        }
        let label = cluster.labels().get(label::TKR).map(String::as_str);
        let release = self.release(label);
        let legacy = release_is_legacy(release.as_deref(), self.undecodable_release(label).as_deref());
        if is_custom(&cluster) || !is_managed(label, legacy, bootstrap.is_some()) {
            return None;
        }
        let hold = self.missing(label, &uid, release.is_some())?;
        Some(Held {
            standing: Standing::of_hold(label.unwrap_or_default(), &hold),
            recorded: false,
            uid,
        })
    }

    /// The same of a Cluster that cannot be decoded, or has such a ClusterBootstrap.
    fn held_by_undecodable(&self, namespace: &str, name: &str) -> Option<Held> {
        let cluster: Option<Arc<Cluster>> = self.stores.get(Some(namespace), name);
        let odd = self.undecodable_cluster(namespace, name);
        let meta = match (&cluster, &odd) {
            (Some(cluster), _) => &cluster.metadata,
            (None, Some(odd)) => &odd.metadata,
            (None, None) => return None,
        };
        let odd_bootstrap = self.undecodable_bootstrap(namespace, name);
        let label = meta.labels.as_ref().and_then(|labels| labels.get(label::TKR));
        let label = label.map(String::as_str).unwrap_or_default();
        let is_ours =
            !label.is_empty() || odd_bootstrap.is_some() || self.bootstrap(namespace, name).is_some();
        let hold = odd
            .as_ref()
            .or(odd_bootstrap.as_ref())
            .filter(|_| is_ours)?
            .hold();
        Some(Held {
            standing: Standing::of_hold(label, &hold),
            recorded: false,
            uid: meta.uid.clone()?,
        })
    }

    fn bootstrap(&self, namespace: &str, name: &str) -> Option<Arc<ClusterBootstrap>> {
        self.stores.get(Some(namespace), name)
    }

    fn undecodable_cluster(&self, namespace: &str, name: &str) -> Option<Arc<Undecodable>> {
        Stored::<Cluster>::undecodable(self.stores, Some(namespace), name)
    }

    fn undecodable_bootstrap(&self, namespace: &str, name: &str) -> Option<Arc<Undecodable>> {
        Stored::<ClusterBootstrap>::undecodable(self.stores, Some(namespace), name)
    }

    fn undecodable_release(&self, label: Option<&str>) -> Option<Arc<Undecodable>> {
        Stored::<TanzuKubernetesRelease>::undecodable(self.stores, None, label?)
    }

    fn release(&self, label: Option<&str>) -> Option<Arc<TanzuKubernetesRelease>> {
        self.stores.get(None, label?)
    }

    /// What keeps a record from being made at all.
    fn missing(&self, label: Option<&str>, uid: &str, released: bool) -> Option<Hold> {
        let label = label.filter(|label| !label.is_empty())?;
        if !released {
            return Some(tkr_not_found(label));
        }
        let namespace = self.system_namespace;
        let template: Option<Arc<ClusterBootstrapTemplate>> = self.stores.get(Some(namespace), label);
        if template.is_none() {
            return Some(template_not_found(namespace, label));
        }
        (self.note)(uid)
    }
}

/// Its labels can be read in any case.
fn release_is_legacy(release: Option<&TanzuKubernetesRelease>, undecodable: Option<&Undecodable>) -> bool {
    let meta = release
        .map(|release| &release.metadata)
        .or(undecodable.map(|release| &release.metadata));
    meta.is_some_and(is_legacy)
}

fn recorded(bootstrap: Option<&ClusterBootstrap>) -> Option<&UpgradeRecord> {
    bootstrap?.status.as_ref()?.upgrade.as_ref()
}

#[cfg(test)]
mod tests;
