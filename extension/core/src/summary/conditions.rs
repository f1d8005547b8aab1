//! Conditions of a ClusterBootstrap, including mirrored ones of kapp-controller's objects.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::foreign::{PackageInstall, condition};
use sluice_crds::labels::name::{RELEASE_COMPATIBLE, UPDATES_AVAILABLE};
use sluice_crds::run::{Condition, PackageRecord, PackageState};

use crate::names::short;
use crate::proof::Summary;
use crate::reasons::Hold;
use crate::{
    explanation::Explanation,
    installation::gate_in_force::{GateInForce, NotInForceReason},
    text::{lines, one_line},
    upgrade::record::Ungated,
};

/// Package whose state is mirrored into the conditions of the ClusterBootstrap.
#[derive(Clone, Copy, Debug)]
pub struct Mirrored<'a> {
    /// `Package.spec.refName`.
    pub ref_name: &'a str,
    /// Whether the API server of its PackageInstall was reached.
    pub seen: bool,
    /// Its PackageInstall, if it exists.
    pub install: Option<&'a PackageInstall>,
    /// Its record.
    pub record: &'a PackageRecord,
}

/// Returns the conditions of a ClusterBootstrap with updated conditions of its packages.
///
/// A package has one condition, `Antrea-ReconcileSucceeded`, whose type is the whole title and not a part of it: `Antrea`
/// does not touch `Antrea-Interworking-ReconcileSucceeded`. A package without PackageInstall has no condition. If the PackageInstall
/// has no conditions, or its API server was not reached, the old condition stays; the record has the reason. A proven package stays
/// `ReconcileSucceeded` while kapp-controller reconciles it again, so a resync changes nothing. Other conditions, and their
/// order, stay.
#[must_use]
pub fn mirror(existing: &[Condition], packages: &[Mirrored<'_>], now: Timestamp) -> Vec<Condition> {
    let mut conditions = existing.to_vec();
    for package in packages.iter().filter(|package| package.seen) {
        let title = title(short(package.ref_name));
        let is_its = |condition: &Condition| {
            Summary::ALL
                .iter()
                .any(|summary| condition.type_ == format!("{title}-{summary}"))
        };
        let position = conditions.iter().position(is_its);
        let Some(install) = package.install else {
            conditions.retain(|condition| !is_its(condition));
            continue;
        };
        let Some(wanted) = wanted(&title, install, package.record, now) else {
            continue;
        };
        let Some(position) = position else {
            conditions.push(wanted);
            continue;
        };
        let mut found = 0;
        conditions.retain(|condition| {
            let its = is_its(condition);
            found += usize::from(its);
            !its || found == 1
        });
        let current = &mut conditions[position];
        *current = if current.type_ == wanted.type_ && current.status == wanted.status {
            Condition {
                last_transition_time: current.last_transition_time.clone(),
                ..wanted
            }
        } else {
            wanted
        };
    }
    conditions
}

/// Type of the condition of a ClusterBootstrap whose upgrades are released without proof.
const NOTHING_TO_PROVE: &str = "NothingToProve";

/// Adds or removes condition `NothingToProve`. Only a ClusterBootstrap without packages has it: there is nothing to prove, so its
/// upgrades are released at once.
#[must_use]
pub fn with_nothing_to_prove(
    conditions: Vec<Condition>,
    has_no_package: bool,
    now: Timestamp,
) -> Vec<Condition> {
    let said = (
        "NoPackages",
        "spec names no package: upgrades are released without proof",
    );
    with(conditions, NOTHING_TO_PROVE, has_no_package.then_some(said), now)
}

/// Type of the condition of a ClusterBootstrap whose kapp-controller another client installs.
const KAPP_CONTROLLER_UNMANAGED: &str = "KappControllerUnmanaged";

/// Adds or removes condition `KappControllerUnmanaged`, with the reason why Sluice does not install kapp-controller in the workload
/// cluster.
#[must_use]
pub fn with_unmanaged(
    conditions: Vec<Condition>,
    said: Option<(&str, &str)>,
    now: Timestamp,
) -> Vec<Condition> {
    with(conditions, KAPP_CONTROLLER_UNMANAGED, said, now)
}

/// Type of the condition of a ClusterBootstrap whose upgrade is completed and whose workload cluster is unreachable.
const UNSEEN: &str = "WorkloadUnseen";

/// Adds or removes condition `WorkloadUnseen` with the reason why the packages of a settled Cluster cannot be checked. No gate
/// reports that.
#[must_use]
pub fn with_unseen(conditions: Vec<Condition>, why: Option<&Hold>, now: Timestamp) -> Vec<Condition> {
    let said = why.map(|hold| (hold.reason.as_str(), hold.message.as_str()));
    with(conditions, UNSEEN, said, now)
}

/// Type of the condition of a ClusterBootstrap whose upgrade objects of the workload cluster may stop, and reason of its event.
pub const UPGRADE_WARNINGS: &str = "UpgradeWarnings";

/// Adds or removes condition `UpgradeWarnings` with the reason of the first warning and all messages. Nothing is held for them.
#[must_use]
pub fn with_upgrade_warnings(
    conditions: Vec<Condition>,
    said: Option<(&str, &str)>,
    now: Timestamp,
) -> Vec<Condition> {
    with(conditions, UPGRADE_WARNINGS, said, now)
}

/// Type of the condition that tells whether Cluster API calls the hooks before it upgrades the Cluster.
pub const GATE_IN_FORCE: &str = "GateInForce";

/// Sets condition `GateInForce`. A gate that is in force adds none if `adds` is false: it costs no write of its own. While it is not
/// known, the condition stays. Versions that were written without an open gate come first.
#[must_use]
pub fn with_gate_in_force(
    conditions: Vec<Condition>,
    gate: Option<&GateInForce>,
    ungated: &[Ungated],
    adds: bool,
    now: Timestamp,
) -> Vec<Condition> {
    let (status, reason, message) = match (ungated.first(), gate) {
        (Some(ungated), _) => (
            "False",
            NotInForceReason::VersionUngated.as_str(),
            ungated.to_string(),
        ),
        (None, None) => return conditions,
        (None, Some(GateInForce::No(not))) => {
            let status = if not.reason.is_unknown() {
                "Unknown"
            } else {
                "False"
            };
            (status, not.reason.as_str(), not.message.clone())
        }
        (None, Some(GateInForce::Yes)) => {
            if !adds
                && !conditions
                    .iter()
                    .any(|condition| condition.type_ == GATE_IN_FORCE)
            {
                return conditions;
            }
            ("True", "HooksCalled", String::new())
        }
    };
    with_status(conditions, GATE_IN_FORCE, Some((status, reason, &message)), now)
}

/// Whether condition `GateInForce` reports a version that was written without an open gate.
#[must_use]
pub fn says_ungated(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| {
        condition.type_ == GATE_IN_FORCE && condition.reason == NotInForceReason::VersionUngated.as_str()
    })
}

