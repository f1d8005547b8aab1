//! Overrides: the judgement on an early write that a user has asked for.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::judgement::{Missing, Step};
use super::{Ledger, Name};
use crate::observer::bootstrap::short;
use crate::observer::conditions::text;
use crate::observer::feed::{Change, Revision};
use crate::observer::key::Key;
use crate::observer::milestone::Event;

/// Longest time between the answer of a hook and the write that it allows.
const ANSWER: SignedDuration = SignedDuration::from_secs(10);

/// Longest time between the creation of an override and its expiry.
const LONGEST: SignedDuration = SignedDuration::from_secs(7 * 24 * 60 * 60);

/// Names every package.
const EVERY: &str = "*";

const CONTROL_PLANE: &str = "ControlPlane";
const WORKERS: &str = "Workers";
const MACHINES: &str = "Machines";

/// Overrides that were read, and those that records name.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    /// By UID, also deleted ones.
    read: BTreeMap<String, Override>,
    recorded: BTreeSet<Opened>,
    /// UIDs of those by which workers were written. Cluster API does not ask again for the other pools.
    of_workers: BTreeSet<String>,
}

/// An UpgradeOverride as it was created: its spec cannot be edited.
#[derive(Debug)]
struct Override {
    name: Name,
    revision: Revision,
    cluster: String,
    cluster_uid: String,
    version: String,
    release: String,
    gate: String,
    packages: Vec<String>,
    user: String,
    created: Option<Timestamp>,
    expires: Option<Timestamp>,
    /// When it was deleted.
    deleted: Option<Timestamp>,
}

/// A gate that an override has opened, by the record of a ClusterBootstrap.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Opened {
    cluster: Name,
    gate: &'static str,
    version: String,
    /// UID of the override.
    uid: String,
}

/// A step without proofs that it needs.
pub(super) struct Early<'a> {
    pub(super) name: &'a Name,
    pub(super) version: &'a str,
    pub(super) step: Step<'a>,
    pub(super) missing: &'a [Missing],
    /// When its write was seen.
    pub(super) seen: Timestamp,
}

impl Early<'_> {
    fn gate(&self) -> &'static str {
        match self.step {
            Step::ControlPlane => CONTROL_PLANE,
            Step::Reproof | Step::Workers => WORKERS,
            Step::ReleaseData(_) => MACHINES,
        }
    }
}

impl Overrides {
    /// Takes a write or a deletion of an UpgradeOverride.
    pub(super) fn written(&mut self, change: &Change, key: Key) {
        let name = (key.namespace, key.name);
        let Some(object) = &change.object else {
            for of in self.read.values_mut().filter(|of| of.name == name) {
                of.deleted.get_or_insert(change.seen);
            }
            return;
        };
        let uid = text(object, "/metadata/uid");
        let of = self
            .read
            .entry(uid)
            .or_insert_with(|| Override::read(name, change.revision, object));
        if object["metadata"]["deletionTimestamp"].is_string() {
            of.deleted.get_or_insert(change.seen);
        }
    }

    /// Takes the record of a ClusterBootstrap.
    pub(super) fn recorded(&mut self, cluster: &Name, bootstrap: &Value) {
        let record = &bootstrap["status"]["upgrade"];
        let gates = record["gates"].as_array().into_iter().flatten();
        let gates = gates.filter_map(|gate| Some((gate_of(gate["hook"].as_str()?)?, gate)));
        for (gate, opened) in gates.chain([(MACHINES, &record["swap"])]) {
            let uid = text(opened, "/overriddenBy/uid");
            if opened["open"] == true && !uid.is_empty() {
                self.recorded.insert(Opened {
                    cluster: cluster.clone(),
                    gate,
                    version: text(opened, "/version"),
                    uid,
                });
            }
        }
    }

    /// Whether a record names any override for the step.
    pub(super) fn is_recorded(&self, early: &Early<'_>) -> bool {
        self.recorded.iter().any(|opened| opened.is_of(early))
    }
}

impl Opened {
    fn is_of(&self, early: &Early<'_>) -> bool {
        self.cluster == *early.name && self.gate == early.gate() && self.version == early.version
    }
}

impl Override {
    fn read(name: Name, revision: Revision, object: &Value) -> Self {
        let time = |pointer| text(object, pointer).parse().ok();
        let packages = object["spec"]["packages"].as_array().into_iter().flatten();
        Self {
            name,
            revision,
            cluster: text(object, "/spec/clusterName"),
            cluster_uid: text(object, "/spec/clusterUID"),
            version: text(object, "/spec/target/kubernetesVersion"),
            release: text(object, "/spec/target/release"),
            gate: text(object, "/spec/gate"),
            packages: packages.filter_map(Value::as_str).map(str::to_owned).collect(),
            user: text(object, "/spec/requestedBy"),
            created: time("/metadata/creationTimestamp"),
            expires: time("/spec/expiresAt"),
            deleted: None,
        }
    }

