//! kapp-controller's App of one PackageInstall.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::foreign::condition::Condition;
use crate::foreign::kind::foreign_kind;
use crate::foreign::lenient::{beginning, each, end, or_default, stop};
use crate::foreign::packaging::package_install::Values;
use crate::schema::is_false;

foreign_kind! {
    /// An App. Its annotation [`PACKAGE_VERSION`](crate::labels::annotation::PACKAGE_VERSION) holds the version that it deploys.
    App in "kappctrl.k14s.io" / "v1alpha1", "App", "apps",
    spec: AppSpec, status: AppStatus
}

/// The part of an App's spec that Sluice reads. kapp-controller owns the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppSpec {
    /// Stops future reconciliations.
    #[serde(deserialize_with = "stop", skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Stops current and future reconciliations.
    #[serde(deserialize_with = "stop", skip_serializing_if = "is_false")]
    pub canceled: bool,
    /// Whether deletion leaves the objects in place.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_false")]
    pub noop_delete: bool,
    /// Resync interval of kapp-controller, as a Go duration.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub sync_period: Option<String>,
    /// Template steps, as far as they name Secrets with values.
    #[serde(default, deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub template: Vec<TemplateStep>,
}

/// One template step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateStep {
    /// By ytt.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub ytt: Option<TemplateTool>,
    /// By Helm.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub helm_template: Option<TemplateTool>,
}

/// Values sources of a template tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateTool {
    /// Sources of values; kapp-controller adds those of the PackageInstall to the first tool.
    #[serde(default, deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub values_from: Vec<Values>,
    /// Files; the values of a PackageInstall are here when they are overlays.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub inline: Option<InlineFiles>,
}

/// Files that are given by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InlineFiles {
    /// Secrets with files.
    #[serde(default, deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub paths_from: Vec<Values>,
}

impl AppSpec {
    /// The tools that can read values.
    pub fn template_tools(&self) -> impl Iterator<Item = &TemplateTool> {
        self.template
            .iter()
            .flat_map(|step| step.ytt.iter().chain(&step.helm_template))
    }
}

impl TemplateTool {
    /// Names of the Secrets that the tool reads.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let files = self.inline.iter().flat_map(|inline| &inline.paths_from);
        self.values_from
            .iter()
            .chain(files)
            .filter_map(|source| Some(source.secret_ref.as_ref()?.name.as_str()))
    }
}

/// Status of an App. The step blocks may be those of the previous run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppStatus {
    /// The generation that the status is about.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Reconciling`, `ReconcileSucceeded`, `ReconcileFailed`, `Deleting`, `DeleteFailed`.
    #[serde(deserialize_with = "each", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// One line about the state.
    #[serde(deserialize_with = "beginning", skip_serializing_if = "Option::is_none")]
    pub friendly_description: Option<String>,
    /// The error.
    #[serde(deserialize_with = "beginning", skip_serializing_if = "Option::is_none")]
    pub useful_error_message: Option<String>,
    /// How many times in a row it succeeded.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub consecutive_reconcile_successes: Option<i64>,
    /// How many times in a row it failed.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub consecutive_reconcile_failures: Option<i64>,
    /// The fetch step.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub fetch: Option<StepStatus>,
    /// The template step.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub template: Option<StepStatus>,
    /// The deploy step.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub deploy: Option<DeployStatus>,
}

/// Result of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StepStatus {
    /// Exit code of the tool; absent when it cannot be read, which is not success.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The error.
    #[serde(deserialize_with = "beginning", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Standard error of the tool.
    #[serde(deserialize_with = "beginning", skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// When the step began; fetch only.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the block was last written.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Time>,
}

/// How the deploy step goes; written while it runs, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeployStatus {
    /// Whether the tool has ended.
    #[serde(deserialize_with = "or_default")]
    pub finished: bool,
    /// Exit code of the tool; absent when it cannot be read, which is not success.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The error.
    #[serde(deserialize_with = "beginning", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Output of kapp so far: changes, then waits.
    #[serde(deserialize_with = "end", skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// What kapp complained about.
    #[serde(deserialize_with = "beginning", skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// When the step began.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the block was last written.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Time>,
}
