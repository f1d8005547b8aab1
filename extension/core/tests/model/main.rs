//! A model of one Cluster's upgrade, explored exhaustively by `stateright`.
//!
//! The functions of the product run in it as they are: `progress`, `for_progress`, `judge`, `advance`, `pause` and `decide`.
//! Around them are small models of Cluster API ([`capi`]), kapp-controller ([`kapp`]), users ([`users`]) and of our
//! controller's writes ([`leader`]). Nothing here stands for them in a test that claims to run them.
//!
//! Two things are checked in every reachable state:
//! - **safety**: a version was written only after what [`truth`] demands, judged by what is really deployed;
//! - **liveness**: with every input made good, a fair schedule completes the upgrade within a bound. No state holds for
//!   ever.
//!
//! These scenarios of the real stack (`make scenarios`) are paths here:
//!
//! | scenario | model |
//! |---|---|
//! | minor-upgrade, false-ready, removed-api, broken-package | `one_minor_with_failure_and_resync`, `two_packages` |
//! | chained, worker-hops | `chained_by_kubernetes_versions`, `chained_with_workers_at_every_step` |
//! | order-of-edits | `edits_in_any_order`, `watches_that_lag`, `an_old_index_and_edits` |
//! | killed, outage | `two_leaders`, `two_leaders_in_a_chain`: a leader that has read and never acts, another that acts on an older read. A process without local state is the same before and after a restart, and a call without a response is a step that is not taken |
//! | workload-silent, kubeconfig-swapped | `a_workload_that_falls_silent`, `a_kubeconfig_that_is_swapped` |
//! | package-stopped, values-only | `packages_that_are_stopped`, `a_paused_package_install`, `edits_in_any_order` |
//! | kapp-controller-changes, kapp-controller-restarts | `two_packages` and all with two: what the first one's change cuts short is never resumed |
//! | bootstrap-edited, bootstrap-deleted | `edits_in_any_order`, `a_bootstrap_that_is_forced_away` |
//! | merge-that-fails | `a_merge_that_fails` |
//! | old-manifest, kept-package | `an_old_manifest_that_is_applied_again`, `an_old_manifest_in_a_chain`; what is kept is a table of `below_release` |
//! | paused-by-hand | `pauses_of_every_kind` |
//! | back-and-forth | `target_moved_back_and_forth`, `target_moved_in_a_chain`, `a_label_that_is_taken_away` |
//! | deletion, namespace-deletion | `a_cluster_that_is_deleted`, `a_cluster_that_is_made_again_under_its_name` |
//! | moved | `a_cluster_that_is_moved`, `a_cluster_that_is_moved_in_a_chain_before_a_replica_sees_it`, `a_record_that_is_lost` |
//! | only-workers | any: a rollout that has not ended is a step that is not taken |
//! | resync | `one_minor_with_failure_and_resync`, `chained_with_workers_at_every_step` |
//! | twenty, unmanaged | none: every function here has the facts of one Cluster as its input, and shares nothing with another |
//!
//! What the models leave out:
//! - A leader writes nothing to a workload after the ClusterBootstrap that it read has changed. It may: a PackageInstall is only
//!   refused if it was written itself meanwhile. The next reconcile judges by the new digests, and installs what they ask for.
//! - The release label is not moved away and back faster than a replica's watch. Two edits of the label, or of an annotation of
//!   the ClusterBootstrap, within one watch delay look the same to a record, since neither has a generation.
//! - What a Package contains, repairs, what is deleted or edited on the workload, gates that failed reconciles close, a template that is
//!   missing, releases that `TKR_DATA` pins: tables, whole reconciles against fake servers and scenarios only.
//! - Readiness `Applied`, phase `AfterControlPlane`, packages that take no values, kept versions, empty sets, the age of a
//!   replica's cache, the fresh reads before a gate opens and the fence of the lease: tables and scenarios only.
//! - The Cluster in a request is the latest one. An older one is answered as the latest one is, unless its label differs, or its
//!   target where the hook names one.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that runs outside of test functions, too"
)]

