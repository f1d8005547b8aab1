//! One cluster as Cluster API and its providers have it, made through a real API server, so that it is stored as theirs is.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::catalogue::{kubernetes, package_name, release_name};
use super::kinds::{ANTREA, CLUSTER, CONTROL_PLANE, CPI, INFRASTRUCTURE, Kind, SECRET, WORKERS};
use super::objects::Objects;
use crate::objects::TKR;

/// MachineDeployments of one cluster.
const POOLS: usize = 3;

/// Field managers: a user, Cluster API with its topology controller, and its providers.
const USER: &str = "kubectl";
const MANAGER: &str = "manager";
const TOPOLOGY: &str = "capi-topology";

/// How far a cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Control plane and workers run.
    Running,
    /// The control plane is not initialized, and there is no kubeconfig.
    Waiting,
}

/// Makes the objects of a cluster, without what Sluice and kapp-controller write. `kubeconfig` is that of its workload.
pub(super) async fn make(
    objects: &Objects,
    name: &str,
    minor: u16,
    state: State,
    kubeconfig: &str,
) -> Result<()> {
    let version = kubernetes(minor);
    let cluster = objects.apply(CLUSTER, USER, &given(name, minor)).await?;
    let uid = cluster["metadata"]["uid"]
        .as_str()
        .context("a Cluster without UID")?
        .to_owned();
    let make = Make {
        objects,
        name,
        version: &version,
        state,
        owner: CLUSTER.owner(name, &uid),
    };
    make.infrastructure().await?;
    make.control_plane().await?;
    for pool in 0..POOLS {
        make.workers(pool).await?;
    }
    make.configurations(minor).await?;
    make.secrets(kubeconfig).await?;
    make.observed().await
}

struct Make<'a> {
    objects: &'a Objects,
    name: &'a str,
    version: &'a str,
    state: State,
    owner: Value,
}

