//! Table of all checks, and its part of the documentation.

use std::fmt::Write as _;

use super::finding::{
    Admission::{self, LeftToClusterApi, NotChecked, Refuses, Warns},
    Effect, FindingReason, WarningReason,
};
use crate::reasons::{GateReason, put_table};

/// Path of the page with the table, relative to the root of the repository.
pub const PAGE: &str = "docs/reference/plan.md";

/// Heading above the table.
const HEADING: &str = "Checks";

/// Row of the table of checks.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Reason of its findings.
    pub reason: FindingReason,
    /// What it finds.
    pub about: &'static str,
    /// What a finding causes.
    pub effect: Effect,
    /// What admission does.
    pub admission: Admission,
    /// Flag of `sluice plan` that requests it, if it is not always made. Admission never makes such a check.
    pub flag: Option<&'static str>,
    /// What a user does.
    pub remedy: &'static str,
}

/// All checks, in the order of the documentation.
pub const CHECKS: &[Check] = &[
    blocks(
        GateReason::TKRNotFound,
        Warns,
        "A release that the label or `TKR_DATA` names does not exist.",
        "create the release, or correct its name on the Cluster",
    ),
    blocks(
        GateReason::NoTKRForHop,
        Warns,
        "No release has the Kubernetes version of a step, or several have it, or the label and \
         `topology.version` are of different releases.",
        "set label and version to those of one release, create the release of a step between, or name one of \
         several in `TKR_DATA`",
    ),
    blocks(
        GateReason::TKRLegacy,
        Refuses,
        "A release is marked legacy.",
        "name another release",
    ),
    blocks(
        GateReason::TKRNotUsable,
        Refuses,
        "A release has label `incompatible`, `deactivated` or `invalid`, and its packages are not merged \
         yet.",
        "name a usable release, or correct the one in the message",
    ),
    blocks(
        GateReason::TemplateNotFound,
        Warns,
        "The ClusterBootstrapTemplate of a release does not exist.",
        "create the ClusterBootstrapTemplate",
    ),
    blocks(
        GateReason::PackageNotFound,
        Warns,
        "A Package of a release, or of the ClusterBootstrap, does not exist in the system namespace.",
        "create the Package, or correct the ClusterBootstrap",
    ),
    blocks(
        GateReason::PackageExcludesKubernetes,
        Refuses,
        "`kubernetesVersionSelection` of a Package excludes the version before or after a step, or cannot \
         be parsed. In phase `AfterControlPlane` only the version after counts.",
        "use a version of the package that allows both Kubernetes versions, correct the constraints of the \
         Package, or set annotation `packaging.carvel.dev/ignore-kubernetes-version-selection` of its \
         PackageInstall",
    ),
    blocks(
        GateReason::ManagementPackageNotReady,
        Warns,
        "A management package that a release requires is not proven. That of a later step only warns: it holds \
         its own step.",
        "upgrade the management package that the message names",
    ),
    refused_by_cluster_api(
        WarningReason::VersionNotInClass,
        "`kubernetesVersions` of the ClusterClass does not list `topology.version`.",
        "add the version to the ClusterClass, or use a class that lists it",
    ),
    refused_by_cluster_api(
        WarningReason::MinorVersionSkipped,
        "`topology.version` skips a minor version, and the ClusterClass plans no steps.",
        "upgrade one minor version at a time, or list the versions in `kubernetesVersions` of the \
         ClusterClass",
    ),
    blocks(
        GateReason::DowngradeNotSupported,
        LeftToClusterApi,
        "`topology.version` is below the control plane.",
        "raise the version again",
    ),
    blocks(
        GateReason::UpgradePlanUnknown,
        Warns,
        "The extension that the ClusterClass names has not planned the steps to the target.",
        "wait for a minute, then check the extension",
    ),
    blocks(
        GateReason::TKRLabelRemoved,
        Warns,
        "The Cluster has a ClusterBootstrap, but no release label.",
        "set the label",
    ),
    blocks(
        GateReason::MachinesNotResolved,
        Warns,
        "The machines of a step cannot be created from its release.",
        "correct what the message names, or write the entry in `TKR_DATA`",
    ),
    blocks(
        GateReason::ControlPlaneCreating,
        Warns,
        "The control plane does not exist, or has no version yet.",
        "wait until the Cluster is created",
    ),
    blocks(
        GateReason::ControlPlaneUpgrading,
        Warns,
        "The control plane takes another version, or another upgrade is under way. Cluster API accepts no \
         further version.",
        "wait until that upgrade is completed",
    ),
    blocks(
        GateReason::WorkersUpgrading,
        Warns,
        "Workers are not at the version of the control plane. Cluster API accepts no further version.",
        "wait until the workers are at that version",
    ),
    blocks(
        GateReason::WorkersDeferred,
        Warns,
        "Annotations of the topology keep workers below the version of the control plane. Cluster API \
         accepts no further version.",
        "remove the annotations, and wait until the workers are at that version",
    ),
    blocks(
        GateReason::ClusterPaused,
        Warns,
        "The Cluster is paused.",
        "unpause the Cluster",
    ),
    blocks(
        GateReason::BootstrapPaused,
        Warns,
        "The ClusterBootstrap is paused.",
        "unpause the ClusterBootstrap",
    ),
    blocks(
        GateReason::StartHeldByAnnotation,
        Warns,
        "An annotation `before-upgrade.hook.cluster.cluster.x-k8s.io…` keeps the upgrade from starting.",
        "have its owner remove the annotation",
    ),
    blocks(
        GateReason::ClusterDeleting,
        Warns,
        "The Cluster is being deleted.",
        "create another Cluster",
    ),
    blocks(
        GateReason::APIUnavailable,
        Warns,
        "An API that the Cluster depends on is not listed.",
        "check the API that the message names",
    ),
    blocks(
        GateReason::ControlPlaneKindUnreadable,
        Warns,
        "The control plane object cannot be read.",
        "apply the rule or the label that the message names",
    ),
    blocks(
        GateReason::ObjectUndecodable,
        Warns,
        "An object that the Cluster depends on cannot be decoded.",
        "correct the field that the message names",
    ),
    blocks(
        GateReason::PackageNotInRelease,
        Warns,
        "The release lists no version of a package that the user chose instead of the one in the template.",
        "add it to `spec.bootstrapPackages`, change the ClusterBootstrap, or keep the version by \
         annotation",
    ),
    blocks(
        GateReason::PackageBelowRelease,
        Warns,
        "A package of the ClusterBootstrap is lower than in the release that is merged into it.",
        "set the version that the message names, or keep the version by annotation",
    ),
    blocks(
        GateReason::PackageMissing,
        Warns,
        "A package of the release that is merged into the ClusterBootstrap was removed from it.",
        "add the package, or leave it out by annotation",
    ),
    blocks(
        GateReason::PackageDuplicated,
        Warns,
        "Two packages of the ClusterBootstrap would share one PackageInstall at a step.",
        "remove one of the two packages",
    ),
    blocks(
        GateReason::PackagesTooMany,
        Warns,
        "A ClusterBootstrap or ClusterBootstrapTemplate lists more than 128 additional packages.",
        "remove packages from the object that the message names",
    ),
    blocks(
        GateReason::KeptVersionsInvalid,
        Warns,
        "Annotation `lifecycle.sluice.dev/keep-package-versions` is invalid.",
        "correct the part that the message names",
    ),
    blocks(
        GateReason::MissingFieldsNotFilled,
        Warns,
        "Missing fields of the ClusterBootstrap cannot be filled from the release.",
        "correct the field that the message names",
    ),
    blocks(
        GateReason::UnmanagedCNIConflict,
        Warns,
        "The ClusterBootstrap has a CNI and annotation `unmanaged-cni`.",
        "remove one of the two",
    ),
    blocks(
        GateReason::NameTooLong,
        Warns,
        "The name of an object that a step creates exceeds the limit of Kubernetes.",
        "use a shorter name for the Cluster",
    ),
    blocks(
        GateReason::ValuesSourceAmbiguous,
        Warns,
        "A package has more than one source of values.",
        "keep one source",
    ),
    of_values(
        GateReason::ValuesNotFound,
        "A values source does not exist, or Sluice may not read its kind.",
        "create what the message names, or add the rule that it names",
    ),
    of_values(
        GateReason::ValuesNotReady,
        "A values source has no values for this version of the package yet.",
        "check condition `Ready` of the object, or its controller",
    ),
    of_values(
        GateReason::ValuesOwnerMismatch,
        "A values source belongs to another Cluster.",
        "give the Cluster a source of its own",
    ),
    of_values(
        GateReason::ValuesSecretRefused,
        "The values Secret of a package is a credential of Kubernetes or Cluster API.",
        "name a Secret with values",
    ),
    warns(
        WarningReason::StepsNotPlanned,
        "Another extension plans the steps once the version is written, or the upgrade has more than eight \
         steps.",
        "run `sluice plan` again once the upgrade has begun",
    ),
    warns(
        WarningReason::PackageDowngraded,
        "A package has a lower version after a step than before.",
        "check that the package supports the lower version, or keep the version by annotation",
    ),
    warns(
        WarningReason::PackageFailing,
        "A package has failed to reconcile before the upgrade.",
        "correct the package before the upgrade",
    ),
    warns(
        WarningReason::PackageExcludesKappController,
        "`kappControllerVersionSelection` of a Package excludes the kapp-controller of a step, or cannot \
         be parsed.",
        "use a version of the package that allows this kapp-controller, or correct the constraints of the \
         Package",
    ),
    unchecked(
        WarningReason::ValuesNotInSchema,
        "Values of a package do not match `valuesSchema` of its Package after a step. Those of Secrets \
         and configurations are compared only with `--values`.",
        "correct the values before the upgrade",
    ),
    unchecked(
        WarningReason::ValuesNotReadable,
        "Values of a package are not YAML.",
        "correct the values",
    ),
    unchecked(
        WarningReason::SchemaNotUsable,
        "`valuesSchema` of a Package cannot be compared with values, or exceeds a limit.",
        "correct the schema of the Package, or compare the values yourself",
    ),
    warns(
        WarningReason::ClusterNotHealthy,
        "Condition `ControlPlaneMachinesReady`, `WorkerMachinesReady` or `RemoteConnectionProbe` of the \
         Cluster is not True.",
        "resolve the cause that the condition names before the upgrade",
    ),
    warns(
        WarningReason::VersionCheckDisabled,
        "Annotation `unsafe.topology.cluster.x-k8s.io/disable-update-version-check` is set.",
        "remove the annotation, so that Cluster API checks changes of the version",
    ),
    of_workload(
        WarningReason::EvictionNotAllowedNow,
        "A PodDisruptionBudget allows no disruption now.",
        "wait until its Pods are ready, or the drain of their Nodes waits",
    ),
    of_workload(
        WarningReason::EvictionNeverAllowed,
        "A PodDisruptionBudget never allows a disruption.",
        "allow at least one disruption, or add a replica",
    ),
    of_workload(
        WarningReason::PodWithoutController,
        "A Pod has no controller, so a drain deletes it for good.",
        "create the Pod through a controller, or accept its loss",
    ),
    of_workload(
        WarningReason::NodeTooOld,
        "The kubelet of a Node is more than three minor versions older than a step.",
        "upgrade the Node first",
    ),
    of_workload(
        WarningReason::RemovedAPIRequested,
        "A client has requested an API that a version up to the target no longer serves. The metric does \
         not name the client.",
        "find the client, for example in the audit log, and move it to the newer API",
    ),
];

