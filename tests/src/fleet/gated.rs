//! Memory of gated clusters in a leader with gates only: between upgrades, and while a gate holds their upgrade.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bed::Bed;
use super::bump::{hot_numbers, upgrade};
use super::command::say;
use super::kinds::{GATE, UPGRADE};
use super::measure::{Setup, gates_leader};
use super::objects::Objects;
use super::seed::Forms;
use super::{MINORS, NAMESPACE, name};
use crate::extension::Replica;
use crate::objects::{Check, Gate};
use crate::processes::gauge::Gauge;
use crate::wait;

/// Checks of the gate, each of a DaemonSet of its own.
const CHECKS: usize = 10;

/// How long clusters rest before their memory is measured during an upgrade.
const REST: Duration = Duration::from_secs(30);

/// Timeout until Sluice has judged all clusters.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Versions of the image at both minor versions. The DaemonSets stay at the first one.
const IMAGES: [&str; 2] = ["v1.0.0", "v2.0.0"];

/// Measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) kib_per_gated_cluster: f64,
    pub(super) kib_per_hot_gated_cluster: Option<f64>,
}

/// Installs the checked DaemonSets in a cluster.
pub(super) fn install(bed: &Bed, cluster: &str) {
    for number in 0..CHECKS {
        let path = format!(
            "/apis/apps/v1/namespaces/kube-system/daemonsets/{}",
            agent(number)
        );
        bed.workloads.write(cluster, &path, daemon_set(number));
    }
}

/// Measures with this number of clusters, which are there, and then with so many more that are upgraded. Afterwards gate, ClusterUpgrades
/// and upgraded clusters are gone, whatever came of it.
pub(super) async fn measure(
    bed: &Bed,
    forms: &Forms,
    (clusters, hot): (u32, u32),
    setup: &Setup,
) -> Result<Figures> {
    let (leader, hot) = (
        gates_leader(bed, "gates", setup.sync_period).await?,
        hot_numbers(hot),
    );
    let outcome = measured(bed, &leader, forms, (clusters, hot.as_slice()), setup.rest).await;
    leader.kill().await?;
    let objects = bed.objects();
    for kind in [GATE, UPGRADE] {
        objects.delete_all(kind).await?;
    }
    if !hot.is_empty() {
        bed.store()?.delete(&forms.cold, &bed.workloads, &hot, 5).await?;
        for number in hot {
            bed.workloads.contents().forget(&name(number));
        }
    }
    outcome
}

async fn measured(
    bed: &Bed,
    leader: &Replica,
    forms: &Forms,
    (clusters, hot): (u32, &[u32]),
    rest: Duration,
) -> Result<Figures> {
    let (objects, gauge) = (bed.objects(), Gauge::of(leader.id().await?));
    sleep(rest).await;
    let before = gauge.resident()?;
    objects.apply(GATE, "kubectl", &gate()).await?;
    let proven = format!("{CHECKS}/{CHECKS}");
    judged(&objects, "fleet-", &proven, clusters).await?;
    sleep(rest).await;
    let kib_per_gated_cluster = kib_each(gauge.resident()? - before, clusters);
    say(format_args!(
        "{clusters} gated clusters: {kib_per_gated_cluster:.1} KiB each more than without a gate"
    ));
    let more = u32::try_from(hot.len())?;
    if more == 0 {
        return Ok(Figures {
            kib_per_gated_cluster,
            kib_per_hot_gated_cluster: None,
        });
    }
    bed.store()?.write(&forms.cold, &bed.workloads, hot).await?;
    judged(&objects, "fleet-5", &proven, more).await?;
    sleep(REST).await;
    let cold = gauge.resident()?;
    upgrade(&objects, hot).await?;
    judged(&objects, "fleet-5", &format!("0/{CHECKS}"), more).await?;
    sleep(REST).await;
    let kib_per_hot = kib_each(gauge.resident()? - cold, more);
    say(format_args!(
        "{more} gated clusters that are upgraded: {kib_per_hot:.1} KiB each more than between upgrades"
    ));
    Ok(Figures {
        kib_per_gated_cluster,
        kib_per_hot_gated_cluster: Some(kib_per_hot),
    })
}

/// Waits until so many ClusterUpgrades, whose names begin with `name`, show these proven checks of all checks.
async fn judged(objects: &Objects, name: &str, checks: &str, clusters: u32) -> Result<()> {
    let what = format!("{clusters} ClusterUpgrades {name}… with checks {checks}");
    wait::until(what, TIMEOUT, || async {
        let upgrades = objects.all(UPGRADE, name).await?;
        let has_checks = |upgrade: &&Value| upgrade["status"]["checks"] == checks;
        let judged = upgrades.iter().filter(has_checks).count();
        if u32::try_from(judged).is_ok_and(|judged| judged >= clusters) {
            Ok(())
        } else {
            wait::not_yet(format!("{judged} of {} ClusterUpgrades", upgrades.len()))
        }
    })
    .await?;
    Ok(())
}

/// KiB for each cluster, of a growth in MB.
fn kib_each(growth: f64, clusters: u32) -> f64 {
    growth * 1e6 / 1024.0 / f64::from(clusters)
}

fn agent(number: usize) -> String {
    format!("agent-{number}")
}

/// The gate of all clusters of the fleet. Its deletion is confirmed, because it holds clusters at the end.
fn gate() -> Value {
    let mut gate = Gate::new("agents");
    for (minor, image) in MINORS.into_iter().zip(IMAGES) {
        gate = gate.row(&format!("1.{minor}"), &[("image", image)]);
    }
    for number in 0..CHECKS {
        let agent = agent(number);
        let check = Check::workload(&agent, ("apps/v1", "DaemonSet"), "kube-system", &agent);
        gate = gate.check(check.container("agent").version_key("image"));
    }
    let mut object = gate.object(NAMESPACE);
    object["metadata"]["annotations"] = json!({"lifecycle.sluice.dev/confirm-delete": "true"});
    object
}

/// A DaemonSet at rest, as the API server of a cluster returns it.
fn daemon_set(number: usize) -> Value {
    let name = agent(number);
    let labels = json!({"app.kubernetes.io/name": name});
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{
                        "name": "agent",
                        "image": format!("registry.invalid/agent:{}", IMAGES[0]),
                        "args": (0..5).map(|argument| format!("--argument-{argument}=value")).collect::<Vec<_>>(),
                    }],
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        },
        "status": {
            "observedGeneration": 1,
            "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberMisscheduled": 0,
            "numberReady": 3, "updatedNumberScheduled": 3, "numberAvailable": 3,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_expects_the_version_of_the_daemon_sets_at_the_first_minor_only() {
        let (gate, daemon_set) = (gate(), daemon_set(0));
        let spec = &gate["spec"];
        assert_eq!(spec["checks"].as_array().unwrap().len(), CHECKS);
        let image = daemon_set["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
        let (_, tag) = image.unwrap().split_once(':').unwrap();
        let expected = |row: usize| spec["versions"][row]["values"]["image"].as_str().unwrap();
        assert_eq!(expected(0), tag);
        assert_ne!(expected(1), tag);
    }

    #[test]
    fn growth_is_shared_by_the_clusters() {
        assert!((kib_each(2.048, 1_000) - 2.0).abs() < 1e-9);
    }
}
