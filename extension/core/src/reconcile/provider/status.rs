//! Status of a configuration, in one write and only after a change.

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

/// Only condition that a reconcile writes.
const READY: &str = "Ready";
/// Reason of the condition without a problem.
const WRITTEN: &str = "ValuesWritten";

/// Returns the reason of the condition of a configuration; `None` for templates and before the first reconcile. Only known reasons become
/// metric labels, so their number is bounded.
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

/// Returns whether the status reports values of the current configuration.
pub(super) fn is_current(context: &Context<'_>) -> bool {
    let object = &context.facts.object;
    let status = read(&object.data);
    let is_ready = |condition: &Condition| condition.type_ == READY && condition.status == "True";
    status.observed_generation == object.metadata.generation && status.conditions.iter().any(is_ready)
}

/// Returns the duration for which the status has reported the configuration as not ready.
pub(super) fn not_ready_for(context: &Context<'_>) -> Duration {
    let status = read(&context.facts.object.data);
    let is_it = |condition: &&Condition| condition.type_ == READY && condition.status == "False";
    let lasted = status.conditions.iter().find(is_it).map(|ready| {
        let since = ready.last_transition_time.0;
        Duration::try_from(context.began.now.duration_since(since)).unwrap_or_default()
    });
    lasted.unwrap_or_default()
}

/// Returns the status of a configuration; empty if it cannot be decoded.
fn read(config: &Value) -> ConfigStatus {
    let status = config.get("status").cloned().unwrap_or_default();
    serde_json::from_value(status).unwrap_or_default()
}

/// Writes the status, if it differs.
pub(super) fn write(context: &Context<'_>, secret: Option<String>, problem: Option<&Problem>) -> Step<()> {
    let config = context.facts;
    let (key, metadata) = (config.key(), &config.object.metadata);
    let current = config.object.data.get("status").cloned().unwrap_or_default();
    let read = read(&config.object.data);
    let status = ConfigStatus {
        conditions: conditions(&read.conditions, secret.as_deref(), problem, context.began),
        // Written values stay in use until new ones exist.
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
    // The adoption may have changed the resourceVersion.
    let version = context
        .made(&key, Verb::Patch)
        .map(|adopted| &adopted["metadata"]["resourceVersion"]);
    let version = version
        .cloned()
        .unwrap_or_else(|| json!(metadata.resource_version));
    let patch = json!({"metadata": {"uid": metadata.uid, "resourceVersion": version}, "status": next});
    context
        .write(Write::patch_status(key, patch, "status of the configuration"))
        .map(drop)
}

/// Returns the conditions. Other conditions stay, and `Ready` keeps its transition time while its status is the same.
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
