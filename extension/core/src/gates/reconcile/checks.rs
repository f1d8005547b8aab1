//! Reads of the objects that checks name, and their judgement.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_crds::lifecycle::{CheckRecord, CheckState, GateRecord, VersionRow};

use super::{Context, GateEffects};
use crate::{
    gates::{
        compiled::CompiledCheck,
        judge::{Evidence, Expected, JudgedKind, RelatedList, Verdict, judge as verdict, related},
        record::{CheckJudgement, latch},
        selected::{Applied, Selected},
    },
    protocol::{
        Failure, Interrupt, Key, Object, Read, ReadPhase, ReadResult, Resource, Server, Step,
        context::unexpected,
        interrupt::{needs_of, together},
    },
    rbac::missing_rule,
    reasons::{CheckReason, Hold},
    reconcile::cluster::{connect, silent, unanswered},
    upgrade::{hop::Progress, record::Workload},
};

/// Time that proofs outlive the last response of a workload cluster; that of the gates which they keep open.
const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// Gates that are judged, and the circumstances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judging<'a> {
    /// The gates.
    pub(super) selected: &'a Selected,
    /// Record of the previous reconcile, from the API server.
    pub(super) previous: Option<&'a GateRecord>,
    /// Progress of the upgrade.
    pub(super) progress: &'a Progress,
    /// Whether no upgrade is in progress. Checks of an object whose name has the hop are then skipped.
    pub(super) rests: bool,
}

/// Response of the workload API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    /// No check needs it.
    NotNeeded,
    /// It responded, with the UID of its namespace `kube-system`.
    Reached(String),
    /// It did not respond, or there is no connection. The time is the start of the silence of a server that responded before.
    Silent(Hold, Option<Timestamp>),
}

impl Reach {
    /// Returns the same state for the record.
    pub(super) fn workload(&self) -> Workload<'_> {
        match self {
            Self::NotNeeded => Workload::Reached { uid: "" },
            Self::Reached(uid) => Workload::Reached { uid },
            Self::Silent(hold, None) => Workload::NotYet(hold.clone()),
            Self::Silent(hold, Some(since)) => Workload::Unreachable {
                since: *since,
                hold: hold.clone(),
            },
        }
    }

    /// Returns the hold of a server that does not respond.
    pub(super) const fn silence(&self) -> Option<&Hold> {
        match self {
            Self::Silent(hold, _) => Some(hold),
            Self::NotNeeded | Self::Reached(_) => None,
        }
    }

    fn uid(&self) -> &str {
        match self {
            Self::Reached(uid) => uid,
            Self::NotNeeded | Self::Silent(..) => "",
        }
    }
}

/// Judged checks.
#[derive(Debug)]
pub(super) struct Judged {
    /// Every judged check, by gate and in the order of each gate.
    pub(super) checks: Vec<CheckJudgement>,
    /// Response of the workload API server.
    pub(super) reach: Reach,
    /// Whether an object could not be read.
    pub(super) fails: bool,
}

/// Objects of one check.
#[derive(Debug)]
enum Found<'a> {
    /// The API server returned them, or said that there are none.
    Objects {
        object: Option<&'a Value>,
        related: Vec<Value>,
        namespace: String,
        name: String,
    },
    /// They cannot be read, for this reason.
    Unread(CheckReason, String),
    /// They are not judged now.
    Skipped,
}

