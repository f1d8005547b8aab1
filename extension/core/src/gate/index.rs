//! Decides hook calls from cached objects, and lists the held Clusters.

mod answers;
mod by_gates;
mod counting;
mod noted;

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;
use sluice_crds::{
    foreign::Cluster,
    labels::label,
    lifecycle::UpgradeOverride,
    run::{ClusterBootstrap, ClusterBootstrapTemplate, Hook, TanzuKubernetesRelease, UpgradeRecord},
};

pub use self::{
    answers::Answers,
    counting::{Counting, HoldSnapshot, Uncounted},
    noted::{LogOnChange, Noted},
};
use crate::{
    cache::{
        stored_kind::StoredKind,
        stores::{Found, Stores, is_legacy_release},
    },
    cluster::{is_custom, is_managed, is_stopped, release_of},
    gate::{
        decision::{CachedCluster, Decision, Knowledge, decide, override_of},
        hook_call::HookCall,
        retry::RetryPolicy,
        stuck::{Counted, Held, ProgressHash, Stuck},
    },
    reasons::{Hold, HoldReason},
    resolver::{requires_resolution, unresolved},
    summary::exceeded,
    upgrade::{
        record::of_cluster,
        tkr::{template_not_found, tkr_not_found},
    },
};

/// Inputs of hook decisions.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a, S, N> {
    /// Cached objects.
    pub stores: &'a S,
    /// Namespace of templates.
    pub system_namespace: &'a str,
    /// Whether Clusters are held that request the resolution of a release and were not resolved.
    pub hold_unresolved: bool,
    /// Returns the hold that prevents a record of the Cluster with a UID, if it is known.
    pub note: N,
}

/// Inputs of the retry delay of a Cluster.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Policy for all Clusters.
    pub policy: RetryPolicy,
    /// Last progress of this Cluster, if it is held.
    stuck: Option<Stuck>,
    /// As [`Counted`] measures it.
    now: Duration,
}

impl Pace {
    /// Returns the pace of the Cluster with this UID.
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
    /// Decides a call. `leaderless` means that no replica leads. A release needs the packages and the gates; the packages object first.
    #[must_use]
    pub fn decide(&self, call: &HookCall<'_>, pace: &Pace, leaderless: bool) -> Decision {
        let by_packages = if self.stores.packages_enabled() {
            self.decide_by_packages(call, pace, leaderless)
        } else {
            Decision::Release
        };
        match by_packages {
            Decision::Release => self.decide_by_gates(call, pace, leaderless),
            hold @ Decision::Hold { .. } => hold,
        }
    }

    fn decide_by_packages(&self, call: &HookCall<'_>, pace: &Pace, leaderless: bool) -> Decision {
        // Checked first: objects listed after this check may be missing below.
        let all = StoredKind::ALL.into_iter();
        let unlisted: Vec<StoredKind> = all.filter(|kind| !self.stores.is_listed(*kind)).collect();
        let bootstrap = self.bootstrap(call.namespace, call.name);
        let needed = self.needed_to_decide(call, &bootstrap);
        if let Some(kind) = unlisted.iter().find(|kind| needed.contains(kind)) {
            return decide(call, &Knowledge::Unsynced(*kind), &pace.policy);
        }
        let cluster = self.cluster(call.namespace, call.name);
        if requires_resolution(call.hook)
            && let Some(hold) = self.unresolved(call.label, (call.uid, call.generation), &cluster, &bootstrap)
        {
            let still = pace.stuck.map(|stuck| {
                let standing = ProgressHash::of_hold("", &hold);
                stuck.still(standing.with(self.gate_progress(call)), pace.now)
            });
            let knowledge = Knowledge::Unresolved(hold, still.unwrap_or_default());
            return decide(call, &knowledge, &pace.policy);
        }
        let release = self.release(call.label);
        // A deletion waits until its packages are uninstalled, whatever its release is.
        let needs_release = call.hook != Hook::BeforeClusterDelete;
        let of_release = release.as_ref().err().filter(|_| needs_release);
        let undecodable = cluster.as_ref().err().or(bootstrap.as_ref().err()).or(of_release);
        let undecodable = undecodable.map(|object| object.hold());
        let bootstrap_undecodable = bootstrap.is_err();
        let (cluster, bootstrap) = (cluster.ok().flatten(), bootstrap.ok().flatten());
        let record = recorded(bootstrap.as_deref());
        // Needed only for a Cluster without a record.
        let missing = match of_cluster(record, call.uid) {
            Some(_) => None,
            None => self.missing(call.label, call.uid, matches!(release, Ok(Some(_)))),
        };
        // Not from the last count: the Cluster may have made progress since.
        let still = pace.stuck.and_then(|stuck| {
            let standing = match of_cluster(record, call.uid) {
                Some(record) => ProgressHash::of_record(record),
                None => ProgressHash::of_hold(call.label.unwrap_or_default(), missing.as_ref()?),
            };
            Some(stuck.still(standing.with(self.gate_progress(call)), pace.now))
        });
        let known = CachedCluster {
            record,
            bootstrap_generation: bootstrap.as_ref().and_then(|b| b.metadata.generation),
            bootstrap_undecodable,
            undecodable,
            unlisted: unlisted.first().copied(),
            legacy: is_legacy_release(&release),
            revoked: record.is_some_and(|record| self.is_revoked(call, record)),
            custom: is_custom_of(cluster.as_deref(), call.uid),
            missing,
            leaderless,
            still: still.unwrap_or_default(),
        };
        decide(call, &Knowledge::synced(call.label, known), &pace.policy)
    }

