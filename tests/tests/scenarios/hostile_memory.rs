//! A tenant, a Pod and a workload API server that try to use up the memory of the replicas, beside a Cluster that is upgraded.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use jiff::SignedDuration;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use sluice_tests::extension::{Extension, Replica, admission};
use sluice_tests::fault_server::{Fault, FaultServer};
use sluice_tests::objects::{self, RESOLVE, Release};
use sluice_tests::observer::Revision;
use sluice_tests::processes::gauge::Gauge;
use sluice_tests::processes::notice;
use sluice_tests::requests::apply;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::common::{held, proven_before_written, release};

const TENANT: &str = "hostile-memory-tenant";

/// Clusters of the tenant. kube-apiserver takes tens of megabytes for each.
const CLUSTERS: usize = 10;

/// They are made only while the machine has so much memory, in KiB.
const AVAILABLE: u64 = 8 * 1024 * 1024;

/// Fewest significant samples.
const LEAST: usize = 4;

/// What RSS may grow by for as long as the Clusters are there, and while they arrive, in MB.
const KEPT: f64 = 40.0;
const WHILE_LISTED: f64 = 60.0;

/// The same of a workload API server that pads its answers.
const PADDED: f64 = 60.0;

/// Allowed growth of RSS a minute after the last review, in MB.
const AFTER_REVIEWS: f64 = 20.0;
const MINUTE: Duration = Duration::from_mins(1);

/// Peak RSS while reviews arrive: a quarter of the memory limit of the shipped Deployment, in MB.
const LIMIT: f64 = 167.8;

/// No replica is driven any further, so that the machine survives those that grow on. In MB.
const ENOUGH: f64 = 1000.0;

/// Reviews before any is half sent, and again beside those: a third of them is dense.
const REVIEWS: usize = 1500;
const HALF_SENT: usize = 64;

/// Reviews under way at once.
const AT_ONCE: usize = 8;

/// How much longer than without attackers a version may take after the last proof.
const LATER: SignedDuration = SignedDuration::from_secs(5);

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "hostile-memory",
        "Clusters of many small maps, reviews of unknown callers and padded answers of a workload: the memory of both replicas stays within limits, also after a restart, and another Cluster is upgraded as without them",
        |scene| Box::pin(run(scene)),
    )
    .alone()
}

/// Restarts the API server, and waits until it answers over the connections of this process: those that were open fail once.
async fn restarted(scene: &Scene) -> Result<()> {
    scene.world().stack().management().restart().await?;
    wait::until("the restarted API server to answer", TIMEOUT, || async {
        match scene.objects().get("/api/v1/namespaces/default").await {
            Ok(_) => Ok(()),
            Err(error) => wait::not_yet(format!("{error:#}")),
        }
    })
    .await?;
    Ok(())
}

