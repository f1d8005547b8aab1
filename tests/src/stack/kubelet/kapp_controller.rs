//! The one Deployment whose pod is a real process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use tokio::sync::Mutex;

use crate::stack::apiserver::ApiServer;
use crate::stack::kapp_controller::{KappController, Settings};
use crate::stack::{SYSTEM_NAMESPACE, StackCore};

/// Name of its Deployment.
pub(super) const NAME: &str = "kapp-controller";

/// Name under which a scenario sets how long its process takes to start: the Deployment is ready, the package API is not served.
pub const KAPP_CONTROLLER_START: &str = "kapp-controller/start";

/// kapp-controller of one workload cluster.
pub(super) struct Pod {
    core: Arc<StackCore>,
    api: Arc<ApiServer>,
    name: String,
    running: Mutex<Option<Running>>,
}

struct Running {
    template: serde_json::Value,
    controller: KappController,
}

/// The main process of a kapp-controller, as the machine knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningProcess {
    /// Process id.
    pub id: u32,
    /// When it was started, in clock ticks since the machine was: ids come again.
    pub started: u64,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
}

impl Pod {
    pub(super) fn new(core: &Arc<StackCore>, api: &Arc<ApiServer>, namespace: &str, cluster: &str) -> Self {
        Self {
            core: core.clone(),
            api: api.clone(),
            name: format!("kapp-{namespace}-{cluster}"),
            running: Mutex::new(None),
        }
    }

    /// Has a process of `template` run in `namespace`: starts one, or replaces one of another template. Returns once it is up, and
    /// does not wait until it serves anything: kapp-controller has no readiness probe, so no kubelet waits for that either.
    pub(super) async fn run(
        &self,
        namespace: &str,
        template: &PodTemplateSpec,
        starts_after: Duration,
    ) -> Result<()> {
        let key = serde_json::to_value(template)?;
        let mut running = self.running.lock().await;
        if running.as_ref().is_some_and(|current| current.template == key) {
            return Ok(());
        }
        if let Some(Running { controller, .. }) = running.take() {
            controller.kill().await?;
        }
        let pod = template.spec.as_ref().context("a pod template without spec")?;
        let settings = Settings {
            starts_after,
            ..settings(&self.name, namespace, pod)?
        };
        let controller = KappController::prepare(&self.core, &self.api, settings)?;
        controller.launch().await?;
        *running = Some(Running {
            template: key,
            controller,
        });
        Ok(())
    }

    /// Starts the process again if it has ended by itself, as it does when its API server goes away while it starts.
    pub(super) async fn keep_alive(&self) -> Result<()> {
        match self.running.lock().await.as_ref() {
            Some(running) if running.controller.has_ended().await => running.controller.launch().await,
            _ => Ok(()),
        }
    }

    /// Restarts the process and waits until it serves its API; false if none runs.
    pub(super) async fn restart(&self) -> Result<bool> {
        match self.running.lock().await.as_ref() {
            Some(running) => running.controller.restart().await.map(|()| true),
            None => Ok(false),
        }
    }

    /// The process, while one runs.
    pub(super) async fn process(&self) -> Option<RunningProcess> {
        self.running.lock().await.as_ref()?.controller.process().await
    }

    /// Ends the process, if one runs.
    pub(super) async fn stop(&self) -> Result<()> {
        match self.running.lock().await.take() {
            Some(running) => running.controller.kill().await,
            None => Ok(()),
        }
    }
}

/// What a pod says about its process: namespace, ServiceAccount, arguments and environment of its main container. Its ConfigMap or
/// Secret `kapp-controller-config` the process reads itself, in the namespace that it is given here.
fn settings(name: &str, namespace: &str, pod: &PodSpec) -> Result<Settings> {
    let container = main_container(pod).context("a pod without container")?;
    let mut settings = Settings {
        namespace: namespace.to_owned(),
        arguments: container.args.clone().unwrap_or_default(),
        environment: container
            .env
            .iter()
            .flatten()
            .filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?)))
            .collect(),
        kept_alive: true,
        ..Settings::new(name, SYSTEM_NAMESPACE)
    };
    if let Some(account) = pod.service_account_name.as_ref().or(pod.service_account.as_ref()) {
        settings.service_account.clone_from(account);
    }
    Ok(settings)
}

/// The container that is not the sidecar.
fn main_container(pod: &PodSpec) -> Option<&Container> {
    let named = pod.containers.iter().find(|container| container.name == NAME);
    named.or(pod.containers.first())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_process_gets_the_arguments_of_the_pod() {
        let pod: PodSpec = serde_json::from_value(json!({
            "serviceAccountName": "account",
            "containers": [
                {"name": "kapp-controller-sidecarexec", "args": ["--sidecarexec"]},
                {
                    "name": "kapp-controller",
                    "args": ["-concurrency=7"],
                    "env": [
                        {"name": "HTTP_PROXY", "value": "http://proxy"},
                        {"name": "KAPPCTRL_SYSTEM_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                    ],
                },
            ],
        }))
        .unwrap();

        let settings = settings("kapp-a-b", "tkg-system", &pod).unwrap();

        assert_eq!(settings.namespace, "tkg-system");
        assert_eq!(settings.service_account, "account");
        assert_eq!(settings.arguments, ["-concurrency=7"]);
        assert_eq!(
            settings.environment,
            [("HTTP_PROXY".to_owned(), "http://proxy".to_owned())]
        );
    }
}
