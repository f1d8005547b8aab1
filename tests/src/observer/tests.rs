//! The judgement on constructed sequences: each shows one way of being early, or of not being it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::feed::{Change, Revision};
use super::ledger::Ledger;
use super::milestone::Event;

const OLD: &str = "v1.35.4";
const NEW: &str = "v1.36.3";

/// A Cluster `a/one` with release `r` and one package in the workload, told write by write.
struct Story {
    ledger: Ledger,
    revision: Revision,
}

impl Story {
    /// Up to the moment where the label and the version have moved and the new package version is asked for.
    fn until_bump() -> Self {
        let mut story = Self::created();
        story.cluster("r2");
        story
    }

    fn created() -> Self {
        let mut story = Self {
            ledger: Ledger::default(),
            revision: 0,
        };
        for (release, kubernetes, version) in [("r1", OLD, "1.0.0"), ("r2", NEW, "2.0.0")] {
            story.write(
                &format!("/mgmt/run.tanzu.vmware.com/tanzukubernetesreleases/{release}"),
                json!({"spec": {"kubernetes": {"version": kubernetes}}}),
            );
            story.write(
                &format!("/mgmt/run.tanzu.vmware.com/clusterbootstraptemplates/tkg-system/{release}"),
                json!({"spec": {"cni": {"refName": format!("antrea.a.test.{version}")}}}),
            );
            story.write(
                &format!("/mgmt/internal.packaging.carvel.dev/internalpackages/tkg-system/{version}"),
                json!({"spec": {"refName": "antrea.a.test", "version": version}}),
            );
        }
        story.cluster("r1");
        story.control_plane(OLD, OLD);
        story.workers(OLD);
        story.install("1.0.0", 1, 1, "ReconcileSucceeded");
        story.app("1.0.0", 1, 1, "ReconcileSucceeded");
        assert!(story.ledger.violations().is_empty());
        story
    }

    fn write(&mut self, key: &str, object: Value) {
        self.revision += 1;
        self.ledger.observe(&Change {
            revision: self.revision,
            seen: Timestamp::UNIX_EPOCH,
            key: key.to_owned(),
            object: Some(object),
        });
    }

    fn cluster(&mut self, tkr: &str) {
        self.write(
            "/mgmt/cluster.x-k8s.io/clusters/a/one",
            json!({"metadata": {"labels": {"run.tanzu.vmware.com/tkr": tkr}}}),
        );
    }

    fn control_plane(&mut self, spec: &str, status: &str) {
        self.write(
            "/mgmt/harness.test/harnesscontrolplanes/a/one-x",
            json!({
                "metadata": {"uid": "u", "labels": {"cluster.x-k8s.io/cluster-name": "one"}},
                "spec": {"version": spec},
                "status": {"version": status},
            }),
        );
    }

    fn machine(&mut self, name: &str, version: &str, ready: &str) {
        self.write(
            &format!("/mgmt/cluster.x-k8s.io/machines/a/{name}"),
            json!({
                "metadata": {"labels": {"cluster.x-k8s.io/deployment-name": "one-md"}},
                "spec": {"version": version},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }),
        );
    }

    fn delete(&mut self, key: &str) {
        self.revision += 1;
        self.ledger.observe(&Change {
            revision: self.revision,
            seen: Timestamp::UNIX_EPOCH,
            key: key.to_owned(),
            object: None,
        });
    }

    fn workers_are_done(&self) -> bool {
        self.ledger
            .milestones()
            .iter()
            .any(|milestone| matches!(milestone.event, Event::WorkersDone { .. }))
    }

    fn workers(&mut self, version: &str) {
        self.write(
            "/mgmt/cluster.x-k8s.io/machinedeployments/a/one-md",
            json!({
                "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "one"}},
                "spec": {"replicas": 1, "template": {"spec": {"version": version}}},
            }),
        );
    }

