//! UpgradeGates, judged from the objects that their checks name.
//!
//! - A version of the control plane needs every check of every Enforce gate with `before: ControlPlane` that selects the Cluster, at one row
//!   of the version's minor.
//! - The first worker that gets a version needs that of both values of `before`, and a control plane that runs the version. Workers that
//!   follow are not judged again: Cluster API asks once, and a rollout of workers takes Pods down.
//! - What counts is the state at the write, by the order of etcd. No status of Sluice is read.
//! - An Audit gate needs nothing. It is noted if it lacks a proof when its version is written to the control plane.
//! - No expression is evaluated. A check with `cel` needs what its kind needs, and one of a kind without a rule here is left out; see
//!   [`Gates::left_out`].

mod flux;
mod objects;
mod rules;
mod selection;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::objects::Objects;
use super::conditions::text;
use super::key::{Checked, Key, Place};

/// Namespace and name.
type Name = (String, String);

/// All UpgradeGates, and the objects that may prove their checks.
#[derive(Debug, Default)]
pub(super) struct Gates {
    by_name: BTreeMap<Name, Gate>,
    objects: Objects,
    /// By Cluster.
    proven: BTreeMap<Name, BTreeSet<Proven>>,
    /// The version that workers of a Cluster were given last.
    workers: BTreeMap<Name, String>,
}

/// A Cluster, as far as its gates depend on it.
pub(super) struct Subject<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) labels: &'a BTreeMap<String, String>,
    /// Its API server.
    pub(super) workload: Place,
    /// The version that its control plane runs.
    pub(super) running: &'a str,
}

/// Writes that a gate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    ControlPlane,
    Workers,
}

/// A check that is proven at a row of a minor version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Proven {
    pub(super) gate: String,
    pub(super) check: String,
    pub(super) minor: String,
}

/// An UpgradeGate.
#[derive(Debug)]
struct Gate {
    is_enforced: bool,
    is_before_control_plane: bool,
    selector: Value,
    /// Minor version and values.
    rows: Vec<(String, BTreeMap<String, String>)>,
    checks: Vec<Check>,
}

/// A check of an UpgradeGate.
#[derive(Debug)]
struct Check {
    name: String,
    is_on_workload: bool,
    /// None for a kind without a rule here.
    kind: Option<Checked>,
    /// Kind as written.
    kind_name: String,
    /// Namespace on the workload cluster.
    namespace: String,
    /// Name of the object, with its placeholders.
    object: String,
    container: Option<String>,
    version_key: Option<String>,
    has_expression: bool,
}

impl Gates {
    /// Takes a write of an UpgradeGate.
    pub(super) fn gate_written(&mut self, name: Name, object: Option<&Value>) {
        match object {
            Some(object) => drop(self.by_name.insert(name, Gate::read(object))),
            None => drop(self.by_name.remove(&name)),
        }
    }

    /// Takes a write of an object that a check may need.
    pub(super) fn object_written(&mut self, key: Key, kind: Checked, object: Option<Value>) {
        let Key {
            place,
            namespace,
            name,
            ..
        } = key;
        self.objects.written((place, kind, (namespace, name)), object);
    }

    /// Whether a namespace has gates.
    pub(super) fn are_in(&self, namespace: &str) -> bool {
        self.of(namespace).next().is_some()
    }

    /// Whether workers of a Cluster are the first ones that get a version.
    pub(super) fn are_first_workers(&mut self, cluster: &Name, version: &str) -> bool {
        let before = self.workers.insert(cluster.clone(), version.to_owned());
        before.as_deref() != Some(version)
    }

    /// What is not judged of the checks in a namespace, each once.
    pub(super) fn left_out(&self, namespace: &str) -> Vec<String> {
        let mut left_out = Vec::new();
        for (name, gate) in self.of(namespace) {
            for check in gate.checks.iter().filter(|check| check.has_expression) {
                let what = match check.kind {
                    Some(_) => "its expression".to_owned(),
                    None => format!("kind {}", check.kind_name),
                };
                left_out.push(format!("{name}/{}: {what}", check.name));
            }
        }
        left_out
    }

