//! Sluice without packages: on a management cluster without kapp-controller and without Tanzu kinds, by the roles of the chart.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_tests::objects::{Chart, Check, Gate};
use sluice_tests::observer::Revision;
use sluice_tests::requests::apply::{apply, documents};
use sluice_tests::scenario::{Cluster, HookAnswer, Scenario, Scene, TIMEOUT, VERSIONS, Written};
use sluice_tests::stack::audit::{Request, SLUICE};
use sluice_tests::wait;

use crate::common::shell;

/// The chart without packages, with the permissions to read all kinds that it knows.
const CHART: &str = "helm template sluice manifests/chart --namespace sluice-system --set 'packages.enabled=false,gates.reads={caaph,flux,workloads}'";

/// ClusterRoles that an operator opts in to.
const OPTIONAL: [&str; 3] = [
    "sluice-gates-caaph",
    "sluice-gates-flux",
    "sluice-gates-workloads",
];

/// API groups that a package installation needs.
const OF_PACKAGES: [&str; 3] = ["packaging.carvel.dev", "kappctrl.k14s.io", "run.tanzu.vmware.com"];

/// Hooks that gates hold.
const GATED: [&str; 4] = [
    "BeforeClusterUpgrade",
    "BeforeControlPlaneUpgrade",
    "AfterControlPlaneUpgrade",
    "BeforeWorkersUpgrade",
];

/// Name of the gate, its check and the DaemonSet.
const AGENT: &str = "agent";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "gates-only",
        "without kapp-controller and Tanzu kinds, by the roles of the chart: ready; a Cluster without a gate is never held, and costs one read per release; a gated one is held; no request is forbidden, and every verb of the new role is used",
        |scene| Box::pin(run(scene)),
    )
    .gates_only()
    .audited()
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    is_ready_without_packages(&scene).await?;
    roles_are_those_of_the_chart(&scene).await?;
    let extension = scene.world().extension()?;
    extension.admit_gates("gates-only", scene.namespace()).await?;
    is_free(&scene).await?;
    is_gated(&scene).await?;
    nothing_is_forbidden(&scene)?;
    all_verbs_are_used(&scene, "sluice-gates").await
}

async fn is_ready_without_packages(scene: &Scene) -> Result<()> {
    let served = scene.objects().get("/apis").await?;
    let served = served.context("the management cluster lists no API groups")?;
    let groups = served["groups"].as_array().context("no groups")?;
    for group in OF_PACKAGES {
        let is_served = groups.iter().any(|served| served["name"] == group);
        ensure!(!is_served, "{group} is served");
    }
    let namespace = scene.objects().get("/api/v1/namespaces/tkg-system").await?;
    ensure!(namespace.is_none(), "namespace tkg-system exists");
    for replica in scene.world().extension()?.replicas() {
        replica.readyz().await?;
    }
    Ok(())
}

/// The roles that Sluice runs with are those that Helm renders.
async fn roles_are_those_of_the_chart(scene: &Scene) -> Result<()> {
    let shell = shell(scene, "home-gates-only").await?;
    let rendered = documents(&shell.run(CHART, &[]).await?.well()?)?;
    let rendered = rendered.iter().filter(|object| object["kind"] == "ClusterRole");
    let rendered: BTreeMap<String, Value> = rendered.map(rules).collect();
    let path =
        "/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=app.kubernetes.io/name%3Dsluice";
    let list = scene.objects().get(path).await?.unwrap_or_default();
    let found = list["items"].as_array().into_iter().flatten();
    let found: BTreeMap<String, Value> = found.map(rules).collect();
    ensure!(!found.is_empty(), "Sluice has no role");
    for (name, rules) in &found {
        let of_chart = rendered.get(name);
        ensure!(
            of_chart == Some(rules),
            "ClusterRole {name} has {rules}, the chart has {of_chart:?}"
        );
    }
    for name in rendered.keys() {
        ensure!(
            found.contains_key(name) || OPTIONAL.contains(&name.as_str()),
            "only the chart has ClusterRole {name}"
        );
    }
    Ok(())
}

/// Name and rules of a ClusterRole. A controller fills in those of an aggregated one.
fn rules(role: &Value) -> (String, Value) {
    let name = role["metadata"]["name"].as_str().unwrap_or_default();
    let is_aggregated = !role["aggregationRule"].is_null();
    let rules = if is_aggregated {
        role["aggregationRule"].clone()
    } else {
        role["rules"].clone()
    };
    (name.to_owned(), rules)
}

