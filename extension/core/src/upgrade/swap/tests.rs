use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::upgrade::hop::{ControlPlaneFacts, Plan, progress};

const V35: &str = "v1.35.4";
const V36: &str = "v1.36.3";
const OLD: &str = "v1.35.4---test.1";
const NEW: &str = "v1.35.4---test.2";
const NEWEST: &str = "v1.35.4---test.10";
const NEXT: &str = "v1.36.3---test.1";

fn releases() -> Vec<TkrFacts> {
    let release = |name: &str, version: &str| TkrFacts {
        name: name.to_owned(),
        version: from_label(name),
        kubernetes_version: version.to_owned(),
        legacy: false,
    };
    vec![
        release(OLD, V35),
        release(NEW, V35),
        release(NEWEST, V35),
        release(NEXT, V36),
    ]
}

fn entry(release: &str) -> Value {
    json!({"osImageRef": {"name": "image"}, "labels": {label::TKR: release}})
}

fn topology(to: &str, data: &Value) -> Topology {
    let variables = json!([{"name": name::TKR_DATA, "value": data}]);
    let topology = json!({"classRef": {"name": "class"}, "version": to, "variables": variables});
    serde_json::from_value(topology).unwrap()
}

fn class(declares: bool) -> ClusterClass {
    let variables = if declares {
        json!([{"name": name::TKR_DATA}])
    } else {
        json!([])
    };
    let class = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "ClusterClass", "metadata": {"name": "class"},
        "spec": {"variables": variables},
    });
    serde_json::from_value(class).unwrap()
}

fn worker(version: &str) -> WorkerFacts {
    WorkerFacts {
        spec_version: Some(version.to_owned()),
        ..WorkerFacts::default()
    }
}

fn record(from: &str, to: &str, outcome: Option<Outcome>) -> UpgradeRecord {
    UpgradeRecord {
        from: Some(from.to_owned()),
        to: to.to_owned(),
        hop: Some(to.to_owned()),
        outcome,
        ..UpgradeRecord::default()
    }
}

/// Cluster whose control plane is settled at v1.35.4.
struct Scene {
    topology: Topology,
    class: Option<ClusterClass>,
    label: &'static str,
    workers: Vec<WorkerFacts>,
    record: Option<UpgradeRecord>,
    control_plane: (&'static str, &'static str),
}

impl Scene {
    fn labelled(label: &'static str) -> Self {
        Self {
            topology: topology(V35, &json!({V35: entry(OLD)})),
            class: Some(class(true)),
            label,
            workers: vec![worker(V35)],
            record: Some(record("v1.34.4", V35, Some(Outcome::Completed))),
            control_plane: (V35, V35),
        }
    }

    fn progress(&self) -> Progress {
        let (spec, status) = self.control_plane;
        let control_plane = ControlPlaneFacts {
            spec_version: Some(spec.to_owned()),
            status_version: Some(status.to_owned()).filter(|status| !status.is_empty()),
        };
        let to = &self.topology.version;
        progress(
            Some(&control_plane),
            &self.workers,
            to,
            &Plan::Direct,
            self.record.as_ref(),
        )
    }

    fn made_of(&self) -> Option<String> {
        made_of(&self.topology, &self.topology.version)
    }

    fn inputs<'a>(&'a self, made_of: Option<&'a str>, releases: &'a [TkrFacts]) -> SwapInputs<'a> {
        SwapInputs {
            made_of,
            topology: &self.topology,
            class: self.class.as_ref(),
            label: self.label,
            workers: &self.workers,
            record: self.record.as_ref(),
            releases,
        }
    }

    fn request(&self) -> Option<SwapRequest> {
        let made_of = self.made_of();
        request(&self.progress(), self.inputs(made_of.as_deref(), &releases()))
    }

    fn kept(&self, resolved: &str) -> Option<String> {
        let (made_of, releases) = (self.made_of(), releases());
        kept_release(
            &self.progress(),
            self.inputs(made_of.as_deref(), &releases),
            Some(resolved),
        )
        .map(str::to_owned)
    }
}

