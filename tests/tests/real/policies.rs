//! Policy `sluice-clusters` of `manifests/base` on a real kube-apiserver, without Cluster API: what Sluice may write to a Cluster.

mod gates;
mod overrides;

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::request::Builder;
use kube::Client;
use serde_json::{Value, json};
use sluice_tests::components::{ClusterApiRelease, MANAGEMENT_VERSION};
use sluice_tests::objects::{CLUSTER_API, TKR};
use sluice_tests::requests::apply;
use sluice_tests::stack::StackCore;
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::stack::manifests::Base;
use sluice_tests::wait;

const SLUICE: &str = "system:serviceaccount:sluice-system:sluice";

const CLUSTERS: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters";

/// Pools of the large Cluster, as many as a list of pools may have.
const POOLS: usize = 2000;

/// The API server compiles a policy after it was created.
const IN_EFFECT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn sluice_changes_only_images_and_the_pause_of_a_cluster() -> Result<()> {
    let core = StackCore::start("policies").await?;
    let server = ApiServer::start(&core, "policies", MANAGEMENT_VERSION).await?;
    let client = server.admin_client();
    let cluster_api = core.binaries().cluster_api(ClusterApiRelease::Newest).await?;
    let definition = cluster_api.definitions.join("cluster.x-k8s.io_clusters.yaml");
    let definition = fs::read_to_string(&definition).with_context(|| definition.display().to_string())?;
    apply::apply_crds(&client, &apply::documents(&definition)?).await?;
    apply::namespace(&client, "default").await?;
    apply::apply_all(&client, &[all_rights(), running(), paused(), large()]).await?;
    apply::apply_all(&client, &policy()?).await?;
    is_in_effect(&client).await?;

    for (cluster, operations) in admitted() {
        is_admitted(&client, cluster, &operations).await?;
    }
    for (operations, says) in refused() {
        is_refused(&client, "running", &operations, says).await?;
    }
    for (operation, says) in refused_with_the_pause() {
        is_refused(&client, "paused", &[unpause(), operation], says).await?;
    }
    status_and_creation(&client).await?;
    pools_without_end(&client).await?;
    core.directory().close().await
}

/// The policy and its binding.
fn policy() -> Result<Vec<Value>> {
    let base = Base::read()?;
    let objects = base.objects().iter();
    let found: Vec<Value> = objects
        .filter(|object| object["metadata"]["name"] == "sluice-clusters")
        .cloned()
        .collect();
    ensure!(found.len() == 2, "manifests/base without the policy: {found:?}");
    Ok(found)
}

/// With the role of Sluice, RBAC would refuse a creation before the policy does.
fn all_rights() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "all-rights"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": SLUICE}],
    })
}

/// An entry of `TKR_DATA` of this release.
fn data(release: &str) -> Value {
    json!({"v1.35.4": {"labels": {TKR: release}, "osImageRef": {"name": "image"}}})
}

fn variable(release: &str) -> Value {
    json!({"name": "TKR_DATA", "value": data(release)})
}

/// A Cluster whose first pool has overrides.
fn running() -> Value {
    let size = json!({"name": "size", "value": {"cpu": 2, "disks": [{"gib": 20}]}});
    json!({
        "apiVersion": CLUSTER_API, "kind": "Cluster", "metadata": {"name": "running", "namespace": "default"},
        "spec": {
            "clusterNetwork": {"services": {"cidrBlocks": ["10.0.0.0/24"]}},
            "topology": {
                "classRef": {"name": "class"},
                "version": "v1.35.4",
                "controlPlane": {"replicas": 3},
                "workers": {
                    "machineDeployments": [
                        {"class": "default", "name": "md-0", "replicas": 2, "variables": {"overrides": [variable("tkg.1"), size]}},
                        {"class": "default", "name": "md-1", "replicas": 2},
                    ],
                    "machinePools": [{"class": "default", "name": "mp-0", "replicas": 2}],
                },
                "variables": [size, variable("tkg.1")],
            },
        },
    })
}

fn paused() -> Value {
    let mut cluster = running();
    cluster["metadata"]["name"] = json!("paused");
    cluster["spec"]["paused"] = json!(true);
    cluster
}

fn large() -> Value {
    let size = json!({"name": "size", "value": 1});
    let pools: Vec<Value> = (0..POOLS)
        .map(|pool| {
            let overrides = json!([variable("tkg.1"), size]);
            json!({"class": "default", "name": format!("md-{pool}"), "replicas": 1, "variables": {"overrides": overrides}})
        })
        .collect();
    let mut cluster = running();
    cluster["metadata"]["name"] = json!("large");
    cluster["spec"]["topology"]["workers"] = json!({"machineDeployments": pools});
    cluster
}

