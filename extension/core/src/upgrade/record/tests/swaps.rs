//! Machines of another release of the Kubernetes version.

use rstest::rstest;
use sluice_crds::run::{PackageState, Swap};

use super::*;
use crate::upgrade::swap::SwapRequest;

const MACHINES: &str = "35-1";
pub(super) const WANTED: &str = "35-2";

fn request(to: &str) -> SwapRequest {
    SwapRequest {
        version: V35.to_owned(),
        from: MACHINES.to_owned(),
        to: to.to_owned(),
        kept: None,
    }
}

impl Scene {
    /// Cluster at v1.35.4 whose label names this release, with every package proven.
    pub(super) fn labelled(release: &'static str) -> Self {
        let mut scene = Self::ready().toward(V35, release);
        scene.cluster.label = release;
        scene.swap = SwapFacts {
            made_of: Some(MACHINES.to_owned()),
            request: (release != MACHINES).then(|| request(release)),
            ..SwapFacts::default()
        };
        scene
    }

    /// The same after the entry was written.
    pub(super) fn written(mut self, outdated: Option<&str>) -> Self {
        self.swap = SwapFacts {
            made_of: self.tkr.as_ref().ok().cloned(),
            outdated: outdated.map(str::to_owned),
            ..SwapFacts::default()
        };
        self
    }

    /// The record of the upgrade that has led here.
    pub(super) fn completed() -> UpgradeRecord {
        let record = Self::labelled(MACHINES).advance(None);
        assert_eq!(record.outcome, Some(Outcome::Completed));
        record
    }
}

pub(super) fn swap(record: &UpgradeRecord) -> &Swap {
    record.swap.as_ref().unwrap()
}

#[test]
fn an_entry_is_permitted_once_every_package_is_proven() {
    let before = Scene::completed();
    let held = Scene::labelled(WANTED)
        .with_package(1, PackageState::Reconciling)
        .advance(Some(&before));
    assert_eq!(held.outcome, None);
    assert_eq!((held.from.as_deref(), held.to.as_str()), (Some(V35), V35));
    assert_eq!(
        (swap(&held).open, swap(&held).reason.as_str()),
        (false, "PackagesNotReady")
    );
    let open = Scene::labelled(WANTED).advance(Some(&held));
    assert!(opens_swap(&open), "{open:?}");
    assert_eq!(
        (swap(&open).from.as_str(), swap(&open).to.as_str()),
        (MACHINES, WANTED)
    );
    let closed = Scene::labelled(WANTED)
        .with_package(0, PackageState::Failed)
        .advance(Some(&open));
    assert!(!opens_swap(&closed), "a package fails before the write");
}

/// The phase of a package does not matter: machines of every part are replaced at the same time.
#[test]
fn packages_of_the_later_phase_are_proven_as_well() {
    let mut scene = Scene::labelled(WANTED).with_package(1, PackageState::Reconciling);
    scene.judged.as_mut().unwrap()[1].phase = sluice_crds::run::Phase::AfterControlPlane;
    assert!(!opens_swap(&scene.advance(Some(&Scene::completed()))));
}

#[rstest]
#[case::paused(|scene: &mut Scene| scene.cluster.paused = true, "ClusterPaused")]
#[case::paused_bootstrap(|scene: &mut Scene| scene.bootstrap.paused = true, "BootstrapPaused")]
#[case::start_held(|scene: &mut Scene| scene.cluster.start_held = true, "StartHeldByAnnotation")]
#[case::deleted(|scene: &mut Scene| scene.cluster.deleting = true, "ClusterDeleting")]
#[case::problem(
    |scene: &mut Scene| scene.problem = Some(Hold::new(GateReason::PackageBelowRelease, "")),
    "PackageBelowRelease"
)]
#[case::not_merged(|scene: &mut Scene| scene.bootstrap.resolved_tkr = Some(MACHINES), "BootstrapNotMerged")]
#[case::unreachable(
    |scene: &mut Scene| scene.workload = Workload::NotYet(Hold::new(GateReason::WorkloadUnreachable, "")),
    "WorkloadUnreachable"
)]
#[case::no_image(
    |scene: &mut Scene| scene.swap.hold = Some(Hold::new(GateReason::MachinesNotResolved, "")),
    "MachinesNotResolved"
)]
#[case::kept_packages(
    |scene: &mut Scene| scene.judged.as_mut().unwrap()[0].kept = true,
    "PackagesUnknown"
)]
#[case::packages_of_another_release(|scene: &mut Scene| scene.judged_for.0 = Some(MACHINES), "PackagesUnknown")]
fn an_entry_is_held(#[case] edit: fn(&mut Scene), #[case] reason: &str) {
    let open = Scene::labelled(WANTED).advance(Some(&Scene::completed()));
    assert!(opens_swap(&open));
    let mut scene = Scene::labelled(WANTED);
    edit(&mut scene);
    let held = scene.advance(Some(&open));
    assert_eq!((swap(&held).open, swap(&held).reason.as_str()), (false, reason));
    assert_eq!(held.outcome, None);
}

