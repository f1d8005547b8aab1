//! A Cluster `a/one` with an UpgradeGate: a chart that CAAPH delivers, and the DaemonSet of it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::story::{NEW, NEXT, OLD};
use crate::observer::feed::{Change, Revision};
use crate::observer::ledger::Ledger;
use crate::observer::milestone::Event;
use crate::observer::violation::Rule;

/// An edit, and what it is.
type Case<T> = (fn(&mut T), &'static str);

const GATE: &str = "/mgmt/lifecycle.sluice.dev/upgradegates/a/cni";
const CLUSTER: &str = "/mgmt/cluster.x-k8s.io/clusters/a/one";
const PROXY: &str = "/mgmt/addons.cluster.x-k8s.io/helmchartproxies/a/cni";
const RELEASE: &str = "/mgmt/addons.cluster.x-k8s.io/helmreleaseproxies/a/cni-one-x";
const DAEMON_SET: &str = "/wl/u/daemonsets/kube-system/cni";

/// Chart versions, of which the image tags are those with `v`.
const BEFORE: &str = "1.17.4";
const AFTER: &str = "1.18.2";

/// Events so far, and the objects as they were written last.
struct Story {
    ledger: Ledger,
    revision: Revision,
    gate: Value,
    proxy: Value,
    release: Value,
    daemon_set: Value,
}

/// What a planted judge sees.
type Judge = fn(&Story) -> bool;

impl Story {
    /// The Cluster at rest, with the chart of its version.
    fn at_rest() -> Self {
        let row = |minor: &str, chart: &str| json!({"kubernetes": minor, "values": {"chart": chart, "image": format!("v{chart}")}});
        let chart = json!({
            "name": "chart", "versionKey": "chart",
            "object": {"apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy", "name": "cni"},
        });
        let agent = json!({
            "name": "agent", "versionKey": "image", "cluster": "Workload", "container": "agent",
            "object": {"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": "kube-system", "name": "cni"},
        });
        let mut story = Self {
            ledger: Ledger::default(),
            revision: 0,
            gate: json!({"spec": {
                "mode": "Enforce",
                "clusterSelector": {"matchLabels": {"cni": "demo"}},
                "before": "ControlPlane",
                "versions": [row("1.35", BEFORE), row("1.36", AFTER)],
                "checks": [chart, agent],
            }}),
            proxy: json!({
                "metadata": {"name": "cni", "uid": "proxy", "generation": 1},
                "spec": {"version": BEFORE},
                "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]},
            }),
            release: json!({
                "metadata": {
                    "name": "cni-one-x", "uid": "release", "generation": 1,
                    "labels": {
                        "cluster.x-k8s.io/cluster-name": "one",
                        "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name": "cni",
                    },
                    "ownerReferences": [{"uid": "proxy", "controller": true}],
                },
                "spec": {"version": BEFORE, "clusterRef": {"namespace": "a", "name": "one"}},
                "status": {
                    "observedGeneration": 1, "status": "deployed",
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }),
            daemon_set: json!({
                "metadata": {"generation": 1},
                "spec": {"template": {"spec": {"containers": [{"name": "agent", "image": image(BEFORE)}]}}},
                "status": {
                    "observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2,
                },
            }),
        };
        story.label("demo");
        story.control_plane(OLD, OLD);
        story.workers("one-md", OLD);
        story.write_gate(|_| {});
        story.write_proxy(|_| {});
        story.write_release(|_| {});
        story.write_daemon_set(|_| {});
        story
    }

    /// Both checks are proven at the new version.
    fn proven() -> Self {
        let mut story = Self::at_rest();
        for step in ROLLOUT {
            step(&mut story);
        }
        story
    }

    fn write(&mut self, key: &str, object: Option<Value>) {
        self.revision += 1;
        self.ledger.observe(&Change {
            revision: self.revision,
            seen: Timestamp::UNIX_EPOCH,
            key: key.to_owned(),
            object,
        });
    }

    fn label(&mut self, cni: &str) {
        let cluster = json!({"metadata": {"labels": {"cni": cni}}, "spec": {"topology": {"version": NEW}}});
        self.write(CLUSTER, Some(cluster));
    }

    fn control_plane(&mut self, spec: &str, status: &str) {
        let plane = json!({
            "metadata": {"uid": "u", "labels": {"cluster.x-k8s.io/cluster-name": "one"}},
            "spec": {"version": spec},
            "status": {"version": status},
        });
        self.write("/mgmt/harness.test/harnesscontrolplanes/a/one-x", Some(plane));
    }

    fn workers(&mut self, name: &str, version: &str) {
        let pool = json!({
            "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "one"}},
            "spec": {"replicas": 1, "template": {"spec": {"version": version}}},
        });
        self.write(
            &format!("/mgmt/cluster.x-k8s.io/machinedeployments/a/{name}"),
            Some(pool),
        );
    }

    fn write_gate(&mut self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.gate);
        self.write(GATE, Some(self.gate.clone()));
    }

    fn write_proxy(&mut self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.proxy);
        self.write(PROXY, Some(self.proxy.clone()));
    }

    fn write_release(&mut self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.release);
        self.write(RELEASE, Some(self.release.clone()));
    }

    fn write_daemon_set(&mut self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.daemon_set);
        self.write(DAEMON_SET, Some(self.daemon_set.clone()));
    }

    /// The one check of the gate is of an object on the workload cluster, with a version of its image.
    fn checks(&mut self, api_version: &str, kind: &str, name: &str) {
        self.write_gate(|gate| {
            gate["spec"]["checks"] = json!([{
                "name": "agent", "versionKey": "image", "cluster": "Workload",
                "object": {"apiVersion": api_version, "kind": kind, "namespace": "kube-system", "name": name},
            }]);
        });
    }

    #[track_caller]
    fn is_in_order(&self) {
        let violations = self.ledger.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }

    #[track_caller]
    fn is_early(&self, because: &str) {
        let violations = self.ledger.violations();
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert_eq!(violations[0].rule, Rule::ReleasedBeforeGate);
        assert_eq!(violations[0].revision, self.revision);
        let text = violations[0].to_string();
        assert!(text.contains("ReleasedBeforeGate"), "{text}");
        assert!(text.contains(because), "{text}");
    }
}

