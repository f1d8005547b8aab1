use std::sync::Arc;

use rstest::rstest;
use serde_json::json;
use sluice_crds::run::{ClusterBootstrapSpec, Hook, SCHEMA};

use super::*;
use crate::reconcile::cluster::tests::facts;

const OWN: &str = "management";

/// UID of the workload, who installs kapp-controller there, and states of packages, as recorded.
#[derive(Clone, Copy)]
struct Given {
    uid: Option<&'static str>,
    mode: Option<KappControllerMode>,
    packages: &'static [(&'static str, PackageState)],
    /// Reason of a closed gate.
    held: Option<GateReason>,
}

type Recorded = Option<Given>;

const fn of(uid: Option<&'static str>, mode: Option<KappControllerMode>) -> Given {
    Given {
        uid,
        mode,
        packages: &[],
        held: None,
    }
}

const MANAGED: Recorded = Some(of(Some("workload"), Some(KappControllerMode::Managed)));
const UNMANAGED: Recorded = Some(of(Some("workload"), Some(KappControllerMode::Unmanaged)));
/// The record of a version that did not tell management clusters apart.
const EARLIER: Recorded = Some(Given {
    uid: Some("workload"),
    mode: None,
    packages: &[
        (KAPP_CONTROLLER, PackageState::Ready),
        ("antrea", PackageState::Ready),
    ],
    held: None,
});
/// Such a record of a paused or held Cluster, to which nothing was written.
const EARLIER_UNWRITTEN: Recorded = Some(Given {
    uid: Some("workload"),
    mode: None,
    packages: &[(KAPP_CONTROLLER, PackageState::Pending)],
    held: None,
});
/// The record of a labelled Cluster, without the decision that the definition dropped.
const PRUNED: Recorded = Some(Given {
    uid: Some("workload"),
    mode: None,
    packages: &[("antrea", PackageState::Ready)],
    held: None,
});
/// The record of a labelled Cluster at these states of packages, with this hold.
const fn held_at(packages: &'static [(&'static str, PackageState)], held: GateReason) -> Given {
    Given {
        uid: Some("workload"),
        mode: Some(KappControllerMode::Unmanaged),
        packages,
        held: Some(held),
    }
}

const PENDING: &[(&str, PackageState)] = &[("antrea", PackageState::Pending)];
const READY: &[(&str, PackageState)] = &[("antrea", PackageState::Ready)];
/// The record of a labelled Cluster without kapp-controller.
const MISSING: Recorded = Some(held_at(PENDING, GateReason::KappControllerNotInstalled));
/// The record of a Cluster whose kapp-controller vanished since it has deployed a package.
const MISSING_LATER: Recorded = Some(held_at(READY, GateReason::KappControllerNotInstalled));
/// The record of a labelled Cluster whose upgrade is paused before its first write.
const PAUSED: Recorded = Some(held_at(PENDING, GateReason::ClusterPaused));
/// The record of a Cluster whose API server never responded.
const UNREACHED: Recorded = Some(of(None, None));

fn given(own: Option<&str>, labelled: bool, recorded: Recorded) -> Facts {
    let mut facts = facts();
    facts.management_uid = own.map(Into::into);
    if labelled {
        let labels = Arc::make_mut(&mut facts.cluster).labels_mut();
        labels.insert(label::MANAGEMENT_CLUSTER.to_owned(), String::new());
    }
    if let Some(Given {
        uid,
        mode,
        packages,
        held,
    }) = recorded
    {
        let gate = |reason: GateReason| Gate {
            hook: Hook::BeforeClusterUpgrade,
            version: "v1.36.3".to_owned(),
            open: false,
            reason: reason.as_str().to_owned(),
            message: String::new(),
            overridden_by: None,
        };
        let package = |(name, state): &(&str, PackageState)| {
            let record = json!({"name": name, "version": "1.0.0", "state": state});
            serde_json::from_value::<PackageRecord>(record).unwrap()
        };
        let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
        bootstrap.status.get_or_insert_default().upgrade = Some(UpgradeRecord {
            schema: SCHEMA,
            cluster_uid: facts.owner.uid.clone(),
            workload_uid: uid.map(str::to_owned),
            kapp_controller: mode,
            packages: packages.iter().map(package).collect(),
            gates: held.into_iter().map(gate).collect(),
            ..UpgradeRecord::default()
        });
        facts.bootstrap = Some(Arc::new(bootstrap));
    }
    facts
}

