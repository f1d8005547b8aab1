//! Management clusters to install into, and a shell with the tools of an operator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use tokio::process::Command;

use super::tools::{Definitions, OF_AN_INSTALLATION, Tool, definitions};
use crate::components::{ClusterApiRelease, MANAGEMENT_VERSION};
use crate::requests::{apply, deletion};
use crate::sources::root;
use crate::stack::StackCore;
use crate::stack::apiserver::ApiServer;
use crate::stack::controller_manager::ControllerManager;

/// How long a block of commands may take.
const COMMANDS: Duration = Duration::from_mins(3);

/// Time between checks of definitions that are still being deleted.
const DELETION: Duration = Duration::from_secs(10);

/// A shell at the root of the repository, with kubectl, Helm and clusterctl, for one API server.
#[derive(Debug)]
pub struct Shell {
    home: PathBuf,
    path: String,
}

/// Output of commands.
#[derive(Debug)]
pub struct Said {
    /// Whether all have succeeded.
    pub succeeded: bool,
    /// Exit code of the last one; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl Said {
    /// Standard output of commands that have succeeded.
    pub fn well(self) -> Result<String> {
        ensure!(self.succeeded, "{}{}", self.output, self.errors);
        Ok(self.output)
    }

    /// Checks that a line of standard error of failed commands contains this text.
    pub fn refused(self, text: &str) -> Result<()> {
        ensure!(!self.succeeded, "not refused: {}", self.output);
        ensure!(
            self.errors.contains(text),
            "refused, but not with {text:?}: {}",
            self.errors
        );
        Ok(())
    }
}

impl Shell {
    /// A shell whose home is `<name>` below the directory of a stack.
    pub async fn open(core: &StackCore, name: &str, kubeconfig: &str) -> Result<Self> {
        let home = core.directory().subdirectory(name)?;
        let programs = home.join("bin");
        fs::create_dir_all(&programs)?;
        fs::create_dir_all(home.join(".kube"))?;
        fs::write(home.join(".kube/config"), kubeconfig)?;
        for tool in Tool::ALL {
            std::os::unix::fs::symlink(tool.built().await?, programs.join(tool.name()))?;
        }
        Ok(Self {
            path: format!("{}:/usr/bin:/bin", programs.display()),
            home,
        })
    }

    /// Its home directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Runs commands with these variables, until the first one that fails.
    pub async fn run(&self, commands: &str, variables: &[(&str, &str)]) -> Result<Said> {
        let running = Command::new("sh")
            .args(["-euc", commands])
            .current_dir(root())
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", &self.path)
            // Otherwise clusterctl asks the Internet for a newer one of itself.
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(COMMANDS, running).await;
        let output = output.with_context(|| format!("not done within {COMMANDS:?}: {commands}"))??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Said {
            succeeded: output.status.success(),
            code: output.status.code(),
            output: text(&output.stdout),
            errors: text(&output.stderr),
        })
    }
}

/// An API server with the definitions that an installation requires: of Cluster API, cert-manager and the Prometheus operator. None of
/// their controllers runs, only those of Kubernetes, which end namespaces.
pub struct Site {
    api: ApiServer,
    definitions: Vec<Value>,
    _controllers: ControllerManager,
    shell: Shell,
}

impl Site {
    /// Starts an API server of the newest version.
    pub async fn prepare(core: &Arc<StackCore>, name: &str) -> Result<Self> {
        let api = ApiServer::start(core, name, MANAGEMENT_VERSION).await?;
        let mut texts = definitions(&OF_AN_INSTALLATION).await?;
        let cluster_api = core.binaries().cluster_api(ClusterApiRelease::Newest).await?;
        let extension_config = "runtime.cluster.x-k8s.io_extensionconfigs.yaml";
        texts.push(fs::read_to_string(
            cluster_api.definitions.join(extension_config),
        )?);
        let objects = parse(&texts)?;
        apply::apply_crds(&api.admin_client(), &objects).await?;
        let shell = Shell::open(core, &format!("home-{name}"), &api.admin_kubeconfig()).await?;
        Ok(Self {
            _controllers: ControllerManager::start_named(core, &api, &format!("controllers-{name}")).await?,
            definitions: objects,
            api,
            shell,
        })
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.api.admin_client()
    }

    /// Applies more definitions of other projects.
    pub async fn define(&self, of: &'static [Definitions]) -> Result<()> {
        let objects = parse(&definitions(of).await?)?;
        apply::apply_crds(&self.client(), &objects).await
    }

    /// Applies the definitions of other projects again.
    pub async fn restore_definitions(&self) -> Result<()> {
        apply::apply_crds(&self.client(), &self.definitions).await
    }

    /// Runs commands that delete definitions, and annotates remaining ones as docs/install.md describes.
    pub async fn delete_definitions(&self, commands: &str) -> Result<String> {
        let client = self.client();
        let look_again = async {
            loop {
                tokio::time::sleep(DELETION).await;
                if let Err(error) = deletion::look_again(&client).await {
                    return error;
                }
            }
        };
        let said = tokio::select! {
            said = self.shell.run(commands, &[]) => said.and_then(Said::well),
            error = look_again => Err(error),
        };
        said.with_context(|| commands.to_owned())
    }

    /// The API server.
    #[must_use]
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// PEM of an authority, that of the API server.
    #[must_use]
    pub fn authority(&self) -> String {
        self.api.pki().ca()
    }

    /// A shell with all rights.
    #[must_use]
    pub fn shell(&self) -> &Shell {
        &self.shell
    }
}

fn parse(texts: &[String]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for text in texts {
        objects.extend(apply::documents(text)?.into_iter().map(plain));
    }
    Ok(objects)
}

/// A definition without what its own project fills in: cert-manager's labels are templates of its chart. Nothing converts where no
/// controller runs, and only one version is used.
fn plain(mut definition: Value) -> Value {
    if let Some(spec) = definition["spec"].as_object_mut() {
        spec.remove("conversion");
    }
    json!({
        "apiVersion": definition["apiVersion"],
        "kind": definition["kind"],
        "metadata": {"name": definition["metadata"]["name"]},
        "spec": definition["spec"],
    })
}