/// The writes of an upgrade of the chart, in their order.
const ROLLOUT: [fn(&mut Story); 8] = [
    |story| {
        story.write_proxy(|proxy| {
            proxy["spec"]["version"] = json!(AFTER);
            proxy["metadata"]["generation"] = json!(2);
        });
    },
    // Its conditions aggregate those of its HelmReleaseProxies, of which none is rewritten yet.
    |story| story.write_proxy(|proxy| proxy["status"]["observedGeneration"] = json!(2)),
    |story| {
        story.write_release(|release| {
            release["spec"]["version"] = json!(AFTER);
            release["metadata"]["generation"] = json!(2);
        });
    },
    |story| {
        story.write_daemon_set(|daemon_set| {
            daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image(AFTER));
            daemon_set["metadata"]["generation"] = json!(2);
        });
    },
    |story| {
        story.write_daemon_set(|daemon_set| {
            daemon_set["status"]["observedGeneration"] = json!(2);
            daemon_set["status"]["updatedNumberScheduled"] = json!(0);
        });
    },
    |story| story.write_release(|release| release["status"]["observedGeneration"] = json!(2)),
    // maxUnavailable of Helm's wait is 1.
    |story| {
        story.write_daemon_set(|daemon_set| {
            daemon_set["status"]["updatedNumberScheduled"] = json!(2);
            daemon_set["status"]["numberAvailable"] = json!(1);
        });
    },
    |story| story.write_daemon_set(|daemon_set| daemon_set["status"]["numberAvailable"] = json!(2)),
];

fn image(chart: &str) -> String {
    format!("registry:5000/cni:v{chart}")
}

fn is_ready(object: &Value) -> bool {
    object["status"]["conditions"][0]["status"] == "True"
}

fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

fn is_available(daemon_set: &Value) -> bool {
    let status = &daemon_set["status"];
    status["numberAvailable"] == status["desiredNumberScheduled"]
}

/// A judge without a defect.
fn proves(story: &Story) -> bool {
    let (proxy, release, daemon_set) = (&story.proxy, &story.release, &story.daemon_set);
    let goes_on = |object: &Value| object["metadata"]["annotations"].is_null();
    let is_deployed = [proxy, release]
        .iter()
        .all(|object| object["spec"]["version"] == AFTER && is_ready(object) && goes_on(object))
        && is_observed(release)
        && release["spec"]["reconcileStrategy"] != "InstallOnce";
    let runs = daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] == image(AFTER)
        && is_observed(daemon_set)
        && daemon_set["status"]["updatedNumberScheduled"] == 2
        && is_available(daemon_set);
    is_deployed && runs
}

/// Trusts conditions, whatever generation they speak of.
fn trusts_ready(story: &Story) -> bool {
    is_ready(&story.release) && is_available(&story.daemon_set)
}

