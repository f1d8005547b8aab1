//! Step 5: what came of it, in one write, and only when something differs.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource as _, ResourceExt, api::Patch, runtime::reflector::ObjectRef};
use serde_json::{Value, json};
use sluice_crds::{ConfigStatus, run::Condition};

use super::{
    Error, OfKind,
    apply::{Applied, params},
    dereference::Found,
};

/// The one condition that this controller writes.
pub(super) const READY: &str = "Ready";
/// Its reason when nothing is wrong.
pub(super) const WRITTEN: &str = "ValuesWritten";

/// Writes the status, and an event when a problem is a new one.
pub(super) async fn run(ctx: &OfKind, found: &Found, applied: &Applied) -> Result<(), Error> {
    let current = found.config.data.get("status").cloned().unwrap_or_default();
    let read: ConfigStatus = serde_json::from_value(current.clone()).unwrap_or_default();
    let status = ConfigStatus {
        // Values that were written once stay in use until there are new ones.
        secret_ref: applied.as_ref().ok().cloned().or_else(|| read.secret_ref.clone()),
        observed_generation: found.config.metadata.generation,
        conditions: conditions(&read.conditions, applied),
    };
    let problem = applied.as_ref().err();
    let uid = found.config.uid().unwrap_or_default();
    match problem {
        Some(problem) => {
            let object = found.config.object_ref(&ctx.kind.resource);
            let reason = problem.reason.as_str();
            ctx.shared.events.problem(&object, reason, &problem.message).await;
        }
        None => ctx.shared.events.forget(&uid),
    }
    let mut next = json!(status);
    if ctx.kind.status_message {
        next["message"] = json!(problem.map(|problem| &problem.message));
    }
    let message = |status: &Value| status.get("message").filter(|text| !text.is_null()).cloned();
    if status == read && message(&next) == message(&current) {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"resourceVersion": found.config.resource_version()},
        "status": next,
    });
    let (api, name) = (ctx.api(&found.namespace), found.config.name_any());
    api.patch_status(&name, &params(), &Patch::Merge(patch)).await?;
    // An upgrade may wait for nothing else.
    if let Ok(cluster) = &found.cluster {
        ctx.shared.triggers.wake(ObjectRef::from_obj(cluster.as_ref()));
    }
    Ok(())
}

/// Conditions of others stay; `Ready` keeps its time while its status is the same.
fn conditions(current: &[Condition], applied: &Applied) -> Vec<Condition> {
    let ready = current.iter().find(|condition| condition.type_ == READY);
    let (status, severity, reason, message) = match applied {
        Ok(secret) => ("True", "", WRITTEN, format!("Secret {secret} holds the values")),
        Err(problem) => ("False", "Error", problem.reason.as_str(), problem.message.clone()),
    };
    let since = ready.filter(|ready| ready.status == status).map_or_else(
        || Time(Timestamp::now()),
        |ready| ready.last_transition_time.clone(),
    );
    let next = Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        last_transition_time: since,
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
