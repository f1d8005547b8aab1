//! What must never happen, told by what is really deployed and not by what any object says.

use crate::world::{World, version_of};

/// The control plane is about to take a version.
pub(crate) fn control_plane_takes(world: &mut World, version: u8) {
    let last = version == world.cluster.to;
    let installed = world.packages.iter().all(|package| {
        let release = package.deployed.wish.release;
        version_of(release) == version && (!last || release == world.cluster.label)
    });
    let proven_here = world
        .packages
        .iter()
        .all(|package| package.deployed.on == world.control_plane.status);
    if !installed {
        world.broken = Some("the control plane took a version before its packages were installed");
    } else if !proven_here {
        world.broken = Some("the control plane took a version with packages proven on another API server");
    }
}

/// Workers are about to take a version.
pub(crate) fn workers_take(world: &mut World, version: u8) {
    let control_plane = world.control_plane;
    let proven_here = world.packages.iter().all(|package| {
        package.deployed.on == control_plane.status && version_of(package.deployed.wish.release) >= version
    });
    if control_plane.rolling() || !proven_here {
        world.broken =
            Some("workers took a version before the packages were proven on the new control plane");
    }
}