#[rstest]
#[case::ordinary(Some("workload"), false, true, MANAGED, Ownership::Managed)]
#[case::ordinary_and_new(Some("workload"), false, false, None, Ownership::Managed)]
#[case::ordinary_before_its_first_response(None, false, false, UNREACHED, Ownership::Managed)]
#[case::own_server(Some(OWN), false, false, None, Ownership::OwnServer)]
#[case::own_server_with_label(Some(OWN), true, false, None, Ownership::OwnServer)]
#[case::own_server_with_a_package_install(Some(OWN), true, true, EARLIER, Ownership::OwnServer)]
#[case::new_with_label(Some("workload"), true, false, None, Ownership::Labelled)]
#[case::new_with_label_before_its_first_response(None, true, false, UNREACHED, Ownership::Labelled)]
#[case::label_and_package_install(Some("workload"), true, true, None, Ownership::LabelIgnored)]
#[case::label_before_the_first_response_and_package_install(None, true, true, None, Ownership::Managed)]
#[case::unmanaged_before(Some("workload"), true, false, UNMANAGED, Ownership::Labelled)]
// kapp-controller of another client stays there.
#[case::label_removed(Some("workload"), false, false, UNMANAGED, Ownership::LabelRemoved)]
#[case::label_removed_during_a_pause(Some("workload"), false, false, PAUSED, Ownership::LabelRemoved)]
#[case::label_removed_later(Some("workload"), false, false, MISSING_LATER, Ownership::LabelRemoved)]
#[case::label_removed_without_kapp_controller(Some("workload"), false, false, MISSING, Ownership::Managed)]
#[case::label_removed_and_package_install(Some("workload"), false, true, UNMANAGED, Ownership::Managed)]
#[case::label_removed_on_another_server(Some("another"), false, false, UNMANAGED, Ownership::Managed)]
// A user deletes the PackageInstall and sets the label.
#[case::label_instead_of_the_package_install(Some("workload"), true, false, MANAGED, Ownership::LabelIgnored)]
#[case::label_with_an_earlier_record(Some("workload"), true, false, EARLIER, Ownership::LabelIgnored)]
#[case::label_with_an_earlier_record_of_nothing_written(
    Some("workload"),
    true,
    false,
    EARLIER_UNWRITTEN,
    Ownership::Labelled
)]
#[case::label_whose_decision_was_dropped(Some("workload"), true, false, PRUNED, Ownership::Labelled)]
#[case::label_and_another_server(Some("another"), true, false, MANAGED, Ownership::LabelIgnored)]
fn the_label_never_removes_a_proof(
    #[case] workload: Option<&str>,
    #[case] labelled: bool,
    #[case] is_installed: bool,
    #[case] recorded: Recorded,
    #[case] expected: Ownership,
) {
    let facts = given(Some(OWN), labelled, recorded);
    assert_eq!(ownership(&facts, workload, is_installed), expected);
}

/// Annotations of a ClusterBootstrap: that of its resolved release, and the mark.
const MARKS: [(&str, &str); 2] = [
    (annotation::RESOLVED_TKR, "v1"),
    (annotation::KAPP_CONTROLLER, UNMANAGED_MARK),
];

/// A record may be lost, and `clusterctl move` drops it.
#[rstest]
#[case::lost(&MARKS[..1], None, false, Ownership::Unproven)]
#[case::lost_and_written_again(&MARKS[..1], UNREACHED, false, Ownership::Unproven)]
#[case::lost_with_the_package_install(&MARKS[..1], None, true, Ownership::LabelIgnored)]
#[case::recorded(&MARKS[..1], MANAGED, false, Ownership::LabelIgnored)]
#[case::recorded_as_unmanaged(&MARKS[..1], UNMANAGED, false, Ownership::Labelled)]
#[case::marked(&MARKS, None, false, Ownership::Labelled)]
#[case::marked_by_something_else(&[MARKS[0], (annotation::KAPP_CONTROLLER, "")], None, false, Ownership::Unproven)]
#[case::of_the_addons_manager(&[], None, false, Ownership::Labelled)]
fn a_lost_record_is_no_proof(
    #[case] annotations: &[(&str, &str)],
    #[case] recorded: Recorded,
    #[case] is_installed: bool,
    #[case] expected: Ownership,
) {
    let mut facts = given(Some(OWN), true, recorded);
    let of_bootstrap = facts.bootstrap.get_or_insert_with(|| {
        let bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
        Arc::new(bootstrap)
    });
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Arc::make_mut(of_bootstrap).annotations_mut().extend(annotations);
    let found = ownership(&facts, Some("workload"), is_installed);
    assert_eq!(found, expected);
    let hold = refusal(&facts, found, "workload");
    let is_held = expected == Ownership::Unproven;
    assert_eq!(
        hold.as_ref().map(|hold| hold.reason),
        is_held.then_some(GateReason::ManagementLabelUnproven)
    );
    if let Some(hold) = hold {
        assert!(hold.message.contains(label::MANAGEMENT_CLUSTER), "{hold}");
        assert!(hold.message.contains(annotation::KAPP_CONTROLLER), "{hold}");
    }
}

