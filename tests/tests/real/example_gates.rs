//! The five examples of docs/gates.md, applied with kubectl: the leader judges each of their checks once as not proven and once as proven.
//!
//! The objects of the checks, and those of Cluster API, are written as their controllers write them. None of these controllers runs.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_tests::components::{
    CAAPH_VERSION, CLUSTER_API_VERSION, HELM_CONTROLLER_VERSION, KUSTOMIZE_CONTROLLER_VERSION,
    SOURCE_CONTROLLER_VERSION,
};
use sluice_tests::extension::{Replica, Settings};
use sluice_tests::install::{Definitions, Site};
use sluice_tests::objects::definition;
use sluice_tests::provider;
use sluice_tests::requests::apply::{apply, apply_crds, documents, namespace};
use sluice_tests::scenario::{Objects, VERSIONS};
use sluice_tests::sources::root;
use sluice_tests::stack::StackCore;
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::stack::audit::SLUICE;
use sluice_tests::stack::manifests::Base;
use sluice_tests::wait;

use crate::install_gates::becomes_allowed;

/// Definitions of Cluster API and of delivery systems.
const DEFINITIONS: [Definitions; 5] = [
    (
        "sigs.k8s.io/cluster-api",
        CLUSTER_API_VERSION,
        &[
            "core/config/crd/bases/cluster.x-k8s.io_clusters.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_clusterclasses.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machinedeployments.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machinepools.yaml",
        ],
    ),
    (
        "sigs.k8s.io/cluster-api-addon-provider-helm",
        CAAPH_VERSION,
        &[
            "config/crd/bases/addons.cluster.x-k8s.io_helmchartproxies.yaml",
            "config/crd/bases/addons.cluster.x-k8s.io_helmreleaseproxies.yaml",
        ],
    ),
    (
        "github.com/fluxcd/helm-controller",
        HELM_CONTROLLER_VERSION,
        &["config/crd/bases/helm.toolkit.fluxcd.io_helmreleases.yaml"],
    ),
    (
        "github.com/fluxcd/kustomize-controller",
        KUSTOMIZE_CONTROLLER_VERSION,
        &["config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"],
    ),
    (
        "github.com/fluxcd/source-controller",
        SOURCE_CONTROLLER_VERSION,
        &["config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml"],
    ),
];

/// Resources of the management cluster that only an opt-in role lets Sluice read, and the kind of the control planes.
const READ: [(&str, (&str, &str)); 5] = [
    ("list", (provider::GROUP, "harnesscontrolplanes")),
    ("get", ("addons.cluster.x-k8s.io", "helmchartproxies")),
    ("get", ("helm.toolkit.fluxcd.io", "helmreleases")),
    ("get", ("kustomize.toolkit.fluxcd.io", "kustomizations")),
    ("get", ("source.toolkit.fluxcd.io", "gitrepositories")),
];

/// Files with the examples.
const FILES: [&str; 5] = [
    "examples/gate.yaml",
    "examples/gates/flux-helmrelease.yaml",
    "examples/gates/flux-kustomization.yaml",
    "examples/gates/plain-objects.yaml",
    "examples/gates/expressions.yaml",
];

/// Namespace of gates, Clusters and management objects.
const TEAM: &str = "team-a";

/// Clusters, with their labels. Both have the same workload API server.
const CLUSTERS: [(&str, &[(&str, &str)]); 2] = [
    (
        "prod-1",
        &[("cni", "cilium"), ("csi", "ebs"), ("metrics", "flux")],
    ),
    ("prod-2", &[("cni", "calico")]),
];

/// Each check: a Cluster that it is judged for, gate and name, and its reason before the add-ons are at the version of the hop.
const CHECKS: [(&str, &str, &str, &str); 13] = [
    ("prod-1", "cni", "chart", "NotAtVersion"),
    ("prod-1", "cni", "agent", "NotRolledOut"),
    ("prod-1", "csi", "release", "DeliverySuspended"),
    ("prod-1", "csi", "controller", "NotAtVersion"),
    ("prod-1", "csi", "node", "NotRolledOut"),
    ("prod-1", "metrics", "applied", "NotAtVersion"),
    ("prod-1", "metrics", "server", "NotAtVersion"),
    ("prod-1", "prepared", "backup", "NotComplete"),
    ("prod-1", "prepared", "policies", "NotServed"),
    ("prod-1", "ccm", "manager", "NotAtVersion"),
    ("prod-2", "calico", "version", "ExpressionFalse"),
    ("prod-2", "calico", "node", "NotRolledOut"),
    ("prod-2", "calico", "typha", "ExpressionFalse"),
];

