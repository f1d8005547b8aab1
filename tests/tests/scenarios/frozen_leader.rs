//! A leader that was stopped for longer than its lease goes on where it stood, and a write that it had sent arrives late.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use sluice_crds::foreign::PackageInstall;
use sluice_tests::extension::{Extension, Settings};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::scenario::{Cluster, PATIENCE, Scenario, Scene};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::wait::{self, Unmet};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::common::{additional, held, metrics, released, releases};

/// How soon a leader that lost its lease has to end.
const END: Duration = Duration::from_secs(10);

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "frozen-leader",
        "the leader is stopped with a write on its way, another one proves a newer edit, then the write arrives: nothing is reverted, and the old leader ends",
        |scene| Box::pin(run(scene)),
    )
    .alone()
    .long()
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/sluice-system/leases/sluice-leader";

fn election() -> Vec<String> {
    [
        "--leader-elect",
        "--leader-elect-lease-duration=6s",
        "--leader-elect-renew-deadline=4s",
        "--leader-elect-retry-period=1s",
    ]
    .map(str::to_owned)
    .into()
}

async fn run(scene: Scene) -> Result<()> {
    // The one that is stopped takes the lease; the one that Cluster API asks stands by and answers from its own memory.
    let standby = scene.world().extension()?;
    standby.kill().await?;
    // Another scenario may have left a lease that is held for an hour; there may be none.
    let _absent = scene.objects().delete(LEASE).await;
    let settings = Settings {
        arguments: election(),
        ..Settings::new("sluice-frozen")
    };
    let leader = Extension::start(scene.world().stack(), settings).await?;
    standby.set_arguments(election());
    standby.restart().await?;
    let outcome = frozen(&scene, &leader).await;
    leader.kill().await?;
    standby.set_arguments(Vec::new());
    standby.restart().await?;
    outcome
}

async fn frozen(scene: &Scene, leader: &Extension) -> Result<()> {
    let (old, new) = releases(scene).await?;
    let (first, second) = (metrics(scene, "2.0.1"), metrics(scene, "2.0.2"));
    scene.apply(&[first.package(), second.package()]).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;

    let admission = Admission::of_version(&cluster, "2.0.1").await?;
    refer(&cluster, first.name()).await?;
    let on_its_way = admission.holds_one().await?;
    leader.freeze().await?;
    refer(&cluster, second.name()).await?;
    let proven = cluster
        .milestone("metrics 2.0.2 to be proven", PATIENCE, before, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name.starts_with("metrics.") && version == "2.0.2")
        })
        .await?
        .revision;
    on_its_way.goes_on()?;
    let status = leader.thaw(END).await?;
    ensure!(
        !status.success(),
        "a leader that lost its lease ended with {status}"
    );
    is_not_reverted(scene, &cluster, proven).await?;
    released(&cluster, &new, before).await?;
    is_not_reverted(scene, &cluster, proven).await
}

/// An admission webhook that the API server of a workload asks about PackageInstalls of one version, and that never answers.
struct Admission(TcpListener);

impl Admission {
    async fn of_version(cluster: &Cluster, version: &str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let webhook = json!({
            "metadata": {"name": "late"},
            "webhooks": [{
                "name": "late.sluice.example",
                "clientConfig": {"url": format!("https://{}/", listener.local_addr()?)},
                "rules": [{
                    "apiGroups": ["packaging.carvel.dev"],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["packageinstalls"],
                }],
                "matchConditions": [{
                    "name": "version",
                    "expression": format!("object.spec.packageRef.versionSelection.constraints == '{version}'"),
                }],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                // Without an answer the write goes on, after the longest time that an API server allows.
                "failurePolicy": "Ignore",
                "timeoutSeconds": 30,
            }],
        });
        let client = cluster.workload()?.api.admin_client();
        Api::<ValidatingWebhookConfiguration>::all(client.clone())
            .create(&PostParams::default(), &serde_json::from_value(webhook)?)
            .await?;
        wait::until("the admission webhook to be asked", PATIENCE, || {
            is_asked(&listener, &client, version)
        })
        .await?;
        Ok(Self(listener))
    }

    /// Returns once the API server asks, so that a write of that version is neither stored nor refused yet.
    async fn holds_one(self) -> Result<OnItsWay> {
        let (asked, _) = timeout(PATIENCE, self.0.accept())
            .await
            .context("the API server asked about no write of that version")??;
        Ok(OnItsWay {
            asked,
            _listener: self.0,
        })
    }
}

/// Ends well if the API server asks already, tried with a write that it does not store.
async fn is_asked(listener: &TcpListener, client: &Client, version: &str) -> Result<(), Unmet> {
    let install = json!({
        "metadata": {"name": "tried"},
        "spec": {"packageRef": {"refName": "tried", "versionSelection": {"constraints": version}}},
    });
    let install: PackageInstall = serde_json::from_value(install)?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let installs = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    tokio::select! {
        asked = listener.accept() => asked.map(drop).map_err(Unmet::from),
        tried = installs.create(&params, &install) => wait::not_yet(format!("{tried:?}")),
    }
}

/// A write that the API server has received and not stored.
struct OnItsWay {
    asked: TcpStream,
    _listener: TcpListener,
}

impl OnItsWay {
    /// The API server stops waiting for an answer. Fails if it already had.
    fn goes_on(self) -> Result<()> {
        let mut question = [0; 4096];
        loop {
            match self.asked.try_read(&mut question) {
                Ok(0) => anyhow::bail!("the write arrived before the newer one was proven"),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn refer(cluster: &Cluster, name: String) -> Result<()> {
    let patch = additional(cluster, |package| package["refName"] = json!(name)).await?;
    cluster.patch_bootstrap(&patch).await?;
    Ok(())
}

async fn is_not_reverted(scene: &Scene, cluster: &Cluster, proven: Revision) -> Result<()> {
    scene.world().observer().catch_up().await?;
    let reverted = cluster.milestones().into_iter().find(|milestone| {
        milestone.revision > proven
            && matches!(&milestone.event, Event::PackageWorking { ref_name, version } if ref_name.starts_with("metrics.") && version != "2.0.2")
    });
    ensure!(
        reverted.is_none(),
        "after metrics 2.0.2 was proven at {proven}: {reverted:?}"
    );
    Ok(())
}
