//! Searches with a planted defect.

use rstest::rstest;

use super::{Kind, Search, sample::Runs};
use crate::{
    defect::Defect,
    objects::PACKAGES,
    random::SEED,
    users::{Edit, Paused},
};

/// Number of states that are searched without a defect.
const STATES: usize = 3_000;

/// Number of states in which each defect is found. The runs depend on what the product writes, so there is room for other runs.
const MOST: usize = 30_000;

/// Each planted defect breaks a rule in some run, and the same runs break none without the defect.
#[rstest]
#[case::changed_kapp_controller(Defect::ChangeUnseen, || Search::new(Kind::Nothing), "order: ")]
#[case::changed_app(Defect::ChangeUnseen, || Search { rounds: 1, ..Search::new(Kind::Nothing) }, "early: ")]
#[case::cluster_not_read(
    Defect::ClusterUnread,
    || Search { rounds: 2, lags: Some(0), ..Search::new(Kind::Edits(&[Edit::Unimportant])) },
    "outdated: "
)]
#[case::edit_of_the_cluster(
    Defect::GenerationUnseen,
    || Search { rounds: 3, ..Search::new(Kind::Edits(&[Edit::Unimportant])) },
    "stale: "
)]
#[case::paused_cluster(
    Defect::PauseUnseen,
    || Search::new(Kind::Edits(&[Edit::Pause(Paused::Cluster)])),
    "paused: "
)]
#[case::deleted_cluster(Defect::DeletionUnseen, || Search::new(Kind::Edits(&[Edit::Delete])), "paused: ")]
#[case::nothing_to_uninstall(
    Defect::InstallsUnlisted,
    || Search { packages: &PACKAGES, begins_with: &[Edit::Delete], ..Search::new(Kind::Nothing) },
    "deleted: "
)]
fn a_search_finds_a_planted_defect(
    #[case] defect: Defect,
    #[case] search: fn() -> Search,
    #[case] rule: &str,
) {
    let runs = |defect: Option<Defect>| {
        Runs::of(Search {
            defect,
            seed: SEED,
            ..search()
        })
    };
    let mut planted = runs(Some(defect));
    while planted.run().is_none_or(|broken| !broken.starts_with(rule)) {
        assert!(planted.states < MOST, "not found in {}", planted.report());
    }
    let mut sound = runs(None);
    while sound.states < STATES {
        assert_eq!(sound.run(), None);
    }
}