mod capi;
mod kapp;
mod leader;
mod objects;
mod truth;
mod upgrade;
mod users;
mod world;

use capi::Plan;
use leader::catalogue;
use upgrade::{Upgrade, check};
use users::Edit;
use world::{Contact, Stop};

const BUMP: [Edit; 2] = [Edit::Version(1), Edit::Label(1)];

#[test]
fn one_minor_with_failure_and_resync() {
    check(
        "one minor",
        Upgrade {
            failures: 1,
            resyncs: 1,
            ..Upgrade::new(Plan::None, &BUMP)
        },
    );
}

#[test]
fn edits_in_any_order() {
    let edits = &[Edit::Version(1), Edit::Label(1), Edit::Label(3), Edit::Values];
    let releases = catalogue(&[0, 1, 3]);
    check(
        "edits",
        Upgrade {
            releases,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn watches_that_lag() {
    let edits = &[Edit::Version(1), Edit::Label(1), Edit::Values];
    check(
        "watches that lag",
        Upgrade {
            watches_lag: true,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn two_packages() {
    check(
        "two packages",
        Upgrade {
            packages: 2,
            failures: 1,
            ..Upgrade::new(Plan::None, &BUMP)
        },
    );
}

#[test]
fn chained_by_kubernetes_versions() {
    let edits = &[Edit::Version(2), Edit::Label(2), Edit::Values];
    check(
        "chained",
        Upgrade {
            failures: 1,
            ..Upgrade::new(Plan::Versions, edits)
        },
    );
}

#[test]
fn chained_with_workers_at_every_step() {
    let edits = &[Edit::Version(2), Edit::Label(2)];
    check(
        "chained, workers too",
        Upgrade {
            failures: 1,
            resyncs: 1,
            ..Upgrade::new(Plan::WorkersToo, edits)
        },
    );
}

#[test]
fn target_moved_back_and_forth() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::UnsafeVersion(0),
        Edit::Label(0),
        Edit::UnsafeVersion(1),
    ];
    check("back and forth", Upgrade::new(Plan::None, edits));
}

#[test]
fn target_moved_in_a_chain() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::UnsafeVersion(2),
        Edit::Label(2),
        Edit::UnsafeVersion(1),
    ];
    check("moved in a chain", Upgrade::new(Plan::Versions, edits));
}

#[test]
fn pauses_of_every_kind() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::PauseCluster,
        Edit::ResumeCluster,
        Edit::PauseBootstrap,
        Edit::ResumeBootstrap,
        Edit::HoldStart,
        Edit::LetStart,
    ];
    check("pauses", Upgrade::new(Plan::None, edits));
}