/// Timeout until the leader has judged.
const JUDGED: Duration = Duration::from_mins(2);

/// Name of the CustomResourceDefinition that a gate checks. Its group is one that the API server protects.
const POLICIES: &str = "backendtlspolicies.gateway.networking.k8s.io";

#[tokio::test(flavor = "multi_thread")]
async fn each_example_is_judged_as_not_proven_and_as_proven() -> Result<()> {
    checks_are_those_of_the_files()?;
    let core = StackCore::start("example-gates").await?;
    let site = Site::prepare(&core, "example-gates").await?;
    let workload = ApiServer::start(&core, "workload", VERSIONS[0]).await?;
    define(&site, &workload.admin_client()).await?;
    grant(&site).await?;
    let settings = Settings {
        packages: false,
        status: false,
        ..Settings::new("sluice")
    };
    let _leader = Replica::start_beside(&core, site.api(), settings).await?;
    for (name, labels) in CLUSTERS {
        cluster(&site.client(), name, labels, &workload.admin_kubeconfig()).await?;
    }

    let addons = Addons {
        management: site.client(),
        workload: workload.admin_client(),
    };
    addons.write(&LATE).await?;
    let files = FILES.map(|file| format!("--filename {file}")).join(" ");
    let command = format!("kubectl apply --namespace {TEAM} {files}");
    site.shell().run(&command, &[]).await?.well()?;
    are_judged(&site, |reason| ("Waiting", reason)).await?;
    are_accepted(&site).await?;
    addons.write(&READY).await?;
    are_judged(&site, |_| ("Proven", "")).await?;
    core.directory().close().await
}

/// Fails if a file has a check that is not listed here, or the reverse.
fn checks_are_those_of_the_files() -> Result<()> {
    let mut found = BTreeSet::new();
    for file in FILES {
        let text = std::fs::read_to_string(root().join(file)).with_context(|| format!("read {file}"))?;
        for gate in documents(&text)? {
            for check in gate["spec"]["checks"].as_array().into_iter().flatten() {
                let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                found.insert((name(&gate["metadata"]["name"]), name(&check["name"])));
            }
        }
    }
    let listed = CHECKS.map(|(_, gate, check, _)| (gate.to_owned(), check.to_owned()));
    let listed = BTreeSet::from(listed);
    ensure!(found == listed, "the files have {found:?}, not {listed:?}");
    Ok(())
}

/// Defines all kinds.
async fn define(site: &Site, workload: &Client) -> Result<()> {
    site.define(&DEFINITIONS).await?;
    apply_crds(&site.client(), &provider::definitions()).await?;
    namespace(&site.client(), TEAM).await?;
    let mut calico = definition::open("crd.projectcalico.org", "ClusterInformation", "v1", &json!({}));
    calico["spec"]["scope"] = json!("Cluster");
    apply_crds(workload, &[calico, policies(&LATE)]).await?;
    namespace(workload, "calico-system").await
}

/// Lets Sluice read what the gates name.
async fn grant(site: &Site) -> Result<()> {
    Base::gates_only().await?.apply(&site.client()).await?;
    apply(&site.client(), &provider::reader_role()).await?;
    for (verb, resource) in READ {
        becomes_allowed(site, SLUICE, verb, resource).await?;
    }
    Ok(())
}

/// Creates a Cluster whose next version is that of the second row of each gate, with control plane and kubeconfig.
async fn cluster(client: &Client, name: &str, labels: &[(&str, &str)], kubeconfig: &str) -> Result<()> {
    let (from, to) = (VERSIONS[0], VERSIONS[1]);
    let control_plane = json!({
        "apiVersion": format!("{}/{}", provider::GROUP, provider::VERSION),
        "kind": "HarnessControlPlane",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"version": from, "replicas": 1},
    });
    put(
        client,
        &control_plane,
        |_| json!({"version": from, "replicas": 1, "upToDateReplicas": 1}),
    )
    .await?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": format!("{name}-kubeconfig"),
            "namespace": TEAM,
            "labels": {"cluster.x-k8s.io/cluster-name": name},
        },
        "type": "cluster.x-k8s.io/secret",
        "stringData": {"value": kubeconfig},
    });
    apply(client, &secret).await?;
    let mut cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": TEAM, "labels": {}},
        "spec": {
            "controlPlaneRef": {"apiGroup": provider::GROUP, "kind": "HarnessControlPlane", "name": name},
            "infrastructureRef": {"apiGroup": provider::GROUP, "kind": "HarnessCluster", "name": name},
            "topology": {"classRef": {"name": "edge"}, "version": to},
        },
    });
    for (key, value) in labels {
        cluster["metadata"]["labels"][*key] = json!(value);
    }
    apply(client, &cluster).await.map(drop)
}