/// A label that is set later gives no mark.
#[rstest]
#[case::created(true, None, None, true)]
#[case::of_the_addons_manager(true, None, Some(&[][..]), true)]
#[case::of_sluice(true, None, Some(&MARKS[..1]), false)]
#[case::without_the_annotation_of_its_release(true, MANAGED, Some(&[][..]), false)]
#[case::without_label(false, None, None, false)]
fn a_bootstrap_is_marked_once(
    #[case] labelled: bool,
    #[case] recorded: Recorded,
    #[case] annotations: Option<&[(&str, &str)]>,
    #[case] is_marked: bool,
) {
    let facts = given(Some(OWN), labelled, recorded);
    let bootstrap = annotations.map(|annotations| {
        let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        bootstrap.annotations_mut().extend(annotations);
        bootstrap
    });
    assert_eq!(mark(&facts, bootstrap.as_ref()).is_some(), is_marked);
}

#[rstest]
#[case::told_apart_before(Some("workload"), MANAGED, Ownership::Managed, false)]
#[case::unmanaged_before(Some("workload"), UNMANAGED, Ownership::Unknown, true)]
#[case::new(Some("workload"), None, Ownership::Unknown, false)]
#[case::record_of_an_earlier_version(Some("workload"), EARLIER, Ownership::Unknown, false)]
#[case::another_server(Some("another"), MANAGED, Ownership::Unknown, false)]
#[case::before_the_first_response(None, UNREACHED, Ownership::Managed, false)]
fn without_the_uid_of_the_management_cluster_the_record_decides(
    #[case] workload: Option<&str>,
    #[case] recorded: Recorded,
    #[case] expected: Ownership,
    #[case] leaves_out: bool,
) {
    let facts = given(None, false, recorded);
    let ownership = ownership(&facts, workload, false);
    assert_eq!(ownership, expected);
    assert_eq!(ownership.leaves_out(facts.record()), leaves_out);
    let hold = workload.and_then(|workload| refusal(&facts, ownership, workload));
    let expected = (ownership == Ownership::Unknown).then_some(GateReason::ManagementUIDUnknown);
    assert_eq!(hold.map(|hold| hold.reason), expected);
}

/// A fleet that was settled before the update stays seen, although its records lack the decision.
#[rstest]
#[case::proven("workload", EARLIER, true)]
#[case::unwritten("workload", EARLIER_UNWRITTEN, false)]
#[case::without_kapp_controller("workload", PRUNED, false)]
#[case::another_server("another", EARLIER, false)]
#[case::of_others("workload", UNMANAGED, false)]
#[case::new("workload", None, false)]
fn a_drift_check_needs_no_decision(
    #[case] uid: &str,
    #[case] recorded: Recorded,
    #[case] may_compare_packages: bool,
) {
    let facts = given(None, false, recorded);
    let hold = refusal(&facts, ownership(&facts, Some(uid), false), uid).expect("a hold");
    assert_eq!(hold.reason, GateReason::ManagementUIDUnknown);
    assert_eq!(may_compare(&facts, &hold, uid), may_compare_packages);
    let another = Hold::new(GateReason::ReachesManagementCluster, "");
    assert!(!may_compare(&facts, &another, uid));
}