async fn run(scene: Scene) -> Result<()> {
    let management = scene.world().stack().management();
    // Otherwise kube-apiserver takes more than a gigabyte for each Cluster of the tenant.
    management.set_environment(vec![("GOGC", "50")]);
    restarted(&scene).await?;
    let extension = scene.world().extension()?;
    // What other scenarios have left in memory.
    extension.restart().await?;
    let first = release(&scene, VERSIONS[0], "0.1.0", Delay::NONE)?;
    let old = release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = release(&scene, VERSIONS[2], "2.0.0", Delay::Never)?;
    for release in [&first, &old, &new] {
        scene.publish(release).await?;
    }
    let webhooks = format!("sluice-{}", scene.namespace());
    extension.admit(&webhooks, &[scene.namespace()]).await?;
    let one = scene.cluster("one").create_settled(&first).await?;
    let before = one.upgrade(&old).await?;
    let usual = lag(&one, &old, before).await?;
    one.is_settled(TIMEOUT).await?;
    let padded = scene.cluster("padded").create_settled(&old).await?;
    let server = FaultServer::start(&padded.workload()?.api, Fault::Dense).await?;
    let own = padded.swap_kubeconfig(&server.kubeconfig()).await?;
    let before_padded = held(&padded, &new).await?;

    let mut judge = Judge::new(extension).await?;
    let made = tenant_creates(&scene, &judge).await?;
    // The leader has read all previous writes.
    let before = held(&one, &new).await?;
    let what = "Clusters of the tenant arrive";
    judge.settles(what, KEPT).await?;
    judge.limit_peak(what, WHILE_LISTED).await?;
    for replica in extension.replicas() {
        replica.restart().await?;
        holds(replica, &one, &new).await?;
    }
    // Of processes that began with the first list.
    let what = "Clusters of the tenant are listed";
    judge.settles(what, KEPT).await?;
    judge.limit_peak(what, WHILE_LISTED).await?;

    judge.begin().await?;
    server.strike();
    let values = json!({"spec": {"cni": {"valuesFrom": {"inline": {"round": 1}}}}});
    padded.patch_bootstrap(&values).await?;
    let unreachable = padded.says("WorkloadUnreachable", TIMEOUT).await;
    let what = "a workload API server pads its answers";
    judge.note(what, unreachable.map(drop));
    judge.limit_peak(what, PADDED).await?;

    judge.begin().await?;
    let flood = tokio::spawn(flood(scene.clone()));
    let upgraded = async {
        one.control_plane_is_untouched(before).await?;
        one.delay("antrea", Delay::NONE);
        let lag = lag(&one, &new, before).await?;
        one.is_settled(TIMEOUT).await?;
        Ok((lag, flood.await??))
    };
    let ((lag, answers), answered) = reviews_meanwhile(&scene, upgraded).await?;
    notice(format_args!(
        "reviews were answered with {answers:?}; {lag:#} from the last proof to the version, {usual:#} without attackers"
    ));
    let what = "reviews arrive";
    judge.note(what, answered);
    let in_time = || {
        ensure!(
            lag <= usual + LATER,
            "{lag:#} from the last proof to the version, {usual:#} without attackers"
        );
        Ok(())
    };
    judge.note("the other Cluster is upgraded", in_time());
    judge.settles(what, AFTER_REVIEWS).await?;
    judge.limit_peak_to(what, LIMIT).await?;
    padded.control_plane_is_untouched(before_padded).await?;

    server.heal();
    padded.delay("antrea", Delay::NONE);
    proven_before_written(&padded, &new, before_padded).await?;
    padded.is_settled(TIMEOUT).await?;
    // The packages are uninstalled after the server has ended.
    padded.swap_kubeconfig(&own).await?;
    admission::unregister(&scene.client(), &webhooks).await?;
    tenant_leaves(&scene, &made).await?;
    management.set_environment(Vec::new());
    restarted(&scene).await?;
    ensure!(judge.complaints.is_empty(), "{}", judge.complaints.join("\n"));
    Ok(())
}

/// Upgrades in order: how long after the last proof the version was written.
async fn lag(cluster: &Cluster, release: &Release, before: Revision) -> Result<SignedDuration> {
    let written = proven_before_written(cluster, release, before).await?;
    let proven = cluster.packages_proven(release, before, TIMEOUT).await?;
    Ok(written.seen.duration_since(proven.seen))
}

/// Waits until a replica knows why the Cluster waits, for which it has to have read everything.
async fn holds(replica: &Replica, cluster: &Cluster, new: &Release) -> Result<()> {
    let versions = json!({"fromKubernetesVersion": VERSIONS[1], "toKubernetesVersion": new.kubernetes()});
    let object = cluster.object().await?;
    wait::until("a replica to hold for packages", TIMEOUT, || async {
        let reply = replica.ask("BeforeClusterUpgrade", &object, &versions).await?;
        if reply.is_held("PackagesNotReady") {
            Ok(())
        } else {
            wait::not_yet(format!("{reply:?}"))
        }
    })
    .await?;
    Ok(())
}

/// Growth of the memory of both replicas. An exceeded limit ends nothing, so that one run shows all.
struct Judge<'a> {
    extension: &'a Extension,
    /// RSS of each replica, in MB.
    idle: Vec<f64>,
    complaints: Vec<String>,
}

impl<'a> Judge<'a> {
    async fn new(extension: &'a Extension) -> Result<Self> {
        let mut judge = Self {
            extension,
            idle: Vec::new(),
            complaints: Vec::new(),
        };
        judge.begin().await?;
        Ok(judge)
    }

    async fn gauges(&self) -> Result<Vec<Gauge>> {
        let mut gauges = Vec::new();
        for replica in self.extension.replicas() {
            gauges.push(Gauge::of(replica.id().await?));
        }
        Ok(gauges)
    }

    /// From now on RSS is compared with its current value.
    async fn begin(&mut self) -> Result<()> {
        self.idle.clear();
        for gauge in self.gauges().await? {
            gauge.forget_peak()?;
            self.idle.push(gauge.resident()?);
        }
        notice(format_args!("RSS of the replicas: {:.1?} MB", self.idle));
        Ok(())
    }

