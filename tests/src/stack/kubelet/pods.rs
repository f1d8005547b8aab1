//! Pods that are bound to a Node: they are Running and Ready at once, and their deletion is finished at once. Pods of a DaemonSet, which
//! name their Node, are bound to it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// Pause after an error: an API server that is being replaced is away for a second or two.
const RETRY: Duration = Duration::from_millis(200);

/// Does the work of the kubelets of all Nodes, without containers.
pub(super) async fn run(client: Client) {
    let settings = Config::default().debounce(Duration::ZERO);
    Controller::new(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .with_config(settings)
        .run(
            reconcile,
            |_, _: &kube::Error, _| Action::requeue(RETRY),
            Arc::new(client),
        )
        .for_each(|result| async {
            if let Err(error) = result {
                tracing::debug!("kubelet: {error:#}");
            }
        })
        .await;
}

async fn reconcile(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let namespace = pod.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(Client::clone(&client), &namespace);
    let name = pod.name_any();
    let written = if pod.metadata.deletion_timestamp.is_some() {
        pods.delete(&name, &at_once(&pod)).await.map(drop)
    } else if is_to_run(&pod) {
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "True"}],
        }});
        let (params, patch) = (PatchParams::default(), Patch::Strategic(status));
        pods.patch_status(&name, &params, &patch).await.map(drop)
    } else if let Some(node) = node_of_daemon(&pod) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        pods.create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &binding)
            .await
            .map(drop)
    } else {
        Ok(())
    };
    match written {
        // Deleted in the meantime.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => other?,
    }
    Ok(Action::await_change())
}

/// Whether a Pod is bound to a Node, and does not run yet.
fn is_to_run(pod: &Pod) -> bool {
    let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    is_bound && phase.is_none_or(|phase| phase == "Pending")
}

/// The Node that a Pod without one is meant for: the DaemonSet controller names it in the affinity of its Pods.
fn node_of_daemon(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref().filter(|spec| spec.node_name.is_none())?;
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let fields = required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name");
    names.next()?.values.as_ref()?.first().map(String::as_str)
}

/// The end of the deletion of this very Pod, as a kubelet requests it after the last container.
fn at_once(pod: &Pod) -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            ..Preconditions::default()
        }),
        ..DeleteParams::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: Option<&str>, field: &str) -> Pod {
        let terms = json!([{"matchFields": [{"key": field, "operator": "In", "values": ["worker"]}]}]);
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        serde_json::from_value(json!({
            "spec": {"containers": [], "nodeName": node, "affinity": {"nodeAffinity": required}},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_of_a_daemon_set_names_its_node_until_it_is_bound() {
        assert_eq!(node_of_daemon(&pod(None, "metadata.name")), Some("worker"));
        assert_eq!(node_of_daemon(&pod(Some("worker"), "metadata.name")), None);
        assert_eq!(node_of_daemon(&pod(None, "metadata.namespace")), None);
        assert_eq!(node_of_daemon(&Pod::default()), None);
    }
}
