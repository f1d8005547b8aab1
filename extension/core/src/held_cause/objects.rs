//! Objects that show a cause. Only a few fields of each object are decoded, and a bounded number of objects is kept.

use std::collections::{BTreeMap, btree_map::Entry};

use serde::Deserialize;
use sluice_crds::run::HeldCause;

use super::cause::{Cause, LONGEST_EVIDENCE, held_cause};
use crate::text::one_line;

/// Maximum number of kept objects of a kind.
const KEPT: usize = 20;

/// Longest kept text of an object, in characters. The message about a drain names many Pods.
const LONGEST: usize = 2048;

/// What was read of the objects of a package, and of Machines and PodDisruptionBudgets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldObjects {
    /// First object of each cause.
    of_package: BTreeMap<Cause, HeldCause>,
    /// Machines that are being drained, with the message about it.
    draining: Vec<(String, String)>,
    /// Namespace and name of PodDisruptionBudgets that permit no eviction.
    budgets: Vec<(String, String)>,
    /// First failed request.
    failure: Option<String>,
}

/// Metadata of an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    deletion_timestamp: Option<String>,
}

/// DaemonSet.
#[derive(Debug, Deserialize)]
pub(super) struct DaemonSet {
    metadata: Metadata,
    spec: Option<DaemonSetSpec>,
    status: Option<DaemonSetStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DaemonSetSpec {
    update_strategy: Option<UpdateStrategy>,
}

#[derive(Debug, Deserialize)]
struct UpdateStrategy {
    #[serde(rename = "type")]
    type_: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DaemonSetStatus {
    #[serde(default)]
    updated_number_scheduled: i64,
    #[serde(default)]
    desired_number_scheduled: i64,
}

/// Pod.
#[derive(Debug, Deserialize)]
pub(super) struct Pod {
    metadata: Metadata,
    status: Option<PodStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    conditions: Option<Vec<Condition>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

/// Condition of an object.
#[derive(Debug, Deserialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    type_: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ContainerStatus {
    name: Option<String>,
    state: Option<ContainerState>,
}

#[derive(Debug, Deserialize)]
struct ContainerState {
    waiting: Option<Waiting>,
}

#[derive(Debug, Deserialize)]
struct Waiting {
    reason: Option<String>,
    message: Option<String>,
}

/// PodDisruptionBudget.
#[derive(Debug, Deserialize)]
pub(super) struct Budget {
    metadata: Metadata,
    status: Option<BudgetStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BudgetStatus {
    #[serde(default)]
    disruptions_allowed: i64,
    #[serde(default)]
    expected_pods: i64,
}

/// Machine of Cluster API.
#[derive(Debug, Deserialize)]
pub(super) struct Machine {
    metadata: Metadata,
    status: Option<MachineStatus>,
}

#[derive(Debug, Deserialize)]
struct MachineStatus {
    conditions: Option<Vec<Condition>>,
}

impl HeldObjects {
    /// Adds a DaemonSet, if its Pods wait for a deletion by a user.
    pub(super) fn add_daemon_set(&mut self, daemon_set: &DaemonSet) {
        let strategy = daemon_set.spec.as_ref().and_then(|spec| {
            let strategy = spec.update_strategy.as_ref()?;
            strategy.type_.as_deref()
        });
        let Some(status) = daemon_set
            .status
            .as_ref()
            .filter(|_| strategy == Some("OnDelete"))
        else {
            return;
        };
        let (updated, desired) = (status.updated_number_scheduled, status.desired_number_scheduled);
        if updated < desired {
            let evidence = format!("update strategy OnDelete: {updated} of {desired} Pods are updated");
            self.add(
                Cause::OnDeleteDaemonSet,
                "DaemonSet",
                &daemon_set.metadata,
                &evidence,
            );
        }
    }