#[rstest]
#[case::another_before(OWN, MANAGED, true)]
#[case::another_before_by_an_earlier_version(OWN, EARLIER, true)]
#[case::new(OWN, None, false)]
#[case::unreached_before(OWN, UNREACHED, false)]
#[case::management_cluster(OWN, Some(of(Some(OWN), Some(KappControllerMode::Unmanaged))), false)]
#[case::another_server("another", MANAGED, false)]
#[case::same_server("workload", MANAGED, false)]
fn a_server_that_becomes_the_own_one_is_refused(
    #[case] uid: &str,
    #[case] recorded: Recorded,
    #[case] is_refused: bool,
) {
    let facts = given(Some(OWN), false, recorded);
    let hold = refusal(&facts, ownership(&facts, Some(uid), false), uid);
    let reason = hold.as_ref().map(|hold| hold.reason);
    assert_eq!(reason, is_refused.then_some(GateReason::ReachesManagementCluster));
    if let Some(hold) = hold {
        assert!(hold.message.contains("team-a/one-kubeconfig"), "{hold}");
    }
}

#[rstest]
#[case::label(
    Ownership::Labelled,
    404,
    "the server could not find the requested resource",
    true
)]
#[case::label_and_proxy(Ownership::Labelled, 404, "404 page not found", true)]
#[case::label_and_restart(Ownership::Labelled, 503, "", false)]
#[case::namespace(Ownership::Labelled, 404, "namespaces \"tkg-system\" not found", false)]
#[case::object(
    Ownership::Labelled,
    404,
    "packageinstalls.packaging.carvel.dev \"one-antrea\" not found",
    false
)]
#[case::removed_label(Ownership::LabelRemoved, 404, "", true)]
#[case::own_server(Ownership::OwnServer, 404, "", false)]
#[case::ordinary(Ownership::Managed, 404, "", false)]
fn a_missing_kapp_controller_names_the_label(
    #[case] ownership: Ownership,
    #[case] code: u16,
    #[case] message: &str,
    #[case] is_named: bool,
) {
    let failure = Failure {
        code: Some(code),
        message: message.to_owned(),
        ..Failure::other(Server::Workload, "")
    };
    let hold = not_installed(ownership, &failure);
    assert_eq!(hold.is_some(), is_named);
    if let Some(hold) = hold {
        assert_eq!(hold.reason, GateReason::KappControllerNotInstalled);
        assert!(hold.message.contains(label::MANAGEMENT_CLUSTER), "{hold}");
    }
}

#[test]
fn an_ignored_label_is_reported_once() {
    use crate::reconcile::cluster::{LocalState, tests::clock};

    let (facts, mut local) = (given(Some(OWN), true, MANAGED), LocalState::default());
    let mut events = |ownership| {
        let mut effects = Effects::of(&local);
        report(&Context::new(&facts, &local, clock()), &mut effects, ownership);
        local = effects.local;
        effects.events.len()
    };
    assert_eq!(events(Ownership::LabelIgnored), 1);
    assert_eq!(events(Ownership::LabelIgnored), 0, "once");
    assert_eq!(events(Ownership::Managed), 0);
    assert_eq!(events(Ownership::LabelIgnored), 1, "set again");
}

/// A label removed and set during a confirming read is found by the comparison of the Cluster; a PackageInstall by its own read.
#[rstest]
#[case::none(None, false)]
#[case::its_own(Some("uid"), true)]
#[case::of_an_earlier_cluster(Some("earlier"), false)]
fn the_absence_of_a_package_install_is_confirmed(#[case] owner: Option<&str>, #[case] holds: bool) {
    use crate::reconcile::cluster::{Interrupt, LocalState, Object, ReadResult, tests::clock};

    let (facts, local) = (given(Some(OWN), true, UNMANAGED), LocalState::default());
    let mut context = Context::new(&facts, &local, clock());
    let Err(Interrupt::Need(reads)) = confirm(&context, Ownership::Labelled) else {
        panic!("no read");
    };
    for read in reads {
        let owners = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": owner}]);
        let install = json!({
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "metadata": {"name": "one-kapp-controller", "namespace": "team-a", "ownerReferences": owners},
            "spec": {},
        });
        let found = ReadResult::Found(Object(install));
        let answer = owner.map_or(ReadResult::Absent, |_| found);
        context.record_answer(read, answer);
    }
    let hold = confirm(&context, Ownership::Labelled).unwrap();
    let reason = hold.map(|hold| hold.reason);
    assert_eq!(reason, holds.then_some(GateReason::CacheOutdated));
    assert_eq!(confirm(&context, Ownership::OwnServer).unwrap(), None);
}
