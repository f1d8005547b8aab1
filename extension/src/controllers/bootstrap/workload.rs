//! The way into a workload cluster: its kubeconfig, and a connection made of it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, runtime::reflector::ObjectRef};
use sluice_core::{
    build::Owner,
    hold::{Hold, HoldReason},
    kubeconfig,
};
use sluice_crds::labels::name;

use super::Context;
use crate::remote::Remote;

/// The connection to the workload of `owner`, or what an operator has to put right first.
///
/// # Errors
/// The management API server does not answer.
pub(super) async fn connect(ctx: &Context, owner: &Owner) -> kube::Result<Result<Arc<Remote>, Hold>> {
    let secret = format!("{}{}", owner.name, name::KUBECONFIG_SUFFIX);
    let namespace = &owner.namespace;
    let found = Api::<Secret>::namespaced(ctx.client.clone(), namespace)
        .get_opt(&secret)
        .await?;
    let Some(bytes) = found.and_then(|found| found.data?.remove(name::KUBECONFIG_KEY)) else {
        ctx.remotes.close(&owner.uid);
        return Ok(Err(Hold::new(
            HoldReason::KubeconfigNotFound,
            format!(
                "waiting for Secret {namespace}/{secret} with key {}",
                name::KUBECONFIG_KEY
            ),
        )));
    };
    // The reason names the field; what the field holds is never repeated.
    let refused = |why: &dyn std::fmt::Display| {
        Hold::new(
            HoldReason::KubeconfigRefused,
            format!("kubeconfig in Secret {namespace}/{secret}: {why}"),
        )
    };
    let opened = match kubeconfig::parse(&bytes.0) {
        Err(error) => Err(refused(&error)),
        Ok(parsed) => {
            let cluster = ObjectRef::new(&owner.name).within(namespace);
            let digest = kubeconfig::digest(&bytes.0);
            ctx.remotes
                .open(&owner.uid, &cluster, &parsed, &digest)
                .map_err(|error| refused(&error))
        }
    };
    if opened.is_err() {
        ctx.remotes.close(&owner.uid);
    }
    Ok(opened)
}