    /// Audit gates that would have held `version`, before the control plane takes it.
    pub(super) fn would_hold(&self, subject: &Subject<'_>, version: &str) -> Vec<String> {
        let audits = self
            .selecting(subject)
            .filter(|(_, gate)| !gate.is_enforced && gate.is_before_control_plane);
        let lacks = audits.filter(|(name, gate)| {
            let missing = gate.missing(name, &self.objects, subject, version);
            !missing.is_empty()
        });
        lacks.map(|(name, _)| name.to_owned()).collect()
    }

    /// Proofs that are missing for `version`: gate, check and cause.
    pub(super) fn missing(&self, subject: &Subject<'_>, version: &str, stage: Stage) -> Vec<String> {
        let mut holding = self
            .selecting(subject)
            .filter(|(_, gate)| gate.is_enforced)
            .filter(|(_, gate)| stage == Stage::Workers || gate.is_before_control_plane)
            .peekable();
        let runs = stage == Stage::ControlPlane || subject.running == version;
        let mut missing = Vec::new();
        if !runs && holding.peek().is_some() {
            let running = subject.running;
            missing.push(format!(
                "a control plane that runs {version}, it runs {running:?}"
            ));
        }
        missing.extend(holding.flat_map(|(name, gate)| gate.missing(name, &self.objects, subject, version)));
        missing
    }

    /// Takes the state of a Cluster after a write. Returns the checks that are proven now and were not before, and the other way round.
    ///
    /// `versions` are those that the Cluster has and wants. Names with a hop are judged for these only.
    pub(super) fn turned(&mut self, subject: &Subject<'_>, versions: &[&str]) -> (Vec<Proven>, Vec<Proven>) {
        let mut now = BTreeSet::new();
        for (name, gate) in self.selecting(subject) {
            now.extend(gate.proven(name, &self.objects, subject, versions));
        }
        let cluster = (subject.namespace.to_owned(), subject.name.to_owned());
        let before = self.proven.insert(cluster, now.clone()).unwrap_or_default();
        let gained = now.difference(&before).cloned().collect();
        let lost = before.difference(&now).cloned().collect();
        (gained, lost)
    }

    /// Gates that select a Cluster, by name.
    fn selecting(&self, subject: &Subject<'_>) -> impl Iterator<Item = (&str, &Gate)> {
        self.of(subject.namespace)
            .filter(move |(_, gate)| selection::selects(&gate.selector, subject.labels))
    }

    fn of(&self, namespace: &str) -> impl Iterator<Item = (&str, &Gate)> {
        let first = (namespace.to_owned(), String::new());
        self.by_name
            .range(first.clone()..)
            .take_while(move |((namespace, _), _)| *namespace == first.0)
            .map(|((_, name), gate)| (name.as_str(), gate))
    }
}

impl Gate {
    fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        let rows = spec["versions"].as_array().into_iter().flatten();
        let checks = spec["checks"].as_array().into_iter().flatten();
        Self {
            is_enforced: spec["mode"] == "Enforce",
            is_before_control_plane: spec["before"] == "ControlPlane",
            selector: spec["clusterSelector"].clone(),
            rows: rows
                .map(|row| (text(row, "/kubernetes"), values(&row["values"])))
                .collect(),
            checks: checks.map(Check::read).collect(),
        }
    }

    /// Missing proofs at the row that misses none, else at the first one.
    fn missing(&self, name: &str, objects: &Objects, subject: &Subject<'_>, version: &str) -> Vec<String> {
        let minor = minor(version);
        let rows = self.rows_of(&minor);
        if rows.is_empty() {
            return vec![format!("{name}: a row for Kubernetes {minor}")];
        }
        if self.checks.is_empty() {
            return vec![format!("{name}: a check")];
        }
        let at_each = rows.iter().map(|row| {
            let lacks = self.judged().filter_map(|check| {
                let why = rules::lack(objects, subject, check, row, version)?;
                Some(format!("{name}/{} ({why})", check.name))
            });
            lacks.collect::<Vec<String>>()
        });
        let mut at_each = at_each.collect::<Vec<_>>();
        if at_each.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        at_each.swap_remove(0)
    }

    /// Checks that are proven at any row of a minor version.
    fn proven(&self, name: &str, objects: &Objects, subject: &Subject<'_>, versions: &[&str]) -> Vec<Proven> {
        let mut hops: BTreeMap<String, &str> =
            self.rows.iter().map(|(minor, _)| (minor.clone(), "")).collect();
        hops.extend(versions.iter().map(|version| (minor(version), *version)));
        let mut proven = Vec::new();
        for (minor, hop) in &hops {
            let rows = self.rows_of(minor);
            let is_proven = |check: &&Check| {
                let mut rows = rows.iter();
                rows.any(|row| rules::lack(objects, subject, check, row, hop).is_none())
            };
            proven.extend(self.judged().filter(is_proven).map(|check| Proven {
                gate: name.to_owned(),
                check: check.name.clone(),
                minor: minor.clone(),
            }));
        }
        proven
    }

    /// Checks that are not left out.
    fn judged(&self) -> impl Iterator<Item = &Check> {
        self.checks
            .iter()
            .filter(|check| check.kind.is_some() || !check.has_expression)
    }

    /// The values of a minor version. Where no check has a `versionKey`, no row is needed.
    fn rows_of(&self, minor: &str) -> Vec<BTreeMap<String, String>> {
        if self.checks.iter().all(|check| check.version_key.is_none()) {
            return vec![BTreeMap::new()];
        }
        let rows = self.rows.iter().filter(|(of, _)| of == minor);
        rows.map(|(_, values)| values.clone()).collect()
    }
}