/// A Cluster that no gate selects is upgraded twice: while the namespace has no gate, and while it has one for others. It is not held.
async fn is_free(scene: &Scene) -> Result<()> {
    let free = create(scene, "free", "none").await?;
    let (answered, began) = (free.hook_answers()?.len(), Timestamp::now());
    upgrade(&free, VERSIONS[1]).await?;
    scene.gate(&gate()).await?;
    upgrade(&free, VERSIONS[2]).await?;
    let answers = free.hook_answers()?.split_off(answered);
    ensure!(
        answers.iter().any(|answer| answer.hook == "BeforeWorkersUpgrade"),
        "no hook was called before the workers: {answers:?}"
    );
    let held = answers.iter().find(|answer| answer.is_held());
    ensure!(held.is_none(), "a Cluster without a gate was held: {held:?}");
    let record = free.cluster_upgrade().await?;
    ensure!(record.is_none(), "a Cluster without a gate has {record:?}");
    costs_one_read_per_release(&free, &answers, began)?;
    free.delete().await
}

/// For a Cluster without a gate Sluice has read the ClusterUpgrade once for each release of a hook that gates hold. It has read nothing else,
/// and written nothing.
fn costs_one_read_per_release(free: &Cluster, answers: &[HookAnswer], began: Timestamp) -> Result<()> {
    let is_read = |answer: &&HookAnswer| !answer.is_held() && GATED.iter().any(|hook| answer.hook == *hook);
    let releases = answers.iter().filter(is_read).count();
    ensure!(releases > 0, "no hook that gates hold was released: {answers:?}");
    let requests = free.requests()?.about(free.name(), began)?;
    let read = format!("get {}", free.cluster_upgrade_path());
    let others: Vec<&String> = requests.iter().filter(|request| **request != read).collect();
    ensure!(others.is_empty(), "a Cluster without a gate caused {others:?}");
    ensure!(
        requests.len() == releases,
        "{releases} releases of a Cluster without a gate caused {} reads of its ClusterUpgrade: {answers:?}",
        requests.len()
    );
    Ok(())
}

async fn upgrade(cluster: &Cluster, version: &str) -> Result<()> {
    let since = cluster.upgrade_unmanaged(version).await?;
    cluster.control_plane_written(version, since, TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await
}

/// A Cluster that a gate selects is held until its DaemonSet is that of the row. Its record goes with the gate.
async fn is_gated(scene: &Scene) -> Result<()> {
    let new = VERSIONS[1];
    let gated = create(scene, "gated", "demo").await?;
    deploy(&gated, "v1").await?;
    scene.gate(&gate()).await?;
    scene.gate_is_in_force(AGENT).await?;
    let since = gated.upgrade_unmanaged(new).await?;
    gated.held_by("agent/agent", "NotAtVersion", TIMEOUT).await?;
    gated.says("ChecksNotReady: agent/agent", TIMEOUT).await?;
    gated.control_plane_is_untouched(since).await?;
    deploy(&gated, "v2").await?;
    gated.control_plane_written(new, since, TIMEOUT).await?;
    gated.is_settled(TIMEOUT).await?;
    is_over(&gated).await?;

    holds_nothing(scene, AGENT).await?;
    scene.objects().delete(&scene.gate_path(AGENT)).await?;
    wait::until("the ClusterUpgrade to go with its gate", TIMEOUT, || async {
        match gated.cluster_upgrade().await? {
            None => Ok(()),
            Some(record) => wait::not_yet(&record["status"]),
        }
    })
    .await?;
    Ok(())
}

async fn create(scene: &Scene, name: &str, label: &str) -> Result<Cluster> {
    let cluster = scene.cluster(name).unmanaged(VERSIONS[0]).labelled(AGENT, label);
    let cluster = cluster.workers(1).create().await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    Ok(cluster)
}

fn gate() -> Gate {
    let check = Check::workload(AGENT, ("apps/v1", "DaemonSet"), Chart::NAMESPACE, AGENT);
    Gate::new(AGENT)
        .selects(&json!({AGENT: "demo"}))
        .row("1.34", &[("image", "v1")])
        .row("1.35", &[("image", "v2")])
        .check(check.container(AGENT).version_key("image"))
}

/// Applies the DaemonSet as a user does, and waits until it runs.
async fn deploy(cluster: &Cluster, tag: &str) -> Result<()> {
    let labels = json!({"app": AGENT});
    let daemon_set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": AGENT, "namespace": Chart::NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": AGENT, "image": Chart::new(AGENT, "", tag).image()}]},
            },
        },
    });
    let client = cluster.workload()?.api.admin_client();
    apply(&client, &daemon_set).await?;
    cluster.rolled_out(AGENT, tag, TIMEOUT).await
}

