//! kapp-controller, main process and sidecar, for the management cluster or for a workload cluster.

mod ends;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::components::Binaries;
use crate::processes::ports::Port;
use crate::processes::process::{self, Launch, Process};
use crate::requests::apply;
use crate::stack::StackCore;
use crate::stack::apiserver::ApiServer;
use crate::stack::kubelet::RunningProcess;
use crate::wait;

#[cfg(test)]
pub(crate) use self::ends::CRASHED;
pub(crate) use self::ends::{is_known_crash, is_log};

/// Gives the process its own `/run` and `/home`, where its token and its home directory are fixed, then
/// becomes it. The program is bound to a new place first, because it may lie below `/home` itself.
const ENTER: &str = r#"
set -e
instance=$1 program=$2
sleep "$3"
shift 3
: >"$instance/kapp-controller"
mount --bind "$program" "$instance/kapp-controller"
run=$(readlink -f /var/run)
mount -t tmpfs tmpfs "$run"
mkdir -p "$run/secrets/kubernetes.io"
ln -s "$instance/sa" "$run/secrets/kubernetes.io/serviceaccount"
mount -t tmpfs tmpfs /home
mkdir /home/kapp-controller
exec "$instance/kapp-controller" "$@"
"#;

/// How often the main process is started before that counts as a failure.
const ATTEMPTS: u32 = 4;

/// Time between two checks of a kapp-controller that is kept alive.
const CHECK: Duration = Duration::from_millis(500);

/// How one kapp-controller is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of its logs, unique in the stack.
    pub name: String,
    /// Namespace of its Service and ServiceAccount.
    pub namespace: String,
    /// ServiceAccount that it runs as.
    pub service_account: String,
    /// Namespace whose packages every namespace sees.
    pub packaging_global_namespace: String,
    /// More arguments of the main process; a later one wins over the ones given here.
    pub arguments: Vec<String>,
    /// More environment of the main process; what holds its files and ports apart wins.
    pub environment: Vec<(String, String)>,
    /// How long the main process runs before it is kapp-controller, as a container that takes its time to start.
    pub starts_after: Duration,
    /// Whether a kubelet restarts it, so that its end is no failure of the stack.
    pub kept_alive: bool,
}

impl Settings {
    /// The usual names: namespace `kapp-controller`, ServiceAccount `kapp-controller-sa`.
    #[must_use]
    pub fn new(name: impl Into<String>, packaging_global_namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: "kapp-controller".to_owned(),
            service_account: "kapp-controller-sa".to_owned(),
            packaging_global_namespace: packaging_global_namespace.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            starts_after: Duration::ZERO,
            kept_alive: false,
        }
    }
}

/// kapp-controller's own manifests as YAML, to be applied or to be put into a package.
#[derive(Debug, Clone)]
pub struct Manifests {
    /// Its five CustomResourceDefinitions.
    pub crds: String,
    /// ServiceAccount, roles and bindings.
    pub rbac: String,
}

impl Manifests {
    /// Reads them for a kapp-controller in `namespace`.
    pub fn read(binaries: &Binaries, namespace: &str) -> Result<Self> {
        let read = |name: &str| {
            let path = binaries.manifest("kapp-controller").join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        Ok(Self {
            crds: without_ytt(&read("crds.yml")?, namespace),
            rbac: without_ytt(&read("rbac.yml")?, namespace),
        })
    }

    /// Applies them, with the namespaces that `settings` names.
    pub async fn apply(&self, client: &Client, settings: &Settings) -> Result<()> {
        apply::apply_crds(client, &apply::documents(&self.crds)?).await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        // The RBAC has a RoleBinding there, and the API server creates it some time after it is ready.
        wait::until("namespace kube-system", Duration::from_mins(2), || async {
            namespaces.get("kube-system").await.map(drop).map_err(Into::into)
        })
        .await?;
        apply::namespace(client, &settings.namespace).await?;
        apply::namespace(client, &settings.packaging_global_namespace).await?;
        apply::apply_all(client, &apply::documents(&self.rbac)?).await
    }
}

/// A kapp-controller for one API server: a port for its whole life, and two processes that may be replaced.
pub struct KappController {
    core: Arc<StackCore>,
    settings: Settings,
    client: Client,
    api_port: u16,
    ca: String,
    directory: PathBuf,
    port: Port,
    processes: Mutex<Option<Processes>>,
}

struct Processes {
    sidecar: Process,
    main: Process,
}

impl KappController {
    /// Applies its manifests to `api`, starts it and waits until its aggregated API is served.
    pub async fn start(core: &Arc<StackCore>, api: &ApiServer, settings: Settings) -> Result<Self> {
        let manifests = Manifests::read(core.binaries(), &settings.namespace)?;
        manifests.apply(&api.admin_client(), &settings).await?;
        let controller = Self::prepare(core, api, settings)?;
        controller.restart().await?;
        Ok(controller)
    }

