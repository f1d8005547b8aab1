//! The commands of docs/gitops.md, run as they stand there.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::install::{Guide, Said, Shell};
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::objects::{Class, Release, TKR, Values};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::wait;

use crate::common::{given, is_completed, proven_before_written, shell};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "gitops",
        "kubectl applies a partial ClusterBootstrap and a Cluster with a version prefix as one file: they get the pinned release, and the same file changes nothing, also after a day-2 edit and an upgrade",
        |scene| Box::pin(run(scene)),
    )
}

pub(crate) fn cluster_first() -> Scenario {
    Scenario::new(
        "gitops-cluster-first",
        "a Cluster that waits for its ClusterBootstrap is resolved to the newest release, and moved to the one that its ClusterBootstrap pins",
        |scene| Box::pin(run_cluster_first(scene)),
    )
}

/// The page, and a shell with its file.
struct Page {
    guide: Guide,
    shell: Shell,
}

impl Page {
    async fn open(scene: &Scene, home: &str) -> Result<Self> {
        Ok(Self {
            guide: Guide::page("docs/gitops.md")?,
            shell: shell(scene, home).await?,
        })
    }

    async fn run(&self, commands: &str, variables: &[(&str, &str)]) -> Result<Said> {
        let commands = format!("cd\n{}", self.guide.commands(commands)?);
        self.shell.run(&commands, variables).await
    }
}

/// A release with the packages of the file, whose template lacks fluent-bit.
fn release(scene: &Scene, kubernetes: &str, build: u32, version: &str) -> Result<Release> {
    let release = Release::new(
        kubernetes,
        format!("{}.{build}", scene.namespace()),
        scene.kapp_controller(version)?,
        scene.package("antrea", version),
    );
    Ok(release
        .additional(scene.package("metrics-server", version))
        .additional(scene.package("tkg-storageclass", version))
        .lists(fluent_bit(scene, version))
        .values("metrics-server", Values::Secret(json!({"replicas": 1}))))
}

fn fluent_bit(scene: &Scene, version: &str) -> TestPackage {
    scene.package("fluent-bit", version)
}

async fn run(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[1], 1, "1.0.0")?;
    let newer = release(&scene, VERSIONS[1], 2, "1.1.0")?;
    let new = release(&scene, VERSIONS[2], 3, "2.0.0")?;
    for release in [&old, &newer, &new] {
        scene.publish(release).await?;
    }
    let webhooks = format!("addons-sluice-{}", scene.namespace());
    let extension = scene.world().extension()?;
    extension.admit(&webhooks, &[scene.namespace()]).await?;
    let page = Page::open(&scene, "home-gitops").await?;
    let cluster = created(&scene, &page, &old).await?;
    changes_nothing(&page, &cluster).await?;

    page.run("edit", &[]).await?.well()?;
    let shown = page.run("see the edit", &[]).await?;
    let package = fluent_bit(&scene, "1.0.0");
    ensure!(
        !shown.succeeded && shown.output.contains(&package.name()),
        "kubectl diff shows {}{}",
        shown.output,
        shown.errors
    );
    page.run("apply the edit", &[]).await?.well()?;
    let old = old.additional(package);
    wait::until("the edit to be deployed", TIMEOUT, || async {
        is_edited(&cluster, &old).await.map_err(Into::into)
    })
    .await?;
    is_at_rest(&cluster).await?;

    let before = scene.world().observer().catch_up().await?;
    let version = prefix(&scene, &new);
    page.run("upgrade", &[("VERSION", version.as_str())])
        .await?
        .well()?;
    let new = new.additional(fluent_bit(&scene, "2.0.0"));
    proven_before_written(&cluster, &new, before).await?;
    is_at_rest(&cluster).await?;
    is_of(&cluster, &new).await?;
    is_edited(&cluster, &new).await?;
    changes_nothing(&page, &cluster).await?;
    unregister(&scene.client(), &webhooks).await
}

async fn run_cluster_first(scene: Scene) -> Result<()> {
    let pinned = release(&scene, VERSIONS[1], 1, "1.0.0")?;
    let newer = release(&scene, VERSIONS[1], 2, "1.1.0")?;
    scene.publish(&pinned).await?;
    scene.publish(&newer).await?;
    let webhooks = format!("addons-sluice-{}", scene.namespace());
    let extension = scene.world().extension()?;
    extension.admit(&webhooks, &[scene.namespace()]).await?;
    let page = Page::open(&scene, "home-gitops-cluster-first").await?;
    written_bootstrap(&scene, &page, &pinned).await?;
    page.shell.run("cd\nrm edge-1.yaml", &[]).await?.well()?;

    let version = prefix(&scene, &pinned);
    let variables = [("VERSION", version.as_str()), ("CLASS", Class::name())];
    page.run("write a Cluster", &variables).await?.well()?;
    let waits = r#"sed -i '/resolve-tkr/a\    tkg.tanzu.vmware.com/custom-clusterbootstrap: ""' edge-1.yaml"#;
    page.shell.run(&format!("cd\n{waits}"), &[]).await?.well()?;
    let shown = page.run("apply", &[]).await?.well()?;
    ensure!(shown.contains(&newer.name()), "kubectl shows {shown}");
    written_bootstrap(&scene, &page, &pinned).await?;
    page.run("apply", &[]).await?.well()?;

    let cluster = scene.cluster("edge-1").existing();
    cluster.packages_proven(&pinned, 0, TIMEOUT).await?;
    is_at_rest(&cluster).await?;
    is_of(&cluster, &pinned).await?;
    unregister(&scene.client(), &webhooks).await
}

