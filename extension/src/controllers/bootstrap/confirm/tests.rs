//! Whole passes over a Cluster whose gate is about to open. What the watches have shown is in order in each of them; what the API
//! servers say when they are asked again is not.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::{hold::HoldReason, kubeconfig};
use sluice_crds::{
    foreign::Cluster,
    labels::{annotation, label},
    run::{Hook, UpgradeRecord},
};
use tokio::time::{Duration, sleep};

use super::super::{Context, Settings, object_server::ObjectServer, pass};
use crate::{
    control_plane::ControlPlanes, controllers::providers::Dependents, fence::Fence, index::Index,
    metrics::PassMetrics, remote::Remotes, stores::Stores, triggers::Triggers,
};

const RELEASE: &str = "v1.36.3---test.1";
const PACKAGE: &str = "antrea.example.com.1.9.0";
const BOOTSTRAP: &str = "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/team-a/clusterbootstraps/one";
const CLUSTER: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters/one";
const PACKAGES: &str = "/apis/data.packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packages";
const KUBECONFIG: &str = "/api/v1/namespaces/team-a/secrets/one-kubeconfig";
const VALUES: &str = "/api/v1/namespaces/team-a/secrets/antrea-values";
const APPS: &str = "/apis/kappctrl.k14s.io/v1alpha1/namespaces/tkg-system/apps";
const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";

/// Both API servers.
struct World {
    management: ObjectServer,
    workload: ObjectServer,
}

fn values(replicas: u32) -> Value {
    let document = BASE64_STANDARD.encode(format!("replicas: {replicas}\n"));
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"values.yaml": document}})
}

/// The Cluster as a leader knows it.
fn cluster(context: &Context) -> Arc<Cluster> {
    let clusters = context.stores.clusters.state();
    let mut named = clusters.into_iter().filter(|cluster| cluster.name_any() == "one");
    named.next().unwrap()
}

impl World {
    /// A Cluster at v1.35.4 that shall have v1.36.3, with one package, of which nothing is installed yet.
    fn new() -> Self {
        let (management, workload) = (ObjectServer::default(), ObjectServer::default());
        let group = "controlplane.example.com";
        let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
        let groups = json!([{"name": group, "versions": [version], "preferredVersion": version}]);
        management.put("/apis", json!({"kind": "APIGroupList", "groups": groups}));
        let kind = json!({"name": "goods", "singularName": "", "namespaced": true, "kind": "Good", "verbs": ["get", "list", "watch"]});
        management.put(
            &format!("/apis/{group}/v1"),
            json!({"kind": "APIResourceList", "groupVersion": format!("{group}/v1"), "resources": [kind]}),
        );
        management.put(
            &format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/goods.{group}"),
            json!({"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": "v1"}}}),
        );
        management.put(
            &format!("/apis/{group}/v1/namespaces/team-a/goods/one"),
            json!({"metadata": {}, "spec": {"version": "v1.35.4"}, "status": {"version": "v1.35.4"}}),
        );
        management.put(
            CLUSTER,
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"uid": "uid", "generation": 1, "labels": {label::TKR: RELEASE}},
                "spec": {
                    "topology": {"classRef": {"name": "class"}, "version": "v1.36.3"},
                    "controlPlaneRef": {"apiGroup": group, "kind": "Good", "name": "one"},
                },
            }),
        );
        management.put(
            &format!("/apis/run.tanzu.vmware.com/v1alpha3/tanzukubernetesreleases/{RELEASE}"),
            json!({
                "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {},
                "spec": {
                    "version": "v1.36.3+test.1", "kubernetes": {"version": "v1.36.3"},
                    "bootstrapPackages": [{"name": PACKAGE}],
                },
            }),
        );
        let spec = json!({"cni": {"refName": PACKAGE, "valuesFrom": {"secretRef": "antrea-values"}}});
        management.put(
            &format!("/apis/run.tanzu.vmware.com/v1alpha3/namespaces/tkg-system/clusterbootstraptemplates/{RELEASE}"),
            json!({"apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrapTemplate", "metadata": {}, "spec": spec}),
        );
        management.put(
            BOOTSTRAP,
            json!({
                "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
                "metadata": {"generation": 1, "annotations": {annotation::RESOLVED_TKR: RELEASE}},
                "spec": spec,
            }),
        );
        management.put(VALUES, values(1));
        management.put(&format!("{PACKAGES}/{PACKAGE}"), package("a"));
        management.put(KUBECONFIG, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"value": BASE64_STANDARD.encode(kubeconfig())}}));
        workload.put(
            KUBE_SYSTEM,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"uid": "workload"}}),
        );
        Self { management, workload }
    }

    /// A leader that has read everything. Its watches show nothing that happens later.
    async fn leader(&self) -> Context {
        let (client, triggers) = (self.management.client(), Triggers::default());
        let (stores, following) = Stores::open(&client, "tkg-system", &triggers, &Dependents::default());
        tokio::spawn(following);
        stores.synced().await;
        let settings = Settings {
            system_namespace: "tkg-system".to_owned(),
            sync_period: Duration::from_mins(10),
            delete_timeout: Duration::from_mins(10),
            concurrency: 2,
        };
        let context = Context::new(
            client.clone(),
            settings,
            stores,
            ControlPlanes::new(client, triggers.clone(), Vec::new()),
            Remotes::new("tkg-system".to_owned(), triggers, Fence::open()),
            Index::new("tkg-system".to_owned(), Duration::from_mins(10)),
            PassMetrics::default(),
        );
        let digest = kubeconfig::digest(kubeconfig().as_bytes());
        let reference = ObjectRef::new("one").within("team-a");
        context
            .remotes
            .adopt("uid", &reference, &digest, &self.workload.client());
        // The first one asks for the kind of the control plane.
        pass(&cluster(&context), &context).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        context
    }

    /// kapp-controller has deployed what the PackageInstall asks for.
    fn deployed(&self) {
        let (path, mut install) = self.workload.only("packageinstalls");
        let is = |type_: &str| json!([{"type": type_, "status": "True"}]);
        install["metadata"]["generation"] = json!(1);
        install["status"] =
            json!({"observedGeneration": 1, "version": "1.9.0", "conditions": is("ReconcileSucceeded")});
        let owner = json!([{
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "name": install["metadata"]["name"], "uid": install["metadata"]["uid"],
        }]);
        let app = json!({
            "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
            "metadata": {
                "generation": 1, "ownerReferences": owner,
                "annotations": {annotation::PACKAGE_VERSION: "1.9.0"},
            },
            "spec": {"template": [{"ytt": {"valuesFrom": install["spec"]["values"]}}]},
            "status": {"observedGeneration": 1, "conditions": is("ReconcileSucceeded")},
        });
        let name = path.rsplit('/').next().unwrap();
        self.workload.put(&format!("{APPS}/{name}"), app);
        self.workload.put(&path, install);
    }

    fn record(&self) -> UpgradeRecord {
        let bootstrap = self.management.get(BOOTSTRAP).unwrap();
        serde_json::from_value(bootstrap["status"]["upgrade"].clone()).unwrap()
    }

    /// Why BeforeClusterUpgrade is held; none when it is released.
    fn held(&self) -> Option<HoldReason> {
        let record = self.record();
        let mut gates = record.gates.iter();
        let gate = gates
            .find(|gate| gate.hook == Hook::BeforeClusterUpgrade)
            .unwrap();
        (!gate.open).then(|| HoldReason::parse(&gate.reason).unwrap())
    }
}