/// State of all add-ons.
struct State {
    /// Whether everything runs at its version.
    runs: bool,
    /// Version of a HelmReleaseProxy. That of its HelmChartProxy is edited already.
    delivered: &'static str,
    /// Git tag that is applied.
    tag: &'static str,
    /// Image tags of workloads whose images are not edited before.
    controller: &'static str,
    server: &'static str,
    manager: &'static str,
    /// Version of Calico.
    calico: &'static str,
}

/// The add-ons of Kubernetes 1.34. Some are edited already and not rolled out.
const LATE: State = State {
    runs: false,
    delivered: "1.17.4",
    tag: "addons-1.34.2",
    controller: "v1.48.0",
    server: "v0.7.2",
    manager: "v1.34.3",
    calico: "v3.30.3",
};

/// Those of Kubernetes 1.35.
const READY: State = State {
    runs: true,
    delivered: "1.18.2",
    tag: "addons-1.35.0",
    controller: "v1.53.0",
    server: "v0.8.0",
    manager: "v1.35.0",
    calico: "v3.31.0",
};

/// Writes the objects of all checks.
struct Addons {
    management: Client,
    workload: Client,
}

impl Addons {
    async fn write(&self, state: &State) -> Result<()> {
        self.cilium(state).await?;
        self.ebs(state).await?;
        self.metrics(state).await?;
        self.plain(state).await?;
        self.calico(state).await
    }