const TOPOLOGY_FIELD: &str = "must not write version, class";
const PART_FIELD: &str = "must not write fields of the control plane or of a pool";
const VARIABLE: &str = "may only write variable TKR_DATA";
const OUTSIDE: &str = "must not write fields of a Cluster outside";

const TOPOLOGY: &str = "/spec/topology";
const FIRST: &str = "/spec/topology/workers/machineDeployments/0";
const SECOND: &str = "/spec/topology/workers/machineDeployments/1";
const POOL: &str = "/spec/topology/workers/machinePools/0";

fn operation(op: &str, path: &str, value: impl Into<Value>) -> Value {
    json!({"op": op, "path": path, "value": value.into()})
}

fn replace(path: &str, value: impl Into<Value>) -> Value {
    operation("replace", path, value)
}

fn add(path: &str, value: impl Into<Value>) -> Value {
    operation("add", path, value)
}

fn remove(path: &str) -> Value {
    json!({"op": "remove", "path": path})
}

fn unpause() -> Value {
    remove("/spec/paused")
}

/// A variable that the Cluster does not have.
fn late() -> Value {
    json!({"name": "late", "value": "default"})
}

/// Writes of Sluice, and defaults that Cluster API may add to the end of a pause.
fn admitted() -> [(&'static str, Vec<Value>); 7] {
    let overrides = json!({"overrides": [variable("tkg.2")]});
    let swap = vec![
        replace(&format!("{TOPOLOGY}/variables/1/value"), data("tkg.2")),
        replace(&format!("{FIRST}/variables/overrides/0/value"), data("tkg.2")),
        add(&format!("{SECOND}/variables"), overrides.clone()),
        add(&format!("{POOL}/variables"), overrides.clone()),
        add(&format!("{TOPOLOGY}/controlPlane/variables"), overrides),
    ];
    let defaults = vec![
        unpause(),
        add(&format!("{TOPOLOGY}/variables/-"), late()),
        add(&format!("{TOPOLOGY}/variables/0/value/memory"), 8),
        add(&format!("{FIRST}/variables/overrides/1/value/memory"), 8),
    ];
    let no_override = remove(&format!("{FIRST}/variables/overrides/0"));
    [
        ("running", swap),
        ("running", vec![no_override]),
        ("running", vec![add("/metadata/labels", json!({TKR: "tkg.2"}))]),
        ("paused", vec![unpause()]),
        ("paused", vec![replace("/spec/paused", false)]),
        ("paused", defaults),
        ("paused", vec![add("/metadata/annotations", json!({"a": "b"}))]),
    ]
}

/// Other writes to a running Cluster, and what Sluice must not do by them.
fn refused() -> Vec<(Vec<Value>, &'static str)> {
    let of = |path: &str| format!("{TOPOLOGY}/{path}");
    let moved = json!({"class": "default", "name": "md-1", "replicas": 2});
    let another = json!({"class": "default", "name": "md-2", "replicas": 1});
    let endpoint = json!({"host": "a", "port": 1});
    let overrides = json!({"overrides": [late()]});
    let pools = [
        vec![add(&of("workers/machineDeployments/-"), another)],
        vec![remove(SECOND)],
        vec![remove(SECOND), add(&of("workers/machinePools/0"), moved)],
    ];
    let single = [
        (replace(&of("version"), "v1.36.3"), TOPOLOGY_FIELD),
        (replace(&of("classRef/name"), "other"), TOPOLOGY_FIELD),
        (replace(&of("controlPlane/replicas"), 1), PART_FIELD),
        (replace(&format!("{FIRST}/replicas"), 1), PART_FIELD),
        (replace(&format!("{SECOND}/class"), "other"), PART_FIELD),
        (replace(&format!("{POOL}/replicas"), 1), PART_FIELD),
        (remove(&format!("{POOL}/replicas")), PART_FIELD),
        (add(&format!("{POOL}/minReadySeconds"), 1), PART_FIELD),
        (replace(&of("variables/0/value/cpu"), 4), VARIABLE),
        (add(&of("variables/0/value/memory"), 8), VARIABLE),
        (add(&of("variables/-"), late()), VARIABLE),
        (remove(&of("variables/0")), VARIABLE),
        (
            replace(&format!("{FIRST}/variables/overrides/1/value/cpu"), 4),
            VARIABLE,
        ),
        (add(&format!("{SECOND}/variables"), overrides), VARIABLE),
        (remove("/spec/clusterNetwork"), OUTSIDE),
        (add("/spec/controlPlaneEndpoint", endpoint), OUTSIDE),
        (add("/spec/paused", true), "may only end the pause of a Cluster"),
    ];
    let single = single.map(|(operation, says)| (vec![operation], says));
    let pools = pools.map(|operations| (operations, "must not add or remove pools"));
    single.into_iter().chain(pools).collect()
}

/// Other writes beside the end of a pause.
fn refused_with_the_pause() -> [(Value, &'static str); 4] {
    [
        (replace(&format!("{TOPOLOGY}/variables/0/value/cpu"), 4), VARIABLE),
        (remove(&format!("{TOPOLOGY}/variables/0/value/cpu")), VARIABLE),
        (remove(&format!("{TOPOLOGY}/variables/0")), VARIABLE),
        (replace(&format!("{TOPOLOGY}/version"), "v1.36.3"), TOPOLOGY_FIELD),
    ]
}

/// Waits until the API server applies the policy.
async fn is_in_effect(client: &Client) -> Result<()> {
    let version = [replace(&format!("{TOPOLOGY}/version"), "v1.36.3")];
    wait::until("policy sluice-clusters to be in effect", IN_EFFECT, || async {
        match patched(client, "running", &version).await? {
            Some(message) if message.contains("must not write version") => Ok(()),
            other => wait::not_yet(format!("{other:?}")),
        }
    })
    .await?;
    Ok(())
}

/// The policy is not for the status, and refuses a new Cluster.
async fn status_and_creation(client: &Client) -> Result<()> {
    let status = json!([add("/status", json!({"observedGeneration": 1}))]);
    let request = http::Request::patch(format!("{CLUSTERS}/running/status?dryRun=All"));
    let refused = sent(client, request, "application/json-patch+json", &status).await?;
    ensure!(refused.is_none(), "the status is refused: {refused:?}");

    let mut cluster = running();
    cluster["metadata"]["name"] = json!("new");
    let request = http::Request::post(format!("{CLUSTERS}?dryRun=All"));
    let refused = sent(client, request, "application/json", &cluster).await?;
    ensure!(
        refused
            .as_ref()
            .is_some_and(|message| message.contains("must not create a Cluster")),
        "a creation is answered {refused:?}"
    );
    Ok(())
}

/// The policy is within the cost limit of the API server for as many pools as a list may have.
async fn pools_without_end(client: &Client) -> Result<()> {
    let pool = |pool: usize| format!("{TOPOLOGY}/workers/machineDeployments/{pool}");
    let swap: Vec<Value> = (0..POOLS)
        .map(|number| {
            let path = format!("{}/variables/overrides/0/value", pool(number));
            replace(&path, data("tkg.2"))
        })
        .collect();
    is_admitted(client, "large", &swap).await?;
    let last = pool(POOLS - 1);
    let replicas = replace(&format!("{last}/replicas"), 2);
    is_refused(client, "large", &[replicas], PART_FIELD).await?;
    let other = replace(&format!("{last}/variables/overrides/1/value"), 2);
    is_refused(client, "large", &[other], VARIABLE).await
}

async fn is_admitted(client: &Client, cluster: &str, operations: &[Value]) -> Result<()> {
    let refused = patched(client, cluster, operations).await?;
    let first = operations.first();
    ensure!(
        refused.is_none(),
        "{first:?} and others of {cluster} are refused: {refused:?}"
    );
    Ok(())
}

async fn is_refused(client: &Client, cluster: &str, operations: &[Value], says: &str) -> Result<()> {
    let refused = patched(client, cluster, operations).await?;
    ensure!(
        refused.as_ref().is_some_and(|message| message.contains(says)),
        "{operations:?} of {cluster} are answered {refused:?}, not that Sluice {says}"
    );
    Ok(())
}

/// The message of the API server for these operations of Sluice on a Cluster, if it refuses them. Nothing is stored.
async fn patched(client: &Client, cluster: &str, operations: &[Value]) -> Result<Option<String>> {
    let request = http::Request::patch(format!("{CLUSTERS}/{cluster}?dryRun=All"));
    sent(client, request, "application/json-patch+json", &json!(operations)).await
}

async fn sent(client: &Client, request: Builder, content: &str, body: &Value) -> Result<Option<String>> {
    let request = request
        .header("content-type", content)
        .header("impersonate-user", SLUICE)
        .body(body.to_string().into_bytes())?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}
