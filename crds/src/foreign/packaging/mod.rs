//! Carvel's packaging kinds: what can be installed, what shall be, and the App that does it.

pub mod app;
pub mod package;
pub mod package_install;

pub use app::{App, AppSpec, AppStatus, DeployStatus, InlineFiles, StepStatus, TemplateStep, TemplateTool};
pub use package::{Package, PackageSpec};
pub use package_install::{
    KubeconfigSecretRef, PackageInstall, PackageInstallSpec, PackageInstallStatus, PackageRef, Prereleases,
    SecretRef, TargetCluster, Values, VersionSelection,
};