/// The same, of the versions that are asked for.
fn trusts_ready_at_the_version(story: &Story) -> bool {
    let is_asked = [&story.proxy, &story.release]
        .iter()
        .all(|object| object["spec"]["version"] == AFTER);
    is_asked && trusts_ready(story)
}

/// Never reads the HelmReleaseProxy.
fn trusts_the_proxy_alone(story: &Story) -> bool {
    let proxy = &story.proxy;
    proxy["spec"]["version"] == AFTER && is_ready(proxy) && is_observed(proxy)
}

/// Reads neither the pause nor the strategy.
fn trusts_a_suspended_object(story: &Story) -> bool {
    let objects = [&story.proxy, &story.release];
    let are_deployed = objects
        .iter()
        .all(|object| object["spec"]["version"] == AFTER && is_ready(object) && is_observed(object));
    are_deployed && is_observed(&story.daemon_set) && is_available(&story.daemon_set)
}

/// Counts the Pods as Helm's wait does.
fn waits_like_helm(story: &Story) -> bool {
    let status = &story.daemon_set["status"];
    let ready = status["numberAvailable"].as_i64() >= Some(1) && status["updatedNumberScheduled"] == 2;
    is_observed(&story.release) && story.release["spec"]["version"] == AFTER && ready
}

/// Writes the version to the control plane as soon as `judge` says that it may.
#[track_caller]
fn release_by(judge: Judge, story: &mut Story, steps: &[fn(&mut Story)]) {
    let mut steps = steps.iter();
    while !judge(story) {
        let step = steps.next().expect("the judge never agrees");
        step(story);
    }
    story.control_plane(NEW, OLD);
}

#[test]
fn a_judge_without_a_defect_is_in_order() {
    let mut story = Story::at_rest();
    release_by(proves, &mut story, &ROLLOUT);
    story.is_in_order();
}

#[test]
fn planted_judges_are_caught() {
    let judges: [(Judge, &str); 4] = [
        (trusts_ready, "cni/chart (cni is at version \"1.17.4\""),
        (
            trusts_ready_at_the_version,
            "HelmReleaseProxy cni-one-x is \"deployed\" at generation 2, observed 1",
        ),
        (
            trusts_the_proxy_alone,
            "cni/chart (cni-one-x is at version \"1.17.4\"",
        ),
        (waits_like_helm, "cni/agent (a DaemonSet with status"),
    ];
    for (judge, because) in judges {
        let mut story = Story::at_rest();
        release_by(judge, &mut story, &ROLLOUT);
        story.is_early(because);
    }
}

/// CAAPH writes the observed generation of an object that it installs once, and does nothing.
#[test]
fn a_judge_that_trusts_a_suspended_object_is_caught() {
    let suspensions: [Case<Value>; 2] = [
        (
            |release| release["spec"]["reconcileStrategy"] = json!("InstallOnce"),
            "installed once",
        ),
        (
            |release| release["metadata"]["annotations"] = json!({"cluster.x-k8s.io/paused": ""}),
            "is paused",
        ),
    ];
    for (suspend, because) in suspensions {
        let mut story = Story::at_rest();
        story.write_release(suspend);
        let steps = [ROLLOUT[0], ROLLOUT[1], ROLLOUT[2], ROLLOUT[5]];
        release_by(trusts_a_suspended_object, &mut story, &steps);
        story.is_early(because);
    }
}

#[test]
fn each_rule_of_a_delivered_chart_can_be_broken() {
    let cases: [Case<Story>; 12] = [
        (|story| story.write(PROXY, None), "no HelmChartProxy cni"),
        (
            |story| story.write_proxy(|proxy| proxy["metadata"]["deletionTimestamp"] = json!("now")),
            "cni is being deleted",
        ),
        (|story| story.write(RELEASE, None), "0 HelmReleaseProxies"),
        (
            |story| {
                let second = story.release.clone();
                story.write(&format!("{RELEASE}y"), Some(second));
            },
            "2 HelmReleaseProxies",
        ),
        (
            |story| story.write_release(|release| release["metadata"]["deletionTimestamp"] = json!("now")),
            "cni-one-x is being deleted",
        ),
        (
            |story| story.write_proxy(|proxy| proxy["metadata"]["uid"] = json!("another")),
            "is not that of HelmChartProxy cni",
        ),
        (
            |story| story.write_release(|release| release["spec"]["clusterRef"]["name"] = json!("two")),
            "is for",
        ),
        (
            |story| {
                story.write_proxy(|proxy| {
                    proxy["metadata"]["annotations"] = json!({"cluster.x-k8s.io/paused": ""});
                });
            },
            "cni is paused",
        ),
        (
            |story| story.write_proxy(|proxy| proxy["spec"]["version"] = json!("1.18.20")),
            "cni is at version",
        ),
        (
            |story| story.write_release(|release| release["status"]["status"] = json!("failed")),
            "is \"failed\"",
        ),
        (
            |story| story.write_release(|release| release["metadata"]["generation"] = json!(3)),
            "observed 2",
        ),
        (
            |story| {
                story.write_release(|release| release["status"]["conditions"][0]["status"] = json!("False"));
            },
            "is not Ready",
        ),
    ];
    for (break_it, because) in cases {
        let mut story = Story::proven();
        break_it(&mut story);
        story.control_plane(NEW, OLD);
        story.is_early(because);
    }
}

