//! The three servers, and their requests.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::driver;
use crate::components::build_here;
use crate::extension::{Replica, hook_call};
use crate::fleet::MINORS;
use crate::fleet::bed::Bed;
use crate::fleet::bump;
use crate::fleet::catalogue::kubernetes;
use crate::fleet::command::say;
use crate::fleet::kinds::CLUSTER;
use crate::fleet::{NAMESPACE, report};
use crate::processes::ports::Port;
use crate::processes::process::{Launch, Process};
use crate::wait;

const GROUP_VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";
const HOOK: &str = "BeforeClusterUpgrade";

/// How long a server may take until it listens.
const READY: Duration = Duration::from_secs(30);

/// How long Sluice may take until it has read its own records.
const HOLDS: Duration = Duration::from_secs(30);

/// One server.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) url: String,
    pub(super) pid: u32,
    pub(super) ca: PathBuf,
    pub(super) bodies: Vec<PathBuf>,
    process: Option<Process>,
}

/// All of them.
pub(super) struct Servers {
    pub(super) sluice: Server,
    pub(super) peer: Server,
    pub(super) echo: Server,
    /// Where files are written.
    pub(super) directory: PathBuf,
}

/// Builds the extension in Go beside the report.
pub(super) fn build_peer() -> Result<PathBuf> {
    let directory = report::path();
    let directory = directory.parent().context("the report is in no directory")?;
    fs::create_dir_all(directory)?;
    let program = fs::canonicalize(directory)?.join("hooks-peer");
    say("building the peer with go");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/peers/go");
    build_here(&sources, &program)?;
    Ok(program)
}

impl Servers {
    /// Starts the peer and the echo beside a running replica. They answer calls for these clusters.
    pub(super) async fn start(
        bed: &Bed,
        replica: &Replica,
        clusters: &[String],
        peer: &Path,
    ) -> Result<Self> {
        let directory = bed.core.directory().subdirectory("hooks-load")?;
        let pki = bed.management.pki();
        let certificate = pki.server_certificate()?;
        fs::write(directory.join("tls.crt"), &certificate.certificate)?;
        fs::write(directory.join("tls.key"), &certificate.key)?;
        let ca = directory.join("ca.crt");
        fs::write(&ca, pki.ca())?;
        let mut asked = Vec::new();
        let mut bodies = Vec::new();
        for name in clusters {
            let mut cluster = bed.objects().get(&CLUSTER.one(name)).await?;
            about(&mut cluster);
            let body = directory.join(format!("{name}.json"));
            let mut request = fields();
            request["apiVersion"] = json!(GROUP_VERSION);
            request["kind"] = json!(format!("{HOOK}Request"));
            request["cluster"] = cluster.clone();
            fs::write(&body, request.to_string())?;
            bodies.push(body);
            asked.push(cluster);
        }
        // All three answer with the same bytes as Sluice at this point.
        let message = match asked.first() {
            Some(cluster) => replica.ask(HOOK, cluster, &fields()).await?.message,
            None => String::new(),
        };
        let bytes = bodies.first().and_then(|body| fs::metadata(body).ok());
        say(format_args!(
            "a request has {} bytes",
            bytes.map_or(0, |file| file.len())
        ));

        let server = |name, url, pid, process| Server {
            name,
            url,
            pid,
            ca: ca.clone(),
            bodies: bodies.clone(),
            process,
        };
        let (peer_port, echo_port) = (Port::reserve()?, Port::reserve()?);
        let launch = Launch::new("hooks-peer", peer)
            // As Go programs run by default.
            .env("GOGC", "100")
            .args([
                "-port",
                &peer_port.number().to_string(),
                "-namespace",
                NAMESPACE,
                "-message",
                &message,
            ])
            .arg("-cert-dir")
            .arg(&directory)
            .args(clusters.iter().map(String::as_str));
        let go = start(bed, launch, &peer_port).await?;
        let launch = Launch::new("hooks-echo", driver::program())
            .args([
                "echo",
                "--message",
                &message,
                "--address",
                &format!("127.0.0.1:{}", echo_port.number()),
            ])
            .arg("--cert")
            .arg(directory.join("tls.crt"))
            .arg("--key")
            .arg(directory.join("tls.key"));
        let echo = start(bed, launch, &echo_port).await?;
        let url = |port: &Port| format!("https://127.0.0.1:{}", port.number());
        Ok(Self {
            sluice: server("sluice", replica.hook_url(), replica.id().await?, None),
            peer: server("go", url(&peer_port), go.id(), Some(go)),
            echo: server("echo", url(&echo_port), echo.id(), Some(echo)),
            directory,
        })
    }

    /// All three, beginning with another one each time.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = &Server> {
        let all = [&self.sluice, &self.peer, &self.echo];
        (0..all.len()).map(move |turn| all[(first + turn) % all.len()])
    }

    /// Ends the peer and the echo.
    pub(super) async fn stop(self) -> Result<()> {
        for server in [self.peer, self.echo] {
            if let Some(mut process) = server.process {
                process.kill().await?;
            }
        }
        Ok(())
    }
}

/// Waits until Sluice holds each of these clusters for its packages.
pub(super) async fn are_held(bed: &Bed, replica: &Replica, clusters: &[String]) -> Result<()> {
    let fields = &fields();
    wait::until(
        "Sluice to hold all clusters for their packages",
        HOLDS,
        || async {
            for name in clusters {
                let mut cluster = bed.objects().get(&CLUSTER.one(name)).await?;
                about(&mut cluster);
                let reply = replica.ask(HOOK, &cluster, fields).await?;
                if !reply.is_held("PackagesNotReady") {
                    return wait::not_yet(format!("{name} is answered {reply:?}"));
                }
            }
            Ok(())
        },
    )
    .await?;
    Ok(())
}

async fn start(bed: &Bed, launch: Launch, port: &Port) -> Result<Process> {
    let process = Process::start(bed.core.directory(), launch)?;
    let (number, ca_bundle) = (port.number(), bed.management.pki().ca_bundle());
    let path = format!("/{GROUP_VERSION}/discovery");
    let request = json!({"apiVersion": GROUP_VERSION, "kind": "DiscoveryRequest"});
    let answers = || async {
        match hook_call::ask(number, &ca_bundle, &path, &request).await {
            Ok(_) => Ok(()),
            Err(error) => wait::not_yet(format!("{error:#}")),
        }
    };
    process
        .until("to answer the discovery request", READY, answers)
        .await?;
    Ok(process)
}

/// The Cluster as Cluster API asks about it while it is upgraded.
fn about(cluster: &mut Value) {
    let change = bump::change();
    cluster["metadata"]["labels"][crate::objects::TKR] =
        change["metadata"]["labels"][crate::objects::TKR].clone();
    cluster["spec"]["topology"]["version"] = change["spec"]["topology"]["version"].clone();
    if let Some(cluster) = cluster.as_object_mut() {
        cluster.remove("status");
    }
    if let Some(metadata) = cluster["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
}

/// Parts of a request besides the Cluster.
fn fields() -> Value {
    let [from, to] = MINORS.map(kubernetes);
    let step = json!([{"version": to}]);
    json!({
        "fromKubernetesVersion": from,
        "toKubernetesVersion": to,
        "controlPlaneUpgrades": step,
        "workersUpgrades": step,
    })
}