    fn install(&mut self, version: &str, generation: i64, observed: i64, condition: &str) {
        self.write(
            "/wl/u/packaging.carvel.dev/packageinstalls/tkg-system/one-antrea",
            json!({
                "metadata": {"generation": generation},
                "spec": {"packageRef": {"refName": "antrea.a.test", "versionSelection": {"constraints": version}}},
                "status": {
                    "observedGeneration": observed,
                    "version": version,
                    "conditions": [{"type": condition, "status": "True"}],
                },
            }),
        );
    }

    fn app(&mut self, version: &str, generation: i64, observed: i64, condition: &str) {
        self.write(
            "/wl/u/kappctrl.k14s.io/apps/tkg-system/one-antrea",
            json!({
                "metadata": {
                    "uid": "app",
                    "generation": generation,
                    "annotations": {"packaging.carvel.dev/package-version": version},
                },
                "status": {"observedGeneration": observed, "conditions": [{"type": condition, "status": "True"}]},
            }),
        );
    }

    /// The new version is proven, in the order in which kapp-controller writes.
    fn bump(&mut self) {
        self.app("2.0.0", 2, 1, "ReconcileSucceeded");
        self.install("2.0.0", 2, 2, "ReconcileSucceeded");
        self.app("2.0.0", 2, 2, "Reconciling");
        self.app("2.0.0", 2, 2, "ReconcileSucceeded");
    }

    /// The same version is deployed again because its values Secret has another name.
    fn prove_again(&mut self) {
        self.app("2.0.0", 3, 2, "ReconcileSucceeded");
        self.install("2.0.0", 3, 3, "ReconcileSucceeded");
        self.app("2.0.0", 3, 3, "Reconciling");
        self.app("2.0.0", 3, 3, "ReconcileSucceeded");
    }

    #[track_caller]
    fn is_early(&self, write: &str, because: &str) {
        let violations = self.ledger.violations();
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert!(violations[0].write.contains(write), "{violations:#?}");
        let text = violations[0].to_string();
        assert!(text.contains(because), "{text}");
        assert_eq!(violations[0].revision, self.revision);
    }

    #[track_caller]
    fn is_in_order(&self) {
        let violations = self.ledger.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

#[test]
fn proof_then_control_plane_then_new_proof_then_workers_is_in_order() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.workers(NEW);
    story.is_in_order();
}

#[test]
fn a_control_plane_that_goes_before_anything_was_asked_for_is_early() {
    let mut story = Story::until_bump();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "1.0.0");
}

#[test]
fn the_false_success_of_the_package_install_is_no_proof() {
    let mut story = Story::until_bump();
    story.app("2.0.0", 2, 1, "ReconcileSucceeded");
    story.install("2.0.0", 2, 2, "ReconcileSucceeded");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "App generation 2 observed 1");
}

#[test]
fn an_app_that_works_on_the_new_version_is_no_proof() {
    let mut story = Story::until_bump();
    story.app("2.0.0", 2, 1, "ReconcileSucceeded");
    story.install("2.0.0", 2, 2, "ReconcileSucceeded");
    story.app("2.0.0", 2, 2, "Reconciling");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "Reconciling");
}

#[test]
fn a_failure_takes_the_proof_back() {
    let mut story = Story::until_bump();
    story.bump();
    story.app("2.0.0", 2, 2, "ReconcileFailed");
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "ReconcileFailed");
}

#[test]
fn a_resync_of_the_same_generation_does_not_take_the_proof_back() {
    let mut story = Story::until_bump();
    story.bump();
    story.app("2.0.0", 2, 2, "Reconciling");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_pause_takes_the_proof_back() {
    let mut story = Story::until_bump();
    story.bump();
    story.write(
        "/wl/u/kappctrl.k14s.io/apps/tkg-system/one-antrea",
        json!({
            "metadata": {"uid": "app", "generation": 2, "annotations": {"packaging.carvel.dev/package-version": "2.0.0"}},
            "spec": {"paused": true},
            "status": {"observedGeneration": 2, "conditions": [{"type": "ReconcileSucceeded", "status": "True"}]},
        }),
    );
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.2.0.0");
}

#[test]
fn workers_that_go_on_the_proof_of_the_old_api_server_are_early() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.workers(NEW);
    story.is_early("MachineDeployment", "older than");
}

