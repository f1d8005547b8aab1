//! `lifecycle.sluice.dev/v1alpha1`: gates of any add-on, the record of each Cluster for its gates, and overrides of gates.

pub mod cluster_upgrade;
pub mod upgrade_gate;
pub mod upgrade_override;

mod schema;

pub use cluster_upgrade::{
    CheckRecord, CheckState, ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus, GATE_SCHEMA,
    GateRecord, SelectedGate,
};
pub use upgrade_gate::{
    Before, Check, CheckedCluster, CheckedObject, GateMode, MAX_CHECKS, MAX_KEYS, MAX_ROWS, UpgradeGate,
    UpgradeGateSpec, UpgradeGateStatus, VersionRow,
};
pub use upgrade_override::{
    EVERY_PACKAGE, MAX_DAYS, MAX_PACKAGES, OverriddenGate, OverrideTarget, UpgradeOverride,
    UpgradeOverrideSpec, UpgradeOverrideStatus,
};
