//! Two minors in one bump of a Cluster whose class lists no versions: Sluice plans the steps.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::components::ClusterApiRelease;
use sluice_tests::install::Shell;
use sluice_tests::objects::{Class, Release};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::chained::Upgrade;
use crate::common::{is_held, release, shell};
use crate::missing_things::gate_names;
use crate::plan::planned;

/// Handler of Sluice, with the name of its ExtensionConfig.
const HANDLER: &str = "generate-upgrade-plan.sluice";

/// Part of the message while the minor version between has no release.
const NO_RELEASE: &str = "no TanzuKubernetesRelease is for Kubernetes 1.35";

/// A later patch version of the step between. No control plane takes it, so there is no API server of it.
const LATER: &str = "v1.35.5";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "planned-by-sluice",
        "two minors in one bump without a list in the class: held before the first write until the version between has a release, and not changed by a later patch release; the workers follow once",
        |scene| Box::pin(run(scene, NO_RELEASE)),
    )
    .class(class())
    // The newest release of the step between is taken: others would be newer.
    .own_stack()
}

pub(crate) fn v1_13() -> Scenario {
    Scenario::new(
        "planned-by-sluice-1-13",
        "the same under Cluster API 1.13, which shows neither the steps nor the message of a failure",
        |scene| Box::pin(run(scene, HANDLER)),
    )
    .class(class())
    .cluster_api(ClusterApiRelease::V1_13)
}

fn class() -> Class {
    Class {
        upgrade_plan: Some(HANDLER.to_owned()),
        ..Class::default()
    }
}

/// `failure` is part of condition TopologyReconciled while the version between has no release.
async fn run(scene: Scene, failure: &str) -> Result<()> {
    let releases = [
        release(&scene, VERSIONS[0], "1.0.0", Delay::NONE)?,
        release(&scene, VERSIONS[1], "2.0.0", Delay::Never)?,
        release(&scene, VERSIONS[2], "3.0.0", Delay::NONE)?,
    ];
    for release in &releases {
        scene.publish(release).await?;
    }
    let [old, between, new] = &releases;
    let cluster = scene.cluster("one").workers(1).create_settled(old).await?;
    let user = shell(&scene, "home-planned").await?;
    verb_shows_hops(&user, &scene, between, new).await?;

    withdraw(&cluster, between).await?;
    let before = is_held_without(&cluster, new, failure).await?;
    verb_names_minor(&user, &scene).await?;

    scene.publish(between).await?;
    is_held(&cluster, between, before).await?;
    is_kept(&cluster).await?;
    cluster.delay("antrea", Delay::NONE);
    let upgrade = Upgrade {
        cluster,
        releases,
        before,
    };
    upgrade.workers_follow().await?;
    took_each_once(&upgrade.cluster, before)
}

/// Before the upgrade the verb lists the steps that Sluice will plan.
async fn verb_shows_hops(user: &Shell, scene: &Scene, between: &Release, new: &Release) -> Result<()> {
    let (code, plan) = planned(user, scene, &format!("one --to {}", new.name())).await?;
    let hops = plan["hops"].as_array().into_iter().flatten();
    let shown: Vec<Value> = hops
        .map(|hop| json!([hop["version"], hop["release"], hop["workers"]]))
        .collect();
    let wanted = [
        json!([between.kubernetes(), between.name(), false]),
        json!([new.kubernetes(), new.name(), true]),
    ];
    ensure!(
        code == Some(0) && plan["verdict"] == "ready" && shown == wanted,
        "exit code {code:?}: {plan}"
    );
    Ok(())
}

/// Deletes the only release of the version between. All replicas know of it before Cluster API can ask them: it keeps an answer with steps.
async fn withdraw(cluster: &Cluster, between: &Release) -> Result<()> {
    let path = format!("{}/{}", Release::PATH, between.name());
    cluster.scene().objects().delete(&path).await?;
    replicas_answer(cluster, &cluster.object().await?, Err(NO_RELEASE)).await
}

