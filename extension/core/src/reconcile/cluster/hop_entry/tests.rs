use std::sync::Arc;

use kube::ResourceExt as _;
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_crds::{
    labels::{annotation, label},
    run::{
        ClusterBootstrapSpec, ClusterBootstrapStatus, Gate, Hook, OSImage, Outcome, SCHEMA,
        TanzuKubernetesRelease,
    },
};

use super::*;
use crate::{
    cache::stores::{Images, Releases},
    reconcile::cluster::{
        LocalState,
        tests::{clock, facts},
    },
    upgrade::hop::ControlPlanePhase,
};

const HOP: &str = "v1.36.3";
const RELEASE: &str = "v1.36.3---a.1";
const HIGHER: &str = "v1.36.3---a.2";

fn typed<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn add_release(facts: &mut Facts, name: &str) {
    let (kubernetes, _) = name.split_once("---").unwrap();
    let release: TanzuKubernetesRelease = typed(json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {"name": name},
        "spec": {
            "version": name.replace("---", "+"), "kubernetes": {"version": kubernetes}, "osImages": [{"name": name}],
        },
    }));
    let image: OSImage = typed(json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage", "metadata": {"name": name},
        "spec": {
            "kubernetesVersion": kubernetes,
            "os": {"type": "linux", "name": "ubuntu", "version": "5", "arch": "amd64"},
            "image": {"type": "ova", "ref": {"name": name}},
        },
    }));
    Arc::make_mut(&mut facts.releases).insert(name.to_owned(), Arc::new(release));
    let images = Arc::make_mut(facts.images.get_or_insert_default());
    images.insert(name.to_owned(), Arc::new(image));
}

fn edit_topology(facts: &mut Facts, variables: &Value) {
    let cluster = Arc::make_mut(&mut facts.cluster);
    let topology = cluster.spec.topology.as_mut().unwrap();
    topology.variables = typed(variables.clone());
    facts.topology = topology.clone();
}

fn edit_class(facts: &mut Facts, edit: impl FnOnce(&mut sluice_crds::foreign::ClusterClass)) {
    edit(Arc::make_mut(facts.class.as_mut().unwrap()));
}

/// The Cluster requests no resolution, and an entry names a release.
fn write_entries_by_hand(facts: &mut Facts) {
    Arc::make_mut(&mut facts.cluster).annotations_mut().clear();
    let value = json!({"v1.35.4": {"osImageRef": {}, "labels": {label::TKR: "own"}}});
    edit_topology(facts, &json!([{"name": name::TKR_DATA, "value": value}]));
}

/// Records a gate of the hop.
fn record(facts: &mut Facts, hook: Hook, open: bool, outcome: Option<Outcome>) {
    let gate = Gate {
        hook,
        version: HOP.to_owned(),
        open,
        reason: String::new(),
        message: String::new(),
        overridden_by: None,
    };
    let record = UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: "uid".to_owned(),
        gates: vec![gate],
        outcome,
        ..UpgradeRecord::default()
    };
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    bootstrap.status = Some(ClusterBootstrapStatus {
        upgrade: Some(record),
        ..ClusterBootstrapStatus::default()
    });
    facts.bootstrap = Some(Arc::new(bootstrap));
}

/// Returns the facts of a Cluster at v1.35.4 that requests a release of v1.37.1.
fn given() -> Facts {
    let mut given = facts();
    let cluster = Arc::make_mut(&mut given.cluster);
    cluster
        .annotations_mut()
        .insert(annotation::RESOLVE_TKR.to_owned(), String::new());
    cluster.spec.topology.as_mut().unwrap().version = "v1.37.1".to_owned();
    edit_topology(
        &mut given,
        &json!([{"name": name::TKR_DATA, "value": {"v1.35.4": {"osImageRef": {}}}}]),
    );
    given.label = "v1.37.1---a.1".to_owned();
    given.class = Some(Arc::new(typed(json!({
        "metadata": {"name": "class", "namespace": "team-a"}, "spec": {"variables": [{"name": name::TKR_DATA}]},
    }))));
    given.releases = Arc::new(Releases::new());
    given.images = Some(Arc::new(Images::new()));
    add_release(&mut given, RELEASE);
    add_release(&mut given, "v1.37.1---a.1");
    given
}

