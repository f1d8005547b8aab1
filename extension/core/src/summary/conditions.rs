//! The state of kapp-controller's objects as conditions, read and mirrored.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::foreign::{PackageInstall, condition};
use sluice_crds::run::{Condition, PackageRecord, PackageState};

use crate::names::short;
use crate::proof::Summary;
use crate::reasons::Hold;
use crate::{
    summary::Wait,
    text::{lines, one_line},
};

/// A package whose state is mirrored into the conditions of the ClusterBootstrap.
#[derive(Clone, Copy, Debug)]
pub struct Mirrored<'a> {
    /// `Package.spec.refName`.
    pub ref_name: &'a str,
    /// Whether the server of its PackageInstall was seen.
    pub seen: bool,
    /// Its PackageInstall, if there is one.
    pub install: Option<&'a PackageInstall>,
    /// What was judged of it.
    pub record: &'a PackageRecord,
}

/// The conditions of a ClusterBootstrap with those of its packages brought up to date.
///
/// A package has one condition, `Antrea-ReconcileSucceeded`, whose type is the whole title and not a part of it: `Antrea`
/// does not touch `Antrea-Interworking-ReconcileSucceeded`. A package without PackageInstall has none; one without any
/// condition keeps what is there, and so does one that was not seen: the record says why. A package that is proven stays
/// `ReconcileSucceeded` while kapp-controller looks again, so that a resync changes nothing. Conditions of others, and their
/// order, are left alone.
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

/// Type of the condition of a ClusterBootstrap whose upgrades are released without any proof.
const NOTHING_TO_PROVE: &str = "NothingToProve";

/// The conditions of a ClusterBootstrap with or without the one that says that it has no package. Only one without packages
/// has it: nothing can be proven of it, so its upgrades are released at once.
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

/// Type of the condition of a ClusterBootstrap whose upgrade is completed, and whose workload cannot be looked at.
const UNSEEN: &str = "WorkloadUnseen";

/// The conditions of a ClusterBootstrap with or without the one that says why the packages of its settled Cluster cannot be looked at:
/// no gate says it.
#[must_use]
pub fn with_unseen(conditions: Vec<Condition>, why: Option<&Hold>, now: Timestamp) -> Vec<Condition> {
    let said = why.map(|hold| (hold.reason.as_str(), hold.message.as_str()));
    with(conditions, UNSEEN, said, now)
}

/// Type of the condition of a ClusterBootstrap whose Cluster something of the addons-manager still stands in the way of.
const TAKEOVER_INCOMPLETE: &str = "TakeoverIncomplete";

/// The conditions of a ClusterBootstrap with or without the one that says, by reason and message, what of the addons-manager could not be
/// removed.
#[must_use]
pub fn with_takeover(
    conditions: Vec<Condition>,
    said: Option<(&str, &str)>,
    now: Timestamp,
) -> Vec<Condition> {
    with(conditions, TAKEOVER_INCOMPLETE, said, now)
}

/// Whether one of these conditions says that something of the addons-manager could not be removed.
#[must_use]
pub fn says_takeover(conditions: &[Condition]) -> bool {
    conditions
        .iter()
        .any(|condition| condition.type_ == TAKEOVER_INCOMPLETE)
}

/// Type of the condition that says whether anything is waited for.
const READY: &str = "Ready";

/// The longest message of condition `Ready`, in characters.
const LONGEST_READY: usize = 512;

/// The longest message that is mirrored from kapp-controller, in characters.
const LONGEST_MIRRORED: usize = 4096;

/// The conditions of a ClusterBootstrap with the one that says whether each package is proven and nothing is held, or what the worst
/// package lacks. Its time is that of its last change from true to false or back.
#[must_use]
pub fn with_ready(mut conditions: Vec<Condition>, wait: Option<&Wait>, now: Timestamp) -> Vec<Condition> {
    let wait = wait.filter(|wait| !wait.on_cluster_api);
    let (status, severity, reason, message) = match wait {
        None => ("True", "", "PackagesReady", String::new()),
        Some(wait) => {
            let severity = if wait.failed { "Error" } else { "Info" };
            (
                "False",
                severity,
                wait.reason.as_str(),
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

/// The conditions with or without a true one of this type, which says this reason and message.
pub(crate) fn with(
    mut conditions: Vec<Condition>,
    type_: &str,
    said: Option<(&str, &str)>,
    now: Timestamp,
) -> Vec<Condition> {
    let position = conditions.iter().position(|condition| condition.type_ == type_);
    match (position, said) {
        (None, Some((reason, message))) => conditions.push(Condition {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Time(now),
            severity: String::new(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }),
        (Some(position), Some((reason, message))) => {
            let condition = &mut conditions[position];
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

/// Each part between hyphens with a capital: `Kapp-Controller` of `kapp-controller`.
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
