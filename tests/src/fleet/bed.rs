//! Environment of the fleet: etcd, a management API server with all definitions, the catalogue, and the listener of workloads.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::NAMESPACE;
use super::audit::{Audit, policy};
use super::catalogue;
use super::copies::Store;
use super::objects::Objects;
use super::registration;
use super::workloads::Workloads;
use crate::components::MANAGEMENT_VERSION;
use crate::extension::{PATIENT_ELECTION, Replica, Settings, granted};
use crate::objects::definition;
use crate::provider::{self, reader_role};
use crate::requests::apply;
use crate::scenario::sluice_definitions;
use crate::stack::apiserver::ApiServer;
use crate::stack::controller_manager::ControllerManager;
use crate::stack::kapp_controller::Manifests;
use crate::stack::{SYSTEM_NAMESPACE, StackCore};
use crate::wait;

/// Prefix of the management API server in etcd.
const PREFIX: &str = "mgmt";

/// Requests of the harness that are under way at once.
const AT_ONCE: usize = 8;

/// Role that the controller manager collects from others.
const AGGREGATED: &str = "sluice-aggregated";

/// An API server of a large fleet keeps gigabytes: it shall not keep several times as much that it does not need any more.
const ENVIRONMENT: [(&str, &str); 2] = [("GOGC", "50"), ("GOMEMLIMIT", "6GiB")];

/// Timeout until the definitions of Cluster API are served.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The bed.
pub(super) struct Bed {
    pub(super) core: Arc<StackCore>,
    pub(super) management: ApiServer,
    pub(super) workloads: Workloads,
    token: String,
    audit: PathBuf,
}

impl Bed {
    /// Starts everything but Sluice.
    pub(super) async fn make() -> Result<Self> {
        let core = StackCore::start("fleet").await?;
        let directory = core.directory().subdirectory("audit")?;
        // Kept with the logs, where these are.
        let (rules, audit) = (directory.join("policy.json"), core.directory().log_path("audit"));
        fs::write(&rules, policy().to_string())?;
        let arguments = vec![
            format!("--audit-policy-file={}", rules.display()),
            format!("--audit-log-path={}", audit.display()),
            "--audit-log-mode=batch".to_owned(),
            "--audit-log-batch-max-wait=500ms".to_owned(),
            // Otherwise it begins another file after 100 MB.
            "--audit-log-maxsize=10000".to_owned(),
            "--audit-log-batch-throttle-enable=false".to_owned(),
            "--audit-log-batch-buffer-size=100000".to_owned(),
        ];
        let management = ApiServer::start_with(&core, PREFIX, MANAGEMENT_VERSION, arguments).await?;
        let client = management.admin_client();
        apply::apply_crds(&client, &definitions(&core)?).await?;
        for namespace in [SYSTEM_NAMESPACE, NAMESPACE] {
            apply::namespace(&client, namespace).await?;
        }
        registration::register(&client).await?;
        let token = granted(&client).await?;
        apply::apply(&client, &reader_role()).await?;
        collect_roles(&core, &management).await?;
        stream::iter(catalogue::objects().into_iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |object| {
                let client = client.clone();
                async move { apply::apply(&client, &object).await.map(drop) }
            })
            .await?;
        management.set_environment(ENVIRONMENT.to_vec());
        management.restart().await?;
        let workloads = Workloads::start(management.pki()).await?;
        Ok(Self {
            core,
            management,
            workloads,
            token,
            audit,
        })
    }

    /// A client with all rights.
    pub(super) fn client(&self) -> Client {
        self.management.admin_client()
    }

    /// The objects of the fleet's namespace.
    pub(super) fn objects(&self) -> Objects {
        Objects::of(self.client())
    }

    /// The etcd behind the API server.
    pub(super) fn store(&self) -> Result<Store> {
        Store::open(&self.core.etcd().url(), PREFIX)
    }

    /// The audit log, from its beginning.
    pub(super) fn audit(&self) -> Audit {
        Audit::of(&self.audit)
    }

    /// A replica of Sluice; nothing runs yet. It logs as a shipped one does.
    pub(super) fn replica(&self, name: &str, sync_period: Duration) -> Result<Replica> {
        self.replica_with(Settings::new(name), sync_period)
    }

    /// A replica with gates only.
    pub(super) fn gates_replica(&self, name: &str, sync_period: Duration) -> Result<Replica> {
        let settings = Settings {
            packages: false,
            ..Settings::new(name)
        };
        self.replica_with(settings, sync_period)
    }

    fn replica_with(&self, settings: Settings, sync_period: Duration) -> Result<Replica> {
        let settings = Settings {
            sync_period: format!("{}s", sync_period.as_secs()),
            verbosity: 2,
            election: PATIENT_ELECTION,
            status: false,
            ..settings
        };
        Replica::prepare(&self.core, &self.management, settings, &self.token)
    }
}

/// The definitions of Cluster API, kapp-controller, the providers and Sluice. None is converted: no controller of them runs.
fn definitions(core: &StackCore) -> Result<Vec<Value>> {
    let mut definitions = sluice_definitions()?;
    definitions.extend(provider::definitions());
    definitions.push(definition::open(
        "data.packaging.carvel.dev",
        "Package",
        "v1alpha1",
        &json!({}),
    ));
    let manifests = Manifests::read(core.binaries(), "kapp-controller")?;
    definitions.extend(apply::documents(&manifests.crds)?);
    let directory = core.binaries().manifest("cluster-api/crds");
    for entry in fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))? {
        let path = entry?.path();
        let yaml = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        definitions.extend(apply::documents(&yaml)?);
    }
    for definition in &mut definitions {
        for (part, field) in [("metadata", "creationTimestamp"), ("spec", "conversion")] {
            definition[part]
                .as_object_mut()
                .map(|fields| fields.remove(field));
        }
        definition.as_object_mut().map(|fields| fields.remove("status"));
    }
    Ok(definitions)
}

/// Has the roles collected that other roles consist of. Afterwards the controller manager is not needed any more.
async fn collect_roles(core: &Arc<StackCore>, management: &ApiServer) -> Result<()> {
    let _until_collected = ControllerManager::start(core, management).await?;
    let roles = Api::<ClusterRole>::all(management.admin_client());
    wait::until("the roles of providers to be collected", TIMEOUT, || async {
        let role = roles.get(AGGREGATED).await?;
        match role.rules.unwrap_or_default().len() {
            0..3 => wait::not_yet("too few rules"),
            _ => Ok(()),
        }
    })
    .await?;
    Ok(())
}