/// An outdated cache would close a stored swap that is still pending, and an edit of the entry would cancel it.
#[test]
fn the_written_entry_is_recorded_at_once() {
    let open = Scene::labelled(WANTED).advance(Some(&Scene::completed()));
    let mut written = Scene::labelled(WANTED).written(Some("md 0/1"));
    assert!(
        !is_urgent(&open, &written.advance(Some(&open))),
        "the Cluster shows the entry"
    );
    // By the write itself.
    written.cluster.generation += 1;
    assert!(is_urgent(&open, &written.advance(Some(&open))));
}

#[test]
fn an_upgrade_ends_once_the_machines_are_replaced_and_the_packages_settled() {
    let open = Scene::labelled(WANTED).advance(Some(&Scene::completed()));
    let rolling = Scene::labelled(WANTED)
        .written(Some("md 0/1"))
        .advance(Some(&open));
    let found = swap(&rolling);
    assert_eq!(
        (found.open, found.reason.as_str(), found.message.as_str()),
        (true, "ReplacingMachines", "md 0/1")
    );
    assert_eq!(
        (rolling.outcome, found.written_at.clone()),
        (None, Some(Time(at(NOW))))
    );
    let mut unsettled = Scene::labelled(WANTED).written(None);
    unsettled.now = at(NOW + 60);
    unsettled.judged.as_mut().unwrap()[1].settled = false;
    let settling = unsettled.advance(Some(&rolling));
    assert_eq!(swap(&settling).reason, "PackagesNotSettled");
    assert_eq!(swap(&settling).written_at, Some(Time(at(NOW))));
    assert!(ends_swap(Some(&rolling), &settling));
    unsettled.now = at(NOW + 60 + 30 * 60);
    let late = unsettled.advance(Some(&settling));
    assert_eq!(late.outcome, Some(Outcome::Completed), "{late:?}");
    let done = Scene::labelled(WANTED).written(None).advance(Some(&settling));
    assert_eq!(
        (done.outcome, swap(&done).reason.as_str()),
        (Some(Outcome::Completed), "")
    );
    let again = Scene::labelled(WANTED).written(None).advance(Some(&done));
    assert_eq!(again, done, "a settled Cluster changes nothing");
}

#[test]
fn a_label_that_moves_on_drops_the_first_release() {
    let open = Scene::labelled(WANTED).advance(Some(&Scene::completed()));
    let moved = Scene::labelled("35-3")
        .with_package(1, PackageState::Reconciling)
        .advance(Some(&open));
    assert_eq!((swap(&moved).to.as_str(), swap(&moved).open), ("35-3", false));
    assert_eq!(moved.started_at, open.started_at, "one upgrade");
    // Also while machines of the first one are replaced.
    let rolling = Scene::labelled(WANTED)
        .written(Some("md 0/1"))
        .advance(Some(&open));
    let mut scene = Scene::labelled("35-3").with_package(1, PackageState::Reconciling);
    scene.swap.made_of = Some(WANTED.to_owned());
    scene.swap.request.as_mut().unwrap().from = WANTED.to_owned();
    let next = scene.advance(Some(&rolling));
    let found = swap(&next);
    assert_eq!(
        (found.from.as_str(), found.to.as_str(), found.open),
        (WANTED, "35-3", false)
    );
    assert_eq!(found.written_at, None);
}

