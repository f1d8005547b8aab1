//! Reads of the objects that checks name, and their judgement.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_crds::{
    foreign::Cluster,
    lifecycle::{CheckRecord, CheckState, GateMode, GateRecord, VersionRow},
};

use super::{Context, GateEffects};
use crate::{
    gates::{
        compiled::CompiledCheck,
        expression::{Expression, Meter, Variable},
        judge::{
            Evidence, Expected, JudgedKind, Related, RelatedList, RelatedObject, Verdict, judge as verdict,
            related,
        },
        record::{CheckJudgement, latch},
        selected::{Applied, Selected},
    },
    protocol::{
        Failure, Interrupt, Key, Object, Read, ReadPhase, ReadResult, Resource, Server, Step,
        context::unexpected,
        interrupt::{needs_of, together},
    },
    rbac::missing_rule,
    reasons::{CheckReason, GateReason, Hold},
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

impl Judging<'_> {
    /// Whether only a drift check reads: no upgrade is in progress, and the record is of these gates.
    pub(super) fn awaits_drift_check(&self) -> bool {
        let is_recorded = |record: &GateRecord| {
            record.set.as_ref() == Some(&self.selected.set) && record.hop.as_ref() == Some(&self.progress.hop)
        };
        self.rests && self.previous.is_some_and(is_recorded)
    }
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
    Objects(Objects<'a>),
    /// They cannot be read.
    Unread(Unread),
    /// They are not judged now.
    Skipped,
}

/// Reason why an object cannot be read, and the message.
type Unread = (CheckReason, String);

/// Objects of one check, as their API servers returned them.
#[derive(Debug)]
struct Objects<'a> {
    /// Object of the check.
    object: Option<&'a Value>,
    /// Objects that its kind needs beside it.
    related: Vec<Value>,
    /// Cluster, if the expression of the check uses it.
    cluster: Option<&'a Value>,
    /// Expression of the check. Each row of the gate uses it, and most rows have the same result.
    cel: Option<Expression>,
    /// Namespace of the object; empty for a cluster-scoped kind.
    namespace: String,
    /// Name of the object.
    name: String,
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
    // Audit gates hold nothing, so their expressions must not keep those of the others from being evaluated.
    let (enforced, audited) = (Meter::default(), Meter::default());
    let outcomes = together(gates.iter().map(|applied| {
        if applied.hold.is_some() || silent_already && judging.needs_workload(applied) {
            return Ok(None);
        }
        let meter = match applied.gate.mode {
            GateMode::Enforce => &enforced,
            GateMode::Audit => &audited,
        };
        judging.find_all(context, applied, meter, phase).map(Some)
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
    if matches!(reach, Reach::Reached(_)) {
        effects.local.heard();
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
            let unread = found
                .as_deref()
                .and_then(|found| unread_now(applied, found, &record));
            judged.checks.push(CheckJudgement {
                record,
                phase: applied.phase(),
                mode: applied.gate.mode,
                on_workload,
                hold: applied.hold.clone().or(unread),
                confirmed: phase == ReadPhase::Confirm && is_read,
            });
        }
    }
    Ok(judged)
}

/// Notes that the workload API server does not respond.
fn silence(context: &Context<'_>, effects: &mut GateEffects, hold: Hold) -> Reach {
    let since = effects.local.unheard(context.local, context.began);
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

/// Returns the entry of a check with its verdict.
fn judged_entry(record: CheckRecord, verdict: Verdict, reproven: bool) -> CheckRecord {
    match verdict {
        Verdict::Proven { uid, generation } => CheckRecord {
            state: CheckState::Proven,
            uid: Some(uid),
            generation: Some(generation),
            reproven,
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
    }
}

/// Returns the recorded completion of a Job that its TTL has deleted since. It stands for this hop and this generation of the gate.
fn completed_job<'a>(
    check: &CompiledCheck,
    object: Option<&Value>,
    version: Option<&str>,
    latch: Option<&'a CheckRecord>,
) -> Option<&'a CheckRecord> {
    let latch = latch.filter(|latch| {
        check.kind == JudgedKind::Job
            && latch.state == CheckState::Proven
            && latch.version == version.unwrap_or_default()
    })?;
    let is_gone = object.is_none_or(|object| {
        let metadata = &object["metadata"];
        !metadata["deletionTimestamp"].is_null() && metadata["uid"].as_str() == latch.uid.as_deref()
    });
    is_gone.then_some(latch)
}

/// Returns the hold of a Job that cannot be read now. Its recorded completion stays, and proves nothing meanwhile.
fn unread_now(applied: &Applied, found: &[Found<'_>], record: &CheckRecord) -> Option<Hold> {
    let mut each = applied.gate.checks.iter().zip(found);
    let (_, found) = each.find(|(check, _)| check.name == record.name)?;
    match found {
        Found::Unread((_, message)) if record.state == CheckState::Proven => {
            let message = format!("{}/{}: {message}", record.gate, record.name);
            Some(Hold::new(GateReason::ChecksNotReady, message))
        }
        Found::Unread(_) | Found::Objects(_) | Found::Skipped => None,
    }
}

/// Returns what a check expects of the object with this namespace and name, without a version.
fn expected<'e>(
    cluster: &'e str,
    check: &'e CompiledCheck,
    (namespace, name): (&'e str, &'e str),
    hop: &'e str,
) -> Expected<'e> {
    Expected {
        cluster,
        namespace,
        name,
        version: None,
        container: check.container.as_deref(),
        kind: &check.kind_name,
        server: check.server,
        hop,
        cel: check.cel.as_ref(),
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
        Ok(Reach::Reached(uid.to_owned()))
    }

    /// Reads the objects of all checks of a gate.
    fn find_all<'c>(
        &self,
        context: &'c Context<'_>,
        applied: &Applied,
        meter: &Meter,
        phase: ReadPhase,
    ) -> Step<Vec<Found<'c>>> {
        let found = applied.gate.checks.iter().map(|check| {
            if self.skips(check) {
                return Ok(Found::Skipped);
            }
            find(context, check, meter, &self.progress.hop, phase)
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
        let uid = match check.server {
            Server::Management => "",
            Server::Workload => uid,
        };
        let objects = match found {
            Found::Skipped => return self.recorded(applied, check, "").cloned(),
            Found::Unread((reason, message)) => {
                let version = version.flatten().map(String::as_str);
                let latch = self.recorded(applied, check, uid);
                let completed = completed_job(check, None, version, latch)
                    .filter(|_| *reason == CheckReason::NotObserved);
                return Some(completed.map_or_else(|| unjudged(*reason, message), CheckRecord::clone));
            }
            Found::Objects(objects) => objects,
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
        let evidence = Evidence {
            object: objects.object,
            related: &objects.related,
            cluster: objects.cluster,
        };
        let place = (objects.namespace.as_str(), objects.name.as_str());
        let expected = Expected {
            version,
            cel: objects.cel.as_ref(),
            ..expected(&context.facts.owner.name, check, place, &self.progress.hop)
        };
        let latch = self.recorded(applied, check, uid);
        if let Some(completed) = completed_job(check, objects.object, version, latch) {
            return Some(completed.clone());
        }
        let record = CheckRecord {
            version: version.unwrap_or_default().to_owned(),
            ..entry(applied, check)
        };
        // A delivery system does not apply its manifests again for another API server.
        let is_judged_there = check.server == Server::Workload && !check.kind.is_delivery();
        let reproven = is_judged_there && self.progress.settled_at_hop();
        let verdict = verdict(check.kind, &evidence, &expected, latch);
        Some(judged_entry(record, verdict, reproven))
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
fn find<'c>(
    context: &'c Context<'_>,
    check: &CompiledCheck,
    meter: &Meter,
    hop: &str,
    phase: ReadPhase,
) -> Step<Found<'c>> {
    let key = match key_of(context, check, hop)? {
        Ok(key) => key,
        Err(unread) => return Ok(Found::Unread(unread)),
    };
    let place = (key.namespace.as_deref().unwrap_or_default(), key.name.as_str());
    let expected = expected(&context.facts.owner.name, check, place, hop);
    let object = context.object(key.clone(), phase);
    let listed = match related(check.kind, &expected, None) {
        Some(Related::List(list)) => Some(find_list(context, &list, &key, phase)),
        Some(Related::Object(_)) | None => None,
    };
    let uses_cluster = check.cel.as_ref().is_some_and(|cel| cel.uses(Variable::Cluster));
    let cluster = uses_cluster.then(|| find_cluster(context, phase));
    together([
        needs_of(&object),
        listed.as_ref().map_or(Ok(()), needs_of),
        cluster.as_ref().map_or(Ok(()), needs_of),
    ])?;
    let object = match object {
        Ok(object) => object,
        Err(stop) => return unread(stop, &key, ("get", &key.resource.plural)).map(Found::Unread),
    };
    let beside = match (listed, related(check.kind, &expected, object)) {
        (Some(listed), _) => listed?,
        (None, Some(Related::Object(named))) => find_one(context, key.server, named, phase)?,
        (None, Some(Related::List(_)) | None) => Ok(Vec::new()),
    };
    let cluster = cluster.transpose()?.transpose();
    Ok(match (beside, cluster) {
        (Ok(related), Ok(cluster)) => Found::Objects(Objects {
            object,
            related,
            cluster,
            cel: check.cel.as_ref().map(|cel| cel.metered(meter)),
            namespace: key.namespace.unwrap_or_default(),
            name: key.name,
        }),
        (Err(unread), _) | (_, Err(unread)) => Found::Unread(unread),
    })
}

/// Returns the key of the object of a check.
pub(super) fn key_of(context: &Context<'_>, check: &CompiledCheck, hop: &str) -> Step<Result<Key, Unread>> {
    let (owner, server, kind) = (&context.facts.owner, check.server, &check.kind_name);
    let (resource, is_namespaced) = match discovered(context, server, &check.api_version, kind)? {
        Ok(found) => found,
        Err(unread) => return Ok(Err(unread)),
    };
    let namespace = match (server, is_namespaced, &check.namespace) {
        (Server::Management, true, _) => Some(owner.namespace.clone()),
        (Server::Workload, true, Some(namespace)) => Some(namespace.clone()),
        (Server::Workload, false, _) => None,
        (Server::Management, false, _) => {
            let message = format!("{kind} is cluster-scoped; name an object of the namespace of the gate");
            return Ok(Err((CheckReason::BelongsElsewhere, message)));
        }
        (Server::Workload, true, None) => {
            let message = format!("{kind} is namespaced; set object.namespace of the check");
            return Ok(Err((CheckReason::BelongsElsewhere, message)));
        }
    };
    Ok(Ok(Key {
        server,
        resource,
        namespace,
        name: check.object_name(&owner.name, hop),
    }))
}

/// Returns the API resource of a kind, and whether its objects have a namespace.
fn discovered(
    context: &Context<'_>,
    server: Server,
    api_version: &str,
    kind: &str,
) -> Step<Result<(Resource, bool), Unread>> {
    let read = Read::Kind {
        server,
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    };
    match context.answer(read) {
        Ok(ReadResult::Served(resource)) => Ok(Ok((resource.clone(), true))),
        Ok(ReadResult::ServedClusterWide(resource)) => Ok(Ok((resource.clone(), false))),
        Ok(ReadResult::Absent) => Ok(Err(not_served(server, api_version, kind))),
        Ok(_) => Err(unexpected(server)),
        Err(stop) => undiscovered(stop, server, (api_version, kind)).map(Err),
    }
}

/// Reads the list that a kind needs beside the object of `key`.
fn find_list(
    context: &Context<'_>,
    list: &RelatedList,
    key: &Key,
    phase: ReadPhase,
) -> Step<Result<Vec<Value>, Unread>> {
    match context.listed(labelled(list, key, phase)) {
        Ok(listed) => Ok(Ok(listed.iter().map(|Object(object)| object.clone()).collect())),
        Err(stop) => unread(stop, key, ("list", list.plural)).map(Err),
    }
}

/// Reads the object that the object of a check names. The list is empty if it does not exist.
fn find_one(
    context: &Context<'_>,
    server: Server,
    named: RelatedObject,
    phase: ReadPhase,
) -> Step<Result<Vec<Value>, Unread>> {
    let resource = match discovered(context, server, named.api_version, named.kind)? {
        Ok((resource, _)) => resource,
        Err(unread) => return Ok(Err(unread)),
    };
    let key = Key {
        server,
        resource,
        namespace: Some(named.namespace),
        name: named.name,
    };
    match context.object(key.clone(), phase) {
        Ok(found) => Ok(Ok(found.cloned().into_iter().collect())),
        Err(stop) => unread(stop, &key, ("get", &key.resource.plural)).map(Err),
    }
}

/// Reads the Cluster for an expression. The cache may lack labels and annotations.
fn find_cluster<'c>(context: &'c Context<'_>, phase: ReadPhase) -> Step<Result<&'c Value, Unread>> {
    let owner = &context.facts.owner;
    let key = Key::of::<Cluster>(Server::Management, Some(&owner.namespace), &owner.name);
    let found = context.object(key.clone(), phase)?;
    let found = found.filter(|found| found["metadata"]["uid"].as_str() == Some(owner.uid.as_str()));
    Ok(found.ok_or_else(|| {
        let message = format!("waiting for the leader to observe {key}");
        (CheckReason::NotObserved, message)
    }))
}

/// Returns the read of the list that a kind needs beside the object of `key`.
fn labelled(list: &RelatedList, key: &Key, phase: ReadPhase) -> Read {
    let labels: Vec<String> = list
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    Read::Labelled {
        server: key.server,
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

fn not_served(server: Server, api_version: &str, kind: &str) -> Unread {
    let message = format!("the {server} API server does not serve {kind} in {api_version}");
    (CheckReason::KindNotServed, message)
}

/// Returns why a kind is unknown.
///
/// # Errors
/// The interrupt is another one than a definite response.
fn undiscovered(stop: Interrupt, server: Server, (api_version, kind): (&str, &str)) -> Step<Unread> {
    let failure = stop.failed()?;
    match failure.code {
        Some(403) => {
            let message = format!(
                "the {server} API server refuses the discovery of {api_version}; bind ClusterRole system:discovery to the client"
            );
            Ok((CheckReason::KindForbidden, message))
        }
        Some(404) => Ok(not_served(server, api_version, kind)),
        Some(code) if is_of_one_kind(code) => {
            let message =
                format!("the {server} API server answers {code} for the discovery of {api_version}");
            Ok((CheckReason::NotObserved, message))
        }
        _ => Err(Interrupt::Failed(failure)),
    }
}

/// Returns why the object of `key`, or its list, cannot be read with a verb. The kind is that with the plural name `plural`.
///
/// # Errors
/// The interrupt is another one than a definite response.
fn unread(stop: Interrupt, key: &Key, (verb, plural): (&str, &str)) -> Step<Unread> {
    let failure = stop.failed()?;
    let (group, server) = (&key.resource.group, key.server);
    let (reason, message) = match (failure.code, server) {
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
            let message = format!("the {server} API server does not serve {plural} in group {group:?}");
            (CheckReason::KindNotServed, message)
        }
        (Some(code), _) if is_of_one_kind(code) => {
            let message = format!("the {server} API server answers {code} for {plural} in group {group:?}");
            (CheckReason::NotObserved, message)
        }
        _ => return Err(Interrupt::Failed(failure)),
    };
    Ok((reason, message))
}

/// Whether a response with this code says nothing about other kinds: a server behind the API server does not respond, an object cannot be
/// converted, or the kind has no such request.
const fn is_of_one_kind(code: u16) -> bool {
    code == 405 || code >= 500
}

fn too_large(failure: &Failure, key: &Key) -> String {
    match &failure.undecodable {
        Some(object) => object.to_string(),
        None => format!("{key} is larger than Sluice reads"),
    }
}
