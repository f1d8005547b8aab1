//! Lifetime of a latched proof.

use super::*;

#[test]
fn a_resync_does_not_withdraw_a_proof() {
    let seen = Seen::resync();
    let judged = seen.judge(&TARGET);
    assert!(judged.ready() && judged.settled);
    assert_eq!(Some(judged.record), seen.latch);
}

/// Edits that withdraw a proof during a resync of kapp-controller, in addition to all defects of a proof.
#[rustfmt::skip]
#[rstest]
#[case::nothing_was_judged(|s: &mut Seen| s.latch = None)]
#[case::was_not_ready(|s: &mut Seen| s.latch().state = PackageState::Reconciling)]
#[case::other_digest(|s: &mut Seen| s.latch().values_digest = "d1".into())]
#[case::other_version(|s: &mut Seen| s.latch().version = "1.8.0".into())]
#[case::other_package(|s: &mut Seen| s.latch().name = "calico".into())]
#[case::other_app(|s: &mut Seen| s.latch().app_uid = Some("before".into()))]
#[case::no_app_known(|s: &mut Seen| { s.latch().app_uid = None; s.app().metadata.uid = None; })]
#[case::other_generation(|s: &mut Seen| s.latch().app_generation = Some(4))]
#[case::no_generation_known(|s: &mut Seen| { s.latch().app_generation = None; })]
#[case::app_failed(|s: &mut Seen| s.app_status().conditions = is("ReconcileFailed"))]
#[case::app_failed_before_it_looks_again(|s: &mut Seen| s.app_status().consecutive_reconcile_failures = Some(1))]
#[case::install_failed(|s: &mut Seen| s.install_status().conditions = is("ReconcileFailed"))]
#[case::paused(|s: &mut Seen| s.install.spec.paused = true)]
#[case::app_edited(|s: &mut Seen| s.app().metadata.generation = Some(6))]
fn a_latch_is_withdrawn(#[case] edit: Edit) {
    let mut seen = Seen::resync();
    edit(&mut seen);
    assert!(!seen.judge(&TARGET).ready());
}

#[test]
fn no_latch_outweighs_a_defect() {
    for (name, edit, _) in WRONG {
        let mut seen = Seen {
            latch: Seen::resync().latch,
            ..Seen::proven()
        };
        edit(&mut seen);
        let only_looks_again = [
            "install reconciling",
            "app reconciling",
            "install succeeded and reconciling",
        ]
        .contains(name);
        assert_eq!(seen.judge(&TARGET).ready(), only_looks_again, "{name}");
    }
}

#[test]
fn a_failure_stays_one_until_the_package_succeeds() {
    let mut seen = Seen::proven();
    seen.app_status().conditions = is("ReconcileFailed");
    seen.app_status().useful_error_message = Some("no such key".into());
    let failed = seen.judge(&TARGET).record;
    assert_eq!(failed.state, PackageState::Failed);

    let mut trying = Seen {
        latch: Some(failed.clone()),
        ..Seen::proven()
    };
    trying.install_status().conditions = is("Reconciling");
    trying.app_status().conditions = is("Reconciling");
    assert_eq!(trying.judge(&TARGET).record, failed);

    let healed = Seen {
        latch: Some(failed.clone()),
        ..Seen::proven()
    };
    assert!(healed.judge(&TARGET).ready());

    trying.latch().values_digest = "d1".into();
    assert_eq!(trying.judge(&TARGET).record.state, PackageState::Reconciling);
}

#[test]
fn an_unreadable_package_keeps_its_state() {
    let ready = Seen::proven().judge(&TARGET).record;
    assert_eq!(judge_from_record(&TARGET, Some(&ready)).record, ready);
    assert!(judge_from_record(&TARGET, Some(&ready)).settled);
    let other = Target {
        digest: "d3",
        ..TARGET
    };
    assert_eq!(
        judge_from_record(&other, Some(&ready)).record.state,
        PackageState::Pending
    );
    assert_eq!(
        judge_from_record(&TARGET, None).record.reason,
        "WorkloadUnreachable"
    );
}

proptest! {
    /// No combination of defects is a proof, and judging again changes nothing.
    #[test]
    fn wrong_things_do_not_add_up_to_a_proof(edits in prop::collection::vec(0..WRONG.len(), 1..5)) {
        let mut seen = Seen::proven();
        for edit in &edits {
            if seen.app.is_some() && seen.app.as_ref().is_some_and(|app| app.status.is_some() && app.metadata.annotations.is_some() && app.metadata.owner_references.is_some())
                && seen.install.status.as_ref().is_some_and(|status| !status.conditions.is_empty())
                && seen.install.spec.package_ref.is_some()
            {
                WRONG[*edit].1(&mut seen);
            }
        }
        let judged = seen.judge(&TARGET);
        prop_assert!(!judged.ready());
        prop_assert!(!judged.record.reason.is_empty());
        let again = judge(&TARGET, Some(&seen.install), seen.app.as_ref(), Some(&judged.record));
        prop_assert_eq!(again, judged);
    }
}

/// Version constraint and values are those of another client, and a failed resync withdraws nothing.
#[test]
fn a_package_of_another_client_is_proven_by_its_selected_version() {
    let of_others = |seen: &Seen| {
        let target = Target {
            secret_name: "",
            ..TARGET
        };
        judge_of_others(
            &target,
            Some(&seen.install),
            seen.app.as_ref(),
            seen.latch.as_ref(),
        )
    };
    let accepted = [
        "install of another version",
        "install of any version",
        "install with other values",
        "install with more values",
        "install without values",
        "app with other values",
        "app without values",
        "app that takes no values",
    ];
    for (name, edit, _) in WRONG {
        let mut seen = Seen::proven();
        edit(&mut seen);
        assert_eq!(of_others(&seen).ready(), accepted.contains(name), "{name}");
    }
    let failures: [Edit; 3] = [
        |s| s.app_status().conditions = is("ReconcileFailed"),
        |s| {
            s.app_status().conditions = is("ReconcileFailed");
            s.install_status().conditions = is("ReconcileFailed");
        },
        |s| s.app_status().consecutive_reconcile_failures = Some(1),
    ];
    for edit in failures {
        let mut seen = Seen::resync();
        edit(&mut seen);
        assert!(of_others(&seen).ready());
        seen.latch().app_generation = Some(4);
        assert!(!of_others(&seen).ready(), "of another generation");
        seen.latch = None;
        assert!(!of_others(&seen).ready(), "without a proof");
    }
}