    /// Adds a Pod, if a container waits or the scheduler finds no Node.
    pub(super) fn add_pod(&mut self, pod: &Pod) {
        let Some(status) = pod
            .status
            .as_ref()
            .filter(|_| pod.metadata.deletion_timestamp.is_none())
        else {
            return;
        };
        let containers = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses)
            .flatten();
        for container in containers {
            if let Some((cause, evidence)) = container.waits() {
                self.add(cause, "Pod", &pod.metadata, &evidence);
            }
        }
        let mut conditions = status.conditions.iter().flatten();
        if let Some(condition) = conditions.find(|condition| condition.is("PodScheduled", "False")) {
            let message = condition.message.as_deref().unwrap_or_default();
            self.add(
                Cause::Unschedulable,
                "Pod",
                &pod.metadata,
                &format!("PodScheduled is False: {message}"),
            );
        }
    }

    /// Adds a Machine, if it is being drained.
    pub(super) fn add_machine(&mut self, machine: &Machine) {
        let conditions = machine
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let deleting = conditions.find(|condition| condition.is("Deleting", "True"));
        if let Some(condition) = deleting
            && condition.reason.as_deref() == Some("DrainingNode")
            && self.draining.len() < KEPT
        {
            let message = condition.message.as_deref().unwrap_or_default();
            let place = machine.metadata.place("Machine");
            self.draining.push((place, one_line(message, LONGEST)));
        }
    }

    /// Adds a PodDisruptionBudget, if it permits no eviction.
    pub(super) fn add_budget(&mut self, budget: &Budget) {
        let forbids = |status: &BudgetStatus| status.disruptions_allowed <= 0 && status.expected_pods > 0;
        if budget.status.as_ref().is_some_and(forbids) && self.budgets.len() < KEPT {
            let Metadata { namespace, name, .. } = &budget.metadata;
            let text = |text: Option<&str>| one_line(text.unwrap_or_default(), LONGEST);
            self.budgets
                .push((text(namespace.as_deref()), text(name.as_deref())));
        }
    }

    /// Notes a failed request. Only the first one is kept.
    pub(super) fn fail(&mut self, failure: &str) {
        self.failure
            .get_or_insert_with(|| one_line(failure, LONGEST_EVIDENCE));
    }

    /// Returns the first failed request.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns the cause that an object of the package shows.
    pub(super) fn of_package(&self) -> Option<&HeldCause> {
        self.of_package.values().next()
    }

    /// Returns the same, unless these objects show no more than Pods without a Node. The drain of a Machine may have evicted them.
    pub(super) fn of_package_alone(&self) -> Option<&HeldCause> {
        let mut causes = self.of_package.iter();
        let (cause, held) = causes.next()?;
        (*cause != Cause::Unschedulable).then_some(held)
    }

    /// Whether a PodDisruptionBudget stops a drain whose message does not name it with its namespace.
    pub(super) fn needs_budgets(&self) -> bool {
        self.stopped_drain()
            .is_some_and(|(_, _, (namespace, name))| namespace.is_none() || name.is_none())
    }

    /// Returns the cause if a PodDisruptionBudget stops a drain.
    pub(super) fn budget(&self) -> Option<HeldCause> {
        let (machine, message, (namespace, name)) = self.stopped_drain()?;
        let object = match (namespace, name) {
            (Some(namespace), Some(name)) => Some(format!("PodDisruptionBudget {namespace}/{name}")),
            _ => self
                .only_budget(namespace, name)
                .or_else(|| name.map(|name| format!("PodDisruptionBudget {name}"))),
        };
        let object = object.as_deref().unwrap_or(machine);
        let evidence = format!("{machine}: {message}");
        Some(held_cause(Cause::DisruptionBudget, object, &evidence))
    }

    /// Returns the first Machine whose drain a PodDisruptionBudget stops, the message about the drain, and what it names of the
    /// PodDisruptionBudget.
    fn stopped_drain(&self) -> Option<(&str, &str, NamedBudget<'_>)> {
        self.draining
            .iter()
            .find_map(|(machine, message)| Some((machine.as_str(), message.as_str(), named_budget(message)?)))
    }

    /// Returns the PodDisruptionBudget with this namespace and name, as far as they are known, if only one has them.
    fn only_budget(&self, namespace: Option<&str>, name: Option<&str>) -> Option<String> {
        // Further ones may not have been kept.
        if self.budgets.len() == KEPT {
            return None;
        }
        let mut known = self.budgets.iter().filter(|(of, known)| {
            namespace.is_none_or(|namespace| namespace == of) && name.is_none_or(|name| name == known)
        });
        let (namespace, name) = known.next()?;
        let is_only = known.next().is_none();
        is_only.then(|| format!("PodDisruptionBudget {namespace}/{name}"))
    }

