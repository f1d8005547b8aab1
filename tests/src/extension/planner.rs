//! An extension of another owner: plans upgrades so that workers take every minor version that the control plane takes.

use anyhow::Result;
use axum::body::Bytes;
use axum::routing::post;
use axum::serve::Listener;
use axum::{Json, Router};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::extension::registration::{self, Scope};
use crate::processes::tls::Tls;
use crate::scenario::{Scene, VERSIONS};

const GROUP: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";
const HANDLER: &str = "every-minor";

/// The extension, served by this process and registered for one namespace.
pub struct Planner {
    client: Client,
    name: String,
    stop: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

impl Planner {
    /// Returns the `generateUpgradePlanExtension` for a ClusterClass in `namespace`.
    #[must_use]
    pub fn handler(namespace: &str) -> String {
        format!("{HANDLER}.{}", name(namespace))
    }

    /// Serves and registers it for the namespace of a scenario.
    pub async fn start(scene: &Scene) -> Result<Self> {
        let stack = scene.world().stack();
        let pki = stack.management().pki();
        let listener = Tls::bind(&pki.server_certificate()?, &[]).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let server = axum::serve(listener, router()).with_graceful_shutdown(stop.clone().cancelled_owned());
        let planner = Self {
            client: scene.client(),
            name: name(scene.namespace()),
            stop,
            server: tokio::spawn(server.into_future()),
        };
        let scope = Scope::Namespaces(vec![scene.namespace().to_owned()]);
        registration::register(&planner.client, &planner.name, &url, &pki.ca_bundle(), &scope).await?;
        Ok(planner)
    }

    /// Takes the registration back and stops serving.
    pub async fn stop(self) -> Result<()> {
        registration::unregister(&self.client, &self.name).await?;
        self.stop.cancel();
        self.server.await??;
        Ok(())
    }
}

fn name(namespace: &str) -> String {
    format!("planner-{namespace}")
}

fn router() -> Router {
    Router::new()
        .route(
            &format!("/{GROUP}/discovery"),
            post(|| async { Json(discovery()) }),
        )
        .route(
            &format!("/{GROUP}/generateupgradeplan/{HANDLER}"),
            // Cluster API sets no Content-Type for its JSON.
            post(|body: Bytes| async move { Json(plan(&serde_json::from_slice(&body).unwrap_or_default())) }),
        )
}

fn discovery() -> Value {
    json!({
        "apiVersion": GROUP,
        "kind": "DiscoveryResponse",
        "status": "Success",
        "handlers": [{
            "name": HANDLER,
            "requestHook": {"apiVersion": GROUP, "hook": "GenerateUpgradePlan"},
            "timeoutSeconds": 3,
            "failurePolicy": "Fail",
        }],
    })
}

fn plan(request: &Value) -> Value {
    let steps = |from: &Value| -> Vec<Value> {
        let from = from.as_str().unwrap_or_default();
        let to = request["toKubernetesVersion"].as_str().unwrap_or_default();
        // The versions of scenarios are of one length, so their order is that of their text.
        let earlier = VERSIONS.into_iter().filter(|version| *version < to);
        let on_the_way = earlier.chain([to]).filter(|version| *version > from);
        on_the_way.map(|version| json!({"version": version})).collect()
    };
    let workers = request["fromWorkersKubernetesVersion"].is_string();
    json!({
        "apiVersion": GROUP,
        "kind": "GenerateUpgradePlanResponse",
        "status": "Success",
        "controlPlaneUpgrades": steps(&request["fromControlPlaneKubernetesVersion"]),
        "workersUpgrades": if workers { steps(&request["fromWorkersKubernetesVersion"]) } else { Vec::new() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_take_every_version_too() {
        let plan = plan(&json!({
            "fromControlPlaneKubernetesVersion": "v1.35.4",
            "fromWorkersKubernetesVersion": "v1.34.4",
            "toKubernetesVersion": "v1.36.3",
        }));
        assert_eq!(plan["controlPlaneUpgrades"], json!([{"version": "v1.36.3"}]));
        assert_eq!(
            plan["workersUpgrades"],
            json!([{"version": "v1.35.4"}, {"version": "v1.36.3"}])
        );
    }

    #[test]
    fn the_target_is_the_last_step() {
        let plan = plan(&json!({
            "fromControlPlaneKubernetesVersion": "v1.36.3",
            "fromWorkersKubernetesVersion": "v1.36.4",
            "toKubernetesVersion": "v1.36.4",
        }));
        assert_eq!(plan["controlPlaneUpgrades"], json!([{"version": "v1.36.4"}]));
        assert_eq!(plan["workersUpgrades"], json!([]));
    }
}
