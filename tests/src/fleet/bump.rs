//! Memory of clusters that wait for their control plane, and of clusters in the middle of an upgrade.

use std::time::Duration;

use anyhow::Result;
use futures::{TryStreamExt as _, stream};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bed::Bed;
use super::catalogue::{SET, kubernetes, release_name};
use super::cluster::release_data;
use super::command::say;
use super::copies::Store;
use super::installer;
use super::kinds::{CLUSTER, INSTALL};
use super::measure::{Running, as_f64};
use super::objects::Objects;
use super::seed::{Forms, WAITING, installed};
use super::{MINORS, name};
use crate::objects::TKR;
use crate::processes::gauge::Gauge;
use crate::wait;

/// Number of the first cluster that is upgraded; those of the others begin with the same digit.
const HOT: u32 = 50_000;

/// Requests that are under way at once.
const AT_ONCE: usize = 8;

/// How long clusters wait while their requests are counted, and how long hot ones rest.
const REST: Duration = Duration::from_secs(30);

/// Timeout until Sluice has written all packages of the upgraded clusters.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) waiting_requests_per_cluster_minute: f64,
    pub(super) kib_per_hot_cluster: f64,
}

/// Measures with so many clusters of each kind, beside those that are there. Afterwards they are gone, whatever came of it.
pub(super) async fn measure(running: &mut Running<'_>, forms: &Forms, clusters: u32) -> Result<Figures> {
    let bed = running.bed;
    let store = bed.store()?;
    let (waiting, hot) = (
        (WAITING + 1..=WAITING + clusters).collect::<Vec<u32>>(),
        hot_numbers(clusters),
    );
    let outcome = measured(running, forms, &store, &waiting, &hot).await;
    store.delete(&forms.waiting, &bed.workloads, &waiting, 6).await?;
    store.delete(&forms.cold, &bed.workloads, &hot, 5).await?;
    for number in hot {
        bed.workloads.contents().forget(&name(number));
    }
    outcome
}

async fn measured(
    running: &mut Running<'_>,
    forms: &Forms,
    store: &Store,
    waiting: &[u32],
    hot: &[u32],
) -> Result<Figures> {
    let bed = running.bed;
    let clusters = u32::try_from(hot.len())?;
    store.write(&forms.waiting, &bed.workloads, waiting).await?;
    // Sluice reconciles each of them first.
    sleep(REST / 2).await;
    let began = Timestamp::now();
    sleep(REST).await;
    let is_of = |number: u32, first: u32| (first..first + 10_000).contains(&number);
    sleep(Duration::from_secs(1)).await;
    let asked = running
        .audit
        .asked()?
        .iter()
        .rev()
        .take_while(|asked| asked.at >= began);
    let asked = asked
        .filter(|asked| asked.cluster.is_some_and(|number| is_of(number, WAITING)))
        .count();
    let minutes = REST.as_secs_f64() / 60.0 * f64::from(clusters);
    let waiting_requests_per_cluster_minute = as_f64(asked) / minutes;
    say(format_args!(
        "{clusters} waiting clusters: {waiting_requests_per_cluster_minute:.2} requests per cluster and minute"
    ));
    store.delete(&forms.waiting, &bed.workloads, waiting, 6).await?;

    store.write(&forms.cold, &bed.workloads, hot).await?;
    sleep(REST).await;
    let leader = Gauge::of(running.leader.id().await?);
    let cold = leader.resident()?;
    heat(bed, hot).await?;
    sleep(REST).await;
    let growth = (leader.resident()? - cold) * 1e6 / 1024.0;
    let kib_per_hot_cluster = growth / f64::from(clusters);
    say(format_args!(
        "{clusters} hot clusters: {kib_per_hot_cluster:.1} KiB each more than cold ones"
    ));
    Ok(Figures {
        waiting_requests_per_cluster_minute,
        kib_per_hot_cluster,
    })
}

/// Numbers of clusters that are upgraded.
pub(super) fn hot_numbers(clusters: u32) -> Vec<u32> {
    (HOT + 1..=HOT + clusters).collect()
}

/// Upgrades these clusters until all their packages are written. None of these becomes ready, so that the clusters are held.
pub(super) async fn heat(bed: &Bed, hot: &[u32]) -> Result<()> {
    let objects = bed.objects();
    upgrade(&objects, hot).await?;
    wait::until(
        "the packages of all upgraded clusters to be written",
        TIMEOUT,
        || async {
            install_kapp_controllers(&objects).await?;
            are_written(bed, hot)
        },
    )
    .await?;
    Ok(())
}

/// The next version, with the label and the data of its release, as a user and the resolver write them.
pub(super) fn change() -> Value {
    let (version, release) = (kubernetes(MINORS[1]), release_name(MINORS[1], 1));
    let data = json!({
        kubernetes(MINORS[0]): release_data(&kubernetes(MINORS[0]), &release_name(MINORS[0], 1)),
        version.as_str(): release_data(&version, &release),
    });
    json!({
        "metadata": {"labels": {TKR: release}},
        "spec": {"topology": {"version": version, "variables": [{"name": "TKR_DATA", "value": data}]}},
    })
}

/// Gives each cluster the next version.
pub(super) async fn upgrade(objects: &Objects, clusters: &[u32]) -> Result<()> {
    let change = change();
    stream::iter(clusters.iter().map(Ok))
        .try_for_each_concurrent(AT_ONCE, |number| {
            let (objects, change) = (objects.clone(), change.clone());
            async move {
                objects
                    .merge(&CLUSTER.one(&name(*number)), "kubectl", &change)
                    .await
                    .map(drop)
            }
        })
        .await
}

/// kapp-controller itself comes first, or no other package is written.
async fn install_kapp_controllers(objects: &Objects) -> Result<()> {
    let installs = objects.all(INSTALL, "fleet-5").await?;
    stream::iter(installs.into_iter().filter(installer::is_due).map(Ok))
        .try_for_each_concurrent(AT_ONCE, |install| {
            let objects = objects.clone();
            async move { installed(&objects, &install).await }
        })
        .await
}

fn are_written(bed: &Bed, clusters: &[u32]) -> Result<(), wait::Unmet> {
    match written(bed, clusters) {
        written if written == clusters.len() => Ok(()),
        written => wait::not_yet(format!("{written} of {}", clusters.len())),
    }
}

/// Of how many of these clusters all packages are written.
pub(super) fn written(bed: &Bed, clusters: &[u32]) -> usize {
    let contents = bed.workloads.contents();
    // All but kapp-controller.
    let is_written = |number: &&u32| contents.written(&name(**number), "/packageinstalls/").len() == SET - 1;
    clusters.iter().filter(is_written).count()
}
