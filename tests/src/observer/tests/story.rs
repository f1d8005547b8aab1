//! A Cluster `a/one` with release `r1` and one package in the workload, write by write.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::observer::feed::{Change, Revision};
use crate::observer::ledger::Ledger;
use crate::observer::milestone::Event;

pub(super) const OLD: &str = "v1.35.4";
pub(super) const NEW: &str = "v1.36.3";
pub(super) const NEXT: &str = "v1.37.1";

const CLUSTER: &str = "/mgmt/cluster.x-k8s.io/clusters/a/one";
const TKR: &str = "run.tanzu.vmware.com/tkr";

/// Events so far.
pub(super) struct Story {
    pub(super) ledger: Ledger,
    revision: Revision,
    /// When the next write is seen.
    now: Timestamp,
    /// The Cluster, as it was written last.
    cluster: Value,
    /// `spec.values` of the PackageInstall.
    values: Value,
    /// The App, as it was written last.
    app: Value,
    /// Prefix of the API server that the package is installed on.
    server: &'static str,
}

impl Story {
    /// Up to the revision at which label, version and desired package version have changed.
    pub(super) fn until_bump() -> Self {
        let mut story = Self::created();
        story.label("r2");
        story
    }

    pub(super) fn created() -> Self {
        let mut story = Self {
            ledger: Ledger::default(),
            revision: 0,
            now: Timestamp::UNIX_EPOCH,
            cluster: json!({"metadata": {"uid": "c"}}),
            values: Value::Null,
            app: Value::Null,
            server: "/wl/u",
        };
        story.release("r1", OLD, "1.0.0");
        story.release("r2", NEW, "2.0.0");
        story.label("r1");
        story.control_plane(OLD, OLD);
        story.workers(OLD);
        story.install("1.0.0", 1, 1, "ReconcileSucceeded");
        story.app("1.0.0", 1, 1, "ReconcileSucceeded");
        assert!(story.ledger.violations().is_empty());
        story
    }

    /// A release with its template and the Package that it names.
    pub(super) fn release(&mut self, name: &str, kubernetes: &str, version: &str) {
        self.write(
            &format!("/mgmt/run.tanzu.vmware.com/tanzukubernetesreleases/{name}"),
            json!({"spec": {"kubernetes": {"version": kubernetes}}}),
        );
        self.write(
            &format!("/mgmt/run.tanzu.vmware.com/clusterbootstraptemplates/tkg-system/{name}"),
            json!({"spec": {"cni": {"refName": format!("antrea.a.test.{version}")}}}),
        );
        self.package(version);
    }

    pub(super) fn package(&mut self, version: &str) {
        self.write(
            &format!("/mgmt/internal.packaging.carvel.dev/internalpackages/tkg-system/{version}"),
            json!({"spec": {"refName": "antrea.a.test", "version": version}}),
        );
    }

    pub(super) fn write(&mut self, key: &str, object: Value) {
        self.observe(key, Some(object));
    }

    pub(super) fn delete(&mut self, key: &str) {
        self.observe(key, None);
    }

    fn observe(&mut self, key: &str, object: Option<Value>) {
        self.revision += 1;
        self.ledger.observe(&Change {
            revision: self.revision,
            seen: self.now,
            key: key.to_owned(),
            object,
        });
    }

    pub(super) fn milliseconds_pass(&mut self, milliseconds: i64) {
        self.now += SignedDuration::from_millis(milliseconds);
    }

    pub(super) fn label(&mut self, tkr: &str) {
        self.cluster["metadata"]["labels"] = json!({TKR: tkr});
        self.write(CLUSTER, self.cluster.clone());
    }

    /// Version and label at a generation, of which Cluster API has reconciled another one.
    pub(super) fn aim(&mut self, version: &str, tkr: &str, (generation, reconciled): (i64, i64)) {
        self.cluster["spec"]["topology"]["version"] = version.into();
        self.cluster["metadata"]["generation"] = generation.into();
        self.cluster["status"]["conditions"] =
            json!([{"type": "TopologyReconciled", "status": "True", "observedGeneration": reconciled}]);
        self.label(tkr);
    }