#[test]
fn a_resync_of_a_delivered_chart_takes_nothing_back_unless_it_was_never_delivered() {
    let works = |release: &mut Value| release["status"]["conditions"][0]["status"] = json!("Unknown");
    let mut story = Story::proven();
    story.write_release(works);
    story.control_plane(NEW, OLD);
    story.is_in_order();

    let mut story = Story::at_rest();
    story.write_release(works);
    for step in ROLLOUT {
        step(&mut story);
    }
    story.control_plane(NEW, OLD);
    story.is_early("is not Ready");
}

#[test]
fn each_rule_of_a_daemon_set_can_be_broken() {
    let cases: [Case<Value>; 6] = [
        (
            |daemon_set| daemon_set["status"]["numberAvailable"] = json!(1),
            "a DaemonSet",
        ),
        (
            |daemon_set| daemon_set["status"]["updatedNumberScheduled"] = json!(1),
            "a DaemonSet",
        ),
        (
            |daemon_set| {
                for field in [
                    "desiredNumberScheduled",
                    "updatedNumberScheduled",
                    "numberAvailable",
                ] {
                    daemon_set["status"][field] = json!(0);
                }
            },
            "a DaemonSet",
        ),
        (
            |daemon_set| daemon_set["metadata"]["generation"] = json!(3),
            "a DaemonSet",
        ),
        (
            |daemon_set| {
                daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] = json!("cni:v1.18");
            },
            "not of version v1.18.2",
        ),
        (
            |daemon_set| daemon_set["spec"]["template"]["spec"]["containers"][0]["name"] = json!("other"),
            "no container",
        ),
    ];
    for (edit, because) in cases {
        let mut story = Story::proven();
        story.write_daemon_set(edit);
        story.control_plane(NEW, OLD);
        story.is_early(because);
    }
    let mut story = Story::proven();
    story.write(DAEMON_SET, None);
    story.write(
        "/wl/another/daemonsets/kube-system/cni",
        Some(story.daemon_set.clone()),
    );
    story.control_plane(NEW, OLD);
    story.is_early("no DaemonSet cni");
}

#[test]
fn replicas_of_a_deployment_all_count() {
    let cases: [Case<Value>; 5] = [
        (|_| {}, ""),
        (|deployment| deployment["spec"]["paused"] = json!(true), "paused"),
        // The Pod of before still runs.
        (
            |deployment| deployment["status"]["replicas"] = json!(3),
            "2 replicas",
        ),
        (
            |deployment| deployment["status"]["availableReplicas"] = json!(1),
            "2 replicas",
        ),
        (
            |deployment| deployment["status"]["observedGeneration"] = json!(1),
            "2 replicas",
        ),
    ];
    for (edit, because) in cases {
        let mut deployment = json!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a", "image": image(AFTER)}]}}},
            "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
        });
        edit(&mut deployment);
        let mut story = Story::at_rest();
        story.checks("apps/v1", "Deployment", "cni");
        story.write("/wl/u/deployments/kube-system/cni", Some(deployment));
        story.control_plane(NEW, OLD);
        if because.is_empty() {
            story.is_in_order();
        } else {
            story.is_early(because);
        }
    }
}

