//! Sluice dies at its writes: of each one it dies once before the API server stores it, and once after.
//!
//! The API servers themselves say when a write arrives, through an admission webhook. All processes of Sluice are killed while the
//! write waits for its answer, which then is a refusal; or they are stopped, and killed once the API server has the write.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::extract::State;
use axum::routing::post;
use axum::serve::Listener as _;
use axum::{Json, Router};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::processes::notice;
use crate::processes::tls::Tls;
use crate::scenario::World;
use crate::stack::apiserver::ApiServer;
use crate::wait;

/// How long an API server may take to store a write that it has been allowed to.
const STORED: Duration = Duration::from_secs(5);

/// The name of the webhook on each API server.
const NAME: &str = "deaths.sluice.example";

/// Kills Sluice at its writes until it is dropped.
pub struct Deaths {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

struct Shared {
    world: Arc<World>,
    /// Prefix of the names of objects at whose writes Sluice dies.
    names: String,
    /// Held while Sluice is dead.
    dead: Arc<tokio::sync::Mutex<()>>,
    /// How often it has died.
    deaths: AtomicU64,
    /// How often it has died at each write.
    writes: Mutex<BTreeMap<String, u32>>,
    failed: Mutex<Option<anyhow::Error>>,
}

impl Deaths {
    /// Of writes of objects whose names begin with `names`; on no API server yet.
    #[must_use]
    pub fn new(world: &Arc<World>, names: &str) -> Self {
        let shared = Shared {
            world: Arc::clone(world),
            names: names.to_owned(),
            dead: Arc::default(),
            deaths: AtomicU64::default(),
            writes: Mutex::default(),
            failed: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            tasks: Vec::new(),
        }
    }

    /// From now on it dies at writes to this API server, too. `condition` is a CEL expression that holds for requests of Sluice.
    pub async fn at(&mut self, server: &ApiServer, condition: &str) -> Result<()> {
        let pki = server.pki();
        let listener = Tls::bind(&pki.server_certificate()?, &[]).await?;
        let webhook = json!({
            "metadata": {"name": NAME},
            "webhooks": [{
                "name": NAME,
                "clientConfig": {"url": format!("https://{}/", listener.local_addr()?), "caBundle": pki.ca_bundle()},
                "rules": [{
                    "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                }],
                "matchConditions": [
                    {"name": "of-sluice", "expression": condition},
                    {"name": "of-objects", "expression": "!(request.resource.resource in ['events', 'leases'])"},
                ],
                "sideEffects": "None", "admissionReviewVersions": ["v1"],
                // Sluice lives on when this is dropped.
                "failurePolicy": "Ignore", "timeoutSeconds": 30,
            }],
        });
        let router = Router::new().route("/", post(review)).with_state((
            Arc::clone(&self.shared),
            Arc::new(server.admin_client()),
            server.name().to_owned(),
        ));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        self.tasks.push(serving.abort_handle());
        Api::<ValidatingWebhookConfiguration>::all(server.admin_client())
            .create(&PostParams::default(), &serde_json::from_value(webhook)?)
            .await?;
        Ok(())
    }

    /// The writes at which it has died before and after, `<server> <operation> <resource>`, each once. Fails if it did not come back
    /// once.
    pub async fn at_which(&self) -> Result<Vec<String>> {
        let _alive = self.shared.dead.lock().await;
        if let Some(error) = locked(&self.shared.failed).take() {
            return Err(error.context("after a death of Sluice"));
        }
        let writes = locked(&self.shared.writes);
        let twice = writes.iter().filter(|(_, deaths)| **deaths >= 2);
        let mut kinds: Vec<String> = twice
            .filter_map(|(write, _)| Some(write.split_once(" of ")?.0.to_owned()))
            .collect();
        kinds.dedup();
        Ok(kinds)
    }

    /// How often it has died.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.deaths.load(Ordering::Acquire)
    }
}

impl Drop for Deaths {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Admission webhook before the store of a write.
async fn review(
    State((shared, client, server)): State<(Arc<Shared>, Arc<Client>, String)>,
    Json(review): Json<Value>,
) -> Json<Value> {
    let request = &review["request"];
    let allowed = match which(&server, request, &shared.names) {
        Some(write) => {
            let stored = Stored::of(&client, request);
            // The API server stops to wait for an answer when its client is killed.
            let dying = tokio::spawn(async move { shared.dies_at(&write, stored).await });
            dying.await.unwrap_or(true)
        }
        None => true,
    };
    Json(json!({
        "apiVersion": review["apiVersion"], "kind": review["kind"],
        "response": {
            "uid": request["uid"], "allowed": allowed,
            "status": {"message": "the process died before this was stored"},
        },
    }))
}

/// What an API server has once it has a write.
struct Stored {
    client: Arc<Client>,
    path: String,
    /// `metadata` of the object before.
    before: Value,
}

impl Stored {
    fn of(client: &Arc<Client>, request: &Value) -> Self {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let (resource, namespace) = (&request["resource"], text(&request["namespace"]));
        let group = match text(&resource["group"]).as_str() {
            "" => "/api".to_owned(),
            group => format!("/apis/{group}"),
        };
        let scope = if namespace.is_empty() {
            String::new()
        } else {
            format!("/namespaces/{namespace}")
        };
        let name = name(request).unwrap_or_default();
        Self {
            client: Arc::clone(client),
            path: format!(
                "{group}/{}{scope}/{}/{name}",
                text(&resource["version"]),
                text(&resource["resource"])
            ),
            before: request["oldObject"]["metadata"].clone(),
        }
    }

