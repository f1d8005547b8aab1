//! Defects of a record or a call, each with its hold reason.

use super::*;

/// Defect, called hook, edit that introduces the defect, and expected reason.
pub(super) const WRONG: [(&str, Hook, Edit, HoldReason); 26] = [
    (
        "an object that it depends on cannot be decoded",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.undecodable = Some(Hold::new(GateReason::ObjectUndecodable, "")),
        HoldReason::Gate(GateReason::ObjectUndecodable),
    ),
    (
        "label of a legacy release",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.legacy = true,
        HoldReason::Gate(GateReason::TKRLegacy),
    ),
    (
        "label removed",
        Hook::BeforeControlPlaneUpgrade,
        |s| {
            s.call.label = None;
            s.record().label.clear();
        },
        HoldReason::Gate(GateReason::TKRLabelRemoved),
    ),
    (
        "label emptied",
        Hook::BeforeControlPlaneUpgrade,
        |s| {
            s.call.label = Some("");
            s.record().label.clear();
        },
        HoldReason::Gate(GateReason::TKRLabelRemoved),
    ),
    (
        "a kind was never listed",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.unlisted = Some(StoredKind::PackageInstall),
        HoldReason::Gate(GateReason::APIUnavailable),
    ),
    (
        "no record",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record = None,
        HoldReason::Call(CallReason::RecordNotFound),
    ),
    (
        "later schema",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record().schema = SCHEMA + 1,
        HoldReason::Call(CallReason::RecordSchemaUnknown),
    ),
    (
        "no schema",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record().schema = 0,
        HoldReason::Call(CallReason::RecordSchemaUnknown),
    ),
    (
        "same name, other cluster",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.record().cluster_uid = "before".into(),
        HoldReason::Call(CallReason::RecordUIDMismatch),
    ),
    (
        "cluster edited",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.call.generation = 8,
        HoldReason::Call(CallReason::ClusterNotObserved),
    ),
    (
        "call from before an edit",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.call.generation = 6,
        HoldReason::Call(CallReason::CallOutdated),
    ),
    (
        "bootstrap edited",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.bootstrap_generation = Some(13),
        HoldReason::Call(CallReason::BootstrapNotObserved),
    ),
    (
        "bootstrap made again",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.bootstrap_generation = Some(1),
        HoldReason::Call(CallReason::BootstrapNotObserved),
    ),
    (
        "bootstrap deleted",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.bootstrap_generation = None,
        HoldReason::Call(CallReason::BootstrapNotObserved),
    ),
    (
        "label edited",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.call.label = Some("v1.36.3---sluice.2"),
        HoldReason::Call(CallReason::LabelNotObserved),
    ),
    (
        "target edited",
        Hook::BeforeClusterUpgrade,
        |s| s.call.version = "v1.36.4",
        HoldReason::Call(CallReason::RecordTargetMismatch),
    ),
    (
        "target edited before creation",
        Hook::BeforeClusterCreate,
        |s| s.record().to = "v1.34.4".into(),
        HoldReason::Call(CallReason::RecordTargetMismatch),
    ),
    (
        "first step unknown",
        Hook::BeforeClusterUpgrade,
        |s| s.call.first_step = Some("v1.36.3"),
        HoldReason::Call(CallReason::VersionNotPlanned),
    ),
    (
        "version unknown",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.call.version = "v1.36.3",
        HoldReason::Call(CallReason::VersionNotPlanned),
    ),
    (
        "another build of the version",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.call.version = "v1.35.4+b",
        HoldReason::Call(CallReason::VersionNotPlanned),
    ),
    (
        "gate of another hook",
        Hook::AfterWorkersUpgrade,
        |s| s.record().gates.retain(|g| g.hook != Hook::AfterWorkersUpgrade),
        HoldReason::Call(CallReason::VersionNotPlanned),
    ),
    (
        "gate closed",
        Hook::BeforeControlPlaneUpgrade,
        |s| {
            for gate in &mut s.record().gates {
                *gate = self::gate(gate.hook, "v1.35.4", false);
            }
        },
        HoldReason::Gate(GateReason::PackagesNotReady),
    ),
    (
        "override revoked",
        Hook::BeforeControlPlaneUpgrade,
        |s| {
            s.override_gates(Some(EXPIRES - 1));
            s.revoked = true;
        },
        HoldReason::Call(CallReason::OverrideRevoked),
    ),
    (
        "override expired",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.override_gates(Some(EXPIRES)),
        HoldReason::Call(CallReason::OverrideExpired),
    ),
    (
        "override at an unknown time",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.override_gates(None),
        HoldReason::Call(CallReason::OverrideExpired),
    ),
    (
        "no replica leads",
        Hook::BeforeControlPlaneUpgrade,
        |s| s.leaderless = true,
        HoldReason::Call(CallReason::NoLeader),
    ),
];
