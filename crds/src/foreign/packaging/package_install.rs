//! PackageInstall: the wish that a package be installed, and how far that is.

use serde::{Deserialize, Serialize};

use crate::foreign::condition::Condition;
use crate::foreign::kind::foreign_kind;
use crate::foreign::lenient::{beginning, each, or_default, stop};
use crate::schema::is_false;

foreign_kind! {
    /// A PackageInstall.
    PackageInstall in "packaging.carvel.dev" / "v1alpha1", "PackageInstall", "packageinstalls",
    spec: PackageInstallSpec, status: PackageInstallStatus
}

/// What to install, where and with which values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageInstallSpec {
    /// ServiceAccount that the package's objects are written as, when they go to this cluster.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The cluster that the package's objects go to; absent means this one.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub cluster: Option<TargetCluster>,
    /// The package and the versions of it that will do.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub package_ref: Option<PackageRef>,
    /// Values, in the order in which they are laid over each other.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Values>,
    /// Stops future reconciliations.
    #[serde(deserialize_with = "stop", skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Stops current and future reconciliations.
    #[serde(deserialize_with = "stop", skip_serializing_if = "is_false")]
    pub canceled: bool,
    /// Resync interval of kapp-controller, as a Go duration.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub sync_period: Option<String>,
    /// Whether deletion leaves the package's objects in place.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_false")]
    pub noop_delete: bool,
    /// Namespace for objects that name none.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub default_namespace: Option<String>,
}

/// A cluster to install into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetCluster {
    /// Namespace in that cluster.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How to reach that cluster.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<KubeconfigSecretRef>,
}

/// Names a Secret with a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KubeconfigSecretRef {
    /// Name of the Secret.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Key within the Secret; absent means `value`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A package and the versions of it that will do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageRef {
    /// `spec.refName` of the Packages.
    #[serde(deserialize_with = "or_default")]
    pub ref_name: String,
    /// Which of them.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub version_selection: Option<VersionSelection>,
}

/// Which versions will do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VersionSelection {
    /// A constraint on semantic versions; an exact version allows only itself.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub constraints: Option<String>,
    /// Present, even when empty, to let pre-releases in.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub prereleases: Option<Prereleases>,
}

/// Which pre-releases will do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Prereleases {
    /// Identifiers of pre-releases; empty means all.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub identifiers: Vec<String>,
}

/// One source of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Values {
    /// The Secret.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// Names a Secret with values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretRef {
    /// Name of the Secret.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Key within the Secret; absent means all of them.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// How far the installation is. It is no proof by itself: right after a change it repeats the App's old success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageInstallStatus {
    /// The generation that the rest speaks about.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The version that was chosen, installed or not.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The version that was last tried.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub last_attempted_version: Option<String>,
    /// `Reconciling`, `ReconcileSucceeded`, `ReconcileFailed`, `Deleting`, `DeleteFailed`.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// One line about the state.
    #[serde(deserialize_with = "beginning", skip_serializing_if = "Option::is_none")]
    pub friendly_description: Option<String>,
    /// What went wrong.
    #[serde(deserialize_with = "beginning", skip_serializing_if = "Option::is_none")]
    pub useful_error_message: Option<String>,
}