impl Check {
    fn read(check: &Value) -> Self {
        let object = &check["object"];
        let optional = |field: &str| check[field].as_str().map(str::to_owned);
        let (api_version, kind_name) = (text(object, "/apiVersion"), text(object, "/kind"));
        // The fields of another version may have another meaning.
        let kind = match (api_version.as_str(), kind_name.as_str()) {
            ("addons.cluster.x-k8s.io/v1alpha1", "HelmChartProxy") => Some(Checked::HelmChartProxy),
            ("helm.toolkit.fluxcd.io/v2", "HelmRelease") => Some(Checked::HelmRelease),
            ("kustomize.toolkit.fluxcd.io/v1", "Kustomization") => Some(Checked::Kustomization),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
                Some(Checked::CustomResourceDefinition)
            }
            ("apps/v1", "DaemonSet") => Some(Checked::DaemonSet),
            ("apps/v1", "Deployment") => Some(Checked::Deployment),
            ("apps/v1", "StatefulSet") => Some(Checked::StatefulSet),
            ("batch/v1", "Job") => Some(Checked::Job),
            _ => None,
        };
        Self {
            name: text(check, "/name"),
            is_on_workload: check["cluster"] == "Workload",
            kind,
            kind_name,
            namespace: text(object, "/namespace"),
            object: text(object, "/name"),
            container: optional("container"),
            version_key: optional("versionKey"),
            has_expression: check["cel"].is_string(),
        }
    }

    /// The name of its object. None if it contains the hop, and that is not known.
    fn object_of(&self, cluster: &str, hop: &str) -> Option<String> {
        if self.is_named_by_hop() && hop.is_empty() {
            return None;
        }
        let hop = hop.replace('+', "---");
        Some(self.object.replace("${cluster}", cluster).replace("${hop}", &hop))
    }

    fn is_named_by_hop(&self) -> bool {
        self.object.contains("${hop}")
    }
}

fn must(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Major and minor of a version, without `v`.
fn minor(version: &str) -> String {
    let version = version.strip_prefix('v').unwrap_or(version);
    let mut parts = version.splitn(3, '.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next());
    minor.map_or_else(|| major.to_owned(), |minor| format!("{major}.{minor}"))
}

fn values(values: &Value) -> BTreeMap<String, String> {
    values
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minor_version_has_two_numbers() {
        assert_eq!(minor("v1.35.4"), "1.35");
        assert_eq!(minor("v1.35.4+vmware.1"), "1.35");
        assert_eq!(minor("1.35"), "1.35");
        assert_eq!(minor(""), "");
    }

    #[test]
    fn placeholders_are_replaced() {
        let check = |name: &str| Check::read(&serde_json::json!({"object": {"name": name}}));
        let name = |name: &str, hop: &str| check(name).object_of("one", hop);
        assert_eq!(name("cni-${cluster}", "").as_deref(), Some("cni-one"));
        assert_eq!(
            name("backup-${hop}", "v1.35.4+a.1").as_deref(),
            Some("backup-v1.35.4---a.1")
        );
        assert_eq!(name("backup-${hop}", ""), None);
    }
}
