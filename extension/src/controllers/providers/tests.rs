use kube::runtime::{reflector::store::Writer, watcher::Event};
use serde_json::{Value, json};
use sluice_core::providers::kinds;

use super::*;
use crate::controllers::bootstrap::object_server::ObjectServer;

const CONFIG: &str = "/apis/cni.tanzu.vmware.com/v1alpha1/namespaces/team-a/calicoconfigs/one-calico";
const SECRET: &str = "/api/v1/namespaces/team-a/secrets/one-calico-data-values";

fn cluster() -> Cluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "one", "namespace": "team-a", "uid": "uid"},
        "spec": {
            "clusterNetwork": {"pods": {"cidrBlocks": ["100.96.0.0/11"]}},
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerCluster", "name": "one",
            },
        },
    }))
    .unwrap()
}

/// An API server with a configuration.
fn management() -> ObjectServer {
    let server = ObjectServer::default();
    server.put(
        CONFIG,
        json!({
            "apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": "CalicoConfig",
            "metadata": {"generation": 1, "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": "uid",
            }]},
            "spec": {"calico": {"config": {"vethMTU": 1400}}},
        }),
    );
    server
}

/// A pass over the configuration as it is; the code with which it was refused.
async fn passes(server: &ObjectServer) -> Result<(), u16> {
    let mut clusters = Writer::<Cluster>::new(());
    clusters.apply_watcher_event(&Event::Apply(cluster()));
    let context = Context::new(
        server.client(),
        clusters.as_reader(),
        Dependents::default(),
        Configurations::default(),
        Triggers::default(),
        Duration::from_mins(10),
    );
    let calico = kinds()
        .into_iter()
        .find(|kind| kind.resource.kind == "CalicoConfig");
    let ctx = OfKind {
        shared: Arc::new(context),
        kind: calico.unwrap(),
    };
    let config: DynamicObject = serde_json::from_value(server.get(CONFIG).unwrap()).unwrap();
    match pass(&Arc::new(config), &ctx).await {
        Ok(_) => Ok(()),
        Err(Error::Refused(failure)) => Err(failure.code.unwrap()),
        Err(error) => panic!("{error}"),
    }
}

/// The Secret with this content, as the API server has it in some later write.
fn values(server: &ObjectServer, content: &str) -> Value {
    let mut secret = server.get(SECRET).unwrap();
    secret["data"] = json!({"values.yaml": content});
    secret
}

#[tokio::test]
async fn values_are_written_once() {
    let server = management();
    passes(&server).await.unwrap();
    let written = server.get(SECRET).unwrap();
    assert!(!written["data"]["values.yaml"].is_null(), "{written}");
    passes(&server).await.unwrap();
    assert_eq!(server.get(SECRET).unwrap(), written);
}

/// Another leader, which knows more, writes while this one does.
#[tokio::test]
async fn values_that_were_written_since_they_were_read_stay() {
    let server = management();
    passes(&server).await.unwrap();
    server.put(SECRET, values(&server, "b2xk"));
    let newer = values(&server, "bmV3ZXI=");
    server.put_later(SECRET, newer.clone());
    assert_eq!(passes(&server).await, Err(409));
    assert_eq!(server.get(SECRET).unwrap()["data"], newer["data"]);
    // It is read again.
    assert_eq!(passes(&server).await, Ok(()));
    assert_ne!(server.get(SECRET).unwrap()["data"], newer["data"]);
}

#[tokio::test]
async fn values_that_were_made_again_since_they_were_read_stay() {
    let server = management();
    passes(&server).await.unwrap();
    server.put(SECRET, values(&server, "b2xk"));
    let mut other = values(&server, "bmV3ZXI=");
    other["metadata"]["uid"] = json!("another");
    server.put_later(SECRET, other.clone());
    assert_eq!(passes(&server).await, Err(409));
    assert_eq!(server.get(SECRET).unwrap()["metadata"]["uid"], "another");
}

#[tokio::test]
async fn values_that_appear_after_they_were_found_missing_stay() {
    let server = management();
    let newer =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"values.yaml": "bmV3ZXI="}});
    server.put_later(SECRET, newer.clone());
    assert_eq!(passes(&server).await, Err(409));
    assert_eq!(server.get(SECRET).unwrap()["data"], newer["data"]);
}