/// Type of the condition of a ClusterBootstrap whose Cluster has blocking leftovers of the addons-manager.
const TAKEOVER_INCOMPLETE: &str = "TakeoverIncomplete";

/// Adds or removes condition `TakeoverIncomplete`, whose reason and message name the leftovers of the addons-manager that could not be
/// removed.
#[must_use]
pub fn with_takeover(
    conditions: Vec<Condition>,
    said: Option<(&str, &str)>,
    now: Timestamp,
) -> Vec<Condition> {
    with(conditions, TAKEOVER_INCOMPLETE, said, now)
}

/// Copies conditions `ReleaseCompatible` and `UpdatesAvailable` of the Cluster. Their times are those of the copies.
#[must_use]
pub fn with_release(
    mut conditions: Vec<Condition>,
    cluster: &[condition::Condition],
    now: Timestamp,
) -> Vec<Condition> {
    for type_ in [RELEASE_COMPATIBLE, UPDATES_AVAILABLE] {
        let position = conditions.iter().position(|condition| condition.type_ == type_);
        let Some(found) = condition::find(cluster, type_) else {
            if let Some(position) = position {
                drop(conditions.remove(position));
            }
            continue;
        };
        let before = position.map(|position| &conditions[position]);
        let since = before.filter(|before| before.status == found.status);
        let copy = Condition {
            type_: type_.to_owned(),
            status: found.status.clone(),
            last_transition_time: since.map_or(Time(now), |before| before.last_transition_time.clone()),
            severity: String::new(),
            reason: found.reason.clone(),
            message: found.message.clone(),
        };
        match position {
            Some(position) => conditions[position] = copy,
            None => conditions.push(copy),
        }
    }
    conditions
}

