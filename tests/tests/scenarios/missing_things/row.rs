//! An object that a test spoils and repairs while antrea holds an upgrade.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::observer::Revision;
use sluice_tests::scenario::{Cluster, TIMEOUT};
use sluice_tests::wait;

/// Wait of the harness without a fault.
const ANTREA: (&str, &str) = ("PackagesNotReady", "antrea 2.0.0");

/// Page that lists the reasons with an event.
const PROMISES: &str = include_str!("../../../../docs/failure-modes.md");

/// One row of a table.
pub(super) struct Row {
    /// Description of the fault, for messages of the test.
    pub(super) what: &'static str,
    /// Where the object is on the management API server.
    pub(super) path: String,
    /// Merged into the object; none deletes it.
    pub(super) spoil: Option<Value>,
    /// Why the gate is closed then.
    pub(super) reason: &'static str,
    /// What its message names.
    pub(super) names: String,
}

impl Row {
    /// Spoils the object, checks every report, repairs it, and waits until only antrea is pending.
    pub(super) async fn run(&self, cluster: &Cluster, before: Revision) -> Result<()> {
        let outcome = self.judge(cluster, before).await;
        outcome.with_context(|| self.what.to_owned())
    }

    async fn judge(&self, cluster: &Cluster, before: Revision) -> Result<()> {
        let objects = cluster.scene().objects();
        let sound = objects.get(&self.path).await?.context("nothing to spoil")?;
        let shown = packages_shown(cluster).await?;
        match &self.spoil {
            None => objects.delete(&self.path).await?,
            Some(change) => objects.merge(&self.path, change).await?,
        }
        // Kubeconfigs are not watched: any event of the Cluster triggers a reconcile, which reads what was read nine seconds ago.
        let touched = json!({"metadata": {"annotations": {"harness.test/row": self.what}}});
        cluster.try_patch(&touched).await?;
        holds(cluster, self.reason, &self.names).await?;
        cluster.control_plane_is_untouched(before).await?;
        let still_shown = packages_shown(cluster).await?;
        ensure!(
            still_shown == shown,
            "conditions of {still_shown:?}, before of {shown:?}"
        );

        // This test judges that the hold ends. Tests of the watches judge the trigger of the reconcile.
        objects.restore(&self.path, &sound).await?;
        gate_names(cluster, ANTREA.0, ANTREA.1)
            .await
            .context("recovery by itself")?;
        cluster.says(ANTREA.1, TIMEOUT).await?;
        cluster.control_plane_is_untouched(before).await
    }
}

/// The packages that the ClusterBootstrap has a condition of.
async fn packages_shown(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let bootstrap = cluster.bootstrap().await?;
    let conditions = bootstrap["status"]["conditions"].as_array();
    let types = conditions
        .into_iter()
        .flatten()
        .map(|condition| &condition["type"]);
    let shown: BTreeSet<String> = types
        .filter_map(|type_| Some(type_.as_str()?.rsplit_once('-')?.0.to_owned()))
        .collect();
    ensure!(shown.len() > 1, "conditions of {shown:?} only");
    Ok(shown)
}

/// Checks a reason in each promised place: the gate, the hook's answer, the Cluster's condition, and an event.
pub(crate) async fn holds(cluster: &Cluster, reason: &str, names: &str) -> Result<()> {
    gate_names(cluster, reason, names).await?;
    topology_names(cluster, reason, names).await?;
    let object = cluster.object().await?;
    let versions = json!({
        "fromKubernetesVersion": cluster.workload()?.api.version(),
        "toKubernetesVersion": object["spec"]["topology"]["version"],
    });
    for replica in cluster.scene().world().extension()?.replicas() {
        wait::until("the hook to be held", TIMEOUT, || async {
            let reply = replica.ask("BeforeClusterUpgrade", &object, &versions).await?;
            if reply.is_held(reason) && reply.message.contains(names) {
                Ok(())
            } else {
                wait::not_yet(format!("{reply:?}"))
            }
        })
        .await?;
    }
    if is_told(reason)? {
        cluster.has_event(reason, names, TIMEOUT).await?;
    }
    Ok(())
}

/// Waits until Cluster API, which asks once a second, has put reason and message into the Cluster's condition.
async fn topology_names(cluster: &Cluster, reason: &str, names: &str) -> Result<()> {
    let what = format!(
        "TopologyReconciled of {} to say {reason} of {names}",
        cluster.name()
    );
    cluster
        .until(what, TIMEOUT, |object| {
            let conditions = &object["status"]["conditions"];
            let mut conditions = conditions.as_array().into_iter().flatten();
            let topology = conditions.find(|condition| condition["type"] == "TopologyReconciled");
            let message = topology.and_then(|condition| condition["message"].as_str());
            let message = message.unwrap_or_default();
            if message.contains(&format!("BeforeClusterUpgrade: {reason}: ")) && message.contains(names) {
                Ok(())
            } else {
                wait::not_yet(message)
            }
        })
        .await
}

/// Waits until BeforeClusterUpgrade is closed for `reason`, with a message that names `names`.
pub(crate) async fn gate_names(cluster: &Cluster, reason: &str, names: &str) -> Result<()> {
    let what = format!(
        "BeforeClusterUpgrade of {} to be held by {reason} of {names}",
        cluster.name()
    );
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let gates = &bootstrap["status"]["upgrade"]["gates"];
            let mut gates_of_hook = gates.as_array().into_iter().flatten();
            let gate = gates_of_hook.find(|gate| gate["hook"] == "BeforeClusterUpgrade");
            let message = gate.and_then(|gate| gate["message"].as_str()).unwrap_or_default();
            if gate.is_some_and(|gate| gate["open"] != true && gate["reason"] == reason)
                && message.contains(names)
            {
                Ok(())
            } else {
                wait::not_yet(gates)
            }
        })
        .await
}

/// Whether the page promises an event.
fn is_told(reason: &str) -> Result<bool> {
    let row = PROMISES
        .lines()
        .find(|line| line.starts_with(&format!("| `{reason}` |")))
        .with_context(|| format!("{reason} has no row in docs/failure-modes.md"))?;
    let carried_by = row.split('|').nth(3).context("a row without third column")?;
    Ok(carried_by.contains("event"))
}
