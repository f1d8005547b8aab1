//! UpgradeOverrides of users, and the ground truth about them: the objects of the API server, independent of caches and of records.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_core::{gate::hook_call::HookCall, reconcile::cluster::Server};
use sluice_crds::{
    lifecycle::OverriddenGate,
    run::{Gate, GateOverride, Hook, Swap, UpgradeRecord},
};

use crate::{
    connection::time_at,
    objects::{RELEASES, TEAM, VERSIONS, cluster, short_name},
    servers::{Place, Servers, place},
    truth::releases_of,
};

/// Plural of the kind.
pub(crate) const OVERRIDES: &str = "upgradeoverrides";

/// Name of the ValidatingAdmissionPolicy and of its binding.
const POLICY: &str = "sluice-overrides";

/// Time after which each API server applies a policy.
const POLICY_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// The UID in an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OfCluster {
    /// That of the Cluster, as the webhook fills it in.
    This,
    Another,
    /// The webhook was not called.
    Unset,
}

/// Override that a user creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) name: &'static str,
    pub(crate) gate: OverriddenGate,
    pub(crate) version: usize,
    pub(crate) release: usize,
    pub(crate) packages: &'static [&'static str],
    /// Time until it expires, in seconds.
    pub(crate) lasts: u64,
    pub(crate) of: OfCluster,
}

pub(crate) fn override_place(name: &str) -> Place {
    place(Server::Management, OVERRIDES, TEAM, name)
}

fn policy() -> Place {
    place(Server::Management, "validatingadmissionpolicies", "", POLICY)
}

fn binding() -> Place {
    place(
        Server::Management,
        "validatingadmissionpolicybindings",
        "",
        POLICY,
    )
}

/// Creates an override, unless one of its name exists.
pub(crate) fn create(servers: &mut Servers, asked: Asked, now: u64) {
    let at = override_place(asked.name);
    if servers.get(&at).is_some() {
        return;
    }
    let uid = match asked.of {
        OfCluster::This => servers
            .get(&cluster())
            .map(|cluster| cluster["metadata"]["uid"].clone()),
        OfCluster::Another => Some(json!("another")),
        OfCluster::Unset => None,
    };
    let object = json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1", "kind": "UpgradeOverride",
        "metadata": {"creationTimestamp": time_at(now).to_string()},
        "spec": {
            "clusterName": "one", "clusterUID": uid,
            "target": {"kubernetesVersion": VERSIONS[asked.version], "release": RELEASES[asked.release]},
            "gate": asked.gate.as_str(), "packages": asked.packages,
            "reason": "a test", "requestedBy": "alice",
            "expiresAt": time_at(now + asked.lasts).to_string(),
        },
    });
    servers.put(at, object);
}

/// Creates or deletes the policy.
pub(crate) fn set_policy(servers: &mut Servers, exists: bool, now: u64) {
    set(servers, policy(), "ValidatingAdmissionPolicy", exists, now);
}

/// Creates or deletes the binding of the policy.
pub(crate) fn set_binding(servers: &mut Servers, exists: bool, now: u64) {
    set(
        servers,
        binding(),
        "ValidatingAdmissionPolicyBinding",
        exists,
        now,
    );
}

fn set(servers: &mut Servers, at: Place, kind: &str, exists: bool, now: u64) {
    if !exists {
        servers.remove(&at);
    } else if servers.get(&at).is_none() {
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"creationTimestamp": time_at(now).to_string()},
            "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
        });
        servers.put(at, object);
    }
}

/// Deletes all overrides. A move leaves them behind.
pub(crate) fn remove_all(servers: &mut Servers) {
    let there = servers.of(Server::Management, OVERRIDES);
    let places: Vec<Place> = there.map(|(place, _)| place.clone()).collect();
    for place in places {
        servers.remove(&place);
    }
}

/// Overrides that exist at one moment, and the releases that they may name.
#[derive(Clone)]
pub(crate) struct Existing {
    overrides: Vec<Found>,
    /// Indexes of the releases of each version.
    releases: [Vec<usize>; VERSIONS.len()],
}

/// An override that exists.
#[derive(Clone)]
struct Found {
    uid: String,
    spec: Value,
    /// Whether policy and binding exist, and are older by the time after which they are applied.
    is_enforced: bool,
}

impl Existing {
    pub(crate) fn of(servers: &Servers) -> Self {
        let since = enforced_since(servers);
        let overrides = servers
            .of(Server::Management, OVERRIDES)
            .map(|(_, object)| Found {
                uid: uid_of(object),
                spec: object["spec"].clone(),
                is_enforced: since.is_some_and(|since| created(object) >= since),
            });
        Self {
            overrides: overrides.collect(),
            releases: std::array::from_fn(|version| releases_of(servers, version)),
        }
    }
}

/// Returns the time since which each new override names its user, if policy and binding exist.
fn enforced_since(servers: &Servers) -> Option<Timestamp> {
    let (policy, binding) = (servers.get(&policy())?, servers.get(&binding())?);
    Some(created(policy).max(created(binding)) + POLICY_DELAY)
}