/// A prefix of the version of a release, which releases of other scenarios do not have.
fn prefix(scene: &Scene, release: &Release) -> String {
    format!("{}+{}", release.kubernetes(), scene.namespace())
}

/// Writes the file of a ClusterBootstrap, and waits until the webhooks complete it.
async fn written_bootstrap(scene: &Scene, page: &Page, release: &Release) -> Result<()> {
    let name = release.name();
    page.run("write a ClusterBootstrap", &[("RELEASE", name.as_str())])
        .await?
        .well()?;
    // The API server calls the webhooks only some time after their registration.
    let antrea = scene.package("antrea", "1.0.0").name();
    wait::until("a dry run to show the release's CNI", TIMEOUT, || async {
        let said = page.run("see the completion", &[]).await?;
        if said.succeeded && said.output.contains(&antrea) {
            Ok(())
        } else {
            wait::not_yet(said.output + &said.errors)
        }
    })
    .await?;
    Ok(())
}

/// Applies the file, and returns the Cluster once it has all packages of its release.
async fn created(scene: &Scene, page: &Page, release: &Release) -> Result<Cluster> {
    written_bootstrap(scene, page, release).await?;
    let (name, version) = (release.name(), prefix(scene, release));
    let variables = [("VERSION", version.as_str()), ("CLASS", Class::name())];
    page.run("write a Cluster", &variables).await?.well()?;
    let shown = page.run("apply", &[]).await?.well()?;
    ensure!(shown.contains(&name), "kubectl shows {shown}");

    let cluster = scene.cluster("edge-1").existing();
    cluster.packages_proven(release, 0, TIMEOUT).await?;
    is_at_rest(&cluster).await?;
    is_of(&cluster, release).await?;
    let packages = cluster.bootstrap().await?["spec"]["additionalPackages"].take();
    let file = json!([
        {
            "refName": scene.package("metrics-server", "1.0.0").name(),
            "valuesFrom": {"secretRef": "edge-1-metrics-server-package"},
        },
        {
            "refName": scene.package("tkg-storageclass", "1.0.0").name(),
            "valuesFrom": {"inline": {"reclaimPolicy": "Delete"}},
        },
    ]);
    ensure!(packages == file, "the additional packages are {packages}");
    Ok(cluster)
}

async fn is_at_rest(cluster: &Cluster) -> Result<()> {
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    is_completed(cluster).await
}

/// Label and version of the Cluster are those of this release.
async fn is_of(cluster: &Cluster, release: &Release) -> Result<()> {
    let object = cluster.object().await?;
    let label = &object["metadata"]["labels"][TKR];
    let version = &object["spec"]["topology"]["version"];
    ensure!(
        *label == release.name() && *version == release.kubernetes(),
        "the Cluster is of {label} with version {version}"
    );
    Ok(())
}

/// The packages run as the day-2 edit of the file requires.
async fn is_edited(cluster: &Cluster, release: &Release) -> Result<()> {
    let values = given(cluster, release, "tkg-storageclass").await?;
    ensure!(
        values == json!({"reclaimPolicy": "Retain"}),
        "tkg-storageclass runs with {values}"
    );
    given(cluster, release, "fluent-bit").await.map(drop)
}

/// Applies the same file in every way. Spec and generation of its objects stay.
async fn changes_nothing(page: &Page, cluster: &Cluster) -> Result<()> {
    let before = written(cluster).await?;
    page.run("apply again", &[]).await?.well()?;
    let after = written(cluster).await?;
    ensure!(
        before == after,
        "the same file changes {} to {}",
        json!(before),
        json!(after)
    );
    Ok(())
}

/// Spec and generation of the ClusterBootstrap and of the Cluster.
async fn written(cluster: &Cluster) -> Result<[Value; 2]> {
    let objects = [cluster.bootstrap().await?, cluster.object().await?];
    Ok(objects.map(|object| json!({"generation": object["metadata"]["generation"], "spec": object["spec"]})))
}
