//! A leader that was stopped for longer than its lease goes on where it stood, and a write that it had sent arrives late.

use anyhow::{Context as _, Result, ensure};
use axum::serve::Listener as _;
use futures::FutureExt as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use sluice_crds::foreign::PackageInstall;
use sluice_tests::observer::{Event, Revision};
use sluice_tests::processes::tls::Tls;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::wait;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::common::{additional, held, metrics, released, releases};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "frozen-leader",
        "the leader is stopped with a write on its way, another one proves a newer edit, then the write arrives: nothing is reverted, and the old leader ends",
        |scene| Box::pin(frozen(scene)),
    )
    .own_stack()
}

async fn frozen(scene: Scene) -> Result<()> {
    let (old, new) = releases(&scene).await?;
    let (first, second) = (metrics(&scene, "2.0.1"), metrics(&scene, "2.0.2"));
    scene.apply(&[first.package(), second.package()]).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;
    let before = held(&cluster, &new).await?;

    let admission = Admission::of_version(&cluster, "2.0.1").await?;
    refer(&cluster, first.name()).await?;
    let on_its_way = admission.holds_one().await?;
    let extension = scene.world().extension()?;
    let leader = extension.leader().await?;
    leader.freeze().await?;
    let proven = overtaken(&cluster, second.name(), before, on_its_way).await;
    let ended = extension.thaw(leader).await?;
    let proven = proven?;
    ensure!(
        ended.is_some_and(|status| !status.success()),
        "a leader that lost its lease ended with {ended:?}"
    );
    is_not_reverted(&scene, &cluster, proven).await?;
    released(&cluster, &new, before).await?;
    is_not_reverted(&scene, &cluster, proven).await
}

/// Returns once another leader has proven `newer` while the write is on its way.
async fn overtaken(
    cluster: &Cluster,
    newer: String,
    before: Revision,
    on_its_way: OnItsWay,
) -> Result<Revision> {
    refer(cluster, newer).await?;
    let proven = cluster
        .milestone("metrics 2.0.2 to be proven", TIMEOUT, before, |event| {
            matches!(event, Event::PackageProven { ref_name, version }
                if ref_name.starts_with("metrics.") && version == "2.0.2")
        })
        .await?
        .revision;
    on_its_way.goes_on()?;
    Ok(proven)
}

/// An admission webhook that the API server of a workload asks about PackageInstalls of one version, and that never answers.
struct Admission(Tls);

impl Admission {
    async fn of_version(cluster: &Cluster, version: &str) -> Result<Self> {
        let workload = cluster.workload()?;
        let pki = workload.api.pki();
        // API servers give up a connection without TLS earlier than a webhook.
        let mut listener = Tls::bind(&pki.server_certificate()?, &[]).await?;
        let webhook = json!({
            "metadata": {"name": "late"},
            "webhooks": [{
                "name": "late.sluice.example",
                "clientConfig": {
                    "url": format!("https://{}/", listener.local_addr()?),
                    "caBundle": pki.ca_bundle(),
                },
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
        is_asked(&mut listener, &client, version).await?;
        Ok(Self(listener))
    }

    /// Returns once the API server asks, so that a write of that version is neither stored nor refused yet.
    async fn holds_one(mut self) -> Result<OnItsWay> {
        let (asked, _) = timeout(TIMEOUT, self.0.accept())
            .await
            .context("the API server asked about no write of that version")?;
        Ok(OnItsWay {
            asked,
            _listener: self.0,
        })
    }
}

/// Waits until the API server asks, tried with writes that it does not store.
async fn is_asked(listener: &mut Tls, client: &Client, version: &str) -> Result<()> {
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
    let trying = wait::until("a call of the admission webhook", TIMEOUT, || async {
        let tried = installs.create(&params, &install).await;
        wait::not_yet(format!("{tried:?}"))
    });
    tokio::select! {
        _ = listener.accept() => Ok(()),
        never = trying => Ok(never?),
    }
}

/// A write that the API server has received and not stored.
struct OnItsWay {
    asked: TlsStream<TcpStream>,
    _listener: Tls,
}

impl OnItsWay {
    /// The API server stops waiting for an answer. Fails if it already had.
    fn goes_on(mut self) -> Result<()> {
        let mut question = [0; 4096];
        while let Some(read) = self.asked.read(&mut question).now_or_never() {
            ensure!(read? > 0, "the write arrived before the newer one was proven");
        }
        Ok(())
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