    /// A chart of CAAPH. The HelmChartProxy is edited first, and its HelmReleaseProxy follows.
    async fn cilium(&self, state: &State) -> Result<()> {
        let chart =
            json!({"chartName": "cilium", "repoURL": "https://charts.test", "namespace": "kube-system"});
        let mut proxy = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1",
            "kind": "HelmChartProxy",
            "metadata": {"name": "cilium", "namespace": TEAM},
            "spec": chart,
        });
        proxy["spec"]["version"] = json!("1.18.2");
        proxy["spec"]["clusterSelector"] = json!({"matchLabels": {"cni": "cilium"}});
        let proxy = put(
            &self.management,
            &proxy,
            |generation| json!({"observedGeneration": generation}),
        )
        .await?;
        let mut release = json!({
            "apiVersion": "addons.cluster.x-k8s.io/v1alpha1",
            "kind": "HelmReleaseProxy",
            "metadata": {
                "name": "cilium-prod-1-x7k2p",
                "namespace": TEAM,
                "labels": {
                    "cluster.x-k8s.io/cluster-name": "prod-1",
                    "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name": "cilium",
                },
                "ownerReferences": [{
                    "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
                    "name": "cilium", "uid": proxy.uid(), "controller": true,
                }],
            },
            "spec": chart,
        });
        release["spec"]["version"] = json!(state.delivered);
        release["spec"]["releaseName"] = json!("cilium");
        release["spec"]["clusterRef"] = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "prod-1", "namespace": TEAM,
        });
        put(&self.management, &release, |generation| {
            json!({
                "observedGeneration": generation,
                "revision": 1,
                "status": "deployed",
                "conditions": [is_true("Ready"), is_true("HelmReleaseReady"), is_true("ClusterAvailable")],
            })
        })
        .await?;
        self.daemon_set(("kube-system", "cilium"), ("cilium-agent", "v1.18.2"), state)
            .await
    }

    /// A HelmRelease whose version was edited while it is suspended.
    async fn ebs(&self, state: &State) -> Result<()> {
        let release = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": {"name": "prod-1-ebs-csi", "namespace": TEAM},
            "spec": {
                "interval": "10m",
                "suspend": !state.runs,
                "targetNamespace": "kube-system",
                "kubeConfig": {"secretRef": {"name": "prod-1-kubeconfig"}},
                "chart": {"spec": {
                    "chart": "aws-ebs-csi-driver", "version": "2.53.0",
                    "sourceRef": {"kind": "HelmRepository", "name": "ebs"},
                }},
            },
        });
        let deployed = if state.runs { "2.53.0" } else { "2.48.0" };
        let digest = format!("sha256:{}", "0".repeat(64));
        put(&self.management, &release, |generation| {
            json!({
                "observedGeneration": generation,
                "lastAttemptedGeneration": generation,
                "lastAttemptedRevision": deployed,
                "lastAttemptedConfigDigest": digest,
                "lastAttemptedReleaseAction": "upgrade",
                "storageNamespace": TEAM,
                "conditions": [is_true("Ready"), is_true("Released")],
                "history": [{
                    "name": "ebs", "namespace": "kube-system", "version": 2, "status": "deployed",
                    "chartName": "aws-ebs-csi-driver", "chartVersion": deployed,
                    "configDigest": digest, "digest": digest, "firstDeployed": TIME, "lastDeployed": TIME,
                }],
            })
        })
        .await?;
        let controller = ("ebs-plugin", state.controller);
        self.deployment("ebs-csi-controller", controller).await?;
        self.daemon_set(("kube-system", "ebs-csi-node"), ("ebs-plugin", "v1.53.0"), state)
            .await
    }

    /// A Kustomization and its source.
    async fn metrics(&self, state: &State) -> Result<()> {
        let revision = format!("{}@sha1:{}", state.tag, "0".repeat(40));
        let source = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": {"name": "addons", "namespace": TEAM},
            "spec": {"interval": "5m", "url": "https://git.test/addons.git", "ref": {"tag": state.tag}},
        });
        put(&self.management, &source, |generation| {
            json!({
                "observedGeneration": generation,
                "artifact": {
                    "path": "addons.tar.gz", "url": "http://source.test/addons.tar.gz", "revision": revision,
                    "digest": format!("sha256:{}", "0".repeat(64)), "lastUpdateTime": TIME,
                },
                "conditions": [is_true("Ready"), is_true("ArtifactInStorage")],
            })
        })
        .await?;
        let kustomization = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": "prod-1-metrics", "namespace": TEAM},
            "spec": {
                "interval": "10m",
                "prune": true,
                "path": "./metrics",
                "kubeConfig": {"secretRef": {"name": "prod-1-kubeconfig"}},
                "sourceRef": {"kind": "GitRepository", "name": "addons"},
            },
        });
        put(&self.management, &kustomization, |generation| {
            json!({
                "observedGeneration": generation,
                "lastAppliedRevision": revision,
                "lastAttemptedRevision": revision,
                "conditions": [is_true("Ready")],
            })
        })
        .await?;
        self.deployment("metrics-server", ("metrics-server", state.server))
            .await
    }

    /// A Job, a CustomResourceDefinition and a Deployment without a delivery system.
    async fn plain(&self, state: &State) -> Result<()> {
        let name = format!("backup-before-{}", VERSIONS[1]);
        let job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "backup", "image": "registry.test/backup:v1"}],
            }}},
        });
        put(&self.workload, &job, |_| {
            if state.runs {
                json!({
                    "active": 0, "succeeded": 1, "startTime": TIME, "completionTime": TIME,
                    "conditions": [is_true("SuccessCriteriaMet"), is_true("Complete")],
                })
            } else {
                json!({"active": 1, "startTime": TIME})
            }
        })
        .await?;
        apply_crds(&self.workload, &[policies(state)]).await?;
        let manager = ("cloud-controller-manager", state.manager);
        self.deployment("cloud-controller-manager", manager).await
    }

    /// Objects that only expressions judge.
    async fn calico(&self, state: &State) -> Result<()> {
        let information = json!({
            "apiVersion": "crd.projectcalico.org/v1",
            "kind": "ClusterInformation",
            "metadata": {"name": "default"},
            "spec": {"calicoVersion": state.calico, "clusterType": "k8s,bgp", "datastoreReady": true},
        });
        apply(&self.workload, &information).await?;
        let node = ("calico-system", "calico-node");
        self.daemon_set(node, ("calico-node", "v3.31.0"), state).await?;
        let budget = json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "calico-typha", "namespace": "calico-system"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"k8s-app": "calico-typha"}}},
        });
        let healthy = if state.runs { 3 } else { 1 };
        put(&self.workload, &budget, |generation| {
            json!({
                "observedGeneration": generation,
                "currentHealthy": healthy, "desiredHealthy": 2, "expectedPods": 3, "disruptionsAllowed": 0,
            })
        })
        .await
        .map(drop)
    }

    /// A DaemonSet, by namespace and name, whose image is edited already.
    async fn daemon_set(&self, name: (&str, &str), container: (&str, &str), state: &State) -> Result<()> {
        let updated = if state.runs { 3 } else { 1 };
        let daemon_set = workload("DaemonSet", name, container);
        put(&self.workload, &daemon_set, |generation| {
            json!({
                "observedGeneration": generation,
                "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberMisscheduled": 0,
                "numberReady": 3, "numberAvailable": 3, "updatedNumberScheduled": updated,
            })
        })
        .await
        .map(drop)
    }

    /// A Deployment of namespace `kube-system` that is rolled out.
    async fn deployment(&self, name: &str, container: (&str, &str)) -> Result<()> {
        let mut deployment = workload("Deployment", ("kube-system", name), container);
        deployment["spec"]["replicas"] = json!(2);
        put(&self.workload, &deployment, |generation| {
            json!({
                "observedGeneration": generation,
                "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
            })
        })
        .await
        .map(drop)
    }
}

