//! `run.tanzu.vmware.com/v1alpha3`: releases, bootstrap templates, bootstraps and the kapp-controller configuration.

pub mod cluster_bootstrap;
pub mod cluster_bootstrap_template;
pub mod condition;
pub mod kapp_controller_config;
pub mod os_image;
pub mod shown;
pub mod tkr;
pub mod upgrade;

pub use cluster_bootstrap::{
    ClusterBootstrap, ClusterBootstrapPackage, ClusterBootstrapSpec, ClusterBootstrapStatus, OnCancel,
    PackagePolicy, Phase, Readiness, TypedLocalObjectReference, UpgradePolicy, ValuesFrom,
};
pub use cluster_bootstrap_template::{ClusterBootstrapTemplate, ClusterBootstrapTemplateSpec};
pub use condition::Condition;
pub use kapp_controller_config::{
    KappConfig, KappController, KappControllerConfig, KappControllerConfigSpec, KappDeployment,
};
pub use os_image::{MachineImage, OSImage, OSImageSpec, OSImageStatus, OperatingSystem};
pub use shown::{
    ClusterPhase, HeldCause, HeldGate, KEPT_UPGRADES, MAX_USED_OVERRIDES, PastUpgrade, UsedOverride,
};
pub use tkr::{
    ContainerImage, KubernetesSpec, LocalObjectReference, ProvenPackage, Requirements,
    TanzuKubernetesRelease, TanzuKubernetesReleaseSpec, TanzuKubernetesReleaseStatus,
};
pub use upgrade::{
    FirstSeenRun, Gate, GateOverride, Hook, KappControllerMode, Outcome, PackageRecord, PackageState,
    Rollback, SCHEMA, SupervisorAnswer, Swap, UpgradeRecord,
};
