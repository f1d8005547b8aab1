//! `clusterctl move`, as its target sees it: the same Cluster and ClusterBootstrap with new UIDs, generations that begin again
//! and no status.

use anyhow::{Context as _, Result, ensure};
use axum::body::Body;
use kube::Client;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::disturb::merge;
use super::read;
use crate::provider;
use crate::requests::edit;

/// Kinds that may name a Cluster as their owner.
const DEPENDENTS: [&str; 5] = [
    "/api/v1/{namespace}/secrets",
    "/apis/packaging.carvel.dev/v1alpha1/{namespace}/packageinstalls",
    "/apis/cluster.x-k8s.io/v1beta2/{namespace}/machinedeployments",
    "/apis/{provider}/{namespace}/harnessclusters",
    "/apis/{provider}/{namespace}/harnesscontrolplanes",
];

/// An object with its owners.
struct Dependent {
    path: String,
    owners: Vec<Value>,
}

impl Cluster {
    /// Pauses the Cluster, and deletes it, its ClusterBootstrap and the Secrets that the latter references. Creates them again in this
    /// order without status, restores their dependents, and ends the pause, without garbage collection meanwhile. Returns the warnings of
    /// the API server about the ClusterBootstrap.
    pub async fn relocate(&self) -> Result<Vec<String>> {
        let client = self.scene().client();
        merge(&client, &self.path(), &json!({"spec": {"paused": true}})).await?;
        let cluster = self.object().await?;
        let old = uid(&cluster)?;
        let dependents = self.dependents(&old).await?;
        for Dependent { path, .. } in &dependents {
            merge(&client, path, &json!({"metadata": {"ownerReferences": null}})).await?;
        }
        let bootstrap = self.bootstrap().await?;
        let mut secrets = Vec::new();
        for name in secrets_of(&bootstrap) {
            let path = format!("/api/v1/namespaces/{}/secrets/{name}", self.scene().namespace());
            let secret = edit::get(&client, &path).await?;
            secrets.push((path.clone(), secret.context("a Secret that is named")?));
            edit::delete_by_force(&client, &path).await?;
        }
        edit::delete_by_force(&client, &self.bootstrap_path()).await?;
        edit::delete_by_force(&client, &self.path()).await?;

        let (created, _) = create(&client, &self.path(), &without_status(cluster)).await?;
        let new = uid(&created)?;
        let moved = |owners: &Value| -> Result<Value> {
            Ok(serde_json::from_str(&owners.to_string().replace(&old, &new))?)
        };
        let mut again = without_status(bootstrap.clone());
        again["metadata"]["ownerReferences"] = moved(&bootstrap["metadata"]["ownerReferences"])?;
        let (_, warnings) = create(&client, &self.bootstrap_path(), &again).await?;
        for (path, secret) in secrets {
            let mut again = without_status(secret);
            again["metadata"]["ownerReferences"] = json!([]);
            create(&client, &path, &again).await?;
        }
        for Dependent { path, owners } in &dependents {
            let owners = moved(&json!(owners))?;
            merge(&client, path, &json!({"metadata": {"ownerReferences": owners}})).await?;
        }
        merge(&client, &self.path(), &json!({"spec": {"paused": null}})).await?;
        Ok(warnings)
    }

    async fn dependents(&self, owner: &str) -> Result<Vec<Dependent>> {
        let namespace = format!("namespaces/{}", self.scene().namespace());
        let provider = format!("{}/{}", provider::GROUP, provider::VERSION);
        let mut dependents = Vec::new();
        for kind in DEPENDENTS {
            let path = kind
                .replace("{namespace}", &namespace)
                .replace("{provider}", &provider);
            let listed = read::get(&self.scene().client(), &path).await?;
            for object in listed["items"].as_array().into_iter().flatten() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let owners = object["metadata"]["ownerReferences"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                if owners.iter().any(|reference| reference["uid"] == owner) {
                    dependents.push(Dependent {
                        path: format!("{path}/{name}"),
                        owners,
                    });
                }
            }
        }
        Ok(dependents)
    }
}

/// The Secrets that packages take their values from.
fn secrets_of(bootstrap: &Value) -> Vec<String> {
    let spec = &bootstrap["spec"];
    let core = ["kapp", "cni", "cpi", "csi"].map(|field| &spec[field]);
    let additional = spec["additionalPackages"].as_array().into_iter().flatten();
    let named = |package: &Value| package["valuesFrom"]["secretRef"].as_str().map(str::to_owned);
    core.into_iter().chain(additional).filter_map(named).collect()
}

fn uid(object: &Value) -> Result<String> {
    let uid = object["metadata"]["uid"].as_str();
    uid.map(str::to_owned).context("an object without UID")
}

/// What `clusterctl move` carries over.
fn without_status(mut object: Value) -> Value {
    let metadata = object["metadata"].take();
    object["metadata"] = json!({
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
    });
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    object
}

/// Creates an object at its former path. Returns the object and the warnings of the API server.
async fn create(client: &Client, path: &str, object: &Value) -> Result<(Value, Vec<String>)> {
    let collection = path.rsplit_once('/').context("the path of an object")?.0;
    let request = http::Request::post(collection)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object)?.into())?;
    let answer = client.send(request).await?;
    let warnings = answer.headers().get_all(http::header::WARNING).iter();
    let warnings: Vec<String> = warnings
        .filter_map(|warning| warning.to_str().ok().map(str::to_owned))
        .collect();
    let status = answer.status();
    let body = axum::body::to_bytes(Body::new(answer.into_body()), usize::MAX).await?;
    ensure!(
        status.is_success(),
        "create {path}: {}",
        String::from_utf8_lossy(&body)
    );
    Ok((serde_json::from_slice(&body)?, warnings))
}
