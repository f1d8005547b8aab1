//! A hundred Clusters in the middle of a held upgrade, created directly as objects: Cluster API does not run.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_tests::extension::Replica;
use sluice_tests::fault_server::FaultServer;
use sluice_tests::objects::definition;
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::objects::{self, TKR};
use sluice_tests::provider::{GROUP, VERSION, reader_role};
use sluice_tests::requests::apply;
use sluice_tests::scenario::VERSIONS;
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::stack::kapp_controller::Manifests;
use sluice_tests::stack::{SYSTEM_NAMESPACE, Stack};
use sluice_tests::wait;
use tokio::task::AbortHandle;

use crate::case::Case;

/// Clusters.
pub(crate) const CLUSTERS: usize = 100;

/// Requests of this test that are under way at once.
const AT_ONCE: usize = 8;

/// Timeout of the first installation of all Clusters.
const TIMEOUT: Duration = Duration::from_mins(3);

const NAMESPACE: &str = "walls";
const RUN: (&str, &str) = ("run.tanzu.vmware.com", "v1alpha3");

/// What each PackageInstall of the workload names as its values, and since when.
type Written = Arc<Mutex<HashMap<String, (String, Instant)>>>;

/// The values that each PackageInstall names.
pub(crate) type Values = HashMap<String, String>;

/// The Clusters, and the one API server that is the workload of all. Their packages differ in their names.
pub(crate) struct Hundred {
    client: Client,
    written: Written,
    watch: AbortHandle,
    /// One for each case, which stands before the server of its Clusters.
    servers: Vec<FaultServer>,
    round: usize,
    _workload: ApiServer,
}

impl Hundred {
    /// Makes them. The first ones belong to the cases, in turn.
    pub(crate) async fn make(stack: &Stack, cases: &[Case]) -> Result<Self> {
        let client = stack.client();
        without_cluster_api(stack).await?;
        let workload = ApiServer::start(stack.core(), "workload", VERSIONS[1]).await?;
        let manifests = Manifests::read(stack.core().binaries(), "kapp-controller")?;
        let mut definitions = apply::documents(&manifests.crds)?;
        // No kapp-controller runs there: nothing is ever installed, so every Cluster stays in the middle of its upgrade.
        definitions.push(definition::open(
            "data.packaging.carvel.dev",
            "Package",
            "v1alpha1",
            &json!({}),
        ));
        apply::apply_crds(&workload.admin_client(), &definitions).await?;

        apply::namespace(&client, NAMESPACE).await?;
        apply::apply(&client, &reader_role()).await?;
        apply::apply_all(&client, &release()).await?;
        let mut servers = Vec::new();
        let mut kubeconfigs = Vec::new();
        for case in cases {
            let server = FaultServer::start(&workload, case.fault).await?;
            kubeconfigs.extend(std::iter::repeat_n(server.kubeconfig(), case.hits));
            servers.push(server);
        }
        kubeconfigs.resize(CLUSTERS, workload.admin_kubeconfig());
        let written = Written::default();
        let hundred = Self {
            watch: follow(&workload.admin_client(), Arc::clone(&written)),
            client,
            written,
            servers,
            round: 0,
            _workload: workload,
        };
        stream::iter(kubeconfigs.iter().enumerate().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |(index, kubeconfig)| hundred.cluster(index, kubeconfig))
            .await?;
        wait::until("every Cluster to have its PackageInstall", TIMEOUT, || async {
            match hundred.values().len() {
                CLUSTERS => Ok(()),
                some => wait::not_yet(format!("{some} of {CLUSTERS}")),
            }
        })
        .await?;
        Ok(hundred)
    }

    /// The server of a case.
    pub(crate) fn server(&self, case: usize) -> &FaultServer {
        &self.servers[case]
    }

    /// A round of every third of `clusters`, of another third than the round before.
    pub(crate) async fn some(&mut self, clusters: Range<usize>, timeout: Duration) -> Result<Vec<Duration>> {
        let skipped = self.round % 3;
        self.round(clusters.skip(skipped).step_by(3), timeout).await
    }

