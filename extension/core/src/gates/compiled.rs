//! UpgradeGates that are valid, in the form that reconciles need.
//!
//! The API server and the webhook check the same rules when a gate is written. They are checked again because a gate may have been stored
//! while the webhook was switched off, or under another definition.

mod invalid;

use std::time::Duration;

use sluice_crds::lifecycle::{
    Before, Check, CheckedCluster, GateMode, MAX_CHECKS, MAX_KEYS, MAX_ROWS, UpgradeGate, UpgradeGateSpec,
    VersionRow,
};

use super::expression::{Expression, Variable};
use super::judge::JudgedKind;
use super::selection::{self, SelectorProblem};
use crate::fault::Fault;
use crate::protocol::Server;
use crate::reasons::{GateReason, Hold};
use invalid::{Invalid, deadline_of, is_container, is_key, is_minor, is_template, refused_version};

/// Placeholder of the Cluster in the name of an object.
const CLUSTER: &str = "${cluster}";

/// Placeholder of the Kubernetes version that is next, in the name of an object.
const HOP: &str = "${hop}";

/// Maximum number of rows of one Kubernetes minor version. Each check is judged by all of them.
const MAX_ROWS_OF_MINOR: usize = 8;

/// Maximum number of patterns of all expressions of a gate. Their programs take most of the memory of compiled texts.
const MAX_PATTERNS: usize = 8;

/// Valid UpgradeGate.
#[derive(Clone, Debug)]
pub struct CompiledGate {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether the gate holds Clusters.
    pub mode: GateMode,
    /// First step of an upgrade that the gate holds.
    pub before: Before,
    /// Time of a hold after which it is reported.
    pub deadline: Option<Duration>,
    /// Versions by Kubernetes minor version.
    pub rows: Vec<VersionRow>,
    /// Checks in the order of the gate.
    pub checks: Vec<CompiledCheck>,
}

/// Valid check of an UpgradeGate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledCheck {
    /// Name, unique in the gate.
    pub name: String,
    /// API server that has the object.
    pub server: Server,
    /// Judge of the object.
    pub kind: JudgedKind,
    /// Group and version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind_name: String,
    /// Namespace in the workload cluster; `None` for an object in the namespace of the gate, or of a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Name of the object with placeholders.
    pub name_template: String,
    /// Container whose image has the version.
    pub container: Option<String>,
    /// Key of the version in the rows.
    pub version_key: Option<String>,
    /// Whether only the state of the object is checked, at the moment when the gate opens.
    pub health_only: bool,
    /// Expression that has to be true.
    pub cel: Option<Expression>,
}

impl CompiledGate {
    /// Returns the rows for the minor version of `hop`, in order. All checks of the gate have to match the same row.
    #[must_use]
    pub fn rows_for<'a>(&'a self, hop: &str) -> Vec<&'a VersionRow> {
        let minor = minor_of(hop);
        self.rows
            .iter()
            .filter(|row| Some(row.kubernetes.as_str()) == minor)
            .collect()
    }

    /// Whether a check expects a version, so that an upgrade needs a row.
    #[must_use]
    pub fn needs_row(&self) -> bool {
        self.checks.iter().any(|check| check.version_key.is_some())
    }

    /// Returns what is valid and probably not intended, as one line each: field, value and remedy.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (at, check) in self.checks.iter().enumerate() {
            let Some(cel) = &check.cel else { continue };
            let mut warn = |problem: &str| {
                let field = format!("spec.checks[{at}].cel");
                warnings.push(Invalid::new(field, cel.text(), problem).to_string());
            };
            if !cel.uses(Variable::Object) {
                warn("it does not use object, so it is the same for each state of the object");
            }
            match (&check.version_key, cel.uses(Variable::Version)) {
                (Some(_), false) => {
                    warn(
                        "it does not use version, so it is the same for each version; the judge of the kind compares the version",
                    );
                }
                (None, true) => warn("it uses version, which is empty without a versionKey"),
                (Some(_), true) | (None, false) => {}
            }
        }
        warnings
    }

    /// Returns the hold of a gate that needs a row and has none for `hop`.
    #[must_use]
    pub fn no_row(&self, hop: &str) -> Hold {
        let (name, minor) = (&self.name, minor_of(hop).unwrap_or(hop));
        Hold::new(
            GateReason::NoVersionForHop,
            format!("{name}: no row for Kubernetes {minor}"),
        )
    }
}