const fn blocks(
    reason: GateReason,
    admission: Admission,
    about: &'static str,
    remedy: &'static str,
) -> Check {
    Check {
        reason: FindingReason::Gate(reason),
        about,
        effect: Effect::Blocks,
        admission,
        flag: None,
        remedy,
    }
}

const fn of_values(reason: GateReason, about: &'static str, remedy: &'static str) -> Check {
    Check {
        flag: Some("--values"),
        ..blocks(reason, NotChecked, about, remedy)
    }
}

const fn warns(reason: WarningReason, about: &'static str, remedy: &'static str) -> Check {
    Check {
        reason: FindingReason::Warning(reason),
        about,
        effect: Effect::Warns,
        admission: Warns,
        flag: None,
        remedy,
    }
}

const fn unchecked(reason: WarningReason, about: &'static str, remedy: &'static str) -> Check {
    Check {
        admission: NotChecked,
        ..warns(reason, about, remedy)
    }
}

const fn refused_by_cluster_api(reason: WarningReason, about: &'static str, remedy: &'static str) -> Check {
    Check {
        effect: Effect::Blocks,
        admission: LeftToClusterApi,
        ..warns(reason, about, remedy)
    }
}

const fn of_workload(reason: WarningReason, about: &'static str, remedy: &'static str) -> Check {
    Check {
        flag: Some("--workload"),
        ..unchecked(reason, about, remedy)
    }
}