#[rstest]
#[case::newer(NEW, true)]
#[case::newer_by_number(NEWEST, true)]
#[case::of_the_machines(OLD, false)]
#[case::of_another_version(NEXT, false)]
#[case::unknown("v1.35.4---test.9", false)]
fn a_newer_release_of_the_version_is_requested(#[case] label: &'static str, #[case] requested: bool) {
    let found = Scene::labelled(label).request();
    let expected = requested.then(|| SwapRequest {
        version: V35.to_owned(),
        from: OLD.to_owned(),
        to: label.to_owned(),
        kept: None,
    });
    assert_eq!(found, expected);
}

#[test]
fn an_older_release_is_not_requested() {
    let mut scene = Scene::labelled(NEW);
    scene.topology = topology(V35, &json!({V35: entry(NEWEST)}));
    assert_eq!(scene.request(), None);
}

#[rstest]
#[case::another_target(|scene: &mut Scene| scene.topology.version = V36.to_owned(), false)]
#[case::rolling_control_plane(|scene: &mut Scene| scene.control_plane = (V35, "v1.34.4"), false)]
#[case::worker_of_an_earlier_version(|scene: &mut Scene| scene.workers.push(worker("v1.34.4")), false)]
#[case::upgrade_under_way(|scene: &mut Scene| scene.record = Some(record("v1.34.4", V35, None)), false)]
#[case::first_installation(
    |scene: &mut Scene| scene.record = Some(UpgradeRecord { from: None, ..record(V35, V35, None) }),
    false
)]
#[case::the_same_under_way(|scene: &mut Scene| scene.record = Some(record(V35, V35, None)), true)]
#[case::cancelled(|scene: &mut Scene| scene.record = Some(record(V35, V35, Some(Outcome::Cancelled))), true)]
#[case::record_lost(|scene: &mut Scene| scene.record = None, true)]
#[case::class_lost(|scene: &mut Scene| scene.class = None, true)]
#[case::no_workers(|scene: &mut Scene| scene.workers.clear(), true)]
fn a_request_needs_a_version_that_all_parts_have(#[case] edit: fn(&mut Scene), #[case] requested: bool) {
    let mut scene = Scene::labelled(NEW);
    edit(&mut scene);
    assert_eq!(
        scene.request().is_some_and(|request| request.replaces()),
        requested
    );
}

#[rstest]
#[case::no_entry(json!({}), true, Some("TKR_DATA has no entry for v1.35.4"))]
#[case::undeclared(json!({V35: entry(OLD)}), false, Some("ClusterClass class does not declare TKR_DATA"))]
#[case::pin_without_image(json!({V35: {"labels": {label::TKR: OLD}}}), true, None)]
fn machines_without_an_entry_stay(#[case] data: Value, #[case] declares: bool, #[case] why: Option<&str>) {
    let mut scene = Scene::labelled(NEW);
    (scene.topology, scene.class) = (topology(V35, &data), Some(class(declares)));
    let kept = scene.request().and_then(|request| request.kept);
    assert_eq!(kept.as_deref(), why);
}

#[rstest]
#[case::back_to_the_machines(OLD, NEW, Some(NEW))]
#[case::label_of_another_version(NEXT, NEW, Some(NEW))]
#[case::of_the_machines(OLD, OLD, None)]
#[case::of_another_version(OLD, NEXT, None)]
#[case::of_a_deleted_release(OLD, "v1.35.4---test.9", None)]
fn packages_are_not_downgraded_to_the_release_of_the_machines(
    #[case] label: &'static str,
    #[case] resolved: &str,
    #[case] kept: Option<&str>,
) {
    assert_eq!(Scene::labelled(label).kept(resolved).as_deref(), kept);
}

#[test]
fn the_record_names_the_packages_of_a_deleted_release() {
    let mut scene = Scene::labelled(OLD);
    let deleted = "v1.35.4---test.9";
    scene.record = Some(UpgradeRecord {
        tkr: Some(deleted.to_owned()),
        ..record(V35, V35, Some(Outcome::Cancelled))
    });
    assert_eq!(scene.kept(deleted).as_deref(), Some(deleted));
    scene.control_plane = (V35, "");
    assert_eq!(scene.kept(deleted).as_deref(), Some(deleted), "without a status");
    scene.record = Some(record("v1.34.4", V35, None));
    assert_eq!(scene.kept(NEW), None, "an upgrade is under way");
}