    pub(super) fn topology(&mut self, topology: Value) {
        self.cluster["spec"]["topology"] = topology;
        self.write(CLUSTER, self.cluster.clone());
    }

    /// Cluster API notes which hooks it has still to call.
    pub(super) fn pending(&mut self, hooks: &str) {
        self.cluster["metadata"]["annotations"] = json!({"runtime.cluster.x-k8s.io/pending-hooks": hooks});
        self.write(CLUSTER, self.cluster.clone());
    }

    pub(super) fn control_plane(&mut self, spec: &str, status: &str) {
        let mut plane = json!({
            "metadata": {"uid": "u", "labels": {"cluster.x-k8s.io/cluster-name": "one"}},
            "spec": {"version": spec},
            "status": {"version": status},
        });
        if self.server == "/mgmt" {
            plane["metadata"]["annotations"] = json!({"harness.test/api-server": "management"});
        }
        self.write("/mgmt/harness.test/harnesscontrolplanes/a/one-x", plane);
    }

    /// The Cluster has a machine of a Supervisor.
    pub(super) fn on_supervisor(&mut self) {
        self.cluster["spec"]["infrastructureRef"] = json!({"kind": "VSphereCluster"});
        self.write(CLUSTER, self.cluster.clone());
        self.write(
            "/mgmt/vmoperator.vmware.com/virtualmachines/a/one-x",
            json!({"metadata": {"labels": {"capv.vmware.com/cluster.name": "one"}}}),
        );
    }

    /// From now on the Cluster manages itself, and its package is installed on the management API server.
    pub(super) fn manages_itself(&mut self) {
        self.server = "/mgmt";
        self.control_plane(OLD, OLD);
    }

    pub(super) fn machine(&mut self, name: &str, version: &str, ready: &str) {
        self.write(
            &format!("/mgmt/cluster.x-k8s.io/machines/a/{name}"),
            json!({
                "metadata": {"labels": {
                    "cluster.x-k8s.io/cluster-name": "one",
                    "cluster.x-k8s.io/deployment-name": "one-md",
                }},
                "spec": {"version": version},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }),
        );
    }

    pub(super) fn workers_are_done(&self) -> bool {
        self.ledger
            .milestones()
            .iter()
            .any(|milestone| matches!(milestone.event, Event::WorkersDone { .. }))
    }

    pub(super) fn workers(&mut self, version: &str) {
        self.pool("machinedeployments", version);
    }

    pub(super) fn pool(&mut self, kind: &str, version: &str) {
        self.write(
            &format!("/mgmt/cluster.x-k8s.io/{kind}/a/one-md"),
            json!({
                "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "one"}},
                "spec": {"replicas": 1, "template": {"spec": {"version": version}}},
            }),
        );
    }

    /// The ClusterBootstrap with its CNI.
    pub(super) fn bootstrap(&mut self, cni: &Value) {
        self.bootstrap_with(json!({"spec": {"cni": cni}}));
    }

    pub(super) fn bootstrap_with(&mut self, object: Value) {
        self.write("/mgmt/run.tanzu.vmware.com/clusterbootstraps/a/one", object);
    }

    /// The ClusterBootstrap at a generation, with a record that knows another one and has the gate of [`NEW`] open or not.
    pub(super) fn record(&mut self, cni: &Value, generation: i64, observed: i64, open: bool) {
        let gate = json!({"hook": "BeforeControlPlaneUpgrade", "version": NEW, "open": open});
        self.bootstrap_with(json!({
            "metadata": {"generation": generation},
            "spec": {"cni": cni},
            "status": {"upgrade": {"observedBootstrapGeneration": observed, "hop": NEW, "gates": [gate]}},
        }));
    }

    /// A Secret with one document.
    pub(super) fn secret(&mut self, key: &str, document: &str) {
        self.write(
            key,
            json!({"data": {"values.yaml": BASE64_STANDARD.encode(document)}}),
        );
    }

    /// Values for the PackageInstall: a Secret beside it, which it names from its next write on.
    pub(super) fn give(&mut self, name: &str, document: &str) {
        self.secret(&format!("/wl/u/secrets/tkg-system/{name}"), document);
        self.values = json!([{"secretRef": {"name": name}}]);
    }