/// Whether condition `TakeoverIncomplete` is true.
#[must_use]
pub fn says_takeover(conditions: &[Condition]) -> bool {
    conditions
        .iter()
        .any(|condition| condition.type_ == TAKEOVER_INCOMPLETE)
}

/// Type of the condition that tells whether the Cluster waits for anything.
const READY: &str = "Ready";

/// Longest message of condition `Ready`, in characters.
const LONGEST_READY: usize = 512;

/// Longest mirrored message of kapp-controller, in characters.
const LONGEST_MIRRORED: usize = 4096;

/// Sets condition `Ready`: whether each package is proven and nothing is held, or what the worst package lacks. Its time is that of its
/// last change from true to false or back.
#[must_use]
pub fn with_ready(
    mut conditions: Vec<Condition>,
    wait: Option<&Explanation<'_>>,
    now: Timestamp,
) -> Vec<Condition> {
    let (status, severity, reason, message) = match wait {
        None => ("True", "", "PackagesReady", String::new()),
        Some(wait) => {
            let severity = if wait.failed() { "Error" } else { "Info" };
            (
                "False",
                severity,
                wait.reason,
                one_line(&wait.to_string(), LONGEST_READY),
            )
        }
    };
    let ready = Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        last_transition_time: Time(now),
        severity: severity.to_owned(),
        reason: reason.to_owned(),
        message,
    };
    match conditions.iter_mut().find(|condition| condition.type_ == READY) {
        None => conditions.push(ready),
        Some(current) => {
            let last_transition_time = if current.status == ready.status {
                current.last_transition_time.clone()
            } else {
                ready.last_transition_time
            };
            *current = Condition {
                last_transition_time,
                ..ready
            };
        }
    }
    conditions
}

/// Adds or removes a true condition of this type, with this reason and message.
pub(crate) fn with(
    conditions: Vec<Condition>,
    type_: &str,
    said: Option<(&str, &str)>,
    now: Timestamp,
) -> Vec<Condition> {
    let said = said.map(|(reason, message)| ("True", reason, message));
    with_status(conditions, type_, said, now)
}

/// Adds or removes a condition of this type, with this status, reason and message.
pub(super) fn with_status(
    mut conditions: Vec<Condition>,
    type_: &str,
    said: Option<(&str, &str, &str)>,
    now: Timestamp,
) -> Vec<Condition> {
    let position = conditions.iter().position(|condition| condition.type_ == type_);
    match (position, said) {
        (None, Some((status, reason, message))) => conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            last_transition_time: Time(now),
            severity: String::new(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }),
        (Some(position), Some((status, reason, message))) => {
            let condition = &mut conditions[position];
            if condition.status != status {
                status.clone_into(&mut condition.status);
                condition.last_transition_time = Time(now);
            }
            reason.clone_into(&mut condition.reason);
            message.clone_into(&mut condition.message);
        }
        (Some(position), None) => drop(conditions.remove(position)),
        (None, None) => {}
    }
    conditions
}

fn wanted(
    title: &str,
    install: &PackageInstall,
    record: &PackageRecord,
    now: Timestamp,
) -> Option<Condition> {
    let status = install.status.as_ref()?;
    let summary = Summary::of(&status.conditions)?;
    let latched = record.state == PackageState::Ready && summary == Summary::Reconciling;
    let shown = if latched {
        Summary::ReconcileSucceeded
    } else {
        summary
    };
    let source = condition::find(&status.conditions, summary.as_str())?;
    Some(Condition {
        type_: format!("{title}-{shown}"),
        status: source.status.clone(),
        last_transition_time: Time(now),
        severity: String::new(),
        reason: source.reason.clone(),
        message: if latched {
            String::new()
        } else {
            let said = status.useful_error_message.as_deref();
            lines(said.unwrap_or_default(), LONGEST_MIRRORED)
        },
    })
}

/// Capitalizes each part between hyphens: `Kapp-Controller` for `kapp-controller`.
fn title(short: &str) -> String {
    let parts = short.split('-').map(|part| {
        let mut letters = part.chars();
        letters
            .next()
            .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    });
    parts.collect::<Vec<String>>().join("-")
}

#[cfg(test)]
mod tests;