fn created(object: &Value) -> Timestamp {
    time_of(&object["metadata"]["creationTimestamp"])
}

fn time_of(text: &Value) -> Timestamp {
    let text = text.as_str().unwrap_or_default();
    text.parse().expect("a time")
}

fn uid_of(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// An override that existed.
#[derive(Clone, Debug, Hash)]
struct Known {
    spec: Value,
    /// First time at which it existed.
    since: u64,
    /// Last time at which it existed.
    there: u64,
    /// Last time at which it existed together with an older policy and an older binding.
    enforced: Option<u64>,
}

/// Step that an override must be for.
struct Passing<'a> {
    uid: &'a str,
    gate: OverriddenGate,
    version: &'a str,
    /// The release, or one of these, if they are known.
    releases: Option<&'a [&'a str]>,
}

/// Hook and version of a gate.
type Key = (&'static str, String);

/// What is known of overrides so far.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Overrides {
    /// All that existed, by UID.
    known: BTreeMap<String, Known>,
    /// UIDs of those that existed when the leader began that recorded the target.
    left: Option<BTreeSet<String>>,
    /// Last time at which each version had each release, by their indexes.
    releases: BTreeMap<(usize, usize), u64>,
    /// Number of recorded targets.
    targets: u64,
    /// The step that each has released first, by UID.
    used: BTreeMap<String, (u64, OverriddenGate, String)>,
    /// Last time at which the record of the API server had each gate open without an override.
    proven: BTreeMap<Key, u64>,
    /// The same by an override, by its UID.
    opened: BTreeMap<Key, BTreeMap<String, u64>>,
}

