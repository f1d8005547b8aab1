//! What Sluice costs a Cluster at rest, by the audit logs.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use sluice_tests::extension::{ELECTION, PATIENT_ELECTION};
use sluice_tests::scenario::{Cluster, Scene, TIMEOUT};
use sluice_tests::wait;

/// Drift checks that are compared.
const CHECKS: usize = 2;

/// The first read of a drift check. It is the only reason to read this of a completed Cluster.
const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";

/// Restarts Sluice with a drift check each minute, and with a leader that outlives the replacement of its API server.
pub(crate) async fn checks_often(scene: &Scene) -> Result<()> {
    restart(scene, "1m", PATIENT_ELECTION).await
}

/// Restarts Sluice as other scenarios need it.
pub(crate) async fn checks_as_before(scene: &Scene) -> Result<()> {
    restart(scene, "10m", ELECTION).await
}

async fn restart(scene: &Scene, period: &str, election: [&'static str; 4]) -> Result<()> {
    let extension = scene.world().extension()?;
    extension
        .roll_out(|settings| {
            period.clone_into(&mut settings.sync_period);
            settings.election = election;
        })
        .await?;
    extension.leader().await?;
    Ok(())
}

/// Fails unless Sluice writes nothing for a settled Cluster, and sends its API server no more requests between drift checks than that of
/// `other`, which is settled too.
pub(crate) async fn costs_no_more(cluster: &Cluster, other: &Cluster) -> Result<()> {
    let since = Timestamp::now();
    let requests = between_checks(cluster, since).await?;
    let usual = between_checks(other, since).await?;
    ensure!(
        requests.len() <= usual.len(),
        "in {CHECKS} drift checks of {} there were {} requests, {} in those of {}:\n{}\n\n{}",
        cluster.name(),
        requests.len(),
        usual.len(),
        other.name(),
        requests.join("\n"),
        usual.join("\n")
    );
    let writes = cluster.requests()?.writes_and_reports(since)?;
    ensure!(
        writes.is_empty(),
        "Sluice wrote for {}, which is at rest:\n{}",
        cluster.name(),
        writes.join("\n")
    );
    Ok(())
}

/// Requests of Sluice to the workload cluster from the beginning of one drift check to that of another one.
async fn between_checks(cluster: &Cluster, since: Timestamp) -> Result<Vec<String>> {
    let what = format!("{CHECKS} drift checks of Cluster {}", cluster.name());
    // Each probe reads only the new lines of the logs.
    let requests = Mutex::new(cluster.requests()?);
    let times = wait::until(what, 2 * TIMEOUT, || async {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        let times = requests.times(KUBE_SYSTEM, since)?;
        if times.len() > CHECKS {
            Ok(times)
        } else {
            wait::not_yet(format!("{} have begun", times.len()))
        }
    })
    .await?;
    let began = times.first().context("no drift check")?;
    let ended = times.get(CHECKS).context("too few drift checks")?;
    let mut requests = requests.into_inner().unwrap_or_else(PoisonError::into_inner);
    requests.between(*began, *ended)
}