impl CompiledCheck {
    /// Returns the name of the object for a Cluster and the version that it takes next. `+` is not allowed in names and becomes `---`.
    #[must_use]
    pub fn object_name(&self, cluster: &str, hop: &str) -> String {
        let name = self.name_template.replace(HOP, &hop.replace('+', "---"));
        name.replace(CLUSTER, cluster)
    }

    /// Whether the kind belongs to a delivery system, also in a version that has no judge.
    fn is_delivery(&self) -> bool {
        let mut kinds = JudgedKind::ALL.into_iter().filter(|kind| kind.is_delivery());
        kinds.any(|kind| kind.as_str() == self.kind_name)
    }

    /// Whether the name of the object has the version that the Cluster takes next, which is unknown between upgrades.
    #[must_use]
    pub fn has_hop(&self) -> bool {
        self.name_template.contains(HOP)
    }
}

/// Returns the minor version, `1.35` of `v1.35.4+vmware.1`.
pub(super) fn minor_of(version: &str) -> Option<&str> {
    let number = version.strip_prefix('v').unwrap_or(version);
    let (major, rest) = number.split_once('.')?;
    let minor = rest.split('.').next()?;
    number.get(..major.len() + 1 + minor.len())
}

/// Validates an UpgradeGate.
///
/// # Errors
/// `GateInvalid` with gate, field, value and remedy.
pub fn compile(gate: &UpgradeGate) -> Result<CompiledGate, Hold> {
    validated(gate).map_err(|invalid| {
        let name = gate.metadata.name.as_deref().unwrap_or_default();
        Hold::new(GateReason::GateInvalid, format!("{name}: {invalid}"))
    })
}

/// Validates an UpgradeGate as it is written.
///
/// # Errors
/// The invalid field.
pub(crate) fn compile_written(gate: &UpgradeGate) -> Result<CompiledGate, Fault> {
    validated(gate).map_err(Fault::from)
}

fn validated(gate: &UpgradeGate) -> Result<CompiledGate, Invalid> {
    let spec = &gate.spec;
    if let Some(problem) = selection::problem(&spec.cluster_selector) {
        let SelectorProblem { field, value, remedy } = problem;
        return Err(Invalid::new(
            format!("spec.clusterSelector.{field}"),
            value,
            remedy,
        ));
    }
    let deadline = deadline_of(spec)?;
    check_rows(&spec.versions)?;
    let checks = checks(spec)?;
    Ok(CompiledGate {
        uid: gate.metadata.uid.clone().unwrap_or_default(),
        generation: gate.metadata.generation.unwrap_or_default(),
        mode: spec.mode,
        before: spec.before,
        deadline,
        rows: spec.versions.clone(),
        checks,
        name: gate.metadata.name.clone().unwrap_or_default(),
    })
}