    /// Complains if RSS of a replica was above its limit at any time since then, or since the replica was started.
    async fn limit_peak(&mut self, when: &str, growth: f64) -> Result<()> {
        let limits: Vec<f64> = self.idle.iter().map(|idle| idle + growth).collect();
        self.limit_peaks(when, &limits).await
    }

    async fn limit_peak_to(&mut self, when: &str, limit: f64) -> Result<()> {
        self.limit_peaks(when, &vec![limit; self.idle.len()]).await
    }

    async fn limit_peaks(&mut self, when: &str, limits: &[f64]) -> Result<()> {
        let mut peaks = Vec::new();
        for gauge in self.gauges().await? {
            peaks.push(gauge.peak()?);
        }
        notice(format_args!(
            "while {when}: peak {peaks:.1?} MB, after {:.1?} MB",
            self.idle
        ));
        if peaks.iter().zip(limits).any(|(peak, limit)| peak > limit) {
            self.complaints.push(format!(
                "while {when}, RSS was {peaks:.1?} MB, and may be {limits:.1?} MB"
            ));
        }
        Ok(())
    }

    /// Complains if RSS of a replica is not within its limit soon.
    async fn settles(&mut self, when: &str, growth: f64) -> Result<()> {
        let limits: Vec<f64> = self.idle.iter().map(|idle| idle + growth).collect();
        let gauges = self.gauges().await?;
        let settled = wait::until("memory to be within limits", MINUTE, || async {
            let mut resident = Vec::new();
            for gauge in &gauges {
                resident.push(gauge.resident()?);
            }
            if resident
                .iter()
                .zip(&limits)
                .all(|(resident, limit)| resident <= limit)
            {
                Ok(resident)
            } else {
                wait::not_yet(format!("RSS is {resident:.1?} MB, and may be {limits:.1?} MB"))
            }
        })
        .await;
        if let Ok(resident) = &settled {
            notice(format_args!("while {when}: in the end {resident:.1?} MB"));
        }
        self.note(when, settled.map(drop).map_err(Into::into));
        Ok(())
    }

    fn note(&mut self, when: &str, outcome: Result<()>) {
        if let Err(error) = outcome {
            let complaint = format!("while {when}: {error:#}");
            notice(&complaint);
            self.complaints.push(complaint);
        }
    }

    /// Whether a replica has grown enough to end the phase.
    async fn has_enough(&self) -> Result<bool> {
        for gauge in self.gauges().await? {
            if gauge.peak()? > ENOUGH {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Creates Clusters of a class that does not exist, each of a megabyte, and a ClusterBootstrap of such values. Returns the paths of all.
async fn tenant_creates(scene: &Scene, judge: &Judge<'_>) -> Result<Vec<String>> {
    apply::namespace(&scene.client(), TENANT).await?;
    let mut made = Vec::new();
    for number in 0..CLUSTERS {
        let text = std::fs::read_to_string("/proc/meminfo")?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("MemAvailable:"));
        let available = lines.next().and_then(|value| value.trim().strip_suffix(" kB"));
        let available: u64 = available.context("no MemAvailable in /proc/meminfo")?.parse()?;
        if available < AVAILABLE || judge.has_enough().await? {
            break;
        }
        let path = format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/{TENANT}/clusters");
        create(scene, &path, &large_cluster(number)).await?;
        made.push(format!("{path}/large-{number}"));
    }
    notice(format_args!("the tenant has {} Clusters", made.len()));
    ensure!(
        made.len() >= LEAST || judge.has_enough().await?,
        "only {} Clusters could be made: the machine has too little memory",
        made.len()
    );
    let path = format!("/apis/run.tanzu.vmware.com/v1alpha3/namespaces/{TENANT}/clusterbootstraps");
    let bootstrap = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
        // Of a Cluster, so that Sluice decodes it.
        "metadata": {"name": "large-0", "namespace": TENANT},
        "spec": {"cni": {"refName": "none", "valuesFrom": {"inline": {"a": LARGE}}}},
    });
    create(scene, &path, &with_large(&bootstrap, &dense())).await?;
    made.push(format!("{path}/large-0"));
    Ok(made)
}

async fn create(scene: &Scene, path: &str, text: &str) -> Result<()> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(text.as_bytes().to_vec())?;
    let created = scene.client().request_text(request).await;
    created.map(drop).with_context(|| format!("create in {path}"))
}