/// Reads the objects of all checks and judges them. In phase [`ReadPhase::Confirm`], nothing that was read before counts.
pub(super) fn judge(
    context: &Context<'_>,
    effects: &mut GateEffects,
    judging: Judging<'_>,
    phase: ReadPhase,
) -> Step<Judged> {
    let mut reach = judging.reach(context, effects, phase)?;
    let silent_already = reach.silence().is_some();
    let gates = &judging.selected.gates;
    let outcomes = together(gates.iter().map(|applied| {
        if applied.hold.is_some() || silent_already && judging.needs_workload(applied) {
            return Ok(None);
        }
        judging.find_all(context, applied, phase).map(Some)
    }))?;
    let mut found = Vec::new();
    for outcome in outcomes {
        match outcome {
            Err(Interrupt::Failed(failure)) if failure.server == Server::Workload => {
                reach = silence(context, effects, silent(&failure));
                found.push(None);
            }
            outcome => found.push(outcome?),
        }
    }
    let mut judged = Judged {
        checks: Vec::new(),
        fails: reach.silence().is_some(),
        reach,
    };
    for (applied, found) in gates.iter().zip(&found) {
        let silence = judged.reach.silence().filter(|_| judging.needs_workload(applied));
        let records = match (&applied.hold, silence, found) {
            (Some(hold), ..) => held(applied, hold),
            (None, Some(hold), _) if phase == ReadPhase::Plan => {
                let is_trusted = is_trusted(&judged.reach, context.began.now);
                judging.kept(applied, hold, is_trusted)
            }
            (None, Some(hold), _) => judging.kept(applied, hold, false),
            (None, None, Some(found)) => {
                judged.fails |= found.iter().any(|found| matches!(found, Found::Unread(..)));
                judging.judged(context, applied, found, judged.reach.uid())
            }
            (None, None, None) => return Err(unexpected(Server::Workload)),
        };
        let is_read = applied.hold.is_none() && silence.is_none();
        for record in records {
            let on_workload = applied
                .gate
                .checks
                .iter()
                .any(|check| check.name == record.name && check.server == Server::Workload);
            judged.checks.push(CheckJudgement {
                record,
                phase: applied.phase(),
                mode: applied.gate.mode,
                on_workload,
                hold: applied.hold.clone(),
                confirmed: phase == ReadPhase::Confirm && is_read,
            });
        }
    }
    Ok(judged)
}

/// Notes that the workload API server does not respond.
fn silence(context: &Context<'_>, effects: &mut GateEffects, hold: Hold) -> Reach {
    let since = effects.local.heard(false, context.began);
    Reach::Silent(hold, since)
}

/// Whether the silence of the workload API server is so short that its proofs still count.
fn is_trusted(reach: &Reach, now: Timestamp) -> bool {
    // A clock that was set back by more does not measure the silence.
    matches!(reach, Reach::Silent(_, Some(since)) if now.duration_since(*since).abs() <= GRACE)
}

/// Returns the entries of a gate that cannot be judged.
fn held(applied: &Applied, hold: &Hold) -> Vec<CheckRecord> {
    let entry = |check: &CompiledCheck| CheckRecord {
        reason: hold.reason.as_str().to_owned(),
        message: hold.message.clone(),
        ..entry(applied, check)
    };
    applied.gate.checks.iter().map(entry).collect()
}

/// Returns the entry of an unproven check.
fn entry(applied: &Applied, check: &CompiledCheck) -> CheckRecord {
    CheckRecord {
        gate: applied.gate.name.clone(),
        name: check.name.clone(),
        state: CheckState::Waiting,
        ..CheckRecord::default()
    }
}

impl<'a> Judging<'a> {
    /// Whether a check is not judged now.
    fn skips(&self, check: &CompiledCheck) -> bool {
        self.rests && check.has_hop()
    }

    /// Whether a judged check of the gate is in the workload cluster.
    fn needs_workload(&self, applied: &Applied) -> bool {
        let needs = |check: &CompiledCheck| check.server == Server::Workload && !self.skips(check);
        applied.hold.is_none() && applied.gate.checks.iter().any(needs)
    }

    /// Connects to the workload cluster and reads its identity, if a check needs it. The read runs alone: Sluice waits only once for a
    /// server that does not respond.
    fn reach(&self, context: &Context<'_>, effects: &mut GateEffects, phase: ReadPhase) -> Step<Reach> {
        let mut gates = self.selected.gates.iter();
        if !gates.any(|applied| self.needs_workload(applied)) {
            return Ok(Reach::NotNeeded);
        }
        let read = connect(context, &context.facts.owner, Read::DriftCheckConnection)
            .and_then(|_| context.object(Key::kube_system(), phase));
        let uid = match read {
            Ok(namespace) => namespace.and_then(|namespace| namespace["metadata"]["uid"].as_str()),
            Err(Interrupt::Held(hold)) => return Ok(silence(context, effects, hold)),
            Err(Interrupt::Failed(failure)) if failure.server == Server::Workload => {
                return Ok(silence(context, effects, silent(&failure)));
            }
            Err(stop) => return Err(stop),
        };
        let Some(uid) = uid.filter(|uid| !uid.is_empty()) else {
            return Ok(silence(context, effects, unanswered(None)));
        };
        effects.local.heard(true, context.began);
        Ok(Reach::Reached(uid.to_owned()))
    }

