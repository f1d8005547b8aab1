//! What must never happen, judged by what is really deployed and not by what any object says.

use crate::world::{NO_LABEL, Package, RELEASES, SERVERS, Stop, UIDS, Wish, World, packages_of, version_of};

/// The packages on the API server that the record speaks of. A kubeconfig that was swapped and not yet seen is no release
/// too early; it is one from when it is recorded on.
fn spoken_of(world: &World) -> impl Iterator<Item = &Package> {
    let unseen = server_spoken_of(world) != world.server;
    let elsewhere = &world.elsewhere;
    let swapped = move |(index, package)| {
        if unseen && index > 0 {
            &elsewhere[index - 1]
        } else {
            package
        }
    };
    world.packages.iter().enumerate().map(swapped)
}

/// The API server that the record speaks of.
fn server_spoken_of(world: &World) -> u8 {
    let record = world.bootstrap.record.as_ref().map(|record| &*record.0);
    let other = SERVERS[usize::from(world.server ^ 1)];
    let unseen = record.is_some_and(|record| {
        record.cluster_uid == UIDS[usize::from(world.cluster.uid)]
            && record.workload_uid.as_deref() == Some(other)
    });
    if unseen { world.server ^ 1 } else { world.server }
}

/// Whether a release of a version that passes has these packages.
fn is_of(wish: Wish, passes: impl Fn(u8) -> bool) -> bool {
    let releases = RELEASES.iter().zip(0..);
    releases
        .filter(|((_, version), _)| passes(*version))
        .any(|(_, release)| packages_of(release) == wish.package)
}

/// Whether the Cluster is one that is never asked about.
fn unmanaged(world: &World) -> bool {
    world.cluster.label == NO_LABEL && !world.bootstrap.exists
}

/// The control plane is about to take a version. `fresh` says that the replica that was asked had seen the latest
/// ClusterBootstrap.
pub(crate) fn control_plane_takes(world: &mut World, version: u8, fresh: bool) {
    if unmanaged(world) {
        return;
    }
    let last = version == world.cluster.to;
    let (label, values) = (world.cluster.label, world.bootstrap.values);
    let labelled = !last || version_of(label) == Some(version);
    let installed = labelled
        && spoken_of(world).all(|package| {
            let wish = package.deployed.wish;
            is_of(wish, |of| of == version) && (!last || wish.package == packages_of(label))
        });
    let with_values = !fresh || spoken_of(world).all(|package| package.deployed.wish.values == values);
    let here = world.control_plane.status;
    let spoken = server_spoken_of(world);
    // A leader may be on its way to the new server before it has recorded anything.
    let on_server = |package: &Package| package.deployed.wish.server == spoken || spoken != world.server;
    let proven_here = spoken_of(world).all(|package| package.deployed.on == here && on_server(package));
    if !installed {
        world.broken = Some("the control plane took a version before its packages were installed");
    } else if !with_values {
        world.broken = Some("the control plane took a version before new values were deployed");
    } else if !proven_here {
        world.broken = Some("the control plane took a version with packages proven on another API server");
    }
}

/// Workers are about to take a version.
pub(crate) fn workers_take(world: &mut World, version: u8) {
    if unmanaged(world) {
        return;
    }
    let control_plane = world.control_plane;
    let proven_here = spoken_of(world).all(|package| {
        package.deployed.on == control_plane.status && is_of(package.deployed.wish, |of| of >= version)
    });
    if control_plane.rolling() || !proven_here {
        world.broken =
            Some("workers took a version before the packages were proven on the new control plane");
    }
}

/// A leader has written a PackageInstall from what is there now.
pub(crate) fn package_is_written(world: &mut World, written: usize) {
    let wish = world.packages[written].install.wish;
    if world.cluster.paused || world.bootstrap.paused || world.cluster.deleting() {
        world.broken = Some("a package was written in a pause");
    } else if written > 0 && world.packages[0].deployed.wish != wish {
        world.broken = Some("a package was written before kapp-controller was at the hop");
    } else if written > 0 && world.packages[0].app.stop != Stop::No {
        world.broken = Some("a package was written while kapp-controller is stopped");
    }
}

/// The Cluster is about to go for good.
pub(crate) fn cluster_goes(world: &mut World) {
    let uninstalled = world.packages.iter().skip(1).all(Package::is_missing);
    if world.bootstrap.exists && !uninstalled {
        world.broken = Some("the Cluster went before its packages were uninstalled");
    }
}