#[test]
fn a_label_that_is_taken_away() {
    let edits = &[Edit::Version(1), Edit::Label(1), Edit::NoLabel, Edit::Label(5)];
    let releases = catalogue(&[0, 1, 5]);
    check(
        "label removed",
        Upgrade {
            releases,
            failures: 1,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn a_bootstrap_that_is_forced_away() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::Label(3),
        Edit::DeleteBootstrap,
    ];
    let releases = catalogue(&[0, 1, 3]);
    check(
        "bootstrap deleted",
        Upgrade {
            releases,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn a_merge_that_fails() {
    let edits = &[Edit::MendMerge, Edit::LoseMark, Edit::LoseStatus];
    check(
        "merge that fails",
        Upgrade {
            begins_with: &[Edit::BreakMerge, Edit::Version(1), Edit::Label(1)],
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn an_old_manifest_that_is_applied_again() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::OldManifest,
        Edit::LoseMark,
    ];
    check("old manifest", Upgrade::new(Plan::None, edits));
}

#[test]
fn an_old_manifest_in_a_chain() {
    let edits = &[Edit::Version(2), Edit::Label(2), Edit::OldManifest];
    check("old manifest in a chain", Upgrade::new(Plan::WorkersToo, edits));
}

#[test]
fn a_cluster_that_is_moved() {
    let edits = &[Edit::Version(1), Edit::Label(1), Edit::Label(3), Edit::Move];
    let releases = catalogue(&[0, 1, 3]);
    check(
        "moved",
        Upgrade {
            releases,
            failures: 1,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn a_cluster_that_is_moved_in_a_chain_before_a_replica_sees_it() {
    let edits = &[Edit::Version(2), Edit::Label(2), Edit::Move];
    check(
        "moved in a chain",
        Upgrade {
            replicas: 1,
            ..Upgrade::new(Plan::WorkersToo, edits)
        },
    );
}

#[test]
fn a_cluster_that_is_made_again_under_its_name() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::MakeAnew,
        Edit::DeleteBootstrap,
    ];
    check(
        "made again",
        Upgrade {
            packages: 2,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn a_cluster_that_is_deleted() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::Contact(Contact::Silent),
        Edit::Delete,
        Edit::DeleteBootstrap,
    ];
    check(
        "deleted",
        Upgrade {
            packages: 2,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn a_workload_that_falls_silent() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::Contact(Contact::Silent),
        Edit::Contact(Contact::SilentForLong),
        Edit::Contact(Contact::NeverAnswered),
        Edit::Contact(Contact::Answers),
    ];
    check(
        "workload silent",
        Upgrade {
            packages: 2,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn a_kubeconfig_that_is_swapped() {
    let edits = &[Edit::Version(1), Edit::Label(1), Edit::SwapServer];
    check(
        "kubeconfig swapped",
        Upgrade {
            packages: 2,
            failures: 1,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn packages_that_are_stopped() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::StopInstall(1, Stop::Canceled),
        Edit::StopApp(1, Stop::Paused),
        Edit::ResumeInstall(1),
    ];
    check(
        "stopped packages",
        Upgrade {
            packages: 2,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn a_paused_package_install() {
    let edits = &[
        Edit::Version(1),
        Edit::Label(1),
        Edit::StopInstall(0, Stop::Paused),
        Edit::ResumeInstall(0),
        Edit::Values,
    ];
    check("paused PackageInstall", Upgrade::new(Plan::None, edits));
}

#[test]
fn two_replicas_with_old_indexes() {
    check(
        "two replicas",
        Upgrade {
            replicas: 2,
            failures: 1,
            ..Upgrade::new(Plan::None, &BUMP)
        },
    );
}

#[test]
fn an_old_index_and_edits() {
    let edits = &[Edit::Version(1), Edit::Label(1), Edit::Label(3)];
    let releases = catalogue(&[0, 1, 3]);
    check(
        "old index",
        Upgrade {
            releases,
            replicas: 1,
            failures: 1,
            ..Upgrade::new(Plan::None, edits)
        },
    );
}

#[test]
fn two_leaders() {
    check(
        "two leaders",
        Upgrade {
            rivals: 2,
            failures: 1,
            ..Upgrade::new(Plan::None, &BUMP)
        },
    );
}

#[test]
fn two_leaders_in_a_chain() {
    check(
        "two leaders in a chain",
        Upgrade {
            rivals: 2,
            begins_with: &[Edit::Version(2), Edit::Label(2)],
            ..Upgrade::new(Plan::Versions, &[])
        },
    );
}

#[test]
fn a_record_that_is_lost() {
    let edits = &[Edit::Version(2), Edit::Label(2), Edit::LoseStatus];
    check(
        "record lost",
        Upgrade {
            failures: 1,
            ..Upgrade::new(Plan::WorkersToo, edits)
        },
    );
}

#[test]
fn floors_between_calls() {
    let edits = &[Edit::Version(2), Edit::Label(2), Edit::UnsafeVersion(1)];
    check(
        "floors",
        Upgrade {
            floors: true,
            ..Upgrade::new(Plan::Versions, edits)
        },
    );
}