    /// Edits the values of Clusters and waits until they are written to their workloads. Returns how long each took from its edit, or
    /// `timeout` if it took longer.
    pub(crate) async fn round(
        &mut self,
        clusters: impl IntoIterator<Item = usize>,
        timeout: Duration,
    ) -> Result<Vec<Duration>> {
        let before = self.values();
        let began = self.edit(clusters).await?;
        let deadline = Instant::now() + timeout;
        let took = |index: usize| {
            let name = install(index);
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            let (values, at) = written.get(&name)?;
            (before.get(&name) != Some(values)).then(|| at.saturating_duration_since(began[&index]))
        };
        while Instant::now() < deadline && began.keys().any(|index| took(*index).is_none()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut clusters: Vec<usize> = began.keys().copied().collect();
        clusters.sort_unstable();
        Ok(clusters
            .into_iter()
            .map(|index| took(index).unwrap_or(timeout))
            .collect())
    }

    /// Gives Clusters values that they never had. Returns when each was edited.
    pub(crate) async fn edit(
        &mut self,
        clusters: impl IntoIterator<Item = usize>,
    ) -> Result<HashMap<usize, Instant>> {
        self.round += 1;
        let change = json!({"spec": {"cni": {"valuesFrom": {"inline": {"round": self.round}}}}});
        let bootstraps = self.api(RUN, "ClusterBootstrap", "clusterbootstraps");
        stream::iter(clusters.into_iter().map(|index| {
            let (bootstraps, change) = (bootstraps.clone(), change.clone());
            async move {
                let began = Instant::now();
                bootstraps
                    .patch(&name(index), &PatchParams::default(), &Patch::Merge(change))
                    .await
                    .with_context(|| format!("edit {}", name(index)))?;
                Ok((index, began))
            }
        }))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
    }

    /// The reasons of the closed gates of a Cluster.
    pub(crate) async fn reasons(&self, index: usize) -> Result<Vec<String>> {
        let bootstraps = self.api(RUN, "ClusterBootstrap", "clusterbootstraps");
        let bootstrap = bootstraps.get(&name(index)).await?;
        let gates = bootstrap.data["status"]["upgrade"]["gates"].as_array().cloned();
        Ok(gates
            .into_iter()
            .flatten()
            .filter(|gate| gate["open"] != true)
            .map(|gate| gate["reason"].as_str().unwrap_or_default().to_owned())
            .collect())
    }

    /// Fails unless a hook of a Cluster is answered, and held.
    pub(crate) async fn is_held(&self, replica: &Replica, index: usize) -> Result<()> {
        let clusters = self.api(("cluster.x-k8s.io", "v1beta2"), "Cluster", "clusters");
        let cluster = serde_json::to_value(clusters.get(&name(index)).await?)?;
        let versions = json!({"fromKubernetesVersion": VERSIONS[1], "toKubernetesVersion": VERSIONS[2]});
        let reply = replica.ask("BeforeClusterUpgrade", &cluster, &versions).await?;
        ensure!(
            reply.status == "Success" && reply.retry_after_seconds > 0,
            "a hook of {} is answered with {reply:?}",
            name(index)
        );
        Ok(())
    }

    /// The values that each PackageInstall names.
    pub(crate) fn values(&self) -> Values {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written
            .iter()
            .map(|(name, (values, _))| (name.clone(), values.clone()))
            .collect()
    }

    /// A Cluster whose control plane runs the version before the one that it shall have.
    async fn cluster(&self, index: usize, kubeconfig: &str) -> Result<()> {
        let name = name(index);
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": format!("{name}-kubeconfig")},
            "data": {"value": BASE64_STANDARD.encode(kubeconfig)},
        });
        create(&self.api(("", "v1"), "Secret", "secrets"), secret).await?;
        let control_planes = self.api((GROUP, VERSION), "HarnessControlPlane", "harnesscontrolplanes");
        create(
            &control_planes,
            json!({
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "HarnessControlPlane",
                "metadata": {"name": name},
                "spec": {"version": VERSIONS[1]},
            }),
        )
        .await?;
        let status = json!({"status": {"version": VERSIONS[1]}});
        control_planes
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        let mut cluster = objects::cluster(NAMESPACE, &name, VERSIONS[2], Some(&release_name()), 0);
        cluster["spec"]["controlPlaneRef"] = json!({
            "apiGroup": GROUP,
            "kind": "HarnessControlPlane",
            "name": name,
        });
        create(
            &self.api(("cluster.x-k8s.io", "v1beta2"), "Cluster", "clusters"),
            cluster,
        )
        .await
    }

    fn api(&self, (group, version): (&str, &str), kind: &str, plural: &str) -> Api<DynamicObject> {
        Api::namespaced_with(
            self.client.clone(),
            NAMESPACE,
            &resource(group, version, kind, plural),
        )
    }
}