    /// A kapp-controller for an API server where a package has applied the manifests already. Nothing runs yet.
    pub(crate) fn prepare(core: &Arc<StackCore>, api: &ApiServer, settings: Settings) -> Result<Self> {
        let directory = core.directory().subdirectory(&settings.name)?;
        for name in ["tmp", "home", "sa"] {
            core.directory().subdirectory(directory.join(name))?;
        }
        Ok(Self {
            core: core.clone(),
            client: api.admin_client(),
            api_port: api.port(),
            ca: api.pki().ca(),
            settings,
            directory,
            port: Port::reserve()?,
            processes: Mutex::new(None),
        })
    }

    /// Kills both processes if they run, starts them with a new token, and waits until the aggregated API
    /// is served.
    pub async fn restart(&self) -> Result<()> {
        self.kill().await?;
        self.write_service_account().await?;
        let sidecar = self.start_sidecar().await?;
        let mut attempt = 1;
        let main = loop {
            let main = self.run_main().await?;
            let served = main
                .until("to serve its API", Duration::from_mins(2), || self.available())
                .await;
            match served {
                Ok(()) => break main,
                // It ends when another client writes the APIService between its own read and write; a kubelet starts it again.
                Err(error) if main.exited().is_some() && attempt < ATTEMPTS => {
                    tracing::info!("{} is started again: {error:#}", self.settings.name);
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        };
        main.may_end(self.settings.kept_alive);
        *self.processes.lock().await = Some(Processes { sidecar, main });
        Ok(())
    }

    /// Kills both processes if they run, starts them with a new token, and returns while they run: a kubelet waits for nothing
    /// else where a container has no probe. The aggregated API is served some seconds later, and the main process may end before.
    pub(crate) async fn launch(&self) -> Result<()> {
        self.kill().await?;
        self.write_service_account().await?;
        let sidecar = self.start_sidecar().await?;
        let main = self.run_main().await?;
        *self.processes.lock().await = Some(Processes { sidecar, main });
        Ok(())
    }

    /// The main process, while one runs.
    pub async fn process(&self) -> Option<RunningProcess> {
        let id = self.process_id().await?;
        Some(RunningProcess {
            id,
            started: process::started(id)?,
            arguments: process::arguments(id)?,
        })
    }

    /// Process id of the main process, while one runs.
    async fn process_id(&self) -> Option<u32> {
        let processes = self.processes.lock().await;
        let main = processes.as_ref().map(|processes| &processes.main);
        main.filter(|main| main.exited().is_none()).map(Process::id)
    }

    /// Starts the main process, whose end is no failure of the stack for now.
    async fn run_main(&self) -> Result<Process> {
        let main = self.start_main()?;
        main.may_end(true);
        // The APIService right after the process: the other way round costs ten seconds of back-off.
        apply::apply_all(&self.client, &self.api_service()).await?;
        Ok(main)
    }

    /// Starts it again whenever it has ended by itself, as a kubelet does, for as long as it is polled. Version 0.53.1 crashes
    /// now and then (module `ends`).
    pub(crate) async fn keep_alive(&self) {
        let mut checks = tokio::time::interval(CHECK);
        loop {
            checks.tick().await;
            if !self.has_crashed().await {
                continue;
            }
            tracing::warn!("{} ended by itself and is started again", self.settings.name);
            // Nothing runs after a start that failed, so this is the place where it is tried again.
            while let Err(error) = self.restart().await {
                tracing::warn!("{}: {error:#}", self.settings.name);
                checks.tick().await;
            }
        }
    }

    async fn has_crashed(&self) -> bool {
        let processes = self.processes.lock().await;
        processes
            .as_ref()
            .is_some_and(|processes| processes.main.exited().is_some())
    }

    /// Whether the main process has ended, or none runs.
    pub(crate) async fn has_ended(&self) -> bool {
        let processes = self.processes.lock().await;
        processes
            .as_ref()
            .is_none_or(|processes| processes.main.exited().is_some())
    }

    /// Kills both processes.
    pub async fn kill(&self) -> Result<()> {
        if let Some(Processes {
            mut sidecar,
            mut main,
        }) = self.processes.lock().await.take()
        {
            main.kill().await?;
            sidecar.kill().await?;
        }
        Ok(())
    }

    async fn write_service_account(&self) -> Result<()> {
        let Settings {
            namespace,
            service_account,
            ..
        } = &self.settings;
        let token = token(&self.client, namespace, service_account).await?;
        let directory = self.directory.join("sa");
        fs::write(directory.join("token"), token)?;
        fs::write(directory.join("namespace"), namespace)?;
        fs::write(directory.join("ca.crt"), &self.ca)
            .context("write the ServiceAccount files of kapp-controller")
    }

    async fn start_sidecar(&self) -> Result<Process> {
        let socket = self.socket();
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context("remove an old socket");
            }
            _ => {}
        }
        let launch = Launch::new(
            format!("{}-sidecar", self.settings.name),
            self.core.binaries().kapp_controller(),
        );
        let sidecar = Process::start(
            self.core.directory(),
            self.with_environment(launch).arg("-sidecarexec"),
        )?;
        sidecar
            .until("to open its socket", Duration::from_mins(2), || async {
                if socket.exists() {
                    Ok(())
                } else {
                    wait::not_yet(format!("no {}", socket.display()))
                }
            })
            .await?;
        Ok(sidecar)
    }

