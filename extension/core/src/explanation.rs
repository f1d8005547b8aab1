//! Explains why a Cluster waits. Columns, condition `Ready`, metrics and events render the same explanation. Hook answers have the hold of
//! its gate.

use std::{borrow::Cow, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::run::{Gate, Hook, PackageRecord, PackageState, Swap, UpgradeRecord};

use crate::reasons::{Class, GateReason, Hold, PackageReason};
use crate::text::one_line;
use crate::upgrade::record::{failed, is_ready};

/// Longest subject of a wait, in characters.
const LONGEST_SUBJECT: usize = 48;

/// Length to which a package name is cut off in a column before the message of a failure is, in characters.
const SHORTEST_NAME: usize = 10;

/// Why a Cluster waits: for its worst package, or for the reason of its gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<'a> {
    /// First closed gate, with its hook and version; none while all gates are open, also for a swap that waits.
    pub gate: Option<&'a Gate>,
    /// Package that the Cluster waits for; none if the gate does not wait for packages.
    pub package: Option<&'a PackageRecord>,
    /// Reason of the package or of the gate, PascalCase.
    pub reason: &'a str,
    /// Short text of the reason. The reason itself if this build does not know it.
    pub text: &'a str,
    /// Details, such as an error of kapp-controller of any length.
    pub message: &'a str,
    /// Class of the reason; none if this build does not know the reason.
    pub class: Option<Class>,
    /// Start of the wait; none if it was not recorded.
    pub since: Option<Time>,
}

/// Explains why the Cluster of a record waits, if it does. `since` is the start of the wait.
#[must_use]
pub fn explain(record: &UpgradeRecord, since: Option<Time>) -> Option<Explanation<'_>> {
    let gate = closed_gate(record);
    let swap = record.swap.as_ref().filter(|_| record.outcome.is_none());
    let of_gate = gate
        .map(|gate| Explanation::of_gate(gate, since.clone()))
        .or_else(|| swap.and_then(|swap| Explanation::of_swap(swap, since.clone())));
    let waits_for_other = of_gate
        .as_ref()
        .is_some_and(|explanation| explanation.class.is_some_and(|class| class != Class::Retries));
    if waits_for_other {
        return of_gate;
    }
    worst(record)
        .map(|package| Explanation::of_package(gate, package, since))
        .or(of_gate)
}

/// Returns the hold of a closed gate; `None` for a reason that this build does not know.
#[must_use]
pub fn hold_of(gate: &Gate) -> Option<Hold> {
    Some(Hold::new(GateReason::parse(&gate.reason)?, gate.message.clone()))
}

/// Returns a package with its version.
pub(crate) fn subject_of(package: &PackageRecord) -> String {
    one_line(&format!("{} {}", package.name, package.version), LONGEST_SUBJECT)
}

impl<'a> Explanation<'a> {
    fn of_gate(gate: &'a Gate, since: Option<Time>) -> Self {
        Self {
            gate: Some(gate),
            ..Self::of_reason(&gate.reason, &gate.message, since)
        }
    }

    /// Explains a swap that waits. One that keeps the machines does not.
    fn of_swap(swap: &'a Swap, since: Option<Time>) -> Option<Self> {
        let waits = !swap.reason.is_empty() && swap.reason != GateReason::MachinesKept.as_str();
        waits.then(|| Self::of_reason(&swap.reason, &swap.message, since))
    }

    fn of_reason(reason: &'a str, message: &'a str, since: Option<Time>) -> Self {
        let known = GateReason::parse(reason);
        Self {
            gate: None,
            package: None,
            reason,
            text: known.map_or(reason, |known| known.text()),
            message,
            class: known.map(GateReason::class),
            since,
        }
    }

    fn of_package(gate: Option<&'a Gate>, package: &'a PackageRecord, since: Option<Time>) -> Self {
        let reason = PackageReason::parse(&package.reason);
        let text = reason.map(PackageReason::text);
        Self {
            gate,
            package: Some(package),
            reason: &package.reason,
            text: text.unwrap_or(&package.reason),
            message: &package.message,
            class: reason.map(PackageReason::class),
            since,
        }
    }

    /// Keeps the start of `before`, if that wait is for the same package or reason. A package that fails and is retried is one wait.
    #[must_use]
    pub fn after(self, before: Option<&Explanation<'_>>) -> Self {
        match before.filter(|before| before.subject() == self.subject()) {
            Some(before) => Self {
                since: before.since.clone().or(self.since),
                ..self
            },
            None => self,
        }
    }