    /// Waits until the API server has something else than before; not for ever, because a write may change nothing.
    async fn wait(&self) {
        let what = format!("{} to be written", self.path);
        let changed = wait::until(what, STORED, || async {
            let request = http::Request::get(&self.path).body(Vec::new())?;
            let now = match self.client.request::<Value>(request).await {
                Ok(mut found) => found["metadata"].take(),
                Err(kube::Error::Api(status)) if status.is_not_found() => Value::Null,
                Err(error) => return Err(error.into()),
            };
            if now["resourceVersion"] == self.before["resourceVersion"] {
                return wait::not_yet("it is as before");
            }
            Ok(())
        });
        if let Err(unchanged) = changed.await {
            notice(unchanged);
        }
    }
}

fn name(request: &Value) -> Option<&str> {
    let name = request["name"].as_str().filter(|name| !name.is_empty());
    name.or_else(|| request["object"]["metadata"]["name"].as_str())
}

/// Name of a write; `None` for an ignored one. Each status of a ClusterBootstrap with other gates is a separate write.
fn which(server: &str, request: &Value, names: &str) -> Option<String> {
    let name = name(request)?;
    if !name.starts_with(names) {
        return None;
    }
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let (operation, resource) = (
        text(&request["operation"]),
        text(&request["resource"]["resource"]),
    );
    let part = text(&request["subResource"]);
    let record = &request["object"]["status"]["upgrade"];
    let gates = record["gates"].as_array().into_iter().flatten();
    let open: Vec<_> = gates
        .filter(|gate| gate["open"] == true)
        .map(|gate| text(&gate["hook"]))
        .collect();
    Some(format!(
        "{server} {operation} {resource}{}{part} of {name} {} {}",
        if part.is_empty() { "" } else { "/" },
        open.join(","),
        record["outcome"]
    ))
}

impl Shared {
    /// Kills Sluice if it is time for it, and starts it again. Says whether the write is stored.
    async fn dies_at(self: &Arc<Self>, write: &str, stored: Stored) -> bool {
        let before = self.deaths.load(Ordering::Acquire);
        let dead = Arc::clone(&self.dead).lock_owned().await;
        // One of a process that has died meanwhile arrives as if it had lived.
        if self.deaths.load(Ordering::Acquire) != before {
            return true;
        }
        let deaths = {
            let mut writes = locked(&self.writes);
            let deaths = writes.entry(write.to_owned()).or_default();
            *deaths = (*deaths + 1).min(3);
            *deaths
        };
        if deaths > 2 {
            return true;
        }
        self.deaths.fetch_add(1, Ordering::AcqRel);
        let first = if deaths == 1 {
            self.kill().await
        } else {
            self.stop().await
        };
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            if deaths == 2 {
                stored.wait().await;
            }
            if let Err(error) = shared.restart().await {
                *locked(&shared.failed) = Some(error);
            }
            drop(dead);
        });
        if let Err(error) = first {
            *locked(&self.failed) = Some(error);
        }
        deaths == 2
    }

    async fn stop(&self) -> Result<()> {
        for replica in self.world.extension()?.replicas() {
            replica.freeze().await.context("stop Sluice")?;
        }
        Ok(())
    }

    async fn kill(&self) -> Result<()> {
        self.world.extension()?.kill().await.context("kill Sluice")
    }

    async fn restart(&self) -> Result<()> {
        let extension = self.world.extension()?;
        extension.kill().await.context("kill Sluice")?;
        extension.free_lease().await.context("free its lease")?;
        extension.restart().await.context("start it again")
    }
}