#[test]
fn a_run_that_began_before_the_new_api_server_is_no_new_proof() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane(NEW, OLD);
    story.app("2.0.0", 3, 3, "Reconciling");
    story.install("2.0.0", 3, 3, "ReconcileSucceeded");
    story.control_plane(NEW, NEW);
    story.app("2.0.0", 3, 3, "ReconcileSucceeded");
    story.workers(NEW);
    story.is_early("MachineDeployment", "older than");
}

#[test]
fn workers_are_done_when_every_machine_is_new_and_ready() {
    let mut story = Story::until_bump();
    story.machine("old", OLD, "True");
    story.bump();
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.prove_again();
    story.workers(NEW);
    story.machine("new", NEW, "False");
    assert!(!story.workers_are_done());
    story.machine("new", NEW, "True");
    assert!(!story.workers_are_done());
    story.delete("/mgmt/cluster.x-k8s.io/machines/a/old");
    assert!(story.workers_are_done());
    story.is_in_order();
}

#[test]
fn a_version_without_a_release_is_early() {
    let mut story = Story::until_bump();
    story.bump();
    story.control_plane("v1.37.0", OLD);
    story.is_early("v1.37.0", "a release of Kubernetes v1.37.0");
}

#[test]
fn a_version_that_its_user_chose_stands_for_that_of_the_template() {
    let mut story = Story::until_bump();
    story.write(
        "/mgmt/internal.packaging.carvel.dev/internalpackages/tkg-system/2.0.1",
        json!({"spec": {"refName": "antrea.a.test", "version": "2.0.1"}}),
    );
    for chosen in ["1.0.0", "2.0.1"] {
        story.write(
            "/mgmt/run.tanzu.vmware.com/clusterbootstraps/a/one",
            json!({"spec": {"cni": {"refName": format!("antrea.a.test.{chosen}")}}}),
        );
    }
    story.bump();
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.2.0.1");
}

#[test]
fn what_is_left_of_the_release_before_is_no_choice() {
    let mut story = Story::until_bump();
    story.write(
        "/mgmt/run.tanzu.vmware.com/clusterbootstraps/a/one",
        json!({"spec": {"cni": {"refName": "antrea.a.test.1.0.0"}}}),
    );
    story.control_plane(NEW, OLD);
    story.is_early("control plane", "antrea.a.test.2.0.0");
}

#[test]
fn a_cluster_without_a_release_may_do_as_it_likes() {
    let mut story = Story::created();
    story.cluster("");
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn another_cluster_of_the_same_packages_proves_nothing() {
    let mut story = Story::until_bump();
    story.bump();
    story.write(
        "/mgmt/cluster.x-k8s.io/clusters/a/two",
        json!({"metadata": {"labels": {"run.tanzu.vmware.com/tkr": "r2"}}}),
    );
    for version in [OLD, NEW] {
        story.write(
            "/mgmt/harness.test/harnesscontrolplanes/a/two-x",
            json!({
                "metadata": {"uid": "u2", "labels": {"cluster.x-k8s.io/cluster-name": "two"}},
                "spec": {"version": version},
            }),
        );
    }
    story.is_early("control plane", "not installed");
}

#[test]
fn a_swap_of_release_data_under_the_running_version_needs_proof() {
    let mut story = Story::created();
    for (tkr, image) in [("r1", "old"), ("r3", "new")] {
        story.write(
            "/mgmt/run.tanzu.vmware.com/tanzukubernetesreleases/r3",
            json!({"spec": {"kubernetes": {"version": OLD}}}),
        );
        story.write(
            "/mgmt/run.tanzu.vmware.com/clusterbootstraptemplates/tkg-system/r3",
            json!({"spec": {"cni": {"refName": "antrea.a.test.2.0.0"}}}),
        );
        story.write(
            "/mgmt/cluster.x-k8s.io/clusters/a/one",
            json!({
                "metadata": {"labels": {"run.tanzu.vmware.com/tkr": tkr}},
                "spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": {OLD: {"image": image}}}]}},
            }),
        );
    }
    story.is_early("TKR_DATA", "antrea.a.test.2.0.0");
}