#[test]
fn a_job_that_was_complete_stands_after_its_deletion() {
    let key = format!("/wl/u/jobs/kube-system/backup-{NEW}");
    let job = |condition: &str| {
        json!({
            "spec": {"template": {"spec": {"containers": [{"name": "a", "image": image(AFTER)}]}}},
            "status": {"conditions": [{"type": condition, "status": "True"}]},
        })
    };
    for (condition, is_early) in [("Complete", false), ("Failed", true)] {
        let mut story = Story::at_rest();
        story.checks("batch/v1", "Job", "backup-${hop}");
        story.write(&key, Some(job(condition)));
        story.write(&key, None);
        story.control_plane(NEW, OLD);
        if is_early {
            story.is_early("no Job backup-v1.36.3");
        } else {
            story.is_in_order();
        }
    }
    let mut story = Story::at_rest();
    story.checks("batch/v1", "Job", "backup-${hop}");
    let mut suspended = job("Complete");
    suspended["spec"]["suspend"] = json!(true);
    story.write(&key, Some(suspended));
    story.control_plane(NEW, OLD);
    story.is_early("suspended");
}

#[test]
fn only_enforced_gates_that_select_the_cluster_hold_its_control_plane() {
    let edits: [fn(&mut Value); 3] = [
        |gate| gate["spec"]["mode"] = json!("Audit"),
        |gate| gate["spec"]["clusterSelector"] = json!({"matchLabels": {"cni": "other"}}),
        |gate| gate["spec"]["before"] = json!("Workers"),
    ];
    for edit in edits {
        let mut story = Story::at_rest();
        story.write_gate(edit);
        story.control_plane(NEW, OLD);
        story.is_in_order();
    }
    let mut story = Story::at_rest();
    story.label("other");
    story.control_plane(NEW, OLD);
    story.is_in_order();
    let mut story = Story::at_rest();
    story.write(GATE, None);
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn a_minor_without_a_row_and_a_kind_without_a_rule_are_never_proven() {
    let mut story = Story::proven();
    story.control_plane(NEXT, OLD);
    story.is_early("cni: a row for Kubernetes 1.37");

    let mut story = Story::proven();
    story.checks("v1", "ConfigMap", "cni");
    story.control_plane(NEW, OLD);
    story.is_early("no rule for kind ConfigMap");
}

#[test]
fn all_checks_need_the_same_row() {
    let alternative =
        |chart: &str, image: &str| json!({"kubernetes": "1.36", "values": {"chart": chart, "image": image}});
    let mut story = Story::proven();
    story.write_gate(|gate| {
        gate["spec"]["versions"] = json!([alternative(AFTER, "v1.18.3"), alternative("1.18.3", "v1.18.2")]);
    });
    story.control_plane(NEW, OLD);
    story.is_early("not of version v1.18.3");

    let mut story = Story::proven();
    story.write_gate(|gate| {
        gate["spec"]["versions"] = json!([alternative("1.18.3", "v1.18.3"), alternative(AFTER, "v1.18.2")]);
    });
    story.control_plane(NEW, OLD);
    story.is_in_order();
}

#[test]
fn the_first_workers_need_the_proof_and_a_control_plane_that_runs() {
    for before in ["ControlPlane", "Workers"] {
        let mut story = Story::proven();
        story.write_gate(|gate| gate["spec"]["before"] = json!(before));
        story.control_plane(NEW, OLD);
        story.workers("one-md", NEW);
        story.is_early("a control plane that runs v1.36.3");
    }
    let mut story = Story::proven();
    story.workers("one-other", OLD);
    story.control_plane(NEW, OLD);
    story.control_plane(NEW, NEW);
    story.workers("one-md", NEW);
    // A Node is replaced.
    story.write_daemon_set(|daemon_set| daemon_set["status"]["numberAvailable"] = json!(1));
    story.workers("one-other", NEW);
    story.is_in_order();

    let mut story = Story::proven();
    story.control_plane(NEW, NEW);
    story.write_daemon_set(|daemon_set| daemon_set["status"]["numberAvailable"] = json!(1));
    story.workers("one-md", NEW);
    story.is_early("cni/agent");
}

#[test]
fn a_check_is_noted_when_it_is_proven_and_when_it_is_not_any_more() {
    let mut story = Story::proven();
    let proven = story.revision;
    story.write_daemon_set(|daemon_set| daemon_set["status"]["numberAvailable"] = json!(1));
    let of_new: Vec<(Revision, &str, bool)> = story
        .ledger
        .milestones()
        .iter()
        .filter_map(|milestone| match &milestone.event {
            Event::CheckProven { check, minor, .. } if minor == "1.36" => {
                Some((milestone.revision, check.as_str(), true))
            }
            Event::CheckLost { check, minor, .. } if minor == "1.36" => {
                Some((milestone.revision, check.as_str(), false))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        of_new,
        [
            (proven - 2, "chart", true),
            (proven, "agent", true),
            (proven + 1, "agent", false)
        ]
    );
}