impl Drop for Hundred {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

fn name(index: usize) -> String {
    format!("c{index:03}")
}

/// Name of the PackageInstall of a Cluster.
pub(crate) fn install(index: usize) -> String {
    format!("{}-calico", name(index))
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let name = object.name_any();
    api.create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("create {} {name}", api.resource_url()))?;
    Ok(())
}

/// Ends Cluster API, which would need a class and machines, and takes its webhooks away, those for conversion too.
async fn without_cluster_api(stack: &Stack) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(stack.client());
    for definition in definitions.list_metadata(&ListParams::default()).await? {
        let name = definition.name_any();
        if name.ends_with(".cluster.x-k8s.io") {
            let change = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
            definitions
                .patch(&name, &PatchParams::default(), &Patch::Merge(change))
                .await?;
        }
    }
    let everything = (DeleteParams::default(), ListParams::default());
    Api::<ValidatingWebhookConfiguration>::all(stack.client())
        .delete_collection(&everything.0, &everything.1)
        .await?;
    Api::<MutatingWebhookConfiguration>::all(stack.client())
        .delete_collection(&everything.0, &everything.1)
        .await?;
    stack.cluster_api().kill().await
}

fn release_name() -> String {
    format!("{}---walls.1", VERSIONS[2])
}

/// A release with one package. kapp-controller is none of it: it would have to be installed a hundred times.
fn release() -> [Value; 3] {
    let package = TestPackage::new("calico.walls.test", "1.0.0");
    let (group, version) = RUN;
    let api_version = format!("{group}/{version}");
    [
        package.package(),
        json!({
            "apiVersion": api_version,
            "kind": "ClusterBootstrapTemplate",
            "metadata": {"name": release_name(), "namespace": SYSTEM_NAMESPACE},
            "spec": {"cni": {"refName": package.name()}},
        }),
        json!({
            "apiVersion": api_version,
            "kind": "TanzuKubernetesRelease",
            "metadata": {"name": release_name(), "labels": {TKR: release_name()}},
            "spec": {
                "version": format!("{}+walls.1", VERSIONS[2]),
                "kubernetes": {"version": VERSIONS[2]},
                "bootstrapPackages": [{"name": package.name()}],
            },
        }),
    ]
}

/// Notes what each PackageInstall of a workload names as its values.
fn follow(workload: &Client, written: Written) -> AbortHandle {
    let types = resource(
        "packaging.carvel.dev",
        "v1alpha1",
        "PackageInstall",
        "packageinstalls",
    );
    let installs = Api::<DynamicObject>::namespaced_with(workload.clone(), SYSTEM_NAMESPACE, &types);
    let following = async move {
        let mut touched = watcher(installs, watcher::Config::default())
            .default_backoff()
            .touched_objects()
            .boxed();
        while let Some(install) = touched.next().await {
            let Ok(install) = install else { continue };
            let values = &install.data["spec"]["values"][0]["secretRef"]["name"];
            let values = values.as_str().unwrap_or_default().to_owned();
            let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
            let known = written.get(&install.name_any());
            if known.is_none_or(|(known, _)| *known != values) {
                written.insert(install.name_any(), (values, Instant::now()));
            }
        }
    };
    tokio::spawn(following).abort_handle()
}