/// Time of everything that has one.
const TIME: &str = "2026-01-01T00:00:00Z";

/// A condition that is true.
fn is_true(type_: &str) -> Value {
    json!({
        "type": type_, "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": TIME,
    })
}

/// A workload by namespace and name, with the name of its container and the tag of the image.
fn workload(kind: &str, (namespace, name): (&str, &str), (container, tag): (&str, &str)) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": container, "image": format!("registry.test/{container}:{tag}")}]},
            },
        },
    })
}

/// The CustomResourceDefinition that a gate checks: with version `v1` only once everything runs.
fn policies(state: &State) -> Value {
    let mut policies = definition::open(
        "gateway.networking.k8s.io",
        "BackendTLSPolicy",
        "v1alpha3",
        &json!({"status": {}}),
    );
    policies["metadata"]["name"] = json!(POLICIES);
    policies["metadata"]["annotations"] =
        json!({"api-approved.kubernetes.io": "unapproved, only for this test"});
    policies["spec"]["names"]["plural"] = json!("backendtlspolicies");
    let mut version = policies["spec"]["versions"][0].clone();
    version["name"] = json!("v1");
    version["storage"] = json!(false);
    if state.runs
        && let Some(versions) = policies["spec"]["versions"].as_array_mut()
    {
        versions.push(version);
    }
    policies
}

/// Applies an object, and writes its status as its controller does after it has observed the generation.
async fn put(client: &Client, object: &Value, status: impl FnOnce(i64) -> Value) -> Result<DynamicObject> {
    let applied = apply(client, object).await?;
    let types = applied.types.clone().context("an object without kind")?;
    let what = format!("write the status of {} {}", types.kind, applied.name_any());
    let kind = GroupVersionKind::try_from(&types).with_context(|| what.clone())?;
    let (resource, _) = pinned_kind(client, &kind).await.with_context(|| what.clone())?;
    let api: Api<DynamicObject> = match applied.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let generation = applied.metadata.generation.unwrap_or_default();
    let status = Patch::Merge(json!({"status": status(generation)}));
    api.patch_status(&applied.name_any(), &PatchParams::default(), &status)
        .await
        .context(what)
}

/// Waits until each check has the state and the reason that `expected` returns for its reason before.
async fn are_judged(
    site: &Site,
    expected: impl Fn(&'static str) -> (&'static str, &'static str),
) -> Result<()> {
    let objects = Objects::of(site.client());
    for (cluster, gate, name, late) in CHECKS {
        let (state, reason) = expected(late);
        let path = format!("/apis/lifecycle.sluice.dev/v1alpha1/namespaces/{TEAM}/clusterupgrades/{cluster}");
        let what = format!("check {gate}/{name} of {cluster} to be {state} {reason}");
        wait::until(what, JUDGED, || async {
            let upgrade = objects.get(&path).await?.unwrap_or_default();
            let record = &upgrade["status"]["upgrade"];
            let mut checks = record["checks"].as_array().into_iter().flatten();
            let check = checks.find(|check| check["gate"] == gate && check["name"] == name);
            let Some(check) = check else {
                return wait::not_yet(&upgrade["status"]);
            };
            let found = check["reason"].as_str().unwrap_or_default();
            if check["state"] == state && found == reason && record["hop"] == VERSIONS[1] {
                Ok(())
            } else {
                wait::not_yet(check)
            }
        })
        .await?;
    }
    Ok(())
}

/// Waits until each gate is accepted, and nothing is held.
async fn are_accepted(site: &Site) -> Result<()> {
    let objects = Objects::of(site.client());
    let gates: BTreeSet<&str> = CHECKS.iter().map(|(_, gate, ..)| *gate).collect();
    for gate in gates {
        let path = format!("/apis/lifecycle.sluice.dev/v1alpha1/namespaces/{TEAM}/upgradegates/{gate}");
        wait::until(format!("UpgradeGate {gate} to be accepted"), JUDGED, || async {
            let gate = objects.get(&path).await?.unwrap_or_default();
            let mut conditions = gate["status"]["conditions"].as_array().into_iter().flatten();
            let is_accepted =
                conditions.any(|condition| condition["type"] == "Accepted" && condition["status"] == "True");
            if is_accepted && gate["status"]["holding"] == 0 {
                Ok(())
            } else {
                wait::not_yet(&gate["status"])
            }
        })
        .await?;
    }
    Ok(())
}