fn check_rows(rows: &[VersionRow]) -> Result<(), Invalid> {
    if rows.len() > MAX_ROWS {
        let remedy = format!("a gate has at most {MAX_ROWS} rows, remove some");
        return Err(Invalid::new("spec.versions", rows.len(), remedy));
    }
    for (at, VersionRow { kubernetes, values }) in rows.iter().enumerate() {
        let field = format!("spec.versions[{at}]");
        if !is_minor(kubernetes) {
            let remedy = "write one minor version in quotes, such as \"1.35\"";
            return Err(Invalid::new(format!("{field}.kubernetes"), kubernetes, remedy));
        }
        let before = rows.iter().take(at);
        if before.filter(|row| row.kubernetes == *kubernetes).count() >= MAX_ROWS_OF_MINOR {
            let remedy =
                format!("a gate has at most {MAX_ROWS_OF_MINOR} rows of one minor version, remove some");
            return Err(Invalid::new(format!("{field}.kubernetes"), kubernetes, remedy));
        }
        if values.is_empty() || values.len() > MAX_KEYS {
            let remedy = format!("a row has 1 to {MAX_KEYS} values");
            return Err(Invalid::new(format!("{field}.values"), values.len(), remedy));
        }
        for (key, value) in values {
            if !is_key(key) {
                let remedy = "use at most 63 letters, digits, -, _ and ., with a letter or digit at both ends, as a key";
                return Err(Invalid::new(format!("{field}.values"), key, remedy));
            }
            if let Some(remedy) = refused_version(value) {
                return Err(Invalid::new(format!("{field}.values.{key}"), value, remedy));
            }
        }
    }
    Ok(())
}

fn checks(spec: &UpgradeGateSpec) -> Result<Vec<CompiledCheck>, Invalid> {
    let listed = &spec.checks;
    if listed.is_empty() || listed.len() > MAX_CHECKS {
        let remedy = format!("a gate has 1 to {MAX_CHECKS} checks");
        return Err(Invalid::new("spec.checks", listed.len(), remedy));
    }
    let mut compiled: Vec<CompiledCheck> = Vec::with_capacity(listed.len());
    let mut patterns = 0;
    for (at, check) in listed.iter().enumerate() {
        let field = format!("spec.checks[{at}]");
        if compiled.iter().any(|earlier| earlier.name == check.name) {
            let remedy = "another check has the name, choose one that is unique in the gate";
            return Err(Invalid::new(format!("{field}.name"), &check.name, remedy));
        }
        let check = compiled_check(&field, check, &spec.versions)?;
        patterns += check.cel.as_ref().map_or(0, Expression::patterns);
        if let Some(cel) = check.cel.as_ref().filter(|_| patterns > MAX_PATTERNS) {
            let remedy = format!(
                "the expressions of a gate have at most {MAX_PATTERNS} patterns of matches() together, remove some"
            );
            return Err(Invalid::new(format!("{field}.cel"), cel.text(), remedy));
        }
        compiled.push(check);
    }
    if compiled.iter().all(CompiledCheck::is_delivery) {
        let kinds: Vec<&str> = compiled.iter().map(|check| check.kind_name.as_str()).collect();
        let remedy = "DeliveryOnly: these kinds prove that a version was applied, not that it runs; add a check of an object that \
                      runs, such as its DaemonSet or Deployment";
        return Err(Invalid::new("spec.checks", kinds.join(", "), remedy));
    }
    Ok(compiled)
}

fn compiled_check(field: &str, check: &Check, rows: &[VersionRow]) -> Result<CompiledCheck, Invalid> {
    if !is_container(&check.name) {
        let remedy = "use at most 63 lower case letters, digits and -";
        return Err(Invalid::new(format!("{field}.name"), &check.name, remedy));
    }
    let kind = judged_kind(field, check)?;
    check_object(field, check, kind)?;
    check_container(field, check, kind)?;
    check_version(field, check, kind, rows)?;
    check_tie(field, check, kind)?;
    let cel = expression(field, check, kind)?;
    let object = &check.object;
    Ok(CompiledCheck {
        name: check.name.clone(),
        server: match check.cluster {
            CheckedCluster::Management => Server::Management,
            CheckedCluster::Workload => Server::Workload,
        },
        kind,
        api_version: object.api_version.clone(),
        kind_name: object.kind.clone(),
        namespace: object.namespace.clone(),
        name_template: object.name.clone(),
        container: check.container.clone(),
        version_key: check.version_key.clone(),
        health_only: check.health_only,
        cel,
    })
}

