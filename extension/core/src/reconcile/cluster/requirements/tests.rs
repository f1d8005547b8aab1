use std::sync::Arc;

use kube::ResourceExt as _;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    labels::annotation,
    run::{ClusterBootstrap, ClusterBootstrapSpec},
};

use super::*;
use crate::{cache::stores::Releases, reconcile::cluster::tests::facts, upgrade::hop::ControlPlanePhase};

const HOP: &str = "v1.36.3";
const RELEASE: &str = "v1.36.3---a.2";
const SAME_VERSION: &str = "v1.36.3---a.1";
const LOWER: &str = "v1.35.4---a.1";

fn release(name: &str, annotations: &Value) -> (String, Arc<TanzuKubernetesRelease>) {
    let (kubernetes, _) = name.split_once("---").unwrap();
    let release = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"version": name.replace("---", "+"), "kubernetes": {"version": kubernetes}},
    });
    (
        name.to_owned(),
        Arc::new(serde_json::from_value(release).unwrap()),
    )
}

fn known(name: &str) -> TkrFacts {
    TkrFacts {
        name: name.to_owned(),
        version: name.replace("---", "+"),
        kubernetes_version: name.split_once("---").unwrap().0.to_owned(),
        legacy: false,
    }
}

/// Returns the facts of a Cluster, and its progress to a release that needs a package that nothing installs.
fn given() -> (Facts, Progress) {
    let requires = json!({annotation::REQUIRES: "tkg-clusterclass.example.com>=0.31.0"});
    let mut given = facts();
    given.releases = Arc::new(Releases::from([
        release(RELEASE, &requires),
        release(SAME_VERSION, &json!({})),
        release(LOWER, &json!({})),
    ]));
    let progress = Progress {
        phase: ControlPlanePhase::Settled {
            version: "v1.35.4".to_owned(),
        },
        hop: HOP.to_owned(),
        direction: UpgradeDirection::Forward,
        taken: false,
    };
    (given, progress)
}

/// Sets the release whose packages are in the ClusterBootstrap.
fn resolve(facts: &mut Facts, release: &str) {
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    let mark = (annotation::RESOLVED_TKR.to_owned(), release.to_owned());
    bootstrap.annotations_mut().extend([mark]);
    facts.bootstrap = Some(Arc::new(bootstrap));
}

type Edit = fn(&mut Facts, &mut Progress);

#[rstest]
#[case::before_the_step(|_: &mut Facts, _: &mut Progress| {}, true)]
#[case::after_the_merge(|facts: &mut Facts, _: &mut Progress| resolve(facts, RELEASE), true)]
#[case::creating(|_: &mut Facts, progress: &mut Progress| progress.phase = ControlPlanePhase::Creating, true)]
#[case::control_plane_has_the_version(|facts: &mut Facts, progress: &mut Progress| {
    resolve(facts, LOWER);
    progress.taken = true;
}, false)]
#[case::without_bootstrap(|_: &mut Facts, progress: &mut Progress| progress.taken = true, false)]
#[case::at_the_release(|facts: &mut Facts, progress: &mut Progress| {
    resolve(facts, RELEASE);
    progress.taken = true;
}, false)]
#[case::from_a_release_of_the_version(|facts: &mut Facts, progress: &mut Progress| {
    resolve(facts, SAME_VERSION);
    progress.taken = true;
}, true)]
#[case::machines_of_the_release(|facts: &mut Facts, progress: &mut Progress| {
    resolve(facts, SAME_VERSION);
    progress.taken = true;
    facts.made_of = Some(RELEASE.to_owned());
}, false)]
#[case::cancelled(|_: &mut Facts, progress: &mut Progress| progress.direction = UpgradeDirection::Cancelled, false)]
#[case::downgrade(|_: &mut Facts, progress: &mut Progress| progress.direction = UpgradeDirection::Downgrade, false)]
#[case::no_requirements(|facts: &mut Facts, _: &mut Progress| {
    facts.releases = Arc::new(Releases::from([release(RELEASE, &json!({}))]));
}, false)]
fn a_cluster_waits_for_the_packages_of_the_release_that_it_moves_to(#[case] edit: Edit, #[case] waits: bool) {
    let (mut facts, mut progress) = given();
    edit(&mut facts, &mut progress);
    let releases = [RELEASE, SAME_VERSION, LOWER].map(known);
    let found = requiring(&facts, &progress, &releases, RELEASE, false);
    let hold = found.and_then(|release| unmet(&facts.management_packages, release));
    let expected = waits.then_some(GateReason::ManagementPackageNotReady);
    assert_eq!(hold.map(|hold| hold.reason), expected);
    assert!(requiring(&facts, &progress, &releases, SAME_VERSION, false).is_none());
}

/// Packages of the release are merged before its machines are requested: only the entry shows which machines the Cluster has.
#[rstest]
#[case::before_the_merge(SAME_VERSION, SAME_VERSION, true)]
#[case::after_the_merge(RELEASE, SAME_VERSION, true)]
#[case::from_a_deleted_release(RELEASE, "v1.36.3---a.0", true)]
#[case::after_the_entry_was_written(RELEASE, RELEASE, false)]
fn a_swap_waits_until_its_entry_is_written(
    #[case] resolved: &str,
    #[case] made_of: &str,
    #[case] waits: bool,
) {
    let (mut facts, mut progress) = given();
    resolve(&mut facts, resolved);
    facts.made_of = Some(made_of.to_owned());
    progress.taken = true;
    let releases = [RELEASE, SAME_VERSION, LOWER].map(known);
    let found = requiring(&facts, &progress, &releases, RELEASE, true);
    assert_eq!(found.is_some(), waits);
}