#[test]
fn a_label_that_moves_back_cancels_and_keeps_the_packages() {
    let open = Scene::labelled(WANTED).advance(Some(&Scene::completed()));
    let mut back = Scene::labelled(WANTED);
    back.cluster.label = MACHINES;
    back.swap.request = None;
    let cancelled = back.advance(Some(&open));
    assert_eq!(
        (cancelled.outcome, &cancelled.swap),
        (Some(Outcome::Cancelled), &None)
    );
    assert_eq!(cancelled.tkr.as_deref(), Some(WANTED));
    let again = back.advance(Some(&cancelled));
    assert_eq!(again, cancelled, "it stays cancelled");
    let next = Scene::labelled(WANTED).advance(Some(&cancelled));
    assert_eq!(
        (next.outcome, opens_swap(&next)),
        (None, true),
        "it may begin again"
    );
}

#[test]
fn a_request_that_cannot_be_determined_is_held() {
    let open = Scene::labelled(WANTED).advance(Some(&Scene::completed()));
    let mut deleted = Scene::labelled(WANTED);
    deleted.swap.request = None;
    deleted.tkr = Err(Hold::new(GateReason::TKRNotFound, "deleted"));
    let held = deleted.advance(Some(&open));
    assert_eq!((held.outcome, swap(&held).to.as_str()), (None, WANTED));
    assert_eq!(
        (swap(&held).open, swap(&held).reason.as_str()),
        (false, "TKRNotFound")
    );
    let mut unknown = Scene::labelled(WANTED).with_control_plane(V35, "");
    unknown.swap.request = None;
    let held = unknown.advance(Some(&open));
    assert_eq!(
        (held.outcome, swap(&held).reason.as_str()),
        (None, "ControlPlaneCreating")
    );
    let again = Scene::labelled(WANTED).advance(Some(&held));
    assert!(opens_swap(&again), "{again:?}");
}

#[test]
fn another_target_drops_the_swap() {
    let open = Scene::labelled(WANTED).advance(Some(&Scene::completed()));
    let mut next = Scene::ready();
    next.cluster.generation = open.observed_cluster_generation + 1;
    let upgrade = next.advance(Some(&open));
    assert_eq!((upgrade.to.as_str(), &upgrade.swap), (V36, &None));
}

#[test]
fn machines_that_stay_are_reported_with_the_upgrade_of_the_packages() {
    let kept = |label| {
        let mut scene = Scene::labelled(label);
        scene.swap = SwapFacts {
            request: Some(SwapRequest {
                from: String::new(),
                kept: Some("why".to_owned()),
                ..request(label)
            }),
            ..SwapFacts::default()
        };
        scene
    };
    let before = kept(MACHINES).advance(None);
    assert_eq!((before.outcome, &before.swap), (Some(Outcome::Completed), &None));
    let held = kept(WANTED)
        .with_package(1, PackageState::Reconciling)
        .advance(Some(&before));
    assert_eq!(
        (held.outcome, swap(&held).reason.as_str()),
        (None, "MachinesKept")
    );
    let done = kept(WANTED).advance(Some(&held));
    let found = swap(&done);
    assert_eq!(done.outcome, Some(Outcome::Completed));
    assert_eq!(
        (
            found.from.as_str(),
            found.to.as_str(),
            found.open,
            found.message.as_str()
        ),
        (MACHINES, WANTED, false, "why")
    );
    assert_eq!(kept(WANTED).advance(Some(&done)), done);
}

#[test]
fn a_lost_record_loses_no_request() {
    let open = Scene::labelled(WANTED).advance(None);
    assert!(opens_swap(&open), "{open:?}");
    let after = Scene::labelled(WANTED).written(Some("md 0/1")).advance(None);
    assert_eq!(
        (after.outcome, &after.swap),
        (Some(Outcome::Completed), &None),
        "{after:?}"
    );
}