fn judged_kind(field: &str, check: &Check) -> Result<JudgedKind, Invalid> {
    let (api_version, kind) = (check.object.api_version.as_str(), check.object.kind.as_str());
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if group.is_empty() && kind == "Secret" {
        let remedy = "a gate reads no Secrets, check an object that uses it";
        return Err(Invalid::new(format!("{field}.object.kind"), kind, remedy));
    }
    if matches!(group, "authentication.k8s.io" | "authorization.k8s.io") {
        let remedy = "a gate reads no objects about identities and rights, check an object of another group";
        return Err(Invalid::new(
            format!("{field}.object.apiVersion"),
            api_version,
            remedy,
        ));
    }
    if let Some(judged) = JudgedKind::of(api_version, kind) {
        return Ok(judged);
    }
    if check.cel.is_some() {
        return Ok(JudgedKind::Other);
    }
    let known = JudgedKind::ALL.map(|kind| format!("{} of {}", kind.as_str(), kind.api_version()));
    let remedy = format!(
        "kinds other than {} need an expression, add cel",
        known.join(", ")
    );
    Err(Invalid::new(
        format!("{field}.object"),
        format!("{kind} of {api_version}"),
        remedy,
    ))
}

fn check_object(field: &str, check: &Check, kind: JudgedKind) -> Result<(), Invalid> {
    let object = &check.object;
    if !is_template(&object.name) {
        let remedy = "write the name of one object; only ${cluster} and ${hop} are replaced";
        return Err(Invalid::new(format!("{field}.object.name"), &object.name, remedy));
    }
    let of_namespace = format!("{field}.object.namespace");
    match (check.cluster, &object.namespace) {
        (CheckedCluster::Management, _) if kind == JudgedKind::CustomResourceDefinition => {
            let remedy = "a definition has no namespace, and a gate reads only objects of its own in the management cluster; set cluster: Workload";
            Err(Invalid::new(format!("{field}.cluster"), "Management", remedy))
        }
        (CheckedCluster::Management, Some(namespace)) => {
            let remedy = "an object of the management cluster is in the namespace of the gate, remove it, or set cluster: Workload";
            Err(Invalid::new(of_namespace, namespace, remedy))
        }
        (CheckedCluster::Workload, _) if kind == JudgedKind::HelmChartProxy => {
            let remedy = "the kind belongs to the management cluster, remove cluster: Workload";
            Err(Invalid::new(format!("{field}.cluster"), "Workload", remedy))
        }
        (CheckedCluster::Workload, Some(namespace)) if kind == JudgedKind::CustomResourceDefinition => {
            let remedy = "a definition has no namespace, remove it";
            Err(Invalid::new(of_namespace, namespace, remedy))
        }
        // Discovery tells whether objects of another kind have a namespace.
        (CheckedCluster::Workload, None)
            if !matches!(kind, JudgedKind::CustomResourceDefinition | JudgedKind::Other) =>
        {
            let remedy = "name the namespace of the object in the workload cluster";
            Err(Invalid::missing(of_namespace, remedy))
        }
        (CheckedCluster::Workload, Some(namespace)) if !is_container(namespace) => {
            let remedy = "use at most 63 lower case letters, digits and -";
            Err(Invalid::new(of_namespace, namespace, remedy))
        }
        (CheckedCluster::Management, None) | (CheckedCluster::Workload, _) => Ok(()),
    }
}

/// Whether objects of the kind have containers, whose image is the version.
const fn has_containers(kind: JudgedKind) -> bool {
    match kind {
        JudgedKind::DaemonSet | JudgedKind::Deployment | JudgedKind::StatefulSet | JudgedKind::Job => true,
        JudgedKind::HelmChartProxy
        | JudgedKind::HelmRelease
        | JudgedKind::Kustomization
        | JudgedKind::CustomResourceDefinition
        | JudgedKind::Other => false,
    }
}

