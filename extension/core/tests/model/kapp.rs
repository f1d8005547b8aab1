//! kapp-controller v0.53.1, as far as its objects show it (`pkg/packageinstall`, `pkg/app`).

use crate::world::{Deployed, Package, State, Stop, World};

/// Whether a look at the PackageInstall would change anything.
pub(crate) fn install_has_work(package: &Package) -> bool {
    let mut after = package.clone();
    reconcile_install(&mut after);
    after != *package
}

/// One reconciliation of a PackageInstall. It repeats the state of the App *before* it hands the App its new wish: this is
/// where a success is shown that is not one.
pub(crate) fn reconcile_install(package: &mut Package) {
    if package.is_missing() {
        return;
    }
    let Package { install, app, .. } = package;
    install.chosen = install.wish.package;
    install.state = if app.generation == app.observed {
        app.state
    } else {
        State::Reconciling
    };
    install.observed = install.generation;
    if (app.wish, app.stop) != (install.wish, install.stop) {
        app.wish = install.wish;
        app.stop = install.stop;
        app.generation += 1;
    }
}

/// Whether the App may begin an attempt: for a change, or after a failure. One that a restart cut short is left as it is
/// until the sync period has passed.
pub(crate) fn app_may_start(package: &Package) -> bool {
    let app = &package.app;
    let failed = app.state == State::Failed && app.stop == Stop::No;
    app.running.is_none() && (app.generation != app.observed || failed)
}

/// An attempt begins. A stopped App only says that it has seen the change, and keeps showing its old state.
pub(crate) fn start_app(package: &mut Package, api_server: u8) {
    let app = &mut package.app;
    app.observed = app.generation;
    if app.stop == Stop::No {
        app.state = State::Reconciling;
        app.running = Some((app.wish, api_server));
    }
}

/// The running attempt of a package ends. What it deployed is the wish that it began with. When it was kapp-controller
/// itself that changed, its process begins again and no other attempt goes on.
pub(crate) fn finish_app(world: &mut World, package: usize, succeeds: bool) {
    let own = &mut world.packages[package];
    let Some((wish, on)) = own.app.running.take() else {
        return;
    };
    own.app.state = if succeeds { State::Succeeded } else { State::Failed };
    if !succeeds {
        return;
    }
    let restarts = package == 0 && own.deployed.wish.package != wish.package;
    own.deployed = Deployed { wish, on };
    if restarts {
        for other in &mut world.packages[1..] {
            other.app.running = None;
        }
    }
}

/// The API server that deployments go to: all run on what the control plane's status says.
pub(crate) fn api_server(world: &World) -> u8 {
    world.control_plane.status
}
