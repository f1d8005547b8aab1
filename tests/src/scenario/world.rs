//! Shared environment of scenarios: one management plane with everything around it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::sync::OnceCell;

use crate::extension::{Extension, Scope, Settings};
use crate::observer::Observer;
use crate::processes::canary;
use crate::processes::log_search::Secret;
use crate::provider::{self, Provider};
use crate::requests::apply;
use crate::stack::caaph::Caaph;
use crate::stack::charts::ChartRepository;
use crate::stack::flux::Flux;
use crate::stack::git::GitServer;
use crate::stack::{Options, Stack};

/// API group of the kinds of gates.
const GATES: &str = "lifecycle.sluice.dev";

/// Name of the ExtensionConfig.
const EXTENSION_CONFIG: &str = "sluice";

/// Whether Cluster API calls Sluice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hooks {
    /// Sluice runs, and Cluster API calls it for these namespaces.
    AskedAbout(Scope),
    /// Sluice does not run.
    Absent,
}

/// A stack with provider and observer, and with Sluice where it is wanted.
pub struct World {
    // Drop the provider first: its processes end before the stack does.
    provider: Provider,
    observer: Mutex<Arc<Observer>>,
    extension: Option<Extension>,
    caaph: OnceCell<Caaph>,
    flux: OnceCell<Flux>,
    charts: OnceCell<ChartRepository>,
    git: OnceCell<GitServer>,
    stack: Stack,
}

impl World {
    /// Starts everything. `name` serves to name kept logs.
    pub async fn start(name: &str, hooks: &Hooks) -> Result<Arc<Self>> {
        Self::start_with(Options::new(name), hooks).await
    }

    /// [`Self::start`] with options of the stack. In one without packages Sluice gates other add-ons only.
    pub async fn start_with(options: Options, hooks: &Hooks) -> Result<Arc<Self>> {
        let definitions = if options.has_packages() {
            sluice_definitions()?
        } else {
            gate_definitions()?
        };
        let hooks_at = options.release().hooks();
        let options = options.crds(provider::definitions()).crds(definitions);
        let stack = Stack::start(options).await?;
        stack.core().directory().guard([
            Secret::new("the values of a package", canary::VALUES),
            Secret::new("a kubeconfig that is refused", canary::KUBECONFIG),
        ]);
        let observer = Observer::start(stack.core().etcd()).await?;
        let provider = Provider::start(stack.core(), stack.management());
        apply::apply(&stack.client(), &provider::reader_role()).await?;
        let extension = match hooks {
            Hooks::Absent => None,
            Hooks::AskedAbout(scope) => {
                let settings = Settings {
                    packages: stack.has_packages(),
                    ..Settings::new("sluice")
                };
                let extension = Extension::start(&stack, settings).await?;
                extension.register_at(EXTENSION_CONFIG, hooks_at, scope).await?;
                Some(extension)
            }
        };
        Ok(Arc::new(Self {
            provider,
            observer: Mutex::new(Arc::new(observer)),
            extension,
            caaph: OnceCell::new(),
            flux: OnceCell::new(),
            charts: OnceCell::new(),
            git: OnceCell::new(),
            stack,
        }))
    }

    /// The management plane.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The provider of workload clusters.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// The observer.
    #[must_use]
    pub fn observer(&self) -> Arc<Observer> {
        self.observer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Puts a new observer in the place of the one before, whose verdict is lost. It judges every write from now on.
    pub async fn observe_anew(&self) -> Result<()> {
        let observer = Observer::start_anew(self.stack.core().etcd()).await?;
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(observer);
        Ok(())
    }

    /// Sluice.
    pub fn extension(&self) -> Result<&Extension> {
        self.extension
            .as_ref()
            .context("Sluice does not run in this stack")
    }

    /// CAAPH of the management cluster. The first call starts it, and builds it where that was not done before on this machine.
    pub async fn caaph(&self) -> Result<&Caaph> {
        let start = || Caaph::start(self.stack.core(), self.stack.management());
        self.caaph.get_or_try_init(start).await
    }

    /// Flux of the management cluster. The first call starts it, and builds it where that was not done before on this machine.
    pub async fn flux(&self) -> Result<&Flux> {
        let start = || Flux::start(self.stack.core(), self.stack.management());
        self.flux.get_or_try_init(start).await
    }

    /// A repository of Helm charts, served from the first call on.
    pub async fn charts(&self) -> Result<&ChartRepository> {
        self.charts.get_or_try_init(ChartRepository::serve).await
    }

    /// A git repository, served from the first call on.
    pub async fn git(&self) -> Result<&GitServer> {
        self.git.get_or_try_init(GitServer::serve).await
    }

    /// Stops everything and removes the stack's directory.
    pub async fn stop(&self) -> Result<()> {
        self.stack.stop().await
    }
}

/// The definitions of `crds/yaml`, as they are shipped.
pub fn sluice_definitions() -> Result<Vec<serde_json::Value>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/yaml");
    let mut definitions = Vec::new();
    for entry in std::fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
        let path = entry?.path();
        let yaml = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        definitions.extend(apply::documents(&yaml)?);
    }
    Ok(definitions)
}

/// Those of the kinds of gates, as they are shipped without packages.
pub fn gate_definitions() -> Result<Vec<serde_json::Value>> {
    let mut definitions = sluice_definitions()?;
    definitions.retain(|definition| {
        definition["spec"]["group"] == GATES && definition["spec"]["names"]["kind"] != "UpgradeOverride"
    });
    Ok(definitions)
}