    /// Reads the objects of all checks of a gate.
    fn find_all<'c>(
        &self,
        context: &'c Context<'_>,
        applied: &Applied,
        phase: ReadPhase,
    ) -> Step<Vec<Found<'c>>> {
        let found = applied.gate.checks.iter().map(|check| {
            if self.skips(check) {
                return Ok(Found::Skipped);
            }
            find(context, check, &self.progress.hop, phase)
        });
        together(found)?.into_iter().collect()
    }

    /// Returns the entries of a gate by the first of its rows that all its checks match, or else by its first row.
    fn judged(
        &self,
        context: &Context<'_>,
        applied: &Applied,
        found: &[Found<'_>],
        uid: &str,
    ) -> Vec<CheckRecord> {
        let rows: Vec<Option<&VersionRow>> = if applied.gate.needs_row() {
            let rows = applied.gate.rows_for(&self.progress.hop);
            rows.into_iter().map(Some).collect()
        } else {
            vec![None]
        };
        let mut first = None;
        for row in rows {
            let each = applied.gate.checks.iter().zip(found);
            let records: Vec<CheckRecord> = each
                .filter_map(|(check, found)| self.record(context, applied, check, found, row, uid))
                .collect();
            if records.iter().all(|record| record.state == CheckState::Proven) {
                return records;
            }
            first.get_or_insert(records);
        }
        first.unwrap_or_default()
    }

    /// Returns the entry of a check by one row; `None` for a check that is not judged now and was not judged before.
    fn record(
        &self,
        context: &Context<'_>,
        applied: &Applied,
        check: &CompiledCheck,
        found: &Found<'_>,
        row: Option<&VersionRow>,
        uid: &str,
    ) -> Option<CheckRecord> {
        let key = check.version_key.as_ref();
        let version = key.map(|key| row.and_then(|row| row.values.get(key)));
        let unjudged = |reason: CheckReason, message: &str| CheckRecord {
            reason: reason.as_str().to_owned(),
            message: message.to_owned(),
            version: version.flatten().cloned().unwrap_or_default(),
            ..entry(applied, check)
        };
        let (object, related, namespace, name) = match found {
            Found::Skipped => return self.recorded(applied, check, "").cloned(),
            Found::Unread(reason, message) => return Some(unjudged(*reason, message)),
            Found::Objects {
                object,
                related,
                namespace,
                name,
            } => (*object, related, namespace, name),
        };
        // No row of a valid gate lacks a value. Without it nothing would be compared.
        let version = match version {
            None => None,
            Some(Some(version)) => Some(version.as_str()),
            Some(None) => {
                let message = "the row of the UpgradeGate has no value for the versionKey of the check";
                return Some(unjudged(CheckReason::NotAtVersion, message));
            }
        };
        let uid = match check.server {
            Server::Management => "",
            Server::Workload => uid,
        };
        let evidence = Evidence { object, related };
        let expected = Expected {
            cluster: &context.facts.owner.name,
            namespace,
            name,
            version,
            container: check.container.as_deref(),
        };
        let latch = self.recorded(applied, check, uid);
        // The TTL of a Job deletes it once it is complete. Its completion stands for this hop and this generation of the gate.
        let is_complete = |latch: &&CheckRecord| {
            latch.state == CheckState::Proven && latch.version == version.unwrap_or_default()
        };
        let is_gone = |latch: &&CheckRecord| {
            object.is_none_or(|object| {
                let metadata = &object["metadata"];
                !metadata["deletionTimestamp"].is_null() && metadata["uid"].as_str() == latch.uid.as_deref()
            })
        };
        if check.kind == JudgedKind::Job
            && let Some(completed) = latch.filter(is_complete).filter(is_gone)
        {
            return Some(completed.clone());
        }
        let record = CheckRecord {
            version: version.unwrap_or_default().to_owned(),
            ..entry(applied, check)
        };
        Some(match verdict(check.kind, &evidence, &expected, latch) {
            Verdict::Proven { uid, generation } => CheckRecord {
                state: CheckState::Proven,
                uid: Some(uid),
                generation: Some(generation),
                // A delivery system does not apply its manifests again for another API server.
                reproven: check.server == Server::Workload && self.progress.settled_at_hop(),
                ..record
            },
            Verdict::Waiting {
                reason,
                message,
                detail,
            } => CheckRecord {
                reason: reason.as_str().to_owned(),
                message,
                detail,
                ..record
            },
            Verdict::Failed {
                reason,
                message,
                detail,
            } => CheckRecord {
                state: CheckState::Failed,
                reason: reason.as_str().to_owned(),
                message,
                detail,
                ..record
            },
        })
    }

    /// Returns the recorded entry of a check. That of another hop, or of another generation of the gate, may be about another object.
    fn recorded(&self, applied: &Applied, check: &CompiledCheck, uid: &str) -> Option<&'a CheckRecord> {
        let gate = &applied.gate;
        let previous = self.previous?;
        let is_same_gate = previous
            .selected
            .iter()
            .any(|listed| listed.uid == gate.uid && listed.generation == gate.generation);
        let is_same_hop = previous.hop.as_deref() == Some(self.progress.hop.as_str());
        if is_same_gate && is_same_hop {
            latch(Some(previous), uid, &gate.name, &check.name)
        } else {
            None
        }
    }

    /// Returns the entries of a gate while the workload API server does not respond. Recorded proofs stay while they are `trusted`. The
    /// completion of a Job stays: nothing reports it again once the Job is deleted, and no gate opens or stays open by it during a silence.
    fn kept(&self, applied: &Applied, hold: &Hold, trusted: bool) -> Vec<CheckRecord> {
        let kept = |check: &CompiledCheck| {
            let recorded = self
                .recorded(applied, check, "")
                .filter(|_| trusted || check.server == Server::Management || check.kind == JudgedKind::Job);
            if recorded.is_some() || self.skips(check) {
                return recorded.cloned();
            }
            Some(CheckRecord {
                reason: CheckReason::NotObserved.as_str().to_owned(),
                message: hold.message.clone(),
                ..entry(applied, check)
            })
        };
        applied.gate.checks.iter().filter_map(kept).collect()
    }
}

