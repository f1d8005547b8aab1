//! What people do to the objects, in any order and at any time.

use sluice_crds::run::Hook;

use crate::world::{World, version_of};

/// One edit. Each may be made once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Edit {
    /// `spec.topology.version`, as the Cluster webhook admits it.
    Version(u8),
    /// The same with the annotation that turns the webhook's version checks off.
    UnsafeVersion(u8),
    /// The release label.
    Label(u8),
    /// Values in the ClusterBootstrap.
    Values,
    /// `spec.paused` of the Cluster.
    PauseCluster,
    /// ... and back.
    ResumeCluster,
    /// `spec.paused` of the ClusterBootstrap.
    PauseBootstrap,
    /// ... and back.
    ResumeBootstrap,
    /// An annotation that keeps the upgrade from starting.
    HoldStart,
    /// ... and its removal.
    LetStart,
    /// `spec.paused` of a PackageInstall.
    PauseInstall(usize),
    /// ... and back.
    ResumeInstall(usize),
    /// The status of the ClusterBootstrap, as `clusterctl move` loses it.
    LoseRecord,
}

/// Whether the edit changes anything and is admitted.
pub(crate) fn is_possible(world: &World, edit: Edit) -> bool {
    match edit {
        Edit::Version(to) => to > world.cluster.to && version_is_admitted(world),
        Edit::UnsafeVersion(to) => to != world.cluster.to,
        Edit::Label(release) => release != world.cluster.label,
        Edit::Values => true,
        Edit::LoseRecord => world.bootstrap.record.is_some(),
        Edit::PauseCluster => !world.cluster.paused,
        Edit::ResumeCluster => world.cluster.paused,
        Edit::PauseBootstrap => !world.bootstrap.paused,
        Edit::ResumeBootstrap => world.bootstrap.paused,
        Edit::HoldStart => !world.cluster.start_held,
        Edit::LetStart => world.cluster.start_held,
        Edit::PauseInstall(package) => !world.packages[package].install.paused,
        Edit::ResumeInstall(package) => world.packages[package].install.paused,
    }
}

fn version_is_admitted(world: &World) -> bool {
    let at_target = |spec, status| spec == world.cluster.to && status == world.cluster.to;
    !world.capi.pending.has(Hook::AfterClusterUpgrade)
        && at_target(world.control_plane.spec, world.control_plane.status)
        && world
            .workers
            .is_none_or(|workers| at_target(workers.spec, workers.status))
}

/// Makes the edit.
pub(crate) fn make(world: &mut World, edit: Edit) {
    let cluster = &mut world.cluster;
    match edit {
        Edit::Version(to) | Edit::UnsafeVersion(to) => {
            cluster.to = to;
            cluster.generation += 1;
        }
        Edit::Label(release) => cluster.label = release,
        Edit::Values => {
            world.bootstrap.values += 1;
            world.bootstrap.generation += 1;
        }
        Edit::PauseCluster | Edit::ResumeCluster => {
            cluster.paused = edit == Edit::PauseCluster;
            cluster.generation += 1;
        }
        Edit::PauseBootstrap | Edit::ResumeBootstrap => {
            world.bootstrap.paused = edit == Edit::PauseBootstrap;
            world.bootstrap.generation += 1;
        }
        Edit::LoseRecord => world.bootstrap.record = None,
        Edit::HoldStart => cluster.start_held = true,
        Edit::LetStart => cluster.start_held = false,
        Edit::PauseInstall(package) | Edit::ResumeInstall(package) => {
            let install = &mut world.packages[package].install;
            install.paused = edit == Edit::PauseInstall(package);
            install.generation += 1;
        }
    }
}

/// Makes every input good: nothing is paused or held, and the label names a release of the target.
pub(crate) fn make_everything_good(world: &mut World) {
    for edit in [Edit::ResumeCluster, Edit::ResumeBootstrap, Edit::LetStart] {
        if is_possible(world, edit) {
            make(world, edit);
        }
    }
    for package in 0..world.packages.len() {
        if is_possible(world, Edit::ResumeInstall(package)) {
            make(world, Edit::ResumeInstall(package));
        }
    }
    // Cluster API goes to no version below the control plane's.
    if world.cluster.to < world.control_plane.spec {
        make(world, Edit::UnsafeVersion(world.control_plane.spec));
    }
    if version_of(world.cluster.label) != world.cluster.to {
        make(world, Edit::Label(world.cluster.to));
    }
}
