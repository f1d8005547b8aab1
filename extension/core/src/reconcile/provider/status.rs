//! What came of a configuration, in one write, and only when something differs.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use sluice_crds::{ConfigStatus, run::Condition};

use super::{Context, Step};
use crate::{
    clock::Clock,
    protocol::{Verb, Write},
    providers::{Problem, Reason},
};

/// The one condition that a pass writes.
const READY: &str = "Ready";
/// Its reason when nothing is wrong.
const WRITTEN: &str = "ValuesWritten";

/// The reason of the condition of a configuration; of templates, and of what no pass has looked at yet, there is none. Only known
/// spellings become labels of metrics, so that their number stays bounded.
pub(in crate::reconcile) fn reason(config: &Value) -> Option<&'static str> {
    let conditions = config.pointer("/status/conditions")?.as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == READY)?;
    let spelled = ready["reason"].as_str().unwrap_or_default();
    Some(if spelled == WRITTEN {
        WRITTEN
    } else {
        Reason::parse(spelled).map_or("Other", Reason::as_str)
    })
}

/// Whether its values are those of the configuration as it is, by its status.
pub(super) fn is_current(known: &Context<'_>) -> bool {
    let object = &known.facts.object;
    let status = read(&object.data);
    let is_ready = |condition: &Condition| condition.type_ == READY && condition.status == "True";
    status.observed_generation == object.metadata.generation && status.conditions.iter().any(is_ready)
}

/// How long the configuration has not been ready, by its status.
pub(super) fn not_ready_for(known: &Context<'_>) -> Duration {
    let status = read(&known.facts.object.data);
    let is_it = |condition: &&Condition| condition.type_ == READY && condition.status == "False";
    let lasted = status.conditions.iter().find(is_it).map(|ready| {
        let since = ready.last_transition_time.0;
        Duration::try_from(known.began.now.duration_since(since)).unwrap_or_default()
    });
    lasted.unwrap_or_default()
}

/// The status of a configuration; none where it cannot be read.
fn read(config: &Value) -> ConfigStatus {
    let status = config.get("status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}

/// Writes the status, if it is another one.
pub(super) fn write(known: &Context<'_>, secret: Option<String>, problem: Option<&Problem>) -> Step<()> {
    let config = known.facts;
    let (key, metadata) = (config.key(), &config.object.metadata);
    let current = config.object.data.get("status").cloned().unwrap_or_default();
    let read = read(&config.object.data);
    let status = ConfigStatus {
        conditions: conditions(&read.conditions, secret.as_deref(), problem, known.began),
        // Values that were written once stay in use until there are new ones.
        secret_ref: secret.or_else(|| read.secret_ref.clone()),
        observed_generation: metadata.generation,
    };
    let mut next = json!(status);
    if config.kind.status_message {
        next["message"] = json!(problem.map(|problem| &problem.message));
    }
    let message = |status: &Value| status.get("message").filter(|text| !text.is_null()).cloned();
    if status == read && message(&next) == message(&current) {
        return Ok(());
    }
    // It has been adopted, maybe.
    let version = known
        .made(&key, Verb::Patch)
        .map(|adopted| &adopted["metadata"]["resourceVersion"]);
    let version = version
        .cloned()
        .unwrap_or_else(|| json!(metadata.resource_version));
    let patch = json!({"metadata": {"uid": metadata.uid, "resourceVersion": version}, "status": next});
    known
        .write(Write::patch_status(key, patch, "what came of a configuration"))
        .map(drop)
}

/// Conditions of others stay; `Ready` keeps its time while its status is the same.
fn conditions(
    current: &[Condition],
    secret: Option<&str>,
    problem: Option<&Problem>,
    began: Clock,
) -> Vec<Condition> {
    let ready = current.iter().find(|condition| condition.type_ == READY);
    let (status, severity, reason, message) = match problem {
        None => {
            let secret = secret.unwrap_or_default();
            ("True", "", WRITTEN, format!("Secret {secret} holds the values"))
        }
        Some(problem) => ("False", "Error", problem.reason.as_str(), problem.message.clone()),
    };
    let since = ready.filter(|ready| ready.status == status);
    let next = Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        last_transition_time: since.map_or(Time(began.now), |ready| ready.last_transition_time.clone()),
        severity: severity.to_owned(),
        reason: reason.to_owned(),
        message,
    };
    let others = current
        .iter()
        .filter(|condition| condition.type_ != READY)
        .cloned();
    others.chain([next]).collect()
}
