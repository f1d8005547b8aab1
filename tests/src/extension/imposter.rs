//! An extension in the place of Sluice: it answers discovery with any handlers, and serves no hook.

use anyhow::Result;
use axum::serve::Listener;
use axum::{Json, Router, routing::post};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::extension::registration::{self, Scope};
use crate::processes::tls::Tls;
use crate::scenario::Scene;

const GROUP: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";

/// The extension, served by this process.
pub struct Imposter {
    stop: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

impl Imposter {
    /// Serves discovery with a handler for each of these hooks and failure policies, and registers it under `name` for all namespaces.
    pub async fn start(scene: &Scene, name: &str, hooks: &[(&str, &str)]) -> Result<Self> {
        let pki = scene.world().stack().management().pki();
        let listener = Tls::bind(&pki.server_certificate()?, &[]).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let answer = discovery(hooks);
        let router = Router::new().route(
            &format!("/{GROUP}/discovery"),
            post(move || async move { Json(answer) }),
        );
        let stop = CancellationToken::new();
        let server = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        let imposter = Self {
            stop,
            server: tokio::spawn(server.into_future()),
        };
        registration::register(&scene.client(), name, &url, &pki.ca_bundle(), &Scope::Everywhere).await?;
        Ok(imposter)
    }

    /// Stops serving. Another extension has its registration by then.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.server.await??;
        Ok(())
    }
}

fn discovery(hooks: &[(&str, &str)]) -> Value {
    let handlers: Vec<Value> = hooks
        .iter()
        .map(|(hook, policy)| {
            json!({
                "name": hook.to_lowercase(),
                "requestHook": {"apiVersion": GROUP, "hook": hook},
                "timeoutSeconds": 3,
                "failurePolicy": policy,
            })
        })
        .collect();
    json!({"apiVersion": GROUP, "kind": "DiscoveryResponse", "status": "Success", "handlers": handlers})
}