    /// Keeps the first object of a cause.
    fn add(&mut self, cause: Cause, kind: &str, metadata: &Metadata, evidence: &str) {
        if let Entry::Vacant(vacant) = self.of_package.entry(cause) {
            vacant.insert(held_cause(cause, &metadata.place(kind), evidence));
        }
    }
}

/// Namespace and name of a PodDisruptionBudget, as far as a message names them.
type NamedBudget<'a> = (Option<&'a str>, Option<&'a str>);

/// Returns the first PodDisruptionBudget that stops a drain by the message about it. Its namespace is that of the Pods. Cluster API lists
/// these, and repeats what the API server says: `* Pods shop/db-0, shop/db-1: cannot evict pod as it would violate the pod's disruption
/// budget. The disruption budget db needs 3 healthy pods and has 3 currently`
fn named_budget(message: &str) -> Option<NamedBudget<'_>> {
    let (before, after) = message.split_once("evict pod as it would violate the pod's disruption budget.")?;
    let pods = before.rsplit_once("* ").map_or(before, |(_, pods)| pods);
    let first = pods.split([',', ':']).next().unwrap_or_default();
    let pod = first.rsplit(' ').next().unwrap_or_default();
    let namespace = pod.split_once('/').map(|(namespace, _)| namespace);
    let named = after.trim_start().strip_prefix("The disruption budget ");
    Some((namespace, named.and_then(|named| named.split(' ').next())))
}

impl Metadata {
    /// Returns kind, namespace and name, `Pod shop/web-0`.
    fn place(&self, kind: &str) -> String {
        let (namespace, name) = (self.namespace.as_deref(), self.name.as_deref());
        let place = format!(
            "{kind} {}/{}",
            namespace.unwrap_or_default(),
            name.unwrap_or_default()
        );
        one_line(&place, LONGEST)
    }
}

impl Condition {
    /// Whether the condition has this type and status.
    pub(super) fn is(&self, type_: &str, status: &str) -> bool {
        self.type_.as_deref() == Some(type_) && self.status.as_deref() == Some(status)
    }
}

impl ContainerStatus {
    /// Returns the cause for which the container waits, with the evidence. Users who may not read the workload cluster read the evidence. The
    /// message of a crash may contain commands and values.
    fn waits(&self) -> Option<(Cause, String)> {
        let waiting = self.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let cause = match reason {
            "ImagePullBackOff" | "ErrImagePull" | "InvalidImageName" | "ImageInspectError"
            | "ErrImageNeverPull" => Cause::ImagePull,
            "CrashLoopBackOff"
            | "CreateContainerConfigError"
            | "RunContainerError"
            | "CreateContainerError" => Cause::CrashLoop,
            _ => return None,
        };
        let name = self.name.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().filter(|message| !message.is_empty());
        let evidence = match message.filter(|_| cause == Cause::ImagePull) {
            None => format!("container {name} waits: {reason}"),
            Some(message) => {
                let message = without_credentials(message);
                format!("container {name} waits: {reason}: {message}")
            }
        };
        Some((cause, evidence))
    }
}

/// Returns a text whose URLs have no userinfo, and end at their query. Each run of white space becomes one blank.
pub(super) fn without_credentials(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(bare_url).collect();
    words.join(" ")
}

/// Returns a word without userinfo, and without everything from the query on, if it is a URL.
fn bare_url(word: &str) -> String {
    let Some((scheme, url)) = word.split_once("://") else {
        return word.to_owned();
    };
    let url = url.split('?').next().unwrap_or_default();
    let mut bare = scheme.to_owned();
    for part in url.split("://") {
        let authority = part.find(['/', '#']).unwrap_or(part.len());
        let host = part[..authority].rfind('@').map_or(0, |at| at + 1);
        bare.push_str("://");
        bare.push_str(&part[host..]);
    }
    bare
}