/// Reads the objects of one check.
fn find<'c>(context: &'c Context<'_>, check: &CompiledCheck, hop: &str, phase: ReadPhase) -> Step<Found<'c>> {
    let (owner, server) = (&context.facts.owner, check.server);
    let kind = Read::Kind {
        server,
        api_version: check.api_version.clone(),
        kind: check.kind_name.clone(),
    };
    let namespaced = match server {
        Server::Management => Some(owner.namespace.as_str()),
        Server::Workload => check.namespace.as_deref(),
    };
    let (resource, namespace) = match context.answer(kind) {
        Ok(ReadResult::Served(resource)) => (resource, namespaced),
        Ok(ReadResult::ServedClusterWide(resource)) if server == Server::Workload => (resource, None),
        Ok(ReadResult::ServedClusterWide(_)) => {
            let kind = &check.kind_name;
            let message = format!("{kind} is cluster-scoped; name an object of the namespace of the gate");
            return Ok(Found::Unread(CheckReason::BelongsElsewhere, message));
        }
        Ok(ReadResult::Absent) => return Ok(not_served(check)),
        Ok(_) => return Err(unexpected(server)),
        Err(stop) => return undiscovered(stop, check),
    };
    let key = Key {
        server,
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        name: check.object_name(&owner.name, hop),
    };
    let expected = Expected {
        cluster: &owner.name,
        namespace: namespace.unwrap_or_default(),
        name: &key.name,
        version: None,
        container: check.container.as_deref(),
    };
    let list = related(check.kind, &expected);
    let object = context.object(key.clone(), phase);
    let listed = list
        .as_ref()
        .map(|list| context.listed(labelled(list, server, &key, phase)));
    together([needs_of(&object), listed.as_ref().map_or(Ok(()), needs_of)])?;
    let object = match object {
        Ok(object) => object,
        Err(stop) => return unread(stop, check, &key, ("get", &key.resource.plural)),
    };
    let related = match (listed, &list) {
        (Some(Err(stop)), Some(list)) => return unread(stop, check, &key, ("list", list.plural)),
        (Some(listed), _) => listed?.iter().map(|Object(object)| object.clone()).collect(),
        (None, _) => Vec::new(),
    };
    Ok(Found::Objects {
        object,
        related,
        namespace: key.namespace.unwrap_or_default(),
        name: key.name,
    })
}

