pub(crate) mod world;

use rstest::rstest;
use sluice_crds::labels::{annotation, label};
use world::{FROM, OTHER_RELEASE, RELEASES, TO, VERSIONS, World, blocking, no_release};

use super::*;
use crate::upgrade::hop::Plan;

/// Returns each step as `version [workers]: package before>after ...`.
fn steps(plan: &UpgradePlan) -> Vec<String> {
    let step = |hop: &Hop| {
        let change = |change: &PackageChange| {
            let before = change.from.as_deref().unwrap_or("none");
            format!("{} {before}>{}", change.name, change.to)
        };
        let changes: Vec<String> = hop.packages.iter().map(change).collect();
        let workers = if hop.workers { " workers" } else { "" };
        format!("{}{workers}: {}", hop.version, changes.join(", "))
    };
    plan.hops.iter().map(step).collect()
}

type Edit = fn(&mut World);

fn keep(world: &mut World, versions: &str) {
    world.edit_bootstrap(|bootstrap| {
        let annotations = bootstrap.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::KEEP_PACKAGE_VERSIONS.to_owned(), versions.to_owned());
    });
}

#[rstest]
#[case::of_the_releases(
    |_: &mut World| {},
    &[
        "v1.35.4: kapp-controller 0.52.0>0.52.0, antrea 1.8.0>1.9.0, metrics none>1.0.0",
        "v1.36.3: kapp-controller 0.52.0>0.53.1, antrea 1.9.0>2.0.0, metrics 1.0.0>1.0.0",
        "v1.37.1 workers: kapp-controller 0.53.1>0.53.1, antrea 2.0.0>2.1.0, metrics 1.0.0>1.1.0",
    ]
)]
#[case::kept_and_left_out(
    |world: &mut World| keep(world, "antrea=1.8.0, metrics=none"),
    &[
        "v1.35.4: kapp-controller 0.52.0>0.52.0, antrea 1.8.0>1.8.0",
        "v1.36.3: kapp-controller 0.52.0>0.53.1, antrea 1.8.0>1.8.0",
        "v1.37.1 workers: kapp-controller 0.53.1>0.53.1, antrea 1.8.0>1.8.0",
    ]
)]
#[case::merged(
    |world: &mut World| world.set_bootstrap(2),
    &[
        "v1.35.4: kapp-controller 0.52.0>0.52.0, antrea 1.9.0>1.9.0, metrics 1.0.0>1.0.0",
        "v1.36.3: kapp-controller 0.52.0>0.53.1, antrea 1.9.0>2.0.0, metrics 1.0.0>1.0.0",
        "v1.37.1 workers: kapp-controller 0.53.1>0.53.1, antrea 2.0.0>2.1.0, metrics 1.0.0>1.1.0",
    ]
)]
// After a step without a release, packages follow from those before it.
#[case::step_without_release(
    |world: &mut World| world.remove_release(3),
    &[
        "v1.35.4: kapp-controller 0.52.0>0.52.0, antrea 1.8.0>1.9.0, metrics none>1.0.0",
        "v1.36.3: ",
        "v1.37.1 workers: kapp-controller 0.52.0>0.53.1, antrea 1.9.0>2.1.0, metrics 1.0.0>1.1.0",
    ]
)]
fn a_plan_lists_the_packages_of_each_step(#[case] edit: Edit, #[case] expected: &[&str]) {
    let mut world = World::new();
    edit(&mut world);
    let plan = world.plan();
    assert_eq!(steps(&plan), expected);
    assert_eq!(
        (plan.from.as_str(), plan.to.as_str()),
        (VERSIONS[FROM], VERSIONS[TO])
    );
    let releases = plan.hops.iter().zip(&RELEASES[FROM + 1..]);
    for (hop, release) in releases {
        assert!(
            hop.release.as_deref().is_none_or(|named| named == *release),
            "{hop:?}"
        );
    }
}

/// Returns steps that an extension has planned.
fn planned(workers: &[&str]) -> Plan {
    let owned = |versions: &[&str]| versions.iter().map(|version| (*version).to_owned()).collect();
    Plan::Given {
        control_plane: owned(&VERSIONS[FROM + 1..]),
        workers: owned(workers),
    }
}

fn start_at_the_first_version(world: &mut World) {
    world.set_bootstrap(0);
    world.set_control_plane(0, 0);
    world.set_workers(0);
}

#[rstest]
#[case::listed(|_: &mut World| {}, &[(2, false), (3, false), (4, true)])]
#[case::workers_three_versions_behind(
    start_at_the_first_version,
    &[(1, false), (2, false), (3, true), (4, true)]
)]
#[case::one_step(|world: &mut World| world.facts.plan = Plan::Direct, &[(4, true)])]
#[case::planned(
    |world: &mut World| world.facts.plan = planned(&[VERSIONS[3], VERSIONS[4]]),
    &[(2, false), (3, true), (4, true)]
)]
#[case::every_version_planned(
    |world: &mut World| world.facts.plan = planned(&VERSIONS[FROM + 1..]),
    &[(2, true), (3, true), (4, true)]
)]
#[case::first_step_taken(
    |world: &mut World| {
        world.set_bootstrap(2);
        world.set_control_plane(2, 1);
    },
    &[(2, false), (3, false), (4, true)]
)]
#[case::first_step_completed(
    |world: &mut World| {
        world.set_bootstrap(2);
        world.set_control_plane(2, 2);
    },
    &[(3, false), (4, true)]
)]
#[case::creating(|world: &mut World| world.facts.control_plane = None, &[])]
fn a_plan_has_the_steps_of_cluster_api(#[case] edit: Edit, #[case] expected: &[(usize, bool)]) {
    let mut world = World::new();
    edit(&mut world);
    let plan = world.plan();
    let steps: Vec<(&str, bool)> = plan
        .hops
        .iter()
        .map(|hop| (hop.version.as_str(), hop.workers))
        .collect();
    let expected: Vec<(&str, bool)> = expected
        .iter()
        .map(|(version, workers)| (VERSIONS[*version], *workers))
        .collect();
    assert_eq!(steps, expected);
    assert!(blocking(&plan).is_empty(), "{:?}", plan.findings);
}

