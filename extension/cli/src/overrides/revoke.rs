//! `sluice override revoke`.

use std::{process::ExitCode, sync::Arc};

use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use sluice_crds::lifecycle::UpgradeOverride;

use super::not_answered;
use crate::{
    arguments::RevokeOverrideArgs,
    connection::Trouble,
    management,
    reader::{Reader, in_time},
    terminal::{clean, print},
};

pub(super) async fn revoke(asked: &RevokeOverrideArgs) -> Result<ExitCode, Trouble> {
    let (client, of_context) = management::client(&asked.management).await?;
    let namespace = asked.namespace.as_deref().unwrap_or(&of_context);
    let text = revoked(client, namespace, &asked.name).await?;
    print(&clean(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes an override, and returns what that means for its gate.
///
/// # Errors
/// It does not exist, or the deletion is refused.
pub(super) async fn revoked(client: Client, namespace: &str, name: &str) -> Result<String, Trouble> {
    let reader = Reader::new(client.clone());
    let found: Option<Arc<UpgradeOverride>> = reader.get(Some(namespace), name).await?;
    let found = found
        .ok_or_else(|| Trouble::NotAnswered(format!("UpgradeOverride {namespace}/{name} does not exist")))?;
    // Another override of the name was not asked for.
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: found.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let api: Api<UpgradeOverride> = Api::namespaced(client, namespace);
    let deleted = in_time(api.delete(name, &params)).await;
    deleted.map_err(|failure| not_answered("delete", (namespace, name), &failure.text))?;
    let text = format!("UpgradeOverride {namespace}/{name} revoked");
    let status = found.status.as_ref();
    let is_used = status.is_some_and(|status| {
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| condition.type_ == "Used" && condition.status == "True")
    });
    Ok(if is_used {
        let spec = &found.spec;
        format!(
            "{text}: gate {} of {} at {} closes again, unless Cluster API has made the step",
            spec.gate.as_str(),
            spec.cluster_name,
            spec.target.kubernetes_version
        )
    } else {
        text
    })
}