/// Deletes the objects of the tenant, and waits for their end.
async fn tenant_leaves(scene: &Scene, made: &[String]) -> Result<()> {
    for path in made {
        scene.objects().delete(path).await?;
    }
    for path in made {
        wait::until(format!("{path} to be gone"), TIMEOUT, || async {
            match scene.objects().get(path).await? {
                None => Ok(()),
                Some(object) => wait::not_yet(&object["status"]["conditions"]),
            }
        })
        .await?;
    }
    scene
        .objects()
        .delete(&format!("/api/v1/namespaces/{TENANT}"))
        .await
}

/// What stands for the large part of an object.
const LARGE: &str = "the large part";

fn with_large(object: &Value, large: &str) -> String {
    object.to_string().replace(&json!(LARGE).to_string(), large)
}

/// 960 KB.
fn dense() -> String {
    format!("[{}]", vec![r#"{"a":0}"#; 120_000].join(","))
}

/// Most have what costs most; there is one each of a long text, of many labels, of many annotations and of 300 levels.
fn large_cluster(number: usize) -> String {
    let name = format!("large-{number}");
    let mut cluster = objects::cluster(TENANT, &name, VERSIONS[1], None, 0);
    cluster["spec"]["topology"]["classRef"]["name"] = json!("none");
    let many = |count: usize| {
        let each = (0..count).map(|number| (format!("label-{number:06}"), json!("a-text-of-some-length")));
        each.collect::<Value>().to_string()
    };
    let (name, large) = match number {
        4 => ("any", json!("x".repeat(960_000)).to_string()),
        5 => {
            cluster["metadata"]["labels"] = json!(LARGE);
            return with_large(&cluster, &many(20_000));
        }
        6 => {
            // The API server takes 256 KiB.
            cluster["metadata"]["annotations"] = json!(LARGE);
            return with_large(&cluster, &many(6_000));
        }
        7 => (
            "any",
            format!("{}{}{}", "[".repeat(300), dense(), "]".repeat(300)),
        ),
        // Sluice reads this one.
        8 | 9 => ("TKR_DATA", dense()),
        _ => ("any", dense()),
    };
    cluster["spec"]["topology"]["variables"] = json!([{"name": name, "value": LARGE}]);
    with_large(&cluster, &large)
}

/// Sends reviews one after the other until `outcome` completes; also returns whether each was answered within a second.
async fn reviews_meanwhile<T>(
    scene: &Scene,
    outcome: impl Future<Output = Result<T>>,
) -> Result<(T, Result<()>)> {
    let before = reviews(scene).await?;
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters?dryRun=All",
        scene.namespace()
    );
    let written = objects::cluster(scene.namespace(), "written", VERSIONS[1], Some("none"), 0).to_string();
    let mut failures = Vec::new();
    tokio::pin!(outcome);
    let outcome = loop {
        tokio::select! {
            outcome = &mut outcome => break outcome?,
            write = create(scene, &path, &written) => failures.extend(write.err()),
        }
    };
    let after = reviews(scene).await?;
    let (all, late) = (after.all - before.all, after.late - before.late);
    notice(format_args!(
        "of {all} reviews of the API server {late} took more than a second"
    ));
    let answered = || {
        if let Some(failure) = failures.first() {
            bail!("{} writes were refused: {failure:#}", failures.len());
        }
        ensure!(
            all > 0.0 && late <= 0.0,
            "of {all} reviews {late} took more than a second"
        );
        Ok(())
    };
    Ok((outcome, answered()))
}

/// Counters of the API server for reviews of Clusters with a release.
struct Reviews {
    all: f64,
    /// Those that took more than a second.
    late: f64,
}

async fn reviews(scene: &Scene) -> Result<Reviews> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let shown = scene.client().request_text(request).await?;
    let sum = |series: &str, label: &str| -> f64 {
        let prefix = format!("apiserver_admission_webhook_admission_duration_seconds_{series}{{");
        let webhook = "name=\"tkr-resolver-cluster-webhook.tanzu.vmware.com\"";
        let lines = shown.lines();
        let lines =
            lines.filter(|line| line.starts_with(&prefix) && line.contains(label) && line.contains(webhook));
        lines
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    };
    let all = sum("count", "");
    Ok(Reviews {
        all,
        late: all - sum("bucket", "le=\"1\""),
    })
}

