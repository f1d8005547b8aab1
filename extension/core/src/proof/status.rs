//! Compares the recorded packages of a finished upgrade with the desired ones.

use sluice_crds::run::{PackageRecord, PackageState};

use super::{Target, covers};
use crate::digest::differs_in_template_only;

/// Remaining work for packages that were all proven once, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProofStatus {
    /// None: exactly the desired packages are proven.
    Proven,
    /// The specs are as desired, but one package has lost its proof or has none yet: only kapp-controller has work left.
    Unproven,
    /// Packages were edited in place, at the same version. That affects every Cluster with them at once, and holds none of them.
    Edited,
    /// Any other difference.
    Open,
}

/// Compares the recorded packages with the desired ones, both in the same order.
///
/// A record without the proven readiness is accepted, because the result releases nothing.
#[must_use]
pub fn proof_status<'a>(
    recorded: &[PackageRecord],
    targets: impl ExactSizeIterator<Item = Target<'a>>,
) -> ProofStatus {
    if recorded.len() != targets.len() {
        return ProofStatus::Open;
    }
    let each = recorded.iter().zip(targets).map(|(record, target)| {
        let proven = record.proven_readiness;
        let is_named = (record.name.as_str(), record.version.as_str()) == (target.name, target.version);
        let is_ready = record.state == PackageState::Ready;
        let same = is_named && is_ready && (proven.is_none() || covers(proven, target.readiness));
        match record.values_digest.as_str() {
            digest if same && digest == target.digest => ProofStatus::Proven,
            digest if is_named && !is_ready && digest == target.digest => ProofStatus::Unproven,
            digest if same && differs_in_template_only(digest, target.digest) => ProofStatus::Edited,
            _ => ProofStatus::Open,
        }
    });
    each.max().unwrap_or(ProofStatus::Proven)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::run::{Phase, Readiness};

    use super::*;
    use crate::proof::JudgedOn;

    const TARGET: Target<'static> = Target {
        name: "antrea",
        ref_name: "antrea.tanzu.vmware.com",
        version: "1.9.0",
        digest: "d2-t2",
        secret_name: "one-antrea-data-values-d2-t2",
        kept: false,
        sync_period: None,
        judged_on: JudgedOn::Workload,
        readiness: Readiness::Reconciled,
        phase: Phase::BeforeControlPlane,
    };

    fn proven(digest: &str) -> PackageRecord {
        PackageRecord {
            name: "antrea".into(),
            version: "1.9.0".into(),
            values_digest: digest.into(),
            state: PackageState::Ready,
            reason: String::new(),
            message: String::new(),
            app_uid: None,
            app_generation: None,
            proven_readiness: Some(Readiness::Reconciled),
            first_seen_run: None,
            repairs: 0,
        }
    }

    fn other(edit: fn(&mut PackageRecord)) -> PackageRecord {
        let mut record = proven("d2-t2");
        edit(&mut record);
        record
    }

    #[rstest]
    #[case::the_same(vec![proven("d2-t2"), proven("d2-t2")], ProofStatus::Proven)]
    #[case::one_edited(vec![proven("d2-t2"), proven("d2-t1")], ProofStatus::Edited)]
    #[case::all_edited(vec![proven("d2-t1"), proven("d2-t1")], ProofStatus::Edited)]
    #[case::values_too(vec![proven("d2-t1"), proven("d1-t1")], ProofStatus::Open)]
    #[case::values_of_the_same_package(vec![proven("d2-t2"), proven("d1-t1")], ProofStatus::Open)]
    #[case::of_an_earlier_release(vec![proven("d2-t2"), proven("d2")], ProofStatus::Edited)]
    #[case::one_is_missing(vec![proven("d2-t2")], ProofStatus::Open)]
    #[case::not_proven(vec![proven("d2-t2"), other(|record| record.state = PackageState::Failed)], ProofStatus::Unproven)]
    #[case::edited_and_not_proven(
        vec![proven("d2-t2"), other(|record| { record.state = PackageState::Failed; record.values_digest = "d2-t1".into(); })],
        ProofStatus::Open
    )]
    #[case::only_applied(
        vec![proven("d2-t2"), other(|record| record.proven_readiness = Some(Readiness::Applied))],
        ProofStatus::Open
    )]
    #[case::of_a_release_that_did_not_keep_it(
        vec![proven("d2-t2"), other(|record| record.proven_readiness = None)],
        ProofStatus::Proven
    )]
    #[case::version(vec![proven("d2-t2"), other(|record| record.version = "1.8.0".into())], ProofStatus::Open)]
    #[case::package(vec![proven("d2-t2"), other(|record| record.name = "calico".into())], ProofStatus::Open)]
    fn two_packages(#[case] recorded: Vec<PackageRecord>, #[case] expected: ProofStatus) {
        assert_eq!(proof_status(&recorded, [TARGET, TARGET].into_iter()), expected);
    }

    #[test]
    fn nothing_is_proven_by_nothing() {
        assert_eq!(proof_status(&[], [].into_iter()), ProofStatus::Proven);
    }
}