/// Upgrades over the version without a release: nothing is written. Returns the revision from before.
async fn is_held_without(cluster: &Cluster, new: &Release, failure: &str) -> Result<Revision> {
    let written = async || -> Result<_> {
        let spec = cluster.bootstrap().await?["spec"].take();
        Ok((spec, cluster.installs().await?))
    };
    let at_rest = written().await?;
    let before = cluster.upgrade(new).await?;
    cluster.says(failure, TIMEOUT).await?;
    gate_names(cluster, "NoTKRForHop", NO_RELEASE).await?;
    cluster.control_plane_is_untouched(before).await?;
    let held = written().await?;
    ensure!(held == at_rest, "{held:?}, before the upgrade {at_rest:?}");
    Ok(before)
}

/// The verb names the minor version with the reason of the gate.
async fn verb_names_minor(user: &Shell, scene: &Scene) -> Result<()> {
    let (code, plan) = planned(user, scene, "one").await?;
    let mut findings = plan["findings"].as_array().into_iter().flatten();
    let is_named = findings.any(|finding| {
        let message = finding["message"].as_str().unwrap_or_default();
        finding["reason"] == "NoTKRForHop" && message.contains(NO_RELEASE)
    });
    ensure!(code == Some(3) && is_named, "exit code {code:?}: {plan}");
    Ok(())
}

/// Publishes a later patch release in mid-hold. Other upgrades take it, and this one does not, even if Cluster API asks again.
async fn is_kept(cluster: &Cluster) -> Result<()> {
    let scene = cluster.scene();
    scene
        .publish(&release(scene, LATER, "2.1.0", Delay::NONE)?)
        .await?;
    let object = cluster.object().await?;
    let mut other = object.clone();
    other["metadata"]["name"] = json!("other");
    other["metadata"]["uid"] = json!("other");
    replicas_answer(cluster, &other, Ok(&[LATER, VERSIONS[2]])).await?;
    replicas_answer(cluster, &object, Ok(&VERSIONS[1..])).await?;
    // It has forgotten the answer that it would have kept for ten minutes.
    scene.world().stack().cluster_api().restart().await
}

/// Waits until each replica answers GenerateUpgradePlan about `object` with these steps, or with a failure that names a cause.
async fn replicas_answer(cluster: &Cluster, object: &Value, wanted: Result<&[&str], &str>) -> Result<()> {
    let versions = json!({
        "fromControlPlaneKubernetesVersion": VERSIONS[0],
        "fromWorkersKubernetesVersion": VERSIONS[0],
        "toKubernetesVersion": VERSIONS[2],
    });
    for replica in cluster.scene().world().extension()?.replicas() {
        let what = format!("a replica to answer GenerateUpgradePlan with {wanted:?}");
        wait::until(what, TIMEOUT, || async {
            let reply = replica.ask("GenerateUpgradePlan", object, &versions).await?;
            let is_wanted = match wanted {
                Ok(steps) => reply.status == "Success" && reply.steps() == steps,
                Err(cause) => reply.status == "Failure" && reply.message.contains(cause),
            };
            if is_wanted {
                Ok(())
            } else {
                wait::not_yet(format!("{reply:?}"))
            }
        })
        .await?;
    }
    Ok(())
}

/// The control plane took each step once, and the workers only the last one.
fn took_each_once(cluster: &Cluster, before: Revision) -> Result<()> {
    let (mut control_plane, mut workers) = (Vec::new(), Vec::new());
    for milestone in cluster.milestones() {
        match milestone.event {
            Event::ControlPlaneWritten { version } if milestone.revision > before => {
                control_plane.push(version);
            }
            Event::WorkersWritten { version, .. } if milestone.revision > before => workers.push(version),
            _ => {}
        }
    }
    ensure!(
        control_plane == VERSIONS[1..] && workers == [VERSIONS[2]],
        "the control plane took {control_plane:?}, the workers {workers:?}"
    );
    Ok(())
}