/// Returns the progress of its upgrade.
fn ahead() -> Progress {
    Progress {
        phase: ControlPlanePhase::Settled {
            version: "v1.35.4".to_owned(),
        },
        hop: HOP.to_owned(),
        direction: UpgradeDirection::Forward,
        taken: false,
    }
}

type Edit = fn(&mut Facts, &mut Progress);

#[rstest]
#[case::missing(|_: &mut Facts, _: &mut Progress| {}, Ok(true))]
#[case::taken(|_: &mut Facts, progress: &mut Progress| progress.taken = true, Ok(false))]
#[case::creating(|_: &mut Facts, progress: &mut Progress| progress.phase = ControlPlanePhase::Creating, Ok(false))]
#[case::cancelled(
    |_: &mut Facts, progress: &mut Progress| progress.direction = UpgradeDirection::Cancelled,
    Ok(false)
)]
#[case::no_class(|facts: &mut Facts, _: &mut Progress| facts.class = None, Ok(false))]
#[case::not_declared(
    |facts: &mut Facts, _: &mut Progress| edit_class(facts, |class| class.spec.variables.clear()),
    Ok(false)
)]
#[case::not_requested(
    |facts: &mut Facts, _: &mut Progress| Arc::make_mut(&mut facts.cluster).annotations_mut().clear(),
    Ok(false)
)]
#[case::no_variable(|facts: &mut Facts, _: &mut Progress| edit_topology(facts, &json!([])), Ok(true))]
#[case::pin_without_image(
    |facts: &mut Facts, _: &mut Progress| {
        let value = json!({HOP: {"labels": {label::TKR: RELEASE}}});
        edit_topology(facts, &json!([{"name": name::TKR_DATA, "value": value}]));
    },
    Ok(true)
)]
#[case::written(
    |facts: &mut Facts, _: &mut Progress| {
        let value = json!({HOP: {"osImageRef": {}}});
        edit_topology(facts, &json!([{"name": name::TKR_DATA, "value": value}]));
    },
    Ok(false)
)]
#[case::no_object(
    |facts: &mut Facts, _: &mut Progress| edit_topology(facts, &json!([{"name": name::TKR_DATA, "value": 1}])),
    Err(GateReason::MachinesNotResolved)
)]
#[case::no_image(
    |facts: &mut Facts, _: &mut Progress| facts.images = Some(Arc::default()),
    Err(GateReason::MachinesNotResolved)
)]
// Releases of users who write entries by hand may not describe their images.
#[case::no_image_of_own_entries(
    |facts: &mut Facts, _: &mut Progress| {
        facts.images = Some(Arc::default());
        write_entries_by_hand(facts);
    },
    Ok(false)
)]
#[case::no_image_of_own_entries_that_a_part_selects(
    |facts: &mut Facts, _: &mut Progress| {
        facts.images = Some(Arc::default());
        write_entries_by_hand(facts);
        let selects = json!({"metadata": {"annotations": {annotation::RESOLVE_OS_IMAGE: "os-name=ubuntu"}}});
        edit_class(facts, |class| class.spec.control_plane = typed(selects));
    },
    Err(GateReason::MachinesNotResolved)
)]
#[case::own_entries(|facts: &mut Facts, _: &mut Progress| write_entries_by_hand(facts), Ok(true))]
#[case::images_not_listed(
    |facts: &mut Facts, _: &mut Progress| facts.images = None,
    Err(GateReason::MachinesNotResolved)
)]
#[case::open_gate(
    |facts: &mut Facts, _: &mut Progress| record(facts, Hook::BeforeControlPlaneUpgrade, true, None),
    Err(GateReason::EntryNotWritten)
)]
#[case::closed_gate(
    |facts: &mut Facts, _: &mut Progress| record(facts, Hook::BeforeClusterUpgrade, false, None),
    Ok(true)
)]
#[case::open_gate_of_an_ended_upgrade(
    |facts: &mut Facts, _: &mut Progress| record(facts, Hook::BeforeClusterUpgrade, true, Some(Outcome::Completed)),
    Ok(true)
)]
#[case::open_gate_of_another_hook(
    |facts: &mut Facts, _: &mut Progress| record(facts, Hook::AfterControlPlaneUpgrade, true, None),
    Ok(true)
)]
fn an_entry_is_missing(#[case] edit: Edit, #[case] expected: Result<bool, GateReason>) {
    let (mut facts, mut progress) = (given(), ahead());
    edit(&mut facts, &mut progress);
    let local = LocalState::default();
    let found = missing(&Context::new(&facts, &local, clock()), &progress, RELEASE);
    let found = found.map(|machines| machines.map(|machines| machines.release.name_any()));
    let expected = expected.map(|missing| missing.then(|| RELEASE.to_owned()));
    assert_eq!(found.map_err(|hold| hold.reason), expected);
}

