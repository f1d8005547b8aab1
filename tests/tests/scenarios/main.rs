//! Scenarios on the real stack: real Cluster API, real API servers, real kapp-controllers, the release binary of Sluice.

mod broken_package;
mod create;
mod false_ready;
mod harness_installs;
mod minor_upgrade;
mod observer_catches;
mod removed_api;
mod unmanaged;

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_tests::scenario::main(&[
        harness_installs::scenario(),
        observer_catches::scenario(),
        create::scenario(),
        minor_upgrade::scenario(),
        broken_package::scenario(),
        removed_api::scenario(),
        unmanaged::scenario(),
        false_ready::scenario(),
    ])
}