fn check_container(field: &str, check: &Check, kind: JudgedKind) -> Result<(), Invalid> {
    let of_container = format!("{field}.container");
    match &check.container {
        Some(container) if !has_containers(kind) => {
            let remedy = format!("{} has no containers, remove it", check.object.kind);
            Err(Invalid::new(of_container, container, remedy))
        }
        Some(container) if !is_container(container) => {
            let remedy = "use at most 63 lower case letters, digits and -";
            Err(Invalid::new(of_container, container, remedy))
        }
        None if check.version_key.is_some() && has_containers(kind) => {
            let remedy = "name the container whose image tag or sha256 digest is the value of the versionKey";
            Err(Invalid::missing(of_container, remedy))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_version(field: &str, check: &Check, kind: JudgedKind, rows: &[VersionRow]) -> Result<(), Invalid> {
    let Some(key) = &check.version_key else {
        return Ok(());
    };
    if rows.is_empty() {
        let remedy = format!(
            "{field} has versionKey {key}, add a row for each Kubernetes minor version that Clusters take"
        );
        return Err(Invalid::missing("spec.versions", remedy));
    }
    for (at, row) in rows.iter().enumerate() {
        let of_value = format!("spec.versions[{at}].values.{key}");
        let Some(value) = row.values.get(key) else {
            return Err(Invalid::missing(
                of_value,
                format!("{field} has this versionKey, add it"),
            ));
        };
        if let Some(remedy) = refused_value(kind, value) {
            return Err(Invalid::new(of_value, value, remedy));
        }
    }
    Ok(())
}

/// Returns the remedy of a value that no object of the kind can have as its version.
fn refused_value(kind: JudgedKind, value: &str) -> Option<&'static str> {
    match kind {
        // Helm takes `1.18` for the newest patch of it, and `1.18.2 - 1.18.4` for a range.
        JudgedKind::HelmChartProxy | JudgedKind::HelmRelease => {
            let number = value.strip_prefix('v').unwrap_or(value);
            semver::Version::parse(number)
                .is_err()
                .then_some("Helm reads it as a range, write the whole version of the chart, such as 1.18.2")
        }
        // A revision is `v1.18.2@sha1:…`.
        JudgedKind::Kustomization => value
            .contains('@')
            .then_some("write the part of the revision of the source before @, such as its tag v1.18.2"),
        JudgedKind::CustomResourceDefinition => {
            (!is_container(value)).then_some("write a version that the definition serves, such as v1")
        }
        JudgedKind::DaemonSet
        | JudgedKind::Deployment
        | JudgedKind::StatefulSet
        | JudgedKind::Job
        | JudgedKind::Other => None,
    }
}

/// Compiles the expression of a check.
fn expression(field: &str, check: &Check, kind: JudgedKind) -> Result<Option<Expression>, Invalid> {
    let Some(text) = &check.cel else {
        return Ok(None);
    };
    let invalid = |problem: &str| Invalid::new(format!("{field}.cel"), text, problem);
    let expression = Expression::compile(text).map_err(|problem| invalid(&problem))?;
    if kind == JudgedKind::Other && check.version_key.is_some() && !expression.uses(Variable::Version) {
        return Err(invalid(
            "the check has a versionKey, compare version with the field that has it, or remove versionKey",
        ));
    }
    Ok(Some(expression))
}

fn check_tie(field: &str, check: &Check, kind: JudgedKind) -> Result<(), Invalid> {
    let of_health = format!("{field}.healthOnly");
    let has_hop = check.object.name.contains(HOP);
    if check.health_only && check.version_key.is_some() {
        let remedy = "a check with a versionKey proves a version, remove one of the two";
        return Err(Invalid::new(of_health, true, remedy));
    }
    if check.health_only && kind == JudgedKind::Job {
        let remedy = "a Job of an earlier upgrade stays complete, use ${hop} in object.name, or set versionKey and container";
        return Err(Invalid::new(of_health, true, remedy));
    }
    if check.version_key.is_none() && !has_hop && !check.health_only {
        let remedy = "tie the check to the Kubernetes version by a versionKey or by ${hop} in object.name, or set healthOnly: true to \
                      test only the state when the gate opens";
        return Err(Invalid::missing(format!("{field}.versionKey"), remedy));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