impl Make<'_> {
    fn of_cluster(&self, kind: Kind, name: &str, spec: &Value) -> Value {
        let content = json!({
            "metadata": {
                "labels": {"cluster.x-k8s.io/cluster-name": self.name, "topology.cluster.x-k8s.io/owned": ""},
                "annotations": {"cluster.x-k8s.io/cloned-from-groupkind": "template", "cluster.x-k8s.io/cloned-from-name": "tkg-vsphere-default-v1.2.0"},
                "ownerReferences": self.owner,
                "finalizers": ["fleet.cluster.x-k8s.io"],
            },
            "spec": spec,
        });
        kind.object(name, content)
    }

    fn runs(&self) -> bool {
        self.state == State::Running
    }

    async fn infrastructure(&self) -> Result<()> {
        let spec = json!({
            "controlPlaneEndpoint": {"host": "10.20.30.40", "port": 6443},
            "identityRef": {"kind": "Secret", "name": self.name},
            "server": "vcenter.fleet.test",
            "thumbprint": "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD",
        });
        let object = self.of_cluster(INFRASTRUCTURE, self.name, &spec);
        self.objects.apply(INFRASTRUCTURE, TOPOLOGY, &object).await?;
        let status = json!({"ready": true, "vCenterVersion": "8.0.3", "conditions": conditions(&["Ready", "VCenterAvailable"], true)});
        self.objects
            .status(INFRASTRUCTURE, MANAGER, self.name, &status)
            .await
    }

    async fn control_plane(&self) -> Result<()> {
        let spec = json!({
            "version": self.version,
            "replicas": 3,
            "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
            "machineTemplate": {"spec": {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "VSphereMachineTemplate", "name": format!("{}-control-plane", self.name)}}},
            "kubeadmConfigSpec": {
                "clusterConfiguration": {"apiServer": {"extraArgs": arguments("api-server")}, "controllerManager": {"extraArgs": arguments("controller-manager")}},
                "files": (0..4).map(|file| json!({"path": format!("/etc/kubernetes/file-{file}.yaml"), "owner": "root:root", "permissions": "0640", "content": "x".repeat(300)})).collect::<Vec<_>>(),
            },
        });
        let object = self.of_cluster(CONTROL_PLANE, self.name, &spec);
        self.objects.apply(CONTROL_PLANE, TOPOLOGY, &object).await?;
        let status = if self.runs() {
            json!({
                "initialization": {"controlPlaneInitialized": true},
                "version": self.version,
                "versions": [{"version": self.version, "replicas": 3}],
                "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "upToDateReplicas": 3,
                "selector": format!("cluster.x-k8s.io/cluster-name={}", self.name),
                "conditions": conditions(&["Available", "Initialized", "CertificatesAvailable", "EtcdClusterHealthy", "MachinesReady"], true),
            })
        } else {
            json!({"conditions": conditions(&["Available", "Initialized"], false)})
        };
        self.objects
            .status(CONTROL_PLANE, MANAGER, self.name, &status)
            .await
    }

    async fn workers(&self, pool: usize) -> Result<()> {
        let name = format!("{}-md-{pool}", self.name);
        let labels = json!({"cluster.x-k8s.io/cluster-name": self.name, "topology.cluster.x-k8s.io/deployment-name": format!("md-{pool}")});
        let template = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "VSphereMachineTemplate", "name": name});
        let spec = json!({
            "clusterName": self.name,
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": self.name,
                    "version": self.version,
                    "bootstrap": {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": name}},
                    "infrastructureRef": template,
                    "deletion": {"nodeDrainTimeoutSeconds": 600},
                },
            },
        });
        let object = self.of_cluster(WORKERS, &name, &spec);
        self.objects.apply(WORKERS, TOPOLOGY, &object).await?;
        let replicas = if self.runs() { 3 } else { 0 };
        let mut status = json!({
            "observedGeneration": 1,
            "phase": "Running",
            "selector": format!("cluster.x-k8s.io/cluster-name={}", self.name),
            "replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas, "upToDateReplicas": replicas,
            "conditions": conditions(&["Available", "RollingOut", "ScalingUp", "MachinesReady", "MachinesUpToDate"], self.runs()),
        });
        if self.runs() {
            status["versions"] = json!([{"version": self.version, "replicas": replicas}]);
        }
        self.objects.status(WORKERS, MANAGER, &name, &status).await
    }

    async fn configurations(&self, minor: u16) -> Result<()> {
        let antrea = json!({
            "metadata": {
                "ownerReferences": self.owner,
                "labels": {"tkg.tanzu.vmware.com/package-name": package_name("antrea", minor)},
            },
            "spec": {"antrea": {"config": {"trafficEncapMode": "encap", "defaultMTU": "1450", "featureGates": {"AntreaProxy": true, "EndpointSlice": true, "AntreaPolicy": true}}}},
        });
        let cpi = json!({
            "metadata": {"ownerReferences": self.owner},
            "spec": {"vsphereCPI": {"mode": "vsphereCPI", "datacenter": "/dc0", "region": "k8s-region", "zone": "k8s-zone", "vmNetwork": {"internal": "net-0", "external": "net-0"}}},
        });
        for (kind, package, content) in [(ANTREA, "antrea", antrea), (CPI, "vsphere-cpi", cpi)] {
            let name = format!("{}-{package}-package", self.name);
            self.objects
                .apply(kind, USER, &kind.object(&name, content))
                .await?;
        }
        Ok(())
    }

    async fn secrets(&self, kubeconfig: &str) -> Result<()> {
        let login = json!({
            "metadata": {"ownerReferences": self.owner},
            "type": "Opaque",
            "data": {"username": BASE64_STANDARD.encode("administrator@vsphere.local"), "password": BASE64_STANDARD.encode("of-the-fleet")},
        });
        let kubeconfig = json!({
            "metadata": {"ownerReferences": self.owner, "labels": {"cluster.x-k8s.io/cluster-name": self.name}},
            "type": "cluster.x-k8s.io/secret",
            "data": {"value": BASE64_STANDARD.encode(kubeconfig)},
        });
        let login = SECRET.object(self.name, login);
        self.objects.apply(SECRET, USER, &login).await?;
        if self.runs() {
            let kubeconfig = SECRET.object(&format!("{}-kubeconfig", self.name), kubeconfig);
            self.objects.apply(SECRET, MANAGER, &kubeconfig).await?;
        }
        Ok(())
    }

    /// What Cluster API writes to the Cluster itself.
    async fn observed(&self) -> Result<()> {
        let spec = json!({
            "metadata": {"finalizers": ["cluster.cluster.x-k8s.io"], "labels": {"topology.cluster.x-k8s.io/owned": ""}},
            "spec": {
                "controlPlaneRef": CONTROL_PLANE.reference(self.name),
                "infrastructureRef": INFRASTRUCTURE.reference(self.name),
                "controlPlaneEndpoint": {"host": "10.20.30.40", "port": 6443},
            },
        });
        self.objects
            .merge(&CLUSTER.one(self.name), MANAGER, &spec)
            .await?;
        let runs = self.runs();
        let versions = |replicas: u32| json!([{"version": self.version, "replicas": replicas}]);
        let of_v1beta1: Vec<Value> = conditions(
            &[
                "Ready",
                "ControlPlaneInitialized",
                "ControlPlaneReady",
                "InfrastructureReady",
                "TopologyReconciled",
            ],
            runs,
        )
        .into_iter()
        .map(|mut condition| {
            // Those of this version say nothing where they hold.
            for field in ["reason", "message"] {
                condition.as_object_mut().map(|condition| condition.remove(field));
            }
            condition
        })
        .collect();
        let mut status = json!({
            "observedGeneration": 2,
            "phase": "Provisioned",
            "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": runs},
            "conditions": conditions(&["Available", "InfrastructureReady", "ControlPlaneInitialized", "ControlPlaneAvailable", "WorkersAvailable", "RemoteConnectionProbe", "TopologyReconciled", "MachinesReady", "MachinesUpToDate", "RollingOut", "Remediating", "Deleting", "Paused"], runs),
            "deprecated": {"v1beta1": {"conditions": of_v1beta1}},
        });
        if runs {
            status["controlPlane"] = json!({"desiredReplicas": 3, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "upToDateReplicas": 3, "versions": versions(3)});
            status["workers"] = json!({"desiredReplicas": 9, "replicas": 9, "readyReplicas": 9, "availableReplicas": 9, "upToDateReplicas": 9, "versions": versions(9)});
        }
        self.objects.status(CLUSTER, MANAGER, self.name, &status).await
    }
}