    /// Whether a step need not wait for this. Only proofs of packages can be passed.
    fn passes(&self, missing: &Missing) -> bool {
        let names = |package: &String| package == EVERY || package == short(&missing.of);
        missing.is_proof && self.packages.iter().any(names)
    }

    /// Why it has no effect any more on an answer whose write is seen now; none if it has.
    fn ended(&self, seen: Timestamp) -> Option<String> {
        let is_past = |time: Timestamp| seen.duration_since(time) >= ANSWER;
        if self.expires.is_none_or(is_past) {
            return Some("it has expired".to_owned());
        }
        self.deleted
            .is_some_and(is_past)
            .then(|| "it was deleted".to_owned())
    }

    fn lasts_too_long(&self) -> bool {
        let times = self.created.zip(self.expires);
        times.is_none_or(|(created, expires)| expires.duration_since(created) > LONGEST)
    }
}

impl Ledger {
    /// UID of an override by which the step may be made; otherwise why no override of the Cluster allows it.
    pub(super) fn overridden(&self, early: &Early<'_>) -> Result<String, Vec<String>> {
        let mut objections = Vec::new();
        for (uid, of) in &self.overrides.read {
            if of.name.0 != early.name.0 || of.cluster != early.name.1 {
                continue;
            }
            match self.objection(uid, of, early) {
                None => return Ok(uid.clone()),
                Some(objection) => objections.push(format!("{}: {objection}", of.name.1)),
            }
        }
        Err(objections)
    }

    /// Why an override does not allow a step; none if it does.
    fn objection(&self, uid: &str, of: &Override, early: &Early<'_>) -> Option<String> {
        let Some(cluster) = self.clusters.get(early.name) else {
            return Some("there is no such Cluster".to_owned());
        };
        let label = cluster.tkr();
        let (release, since) = match early.step {
            Step::ReleaseData(named) => {
                let named = named.filter(|named| !named.is_empty());
                (named.unwrap_or(label), cluster.aimed_at.max(cluster.labelled_at))
            }
            _ => (label, cluster.aimed_at),
        };
        let release = self.release(release, early.version).unwrap_or_default();
        let cluster_uid = cluster.object.as_ref().map_or("", |object| &object.uid);
        let asked = (early.gate(), early.version, release, cluster_uid);
        let is_for = (
            of.gate.as_str(),
            of.version.as_str(),
            of.release.as_str(),
            of.cluster_uid.as_str(),
        );
        if is_for != asked || release.is_empty() || cluster_uid.is_empty() {
            return Some(format!("it is for {is_for:?}, not for {asked:?}"));
        }
        if of.user.is_empty() {
            return Some("it has no user".to_owned());
        }
        if of.revision <= since {
            return Some(format!(
                "it is from revision {}, the upgrade from {since}",
                of.revision
            ));
        }
        if of.lasts_too_long() {
            return Some("it lasts for more than seven days".to_owned());
        }
        let goes_on = early.step == Step::Workers && self.overrides.of_workers.contains(uid);
        let ended = of.ended(early.seen).filter(|_| !goes_on);
        if ended.is_some() {
            return ended;
        }
        if let Some(missing) = early.missing.iter().find(|missing| !of.passes(missing)) {
            return Some(format!("it does not pass {}", missing.of));
        }
        let mut recorded = self.overrides.recorded.iter();
        let is_recorded = recorded.any(|opened| opened.uid == uid && opened.is_of(early));
        (!is_recorded).then(|| "no record names it".to_owned())
    }

    /// Notes a step that an override has allowed.
    pub(super) fn note_override(&mut self, change: &Change, early: &Early<'_>, uid: &str) {
        if early.step == Step::Workers {
            self.overrides.of_workers.insert(uid.to_owned());
        }
        let name = self.overrides.read.get(uid).map(|of| of.name.1.clone());
        let event = Event::Overridden {
            name: name.unwrap_or_default(),
            gate: early.gate(),
            version: early.version.to_owned(),
        };
        self.note(change, early.name, event);
    }
}

/// The gate that a hook belongs to; none without overrides.
fn gate_of(hook: &str) -> Option<&'static str> {
    match hook {
        "BeforeClusterUpgrade" | "BeforeControlPlaneUpgrade" => Some(CONTROL_PLANE),
        "AfterControlPlaneUpgrade" | "BeforeWorkersUpgrade" => Some(WORKERS),
        _ => None,
    }
}