impl Overrides {
    /// Whether no override existed.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn observe(&mut self, existing: &Existing, now: u64) {
        for found in &existing.overrides {
            let known = self.known.entry(found.uid.clone()).or_insert_with(|| Known {
                spec: found.spec.clone(),
                since: now,
                there: now,
                enforced: None,
            });
            known.there = now;
            if found.is_enforced {
                known.enforced = Some(now);
            }
        }
        for (version, releases) in existing.releases.iter().enumerate() {
            self.releases
                .extend(releases.iter().map(|release| ((version, *release), now)));
        }
    }

    /// Records an open gate in the record of the API server.
    pub(crate) fn note(&mut self, gate: &Gate, now: u64) {
        let key = (gate.hook.as_str(), gate.version.clone());
        if let Some(by) = &gate.overridden_by {
            self.opened.entry(key).or_default().insert(by.uid.clone(), now);
        } else {
            self.proven.insert(key, now);
        }
    }

    /// Records which overrides existed on the API server when a reconcile began that recorded a target with its spent overrides.
    pub(crate) fn record(&mut self, before: Option<&UpgradeRecord>, after: &UpgradeRecord, began: u64) {
        let is_same =
            |before: &UpgradeRecord| before.to == after.to && before.cluster_uid == after.cluster_uid;
        let continues = before.is_some_and(is_same);
        if !continues {
            self.targets += 1;
            self.left = None;
        }
        // Of a record from before a restore, it is not known.
        let is_unknown = continues && before.is_some_and(|before| before.spent_overrides.is_some());
        if self.left.is_none() && !is_unknown && after.spent_overrides.is_some() {
            let there = self.known.iter().filter(|(_, known)| known.since <= began);
            self.left = Some(there.map(|(uid, _)| uid.clone()).collect());
        }
    }

    /// Whether an override names a package.
    pub(crate) fn passes(&self, by: Option<&GateOverride>, package: usize) -> bool {
        by.is_some_and(|by| self.names(by, short_name(package))) || self.passes_every(by)
    }

    /// Whether an override names every package.
    pub(crate) fn passes_every(&self, by: Option<&GateOverride>) -> bool {
        by.is_some_and(|by| self.names(by, "*"))
    }

    fn names(&self, by: &GateOverride, package: &str) -> bool {
        let known = self.known.get(&by.uid);
        let packages = known.and_then(|known| known.spec["packages"].as_array());
        packages.is_some_and(|packages| packages.iter().any(|named| *named == package))
    }

    /// Whether an override existed at this time or later, and had not expired at this time.
    pub(crate) fn is_in_force(&self, by: &GateOverride, at: u64) -> bool {
        let known = self.known.get(&by.uid);
        known.is_some_and(|known| known.there >= at && time_at(at) < expiry(known))
    }

    /// Asserts that the override of a gate, if it has one, could open it in a reconcile that began at this time.
    pub(crate) fn assert_opens(&self, record: &UpgradeRecord, gate: &Gate, began: u64) {
        let Some(by) = &gate.overridden_by else { return };
        let of_gate = gate_of(gate.hook);
        // Gates of an earlier version wait for the packages of the hop.
        let is_of_hop = record.hop.as_ref() == Some(&gate.version);
        let releases = self.releases_since(&gate.version, began);
        let step = of_gate.map(|of_gate| Passing {
            uid: &record.cluster_uid,
            gate: of_gate,
            version: &gate.version,
            releases: is_of_hop.then_some(&releases[..]),
        });
        let what = format!("{:?} {}", gate.hook, gate.version);
        self.assert_valid(by, step.as_ref(), &what, began);
    }

    /// Asserts the same of a swap.
    pub(crate) fn assert_opens_swap(&self, record: &UpgradeRecord, swap: &Swap, began: u64) {
        let Some(by) = &swap.overridden_by else { return };
        let releases = [swap.to.as_str()];
        let step = Passing {
            uid: &record.cluster_uid,
            gate: OverriddenGate::Machines,
            version: &swap.version,
            releases: Some(&releases[..]),
        };
        self.assert_valid(by, Some(&step), &format!("the swap to {}", swap.to), began);
    }

    /// Returns the releases that a version had at this time or later, whatever a record names.
    fn releases_since(&self, version: &str, at: u64) -> Vec<&'static str> {
        let had = self.releases.iter().filter(|(_, last)| **last >= at);
        had.filter(|((of, _), _)| VERSIONS[*of] == version)
            .map(|((_, release), _)| RELEASES[*release])
            .collect()
    }

    fn assert_valid(&self, by: &GateOverride, step: Option<&Passing<'_>>, what: &str, began: u64) {
        let what = format!("{what} is opened by {by:?} in a reconcile that began at {began}");
        let known = self.known.get(&by.uid);
        let known = known.unwrap_or_else(|| panic!("revoked: {what}, which never existed"));
        let is_of_step = step.is_some_and(|step| is_of(known, step));
        assert!(is_of_step, "overridden: {what}, which is {}", known.spec);
        assert!(time_at(began) < expiry(known), "expired: {what}");
        assert!(
            known.there >= began,
            "revoked: {what}, which existed last at {}",
            known.there
        );
        assert!(
            known.enforced.is_some_and(|at| at >= began),
            "unenforced: {what}, and policy and binding, old enough, existed last at {:?}",
            known.enforced,
        );
        let is_left = self.left.as_ref().is_some_and(|left| left.contains(&by.uid));
        assert!(!is_left, "left: {what}, which existed before the target was set");
    }

    /// Asserts that the gate of a released call was open without an override, or by one in force, at some moment between call and answer, and
    /// that no override releases two steps. `clock` is the time of the replica.
    pub(crate) fn judge(
        &mut self,
        call: &HookCall<'_>,
        version: &str,
        clock: Timestamp,
        (asked, now): (u64, u64),
    ) {
        let key = (call.hook.as_str(), version.to_owned());
        if self.proven.get(&key).is_some_and(|at| *at >= asked) {
            return;
        }
        let mut objections = Vec::new();
        for (uid, at) in self.opened.get(&key).into_iter().flatten() {
            if *at < asked {
                continue;
            }
            let Some(objection) = self.objection(uid, call, version, clock, asked) else {
                // A late answer is about an earlier record.
                if let Some(gate) = gate_of(call.hook).filter(|_| asked == now) {
                    let step = (self.targets, gate, version.to_owned());
                    let first = self.used.entry(uid.clone()).or_insert_with(|| step.clone());
                    assert!(
                        *first == step,
                        "reused: override {uid} releases {step:?} after {first:?}"
                    );
                }
                return;
            };
            objections.push(objection);
        }
        assert!(
            objections.is_empty(),
            "{}; a call of {asked} to {:?} {version} is released at {clock}",
            objections.join("; "),
            call.hook,
        );
    }

    /// Returns the reason for which an override releases no call.
    fn objection(
        &self,
        uid: &str,
        call: &HookCall<'_>,
        version: &str,
        clock: Timestamp,
        asked: u64,
    ) -> Option<String> {
        let Some(known) = self.known.get(uid) else {
            return Some(format!("revoked: override {uid} never existed"));
        };
        let step = gate_of(call.hook).map(|gate| Passing {
            uid: call.uid,
            gate,
            version,
            releases: None,
        });
        if !step.is_some_and(|step| is_of(known, &step)) {
            return Some(format!("overridden: override {uid} is {}", known.spec));
        }
        if known.there < asked {
            return Some(format!("revoked: override {uid} existed last at {}", known.there));
        }
        (clock >= expiry(known)).then(|| format!("expired: override {uid} expired at {}", expiry(known)))
    }
}

/// Whether an override is for a step.
fn is_of(known: &Known, step: &Passing<'_>) -> bool {
    let (spec, target) = (&known.spec, &known.spec["target"]);
    spec["clusterName"] == "one"
        && spec["clusterUID"] == step.uid
        && spec["gate"] == step.gate.as_str()
        && target["kubernetesVersion"] == step.version
        && step
            .releases
            .is_none_or(|releases| releases.iter().any(|release| target["release"] == *release))
}

fn expiry(known: &Known) -> Timestamp {
    time_of(&known.spec["expiresAt"])
}

/// Returns the gate of a hook that overrides are for.
pub(crate) fn gate_of(hook: Hook) -> Option<OverriddenGate> {
    match hook {
        Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade => Some(OverriddenGate::ControlPlane),
        Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade => Some(OverriddenGate::Workers),
        _ => None,
    }
}