/// Returns the read of the list that a kind needs beside the object of `key`.
fn labelled(list: &RelatedList, server: Server, key: &Key, phase: ReadPhase) -> Read {
    let labels: Vec<String> = list
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    Read::Labelled {
        server,
        resource: Resource {
            group: list.group.into(),
            version: list.version.clone().into(),
            kind: list.kind.into(),
            plural: list.plural.into(),
        },
        namespace: key.namespace.clone().unwrap_or_default(),
        labels: labels.join(","),
        phase,
    }
}

fn not_served<'c>(check: &CompiledCheck) -> Found<'c> {
    let CompiledCheck {
        server,
        api_version,
        kind_name,
        ..
    } = check;
    let message = format!("the {server} API server does not serve {kind_name} in {api_version}");
    Found::Unread(CheckReason::KindNotServed, message)
}

/// Returns why the kind of a check is unknown.
///
/// # Errors
/// The interrupt is another one than a definite response.
fn undiscovered<'c>(stop: Interrupt, check: &CompiledCheck) -> Step<Found<'c>> {
    let failure = stop.failed()?;
    match failure.code {
        Some(403) => {
            let CompiledCheck {
                server, api_version, ..
            } = check;
            let message = format!(
                "the {server} API server refuses the discovery of {api_version}; bind ClusterRole system:discovery to the client"
            );
            Ok(Found::Unread(CheckReason::KindForbidden, message))
        }
        Some(404) => Ok(not_served(check)),
        _ => Err(Interrupt::Failed(failure)),
    }
}

/// Returns why the object of a check, or its list, cannot be read with a verb. The kind is that with the plural name `plural`.
///
/// # Errors
/// The interrupt is another one than a definite response.
fn unread<'c>(
    stop: Interrupt,
    check: &CompiledCheck,
    key: &Key,
    (verb, plural): (&str, &str),
) -> Step<Found<'c>> {
    let failure = stop.failed()?;
    let group = &key.resource.group;
    let (reason, message) = match (failure.code, check.server) {
        _ if failure.too_long || failure.undecodable.is_some() => {
            (CheckReason::ObjectTooLarge, too_large(&failure, key))
        }
        (Some(403), Server::Management) => {
            let rule = missing_rule(verb, group, plural);
            (
                CheckReason::KindForbidden,
                format!("Sluice may not {verb} {plural}: {rule}"),
            )
        }
        (Some(403), Server::Workload) => {
            let message =
                format!("the kubeconfig of the Cluster does not allow to {verb} {plural} in group {group:?}");
            (CheckReason::KindForbidden, message)
        }
        (Some(404), _) => {
            let server = check.server;
            let message = format!("the {server} API server does not serve {plural} in group {group:?}");
            (CheckReason::KindNotServed, message)
        }
        _ => return Err(Interrupt::Failed(failure)),
    };
    Ok(Found::Unread(reason, message))
}

fn too_large(failure: &Failure, key: &Key) -> String {
    match &failure.undecodable {
        Some(object) => object.to_string(),
        None => format!("{key} is larger than Sluice reads"),
    }
}