/// Sends reviews to both replicas, as a Pod does that has no certificate. Returns how often each status was the answer, and 0 for none.
async fn flood(scene: Scene) -> Result<BTreeMap<u16, usize>> {
    let mut pods = Vec::new();
    for replica in scene.world().extension()?.replicas() {
        pods.push(Pod::new(&scene, replica)?);
    }
    let pods = Arc::new(pods);
    let dense = Arc::new(dense_review());
    let mut answers = BTreeMap::new();
    // Reviews that were half sent may have all that the Pod gets, so they come later.
    for half_sent in [0, HALF_SENT] {
        let mut begun = Vec::new();
        for number in 0..half_sent {
            begun.extend(pods[number % pods.len()].sends_half(&dense).await.ok());
        }
        let reviews = (0..REVIEWS).map(|number| {
            let body = if number % 3 == 0 {
                Arc::clone(&dense)
            } else {
                Arc::new(random_review(half_sent * REVIEWS + number))
            };
            let pods = Arc::clone(&pods);
            tokio::spawn(async move { pods[number % pods.len()].posts(&body).await.unwrap_or(0) })
        });
        let statuses: Vec<_> = stream::iter(reviews).buffer_unordered(AT_ONCE).collect().await;
        for status in statuses {
            *answers.entry(status?).or_default() += 1;
        }
    }
    Ok(answers)
}

/// A review of a change that needs to know which versions run.
fn review(name: &str, kind: &Value, variables: &Value) -> Value {
    let cluster = |version: &str| {
        let mut cluster = objects::cluster(TENANT, name, version, Some("none"), 0);
        cluster["metadata"]["annotations"] = json!({RESOLVE: ""});
        cluster["spec"]["controlPlaneRef"] = kind.clone();
        cluster["spec"]["topology"]["variables"] = variables.clone();
        cluster
    };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-0000-0000-000000000000",
            "kind": {"group": "cluster.x-k8s.io", "version": "v1beta2", "kind": "Cluster"},
            "resource": {"group": "cluster.x-k8s.io", "version": "v1beta2", "resource": "clusters"},
            "operation": "UPDATE", "namespace": TENANT, "name": name,
            "object": cluster(VERSIONS[2]), "oldObject": cluster(VERSIONS[1]),
        },
    })
}

/// Of two megabytes.
fn dense_review() -> String {
    let kind = json!({"apiGroup": "harness.test", "kind": "None", "name": "none"});
    let variables = json!([{"name": "TKR_DATA", "value": LARGE}]);
    with_large(&review("dense", &kind, &variables), &dense())
}

/// References a Cluster and a kind that do not exist.
fn random_review(number: usize) -> String {
    let name = format!("random-{number}");
    let kind =
        json!({"apiGroup": format!("g{number}.example.com"), "kind": format!("Kind{number}"), "name": name});
    review(&name, &kind, &json!([])).to_string()
}

/// A caller of one replica that is not the API server.
struct Pod {
    connector: TlsConnector,
    to: SocketAddr,
}

impl Pod {
    /// Timeout of a response.
    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Its address. That of the API server is another one.
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

    fn new(scene: &Scene, replica: &Replica) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        let authority = scene.world().stack().management().pki().ca();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let url = replica.admission_url();
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            to: url.trim_start_matches("https://").parse()?,
        })
    }

    /// Sends the head of a review and so much of its body.
    async fn sends(&self, body: &str, sent: usize) -> Result<TlsStream<tokio::net::TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Self::ADDRESS, 0).into())?;
        let tcp = socket.connect(self.to).await?;
        let mut stream = self
            .connector
            .connect(ServerName::try_from("localhost")?, tcp)
            .await?;
        let head = format!(
            "POST /mutate-cluster HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body.as_bytes()[..sent]).await?;
        stream.flush().await?;
        Ok(stream)
    }

    /// The connection of a review of which only a half was sent.
    async fn sends_half(&self, body: &str) -> Result<TlsStream<tokio::net::TcpStream>> {
        timeout(Self::TIMEOUT, self.sends(body, body.len() / 2)).await?
    }

    /// The status of the answer.
    async fn posts(&self, body: &str) -> Result<u16> {
        let exchange = async {
            let mut stream = self.sends(body, body.len()).await?;
            let mut head = [0; 12];
            stream.read_exact(&mut head).await?;
            let status = std::str::from_utf8(&head)?.split(' ').nth(1);
            let status: u16 = status.context("an answer without status")?.parse()?;
            // Its end may come without a word of TLS.
            let _end = stream.read_to_end(&mut Vec::new()).await;
            Ok(status)
        };
        timeout(Self::TIMEOUT, exchange).await?
    }
}
