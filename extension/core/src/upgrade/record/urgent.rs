//! Changes of a record that are written immediately, while other progress may wait.

use sluice_crds::run::{FirstSeenRun, PackageRecord, PackageState, Swap, UpgradeRecord};

use super::swap::is_over;
use crate::upgrade::course::holds;

/// Whether `new` changes a hook decision of `old`, or an input of the next judgement: a first seen run, the loss of a proof, or the overrides
/// that do not count. An override that is created before these are written would be one of them. Message and reason of a closed gate may wait
/// while they follow the progress of packages.
#[must_use]
pub fn is_urgent(old: &UpgradeRecord, new: &UpgradeRecord) -> bool {
    let answers = |record: &UpgradeRecord| {
        (
            record
                .gates
                .iter()
                .map(holds::without_progress)
                .collect::<Vec<_>>(),
            (
                record.begun_at.is_some(),
                record.workload_uid.clone(),
                record.kapp_controller,
            ),
            record.label.clone(),
            record.to.clone(),
            record.outcome,
            record.observed_cluster_generation,
            record.observed_bootstrap_generation,
            record.swap.as_ref().map(without_progress),
            record.supervisor.clone(),
            record.rollback.clone(),
            record.spent_overrides.clone(),
        )
    };
    answers(old) != answers(new)
        || first_seen(new).any(|run| first_seen(old).all(|known| known != run))
        || proofs(old).any(|proof| proofs(new).all(|kept| kept != proof))
}

/// Returns a swap without its progress: the reason, the time of the written entry, which the Cluster shows, and the number of replaced
/// machines.
fn without_progress(swap: &Swap) -> (Swap, bool) {
    let (reason, message, written_at) = Default::default();
    let step = Swap {
        reason,
        message,
        written_at,
        ..swap.clone()
    };
    (step, is_over(swap))
}

/// Returns the entries on which later proofs of the same generations depend.
fn proofs(record: &UpgradeRecord) -> impl Iterator<Item = impl PartialEq + '_> {
    let proven = |package: &&PackageRecord| package.state == PackageState::Ready;
    record.packages.iter().filter(proven).map(|package| {
        (
            &package.name,
            package.proven_readiness,
            &package.app_uid,
            package.app_generation,
        )
    })
}

fn first_seen(record: &UpgradeRecord) -> impl Iterator<Item = &FirstSeenRun> {
    record
        .packages
        .iter()
        .filter_map(|package| package.first_seen_run.as_ref())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::run::{Outcome, Readiness, Rollback, SupervisorAnswer};

    use super::super::tests::{Scene, judged};
    use super::*;
    use crate::upgrade::overrides::tests::by;

    fn run(app_generation: i64) -> FirstSeenRun {
        FirstSeenRun {
            app_uid: "app".into(),
            app_generation,
            fetch_started_at: None,
            deploy_started_at: None,
        }
    }

    #[rstest]
    #[case::nothing(|_: &mut UpgradeRecord| {}, false)]
    #[case::how_far_a_package_is(|r: &mut UpgradeRecord| r.packages[1].state = PackageState::Failed, false)]
    #[case::a_further_proof(|r: &mut UpgradeRecord| r.packages[1].state = PackageState::Ready, false)]
    #[case::a_proof_that_is_lost(|r: &mut UpgradeRecord| r.packages[0].state = PackageState::Failed, true)]
    #[case::a_proof_of_another_app(|r: &mut UpgradeRecord| r.packages[0].app_uid = Some("other".into()), true)]
    #[case::a_proof_of_another_generation(|r: &mut UpgradeRecord| r.packages[0].app_generation = Some(8), true)]
    #[case::a_proof_of_less(|r: &mut UpgradeRecord| r.packages[0].proven_readiness = Some(Readiness::Applied), true)]
    // An altered Secret is found again until it is recorded, and a Package is compared before a gate opens.
    #[case::a_repair(|r: &mut UpgradeRecord| r.packages[1].repairs = 1, false)]
    #[case::a_time(|r: &mut UpgradeRecord| r.ready_at = None, false)]
    #[case::a_run_that_is_no_longer_needed(|r: &mut UpgradeRecord| r.packages[0].first_seen_run = None, false)]
    #[case::a_run_at_the_next_generation(|r: &mut UpgradeRecord| r.packages[0].first_seen_run = Some(run(3)), true)]
    #[case::a_gate(|r: &mut UpgradeRecord| r.gates[0].open ^= true, true)]
    #[case::a_gate_of_another_version(|r: &mut UpgradeRecord| r.gates[0].version = "v1.40.0".into(), true)]
    #[case::a_further_gate(|r: &mut UpgradeRecord| { let gate = r.gates[0].clone(); r.gates.push(gate); }, true)]
    #[case::a_gate_by_an_override(|r: &mut UpgradeRecord| r.gates[0].overridden_by = Some(by("skip")), true)]
    #[case::a_pause(|r: &mut UpgradeRecord| r.gates[0].reason = "ClusterPaused".into(), true)]
    #[case::another_installer(|r: &mut UpgradeRecord| r.gates[0].reason = "KappControllerNotInstalled".into(), true)]
    #[case::an_outdated_cache(|r: &mut UpgradeRecord| r.gates[0].reason = "CacheOutdated".into(), true)]
    #[case::the_begin(|r: &mut UpgradeRecord| r.begun_at = None, true)]
    #[case::another_workload(|r: &mut UpgradeRecord| r.workload_uid = Some("other".into()), true)]
    #[case::a_fault(|r: &mut UpgradeRecord| r.gates[0].reason = "ValuesNotFound".into(), true)]
    #[case::a_failed_package(|r: &mut UpgradeRecord| r.gates[0].reason = "PackageFailed".into(), false)]
    #[case::a_step_of_cluster_api(|r: &mut UpgradeRecord| r.gates[0].reason = "WorkersUpgrading".into(), false)]
    #[case::another_message_of_a_gate(|r: &mut UpgradeRecord| r.gates[0].message = "waiting for another package".into(), false)]
    #[case::the_end(|r: &mut UpgradeRecord| r.outcome = Some(Outcome::Completed), true)]
    #[case::an_edit_of_the_cluster(|r: &mut UpgradeRecord| r.observed_cluster_generation += 1, true)]
    #[case::an_edit_of_the_bootstrap(|r: &mut UpgradeRecord| r.observed_bootstrap_generation += 1, true)]
    #[case::another_target(|r: &mut UpgradeRecord| r.to = "v1.40.0".into(), true)]
    #[case::an_answer_about_the_supervisor(|r: &mut UpgradeRecord| r.supervisor = Some(SupervisorAnswer::default()), true)]
    #[case::a_rollback(|r: &mut UpgradeRecord| r.rollback = Some(Rollback::default()), true)]
    #[case::overrides_that_do_not_count(|r: &mut UpgradeRecord| r.spent_overrides = Some(Vec::new()), true)]
    #[case::another_label(|r: &mut UpgradeRecord| r.label = "40-1".into(), true)]
    fn urgent_changes(#[case] edit: fn(&mut UpgradeRecord), #[case] urgent: bool) {
        let mut package = judged("antrea", PackageState::Ready);
        package.record.first_seen_run = Some(run(2));
        let old = Scene {
            judged: Some(vec![package, judged("metrics", PackageState::Applied)]),
            ..Scene::ready()
        }
        .advance(None);
        let mut new = old.clone();
        edit(&mut new);
        assert_eq!(is_urgent(&old, &new), urgent);
    }
}
