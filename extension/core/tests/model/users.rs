//! What people do to the objects, in any order and at any time.

use sluice_crds::run::Hook;

use crate::world::{
    Bootstrap, CapiMemory, Contact, Hooks, Life, NO_LABEL, Package, Planned, Rollout, Stop, World, version_of,
};

/// One edit. Each may be made once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Edit {
    /// `spec.topology.version`, as the Cluster webhook admits it.
    Version(u8),
    /// The same with the annotation that turns the webhook's version checks off.
    UnsafeVersion(u8),
    /// The release label.
    Label(u8),
    /// ... and its removal.
    NoLabel,
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
    /// A PackageInstall is paused or canceled.
    StopInstall(usize, Stop),
    /// ... and goes on.
    ResumeInstall(usize),
    /// An App is paused or canceled behind the back of its PackageInstall.
    StopApp(usize, Stop),
    /// What a merge needs goes away.
    BreakMerge,
    /// ... and comes back.
    MendMerge,
    /// The annotation of the ClusterBootstrap that says its release is lost.
    LoseMark,
    /// The spec of the ClusterBootstrap is replaced by that of the first release; its annotations and status stay.
    OldManifest,
    /// The status of the ClusterBootstrap is lost.
    LoseStatus,
    /// The ClusterBootstrap is gone, its finalizer forced off.
    DeleteBootstrap,
    /// A new UID, generations that begin again and no status, as `clusterctl move` leaves them.
    Move,
    /// The Cluster is deleted and made again under its name, with the same spec, before anything of it is cleaned up.
    MakeAnew,
    /// The Cluster is deleted.
    Delete,
    /// The kubeconfig leads to another API server.
    SwapServer,
    /// How the workload's API server answers us.
    Contact(Contact),
}

/// Whether the edit changes anything and is admitted.
pub(crate) fn is_possible(world: &World, edit: Edit) -> bool {
    if world.cluster.deleting() {
        return matches!(edit, Edit::Contact(_) | Edit::DeleteBootstrap | Edit::LoseStatus);
    }
    match edit {
        Edit::Version(to) => to > world.cluster.to && version_is_admitted(world),
        Edit::UnsafeVersion(to) => to != world.cluster.to,
        Edit::Label(release) => release != world.cluster.label,
        Edit::NoLabel => world.cluster.label != NO_LABEL,
        Edit::Values | Edit::DeleteBootstrap => world.bootstrap.exists,
        Edit::BreakMerge => !world.merge_fails,
        Edit::MendMerge => world.merge_fails,
        Edit::LoseMark => world.bootstrap.marked.is_some(),
        Edit::OldManifest => world.bootstrap.exists && world.bootstrap.release != 0,
        Edit::LoseStatus => world.bootstrap.record.is_some(),
        Edit::Move | Edit::MakeAnew | Edit::Delete => true,
        // A proof on the new control plane is never taken back, whatever is swapped then.
        Edit::SwapServer => world.control_plane == Rollout::settled(0),
        Edit::Contact(contact) => contact != world.contact,
        Edit::PauseCluster => !world.cluster.paused,
        Edit::ResumeCluster => world.cluster.paused,
        Edit::PauseBootstrap => !world.bootstrap.paused,
        Edit::ResumeBootstrap => world.bootstrap.paused,
        Edit::HoldStart => !world.cluster.start_held,
        Edit::LetStart => world.cluster.start_held,
        Edit::StopInstall(package, _) => {
            let package = &world.packages[package];
            package.install.stop == Stop::No && !package.is_missing()
        }
        Edit::ResumeInstall(package) => world.packages[package].install.stop != Stop::No,
        Edit::StopApp(package, stop) => {
            let package = &world.packages[package];
            package.app.stop != stop && !package.is_missing()
        }
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
        Edit::NoLabel => cluster.label = NO_LABEL,
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
        Edit::BreakMerge | Edit::MendMerge => world.merge_fails = edit == Edit::BreakMerge,
        Edit::LoseMark => world.bootstrap.marked = None,
        Edit::OldManifest => {
            world.bootstrap.release = 0;
            world.bootstrap.generation += 1;
        }
        Edit::LoseStatus => {
            world.bootstrap.record = None;
            world.bootstrap.resolved = None;
        }
        Edit::DeleteBootstrap => {
            let gone = Bootstrap::made(world.bootstrap.incarnation, 0);
            world.bootstrap = Bootstrap {
                exists: false,
                marked: None,
                ..gone
            };
        }
        Edit::Move => {
            cluster.uid = 1;
            cluster.generation = 1;
            cluster.planned = Planned::default();
            world.capi.floored = Hooks::default();
            world.bootstrap = Bootstrap {
                incarnation: world.bootstrap.incarnation + 1,
                generation: 1,
                resolved: None,
                record: None,
                ..world.bootstrap.clone()
            };
        }
        Edit::MakeAnew => {
            cluster.uid = 2;
            cluster.generation = 1;
            cluster.planned = Planned::default();
            world.capi = CapiMemory::default();
            world.control_plane = Rollout::settled(0);
            world.workers = world.workers.map(|_| Rollout::settled(0));
            world.server = 2;
            for package in &mut world.packages[1..] {
                *package = Package::missing(world.server);
            }
        }
        Edit::Delete => cluster.life = Life::Deleting,
        Edit::SwapServer => {
            world.server ^= 1;
            for (here, there) in world.packages[1..].iter_mut().zip(&mut world.elsewhere) {
                std::mem::swap(here, there);
            }
        }
        Edit::Contact(contact) => world.contact = contact,
        Edit::HoldStart => cluster.start_held = true,
        Edit::LetStart => cluster.start_held = false,
        Edit::StopInstall(package, stop) => {
            let install = &mut world.packages[package].install;
            install.stop = stop;
            install.generation += 1;
        }
        Edit::ResumeInstall(package) => {
            let install = &mut world.packages[package].install;
            install.stop = Stop::No;
            install.generation += 1;
        }
        Edit::StopApp(package, stop) => {
            let app = &mut world.packages[package].app;
            app.stop = stop;
            app.generation += 1;
        }
    }
}

/// Packages that were put back are raised to those of the release that was merged.
fn raise_packages(world: &mut World) {
    let bootstrap = &mut world.bootstrap;
    let merged = bootstrap.marked.or(bootstrap.resolved);
    if let Some(release) = merged.filter(|release| *release != bootstrap.release) {
        bootstrap.release = release;
        bootstrap.generation += 1;
    }
}

/// Makes every input good: nothing is paused or held, and the label names a release of the target.
pub(crate) fn make_everything_good(world: &mut World) {
    let good = Edit::Contact(Contact::Answers);
    if is_possible(world, good) {
        make(world, good);
    }
    if world.cluster.deleting() {
        if world.cluster.paused {
            make(world, Edit::ResumeCluster);
        }
        return;
    }
    raise_packages(world);
    for edit in [
        Edit::ResumeCluster,
        Edit::ResumeBootstrap,
        Edit::LetStart,
        Edit::MendMerge,
    ] {
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
    if version_of(world.cluster.label) != Some(world.cluster.to) {
        make(world, Edit::Label(world.cluster.to));
    }
}
