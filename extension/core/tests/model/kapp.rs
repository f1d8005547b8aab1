//! kapp-controller v0.53.1, as far as its objects show it (`pkg/packageinstall`, `pkg/app`).

use crate::world::{Deployed, Package, State, World};

/// Whether a look at the PackageInstall would change anything.
pub(crate) fn install_has_work(package: &Package) -> bool {
    let mut after = package.clone();
    reconcile_install(&mut after);
    after != *package
}

/// One reconciliation of a PackageInstall. It repeats the state of the App *before* it hands the App its new wish: this is
/// where a success is shown that is not one.
pub(crate) fn reconcile_install(package: &mut Package) {
    let Package { install, app, .. } = package;
    install.chosen = install.wish.release;
    install.state = if app.generation == app.observed {
        app.state
    } else {
        State::Reconciling
    };
    install.observed = install.generation;
    if (app.wish, app.paused) != (install.wish, install.paused) {
        app.wish = install.wish;
        app.paused = install.paused;
        app.generation += 1;
    }
}

/// Whether the App may begin an attempt: for a change, or after a failure.
pub(crate) fn app_may_start(package: &Package) -> bool {
    let app = &package.app;
    app.running.is_none() && (app.generation != app.observed || (app.state == State::Failed && !app.paused))
}

/// An attempt begins. A paused App only says that it has seen the change, and keeps showing its old state.
pub(crate) fn start_app(package: &mut Package, api_server: u8) {
    let app = &mut package.app;
    app.observed = app.generation;
    if !app.paused {
        app.state = State::Reconciling;
        app.running = Some((app.wish, api_server));
    }
}

/// The running attempt ends. What it deployed is the wish that it began with.
pub(crate) fn finish_app(package: &mut Package, succeeds: bool) {
    let Some((wish, on)) = package.app.running.take() else {
        return;
    };
    package.app.state = if succeeds { State::Succeeded } else { State::Failed };
    if succeeds {
        package.deployed = Deployed { wish, on };
    }
}

/// The API server that deployments go to: all run on what the control plane's status says.
pub(crate) fn api_server(world: &World) -> u8 {
    world.control_plane.status
}