    /// Whether the override of the gate of a call does not exist any more.
    fn is_revoked(&self, call: &HookCall<'_>, record: &UpgradeRecord) -> bool {
        let Some(by) = override_of(record, call) else {
            return false;
        };
        let found: Found<UpgradeOverride> = self.stores.found(Some(call.namespace), &by.name);
        let is_it = |of: &UpgradeOverride| {
            of.metadata.uid.as_ref() == Some(&by.uid) && of.metadata.deletion_timestamp.is_none()
        };
        !found.is_ok_and(|found| found.as_deref().is_some_and(is_it))
    }

    /// Whether Sluice manages the Cluster of a call.
    pub(super) fn manages(&self, call: &HookCall<'_>) -> bool {
        let has_bootstrap = !matches!(self.bootstrap(call.namespace, call.name), Ok(None));
        is_managed(
            call.label,
            is_legacy_release(&self.release(call.label)),
            has_bootstrap,
        )
    }

    /// Whether the Cluster of a call waits for a ClusterBootstrap that a user creates.
    pub(super) fn is_custom(&self, call: &HookCall<'_>) -> bool {
        let cluster = self.cluster(call.namespace, call.name).ok().flatten();
        is_custom_of(cluster.as_deref(), call.uid)
    }

    /// Returns the kinds that determine whether the Cluster of a call is managed, and whether an unmanaged one is released.
    fn needed_to_decide(
        &self,
        call: &HookCall<'_>,
        bootstrap: &Found<ClusterBootstrap>,
    ) -> &'static [StoredKind] {
        use StoredKind::{Cluster, ClusterBootstrap, ClusterClass, TanzuKubernetesRelease};
        let has_bootstrap = !matches!(bootstrap, Ok(None));
        let is_labelled = call.label.is_some_and(|label| !label.is_empty());
        match (has_bootstrap, is_labelled) {
            // The release may be legacy. A deletion without a ClusterBootstrap is released in any case.
            (false, true) if call.hook != Hook::BeforeClusterDelete => {
                &[ClusterBootstrap, TanzuKubernetesRelease]
            }
            // The class may request a release.
            (false, false) if self.hold_unresolved && requires_resolution(call.hook) => {
                &[ClusterBootstrap, Cluster, ClusterClass]
            }
            _ => &[ClusterBootstrap],
        }
    }

    /// Returns the snapshot of a held Cluster for the counts; `None` if nothing holds it.
    #[must_use]
    pub fn hold_snapshot(&self, namespace: &str, name: &str) -> Option<HoldSnapshot> {
        let mut snapshot = HoldSnapshot {
            held: self.held(namespace, name),
            ..HoldSnapshot::default()
        };
        if self.stores.packages_enabled() && matches!(self.cluster(namespace, name), Ok(Some(_))) {
            let bootstrap = self.bootstrap(namespace, name).ok().flatten();
            let status = bootstrap
                .as_deref()
                .and_then(|bootstrap| bootstrap.status.as_ref());
            let held = status.and_then(|status| status.held.clone());
            snapshot.gates.extend(held);
            snapshot.past_deadline = status.is_some_and(|status| exceeded(status).is_some());
        }
        self.add_gates(namespace, name, &mut snapshot);
        (snapshot != HoldSnapshot::default()).then_some(snapshot)
    }

    /// Returns the state in which a Cluster is held, by its packages, its gates or both; `None` if nothing holds it.
    #[must_use]
    pub fn held(&self, namespace: &str, name: &str) -> Option<Held> {
        let by_packages = if self.stores.packages_enabled() {
            self.held_by_packages(namespace, name)
        } else {
            None
        };
        match (by_packages, self.held_by_gates(namespace, name)) {
            (Some(held), Some(by_gates)) => Some(Held {
                standing: held.standing.with(Some(by_gates.standing)),
                recorded: true,
                ..held
            }),
            (by_packages, by_gates) => by_packages.or(by_gates),
        }
    }

    fn held_by_packages(&self, namespace: &str, name: &str) -> Option<Held> {
        let (cluster, bootstrap) = (self.cluster(namespace, name), self.bootstrap(namespace, name));
        if let Some(held) = held_by_undecodable(&cluster, &bootstrap) {
            return Some(held);
        }
        let meta = match &cluster {
            Ok(cluster) => &cluster.as_deref()?.metadata,
            Err(undecodable) => &undecodable.metadata,
        };
        let uid = meta.uid.clone()?;
        let generation = meta.generation.unwrap_or_default();
        let label = release_of(meta);
        // Cluster API does not call hooks for a paused Cluster, so nothing waits.
        let is_stopped = matches!(&cluster, Ok(Some(cluster)) if is_stopped(cluster));
        if !is_stopped
            && let Some(hold) = self.unresolved(Some(&label), (&uid, generation), &cluster, &bootstrap)
            && !hold.reason.is_passing()
        {
            return Some(Held {
                standing: ProgressHash::of_hold("", &hold),
                recorded: false,
                uid,
            });
        }
        let (cluster, bootstrap) = (cluster.ok().flatten()?, bootstrap.ok().flatten());
        if let Some(record) = of_cluster(recorded(bootstrap.as_deref()), &uid) {
            return record.outcome.is_none().then(|| Held {
                standing: ProgressHash::of_record(record),
                recorded: true,
                uid,
            });
        }
        let label = cluster.labels().get(label::TKR).map(String::as_str);
        let release = self.release(label);
        if is_custom(&cluster) || !is_managed(label, is_legacy_release(&release), bootstrap.is_some()) {
            return None;
        }
        let hold = self.missing(label, &uid, matches!(release, Ok(Some(_))))?;
        Some(Held {
            standing: ProgressHash::of_hold(label.unwrap_or_default(), &hold),
            recorded: false,
            uid,
        })
    }

    /// Returns the hold of an unmanaged Cluster, if it may still need a release. The call names its UID and generation.
    fn unresolved(
        &self,
        label: Option<&str>,
        (uid, generation): (&str, i64),
        cluster: &Found<Cluster>,
        bootstrap: &Found<ClusterBootstrap>,
    ) -> Option<Hold<HoldReason>> {
        let is_labelled = label.is_some_and(|label| !label.is_empty());
        if !self.hold_unresolved || is_labelled || !matches!(bootstrap, Ok(None)) {
            return None;
        }
        unresolved(cluster, uid, generation, self.stores)
    }

    pub(super) fn cluster(&self, namespace: &str, name: &str) -> Found<Cluster> {
        self.stores.found(Some(namespace), name)
    }

    fn bootstrap(&self, namespace: &str, name: &str) -> Found<ClusterBootstrap> {
        self.stores.found(Some(namespace), name)
    }

    fn release(&self, label: Option<&str>) -> Found<TanzuKubernetesRelease> {
        label.map_or(Ok(None), |label| self.stores.found(None, label))
    }

    /// Returns the hold that prevents a record.
    fn missing(&self, label: Option<&str>, uid: &str, released: bool) -> Option<Hold> {
        let label = label.filter(|label| !label.is_empty())?;
        if let Some(kind) = self.stores.unlisted() {
            return Some(kind.unavailable());
        }
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

/// Returns the held state of a Cluster that cannot be decoded, or whose ClusterBootstrap cannot be decoded.
fn held_by_undecodable(cluster: &Found<Cluster>, bootstrap: &Found<ClusterBootstrap>) -> Option<Held> {
    let meta = match cluster {
        Ok(cluster) => &cluster.as_deref()?.metadata,
        Err(undecodable) => &undecodable.metadata,
    };
    let label = meta.labels.as_ref().and_then(|labels| labels.get(label::TKR));
    let label = label.map(String::as_str).unwrap_or_default();
    let is_ours = !label.is_empty() || !matches!(bootstrap, Ok(None));
    let undecodable = cluster.as_ref().err().or(bootstrap.as_ref().err());
    Some(Held {
        standing: ProgressHash::of_hold(label, &undecodable.filter(|_| is_ours)?.hold()),
        recorded: false,
        uid: meta.uid.clone()?,
    })
}

/// Whether the Cluster with this UID waits for a ClusterBootstrap that a user creates.
fn is_custom_of(cluster: Option<&Cluster>, uid: &str) -> bool {
    cluster.is_some_and(|cluster| cluster.metadata.uid.as_deref() == Some(uid) && is_custom(cluster))
}

fn recorded(bootstrap: Option<&ClusterBootstrap>) -> Option<&UpgradeRecord> {
    bootstrap?.status.as_ref()?.upgrade.as_ref()
}

#[cfg(test)]
mod tests;