/// Cluster API takes no step while workers are three minor versions behind.
#[test]
fn deferred_workers_block_the_step_after_the_third() {
    let mut world = World::new();
    start_at_the_first_version(&mut world);
    for worker in &mut world.facts.workers {
        worker.deferred = true;
    }
    assert_eq!(blocking(&world.plan()), [(VERSIONS[3], "WorkersDeferred")]);
}

#[test]
fn a_settled_cluster_has_no_steps() {
    let mut world = World::new();
    world.set_target(FROM);
    let plan = world.plan();
    assert_eq!((plan.hops, plan.findings), (Vec::new(), Vec::new()));
}

/// The label of their release holds nothing, and their ranges hold until the control plane has the version.
#[test]
fn merged_packages_block_only_by_their_ranges() {
    let mut world = World::new();
    world.set_bootstrap(2);
    world.label_release(RELEASES[2], label::DEACTIVATED);
    assert!(blocking(&world.plan()).is_empty());
    world.constrain("antrea.example.com.1.9.0", "<1.35.0");
    assert_eq!(
        blocking(&world.plan()),
        [(VERSIONS[2], "PackageExcludesKubernetes")]
    );
    world.set_control_plane(2, FROM);
    assert!(blocking(&world.plan()).is_empty());
}

/// The machines have the version already.
#[test]
fn another_release_of_the_version_is_a_step() {
    let mut world = World::new();
    world.swap();
    let plan = world.plan();
    assert_eq!(
        steps(&plan),
        ["v1.34.4 workers: kapp-controller 0.52.0>0.52.0, antrea 1.8.0>1.9.0, metrics none>1.0.0"]
    );
    assert_eq!(plan.hops[0].release.as_deref(), Some(OTHER_RELEASE));
    assert!(!plan.is_blocked(), "{:?}", plan.findings);
}

/// Neither release nor packages need to be usable for an upgrade: the machines run them.
#[rstest]
#[case::as_it_was(|_: &mut World| {})]
#[case::deactivated(|world: &mut World| world.label_release(RELEASES[FROM], label::DEACTIVATED))]
#[case::incompatible(|world: &mut World| world.label_release(RELEASES[FROM], label::INCOMPATIBLE))]
#[case::package_excludes_the_version(|world: &mut World| world.constrain("antrea.example.com.1.8.0", "<1.34.0"))]
#[case::without_template(|world: &mut World| world.remove_template(FROM))]
fn a_rollback_is_a_step_that_nothing_blocks(#[case] edit: Edit) {
    let mut world = World::new();
    world.roll_back();
    edit(&mut world);
    let plan = world.plan();
    assert_eq!(
        steps(&plan),
        ["v1.34.4: kapp-controller 0.52.0>0.52.0, antrea 1.9.0>1.8.0, metrics 1.0.0>1.0.0"]
    );
    assert_eq!(plan.hops[0].release.as_deref(), Some(RELEASES[FROM]));
    assert!(!plan.is_blocked(), "{:?}", plan.findings);
}

#[rstest]
#[case::package(|world: &mut World| world.remove_package("antrea.example.com.1.8.0"), "PackageNotFound")]
#[case::release(|world: &mut World| world.remove_release(FROM), "TKRNotFound")]
fn a_rollback_needs_its_objects(#[case] edit: Edit, #[case] reason: &str) {
    let mut world = World::new();
    world.roll_back();
    edit(&mut world);
    assert_eq!(blocking(&world.plan()), [(VERSIONS[FROM], reason)]);
}

#[test]
fn steps_that_are_not_planned_yet_block() {
    let mut world = World::new();
    world.facts.plan = Plan::Given {
        control_plane: Vec::new(),
        workers: Vec::new(),
    };
    let plan = world.plan();
    assert_eq!(blocking(&plan), [(VERSIONS[TO], "UpgradePlanUnknown")]);
}

/// Cluster API asks for the steps once the version is stored.
#[test]
fn steps_that_sluice_plans_are_those_of_a_target_that_is_not_stored() {
    let mut world = World::new();
    world.plan_steps(Ok(&VERSIONS[FROM + 1..]));
    assert_eq!(assume_steps(&mut world.facts), None);
    let plan = world.plan();
    let versions: Vec<&str> = plan.hops.iter().map(|hop| hop.version.as_str()).collect();
    assert_eq!(versions, VERSIONS[FROM + 1..]);
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
}

#[rstest]
#[case::stored(false)]
#[case::not_stored(true)]
fn a_minor_version_without_a_release_blocks(#[case] is_assumed: bool) {
    let mut world = World::new();
    world.plan_steps(Err(no_release()));
    if is_assumed {
        assert_eq!(assume_steps(&mut world.facts), None);
    }
    let plan = world.plan();
    assert_eq!(blocking(&plan), [(VERSIONS[TO], "NoTKRForHop")]);
    let text = Hold::from(&no_release()).message;
    let is_it = |finding: &Finding| finding.message == text;
    assert!(plan.findings.iter().any(is_it), "{:?}", plan.findings);
}