    /// Values that place pods on Nodes of a release: a Secret beside the PackageInstall, which it names from its next write on.
    pub(super) fn place(&mut self, name: &str, release: &str) {
        let placement = json!({"nodeSelector": {TKR: release}}).to_string();
        self.write(
            &format!("{}/secrets/tkg-system/{name}", self.server),
            json!({"data": {"tkgs-values.yaml": BASE64_STANDARD.encode(placement)}}),
        );
        self.values = json!([{"secretRef": {"name": name}}]);
    }

    pub(super) fn install(&mut self, version: &str, generation: i64, observed: i64, condition: &str) {
        self.write(
            &format!(
                "{}/packaging.carvel.dev/packageinstalls/tkg-system/one-antrea",
                self.server
            ),
            json!({
                "metadata": {"generation": generation},
                "spec": {
                    "packageRef": {"refName": "antrea.a.test", "versionSelection": {"constraints": version}},
                    "values": self.values,
                },
                "status": {
                    "observedGeneration": observed,
                    "version": version,
                    "conditions": [{"type": condition, "status": "True"}],
                },
            }),
        );
    }

    pub(super) fn app(&mut self, version: &str, generation: i64, observed: i64, condition: &str) {
        self.app_with(
            version,
            generation,
            &json!({"observedGeneration": observed, "conditions": [{"type": condition, "status": "True"}]}),
        );
    }

    /// A run of the App at a generation, which shows a deployment that began at `began`.
    pub(super) fn app_deploys(&mut self, version: &str, generation: i64, began: &str) {
        let status = json!({
            "observedGeneration": generation,
            "conditions": [{"type": "Reconciling", "status": "True"}],
            "deploy": {"startedAt": began},
        });
        self.app_with(version, generation, &status);
    }

    pub(super) fn app_with(&mut self, version: &str, generation: i64, status: &Value) {
        self.app = json!({
            "metadata": {
                "uid": "app",
                "generation": generation,
                "annotations": {"packaging.carvel.dev/package-version": version},
            },
            "status": status,
        });
        self.edit_app(|_| {});
    }

    /// The App is another one than it was written last.
    pub(super) fn edit_app(&mut self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.app);
        self.write(
            &format!("{}/kappctrl.k14s.io/apps/tkg-system/one-antrea", self.server),
            self.app.clone(),
        );
    }

    /// The new version is proven.
    pub(super) fn bump(&mut self) {
        self.prove("2.0.0", 2);
    }

    /// The same version is deployed again because its values Secret has another name.
    pub(super) fn prove_again(&mut self) {
        self.prove("2.0.0", 3);
    }

    /// kapp-controller begins to work on the new version.
    pub(super) fn begin(&mut self) {
        self.app("2.0.0", 2, 1, "ReconcileSucceeded");
        self.install("2.0.0", 2, 2, "ReconcileSucceeded");
        self.app("2.0.0", 2, 2, "Reconciling");
    }

    /// A version is proven at a generation, in the order in which the writes come: the PackageInstall is changed, and
    /// kapp-controller follows.
    pub(super) fn prove(&mut self, version: &str, generation: i64) {
        self.install(version, generation, generation - 1, "ReconcileSucceeded");
        self.app(version, generation, generation - 1, "ReconcileSucceeded");
        self.install(version, generation, generation, "ReconcileSucceeded");
        self.app(version, generation, generation, "Reconciling");
        self.app(version, generation, generation, "ReconcileSucceeded");
    }

    #[track_caller]
    pub(super) fn is_early(&self, write: &str, because: &str) {
        let violations = self.ledger.violations();
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert!(violations[0].write.contains(write), "{violations:#?}");
        let text = violations[0].to_string();
        assert!(text.contains(because), "{text}");
        assert_eq!(violations[0].missing.len(), 1, "{text}");
        assert_eq!(violations[0].revision, self.revision);
    }

    #[track_caller]
    pub(super) fn is_in_order(&self) {
        let violations = self.ledger.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}
