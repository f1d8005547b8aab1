//! The one Deployment whose pod is a real process.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use tokio::sync::Mutex;

use crate::apiserver::ApiServer;
use crate::kapp_controller::{KappController, Settings};
use crate::stack::{SYSTEM_NAMESPACE, StackCore};

/// Name of its Deployment.
pub(super) const NAME: &str = "kapp-controller";

/// kapp-controller of one workload cluster.
pub(super) struct Pod {
    core: Arc<StackCore>,
    api: Arc<ApiServer>,
    settings: Settings,
    running: Mutex<Option<Running>>,
}

struct Running {
    template: serde_json::Value,
    controller: KappController,
}

impl Pod {
    pub(super) fn new(core: &Arc<StackCore>, api: &Arc<ApiServer>, namespace: &str, cluster: &str) -> Self {
        Self {
            core: core.clone(),
            api: api.clone(),
            settings: Settings {
                kept_alive: true,
                ..Settings::new(format!("kapp-{namespace}-{cluster}"), SYSTEM_NAMESPACE)
            },
            running: Mutex::new(None),
        }
    }

    /// Has a process of `template` run: starts one, or replaces one of another template.
    pub(super) async fn run(&self, template: &PodTemplateSpec) -> Result<()> {
        let template = serde_json::to_value(template)?;
        let mut running = self.running.lock().await;
        match running.as_mut() {
            Some(current) if current.template == template => {}
            Some(current) => {
                current.controller.restart().await?;
                current.template = template;
            }
            None => {
                let controller =
                    KappController::start_processes(&self.core, &self.api, self.settings.clone()).await?;
                *running = Some(Running { template, controller });
            }
        }
        Ok(())
    }

    /// Starts the process again if it has ended by itself, as it does when its API server goes away while it starts.
    pub(super) async fn keep_alive(&self) -> Result<()> {
        match self.running.lock().await.as_ref() {
            Some(running) if running.controller.has_ended().await => running.controller.restart().await,
            _ => Ok(()),
        }
    }

    /// Restarts the process; false if none runs.
    pub(super) async fn restart(&self) -> Result<bool> {
        match self.running.lock().await.as_ref() {
            Some(running) => running.controller.restart().await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Ends the process, if one runs.
    pub(super) async fn stop(&self) -> Result<()> {
        match self.running.lock().await.take() {
            Some(running) => running.controller.kill().await,
            None => Ok(()),
        }
    }
}