fn package(step: &str) -> Value {
    json!({
        "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package", "metadata": {},
        "spec": {
            "refName": "antrea.example.com", "version": "1.9.0",
            "template": {"spec": {"template": [{"ytt": {"paths": [step]}}], "deploy": [{"kapp": {}}]}},
        },
    })
}

fn kubeconfig() -> String {
    let authority = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": authority}}],
        "users": [{"name": "one", "user": {"token": "token"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    })
    .to_string()
}

fn change(server: &ObjectServer, plural: &str, edit: impl FnOnce(&mut Value)) {
    let (path, mut object) = server.only(plural);
    edit(&mut object);
    server.put(&path, object);
}

type Edit = fn(&World);

#[rstest]
#[case::nothing((|_| {}) as Edit, None)]
#[case::the_app_is_deployed_again((|world| change(&world.workload, "apps", |app| app["metadata"]["generation"] = json!(2))) as Edit, Some(HoldReason::PackagesNotReady))]
#[case::the_app_is_paused((|world| change(&world.workload, "apps", |app| app["spec"]["paused"] = json!(true))) as Edit, Some(HoldReason::PackagesNotReady))]
#[case::the_app_is_gone((|world| world.workload.refuse("/apps/", 404)) as Edit, Some(HoldReason::PackagesNotReady))]
#[case::the_install_is_paused((|world| change(&world.workload, "packageinstalls", |install| install["spec"]["paused"] = json!(true))) as Edit, Some(HoldReason::PackagesNotReady))]
#[case::nobody_answers((|world| world.workload.refuse("/packageinstalls/", 503)) as Edit, Some(HoldReason::WorkloadUnreachable))]
#[case::another_server_answers((|world| world.workload.put(KUBE_SYSTEM, json!({"metadata": {"uid": "another"}}))) as Edit, Some(HoldReason::PackagesNotReady))]
#[case::another_server_answers_in_the_middle_of_the_pass((|world| world.workload.put_later(KUBE_SYSTEM, json!({"metadata": {"uid": "another"}}))) as Edit, Some(HoldReason::WorkloadUnreachable))]
#[case::other_values((|world| world.management.put(VALUES, values(2))) as Edit, Some(HoldReason::PackagesNotReady))]
#[case::other_values_in_the_middle_of_the_pass((|world| world.management.put_later(VALUES, values(2))) as Edit, Some(HoldReason::PackagesUnknown))]
#[case::the_copy_of_the_values_is_gone((|world| world.workload.refuse("/secrets/", 404)) as Edit, Some(HoldReason::PackagesUnknown))]
#[case::another_package((|world| world.management.put(&format!("{PACKAGES}/{PACKAGE}"), package("b"))) as Edit, Some(HoldReason::PackagesUnknown))]
#[case::another_copy_of_the_package_in_the_middle_of_the_pass((|world| world.workload.put_later(&format!("{PACKAGES}/{PACKAGE}"), package("b"))) as Edit, Some(HoldReason::PackagesUnknown))]
#[tokio::test(start_paused = true)]
async fn a_gate_opens_for_what_the_servers_say_and_not_for_what_watches_have_shown(
    #[case] meanwhile: Edit,
    #[case] held: Option<HoldReason>,
) {
    let world = World::new();
    let first = world.leader().await;
    pass(&cluster(&first), &first).await.unwrap();
    assert_eq!(
        world.held(),
        Some(HoldReason::PackagesNotReady),
        "nothing is proven yet"
    );
    drop(first);

    world.deployed();
    let second = world.leader().await;
    meanwhile(&world);
    pass(&cluster(&second), &second).await.unwrap();
    assert_eq!(world.held(), held, "{:?}", world.record());
}