/// Returns the page with its table of checks regenerated.
///
/// # Errors
/// The page lacks the heading of the table, or a table below it.
pub fn with_checks(page: &str) -> Result<String, String> {
    put_table(page, (PAGE, HEADING), &markdown())
}

fn markdown() -> String {
    let mut text =
        "| reason | finding | effect | at admission | what to do |\n|---|---|---|---|---|\n".to_owned();
    for check in CHECKS {
        let effect = match check.effect {
            Effect::Blocks => "blocks",
            Effect::Warns => "warns",
        };
        let admission = match (check.flag, check.admission) {
            (Some(flag), _) => format!("not checked; needs `{flag}`"),
            (None, NotChecked) => "not checked".to_owned(),
            (None, Refuses) => "refused".to_owned(),
            (None, Warns) => "warning".to_owned(),
            (None, LeftToClusterApi) => "left to Cluster API".to_owned(),
        };
        let (reason, about, remedy) = (check.reason.as_str(), check.about, check.remedy);
        let written = writeln!(
            text,
            "| `{reason}` | {about} | {effect} | {admission} | {remedy} |"
        );
        debug_assert!(written.is_ok(), "a String takes every line");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_says_what_it_finds_and_what_to_do() {
        for check in CHECKS {
            let reason = check.reason.as_str();
            assert!(!check.about.is_empty() && !check.remedy.is_empty(), "{reason}");
            assert!(
                !format!("{}{}", check.about, check.remedy).contains('|'),
                "{reason}"
            );
        }
    }

    #[test]
    fn every_warning_has_a_row() {
        for reason in WarningReason::ALL {
            let of_reason = |check: &&Check| check.reason == FindingReason::Warning(*reason);
            assert_eq!(CHECKS.iter().filter(of_reason).count(), 1, "{reason}");
        }
    }

    /// Admission refuses nothing that no gate would hold.
    #[test]
    fn only_a_gate_or_cluster_api_blocks() {
        for (at, check) in CHECKS.iter().enumerate() {
            let reason = check.reason.as_str();
            match check.reason {
                FindingReason::Gate(_) => assert_eq!(check.effect, Effect::Blocks, "{reason}"),
                FindingReason::Warning(_) => {
                    let is_refused = check.admission == LeftToClusterApi;
                    assert_eq!(check.effect == Effect::Blocks, is_refused, "{reason}");
                    assert!(
                        is_refused || [Warns, NotChecked].contains(&check.admission),
                        "{reason}"
                    );
                }
            }
            let is_new = |first: &Check| first.reason != check.reason;
            assert!(CHECKS[..at].iter().all(is_new), "{reason} has two rows");
        }
    }

    #[test]
    fn the_table_is_put_below_its_heading() {
        let written = with_checks("# Plan\n\n## Checks\n\nAll of them.\n\n| stale |\n").unwrap();
        let (before, table) = written.split_once("| reason |").unwrap();
        assert_eq!(before, "# Plan\n\n## Checks\n\nAll of them.\n\n");
        assert_eq!(table.lines().count(), CHECKS.len() + 2);
        assert!(table.ends_with("|\n") && !table.contains("stale"), "{table}");
        assert_eq!(with_checks(&written).as_deref(), Ok(written.as_str()));
        assert!(with_checks("# Plan\n").unwrap_err().contains(PAGE));
    }
}