/// Waits until a gate holds no Cluster. Until then its deletion is refused.
async fn holds_nothing(scene: &Scene, gate: &str) -> Result<()> {
    let path = scene.gate_path(gate);
    let what = format!("UpgradeGate {gate} to hold nothing");
    wait::until(what, TIMEOUT, || async {
        let gate = scene.objects().get(&path).await?.unwrap_or_default();
        if gate["status"]["holding"] == 0 {
            Ok(())
        } else {
            wait::not_yet(&gate["status"])
        }
    })
    .await?;
    Ok(())
}

/// Waits until the ClusterUpgrade says that the upgrade is complete, and that nothing is held.
pub(crate) async fn is_over(cluster: &Cluster) -> Result<()> {
    let what = format!("the upgrade of {} to be over", cluster.name());
    cluster
        .cluster_upgrade_until(what, TIMEOUT, |record| {
            let status = &record["status"];
            // An Audit gate may stay unproven.
            let holds = |by: &str| !by.ends_with("(audit)");
            let is_held = status["heldBy"].as_str().is_some_and(holds);
            if status["upgrade"]["outcome"] == "Completed" && !is_held {
                Ok(())
            } else {
                wait::not_yet(status)
            }
        })
        .await
}

/// The first record of a Cluster after a revision that has the gate of a hook open for [`VERSIONS`]`[1]`.
pub(crate) fn opens(writes: &[Written], cluster: &Cluster, hook: &str, since: Revision) -> Result<Revision> {
    opens_for(writes, cluster, (hook, VERSIONS[1]), since)
}

/// The same for another version.
pub(crate) fn opens_for(
    writes: &[Written],
    cluster: &Cluster,
    (hook, version): (&str, &str),
    since: Revision,
) -> Result<Revision> {
    let is_first = |write: &&Written| {
        write.revision > since
            && write.name == cluster.name()
            && is_open(&write.object["status"], hook, version)
    };
    let found = writes.iter().find(is_first).map(|write| write.revision);
    found.with_context(|| format!("no record of {} opens {hook} for {version}", cluster.name()))
}

/// Whether the status of a ClusterUpgrade has the gate of a hook open for a version.
pub(crate) fn is_open(status: &Value, hook: &str, version: &str) -> bool {
    let gates = status["upgrade"]["gates"].as_array();
    let mut gates = gates.into_iter().flatten();
    gates.any(|gate| gate["hook"] == hook && gate["version"] == version && gate["open"] == true)
}

/// Requests of Sluice to the management cluster so far.
fn requests(scene: &Scene) -> Result<Vec<Request>> {
    let mut log = scene.world().stack().management().audit();
    let own = log.requests()?.iter().filter(|request| request.user == SLUICE);
    let own: Vec<Request> = own.cloned().collect();
    ensure!(!own.is_empty(), "the audit log has no request of Sluice");
    Ok(own)
}

/// Fails if the management cluster has refused a request of Sluice.
pub(crate) fn nothing_is_forbidden(scene: &Scene) -> Result<()> {
    let forbidden: BTreeSet<String> = requests(scene)?
        .iter()
        .filter(|request| request.code == Some(403))
        .map(|request| format!("{} {}", request.verb, request.uri))
        .collect();
    ensure!(forbidden.is_empty(), "forbidden: {forbidden:?}");
    Ok(())
}

/// Fails if Sluice has not used a verb of a ClusterRole.
pub(crate) async fn all_verbs_are_used(scene: &Scene, role: &str) -> Result<()> {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
    let object = scene.objects().get(&path).await?;
    let object = object.with_context(|| format!("there is no ClusterRole {role}"))?;
    let used: BTreeSet<(String, String)> = requests(scene)?
        .into_iter()
        .map(|request| (request.verb, request.resource))
        .collect();
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let rules = object["rules"].as_array().into_iter().flatten();
    let mut unused = BTreeSet::new();
    for rule in rules {
        for resource in texts(&rule["resources"]) {
            for verb in texts(&rule["verbs"]) {
                // A watch streams the list, which API servers before Kubernetes 1.34 may not support.
                let streams = verb == "list" && used.contains(&("watch".to_owned(), resource.clone()));
                if !streams && !used.contains(&(verb.clone(), resource.clone())) {
                    unused.insert(format!("{verb} {resource}"));
                }
            }
        }
    }
    ensure!(
        unused.is_empty(),
        "Sluice has not used, of ClusterRole {role}: {unused:?}"
    );
    Ok(())
}