/// The Cluster as its user applies it, with the copy of it that kubectl keeps.
fn given(name: &str, minor: u16) -> Value {
    let (version, release) = (kubernetes(minor), release_name(minor, 1));
    let data = json!({version.as_str(): release_data(&version, &release)});
    let pools: Vec<Value> = (0..POOLS)
        .map(|pool| {
            let overrides = json!([
                {"name": "nodePoolLabels", "value": [{"key": "pool", "value": pool.to_string()}]},
            ]);
            json!({
                "class": "tkg-worker", "name": format!("md-{pool}"), "replicas": 3, "failureDomain": format!("zone-{pool}"),
                "variables": {"overrides": overrides},
            })
        })
        .collect();
    let content = json!({
        "metadata": {
            "labels": {TKR: release, "tkg.tanzu.vmware.com/cluster-name": name},
            "annotations": {
                "osInfo": "photon,5,amd64",
                "tkg/plan": "prod",
                "tkg.tanzu.vmware.com/tkg-http-proxy": "http://proxy.fleet.test:3128",
                "tkg.tanzu.vmware.com/tkg-no-proxy": "localhost,127.0.0.1,.svc,.svc.cluster.local",
            },
        },
        "spec": {
            "clusterNetwork": {"pods": {"cidrBlocks": ["100.96.0.0/11"]}, "services": {"cidrBlocks": ["100.64.0.0/13"]}},
            "topology": {
                "classRef": {"name": "tkg-vsphere-default-v1.2.0"},
                "version": version,
                "controlPlane": {"replicas": 3, "metadata": {"annotations": {"run.tanzu.vmware.com/resolve-os-image": "image-type=ova,os-name=photon"}}},
                "workers": {"machineDeployments": pools},
                "variables": [
                    {"name": "TKR_DATA", "value": data},
                    {"name": "network", "value": {"ipv6Primary": false, "proxy": {"httpProxy": "http://proxy.fleet.test:3128", "noProxy": ["localhost", "127.0.0.1", ".svc"]}}},
                    {"name": "auditLogging", "value": {"enabled": true}},
                    {"name": "vcenter", "value": {"datacenter": "/dc0", "datastore": "/dc0/datastore/local-0", "folder": "/dc0/vm/fleet", "server": "vcenter.fleet.test"}},
                    {"name": "user", "value": {"sshAuthorizedKeys": [format!("ssh-ed25519 {}", "A".repeat(60))]}},
                    {"name": "trust", "value": {"additionalTrustedCAs": [{"name": "proxy", "data": "Q".repeat(200)}]}},
                ],
            },
        },
    });
    let mut cluster = CLUSTER.object(name, content);
    let applied = cluster.to_string();
    cluster["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(applied);
    cluster
}

/// `TKR_DATA` of the release resolver for a Kubernetes version.
pub(super) fn release_data(version: &str, release: &str) -> Value {
    let image = |tag: &str| json!({"imageRepository": "registry.invalid/tkg", "imageTag": tag});
    json!({
        "kubernetesSpec": {
            "version": version,
            "imageRepository": "registry.invalid/tkg",
            "etcd": image("v3.6.4_vmware.1"),
            "coredns": image("v1.12.1_vmware.1"),
            "pause": image("3.10"),
            "kube-vip": image("v0.8.9_vmware.1"),
        },
        "labels": {TKR: release, "image-type": "ova", "os-arch": "amd64", "os-name": "photon", "os-type": "linux", "os-version": "5", "ova-version": format!("{version}---vmware.1")},
        "osImageRef": {"moid": "vm-1234", "template": format!("/dc0/vm/photon-5-kube-{version}"), "version": format!("{version}+vmware.1-tkg.1")},
    })
}

fn arguments(of: &str) -> Vec<Value> {
    (0..5)
        .map(|number| json!({"name": format!("{of}-argument-{number}"), "value": "value"}))
        .collect()
}

fn conditions(types: &[&str], hold: bool) -> Vec<Value> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    types
        .iter()
        .map(|kind| {
            json!({
                "type": kind,
                "status": if hold { "True" } else { "False" },
                "reason": if hold { (*kind).to_owned() } else { format!("Not{kind}") },
                "message": if hold { "" } else { "Waiting for control plane provider to indicate the control plane has been initialized" },
                "lastTransitionTime": now,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::MINORS;

    #[test]
    fn a_cluster_names_its_release_and_carries_its_data() {
        let cluster = given("fleet-00000", MINORS[0]);
        assert_eq!(cluster["metadata"]["labels"][TKR], "v1.35.4---vmware.1-tkg.1");
        let variables = cluster["spec"]["topology"]["variables"].as_array().unwrap();
        let data = variables
            .iter()
            .find(|variable| variable["name"] == "TKR_DATA")
            .unwrap();
        assert_eq!(
            data["value"]["v1.35.4"]["labels"][TKR],
            "v1.35.4---vmware.1-tkg.1"
        );
        assert_eq!(
            cluster["spec"]["topology"]["workers"]["machineDeployments"]
                .as_array()
                .unwrap()
                .len(),
            POOLS
        );
    }
}
