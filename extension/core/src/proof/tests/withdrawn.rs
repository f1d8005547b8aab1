//! Withdrawal of a proof that PackageInstall and App give.

use super::*;

/// A judgement of a proven package.
fn judged(ready: bool, settled: bool) -> Judgement {
    let mut judged = Seen::proven().judge(&TARGET);
    assert!(judged.ready() && judged.settled);
    judged.settled = settled;
    if !ready {
        judged.record.state = PackageState::Failed;
        judged.record.reason = PackageReason::AppFailed.as_str().to_owned();
    }
    judged
}

type Withdrawal = fn(Judgement) -> Judgement;

const WITHDRAWALS: [(PackageReason, Withdrawal); 2] = [
    (PackageReason::AppTemplateMismatch, |judged| {
        judged.withdrawn_for_app("antrea.tanzu.vmware.com.1.9.0")
    }),
    (
        PackageReason::PackageInstallMismatch,
        Judgement::withdrawn_for_install,
    ),
];

#[rstest]
#[case::reconciled(true, true)]
#[case::applied_only(true, false)]
#[case::settled_only(false, true)]
fn a_proof_of_any_readiness_is_withdrawn(#[case] ready: bool, #[case] settled: bool) {
    for (reason, withdraw) in WITHDRAWALS {
        let withdrawn = withdraw(judged(ready, settled));
        assert!(!withdrawn.ready() && !withdrawn.settled, "{reason}");
        assert_eq!(withdrawn.record.state, PackageState::Reconciling);
        assert_eq!(withdrawn.record.reason, reason.as_str());
        assert!(
            withdrawn.record.message.starts_with("waiting for"),
            "{}",
            withdrawn.record.message
        );
        assert_eq!(withdrawn.record.proven_readiness, None);
        assert_eq!(
            (withdrawn.record.app_uid, withdrawn.record.app_generation),
            (None, None)
        );
    }
}

#[test]
fn an_unproven_package_keeps_its_reason() {
    for (_, withdraw) in WITHDRAWALS {
        assert_eq!(withdraw(judged(false, false)), judged(false, false));
    }
}

#[test]
fn an_altered_package_is_deployed_again_under_another_digest() {
    let mut so_far = 0;
    for _ in 0..40 {
        let repaired = judged(true, true).with_repairs(so_far, true);
        assert!(!repaired.ready() && !repaired.settled);
        assert_eq!(repaired.record.state, PackageState::Pending);
        assert_ne!(repaired.record.repairs, so_far, "the digest has to change");
        so_far = repaired.record.repairs;
    }
    let kept = judged(true, true).with_repairs(7, false);
    assert!(kept.ready() && kept.settled);
    assert_eq!(kept.record.repairs, 7);
}
