//! Sluice in the file system of its image, and an upgrade by the commands of docs/install.md.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::{Extension, Image};
use sluice_tests::install::{Guide, Shell};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{EXTENSION_CONFIG, is_held, releases};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "image",
        "replicas in the read-only file system of the image, as user 65532, hold and release an upgrade that docs/install.md's commands begin",
        |scene| Box::pin(run(scene)),
    )
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let stack = scene.world().stack();
    let extension = scene.world().extension()?;
    let image = Image::build(stack.core()).await?;
    let upgraded = upgrade(&scene, extension, &image).await;
    // For other scenarios of the stack.
    let restarted = extension.restart_in(None).await;
    upgraded.and(restarted)
}

async fn upgrade(scene: &Scene, extension: &Extension, image: &Image) -> Result<()> {
    let management = scene.world().stack().management();
    let shell = Shell::open(
        scene.world().stack().core(),
        "home-image",
        &management.admin_kubeconfig(),
    )
    .await?;
    let guide = Guide::read()?;
    extension.kill().await?;
    // Otherwise the condition would be of the replicas from before.
    shell.run(&guide.commands("look again")?, &[]).await?.well()?;
    extension.discovered_is("sluice", "False", "").await?;
    extension.restart_in(Some(image)).await?;
    shell.run(&guide.commands("discovered")?, &[]).await?.well()?;
    for replica in extension.replicas() {
        is_in(image, replica.id().await?)?;
    }
    let (old, new) = releases(scene).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;

    let names = [old.name(), new.name(), cluster.name().to_owned()];
    let of_cluster = [
        ("NAMESPACE", scene.namespace()),
        ("CLUSTER", cluster.name()),
        ("RELEASE", &names[1]),
        ("VERSION", new.kubernetes()),
    ];
    let run = async |commands: &str| -> Result<String> {
        let said = shell.run(&guide.commands(commands)?, &of_cluster).await?;
        said.well().with_context(|| commands.to_owned())
    };
    let seen = run("look").await?;
    ensure!(
        names.iter().all(|name| seen.contains(name)),
        "kubectl shows {seen}"
    );
    let before = scene.world().observer().catch_up().await?;
    run("upgrade a Cluster").await?;
    is_held(&cluster, &new, before).await?;
    let seen = run("see the hold").await?;
    ensure!(seen.contains("antrea"), "the pending package is not in {seen}");
    cluster.delay("antrea", Delay::NONE);
    cluster.is_settled(TIMEOUT).await?;
    cluster
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    for replica in extension.replicas() {
        is_in(image, replica.id().await?)?;
    }
    let trusted = scene.objects().get(EXTENSION_CONFIG).await?.unwrap_or_default();
    let trusted = &trusted["spec"]["clientConfig"]["caBundle"];
    let other = cluster.workload()?.api.pki().ca_bundle();
    let trust = async |authority: &Value| {
        let patch = json!({"spec": {"clientConfig": {"caBundle": authority}}});
        scene.objects().merge(EXTENSION_CONFIG, &patch).await
    };
    leader_reports(extension, 1, "has discovered the hooks of ExtensionConfig sluice").await?;
    trust(&json!(other)).await?;
    let distrusted = async {
        extension.discovered_is("sluice", "False", "x509").await?;
        leader_reports(
            extension,
            0,
            "has not discovered the hooks of ExtensionConfig sluice",
        )
        .await
    };
    let distrusted = distrusted.await;
    trust(trusted).await?;
    distrusted?;
    run("discovered").await.map(drop)
}

/// Waits until the metric and the log of the leader report whether Cluster API has discovered the hooks.
async fn leader_reports(extension: &Extension, discovered: u8, text: &str) -> Result<()> {
    let line = format!("sluice_extension_config_discovered{{extension_config=\"sluice\"}} {discovered}\n");
    let leader = extension.leader().await?;
    let what = format!("the leader to show {line} and to log {text:?}");
    wait::until(what, TIMEOUT, || async {
        let (shown, logged) = (
            leader.metrics().await?.contains(&line),
            fs::read_to_string(leader.log())?.contains(text),
        );
        if shown && logged {
            Ok(())
        } else {
            wait::not_yet(format!("shown: {shown}, logged: {logged}"))
        }
    })
    .await?;
    Ok(())
}

/// The process sees the image and nothing else, cannot write there, and has the user of the manifests and no capability.
fn is_in(image: &Image, process: u32) -> Result<()> {
    let proc = |file: &str| format!("/proc/{process}/{file}");
    let root = fs::read_link(proc("root")).context("the root of a replica")?;
    ensure!(root == image.directory(), "its root is {}", root.display());
    let mounts = fs::read_to_string(proc("mountinfo")).context("the mounts of a replica")?;
    let options = mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields.get(4) == Some(&"/")).then(|| fields.get(5).copied().unwrap_or_default().to_owned())
    });
    let options = options.with_context(|| format!("no mount of / in {mounts}"))?;
    ensure!(
        options.split(',').any(|option| option == "ro"),
        "/ is mounted {options}"
    );
    let status = fs::read_to_string(proc("status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_whitespace().collect::<Vec<_>>()
    };
    if let Some(user) = image.user() {
        let user = user.to_string();
        ensure!(
            field("Uid:").iter().chain(&field("Gid:")).all(|id| **id == user),
            "{status}"
        );
        ensure!(field("CapEff:") == ["0000000000000000"], "{status}");
    } else {
        tracing::warn!(
            "an ordinary user cannot become another one: user and capabilities of the image are not checked"
        );
    }
    Ok(())
}