#[rstest]
#[case::only_one(|_: &mut Facts, _: &mut Progress| {}, Ok(None))]
#[case::several(|facts: &mut Facts, _: &mut Progress| add_release(facts, HIGHER), Ok(Some(HIGHER)))]
#[case::one_is_labelled(
    |facts: &mut Facts, _: &mut Progress| {
        add_release(facts, HIGHER);
        RELEASE.clone_into(&mut facts.label);
    },
    Ok(None)
)]
#[case::of_the_target(
    |facts: &mut Facts, progress: &mut Progress| {
        add_release(facts, "v1.37.1---a.2");
        progress.hop = "v1.37.1".to_owned();
    },
    Ok(None)
)]
#[case::not_requested(
    |facts: &mut Facts, _: &mut Progress| {
        add_release(facts, HIGHER);
        Arc::make_mut(&mut facts.cluster).annotations_mut().clear();
    },
    Ok(None)
)]
#[case::taken(
    |facts: &mut Facts, progress: &mut Progress| {
        add_release(facts, HIGHER);
        progress.taken = true;
    },
    Ok(Some(HIGHER))
)]
#[case::merged(
    |facts: &mut Facts, _: &mut Progress| {
        add_release(facts, HIGHER);
        facts.images = Some(Arc::default());
        let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
        bootstrap.annotations_mut().insert(annotation::RESOLVED_TKR.to_owned(), RELEASE.to_owned());
        facts.bootstrap = Some(Arc::new(bootstrap));
    },
    Ok(Some(RELEASE))
)]
#[case::none_with_an_image(
    |facts: &mut Facts, _: &mut Progress| {
        add_release(facts, HIGHER);
        facts.images = Some(Arc::default());
    },
    Err(GateReason::MachinesNotResolved)
)]
fn the_newest_of_several_releases_is_chosen(
    #[case] edit: Edit,
    #[case] expected: Result<Option<&str>, GateReason>,
) {
    let (mut facts, mut progress) = (given(), ahead());
    edit(&mut facts, &mut progress);
    let releases: Vec<TkrFacts> = facts.releases.values().map(|release| known(release)).collect();
    let found = chosen(&facts, &progress, &releases).map_err(|hold| hold.reason);
    assert_eq!(found, expected.map(|name| name.map(str::to_owned)));
}

fn known(release: &TanzuKubernetesRelease) -> TkrFacts {
    TkrFacts {
        name: release.name_any(),
        version: release.spec.version.clone(),
        kubernetes_version: release.spec.kubernetes.version.clone(),
        legacy: false,
    }
}