    fn start_main(&self) -> Result<Process> {
        let launch = Launch::new(&self.settings.name, "unshare")
            .args([
                self.core.binaries().isolation().flags(),
                "--propagation",
                "private",
                "sh",
                "-c",
                ENTER,
                "enter",
            ])
            .arg(&self.directory)
            .arg(self.core.binaries().kapp_controller())
            .arg(self.settings.starts_after.as_secs_f64().to_string())
            .arg(format!(
                "-packaging-global-namespace={}",
                self.settings.packaging_global_namespace
            ))
            .arg("-concurrency=4")
            // It asks for a version of that API that current servers do not have any more.
            .arg("-enable-api-priority-and-fairness=false")
            .args(&self.settings.arguments)
            // All of them share the ports of this machine.
            .arg("-metrics-bind-address=0");
        let launch = self
            .settings
            .environment
            .iter()
            .fold(launch, |launch, (name, value)| launch.env(name, value));
        let launch = launch.with_known_ends(ends::is_known_end);
        Process::start(self.core.directory(), self.with_environment(launch))
    }

    fn with_environment(&self, launch: Launch) -> Launch {
        launch
            .env("KAPPCTRL_SYSTEM_NAMESPACE", &self.settings.namespace)
            .env("KAPPCTRL_API_PORT", self.port.number().to_string())
            .env("KAPPCTRL_MEM_TMP_DIR", self.directory.join("tmp"))
            .env("KAPPCTRL_SIDECAREXEC_SOCK", self.socket())
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", self.api_port.to_string())
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", self.core.binaries().directory().display()),
            )
            .env("HOME", self.directory.join("home"))
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("tmp").join("sidecar.sock")
    }

    fn api_service(&self) -> [Value; 2] {
        let namespace = &self.settings.namespace;
        [
            json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "packaging-api", "namespace": namespace},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            }),
            json!({
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": "v1alpha1.data.packaging.carvel.dev"},
                "spec": {
                    "group": "data.packaging.carvel.dev",
                    "version": "v1alpha1",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "service": {"name": "packaging-api", "namespace": namespace, "port": self.port.number()},
                },
            }),
        ]
    }

    /// The APIService is available, and its API lists packages.
    async fn available(&self) -> Result<(), wait::Unmet> {
        let get = |path: &str| http::Request::get(path).body(Vec::new());
        let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.data.packaging.carvel.dev";
        let service: Value = self.client.request(get(path)?).await?;
        let conditions = service["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        match conditions
            .iter()
            .find(|condition| condition["type"] == "Available")
        {
            Some(condition) if condition["status"] == "True" => {}
            Some(condition) => return wait::not_yet(format!("APIService {condition}")),
            None => return wait::not_yet("an APIService without condition"),
        }
        self.client
            .request_text(get("/apis/data.packaging.carvel.dev/v1alpha1/packages")?)
            .await?;
        Ok(())
    }
}

/// A token of a ServiceAccount, good for a day.
pub async fn token(client: &Client, namespace: &str, service_account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(86_400),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(service_account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("request a token of ServiceAccount {namespace}/{service_account}"))?;
    Ok(answer
        .status
        .context("a TokenRequest was answered without a token")?
        .token)
}

/// A ytt template of kapp-controller's as plain YAML: the only value that these templates use is the
/// namespace.
fn without_ytt(template: &str, namespace: &str) -> String {
    template
        .lines()
        .filter(|line| !line.trim_start().starts_with("#@") && !line.trim_start().starts_with("#!"))
        .map(|line| line.replace("#@ data.values.namespace", namespace) + "\n")
        .collect()
}