    /// Explains why the Cluster is not ready. During a step of Cluster API that is the state of the worst package.
    #[must_use]
    pub fn of_readiness(self, record: &'a UpgradeRecord) -> Option<Self> {
        if !self.is_on_cluster_api() {
            return Some(self);
        }
        if let Some(package) = worst(record) {
            return Some(Self::of_package(self.gate, package, self.since));
        }
        // The state of its packages is unknown before there is a control plane.
        let is_created = record.from.is_none() && record.packages.is_empty();
        is_created.then_some(self)
    }

    /// Returns the hold to report in an event: that of the gate, else that of a failed package, which no gate reports after an upgrade, or
    /// that of a swap.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        match (self.gate, self.package) {
            (Some(gate), _) => hold_of(gate),
            (None, Some(package)) => failed([package]),
            (None, None) => Some(Hold::new(GateReason::parse(self.reason)?, self.message)),
        }
    }

    /// Whether its package is failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.package
            .is_some_and(|package| package.state == PackageState::Failed)
    }

    /// Whether the Cluster waits for Cluster API and no gate is held.
    #[must_use]
    pub fn is_on_cluster_api(&self) -> bool {
        self.class == Some(Class::ClusterApi)
    }

    /// Whether the workload API server is the reason. That of a gate and that of a package have the same spelling.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.reason == GateReason::WorkloadUnreachable.as_str()
    }

    /// Returns the package with its version, or the reason of the gate.
    #[must_use]
    pub fn subject(&self) -> String {
        self.package
            .map_or_else(|| one_line(self.reason, LONGEST_SUBJECT), subject_of)
    }

    /// Returns the text in at most `longest` characters: without the build metadata of a package version, which is often longer than
    /// the version, and with a long package name cut off rather than the text. A failure adds its message.
    #[must_use]
    pub fn in_column(&self, longest: usize) -> String {
        let Some(package) = self.package else {
            let text: Cow<'_, str> = match GateReason::parse(self.reason) {
                // The message shows the progress.
                Some(GateReason::ReplacingMachines) if self.gate.is_none() => self.message.into(),
                // The message names the pools.
                Some(GateReason::WorkersDeferred) => format!("{}: {}", self.text, self.message).into(),
                _ => self.text.into(),
            };
            return one_line(&text, longest);
        };
        let version = package.version.split('+').next().unwrap_or_default();
        let cause = self.cause();
        let beside =
            |text: &str| longest.saturating_sub(" : ".len() + version.chars().count() + text.chars().count());
        // The text stays whole. The message may be cut off.
        let room = beside(&cause).max(SHORTEST_NAME.min(beside(self.text)));
        let name = one_line(&package.name, room);
        one_line(&format!("{name} {version}: {cause}"), longest)
    }

    /// Returns the text of a package, with the message of a failure.
    fn cause(&self) -> Cow<'a, str> {
        if self.failed() && !self.message.is_empty() {
            format!("{}: {}", self.text, self.message).into()
        } else {
            self.text.into()
        }
    }
}

/// Renders the subject and the whole cause.
impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.package {
            Some(_) => self.cause(),
            None => self.message.into(),
        };
        match &*cause {
            "" => f.write_str(&self.subject()),
            cause => write!(f, "{}: {cause}", self.subject()),
        }
    }
}

/// Returns the first closed gate in the order of hook calls; for a Cluster that is being deleted the deletion gate.
#[must_use]
pub fn closed_gate(record: &UpgradeRecord) -> Option<&Gate> {
    let deletion = record
        .gates
        .iter()
        .find(|gate| gate.hook == Hook::BeforeClusterDelete);
    match deletion {
        Some(gate) => Some(gate).filter(|gate| !gate.open),
        None => record.gates.iter().find(|gate| !gate.open),
    }
}

/// Returns the first failed package, otherwise the first without a proof.
fn worst(record: &UpgradeRecord) -> Option<&PackageRecord> {
    let failed = |package: &&PackageRecord| package.state == PackageState::Failed;
    let mut unproven = record.packages.iter().filter(|package| !is_ready(package));
    let packages = &record.packages;
    packages.iter().find(failed).or_else(|| unproven.next())
}
