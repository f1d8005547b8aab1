//! A Cluster between two fake API servers, for tests of whole reconciles.

mod objects;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_core::{
    kubeconfig,
    reasons::GateReason,
    reconcile::cluster::{Done, Settings},
    schedule::SyncPeriod,
};
use sluice_crds::{
    foreign::Cluster,
    labels::annotation,
    run::{Hook, UpgradeRecord},
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{Context, Probes, object_server::ObjectServer, reconcile_once};
use crate::{
    cache::{
        control_plane::ControlPlanes, event_handlers::EventHandlers, management_uid::ManagementUid,
        rollbacks::Rollbacks, stores::Stores,
    },
    clock::now,
    controllers::{concurrency::Limiter, events::Notifier, gate_in_force::GatesInForce},
    hooks::Index,
    kube_client::fence::Fence,
    queue::requeues::{ClusterRef, Requeues},
    telemetry::metrics::ReconcileMetrics,
    workload::{Remote, Remotes},
};

pub(crate) use objects::*;

/// Maximum number of concurrent reconciles.
pub(crate) const CONCURRENCY: u16 = 2;

/// Returns the context of a process that may write while `fence` is open, and the future that updates its stores.
pub(crate) fn context(
    client: &Client,
    fence: &Fence,
    triggers: &Requeues,
) -> (Context, impl Future<Output = ()> + Send + use<>) {
    let event_handlers = EventHandlers {
        triggers: triggers.clone(),
        ..EventHandlers::default()
    };
    let (stores, following) = Stores::open(client, SYSTEM, &event_handlers);
    let client = fence.guard(client.clone()).into_client();
    let classes = Arc::clone(&event_handlers.classes);
    let gates_in_force = GatesInForce::new(client.clone(), stores.clone(), classes, triggers.clone());
    let context = Context {
        client: client.clone(),
        settings: Settings {
            system_namespace: SYSTEM.to_owned(),
            extension_configs: Vec::new(),
            sync_period: SyncPeriod {
                length: Duration::from_mins(10),
                since: now(),
            },
            deletion_limit: Duration::from_mins(10),
        },
        stores,
        control_planes: Arc::new(ControlPlanes::new(
            client.clone(),
            triggers.clone(),
            Vec::new(),
            Rollbacks::default(),
        )),
        remotes: Arc::new(Remotes::new(
            SYSTEM.to_owned(),
            triggers.clone(),
            event_handlers.dependents.clone(),
            fence.clone(),
        )),
        dependents: event_handlers.dependents,
        index: Index::new(
            SYSTEM.to_owned(),
            Duration::from_mins(10),
            event_handlers.uncounted,
        ),
        values_watches: event_handlers.values_watches,
        events: Notifier::new(client),
        metrics: ReconcileMetrics::default(),
        limiter: Limiter::new(CONCURRENCY, CancellationToken::new()),
        rollbacks: Rollbacks::default(),
        management_uid: ManagementUid::of("management"),
        gates_in_force,
        probes: Probes::default(),
        local_states: Mutex::default(),
    };
    (context, following)
}

/// Both API servers of a Cluster.
pub(crate) struct World {
    pub(crate) management: ObjectServer,
    pub(crate) workload: ObjectServer,
}

impl World {
    /// Returns a Cluster at v1.35.4 with target v1.36.3 and one package, which is not installed yet.
    pub(crate) fn new() -> Self {
        let world = Self {
            management: objects::management(),
            workload: ObjectServer::default(),
        };
        world.workload.put(
            KUBE_SYSTEM,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"uid": "workload"}}),
        );
        world.control_plane_at("v1.35.4");
        world
    }

    /// Adds the additional package [`METRICS`] to the Cluster, with these values if any.
    pub(crate) fn add_metrics(&self, values_from: Option<&Value>) {
        let package = package_of("metrics.example.com", "1.9.0", "a");
        self.management.put(&format!("{PACKAGES}/{METRICS}"), package);
        let mut listed = json!({"refName": METRICS});
        if let Some(values_from) = values_from {
            listed["valuesFrom"] = values_from.clone();
        }
        self.management.edit(BOOTSTRAP, |bootstrap| {
            bootstrap["spec"]["additionalPackages"] = json!([listed]);
        });
    }

    /// Returns the Cluster with proven packages and an open gate of the control plane.
    pub(crate) async fn released() -> Self {
        let world = Self::new();
        world.reconcile().await;
        world.deployed();
        world.reconcile().await;
        assert_eq!(world.held(Hook::BeforeClusterUpgrade), None);
        world
    }

    /// Returns the Cluster after its completed upgrade.
    pub(crate) async fn completed() -> Self {
        Self::new().complete().await
    }

    /// Completes the upgrade of this world.
    pub(crate) async fn complete(self) -> Self {
        self.control_plane_at(VERSION);
        self.reconcile().await;
        self.deployed();
        self.reconcile().await;
        assert!(self.record().outcome.is_some(), "{:?}", self.record());
        self
    }

    /// Sets version and running version of the control plane.
    pub(crate) fn control_plane_at(&self, version: &str) {
        let good = json!({"metadata": {}, "spec": {"version": version}, "status": {"version": version}});
        self.management.put(CONTROL_PLANE, good);
    }

    /// Returns a leader with filled stores. Its watches show no later change.
    pub(crate) async fn leader(&self) -> Context {
        self.leader_behind(&Fence::open()).await
    }

    /// Returns such a leader that may write while `fence` is open.
    pub(crate) async fn leader_behind(&self, fence: &Fence) -> Context {
        let (context, following) = context(&self.management.client(), fence, &Requeues::default());
        tokio::spawn(following);
        context.stores.synced().await;
        self.connect(&context);
        // The first reconcile starts the watch of the control plane kind.
        reconcile_once(&cluster(&context), &context).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        context
    }

    /// Returns a leader with filled stores except one kind, whose list is at this path, and the sender that releases the list with `true`.
    pub(crate) async fn leader_without(&self, list: &'static str) -> (Context, watch::Sender<bool>) {
        let answers = self.management.wait_at(list);
        let (context, following) = context(&self.management.client(), &Fence::open(), &Requeues::default());
        tokio::spawn(following);
        context.stores.filled_for_managed().await;
        sleep(Duration::from_secs(1)).await;
        self.connect(&context);
        (context, answers)
    }

    /// Opens another connection to the workload cluster, which has read nothing yet.
    pub(crate) fn connect(&self, leader: &Context) -> Arc<Remote> {
        let digest = kubeconfig::digest(objects::kubeconfig().as_bytes());
        let reference = ClusterRef::new("team-a", "one");
        leader.remotes.close("uid");
        leader
            .remotes
            .adopt("uid", &reference, &digest, &self.workload.client())
    }

    /// Runs one reconcile of a leader with current stores.
    pub(crate) async fn reconcile(&self) -> Done {
        let leader = self.leader().await;
        reconcile_once(&cluster(&leader), &leader).await.unwrap()
    }

    /// Simulates kapp-controller: deploys every PackageInstall.
    pub(crate) fn deployed(&self) {
        for (path, install) in self.workload.all("packageinstalls") {
            self.deploy(&path, install);
        }
    }

    fn deploy(&self, path: &str, mut install: Value) {
        let is = |type_: &str| json!([{"type": type_, "status": "True"}]);
        let asked = &install["spec"]["packageRef"];
        let packages = self.workload.all("packages");
        let mut named = packages
            .iter()
            .filter(|(_, package)| package["spec"]["refName"] == asked["refName"]);
        let package = &named.next().unwrap().1["spec"];
        let version = package["version"].clone();
        let mut spec = package["template"]["spec"].clone();
        spec["template"][0]["ytt"]["valuesFrom"] = install["spec"]["values"].clone();
        install["metadata"]["generation"] = json!(1);
        install["status"] =
            json!({"observedGeneration": 1, "version": version, "conditions": is("ReconcileSucceeded")});
        let owner = json!([{
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "name": install["metadata"]["name"], "uid": install["metadata"]["uid"],
        }]);
        let app = json!({
            "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
            "metadata": {
                "generation": 1, "ownerReferences": owner,
                "annotations": {annotation::PACKAGE_VERSION: version},
            },
            "spec": spec,
            "status": {"observedGeneration": 1, "conditions": is("ReconcileSucceeded")},
        });
        let name = path.rsplit('/').next().unwrap();
        self.workload.put(&format!("{APPS}/{name}"), app);
        self.workload.put(path, install);
    }

    pub(crate) fn record(&self) -> UpgradeRecord {
        let bootstrap = self.management.get(BOOTSTRAP).unwrap();
        serde_json::from_value(bootstrap["status"]["upgrade"].clone()).unwrap()
    }

    /// Returns the hold reason of a hook; `None` if it is released.
    pub(crate) fn held(&self, hook: Hook) -> Option<GateReason> {
        let record = self.record();
        let mut gates = record.gates.iter();
        let gate = gates.find(|gate| gate.hook == hook).unwrap();
        (!gate.open).then(|| GateReason::parse(&gate.reason).unwrap())
    }

    /// Counts attempted writes of the ClusterBootstrap.
    pub(crate) fn writes_of_bootstrap(&self) -> usize {
        let asked = self.management.asked_to_write();
        asked
            .iter()
            .filter(|asked| asked.contains("/clusterbootstraps"))
            .count()
    }
}

/// Returns the cached Cluster of a leader.
pub(crate) fn cluster(context: &Context) -> Arc<Cluster> {
    let clusters = context.stores.clusters.state();
    let mut named = clusters.into_iter().filter(|cluster| cluster.name_any() == "one");
    named.next().unwrap()
}

/// Edits the only object of a kind.
pub(crate) fn change(server: &ObjectServer, plural: &str, edit: impl FnOnce(&mut Value)) {
    let (path, mut object) = server.only(plural);
    edit(&mut object);
    server.put(&path, object);
}
