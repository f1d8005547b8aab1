//! The pause flow, a program of `benches/peers/pause-flow`, running beside a stack and registered as Cluster API's webhooks are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::processes::ports::Port;
use crate::processes::probe::Probe;
use crate::processes::process::{Launch, Process};
use crate::processes::run_directory::target_directory;
use crate::requests::apply;
use crate::stack::pki::kubeconfig;
use crate::stack::{Stack, StackCore};

/// Its user on the management cluster, and its user agent on both.
pub(super) const NAME: &str = "pause-flow";

const READY: Duration = Duration::from_secs(30);

/// When it unpauses a Cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unpause {
    /// Before anything is written: a planted fault.
    AtOnce,
    /// Once all packages are written, as the addons-manager does.
    Written,
    /// Once all packages are ready: a planted virtue.
    Ready,
}

impl Unpause {
    const fn as_str(self) -> &'static str {
        match self {
            Self::AtOnce => "at-once",
            Self::Written => "written",
            Self::Ready => "ready",
        }
    }
}

/// The running program: one port for its whole life, and a process that may be replaced.
pub(super) struct StandIn {
    core: Arc<StackCore>,
    program: PathBuf,
    directory: PathBuf,
    port: Port,
    process: Mutex<Option<Process>>,
}

impl StandIn {
    /// Starts it, waits until it is ready, and registers its webhook by URL.
    pub(super) async fn start(stack: &Stack, unpause: Unpause) -> Result<Self> {
        let management = stack.management();
        let pki = management.pki();
        let directory = stack.core().directory().subdirectory(NAME)?;
        pki.server_certificate()?.write(&directory, "tls")?;
        let own = pki.client_certificate(NAME, Some("system:masters"))?;
        let user = json!({
            "client-certificate-data": BASE64_STANDARD.encode(&own.certificate),
            "client-key-data": BASE64_STANDARD.encode(&own.key),
        });
        std::fs::write(
            directory.join("kubeconfig"),
            kubeconfig(&management.url(), &pki.ca(), &user),
        )?;
        let stand_in = Self {
            core: Arc::clone(stack.core()),
            program: program()?,
            directory,
            port: Port::reserve()?,
            process: Mutex::new(None),
        };
        stand_in.restart(unpause).await?;
        apply::apply(
            &stack.client(),
            &webhook(stand_in.port.number(), &pki.ca_bundle()),
        )
        .await?;
        Ok(stand_in)
    }

    /// Kills the process if it runs, starts it and waits until it is ready.
    pub(super) async fn restart(&self, unpause: Unpause) -> Result<()> {
        let mut slot = self.process.lock().await;
        if let Some(mut old) = slot.take() {
            old.kill().await?;
        }
        let file = |name: &str| self.directory.join(name);
        let address = format!("127.0.0.1:{}", self.port.number());
        let launch = Launch::new(NAME, &self.program)
            .arg("--kubeconfig")
            .arg(file("kubeconfig"))
            .args(["--address", &address])
            .arg("--cert")
            .arg(file("tls.crt"))
            .arg("--key")
            .arg(file("tls.key"))
            .args(["--unpause", unpause.as_str()]);
        let process = Process::start(self.core.directory(), launch)?;
        let readyz = Probe::new(&format!("https://{address}"), "/readyz")?;
        process.until("to be ready", READY, || readyz.get()).await?;
        *slot = Some(process);
        Ok(())
    }
}

/// Where the program is.
pub(super) fn program() -> Result<PathBuf> {
    let target = target_directory().context("this program is not in Cargo's target directory")?;
    let program = target.join("release").join(NAME);
    ensure!(
        program.is_file(),
        "missing: {}; `make build` makes it",
        program.display()
    );
    Ok(program)
}

fn webhook(port: u16, ca_bundle: &str) -> Value {
    let path = "/mutate-cluster-x-k8s-io-v1beta1-cluster";
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "clusterpause.mutating.vmware.com",
            "clientConfig": {"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": ca_bundle},
            "rules": [{
                "apiGroups": ["cluster.x-k8s.io"],
                "apiVersions": ["v1beta2"],
                "operations": ["UPDATE"],
                "resources": ["clusters"],
            }],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "reinvocationPolicy": "IfNeeded",
            "sideEffects": "None",
            "timeoutSeconds": 30,
            "admissionReviewVersions": ["v1"],
        }],
    })
}
